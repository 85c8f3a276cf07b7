//! Cargo, called from a program that cargo runs.

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Message;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
}

/// A call of cargo in the workspace.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Cargo describes this package to the programs it runs. Build scripts that watch these
    // variables would run again, and what depends on them would be compiled again.
    for (name, _) in std::env::vars_os() {
        let of_this_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if of_this_package {
            command.env_remove(name);
        }
    }
    command
}

/// Builds all programs and says where they are, by name. A selection of packages would have the
/// dependencies built once more, with that selection's features.
pub(crate) fn build_programs() -> Result<BTreeMap<String, PathBuf>> {
    let mut command = command();
    command.args(["build", "--release", "--workspace", "--bins"]);
    command.arg("--message-format=json-render-diagnostics");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("start cargo")?;
    let stdout = child.stdout.take().context("read from cargo")?;
    let mut programs = BTreeMap::new();
    for message in Message::parse_stream(BufReader::new(stdout)) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(path) = artifact.executable
        {
            programs.insert(artifact.target.name, path.into_std_path_buf());
        }
    }
    ensure!(child.wait()?.success(), "the programs do not build");
    Ok(programs)
}
