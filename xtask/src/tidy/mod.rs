//! The rules of the workspace that no compiler checks: which crate may use which, what may be
//! linked under which licence, and what source files look like.

mod deny;
mod files;
mod graph;
mod rules;

use crate::cargo;
use anyhow::{Result, ensure};
use cargo_metadata::MetadataCommand;
use deny::Deny;
use graph::Graph;

/// Checks all rules and prints every violation.
pub(crate) fn run() -> Result<()> {
    let root = cargo::root();
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .exec()?;
    let graph = Graph::from_metadata(&metadata)?;
    let deny = Deny::read(&root.join("deny.toml"))?;
    let violations = [
        rules::arrows(&graph),
        rules::links(&graph),
        rules::licences(&graph, &deny.licenses.allow),
        rules::single_versions(&graph, &deny.bans.skip),
        files::check(root)?,
    ]
    .concat();
    for violation in &violations {
        println!("{violation}");
    }
    ensure!(
        violations.is_empty(),
        "{} rules are broken",
        violations.len()
    );
    Ok(())
}
