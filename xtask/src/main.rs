//! Developer tasks.

mod codegen;

fn main() -> anyhow::Result<()> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    codegen::generate(&root, &root.join("src/gen"))
}
