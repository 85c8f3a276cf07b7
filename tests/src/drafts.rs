//! Tiny model pairs whose drafts agree with their target as often as a test needs.

use crate::{Client, Cluster, ClusterOptions, Oracle, PATIENCE, RogueDraft, eventually};
use anyhow::Result;
use engine::tiny::TinyModel;
use std::path::Path;
use tempfile::TempDir;

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

/// A running cluster of tiny models.
#[derive(Debug)]
pub struct TinyCluster {
    /// Its programs.
    pub cluster: Cluster,
    /// A client of it.
    pub client: Client,
    /// The target's file.
    pub target: String,
    _rogue: Option<RogueDraft>,
    _folder: TempDir,
}

impl TinyCluster {
    /// [`write_target`]'s model, and a draft worker per agreement.
    ///
    /// # Errors
    /// Where a program does not come up.
    pub async fn start(drafts: &[Agreement]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let target = write_target(folder.path())?;
        let drafts = drafts
            .iter()
            .map(|agreement| write_draft(folder.path(), *agreement))
            .collect::<Result<Vec<_>>>()?;
        let cluster = Cluster::start(ClusterOptions::new(target.clone(), drafts)).await?;
        Ok(Self {
            client: cluster.client().await?,
            cluster,
            target,
            _rogue: None,
            _folder: folder,
        })
    }

    /// [`write_target`]'s model, and a draft worker that proposes `tokens`, over and over.
    ///
    /// # Errors
    /// Where a program does not come up.
    pub async fn with_rogue(tokens: &[u32]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let target = write_target(folder.path())?;
        let rogue = RogueDraft::start(Oracle::load(&target)?.vocabulary(), tokens).await?;
        let mut options = ClusterOptions::new(target.clone(), [""; 0]);
        options.coordinator_args = vec!["--draft".to_owned(), rogue.url().to_owned()];
        let cluster = Cluster::start(options).await?;
        let usable = || async { cluster.coordinator.log().contains("draft worker usable") };
        eventually("the rogue is taken for a draft worker", PATIENCE, usable).await?;
        Ok(Self {
            client: cluster.client().await?,
            cluster,
            target,
            _rogue: Some(rogue),
            _folder: folder,
        })
    }
}

/// The id of a byte in the vocabulary of every tiny model, which is that of byte-level BPE: first
/// the bytes that are printable in Latin-1, then the others.
pub fn byte_token(byte: u8) -> u32 {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let before = |other: &u8| *other < byte && printable(other) == printable(&byte);
    let first = if printable(&byte) {
        0
    } else {
        (0..=u8::MAX).filter(printable).count()
    };
    let count = first + (0..=u8::MAX).filter(before).count();
    u32::try_from(count).unwrap_or(u32::MAX)
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
