//! Folders as models are published in: `config.json`, safetensors in one file or in shards, and
//! the tokenizer's files.
//!
//! Knows which file holds what, and nothing of what a tensor or a key is for.

mod json;

pub(crate) use json::Json;

use crate::safetensors::SafetensorsFile;
use crate::{Family, LoadError, config};
use candle_core::quantized::QTensor;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const MAX_SHARDS: usize = 1024;

/// A folder with a model.
pub struct Folder {
    path: PathBuf,
    config: Json,
    family: Family,
    shards: Vec<SafetensorsFile>,
    /// The shard of each tensor.
    places: HashMap<String, usize>,
}

impl Folder {
    /// Reads `config.json` and maps the safetensors, which must not be changed while it is open.
    ///
    /// # Errors
    /// Any [`LoadError`], with the name of the file that is wrong.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let config = Json::read(&path.join(CONFIG))?;
        let family = config::folder_family(&config)?;
        let (shards, places) = match Json::read_optional(&path.join(INDEX))? {
            Some(index) => sharded(path, &index)?,
            None => single(path)?,
        };
        Ok(Self {
            path: path.to_owned(),
            config,
            family,
            shards,
            places,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the shards.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.shards.iter().map(SafetensorsFile::size_bytes).sum()
    }

    /// The family that `config.json` names.
    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// What `config.json` says.
    pub(crate) fn config(&self) -> &Json {
        &self.config
    }

    /// A JSON file of the folder, where it is there.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<Json>, LoadError> {
        Json::read_optional(&self.path.join(name))
    }

    /// The name of a tensor's type, where the folder holds the tensor.
    pub(crate) fn tensor_type(&self, name: &str) -> Option<String> {
        self.shards[*self.places.get(name)?].tensor_type(name)
    }

    /// A tensor of f32, f16 or bf16, checked to be of `shape`. Copies its bytes.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        match self.places.get(name) {
            Some(&shard) => self.shards[shard].tensor(name, shape),
            None => Err(self.about_tensors(format!("tensor {name} is absent"))),
        }
    }

    /// Something is wrong with the tensors, and not with one shard alone.
    pub(crate) fn about_tensors(&self, detail: String) -> LoadError {
        let path = match &self.shards[..] {
            [only] => only.path().to_owned(),
            _ => self.path.join(INDEX),
        };
        LoadError::Invalid { path, detail }
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Folder")
            .field("path", &self.path)
            .field("family", &self.family)
            .field("shards", &self.shards.len())
            .field("tensors", &self.places.len())
            .finish_non_exhaustive()
    }
}

type Tensors = (Vec<SafetensorsFile>, HashMap<String, usize>);

fn single(folder: &Path) -> Result<Tensors, LoadError> {
    let file = SafetensorsFile::open(&folder.join(SINGLE))?;
    let places = file.names().map(|name| (name.to_owned(), 0)).collect();
    Ok((vec![file], places))
}

/// Opens the shards that the index names, and checks that each holds what it is said to.
fn sharded(folder: &Path, index: &Json) -> Result<Tensors, LoadError> {
    let map = index
        .object("weight_map")?
        .ok_or_else(|| index.invalid("weight_map is absent"))?;
    let mut wanted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in map.entries() {
        let file = file.as_str().filter(|file| is_plain(file));
        let file = file.ok_or_else(|| {
            index.invalid(format!(
                "weight_map.{tensor:.200} is no name of a file beside it"
            ))
        })?;
        wanted.entry(file).or_default().push(tensor);
    }
    if wanted.len() > MAX_SHARDS {
        return Err(index.invalid(format!(
            "weight_map names {} files, the most is {MAX_SHARDS}",
            wanted.len()
        )));
    }
    let mut shards = Vec::new();
    let mut places = HashMap::new();
    for (name, tensors) in wanted {
        let shard = SafetensorsFile::open(&folder.join(name))?;
        let held: BTreeSet<&str> = shard.names().collect();
        for tensor in tensors {
            if !held.contains(tensor) {
                return Err(index.invalid(format!(
                    "weight_map.{tensor:.200} is {name:.200}, which does not hold it"
                )));
            }
            places.insert(tensor.to_owned(), shards.len());
        }
        drop(held);
        shards.push(shard);
    }
    Ok((shards, places))
}

/// A file of the folder itself, so that no index can name files elsewhere.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name)
}
