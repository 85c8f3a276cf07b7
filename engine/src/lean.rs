//! How a draft model is made cheaper than its files: matrices in a smaller encoding, and an output
//! matrix of frequent ids alone.
//!
//! Both change what the model says, which a draft may: a target accepts what it would have said
//! itself. Knows nothing of layers and of devices.

mod encoding;
mod frequent;
mod output;

pub use encoding::Encoding;
pub use frequent::FrequentIds;
pub(crate) use output::OutputIds;

use crate::{LoadError, Vocabulary};
use candle_core::Result;
use candle_core::quantized::QTensor;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::info;

/// What is made cheaper; by default nothing.
#[derive(Debug, Clone, Default)]
pub struct Lean {
    /// What matrices are encoded anew as.
    pub encoding: Option<Encoding>,
    /// The ids that the output matrix keeps. Others get logits of minus infinity.
    pub output: Option<FrequentIds>,
}

/// What is made cheaper of one model, while it is loaded.
#[derive(Debug, Default)]
pub(crate) struct Diet {
    encoding: Option<Encoding>,
    pub(crate) output: Option<OutputIds>,
    encoded: AtomicUsize,
}

impl Lean {
    /// Chooses the ids that a model of `rows` logits keeps.
    ///
    /// # Errors
    /// What is wrong with the file of frequent ids.
    pub(crate) fn plan(
        &self,
        vocabulary: &Vocabulary,
        rows: usize,
    ) -> std::result::Result<Diet, LoadError> {
        let output = match &self.output {
            None => None,
            Some(frequent) => {
                let ids = frequent.choose(vocabulary)?;
                info!(
                    ids = ids.len(),
                    of = rows,
                    "output restricted to frequent ids"
                );
                Some(OutputIds::new(ids, rows)).filter(|output| output.len() < rows)
            }
        };
        Ok(Diet {
            encoding: self.encoding,
            output,
            encoded: AtomicUsize::new(0),
        })
    }
}

impl Diet {
    /// A layer's matrix as the model is to have it.
    pub(crate) fn matrix(&self, weight: QTensor) -> Result<QTensor> {
        let Some(encoding) = self.encoding else {
            return Ok(weight);
        };
        let encoded = encoding.encode(weight)?;
        let count = self.encoded.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(PROGRESS) {
            info!(matrices = count, encoding = %encoding, "encoding weights");
        }
        Ok(encoded)
    }

    /// The output matrix as the model is to have it; none where it is the embedding, unchanged.
    pub(crate) fn output(
        &self,
        embedding: &QTensor,
        output: Option<QTensor>,
    ) -> Result<Option<QTensor>> {
        let kept = match (&self.output, output) {
            (Some(ids), output) => ids.rows_of(output.as_ref().unwrap_or(embedding))?,
            (None, Some(output)) => output,
            (None, None) if self.encoding.is_none() => return Ok(None),
            (None, None) => output::copy_of(embedding)?,
        };
        self.matrix(kept).map(Some)
    }
}

/// Each time so many matrices are encoded, the log says so.
const PROGRESS: usize = 50;
