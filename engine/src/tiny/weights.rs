//! Seeded random weights, of a scale at which every part of the decoder matters.

use super::tokens::TokenList;
use super::{Sizes, TinyModel};
use crate::Family;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Tensor};
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

const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// The weights of one model.
pub(super) struct Weights<'a> {
    model: &'a TinyModel,
    sizes: &'a Sizes,
    tokens: &'a TokenList,
}

type Named = (String, QTensor);

impl<'a> Weights<'a> {
    pub(super) fn new(model: &'a TinyModel, sizes: &'a Sizes, tokens: &'a TokenList) -> Self {
        Self {
            model,
            sizes,
            tokens,
        }
    }

    /// All tensors, by their GGUF names.
    pub(super) fn tensors(&self) -> Result<Vec<Named>> {
        let mut tensors = vec![self.embedding()?, self.norm("output_norm.weight", -1.0)?];
        if !self.model.tied {
            tensors.push(self.output()?);
        }
        for layer in 0..self.model.layers {
            self.layer(&format!("blk.{layer}"), &mut tensors)?;
        }
        Ok(tensors)
    }

    fn layer(&self, layer: &str, tensors: &mut Vec<Named>) -> Result<()> {
        let Sizes {
            hidden,
            intermediate,
            head_dim,
            kv_heads,
        } = *self.sizes;
        let (q, kv) = (self.model.heads * head_dim, kv_heads * head_dim);
        for norm in ["attn_norm", "ffn_norm"] {
            tensors.push(self.norm(&format!("{layer}.{norm}.weight"), 1.0)?);
        }
        for (matrix, rows, columns, gain) in [
            ("attn_q", q, hidden, QUERY_GAIN),
            ("attn_k", kv, hidden, QUERY_GAIN),
            ("attn_v", kv, hidden, 1.0),
            ("attn_output", hidden, q, LAYER_GAIN),
            ("ffn_gate", intermediate, hidden, 1.0),
            ("ffn_up", intermediate, hidden, 1.0),
            ("ffn_down", hidden, intermediate, LAYER_GAIN),
        ] {
            tensors.push(self.matrix(&format!("{layer}.{matrix}.weight"), rows, columns, gain)?);
        }
        if self.model.family == Family::Qwen2 {
            for (bias, length) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                tensors.push(self.bias(&format!("{layer}.{bias}.bias"), length)?);
            }
        }
        Ok(())
    }

    fn embedding(&self) -> Result<Named> {
        let values = if self.model.tied {
            self.output_rows(self.model.seed)
        } else {
            self.embedding_rows()
        };
        self.token_matrix(EMBEDDING, values)
    }

    fn output(&self) -> Result<Named> {
        let foreign_share = self.model.disagreement;
        let own = self.output_rows(self.model.seed);
        let foreign = self.output_rows(self.model.seed ^ FOREIGN);
        let mixed = own
            .iter()
            .zip(&foreign)
            .map(|(own, foreign)| (1.0 - foreign_share) * own + foreign_share * foreign)
            .collect();
        self.token_matrix(OUTPUT, mixed)
    }

    fn embedding_rows(&self) -> Vec<f32> {
        let mut rng = rng(self.model.seed, EMBEDDING);
        deviates(&mut rng, 1.0, self.tokens.len() * self.sizes.hidden)
    }

    fn output_rows(&self, seed: u64) -> Vec<f32> {
        let hidden = self.sizes.hidden;
        let deviation = LOGIT_DEVIATION / (hidden as f32).sqrt();
        let mut rng = rng(seed, OUTPUT);
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

    fn token_matrix(&self, name: &str, values: Vec<f32>) -> Result<Named> {
        self.quantised(name, values, self.tokens.len(), self.sizes.hidden)
    }

    fn matrix(&self, name: &str, rows: usize, columns: usize, gain: f32) -> Result<Named> {
        let mut rng = rng(self.model.seed, name);
        let deviation = gain / (columns as f32).sqrt();
        let values = deviates(&mut rng, deviation, rows * columns);
        self.quantised(name, values, rows, columns)
    }

    fn norm(&self, name: &str, sign: f32) -> Result<Named> {
        let mut rng = rng(self.model.seed, name);
        let values = (0..self.sizes.hidden)
            .map(|_| sign * rng.random_range(0.5..1.5))
            .collect();
        vector(name, values)
    }

    fn bias(&self, name: &str, length: usize) -> Result<Named> {
        let mut rng = rng(self.model.seed, name);
        vector(name, deviates(&mut rng, BIAS_DEVIATION, length))
    }

    fn quantised(
        &self,
        name: &str,
        values: Vec<f32>,
        rows: usize,
        columns: usize,
    ) -> Result<Named> {
        let values = Tensor::from_vec(values, (rows, columns), &Device::Cpu)?;
        Ok((
            name.to_owned(),
            QTensor::quantize(&values, self.model.dtype)?,
        ))
    }
}

fn vector(name: &str, values: Vec<f32>) -> Result<Named> {
    let length = values.len();
    let values = Tensor::from_vec(values, length, &Device::Cpu)?;
    Ok((name.to_owned(), QTensor::quantize(&values, GgmlDType::F32)?))
}

/// One generator per tensor, so that a tensor does not depend on which others there are.
fn rng(seed: u64, name: &str) -> StdRng {
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
