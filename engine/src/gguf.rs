//! GGUF files, memory-mapped.
//!
//! Says what a file holds and where, and trusts nothing that the file says of itself: whatever
//! its bytes, [`GgufFile::open`] answers or refuses, and takes memory in proportion to the
//! metadata that is really there. Knows nothing of models.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3.

mod dtype;
mod header;

use crate::{
    LoadError,
    mapped::{map, release},
};
use candle_core::Device;
use candle_core::quantized::{QStorage, QTensor, gguf_file};
use header::Header;
use memmap2::Mmap;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

/// A GGUF file: its metadata, and its tensors in place.
pub struct GgufFile {
    path: PathBuf,
    bytes: Mmap,
    header: Header,
}

impl GgufFile {
    /// Maps the file and reads its header. Checks that every tensor lies within the file.
    ///
    /// The file must not be changed while it is open.
    ///
    /// # Errors
    /// Any [`LoadError`], with the file's name.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let bytes = map(path)?;
        let header = Header::read(&bytes).map_err(|refusal| refusal.about(path))?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
            header,
        })
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A metadata value, where the file has it.
    pub fn metadata(&self, key: &str) -> Option<&gguf_file::Value> {
        self.header.metadata.get(key)
    }

    /// A required count.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not a whole number.
    pub fn count(&self, key: &str) -> Result<usize, LoadError> {
        let value = self.required(key)?;
        whole_number(value)
            .and_then(|number| usize::try_from(number).ok())
            .ok_or_else(|| self.invalid(format!("{key} is not a count: {}", brief(value))))
    }

    /// A required number.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not a finite number.
    pub fn number(&self, key: &str) -> Result<f64, LoadError> {
        let value = self.required(key)?;
        let number = match value {
            gguf_file::Value::F32(number) => Some(f64::from(*number)),
            gguf_file::Value::F64(number) => Some(*number),
            other => whole_number(other).map(|number| number as f64),
        };
        number
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.invalid(format!("{key} is not a finite number: {}", brief(value))))
    }

    /// A required string.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not a string.
    pub fn string(&self, key: &str) -> Result<&str, LoadError> {
        match self.required(key)? {
            gguf_file::Value::String(text) => Ok(text),
            other => Err(self.invalid(format!("{key} is not a string: {}", brief(other)))),
        }
    }

    /// A flag, where the file has it.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is not a boolean.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        match self.metadata(key) {
            None => Ok(None),
            Some(gguf_file::Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.invalid(format!("{key} is not a boolean: {}", brief(other)))),
        }
    }

    /// A required list.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] naming the key, where it is absent or not an array.
    pub fn list(&self, key: &str) -> Result<&[gguf_file::Value], LoadError> {
        match self.required(key)? {
            gguf_file::Value::Array(values) => Ok(values),
            other => Err(self.invalid(format!("{key} is not an array: {}", brief(other)))),
        }
    }

    /// True where the file holds the tensor.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.header.tensors.contains_key(name)
    }

    /// A tensor's shape, rows first, where the file has the tensor.
    pub fn tensor_shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.header.tensors.get(name)?.shape)
    }

    /// Names of all tensors, and the bytes that each takes.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, usize)> {
        let places = self.header.tensors.iter();
        places.map(|(name, place)| (name.as_str(), place.bytes.len()))
    }

    /// The name of a tensor's type, where the file has the tensor.
    pub(crate) fn tensor_type(&self, name: &str) -> Option<String> {
        Some(format!("{:?}", self.header.tensors.get(name)?.dtype))
    }

    /// A tensor, still quantised, checked to be of `shape`. Copies its bytes.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor, where it is absent or of another shape.
    pub fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        device: &Device,
    ) -> Result<QTensor, LoadError> {
        let place = self
            .header
            .tensors
            .get(name)
            .ok_or_else(|| self.invalid(format!("tensor {name} is absent")))?;
        if place.shape != shape {
            return Err(self.invalid(format!(
                "tensor {name} has shape {:?}, expected {shape:?}",
                place.shape
            )));
        }
        let bytes = Cow::Borrowed(&self.bytes[place.bytes.clone()]);
        let storage = QStorage::from_data(bytes, device, place.dtype);
        release(&self.bytes, place.bytes.clone());
        storage
            .and_then(|storage| QTensor::new(storage, shape))
            .map_err(|error| self.invalid(format!("tensor {name}: {error}")))
    }

    /// A tensor of one dimension in full numbers.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor, where it is absent or of another length.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.tensor(name, &[len], &Device::Cpu)?
            .dequantize(&Device::Cpu)
            .and_then(|tensor| tensor.to_vec1())
            .map_err(|error| self.invalid(format!("tensor {name}: {error}")))
    }

    /// Bytes of the file.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
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

    fn required(&self, key: &str) -> Result<&gguf_file::Value, LoadError> {
        self.metadata(key)
            .ok_or_else(|| self.invalid(format!("{key} is absent")))
    }
}

impl fmt::Debug for GgufFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The metadata holds whole vocabularies.
        formatter
            .debug_struct("GgufFile")
            .field("path", &self.path)
            .field("bytes", &self.bytes.len())
            .field("keys", &self.header.metadata.len())
            .field("tensors", &self.header.tensors.len())
            .finish_non_exhaustive()
    }
}

/// The value of any of the integer types.
fn whole_number(value: &gguf_file::Value) -> Option<i128> {
    use gguf_file::Value;
    match *value {
        Value::U8(number) => Some(number.into()),
        Value::I8(number) => Some(number.into()),
        Value::U16(number) => Some(number.into()),
        Value::I16(number) => Some(number.into()),
        Value::U32(number) => Some(number.into()),
        Value::I32(number) => Some(number.into()),
        Value::U64(number) => Some(number.into()),
        Value::I64(number) => Some(number.into()),
        _ => None,
    }
}

/// A value as errors show it: hostile files hold long ones.
fn brief(value: &gguf_file::Value) -> String {
    match value {
        gguf_file::Value::String(text) => {
            format!("{:?}", text.chars().take(40).collect::<String>())
        }
        gguf_file::Value::Array(values) => format!("an array of {}", values.len()),
        other => format!("{other:?}"),
    }
}
