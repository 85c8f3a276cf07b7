//! Feeds sequences to a model, in whatever steps a test asks for.

use engine::tiny::TinyModel;
use engine::{CacheType, Input, Lease, LoadOptions, Model, Pool, Source};
use std::path::Path;
use tempfile::TempDir;

/// Blocks of 32 tokens in each model's cache.
pub(crate) const BLOCKS: usize = 128;

/// A sequence in a model: its tokens, and how many of them its cache holds.
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) lease: Lease,
}

impl Text {
    pub(crate) fn new(pool: &Pool, tokens: Vec<u32>) -> Self {
        let lease = pool.lease();
        Self { tokens, lease }
    }

    /// Tokens that the cache does not hold.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.lease.len()
    }
}

/// Room for a few thousand tokens in `model`. Its sequences share nothing: what they have in common
/// is computed for each.
pub(crate) fn pool(model: &dyn Model) -> Pool {
    Pool::new(model.shape().kv, BLOCKS * model.shape().kv.block_bytes()).with_sharing(false)
}

/// One step: appends the next tokens of some texts, as many as stated, and returns for each text
/// the logits of its rows.
pub(crate) fn step(model: &mut dyn Model, batch: &mut [(&mut Text, usize)]) -> Vec<Vec<Vec<f32>>> {
    for (text, count) in &mut *batch {
        assert_eq!(text.lease.reserve(*count), Ok(None));
    }
    let inputs: Vec<Input<'_>> = batch
        .iter()
        .map(|(text, count)| Input {
            blocks: text.lease.blocks(),
            start: text.lease.len(),
            tokens: &text.tokens[text.lease.len()..][..*count],
            wanted: *count,
        })
        .collect();
    let logits = model.forward(&inputs).unwrap();
    let mut rows = logits.rows().map(<[f32]>::to_vec);
    batch
        .iter_mut()
        .map(|(text, count)| {
            let start = text.lease.len();
            text.lease.append(&text.tokens[start..][..*count]);
            rows.by_ref().take(*count).collect()
        })
        .collect()
}

/// The logits after every token of `tokens`, computed alone and in one step. Nothing else may be in
/// the model's cache.
pub(crate) fn alone(model: &mut dyn Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut text = Text::new(&pool(model), tokens.to_vec());
    step(model, &mut [(&mut text, tokens.len())]).remove(0)
}

/// The model of a file or folder.
pub(crate) fn decoder(path: &Path, batch_invariant: bool) -> Box<dyn Model> {
    let source = Source::Files(path.to_owned());
    let options = LoadOptions {
        batch_invariant,
        ..LoadOptions::default()
    };
    let mut model = engine::load(&source, options).unwrap().model;
    model.allocate(BLOCKS, CacheType::F32).unwrap();
    model
}

/// Writes the model to a file of its own.
pub(crate) fn written(tiny: &TinyModel) -> tempfile::TempPath {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    tiny.write(&path).unwrap();
    path
}

/// Writes the model to a folder of its own, in so many shards.
pub(crate) fn folder(tiny: &TinyModel, shards: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    tiny.write_folder(folder.path(), shards).unwrap();
    folder
}
