//! safetensors files, memory-mapped.
//!
//! Says what a file holds and where, and trusts nothing that the file says of itself: whatever its
//! bytes, it is read or refused, in memory in proportion to the header that is really there. Knows
//! nothing of models.
//!
//! The `safetensors` crate is not used for reading: it does not say which tensor has a type that
//! it does not know, and lets later tensors replace earlier ones of the same name.
//!
//! Format: <https://github.com/huggingface/safetensors#format>.

use crate::LoadError;
use crate::mapped::{map, release};
use candle_core::Device;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use memmap2::Mmap;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Before the header stands its length.
const LENGTH_BYTES: usize = 8;
/// The largest models in use have headers of some megabytes.
const MAX_HEADER: usize = 64 << 20;
const MAX_DIMENSIONS: usize = 8;
/// What a file says of itself beside its tensors.
const METADATA: &str = "__metadata__";

/// A safetensors file.
pub(crate) struct SafetensorsFile {
    path: PathBuf,
    bytes: Mmap,
    header: SafetensorsHeader,
}

/// The header of a safetensors file, checked: every tensor lies within the file.
#[derive(Debug)]
pub struct SafetensorsHeader {
    tensors: HashMap<String, Place>,
}

/// Where a tensor lies, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// As the format names it.
    dtype: String,
    shape: Vec<usize>,
    /// Within the file.
    bytes: Range<usize>,
}

impl SafetensorsFile {
    /// Maps the file, which must not be changed while it is open, and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let bytes = map(path)?;
        let header = SafetensorsHeader::read(&bytes).map_err(|detail| LoadError::Invalid {
            path: path.to_owned(),
            detail,
        })?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
            header,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.header.names()
    }

    pub(crate) fn tensor_type(&self, name: &str) -> Option<String> {
        Some(self.header.tensors.get(name)?.dtype.clone())
    }

    /// A tensor of f32, f16 or bf16, checked to be of `shape`. Copies its bytes.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        let place = self.header.tensors.get(name);
        let place = place.ok_or_else(|| self.invalid(format!("tensor {name} is absent")))?;
        if place.shape != shape {
            return Err(self.invalid(format!(
                "tensor {name} has shape {:?}, expected {shape:?}",
                place.shape
            )));
        }
        let dtype = match place.dtype.as_str() {
            "F32" => GgmlDType::F32,
            "F16" => GgmlDType::F16,
            "BF16" => GgmlDType::BF16,
            other => {
                return Err(LoadError::Unsupported {
                    path: self.path.clone(),
                    detail: format!(
                        "tensor {name} is of type {other:.40}; supported are F32, F16 and BF16"
                    ),
                });
            }
        };
        let bytes = aligned(&self.bytes[place.bytes.clone()]);
        let storage = QStorage::from_data(bytes, &Device::Cpu, dtype);
        release(&self.bytes, place.bytes.clone());
        storage
            .and_then(|storage| QTensor::new(storage, shape))
            .map_err(|error| self.invalid(format!("tensor {name}: {error}")))
    }

    fn invalid(&self, detail: String) -> LoadError {
        let path = self.path.clone();
        LoadError::Invalid { path, detail }
    }
}

/// The bytes themselves, or a copy where no number may begin at their address: a header may have
/// any length.
fn aligned(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes.as_ptr().align_offset(align_of::<f32>()) {
        0 => Cow::Borrowed(bytes),
        // What is large comes from the allocator at multiples of 16.
        _ => Cow::Owned(bytes.to_vec()),
    }
}

impl SafetensorsHeader {
    /// Reads the header of the file whose bytes are `file`.
    ///
    /// # Errors
    /// What is wrong with it, with the tensor's name where it is about one.
    pub fn read(file: &[u8]) -> Result<Self, String> {
        let (length, rest) = file
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or("the file is too short for a safetensors header")?;
        let length = u64::from_le_bytes(*length);
        let header = usize::try_from(length)
            .ok()
            .filter(|&length| length <= MAX_HEADER)
            .and_then(|length| rest.get(..length))
            .ok_or_else(|| {
                format!(
                    "the header says {length} bytes, expected at most {} of the file's {}",
                    MAX_HEADER.min(rest.len()),
                    file.len()
                )
            })?;
        let Entries(entries) = serde_json::from_slice(header)
            .map_err(|error| format!("the header is no list of tensors: {error:.200}"))?;
        let start = LENGTH_BYTES + header.len();
        let data = file.len() - start;
        let tensors = entries.into_iter().map(|(name, entry)| {
            let place = entry.locate(start, data);
            let place = place.map_err(|detail| format!("tensor {name:.200} {detail}"))?;
            Ok((name, place))
        });
        Ok(Self {
            tensors: tensors.collect::<Result<_, String>>()?,
        })
    }

    /// The tensors' names, in any order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}

/// A tensor as the header has it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl Entry {
    fn locate(self, start: usize, data: usize) -> Result<Place, String> {
        let [begin, end] = self.data_offsets;
        if begin > end || end > data as u64 {
            return Err(format!("takes bytes {begin} to {end} of the file's {data}"));
        }
        if self.shape.len() > MAX_DIMENSIONS {
            return Err(format!(
                "has {} dimensions, the most is {MAX_DIMENSIONS}",
                self.shape.len()
            ));
        }
        let elements = self
            .shape
            .iter()
            .try_fold(1u64, |product, &length| product.checked_mul(length));
        let size = elements.zip(type_bytes(&self.dtype));
        let expected = size.map(|(elements, bytes)| elements.checked_mul(bytes));
        // Types that are not known are refused when they are asked for.
        if elements.is_none() || expected.is_some_and(|expected| expected != Some(end - begin)) {
            return Err(format!(
                "of {:.40} and shape {:?} does not take the {} bytes that it is given",
                self.dtype,
                self.shape,
                end - begin
            ));
        }
        Ok(Place {
            dtype: self.dtype,
            shape: self
                .shape
                .into_iter()
                .map(|length| length as usize)
                .collect(),
            bytes: start + begin as usize..start + end as usize,
        })
    }
}

fn type_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "F64" | "I64" | "U64" => Some(8),
        "F32" | "I32" | "U32" => Some(4),
        "F16" | "BF16" | "I16" | "U16" => Some(2),
        "I8" | "U8" | "BOOL" => Some(1),
        _ => None,
    }
}

/// The header's tensors, each once.
struct Entries(HashMap<String, Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;

        impl<'de> Visitor<'de> for Tensors {
            type Value = Entries;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("tensors by name")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
                use serde::de::Error as _;
                let mut entries = HashMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        map.next_value::<serde::de::IgnoredAny>()?;
                        continue;
                    }
                    let entry = map.next_value().map_err(|error| {
                        M::Error::custom(format!("tensor {name:.200}: {error}"))
                    })?;
                    if entries.contains_key(&name) {
                        return Err(M::Error::custom(format!(
                            "tensor {name:.200} appears twice"
                        )));
                    }
                    entries.insert(name, entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Tensors)
    }
}
