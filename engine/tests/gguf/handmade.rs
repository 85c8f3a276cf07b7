//! Files put together byte by byte.

use engine::LoadError;
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A GGUF file put together by hand.
#[derive(Default)]
pub(crate) struct Handmade {
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
}

impl Handmade {
    pub(crate) fn key(mut self, name: &str, tag: u32, value: &[u8]) -> Self {
        string(&mut self.keys, name);
        self.keys.extend(tag.to_le_bytes());
        self.keys.extend(value);
        self.key_count += 1;
        self
    }

    pub(crate) fn tensor(
        mut self,
        name: &str,
        dimensions: &[u64],
        dtype: u32,
        offset: u64,
    ) -> Self {
        string(&mut self.tensors, name);
        self.tensors.extend((dimensions.len() as u32).to_le_bytes());
        for length in dimensions {
            self.tensors.extend(length.to_le_bytes());
        }
        self.tensors.extend(dtype.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    /// Opens it with `data` bytes of tensor data behind the header.
    pub(crate) fn open(&self, data: usize) -> Result<GgufFile, LoadError> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.key_count.to_le_bytes());
        bytes.extend(&self.keys);
        bytes.extend(&self.tensors);
        bytes.resize(bytes.len().next_multiple_of(32) + data, 7);
        open_bytes(&bytes)
    }

    pub(crate) fn refusal(&self, data: usize) -> String {
        self.open(data).expect_err("to be refused").to_string()
    }
}

pub(crate) fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

pub(crate) fn open_bytes(bytes: &[u8]) -> Result<GgufFile, LoadError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("handmade.gguf");
    fs::write(&path, bytes).unwrap();
    GgufFile::open(&path)
}

pub(crate) fn tiny(model: &TinyModel) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tiny.gguf");
    model.write(&path).unwrap();
    (folder, path)
}

#[track_caller]
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}
