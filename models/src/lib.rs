//! Model files: the manifest of known ones, and the store that fetches and verifies them.
//!
//! Knows nothing of what is inside a model file.

mod hub;
mod manifest;
mod progress;
mod reference;
mod store;
mod watch;
mod wheels;

pub use manifest::{HubFile, Manifest, Model, Preset, Wheel, manifest};
pub use reference::ModelRefError;
pub use store::fetch;

use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// How often a synthetic draft agrees with the synthetic target, where nobody says otherwise.
const SYNTHETIC_DRAFT: &str = "agreement=0.75";

/// What a model is for in a preset's pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The big model.
    Target,
    /// The small model.
    Draft,
}

/// What `--model` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// A file, or a folder of safetensors.
    Path(PathBuf),
    /// The built-in synthetic model with its description (may be empty).
    Synthetic(String),
    /// A model of the manifest, or a preset whose pair has the role.
    Named(String),
    /// `hf:owner/repo[/file][@revision]`.
    Hub {
        /// `owner/repo`.
        repo: String,
        /// The file; may be left out where the repository holds one GGUF file.
        file: Option<String>,
        /// A branch, tag or commit.
        revision: Option<String>,
    },
}

/// Where a worker finds its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// A file or a folder on this machine, with the name people know it by.
    File {
        /// The file or folder.
        path: PathBuf,
        /// Its name.
        id: String,
    },
    /// The built-in synthetic model with its description.
    Synthetic(String),
}

/// The folder that keeps fetched models: `$SPECDEC_MODELS`, or `specdec/models` in the user's
/// cache folder.
pub fn store_dir() -> PathBuf {
    std::env::var_os("SPECDEC_MODELS").map_or_else(
        || {
            dirs::cache_dir()
                .unwrap_or_else(std::env::temp_dir)
                .join("specdec")
                .join("models")
        },
        PathBuf::from,
    )
}

/// Checks that `text` can name a model for `role`, as far as that can be told without looking at
/// files or at the hub.
///
/// # Errors
/// Says what is wrong with it.
pub fn check(text: &str, role: Role) -> Result<ModelRef> {
    let model = text.parse()?;
    if let ModelRef::Named(name) = &model
        && !is_model(Path::new(text))
    {
        manifest().find(name, role)?;
    }
    Ok(model)
}

/// Finds the model that `text` names for `role`, and fetches it first where it is known and absent.
/// Blocks.
///
/// A file or a model's folder that exists under exactly this text comes before everything else that
/// it may mean.
///
/// # Errors
/// Says what was looked for and where.
pub fn resolve(text: &str, role: Role, store: &Path) -> Result<Resolved> {
    if is_model(Path::new(text)) {
        return Ok(file(PathBuf::from(text)));
    }
    match text.parse()? {
        ModelRef::Path(path) => {
            ensure!(path.exists(), "there is no model file {}", path.display());
            Ok(file(path))
        }
        ModelRef::Synthetic(description) if description.is_empty() && role == Role::Draft => {
            Ok(Resolved::Synthetic(SYNTHETIC_DRAFT.to_owned()))
        }
        ModelRef::Synthetic(description) => Ok(Resolved::Synthetic(description)),
        ModelRef::Named(name) => {
            let model = manifest().find(&name, role)?;
            Ok(Resolved::File {
                path: fetch(model, store)?,
                id: model.id.clone(),
            })
        }
        ModelRef::Hub {
            repo,
            file: name,
            revision,
        } => Ok(file(hub::resolve(repo, name, revision)?)),
    }
}

/// A file, or a folder that says what its model is like. Other folders may bear the name of a model
/// by chance.
fn is_model(path: &Path) -> bool {
    path.is_file() || path.join("config.json").is_file()
}

fn file(path: PathBuf) -> Resolved {
    // Names of folders have versions in them, and no endings.
    let name = if path.is_dir() {
        path.file_name()
    } else {
        path.file_stem()
    };
    let name = name.unwrap_or(path.as_os_str());
    Resolved::File {
        id: name.to_string_lossy().into_owned(),
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_as_it_is() {
        let store = tempfile::tempdir().unwrap();
        let path = store.path().join("my-model.Q4.gguf");
        std::fs::write(&path, "x").unwrap();
        let found = resolve(path.to_str().unwrap(), Role::Target, store.path()).unwrap();
        let id = "my-model.Q4".to_owned();
        assert_eq!(found, Resolved::File { path, id });
    }

    #[test]
    fn a_folder_is_taken_where_it_holds_a_model() {
        let store = tempfile::tempdir().unwrap();
        let path = store.path().join("Qwen2.5-0.5B");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("config.json"), "{}").unwrap();
        let found = resolve(path.to_str().unwrap(), Role::Target, store.path()).unwrap();
        let id = "Qwen2.5-0.5B".to_owned();
        assert_eq!(found, Resolved::File { path, id });
        assert!(!is_model(store.path()), "a folder of folders is no model");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = resolve("./absent.gguf", Role::Target, Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("./absent.gguf"), "{error}");
    }

    #[test]
    fn only_the_draft_of_the_synthetic_pair_disagrees_by_itself() {
        let described = |text, role| resolve(text, role, Path::new(".")).unwrap();
        let synthetic = |text: &str| Resolved::Synthetic(text.to_owned());
        assert_eq!(described("synthetic", Role::Target), synthetic(""));
        assert_eq!(
            described("synthetic", Role::Draft),
            synthetic("agreement=0.75")
        );
        assert_eq!(
            described("synthetic:agreement=1", Role::Draft),
            synthetic("agreement=1")
        );
    }

    #[test]
    fn an_unknown_name_reaches_no_source() {
        let store = tempfile::tempdir().unwrap();
        let error = resolve("no-such-model", Role::Draft, store.path()).unwrap_err();
        assert!(error.to_string().contains("qwen2.5-coder"), "{error}");
        assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 0);
    }
}
