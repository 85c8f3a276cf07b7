//! Generates `proto/src/gen` from the `.proto` files, without `protoc`.

use anyhow::{Context as _, Result};
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
