//! The models of the check: seeded random weights.

use anyhow::{Context as _, Result};
use candle_core::quantized::GgmlDType;
use engine::Source;
use engine::tiny::TinyModel;
use std::fmt;
use tempfile::TempDir;

/// What a file holds matrices in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    F32,
    Q4K,
}

/// Files with a small model of each encoding, to compare, and a larger one, to measure.
pub(crate) struct Models {
    folder: TempDir,
    megabytes: u64,
}

impl Models {
    /// Writes the files. A `quick` check measures a model that is too small to tell much.
    pub(crate) fn write(quick: bool) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the models")?;
        let models = Self {
            folder,
            megabytes: 0,
        };
        let (layers, heads) = if quick { (4, 16) } else { (8, 64) };
        for encoding in [Encoding::F32, Encoding::Q4K] {
            let dtype = encoding.dtype();
            let small = TinyModel {
                dtype,
                seed: 5,
                layers: 4,
                heads: 8,
                ..TinyModel::default()
            };
            small.write(&models.path(encoding, "small"))?;
            let large = TinyModel {
                dtype,
                seed: 6,
                layers,
                heads,
                ..TinyModel::default()
            };
            large.write(&models.path(encoding, "large"))?;
        }
        let megabytes = models.path(Encoding::Q4K, "large").metadata()?.len() / 1_000_000;
        Ok(Self {
            megabytes,
            ..models
        })
    }

    pub(crate) fn description(&self) -> String {
        format!("random weights, {} MB in {}", self.megabytes, Encoding::Q4K)
    }

    /// The one to compare.
    pub(crate) fn small(&self, encoding: Encoding) -> Source {
        Source::Files(self.path(encoding, "small"))
    }

    /// The one to measure.
    pub(crate) fn large(&self, encoding: Encoding) -> Source {
        Source::Files(self.path(encoding, "large"))
    }

    fn path(&self, encoding: Encoding, size: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{size}-{encoding}.gguf"))
    }
}

impl Encoding {
    fn dtype(self) -> GgmlDType {
        match self {
            Self::F32 => GgmlDType::F32,
            Self::Q4K => GgmlDType::Q4K,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::F32 => "f32",
            Self::Q4K => "q4_k",
        })
    }
}
