//! A model with room for some texts of its own.

use crate::Setting;
use anyhow::Result;
use engine::{
    BLOCK_TOKENS, BlockId, CacheType, Device, Input, LoadOptions, Model, Source, WeightType,
};

/// Tokens that a text may have.
pub(crate) const ROOM: usize = 1024;
/// Texts at once.
pub(crate) const TEXTS: usize = 8;

/// A model, and block tables for [`TEXTS`] texts.
pub(crate) struct Runner {
    model: Box<dyn Model>,
    tables: Vec<Vec<BlockId>>,
}

impl Runner {
    /// The model as `setting` has it on `device`.
    pub(crate) fn new(source: &Source, setting: &Setting, device: &Device) -> Result<Self> {
        Self::load(source, device.clone(), setting.held, setting.cache)
    }

    /// The model on the processor's own kernels.
    pub(crate) fn reference(source: &Source) -> Result<Self> {
        Self::load(source, Device::cpu(), WeightType::Stored, CacheType::F32)
    }

    fn load(
        source: &Source,
        device: Device,
        weights: WeightType,
        cache: CacheType,
    ) -> Result<Self> {
        let options = LoadOptions {
            batch_invariant: false,
            device,
            weights,
            ..LoadOptions::default()
        };
        let mut model = engine::load(source, options)?.model;
        let blocks = ROOM / BLOCK_TOKENS;
        model.allocate(TEXTS * blocks, cache)?;
        let table = |text: usize| {
            (text * blocks..(text + 1) * blocks).map(|block| BlockId::new(block as u32))
        };
        Ok(Self {
            model,
            tables: (0..TEXTS).map(|text| table(text).collect()).collect(),
        })
    }

    /// Appends `tokens` to the first `start` ones of a text, and returns the logits of the last
    /// `wanted`.
    pub(crate) fn append(
        &mut self,
        text: usize,
        start: usize,
        tokens: &[u32],
        wanted: usize,
    ) -> Result<Vec<Vec<f32>>> {
        self.step(&[(text, start, tokens)], wanted)
    }

    /// The same for several texts in one step.
    pub(crate) fn step(
        &mut self,
        parts: &[(usize, usize, &[u32])],
        wanted: usize,
    ) -> Result<Vec<Vec<f32>>> {
        let batch: Vec<Input<'_>> = parts
            .iter()
            .map(|&(text, start, tokens)| Input {
                blocks: &self.tables[text],
                start,
                tokens,
                wanted,
            })
            .collect();
        Ok(self
            .model
            .forward(&batch)?
            .rows()
            .map(<[f32]>::to_vec)
            .collect())
    }
}

/// The most likely token.
pub(crate) fn choice(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map_or(0, |(token, _)| token as u32)
}

/// Some tokens that stand for bytes.
pub(crate) fn prompt(len: usize, seed: u64) -> Vec<u32> {
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
    let mut rng = StdRng::seed_from_u64(seed);
    (0..len).map(|_| rng.random_range(0..256)).collect()
}
