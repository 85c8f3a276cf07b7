//! Files mapped into memory, for reading.

use crate::LoadError;
use memmap2::Mmap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

/// Maps a file, which must not be changed while the map lives.
pub(crate) fn map(path: &Path) -> Result<Mmap, LoadError> {
    regular(path)
        .and_then(|file| {
            // SAFETY: the map is read-only and private to this process. That nobody changes or
            // cuts the file meanwhile is required of the caller, as for every program that maps
            // model files; headers are parsed once, so a change cannot move a tensor past the
            // map's end.
            unsafe { Mmap::map(&file) }
        })
        .map_err(|source| failed(path, source))
}

/// Reads a whole file of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    regular(path)
        .and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
        .map_err(|source| failed(path, source))?;
    if bytes.len() as u64 > most {
        return Err(LoadError::Invalid {
            path: path.to_owned(),
            detail: format!("it has more than {most} bytes"),
        });
    }
    Ok(bytes)
}

fn regular(path: &Path) -> std::io::Result<File> {
    let file = File::open(path)?;
    // Mapping a folder or a pipe fails in words that say little.
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Error::new(ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn failed(path: &Path, source: Error) -> LoadError {
    LoadError::Io {
        path: path.to_owned(),
        source,
    }
}
