//! Attention over the cache of a device, against sums written out.

use super::attention::{Heads, MAX_SCORES};
use super::step::{Place, Step};
use super::storage::Storage;
use crate::{BLOCK_TOKENS, CacheType, KvLayout};
use candle_core::{DType, Device, Tensor};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 8;
const BLOCKS: usize = 24;
const SCALE: f32 = 0.6;

/// Keys or values of a sequence: `[token][kv_head * head_dim]`.
type Rows = Vec<Vec<f32>>;

/// A sequence with all its keys, values and queries.
struct Text {
    place: Place,
    keys: Rows,
    values: Rows,
    queries: Rows,
}

fn random(rng: &mut StdRng, count: usize, width: usize) -> Rows {
    (0..count)
        .map(|_| (0..width).map(|_| rng.random_range(-1.0..1.0)).collect())
        .collect()
}

fn tensor(rows: &[Vec<f32>]) -> Tensor {
    Tensor::new(rows.to_vec(), &Device::Cpu).unwrap()
}

/// A cache in which nothing is a number.
fn spoilt() -> Storage {
    let layout = KvLayout {
        layers: 2,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        kind: CacheType::F32,
    };
    let storage = Storage::new(layout, BLOCKS, DType::F32, &Device::Cpu).unwrap();
    let all = Place {
        blocks: (0..BLOCKS as u32).collect(),
        start: 0,
        rows: BLOCKS * BLOCK_TOKENS,
    };
    let step = Step::new(&[all], &layout, &[None], &Device::Cpu).unwrap();
    let width = KV_HEADS * HEAD_DIM;
    let nothing = Tensor::full(f32::NAN, (BLOCKS * BLOCK_TOKENS, width), &Device::Cpu).unwrap();
    for layer in 0..2 {
        storage
            .write(layer, &step.writes, &nothing, &nothing)
            .unwrap();
    }
    storage
}

/// Texts that hold `start` tokens and add `rows`, over blocks in no order.
fn texts(rng: &mut StdRng, sizes: &[(usize, usize)]) -> Vec<Text> {
    let mut blocks: Vec<u32> = (0..BLOCKS as u32).collect();
    blocks.shuffle(rng);
    let mut text = |&(start, rows): &(usize, usize)| {
        let end = start + rows;
        let taken = blocks.len() - end.div_ceil(BLOCK_TOKENS);
        Text {
            place: Place {
                blocks: blocks.split_off(taken),
                start,
                rows,
            },
            keys: random(rng, end, KV_HEADS * HEAD_DIM),
            values: random(rng, end, KV_HEADS * HEAD_DIM),
            queries: random(rng, rows, HEADS * HEAD_DIM),
        }
    };
    sizes.iter().map(&mut text).collect()
}

/// Writes what the texts hold, and then what they add, each in one step. Returns the second.
fn write(storage: &Storage, texts: &[Text], window: Option<usize>) -> Step {
    let before = texts.iter().map(|text| Place {
        start: 0,
        rows: text.place.start,
        ..text.place.clone()
    });
    let now = texts.iter().map(|text| text.place.clone());
    let [before, now]: [Vec<Place>; 2] = [before.collect(), now.collect()];
    let mut steps = [before, now].map(|places| {
        let step = Step::new(&places, storage.layout(), &[None, window], &Device::Cpu).unwrap();
        let rows = |of: fn(&Text) -> &Rows| {
            let rows = texts.iter().zip(&places);
            let rows = rows.flat_map(|(text, place)| of(text)[place.start..place.end()].to_vec());
            tensor(&rows.collect::<Rows>())
        };
        storage
            .write(
                1,
                &step.writes,
                &rows(|text| &text.keys),
                &rows(|text| &text.values),
            )
            .unwrap();
        Some(step)
    });
    steps[1].take().unwrap()
}

/// softmax(q·k)·v of one row and head, written out.
fn attended(text: &Text, row: usize, head: usize, window: Option<usize>) -> Vec<f32> {
    let own = text.place.start + row;
    let first = window.map_or(0, |window| (own + 1).saturating_sub(window));
    let dims = |head: usize| head * HEAD_DIM..(head + 1) * HEAD_DIM;
    let shared = head / (HEADS / KV_HEADS);
    let query = &text.queries[row][dims(head)];
    let weights: Vec<f32> = (first..=own)
        .map(|token| {
            let key = &text.keys[token][dims(shared)];
            let product: f32 = query.iter().zip(key).map(|(a, b)| a * b).sum();
            (product * SCALE).exp()
        })
        .collect();
    let total: f32 = weights.iter().sum();
    let value = |dim: usize| {
        let tokens = (first..=own).zip(&weights);
        tokens
            .map(|(token, weight)| weight * text.values[token][dims(shared)][dim])
            .sum::<f32>()
            / total
    };
    (0..HEAD_DIM).map(value).collect()
}

fn check(seed: u64, sizes: &[(usize, usize)], window: Option<usize>, most_scores: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (storage, texts) = (spoilt(), texts(&mut rng, sizes));
    let step = write(&storage, &texts, window);
    let heads = Heads {
        heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        scale: SCALE,
        window,
        most_scores,
    };
    let queries: Rows = texts.iter().flat_map(|text| text.queries.clone()).collect();
    let out = heads.attend(&tensor(&queries), 1, &step, &storage).unwrap();
    let out: Rows = out.to_vec2().unwrap();
    let rows = texts
        .iter()
        .flat_map(|text| (0..text.place.rows).map(move |row| (text, row)));
    for (place, ((text, row), out)) in rows.zip(&out).enumerate() {
        for (head, out) in out.chunks_exact(HEAD_DIM).enumerate() {
            let expected = attended(text, row, head, window);
            let close = out.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(
                close,
                "seed {seed}, window {window:?}, row {place}, head {head}: {out:?}, not {expected:?}"
            );
        }
    }
}

/// Prefill beside verification and decoding; whole blocks beside single rows.
const MIXED: [(usize, usize); 6] = [(40, 4), (0, 70), (5, 1), (64, 4), (31, 33), (130, 1)];

#[test]
fn rows_attend_to_their_own_text_up_to_themselves() {
    for seed in 0..3 {
        check(seed, &MIXED, None, MAX_SCORES);
        check(seed, &MIXED[..1], None, MAX_SCORES);
    }
}

#[test]
fn a_window_hides_what_lies_before_it() {
    for window in [1, 5, 32, 33, 64, 1000] {
        check(7, &MIXED, Some(window), MAX_SCORES);
    }
}

#[test]
fn pieces_of_rows_give_what_all_rows_give() {
    for most_scores in [1, 1000, 10_000] {
        check(8, &MIXED, None, most_scores);
        check(8, &MIXED, Some(40), most_scores);
    }
}
