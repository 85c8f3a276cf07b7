//! Tiny model pairs whose drafts agree with their target as often as a test needs.

use anyhow::Result;
use engine::tiny::TinyModel;
use std::path::Path;

/// How often a draft agrees with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Always: the draft is the target.
    Always,
    /// About half the time.
    Half,
    /// Hardly ever: the draft is another model.
    Never,
}

impl Agreement {
    /// The share of foreign noise in the draft's output matrix that gives this agreement;
    /// measured in the equality tests.
    fn disagreement(self) -> f32 {
        match self {
            Self::Always => 0.0,
            Self::Half => 0.3,
            Self::Never => 1.0,
        }
    }
}

/// Writes the target that all drafts below are measured against; returns its path.
///
/// # Errors
/// Where it cannot be written.
pub fn write_target(folder: &Path) -> Result<String> {
    write(folder, "target.gguf", &TinyModel::default())
}

/// Writes a draft for [`write_target`]'s model; returns its path.
///
/// # Errors
/// Where it cannot be written.
pub fn write_draft(folder: &Path, agreement: Agreement) -> Result<String> {
    let model = TinyModel {
        disagreement: agreement.disagreement(),
        ..TinyModel::default()
    };
    write(
        folder,
        &format!("draft-{agreement:?}.gguf").to_lowercase(),
        &model,
    )
}

/// Writes `model` as `name` into `folder`; returns its path.
///
/// # Errors
/// Where it cannot be written.
pub fn write(folder: &Path, name: &str, model: &TinyModel) -> Result<String> {
    let path = folder.join(name);
    model.write(&path)?;
    Ok(path.display().to_string())
}
