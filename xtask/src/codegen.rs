//! Generates `proto/src/gen` from the `.proto` files, without `protoc`. Protocol files that break
//! our rules are refused: see `lint`.

mod lint;

use anyhow::{Context as _, Result, ensure};
use std::path::Path;

/// The files that make up `specdec.v1`.
const PROTOS: [&str; 4] = [
    "specdec/v1/common.proto",
    "specdec/v1/draft.proto",
    "specdec/v1/generation.proto",
    "specdec/v1/target.proto",
];

/// Writes the generated code and the descriptor set into `out`.
pub(crate) fn generate(proto_root: &Path, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    let descriptors = protox::Compiler::new([proto_root])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(PROTOS)
        .context("compile the .proto files")?
        .file_descriptor_set();
    let complaints = lint::complaints(&descriptors);
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    tonic_prost_build::configure()
        .out_dir(out)
        .compile_fds(descriptors)
        .context("generate the Rust code")?;
    // The running server needs no comments: its descriptors are generated without them.
    let bare = protox::Compiler::new([proto_root])?
        .include_imports(true)
        .open_files(PROTOS)?
        .encode_file_descriptor_set();
    std::fs::write(out.join("specdec.v1.bin"), bare)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The files of a folder, by name.
    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let name = entry.file_name().into_string().expect("utf-8");
                (name, std::fs::read(entry.path()).expect("a file"))
            })
            .collect()
    }

    #[test]
    fn generated_code_is_current() {
        let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
        let fresh = tempfile::tempdir().expect("temporary folder");
        generate(&proto, fresh.path()).expect("valid .proto files");
        let (fresh, kept) = (files(fresh.path()), files(&proto.join("src/gen")));
        assert!(
            fresh.keys().eq(kept.keys()),
            "{:?}, not {:?}",
            kept.keys(),
            fresh.keys()
        );
        for (name, content) in fresh {
            // Not assert_eq: it would print the whole file.
            assert!(
                kept[&name] == content,
                "{name} is stale: run `cargo xtask codegen`"
            );
        }
    }

    #[test]
    fn every_file_of_the_protocol_is_generated() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/specdec/v1");
        let names = files(&folder)
            .into_keys()
            .map(|name| format!("specdec/v1/{name}"));
        assert!(
            names.eq(PROTOS),
            "PROTOS must list each file in {}",
            folder.display()
        );
    }
}
