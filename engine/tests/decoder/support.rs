//! Feeds sequences to a model, in whatever steps a test asks for.

use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{Decoder, DecoderConfig, Input, KvPool, Lease, LoadOptions, Model};
use std::path::Path;

/// A sequence in a model: its tokens, and how many of them its cache holds.
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) lease: Lease,
}

impl Text {
    pub(crate) fn new(model: &dyn Model, tokens: Vec<u32>) -> Self {
        let lease = KvPool::new(model.shape().kv, usize::MAX).lease();
        Self { tokens, lease }
    }

    /// Tokens that the cache does not hold.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.lease.len()
    }
}

/// One step: appends the next tokens of some texts, as many as stated, and returns for each text
/// the logits of its rows.
pub(crate) fn step(model: &mut dyn Model, batch: &mut [(&mut Text, usize)]) -> Vec<Vec<Vec<f32>>> {
    let mut inputs: Vec<Input<'_>> = batch
        .iter_mut()
        .map(|(text, count)| {
            let start = text.lease.len();
            text.lease.reserve(*count).unwrap();
            Input {
                cache: &mut text.lease,
                tokens: &text.tokens[start..start + *count],
                wanted: *count,
            }
        })
        .collect();
    let logits = model.forward(&mut inputs).unwrap();
    let mut rows = logits.rows().map(<[f32]>::to_vec);
    batch
        .iter()
        .map(|(_, count)| rows.by_ref().take(*count).collect())
        .collect()
}

/// The logits after every token of `tokens`, computed alone and in one step.
pub(crate) fn alone(model: &mut dyn Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut text = Text::new(model, tokens.to_vec());
    step(model, &mut [(&mut text, tokens.len())]).remove(0)
}

pub(crate) fn decoder(path: &Path, batch_invariant: bool) -> Decoder {
    let file = GgufFile::open(path).unwrap();
    let config = DecoderConfig::from_gguf(&file).unwrap();
    Decoder::from_gguf(&file, config, LoadOptions { batch_invariant }).unwrap()
}

/// Writes the model to a file of its own.
pub(crate) fn written(tiny: &TinyModel) -> tempfile::TempPath {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    tiny.write(&path).unwrap();
    path
}
