//! Seeded random weights, of a scale at which every part of the decoder matters.
//!
//! They are made in the convention of GGUF files; the writers turn them into their own.

use super::tokens::TokenList;
use super::{Sizes, TinyModel};
use crate::Family;
use crate::checkpoint::{Part, Role, gguf_name};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The standard deviation of the logits: with some 300 tokens, laws of about 3 nats.
const LOGIT_DEVIATION: f32 = 2.5;
/// Of queries and keys: their products are peaked enough that attention picks tokens.
const QUERY_GAIN: f32 = 1.5;
/// Of what the layers add, over an embedding of deviation 1: the context decides, and not the
/// last token alone.
const LAYER_GAIN: f32 = 2.0;
/// Of the biases of q, k and v: small enough that those of v favour no tokens in every context.
const BIAS_DEVIATION: f32 = 0.2;
/// How much of its own embedding a token's output row holds. The output norm turns its sign, so
/// that a token is unlikely after itself: otherwise many texts end in one token for ever.
const OWN_SHARE: f32 = 0.5;
/// Of a control token's row of the output matrix, relative to others: it is likely about once in
/// some thousand tokens, and never the most likely one for long.
const CONTROL_SHARE: f32 = 0.1;
/// Turns the model's seed into that of the foreign output matrix.
const FOREIGN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Of the norms of query and key heads: as peaked as without.
const HEAD_NORM_GAIN: f32 = 1.5;

/// The weights of one model.
pub(super) struct Weights<'a> {
    model: &'a TinyModel,
    sizes: &'a Sizes,
    tokens: &'a TokenList,
}

/// A tensor before it is written.
pub(super) struct Weight {
    pub(super) role: Role,
    /// Rows first.
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(model: &'a TinyModel, sizes: &'a Sizes, tokens: &'a TokenList) -> Self {
        Self {
            model,
            sizes,
            tokens,
        }
    }

    /// All tensors.
    pub(super) fn tensors(&self) -> Vec<Weight> {
        let hidden = self.sizes.hidden;
        let mut tensors = vec![self.embedding(), self.norm(Role::OutputNorm, hidden, -1.0)];
        if !self.model.tied {
            tensors.push(self.output());
        }
        for layer in 0..self.model.layers {
            self.layer(layer, &mut tensors);
        }
        tensors
    }

    fn layer(&self, layer: usize, tensors: &mut Vec<Weight>) {
        let Sizes {
            hidden,
            intermediate,
            head_dim,
            kv_heads,
        } = *self.sizes;
        let (q, kv) = (self.model.heads * head_dim, kv_heads * head_dim);
        let family = self.model.family;
        tensors.push(self.norm(Role::Norm(layer, Part::Attention), hidden, 1.0));
        tensors.push(self.norm(Role::Norm(layer, Part::FeedForward), hidden, 1.0));
        for (part, rows, columns, gain) in [
            (Part::Query, q, hidden, QUERY_GAIN),
            (Part::Key, kv, hidden, QUERY_GAIN),
            (Part::Value, kv, hidden, 1.0),
            (Part::AttentionOutput, hidden, q, LAYER_GAIN),
            (Part::Gate, intermediate, hidden, 1.0),
            (Part::Up, intermediate, hidden, 1.0),
            (Part::Down, hidden, intermediate, LAYER_GAIN),
        ] {
            tensors.push(self.matrix(Role::Matrix(layer, part), rows, columns, gain));
        }
        if family == Family::Qwen2 {
            for (part, length) in [(Part::Query, q), (Part::Key, kv), (Part::Value, kv)] {
                tensors.push(self.bias(Role::Bias(layer, part), length));
            }
        }
        if matches!(family, Family::Qwen3 | Family::Gemma3) {
            for part in [Part::Query, Part::Key] {
                tensors.push(self.norm(Role::Norm(layer, part), head_dim, HEAD_NORM_GAIN));
            }
        }
        if family == Family::Gemma3 {
            for part in [Part::PostAttention, Part::PostFeedForward] {
                tensors.push(self.norm(Role::Norm(layer, part), hidden, LAYER_GAIN));
            }
        }
    }

