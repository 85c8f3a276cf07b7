//! What a model takes of memory, before it is loaded.
//!
//! Estimates from its configuration: what is allocated, and not what drivers and allocators add.

use super::attention::MAX_SCORES;
use crate::{BLOCK_TOKENS, CacheType, DecoderConfig, KvLayout, LoadOptions};

const F32: u64 = size_of::<f32>() as u64;

/// What a model takes where it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of its weights.
    pub weights: u64,
    layout: KvLayout,
    context_length: usize,
    /// Numbers that a step keeps per row.
    row_numbers: u64,
    /// Numbers of a step that do not depend on its rows.
    fixed_numbers: u64,
    /// Bytes that attention gathers of each cached token that a step attends to.
    gathered: u64,
}

impl Footprint {
    /// That of a model of `config` whose file has `stored` bytes of weights, with a cache of `kind`.
    pub(crate) fn new(
        config: &DecoderConfig,
        stored: u64,
        options: &LoadOptions,
        kind: CacheType,
    ) -> Self {
        let on_cpu = options.device.is_cpu();
        let numbers = |count: usize| count as u64;
        let (queries, keys) = (config.query_width(), config.key_width());
        let weights = match options.weights.dtype() {
            None => stored,
            Some(dtype) => parameters(config).saturating_mul(numbers(dtype.size_in_bytes())),
        };
        let layer = 6 * config.hidden + 4 * (queries + 2 * keys) + 4 * config.intermediate;
        let layout = KvLayout {
            layers: config.layers.len(),
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            kind,
        };
        Self {
            weights,
            layout,
            context_length: config.context_length,
            row_numbers: numbers(layer) + numbers(config.vocabulary_rows),
            // Scores as computed, masked, and as weights.
            fixed_numbers: if on_cpu { 0 } else { 3 * numbers(MAX_SCORES) },
            // Keys and values as stored, in 32 bits and masked; twice, as tables are padded.
            gathered: if on_cpu {
                0
            } else {
                2 * numbers(keys) * 5 * F32
            },
        }
    }

    /// Bytes that a step of `rows` rows takes, with the logits of all, beside what it gathers of the
    /// cache.
    pub fn step_bytes(&self, rows: usize) -> u64 {
        let numbers = self.row_numbers.saturating_mul(rows as u64);
        numbers
            .saturating_add(self.fixed_numbers)
            .saturating_mul(F32)
    }

    /// The share of the cache's size that a step which attends to all of it gathers beside.
    pub fn gathered_share(&self) -> f64 {
        let token = self.block_bytes() as f64 / BLOCK_TOKENS as f64;
        self.gathered as f64 / token
    }

    /// Bytes of cache that `sequences` of the longest kind take.
    pub fn cache_bytes(&self, sequences: usize) -> u64 {
        let one = self.layout.bytes_for(self.context_length) as u64;
        one.saturating_mul(sequences as u64)
    }

    /// Bytes of the smallest cache.
    pub fn block_bytes(&self) -> u64 {
        self.layout.block_bytes() as u64
    }
}

/// Numbers of all matrices.
fn parameters(config: &DecoderConfig) -> u64 {
    let (queries, keys) = (config.query_width(), config.key_width());
    let layer = config.hidden * (2 * queries + 2 * keys + 3 * config.intermediate);
    let tables = config.vocabulary_rows * config.hidden * if config.tied { 1 } else { 2 };
    (config.layers.len() as u64)
        .saturating_mul(layer as u64)
        .saturating_add(tables as u64)
}
