//! The manifest: which models have a name, and where their bytes come from.

use crate::Role;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The manifest that this build carries, `deploy/models.toml`.
pub fn manifest() -> &'static Manifest {
    static EMBEDDED: LazyLock<Manifest> = LazyLock::new(|| {
        Manifest::parse(include_str!("../../deploy/models.toml"))
            .expect("a test parses the embedded manifest")
    });
    &EMBEDDED
}

/// Known models, and the pairs among them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(rename = "model")]
    models: Vec<Model>,
    #[serde(rename = "preset", default)]
    presets: BTreeMap<String, Preset>,
}

/// One model file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name people use.
    pub id: String,
    /// The file's name in the store.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its sha256, in lowercase hex.
    pub sha256: String,
    /// The licence of the weights.
    pub licence: String,
    /// Where the hub has it.
    pub hub: Option<HubFile>,
    /// Python packages whose members, joined in this order, are the file.
    #[serde(default)]
    pub wheels: Vec<Wheel>,
}

/// A file of a hub repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// `owner/repo`.
    pub repo: String,
    /// The file in it.
    pub file: String,
}

/// A Python package that carries a piece of a model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// The package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// The piece's path inside the wheel.
    pub member: String,
}

/// The pair that belongs together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Id of the target model.
    pub target: String,
    /// Id of the draft model.
    pub draft: String,
}

impl Manifest {
    /// Reads a manifest and checks that it holds together.
    ///
    /// # Errors
    /// Names the entry that is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let manifest: Self = toml::from_str(text).context("read the model manifest")?;
        for (index, model) in manifest.models.iter().enumerate() {
            model.check()?;
            let earlier = &manifest.models[..index];
            ensure!(
                !earlier
                    .iter()
                    .any(|other| other.id == model.id || other.file == model.file),
                "the model {} is there twice",
                model.id
            );
        }
        for (name, preset) in &manifest.presets {
            for id in [&preset.target, &preset.draft] {
                ensure!(
                    manifest.model(id).is_some(),
                    "the preset {name} names the unknown model {id}"
                );
            }
        }
        Ok(manifest)
    }

    /// All models, in the manifest's order.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The presets by name.
    pub fn presets(&self) -> impl Iterator<Item = (&str, &Preset)> {
        self.presets
            .iter()
            .map(|(name, preset)| (name.as_str(), preset))
    }

    /// The model whose id is `id`.
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.id == id)
    }

    /// The model that `name` means for `role`: a preset's, or the one with that id.
    ///
    /// # Errors
    /// Lists the known names where `name` is none of them.
    pub fn find(&self, name: &str, role: Role) -> Result<&Model> {
        let id = self
            .presets
            .get(name)
            .map_or(name, |preset| preset.of(role));
        self.model(id).with_context(|| self.unknown(name))
    }

    /// The models that `name` means, whatever the role, without repetition.
    ///
    /// # Errors
    /// Lists the known names where `name` is none of them.
    pub fn find_all(&self, name: &str) -> Result<Vec<&Model>> {
        let target = self.find(name, Role::Target)?;
        let draft = self.find(name, Role::Draft)?;
        Ok(if target.id == draft.id {
            vec![target]
        } else {
            vec![target, draft]
        })
    }

    fn unknown(&self, name: &str) -> String {
        let mut known: Vec<&str> = self
            .presets
            .keys()
            .map(String::as_str)
            .chain(self.models.iter().map(|model| model.id.as_str()))
            .chain(["synthetic"])
            .collect();
        known.sort_unstable();
        known.dedup();
        format!(
            "unknown model {name:?}: expected a file, hf:owner/repo[/file][@revision], or one of {}",
            known.join(", ")
        )
    }
}

impl Model {
    /// Where the file lies in `store` once it is fetched.
    pub fn path(&self, store: &Path) -> PathBuf {
        store.join(&self.file)
    }

    fn check(&self) -> Result<()> {
        let plain = Path::new(&self.file)
            .file_name()
            .is_some_and(|name| name == self.file.as_str());
        ensure!(plain, "{}: file must be a plain name", self.id);
        let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        ensure!(
            self.sha256.len() == 64 && self.sha256.bytes().all(hex),
            "{}: sha256 must be 64 lowercase hex digits",
            self.id
        );
        ensure!(
            self.hub.is_some() || !self.wheels.is_empty(),
            "{}: there is no source",
            self.id
        );
        Ok(())
    }
}

impl Preset {
    /// The id of the model for `role`.
    pub fn of(&self, role: Role) -> &str {
        match role {
            Role::Target => &self.target,
            Role::Draft => &self.draft,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_manifest_holds_together() {
        let manifest = manifest();
        assert!(manifest.models().len() >= 4);
        for (name, _) in manifest.presets() {
            manifest.find_all(name).unwrap();
        }
    }

    #[test]
    fn a_preset_gives_each_role_its_own_model() {
        let id = |role| manifest().find("qwen2.5-coder", role).unwrap().id.as_str();
        assert_eq!(id(Role::Target), "qwen2.5-coder-1.5b");
        assert_eq!(id(Role::Draft), "qwen2.5-coder-0.5b");
        assert_eq!(manifest().find_all("qwen2.5-coder").unwrap().len(), 2);
        assert_eq!(manifest().find_all("smollm2-135m").unwrap().len(), 1);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = manifest()
            .find("qwen", Role::Draft)
            .unwrap_err()
            .to_string();
        for part in ["\"qwen\"", "qwen2.5-coder,", "gemma-3-270m", "synthetic"] {
            assert!(message.contains(part), "{message:?} lacks {part}");
        }
    }

    #[test]
    fn a_broken_manifest_names_the_entry() {
        let model = |id: &str, file: &str, sha: &str| {
            format!(
                "[[model]]\nid = {id:?}\nfile = {file:?}\nbytes = 1\nsha256 = {sha:?}\n\
                 licence = \"MIT\"\nhub = {{ repo = \"o/r\", file = \"f\" }}\n"
            )
        };
        let sha = "0".repeat(64);
        let cases = [
            (model("a", "../a", &sha), "a: file must be"),
            (model("a", "a", "12"), "a: sha256 must be"),
            (
                model("a", "a", &sha) + &model("a", "b", &sha),
                "a is there twice",
            ),
            (
                model("a", "a", &sha) + "[preset.p]\ntarget = \"a\"\ndraft = \"b\"\n",
                "unknown model b",
            ),
        ];
        for (text, expected) in cases {
            let message = Manifest::parse(&text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        }
    }
}