    fn embedding(&self) -> Weight {
        let values = if self.model.tied {
            self.output_rows(self.model.seed)
        } else {
            let scale = self.embedding_scale();
            self.embedding_rows().iter().map(|x| x / scale).collect()
        };
        self.token_matrix(Role::Embedding, values)
    }

    /// What Gemma multiplies embeddings by.
    fn embedding_scale(&self) -> f32 {
        match self.model.family {
            Family::Gemma3 => (self.sizes.hidden as f32).sqrt(),
            _ => 1.0,
        }
    }

    fn output(&self) -> Weight {
        let foreign_share = self.model.disagreement;
        let own = self.output_rows(self.model.seed);
        let foreign = self.output_rows(self.model.seed ^ FOREIGN);
        let mixed = own
            .iter()
            .zip(&foreign)
            .map(|(own, foreign)| (1.0 - foreign_share) * own + foreign_share * foreign)
            .collect();
        self.token_matrix(Role::Output, mixed)
    }

    fn embedding_rows(&self) -> Vec<f32> {
        let mut rng = rng(self.model.seed, Role::Embedding);
        deviates(&mut rng, 1.0, self.tokens.len() * self.sizes.hidden)
    }

    fn output_rows(&self, seed: u64) -> Vec<f32> {
        let hidden = self.sizes.hidden;
        let deviation = LOGIT_DEVIATION / (hidden as f32).sqrt();
        let mut rng = rng(seed, Role::Output);
        let mut values = deviates(&mut rng, deviation, self.tokens.len() * hidden);
        if !self.model.tied {
            for (value, own) in values.iter_mut().zip(self.embedding_rows()) {
                *value += OWN_SHARE * deviation * own;
            }
        }
        for id in self.tokens.control_ids() {
            for value in &mut values[id * hidden..(id + 1) * hidden] {
                *value *= CONTROL_SHARE;
            }
        }
        values
    }

    fn token_matrix(&self, role: Role, values: Vec<f32>) -> Weight {
        Weight {
            role,
            shape: vec![self.tokens.len(), self.sizes.hidden],
            values,
        }
    }

    fn matrix(&self, role: Role, rows: usize, columns: usize, gain: f32) -> Weight {
        let mut rng = rng(self.model.seed, role);
        let deviation = gain / (columns as f32).sqrt();
        Weight {
            role,
            shape: vec![rows, columns],
            values: deviates(&mut rng, deviation, rows * columns),
        }
    }

    fn norm(&self, role: Role, length: usize, gain: f32) -> Weight {
        let mut rng = rng(self.model.seed, role);
        let values = (0..length).map(|_| gain * rng.random_range(0.5..1.5));
        vector(role, values.collect())
    }

    fn bias(&self, role: Role, length: usize) -> Weight {
        let mut rng = rng(self.model.seed, role);
        vector(role, deviates(&mut rng, BIAS_DEVIATION, length))
    }
}

fn vector(role: Role, values: Vec<f32>) -> Weight {
    Weight {
        role,
        shape: vec![values.len()],
        values,
    }
}

/// One generator per tensor, so that a tensor does not depend on which others there are.
fn rng(seed: u64, role: Role) -> StdRng {
    let name = gguf_name(role);
    // FNV-1a, which unlike the standard hasher is the same in every release.
    let mixed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    StdRng::seed_from_u64(seed ^ mixed)
}

/// Uniform numbers around 0 of the given standard deviation.
fn deviates(rng: &mut StdRng, deviation: f32, count: usize) -> Vec<f32> {
    let bound = deviation * 3f32.sqrt();
    (0..count)
        .map(|_| rng.random_range(-bound..bound))
        .collect()
}
