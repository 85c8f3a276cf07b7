//! The uniform variables of the ratio rules: as random as they claim, and the same for ever.

use speculation::{NoiseKey, Stream, gumbel, uniform};
use std::collections::HashSet;

const STREAMS: [Stream; 3] = [Stream::Draft, Stream::Accept, Stream::Residual];

/// Two releases that disagree here cannot verify each other's proposals.
#[test]
fn variables_are_the_same_on_every_machine_and_in_every_release() {
    let key = NoiseKey::from_seed(42);
    let bits = STREAMS.map(|stream| uniform(key, stream, 7, 9).to_bits());
    assert_eq!(
        bits,
        [
            0x3fe3_e476_e056_8ecb,
            0x3feb_b971_0497_43bb,
            0x3fd9_d151_e3e4_653a
        ]
    );
    let far = uniform(key, Stream::Draft, 1 << 40, 1 << 41).to_bits();
    assert_eq!(far, 0x3fc9_5492_ce4f_1a44);
}

#[test]
fn every_part_of_stream_key_base_and_position_matters() {
    let (key, base, position) = (3 << 96 | 5 << 64 | 7 << 32 | 11_u128, 13_u64, 17_u64);
    let mut seen = HashSet::new();
    let mut fresh = |key, stream, base, position| {
        let value = uniform(NoiseKey(key), stream, base, position);
        assert!(value > 0.0 && value < 1.0, "{value}");
        seen.insert(value.to_bits())
    };
    for stream in STREAMS {
        assert!(fresh(key, stream, base, position), "{stream:?}");
        for bit in 0..128 {
            assert!(
                fresh(key ^ (1 << bit), stream, base, position),
                "{stream:?}, key {bit}"
            );
        }
        for bit in 0..64 {
            assert!(
                fresh(key, stream, base ^ (1 << bit), position),
                "{stream:?}, base {bit}"
            );
            assert!(
                fresh(key, stream, base, position ^ (1 << bit)),
                "{stream:?}, position {bit}"
            );
        }
        assert!(fresh(key, stream, position, base), "{stream:?}");
    }
}

/// The correlation of two lists.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let count = a.len() as f64;
    let mean = |list: &[f64]| list.iter().sum::<f64>() / count;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let covariance = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
        a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).sum()
    };
    covariance(a, mean_a, b, mean_b)
        / (covariance(a, mean_a, a, mean_a) * covariance(b, mean_b, b, mean_b)).sqrt()
}

const DRAWS: u64 = 100_000;

/// The streams over many keys at one position, and over many positions of one key.
fn lists() -> Vec<(String, Vec<f64>)> {
    let over_keys =
        |stream| (0..DRAWS).map(move |seed| uniform(NoiseKey::from_seed(seed), stream, 5, 6));
    let over_positions =
        |stream| (0..DRAWS).map(move |at| uniform(NoiseKey(9), stream, at / 4, at));
    STREAMS
        .into_iter()
        .flat_map(|stream| {
            [
                (format!("{stream:?} over keys"), over_keys(stream).collect()),
                (
                    format!("{stream:?} over positions"),
                    over_positions(stream).collect(),
                ),
            ]
        })
        .collect()
}

#[test]
fn variables_have_the_moments_of_the_uniform_law() {
    for (name, list) in lists() {
        let mean = list.iter().sum::<f64>() / DRAWS as f64;
        let variance = list.iter().map(|u| (u - 0.5).powi(2)).sum::<f64>() / DRAWS as f64;
        // Four standard errors.
        assert!(
            (mean - 0.5).abs() < 4.0 * (1.0 / 12.0 / DRAWS as f64).sqrt(),
            "{name}: mean {mean}"
        );
        assert!(
            (variance - 1.0 / 12.0).abs() < 4.0 * (1.0 / 180.0 / DRAWS as f64).sqrt(),
            "{name}: {variance}"
        );
        let next = correlation(&list[1..], &list[..list.len() - 1]);
        assert!(
            next.abs() < 4.0 / (DRAWS as f64).sqrt(),
            "{name}: {next} with the next"
        );
    }
}

#[test]
fn streams_and_shared_noise_know_nothing_of_each_other() {
    let mut lists = lists();
    let noise = |seed: u64, at, id| (-(-gumbel(NoiseKey::from_seed(seed), at, id)).exp()).exp();
    for id in [0, 6, 1000] {
        let over_keys = (0..DRAWS).map(|seed| noise(seed, 6, id)).collect();
        lists.push((format!("noise of {id} over keys"), over_keys));
        let over_positions = (0..DRAWS)
            .map(|at| (-(-gumbel(NoiseKey(9), at, id)).exp()).exp())
            .collect();
        lists.push((format!("noise of {id} over positions"), over_positions));
    }
    for (index, (name, list)) in lists.iter().enumerate() {
        for (other_name, other) in &lists[..index] {
            let correlation = correlation(list, other);
            assert!(
                correlation.abs() < 4.5 / (DRAWS as f64).sqrt(),
                "{name}, {other_name}: {correlation}"
            );
        }
    }
}

/// A variable of one round says nothing of the next round's at the same position.
#[test]
fn rounds_know_nothing_of_each_other() {
    for stream in STREAMS {
        let round = |base: u64| -> Vec<f64> {
            (0..DRAWS)
                .map(|seed| uniform(NoiseKey::from_seed(seed), stream, base, 9))
                .collect()
        };
        let correlation = correlation(&round(5), &round(6));
        assert!(
            correlation.abs() < 4.5 / (DRAWS as f64).sqrt(),
            "{stream:?}: {correlation}"
        );
    }
}
