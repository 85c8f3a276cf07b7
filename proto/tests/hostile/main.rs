//! Messages that nobody vouches for: seeded changes to sound ones.

#[expect(unreachable_pub, reason = "the fuzz targets are made of the same file")]
mod bodies;

use prost::Message as _;
use proto::v1;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _, seq::IndexedRandom as _};
use speculation::DraftLaw;

const CASES: u64 = 50_000;

fn sound() -> Vec<Vec<u8>> {
    let sampling = v1::SamplingParams {
        temperature: Some(0.7),
        top_k: Some(40),
        top_p: Some(0.9),
        min_p: Some(0.1),
        typical_p: Some(0.8),
        repetition_penalty: Some(1.1),
        presence_penalty: Some(-0.5),
        frequency_penalty: Some(0.5),
        penalty_window: Some(2),
        logit_bias: [(3, 1.5), (60, -100.0)].into(),
        allowed_token_ids: vec![1, 2, 3, 40],
        banned_token_ids: vec![2],
    };
    let decoding = v1::Decoding {
        sampling: Some(sampling),
        key: Some(v1::NoiseKey { high: 1, low: 2 }),
        rule: v1::VerificationRule::Block.into(),
        prompt_len: 2,
        min_tokens: 3,
        end_token_ids: vec![7],
        bad_words: vec![v1::TokenIds { ids: vec![3, 4] }],
        ..v1::Decoding::default()
    };
    let law = DraftLaw::from_entries(vec![(3, 65_000), (9, 536)]).expect("a law");
    let laws = v1::DraftLaws::from([law.clone(), law].as_slice());
    vec![decoding.encode_to_vec(), laws.encode_to_vec()]
}

#[test]
fn messages_are_refused_or_mean_something() {
    let files = sound();
    for seed in 0..CASES {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = files.choose(&mut rng).expect("some").clone();
        for _ in 0..rng.random_range(0..5) {
            let place = rng.random_range(0..bytes.len());
            match rng.random_range(0..4) {
                0 => bytes[place] ^= 1 << rng.random_range(0..8),
                1 => bytes[place] = rng.random(),
                2 => drop(bytes.remove(place)),
                _ => bytes.insert(place, [0, 1, 127, 128, 255][rng.random_range(0..5)]),
            }
        }
        let case = std::panic::catch_unwind(|| bodies::messages(&bytes));
        assert!(case.is_ok(), "seed {seed}: {bytes:02x?}");
    }
}
