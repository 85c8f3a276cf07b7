//! GGUF files, memory-mapped.

use crate::LoadError;
use candle_core::Device;
use candle_core::quantized::{QTensor, gguf_file};
use std::path::Path;

/// A GGUF file: its metadata, and its tensors in place.
#[derive(Debug)]
pub struct GgufFile {}

impl GgufFile {
    /// Maps the file and reads its header. Checks that every tensor lies within the file.
    ///
    /// # Errors
    /// Any [`LoadError`], with the file's name.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let _ = path;
        todo!("helper: loader")
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        todo!("helper: loader")
    }

    /// A metadata value, where the file has it.
    pub fn metadata(&self, key: &str) -> Option<&gguf_file::Value> {
        let _ = key;
        todo!("helper: loader")
    }

    /// A required count.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not a whole number.
    pub fn count(&self, key: &str) -> Result<usize, LoadError> {
        let _ = key;
        todo!("helper: loader")
    }

    /// A required number.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not a number.
    pub fn number(&self, key: &str) -> Result<f64, LoadError> {
        let _ = key;
        todo!("helper: loader")
    }

    /// A required string.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not a string.
    pub fn string(&self, key: &str) -> Result<&str, LoadError> {
        let _ = key;
        todo!("helper: loader")
    }

    /// True where the file holds the tensor.
    pub fn has_tensor(&self, name: &str) -> bool {
        let _ = name;
        todo!("helper: loader")
    }

    /// A tensor, still quantised, checked to be of `shape`.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor, where it is absent, of another shape or of an unknown type.
    pub fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        device: &Device,
    ) -> Result<QTensor, LoadError> {
        let _ = (name, shape, device);
        todo!("helper: loader")
    }

    /// A [`LoadError::Invalid`] about this file.
    pub fn invalid(&self, detail: impl Into<String>) -> LoadError {
        LoadError::Invalid {
            path: self.path().to_owned(),
            detail: detail.into(),
        }
    }

    /// A [`LoadError::Unsupported`] about this file.
    pub fn unsupported(&self, detail: impl Into<String>) -> LoadError {
        LoadError::Unsupported {
            path: self.path().to_owned(),
            detail: detail.into(),
        }
    }
}
