//! The operations of GPUs, on candle's CPU device: their logits are those of the processor's own
//! kernels, within what rounding in another order does.
//!
//! Differences are relative to the spread of a row's logits.

mod executor;
mod support;

use candle_core::quantized::GgmlDType;
use engine::tiny::TinyModel;
use engine::{BLOCK_TOKENS, CacheType, Device, DeviceChoice, Family, RopeScaling, WeightType};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use support::{Free, Pair, Text};

/// What 32 bits allow.
const CLOSE: f32 = 1e-4;
/// What 16 bits allow.
const CLOSE_HALF: f32 = 2e-2;
/// What products with quantised weights allow: they round activations to 8 bits, where a number between two goes either
/// way, and a tiny model has too few numbers for that to average out. Either side differs as much from exact arithmetic.
const CLOSE_QUANTISED: f32 = 0.5;

fn tokens(count: usize, seed: u64) -> Vec<u32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(0..256)).collect()
}

/// Three texts over blocks in no order, appended in steps of all kinds: a long piece beside single
/// rows, rows across the ends of blocks, texts that sit a step out.
fn ragged(pair: &mut Pair, seed: u64) -> f32 {
    let mut free = Free::shuffled(seed);
    let mut texts: Vec<Text> = [150, 70, 40]
        .iter()
        .enumerate()
        .map(|(index, &count)| free.text(tokens(count, seed + index as u64)))
        .collect();
    let steps = [
        [100, 1, 0],
        [1, 1, 5],
        [3, 64, 1],
        [1, 1, 1],
        [4, 3, 33],
        [41, 0, 0],
    ];
    let mut largest: f32 = 0.0;
    for counts in steps {
        let mut batch: Vec<(&mut Text, usize)> = texts
            .iter_mut()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect();
        largest = largest.max(pair.step(&mut batch));
    }
    assert!(texts.iter().all(|text| text.cached == text.tokens.len()));
    largest
}

/// A model of each family; with windows where the family has them, and a layer that has none.
fn families(seed: u64) -> [TinyModel; 6] {
    let tiny = |family| TinyModel {
        family,
        seed,
        ..TinyModel::default()
    };
    [
        tiny(Family::Llama),
        TinyModel {
            window: Some(40),
            ..tiny(Family::Llama)
        },
        TinyModel {
            rope: RopeScaling::Linear { factor: 3.0 },
            ..tiny(Family::Llama)
        },
        tiny(Family::Qwen2),
        tiny(Family::Qwen3),
        TinyModel {
            window: Some(33),
            layers: 6,
            ..tiny(Family::Gemma3)
        },
    ]
}

#[test]
fn ragged_batches_agree_for_every_family() {
    for seed in [1, 2] {
        for tiny in families(seed) {
            let difference = ragged(
                &mut Pair::new(&tiny, WeightType::Stored, CacheType::F32),
                seed,
            );
            println!("{:?}: {difference}", tiny.family);
            assert!(difference < CLOSE, "{tiny:?}: {difference}");
        }
    }
}

#[test]
fn ragged_batches_agree_for_every_encoding() {
    use GgmlDType::{F16, F32, Q4_0, Q4K, Q5_0, Q6K, Q8_0};
    let quantised = [Q4_0, Q5_0, Q8_0, Q4K, Q6K].map(|dtype| (dtype, CLOSE_QUANTISED));
    for (dtype, most) in [(F32, CLOSE), (F16, CLOSE_HALF)]
        .into_iter()
        .chain(quantised)
    {
        let tiny = TinyModel {
            dtype,
            tied: dtype == Q8_0,
            ..TinyModel::default()
        };
        let difference = ragged(&mut Pair::new(&tiny, WeightType::Stored, CacheType::F32), 3);
        println!("{dtype:?}: {difference}");
        assert!(difference < most, "{dtype:?}: {difference}");
    }
}

#[test]
fn fewer_bits_cost_little() {
    let tiny = TinyModel::default();
    for (weights, kind, most) in [
        (WeightType::Stored, CacheType::F16, CLOSE_HALF),
        (WeightType::F16, CacheType::F32, CLOSE_HALF),
        (WeightType::Bf16, CacheType::F16, 1e-1),
    ] {
        let difference = ragged(&mut Pair::new(&tiny, weights, kind), 4);
        println!("{weights} {kind}: {difference}");
        assert!(
            (1e-6..most).contains(&difference),
            "{weights}, cache {kind}: {difference}"
        );
    }
}

#[test]
fn a_cache_that_was_cut_back_holds_only_what_is_kept() {
    let mut pair = Pair::new(&TinyModel::default(), WeightType::Stored, CacheType::F32);
    let mut free = Free::shuffled(5);
    let mut text = free.text(tokens(80, 5));
    pair.step(&mut [(&mut text, 60)]);
    for (keep, seed) in [(59, 6), (40, 7), (32, 8), (3, 9)] {
        text.tokens.truncate(keep);
        text.tokens.extend(tokens(70 - keep, seed));
        text.cached = keep;
        let mut fresh = Free::shuffled(seed).text(text.tokens.clone());
        let difference = pair.step(&mut [(&mut text, 70 - keep)]);
        assert!(difference < CLOSE, "kept {keep}: {difference}");
        // Over other blocks, which may hold anything, the text means the same.
        assert_eq!(fresh.cached, 0);
        let difference = pair.step(&mut [(&mut fresh, 70)]);
        assert!(difference < CLOSE, "anew: {difference}");
    }
}

#[test]
fn a_copied_block_goes_its_own_way() {
    let mut pair = Pair::new(&TinyModel::default(), WeightType::Stored, CacheType::F32);
    let mut free = Free::shuffled(6);
    let mut text = free.text(tokens(BLOCK_TOKENS + 20, 6));
    pair.step(&mut [(&mut text, BLOCK_TOKENS + 10)]);
    // Another text that begins the same holds the first block too, and a copy of the second.
    let mut other = free.text(text.tokens.clone());
    other.blocks[0] = text.blocks[0];
    for model in [&mut pair.own, &mut pair.candle] {
        model.copy_block(text.blocks[1], other.blocks[1]).unwrap();
    }
    other.cached = text.cached;
    other.tokens.truncate(text.cached);
    other.tokens.extend(tokens(10, 7));
    for (count, text) in [(4, &mut other), (4, &mut text)] {
        let difference = pair.step(&mut [(text, count)]);
        assert!(difference < CLOSE, "{difference}");
    }
}

#[test]
fn a_cache_of_8_bits_is_refused_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    TinyModel::default().write(&file).unwrap();
    let source = engine::Source::Files(file.to_path_buf());
    let mut model = support::load(&source, Device::candle_cpu(), WeightType::Stored).model;
    let refusal = model.allocate(4, CacheType::Q8).unwrap_err().to_string();
    assert!(refusal.contains("q8"), "{refusal}");
    let refusal = model
        .allocate(usize::MAX, CacheType::F32)
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("blocks"), "{refusal}");
}

#[test]
fn the_device_says_what_it_is() {
    assert!(DeviceChoice::Cpu.open().unwrap().is_cpu());
    assert!(!Device::candle_cpu().is_cpu());
    assert_eq!(Device::candle_cpu().to_string(), "candle-cpu");
}
