//! A model's files, whatever their format: asked for tensors by their role.
//!
//! Knows what files call a tensor and in which convention they store it, and nothing of what is
//! computed with it.

mod names;

pub(crate) use names::{Part, Role, folder as folder_name, gguf as gguf_name};

use crate::{DecoderConfig, Family, LoadError, Vocabulary, folder::Folder, gguf::GgufFile};
use candle_core::Device;
use candle_core::quantized::QTensor;
use std::path::Path;

/// A model's files.
pub enum Checkpoint {
    /// A GGUF file.
    Gguf(GgufFile),
    /// A folder with `config.json`, safetensors and a tokenizer.
    Folder(Folder),
}

impl Checkpoint {
    /// Opens a file as GGUF, and a folder as one of safetensors. The files must not be changed
    /// while it is open.
    ///
    /// # Errors
    /// Any [`LoadError`], with the name of the file that is wrong.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        if path.is_dir() {
            Folder::open(path).map(Self::Folder)
        } else {
            GgufFile::open(path).map(Self::Gguf)
        }
    }

    /// What the model is like.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, absurd or not supported.
    pub fn config(&self) -> Result<DecoderConfig, LoadError> {
        match self {
            Self::Gguf(file) => DecoderConfig::from_gguf(file),
            Self::Folder(folder) => DecoderConfig::from_folder(folder),
        }
    }

    /// The model's tokens.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, wrong or not supported.
    pub fn vocabulary(&self) -> Result<Vocabulary, LoadError> {
        match self {
            Self::Gguf(file) => Vocabulary::from_gguf(file),
            Self::Folder(folder) => Vocabulary::from_folder(folder),
        }
    }

    /// Bytes of the files that hold the tensors.
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Self::Gguf(file) => file.size_bytes(),
            Self::Folder(folder) => folder.size_bytes(),
        }
    }

    /// What the files call the tensor.
    pub(crate) fn name(&self, role: Role) -> String {
        match self {
            Self::Gguf(_) => names::gguf(role),
            Self::Folder(folder) => names::folder(role, folder.family()),
        }
    }

    /// A tensor in the host's memory, in the encoding of the file, checked to be of `shape`.
    pub(crate) fn tensor(&self, role: Role, shape: &[usize]) -> Result<QTensor, LoadError> {
        let name = self.name(role);
        match self {
            Self::Gguf(file) => file.tensor(&name, shape, &Device::Cpu),
            Self::Folder(folder) => folder.tensor(&name, shape),
        }
    }

    /// A tensor of one dimension in full numbers, as it is multiplied with or added.
    pub(crate) fn vector(&self, role: Role, len: usize) -> Result<Vec<f32>, LoadError> {
        let values = self
            .tensor(role, &[len])?
            .dequantize(&Device::Cpu)
            .and_then(|tensor| tensor.to_vec1::<f32>());
        let mut values = values.map_err(|error| {
            let name = self.name(role);
            self.invalid(format!("tensor {name}: {error}"))
        })?;
        if role.is_norm() && self.stores_norms_less_one() {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        Ok(values)
    }

    /// The encoding of most of the weights, as the files name it.
    pub(crate) fn weight_type(&self) -> String {
        let name = self.name(Role::Matrix(0, Part::Gate));
        match self {
            Self::Gguf(file) => file.tensor_type(&name),
            Self::Folder(folder) => folder.tensor_type(&name),
        }
        .unwrap_or_default()
    }

    /// Gemma's published weights are what is added to one; its GGUF files hold the sum.
    fn stores_norms_less_one(&self) -> bool {
        matches!(self, Self::Folder(folder) if folder.family() == Family::Gemma3)
    }

    /// A [`LoadError::Invalid`] about the tensors.
    pub(crate) fn invalid(&self, detail: String) -> LoadError {
        match self {
            Self::Gguf(file) => file.invalid(detail),
            Self::Folder(folder) => folder.about_tensors(detail),
        }
    }
}
