//! The header of a GGUF file: metadata, and the directory of tensors.
//!
//! candle's own reader is not used: it divides by an alignment of zero, lets later keys replace
//! earlier ones of the same name, and does not say which tensor has a type that it does not know.

use super::dtype::dtype;
use crate::LoadError;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

const MAGIC: &[u8; 4] = b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: usize = 32;
const MAX_ALIGNMENT: usize = 1 << 16;
/// Of ggml itself.
const MAX_DIMENSIONS: u32 = 4;
/// Bytes of a key or of a tensor's name; they appear in errors.
const MAX_NAME: usize = 1024;
/// Arrays within arrays; nothing in use goes beyond 2.
const MAX_DEPTH: usize = 4;
/// All elements of all metadata arrays. The largest vocabularies in use take about 1.5 million.
const MAX_ELEMENTS: usize = 1 << 23;
/// Those of one or two bytes among them: an element in memory takes 32, many times what it takes in
/// the file. The largest in use is a table of 240,000 bytes for normalising text.
const MAX_TINY_ELEMENTS: usize = 1 << 20;

/// What the header says, checked.
pub(super) struct Header {
    pub(super) metadata: HashMap<String, Value>,
    pub(super) tensors: HashMap<String, Place>,
}

/// Where a tensor lies.
pub(super) struct Place {
    pub(super) dtype: GgmlDType,
    /// Rows first; GGUF has it the other way round.
    pub(super) shape: Vec<usize>,
    /// Within the file.
    pub(super) bytes: Range<usize>,
}

/// Why a file is not taken.
pub(super) enum Refusal {
    Invalid(String),
    Unsupported(String),
}

impl Refusal {
    pub(super) fn about(self, path: &Path) -> LoadError {
        let path = path.to_owned();
        match self {
            Self::Invalid(detail) => LoadError::Invalid { path, detail },
            Self::Unsupported(detail) => LoadError::Unsupported { path, detail },
        }
    }
}

type Parsed<T> = Result<T, Refusal>;

impl Header {
    /// Reads the header of the file whose bytes are `file`.
    pub(super) fn read(file: &[u8]) -> Parsed<Self> {
        let mut reader = Reader::new(file);
        reader.preamble()?;
        let tensor_count = reader.length("the tensor count", MIN_TENSOR_ENTRY)?;
        let key_count = reader.length("the key count", MIN_METADATA_ENTRY)?;
        let mut metadata = HashMap::new();
        for _ in 0..key_count {
            let key = reader.name("a metadata key")?;
            let value = reader.tagged_value(&key)?;
            if metadata.contains_key(&key) {
                return Err(Refusal::Invalid(format!("{key} appears twice")));
            }
            metadata.insert(key, value);
        }
        let alignment = alignment(&metadata)?;
        let mut entries = Vec::new();
        for _ in 0..tensor_count {
            entries.push(reader.tensor_entry()?);
        }
        let data_start = reader.position.next_multiple_of(alignment);
        let mut tensors = HashMap::new();
        for entry in entries {
            let place = entry.locate(data_start, alignment, file.len())?;
            if tensors.contains_key(&entry.name) {
                return Err(Refusal::Invalid(format!(
                    "tensor {} appears twice",
                    entry.name
                )));
            }
            tensors.insert(entry.name, place);
        }
        Ok(Self { metadata, tensors })
    }
}

/// The least that one entry takes in the file: counts are checked against it, so that no count
/// can ask for more memory than the file has bytes.
const MIN_METADATA_ENTRY: usize = 8 + 4 + 1;
const MIN_TENSOR_ENTRY: usize = 8 + 4 + 8 + 4 + 8;

fn alignment(metadata: &HashMap<String, Value>) -> Parsed<usize> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    super::whole_number(value)
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| number.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(number))
        .ok_or_else(|| {
            Refusal::Invalid(format!(
                "{ALIGNMENT_KEY} must be a power of two from 8 to {MAX_ALIGNMENT}, not {}",
                super::brief(value)
            ))
        })
}

