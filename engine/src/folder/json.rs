//! JSON files, with errors that name the key.

use crate::{LoadError, mapped};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Twice the largest tokenizers in use.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// An object in a JSON file. A key whose value is null is as good as absent.
#[derive(Debug, Clone)]
pub(crate) struct Json {
    path: PathBuf,
    /// The keys that lead to the object within the file, each with a dot.
    prefix: String,
    values: Map<String, Value>,
}

impl Json {
    pub(crate) fn read(path: &Path) -> Result<Self, LoadError> {
        let bytes = mapped::read(path, MAX_BYTES)?;
        let values = serde_json::from_slice(&bytes).map_err(|error| LoadError::Invalid {
            path: path.to_owned(),
            detail: format!("it is no JSON object: {error:.200}"),
        })?;
        Ok(Self {
            path: path.to_owned(),
            prefix: String::new(),
            values,
        })
    }

    pub(crate) fn read_optional(path: &Path) -> Result<Option<Self>, LoadError> {
        path.exists().then(|| Self::read(path)).transpose()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.values.get_mut(key)
    }

    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.values)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.typed(key, "a count", |value| {
            value.as_u64().and_then(|count| usize::try_from(count).ok())
        })
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.typed(key, "a finite number", |value| {
            value.as_f64().filter(|number| number.is_finite())
        })
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(crate) fn required_text(&self, key: &str) -> Result<&str, LoadError> {
        self.text(key)?
            .ok_or_else(|| self.invalid(format!("{key} is absent")))
    }

    pub(crate) fn list(&self, key: &str) -> Result<Option<&[Value]>, LoadError> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>, LoadError> {
        let values = self.typed(key, "an object", Value::as_object)?;
        Ok(values.map(|values| Self {
            path: self.path.clone(),
            prefix: format!("{}{key}.", self.prefix),
            values: values.clone(),
        }))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        what: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        convert(value).map(Some).ok_or_else(|| {
            let shown = value.to_string();
            self.invalid(format!("{key} is not {what}: {shown:.40}"))
        })
    }

    /// A [`LoadError::Invalid`] about this file; `detail` begins with the key.
    pub(crate) fn invalid(&self, detail: impl AsRef<str>) -> LoadError {
        LoadError::Invalid {
            path: self.path.clone(),
            detail: format!("{}{}", self.prefix, detail.as_ref()),
        }
    }

    /// A [`LoadError::Unsupported`] about this file; `detail` begins with the key.
    pub(crate) fn unsupported(&self, detail: impl AsRef<str>) -> LoadError {
        LoadError::Unsupported {
            path: self.path.clone(),
            detail: format!("{}{}", self.prefix, detail.as_ref()),
        }
    }
}
