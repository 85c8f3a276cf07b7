//! Folders of safetensors are read as they say, or refused by the file and the key or tensor that is
//! wrong, whatever their bytes.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

mod configurations;
mod damaged;
mod tensors;
mod vocabularies;

use engine::tiny::TinyModel;
use engine::{LoadError, LoadOptions, Loaded, Source};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn written(tiny: &TinyModel, shards: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    tiny.write_folder(folder.path(), shards).unwrap();
    folder
}

fn load(folder: &Path) -> Result<Loaded, LoadError> {
    engine::load(&Source::Files(folder.to_owned()), LoadOptions::default())
}

/// Changes a JSON file of the folder.
fn edit(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut document = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut document);
    fs::write(&path, document.to_string()).unwrap();
}

fn refusal(folder: &Path) -> LoadError {
    match load(folder) {
        Ok(_) => panic!("it is taken"),
        Err(refusal) => refusal,
    }
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}
