//! Files mapped into memory, for reading.

use crate::LoadError;
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::ops::Range;
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

/// Gives back the memory of bytes that have been copied: a model is not to lie in memory twice while
/// it is loaded. They can be read again.
pub(crate) fn release(map: &Mmap, bytes: Range<usize>) {
    #[cfg(unix)]
    {
        // SAFETY: the map is of a file and read-only, so pages that are dropped come back from the
        // file with the same content.
        let released = unsafe {
            map.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len())
        };
        // It is advice: where it is not taken, the memory goes with the map.
        drop(released);
    }
    #[cfg(not(unix))]
    let _ = (map, bytes);
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
