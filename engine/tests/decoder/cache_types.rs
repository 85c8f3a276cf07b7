//! What a cache of fewer bits does to the logits.
//!
//! Measured on the last 32 of 192 tokens of program text, as the length of the difference to the
//! logits over an f32 cache in standard deviations of those, on average. SmolLM2 has float weights
//! here, so that nothing else rounds.

use crate::oracle::{dequantised, distance, model_file};
use crate::stock::best;
use crate::support::{BLOCKS, Text, decoder, step};
use engine::gguf::GgufFile;
use engine::{CacheType, KvLayout, Model, Pool, Vocabulary};
use std::path::Path;
use tokenizers::Tokenizer;

const TOKENS: usize = 192;
const ROWS: usize = 32;

fn text(path: &Path) -> Vec<u32> {
    let vocabulary = Vocabulary::from_gguf(&GgufFile::open(path).unwrap()).unwrap();
    let tokenizer = Tokenizer::from_bytes(&vocabulary.tokenizer_json).unwrap();
    let text = include_str!("../../src/executor/worker.rs");
    let ids = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    ids[..TOKENS].to_vec()
}

fn last_logits(model: &mut dyn Model, kind: CacheType, tokens: &[u32]) -> Vec<Vec<f32>> {
    model.allocate(BLOCKS, kind).unwrap();
    let layout = KvLayout {
        kind,
        ..model.shape().kv
    };
    let pool = Pool::new(layout, BLOCKS * layout.block_bytes());
    let mut text = Text::new(&pool, tokens.to_vec());
    let mut logits = Vec::new();
    while text.pending() > 0 {
        let count = ROWS.min(text.pending());
        logits = step(model, &mut [(&mut text, count)]).remove(0);
    }
    logits
}

/// The mean distance of the logits to those of an f32 cache, and how many of the likeliest tokens are
/// the same.
fn errors(path: &Path, tokens: &[u32]) -> [(f64, usize); 2] {
    let mut model = decoder(path, true);
    let expected = last_logits(&mut *model, CacheType::F32, tokens);
    [CacheType::F16, CacheType::Q8].map(|kind| {
        let logits = last_logits(&mut *model, kind, tokens);
        let pairs = || logits.iter().zip(&expected);
        let sum: f64 = pairs().map(|(row, expected)| distance(row, expected)).sum();
        let same = pairs().filter(|(row, expected)| best(row) == best(expected));
        (sum / ROWS as f64, same.count())
    })
}

#[test]
fn a_cache_of_fewer_bits_changes_the_logits_by_little() {
    let path = model_file("smollm2-135m-instruct-q4_1");
    let [(half, _), (eight, _)] = errors(&dequantised(&path), &text(&path));
    assert!(half < 0.002, "f16 is off by {half}");
    assert!(eight < 0.05, "q8 is off by {eight}");
}

#[test]
#[ignore = "measures"]
fn how_far_a_cache_of_fewer_bits_is_off_in_qwen() {
    let path = model_file("qwen2.5-coder-0.5b-instruct-q4_k_m");
    println!("f16 and q8: {:?} of {ROWS}", errors(&path, &text(&path)));
}
