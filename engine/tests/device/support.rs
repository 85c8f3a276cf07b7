//! Sequences on two models that are to agree, over blocks in any order.

use engine::tiny::TinyModel;
use engine::{
    BLOCK_TOKENS, BlockId, CacheType, Device, Input, LoadOptions, Loaded, Model, Source, WeightType,
};
use rand::seq::SliceRandom as _;
use rand::{SeedableRng as _, rngs::StdRng};

/// Blocks of each model.
pub(crate) const BLOCKS: usize = 64;

/// A sequence: its tokens, how many of them are cached, and where.
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) cached: usize,
    pub(crate) blocks: Vec<BlockId>,
}

/// Blocks that nobody has, in no order.
pub(crate) struct Free(Vec<u32>);

impl Free {
    pub(crate) fn shuffled(seed: u64) -> Self {
        let mut blocks: Vec<u32> = (0..BLOCKS as u32).collect();
        blocks.shuffle(&mut StdRng::seed_from_u64(seed));
        Self(blocks)
    }

    pub(crate) fn text(&mut self, tokens: Vec<u32>) -> Text {
        let count = tokens.len().div_ceil(BLOCK_TOKENS);
        let blocks = (0..count).map(|_| BlockId::new(self.0.pop().expect("a block")));
        Text {
            blocks: blocks.collect(),
            tokens,
            cached: 0,
        }
    }
}

/// The model in the file on the processor's own kernels, and on candle's tensors on its CPU.
pub(crate) struct Pair {
    pub(crate) own: Box<dyn Model>,
    pub(crate) candle: Box<dyn Model>,
}

impl Pair {
    pub(crate) fn new(tiny: &TinyModel, weights: WeightType, kind: CacheType) -> Self {
        let file = tempfile::NamedTempFile::new()
            .expect("a file")
            .into_temp_path();
        tiny.write(&file).expect("written");
        let source = Source::Files(file.to_path_buf());
        let own = load(&source, Device::cpu(), WeightType::Stored);
        let candle = load(&source, Device::candle_cpu(), weights);
        let mut pair = Self {
            own: own.model,
            candle: candle.model,
        };
        pair.own.allocate(BLOCKS, CacheType::F32).expect("room");
        pair.candle.allocate(BLOCKS, kind).expect("room");
        pair
    }

    /// One step of both: appends the next tokens of some texts, as many as stated. Returns the
    /// largest difference of their logits, relative to the spread of the logits of a row.
    pub(crate) fn step(&mut self, batch: &mut [(&mut Text, usize)]) -> f32 {
        let inputs: Vec<Input<'_>> = batch
            .iter()
            .map(|(text, count)| Input {
                blocks: &text.blocks,
                start: text.cached,
                tokens: &text.tokens[text.cached..text.cached + count],
                wanted: *count,
            })
            .collect();
        let own = self.own.forward(&inputs).expect("a model that runs");
        let candle = self.candle.forward(&inputs).expect("a model that runs");
        assert_eq!(own.rows().len(), candle.rows().len());
        for (text, count) in batch {
            text.cached += *count;
        }
        let rows = own.rows().zip(candle.rows());
        let differences = rows.map(|(own, candle)| difference(own, candle));
        differences.fold(0.0, |most, difference| {
            assert!(difference.is_finite(), "a logit is not a number");
            most.max(difference)
        })
    }
}

pub(crate) fn load(source: &Source, device: Device, weights: WeightType) -> Loaded {
    let options = LoadOptions {
        batch_invariant: device.is_cpu(),
        device,
        weights,
        ..LoadOptions::default()
    };
    engine::load(source, options).expect("a model that runs")
}

/// The largest difference, relative to the spread of `expected`. Not a number where one is not.
fn difference(expected: &[f32], got: &[f32]) -> f32 {
    let mean = expected.iter().sum::<f32>() / expected.len() as f32;
    let variance = expected.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / expected.len() as f32;
    let differences = expected.iter().zip(got).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(
        0.0,
        |most: f32, d| if d.is_nan() { f32::NAN } else { most.max(d) },
    );
    largest / variance.sqrt()
}