/// A tensor as the directory names it, not yet checked.
struct TensorEntry {
    name: String,
    shape: Vec<u64>,
    dtype: u32,
    offset: u64,
}

impl TensorEntry {
    fn locate(&self, data_start: usize, alignment: usize, file_len: usize) -> Parsed<Place> {
        let name = &self.name;
        let dtype = dtype(self.dtype)
            .map_err(|detail| Refusal::Unsupported(format!("tensor {name} is of type {detail}")))?;
        let size = byte_size(&self.shape, dtype)
            .map_err(|detail| Refusal::Invalid(format!("tensor {name} {detail}")))?;
        if !self.offset.is_multiple_of(alignment as u64) {
            return Err(Refusal::Invalid(format!(
                "tensor {name} starts at {}, which is not a multiple of {alignment}",
                self.offset
            )));
        }
        let start = u128::from(self.offset) + data_start as u128;
        let end = start + u128::from(size);
        if end > file_len as u128 {
            return Err(Refusal::Invalid(format!(
                "tensor {name} takes bytes {start} to {end}, the file has {file_len}"
            )));
        }
        Ok(Place {
            dtype,
            shape: self.shape.iter().map(|&length| length as usize).collect(),
            bytes: start as usize..end as usize,
        })
    }
}

fn byte_size(shape: &[u64], dtype: GgmlDType) -> Result<u64, String> {
    let columns = match shape.last() {
        Some(&columns) if !shape.contains(&0) => columns,
        _ => return Err(format!("is empty: {shape:?}")),
    };
    let block = dtype.block_size() as u64;
    if !columns.is_multiple_of(block) {
        return Err(format!(
            "has rows of {columns}, which blocks of {block} do not fill"
        ));
    }
    shape
        .iter()
        .try_fold(1u64, |product, &length| product.checked_mul(length))
        .and_then(|elements| (elements / block).checked_mul(dtype.type_size() as u64))
        .ok_or_else(|| format!("is too large: {shape:?}"))
}

/// Reads little-endian values off the front of a file.
struct Reader<'a> {
    file: &'a [u8],
    position: usize,
    elements_left: usize,
    tiny_elements_left: usize,
}

impl<'a> Reader<'a> {
    fn new(file: &'a [u8]) -> Self {
        Self {
            file,
            position: 0,
            elements_left: MAX_ELEMENTS,
            tiny_elements_left: MAX_TINY_ELEMENTS,
        }
    }

    fn preamble(&mut self) -> Parsed<()> {
        let magic: [u8; 4] = self.array("the magic number")?;
        if magic != *MAGIC {
            return Err(Refusal::Invalid(
                "does not begin with GGUF: not a GGUF file".to_owned(),
            ));
        }
        let version = self.u32("the version")?;
        if !VERSIONS.contains(&version) {
            return Err(Refusal::Unsupported(format!(
                "GGUF version {version}; supported are little-endian files of versions 2 and 3"
            )));
        }
        Ok(())
    }

    fn tensor_entry(&mut self) -> Parsed<TensorEntry> {
        let name = self.name("a tensor's name")?;
        let dimensions = self.u32(&name)?;
        if dimensions > MAX_DIMENSIONS {
            return Err(Refusal::Invalid(format!(
                "tensor {name} has {dimensions} dimensions, the most is {MAX_DIMENSIONS}"
            )));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            shape.push(self.u64(&name)?);
        }
        shape.reverse();
        Ok(TensorEntry {
            dtype: self.u32(&name)?,
            offset: self.u64(&name)?,
            name,
            shape,
        })
    }

    fn tagged_value(&mut self, key: &str) -> Parsed<Value> {
        let tag = self.u32(key)?;
        self.value(tag, key, 0)
    }

