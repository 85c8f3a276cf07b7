//! The models of the check: seeded random weights.

use anyhow::{Context as _, Result};
use candle_core::quantized::GgmlDType;
use engine::Source;
use engine::tiny::TinyModel;
use std::fmt;
use std::path::PathBuf;
use tempfile::TempDir;

/// What a file holds matrices in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    F32,
    Q4K,
}

/// Files with a small model of each encoding, to compare, and a larger quantised one, to measure.
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
        for encoding in [Encoding::F32, Encoding::Q4K] {
            let small = TinyModel {
                dtype: encoding.dtype(),
                seed: 5,
                layers: 4,
                heads: 8,
                ..TinyModel::default()
            };
            small.write(&models.small_path(encoding))?;
        }
        let (layers, heads) = if quick { (4, 16) } else { (8, 64) };
        let large = TinyModel {
            dtype: Encoding::Q4K.dtype(),
            seed: 6,
            layers,
            heads,
            ..TinyModel::default()
        };
        large.write(&models.large_path())?;
        let megabytes = models.large_path().metadata()?.len() / 1_000_000;
        Ok(Self {
            megabytes,
            ..models
        })
    }

    pub(crate) fn description(&self) -> String {
        format!(
            "speed of random weights of {} MB in {}",
            self.megabytes,
            Encoding::Q4K
        )
    }

    /// The one to compare.
    pub(crate) fn small(&self, encoding: Encoding) -> Source {
        Source::Files(self.small_path(encoding))
    }

    /// The one to measure.
    pub(crate) fn large(&self) -> Source {
        Source::Files(self.large_path())
    }

    fn small_path(&self, encoding: Encoding) -> PathBuf {
        self.folder.path().join(format!("small-{encoding}.gguf"))
    }

    fn large_path(&self) -> PathBuf {
        self.folder.path().join("large.gguf")
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
