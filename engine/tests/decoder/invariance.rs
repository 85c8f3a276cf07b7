//! What a sequence's logits depend on: its own tokens, and nothing else.

use crate::support::{Text, alone, decoder, pool, step, written};
use candle_core::quantized::GgmlDType;
use engine::tiny::TinyModel;
use engine::{BlockId, EngineError, Family, Input, Model};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn random_tokens(rng: &mut StdRng, model: &dyn Model, len: usize) -> Vec<u32> {
    let rows = model.shape().vocabulary_rows as u32;
    (0..len).map(|_| rng.random_range(0..rows)).collect()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// Takes three texts through random steps: any of them together, any number of tokens each, and
/// now and then back.
fn assert_steps_do_not_matter(model: &mut dyn Model, rng: &mut StdRng, what: &str) {
    let texts: Vec<_> = [70, 45, 90]
        .map(|len| random_tokens(rng, model, len))
        .into();
    let expected: Vec<_> = texts.iter().map(|tokens| alone(model, tokens)).collect();
    let pool = pool(model);
    let mut texts: Vec<_> = texts.into_iter().map(|t| Text::new(&pool, t)).collect();
    while texts.iter().any(|text| text.pending() > 0) {
        let mut batch = Vec::new();
        for (index, text) in texts.iter_mut().enumerate() {
            if rng.random_bool(0.15) {
                text.lease.truncate(rng.random_range(0..=text.lease.len()));
            }
            if text.pending() > 0 && rng.random_bool(0.7) {
                let most = [1, 5, 40][rng.random_range(0..3)].min(text.pending());
                batch.push((index, text.lease.len(), text, rng.random_range(1..=most)));
            }
        }
        let (places, mut batch): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|(index, start, text, count)| ((index, start), (text, count)))
            .unzip();
        let stepped = step(model, &mut batch);
        for (&(index, start), rows) in places.iter().zip(&stepped) {
            for (position, row) in (start..).zip(rows) {
                let same = bits(row) == bits(&expected[index][position]);
                assert!(same, "{what}: text {index} differs after token {position}");
            }
        }
    }
}

#[test]
fn logits_are_the_same_to_the_bit_whatever_the_batch_and_the_steps() {
    use GgmlDType::{BF16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5K, Q6K, Q8_0};
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    use Family::{Gemma3, Llama, Qwen2, Qwen3};
    // Windows of less than a block, and of parts of several.
    for (family, window) in [
        (Llama, None),
        (Llama, Some(41)),
        (Qwen2, None),
        (Qwen3, None),
        (Gemma3, Some(12)),
    ] {
        for dtype in [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q4K, Q5K, Q6K] {
            let tiny = TinyModel {
                family,
                window,
                dtype,
                heads: 8,
                tied: rng.random(),
                seed: rng.random(),
                ..TinyModel::default()
            };
            let mut model = decoder(&written(&tiny), true);
            assert_steps_do_not_matter(&mut *model, &mut rng, &format!("{tiny:?}"));
        }
    }
}

#[test]
fn only_the_wanted_rows_come_back() {
    let mut model = decoder(&written(&TinyModel::default()), true);
    let texts = [vec![5, 6, 7, 8], vec![9, 10], vec![11, 12, 13]];
    let wanted = [2, 0, 1];
    let expected: Vec<_> = texts
        .iter()
        .zip(wanted)
        .flat_map(|(text, wanted)| alone(&mut *model, text).split_off(text.len() - wanted))
        .collect();
    let blocks: Vec<_> = (0..3).map(BlockId::new).collect();
    let batch: Vec<_> = texts
        .iter()
        .zip(blocks.chunks(1))
        .zip(wanted)
        .map(|((tokens, blocks), wanted)| Input {
            blocks,
            start: 0,
            tokens,
            wanted,
        })
        .collect();
    let logits = model.forward(&batch).unwrap();
    assert_eq!(logits.rows().collect::<Vec<_>>(), expected);
}

#[test]
fn what_the_model_cannot_take_is_refused_by_name() {
    let tiny = TinyModel {
        context_length: 4,
        ..TinyModel::default()
    };
    let mut model = decoder(&written(&tiny), true);
    let rows = model.shape().vocabulary_rows as u32;
    let blocks = [BlockId::new(0)];
    let mut refusal = |blocks: &[BlockId], tokens: &[u32], wanted| {
        let input = Input {
            blocks,
            start: 0,
            tokens,
            wanted,
        };
        model.forward(&[input]).unwrap_err()
    };
    let context_length = 4;
    let too_long = EngineError::ContextExceeded {
        tokens: 5,
        context_length,
    };
    assert_eq!(refusal(&blocks, &[1; 5], 1), too_long);
    let invalid =
        |detail: EngineError| assert!(matches!(detail, EngineError::Invalid(_)), "{detail:?}");
    invalid(refusal(&blocks, &[rows], 1));
    invalid(refusal(&blocks, &[1], 2));
    invalid(refusal(&[], &[1], 1));
    invalid(refusal(&[BlockId::new(u32::MAX)], &[1], 1));
}