    fn value(&mut self, tag: u32, key: &str, depth: usize) -> Parsed<Value> {
        Ok(match tag {
            0 => Value::U8(u8::from_le_bytes(self.array(key)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(key)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(key)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(key)?)),
            4 => Value::U32(self.u32(key)?),
            5 => Value::I32(i32::from_le_bytes(self.array(key)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(key)?)),
            7 => match self.array(key)? {
                [0u8] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => {
                    return Err(Refusal::Invalid(format!("{key} is a boolean of {other}")));
                }
            },
            8 => Value::String(self.string(key)?),
            9 => Value::Array(self.elements(key, depth)?),
            10 => Value::U64(self.u64(key)?),
            11 => Value::I64(i64::from_le_bytes(self.array(key)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(key)?)),
            other => {
                return Err(Refusal::Invalid(format!(
                    "{key} is of unknown type {other}"
                )));
            }
        })
    }

    fn elements(&mut self, key: &str, depth: usize) -> Parsed<Vec<Value>> {
        if depth == MAX_DEPTH {
            return Err(Refusal::Invalid(format!(
                "{key} nests arrays more than {MAX_DEPTH} deep"
            )));
        }
        let tag = self.u32(key)?;
        let length = self.length(key, min_size(tag))?;
        self.take_elements(key, length, min_size(tag))?;
        // The count is checked against the rest of the file.
        let mut values = Vec::with_capacity(length);
        for _ in 0..length {
            values.push(self.value(tag, key, depth + 1)?);
        }
        Ok(values)
    }

    /// Takes the elements of an array off what is left for all arrays.
    fn take_elements(&mut self, key: &str, length: usize, size: usize) -> Parsed<()> {
        let (left, most, what) = if size < 4 {
            let left = &mut self.tiny_elements_left;
            (left, MAX_TINY_ELEMENTS, "elements of one or two bytes")
        } else {
            (&mut self.elements_left, MAX_ELEMENTS, "elements")
        };
        *left = left.checked_sub(length).ok_or_else(|| {
            Refusal::Invalid(format!(
                "{key} brings the arrays to more than {most} {what}"
            ))
        })?;
        Ok(())
    }

    fn name(&mut self, what: &str) -> Parsed<String> {
        let name = self.string(what)?;
        if name.len() > MAX_NAME {
            return Err(Refusal::Invalid(format!(
                "{what} has {} bytes, the most is {MAX_NAME}",
                name.len()
            )));
        }
        Ok(name)
    }

    fn string(&mut self, what: &str) -> Parsed<String> {
        let length = self.length(what, 1)?;
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Refusal::Invalid(format!("{what} is not UTF-8"))),
        }
    }

    /// A count of things that take at least `min_size` bytes each, which must fit in the rest of
    /// the file.
    fn length(&mut self, what: &str, min_size: usize) -> Parsed<usize> {
        let length = self.u64(what)?;
        let left = (self.file.len() - self.position) / min_size;
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok(length),
            _ => Err(Refusal::Invalid(format!(
                "{what} says {length}, the rest of the file holds {left} at most"
            ))),
        }
    }

    fn u32(&mut self, what: &str) -> Parsed<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Parsed<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn array<const N: usize>(&mut self, what: &str) -> Parsed<[u8; N]> {
        let bytes = self.take(N, what)?;
        Ok(bytes.try_into().expect("take gives what was asked for"))
    }

    fn take(&mut self, length: usize, what: &str) -> Parsed<&'a [u8]> {
        let rest = &self.file[self.position..];
        let Some(bytes) = rest.get(..length) else {
            return Err(Refusal::Invalid(format!(
                "the file ends at byte {} within {what}",
                self.file.len()
            )));
        };
        self.position += length;
        Ok(bytes)
    }
}

/// The least that an element of the type numbered `tag` takes in the file.
fn min_size(tag: u32) -> usize {
    match tag {
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        _ => 1,
    }
}
