//! The clients that others wrote and our users have: a Python environment of published packages, for
//! the tests in `tests/clients`.

use crate::cargo;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beside the store of models.
fn folder() -> PathBuf {
    ::models::store_dir().with_file_name("clients")
}

/// Installs the packages that `tests/clients/requirements.txt` names, where that has not been done.
pub(crate) fn install() -> Result<()> {
    let list = cargo::root().join("tests/clients/requirements.txt");
    let wanted = std::fs::read_to_string(&list).context("read the list of clients")?;
    let folder = folder();
    // Written last: an installation that was interrupted does not count.
    let stamp = folder.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("remove the old clients")?;
    }
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    succeed(
        Command::new(python(&folder))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .arg("--requirement")
            .arg(list),
    )?;
    std::fs::write(stamp, wanted).context("note what is installed")
}

fn python(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {command:?}: python3 with venv and pip is needed"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
