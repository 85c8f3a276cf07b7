//! What `deny.toml` says, so that `cargo deny` and these checks cannot differ.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::path::Path;

/// The part of it that is checked here.
#[derive(Debug, Deserialize)]
pub(crate) struct Deny {
    pub(crate) licenses: Licenses,
    pub(crate) bans: Bans,
}

/// Which licences may be linked.
#[derive(Debug, Deserialize)]
pub(crate) struct Licenses {
    /// SPDX identifiers.
    pub(crate) allow: Vec<String>,
}

/// Which packages may be linked.
#[derive(Debug, Deserialize)]
pub(crate) struct Bans {
    /// Versions that may be there beside another one of the same package.
    pub(crate) skip: Vec<Skip>,
}

/// A second version that cannot be avoided.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Skip {
    /// `name@version`, where the version may be cut short: `name@1`.
    #[serde(rename = "crate")]
    pub(crate) package: String,
    /// Why it cannot be avoided.
    pub(crate) reason: String,
}

impl Deny {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        toml::from_str(&text).with_context(|| format!("read {}", path.display()))
    }
}
