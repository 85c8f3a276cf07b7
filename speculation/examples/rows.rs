//! Microseconds that one row of 151,936 logits takes, by what a request asks for.
//!
//! `cargo run --release -p speculation --example rows [SECONDS]`. Each figure is the least of many
//! repetitions in turn, so that a busy machine disturbs all alike.

use speculation::{
    AdjustmentOptions, Adjustments, DraftLaw, NoiseKey, Prefix, Rule, Sampler, Sampling,
    SamplingOptions, TokenId, Verifier,
};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

const IDS: usize = 151_936;
/// Rows of each kind, in turn: caches and branches must not learn one by heart.
const ROWS: usize = 8;

/// What is timed: it reads a row at a position.
type Reading = Box<dyn Fn(&[f32], u64)>;

struct Case {
    name: &'static str,
    read: Reading,
    /// By kind of row.
    best: Vec<f64>,
}

fn main() {
    let seconds: f64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(5.0);
    let kinds = [
        ("sure", rows(2.2, 24.0, 1.0)),
        ("open", rows(2.6, 13.0, 1.0)),
        ("32k of it", rows(2.6, 13.0, 0.21)),
        ("first 32k", first(32_768)),
        ("32k alone", alone(32_768)),
        ("5 ids", rows(2.6, 13.0, 5.0 / IDS as f64)),
    ];
    let mut cases = cases();
    let begun = Instant::now();
    let mut position = 0;
    while begun.elapsed().as_secs_f64() < seconds || position < 3 {
        for case in &mut cases {
            for (kind, (_, rows)) in kinds.iter().enumerate() {
                for row in rows {
                    let start = Instant::now();
                    (case.read)(black_box(row), position);
                    let taken = start.elapsed().as_secs_f64() * 1e6;
                    case.best[kind] = case.best[kind].min(taken);
                }
            }
        }
        position += 1;
    }
    let mut table = format!("{:28}", "us per row");
    for (name, _) in &kinds {
        write!(table, "{name:>12}").expect("a string takes all");
    }
    for case in &cases {
        write!(table, "\n{:28}", case.name).expect("a string takes all");
        for best in &case.best {
            write!(table, "{best:12.1}").expect("a string takes all");
        }
    }
    writeln!(std::io::stdout(), "{table}").expect("stdout is open");
}

fn cases() -> Vec<Case> {
    let plain = SamplingOptions::default;
    let cold = SamplingOptions {
        temperature: 0.7,
        ..plain()
    };
    let choices = [
        (
            "greedy",
            SamplingOptions {
                temperature: 0.0,
                ..plain()
            },
        ),
        ("coupled, T 0.7", cold),
        ("coupled, T 1", plain()),
        (
            "coupled, T 1.5",
            SamplingOptions {
                temperature: 1.5,
                ..plain()
            },
        ),
        ("coupled, top-k 40", SamplingOptions { top_k: 40, ..cold }),
        (
            "coupled, top-p .95",
            SamplingOptions {
                top_p: 0.95,
                ..cold
            },
        ),
        (
            "coupled, min-p .05",
            SamplingOptions {
                min_p: 0.05,
                ..cold
            },
        ),
        (
            "coupled, typical-p .95",
            SamplingOptions {
                typical_p: 0.95,
                ..plain()
            },
        ),
    ];
    let mut cases: Vec<(&'static str, Reading)> = Vec::new();
    for (name, options) in choices {
        cases.push((name, choosing(options)));
    }
    let sampler = Sampler {
        sampling: sampling(cold),
        key: NoiseKey::from_seed(1),
    };
    let candidates: Reading = Box::new(move |row, position| {
        black_box(sampler.candidates(row, position, 4));
    });
    let confidence: Reading = Box::new(move |row, _| {
        black_box(sampler.confidence(row, 7));
    });
    cases.push(("4 candidates, T 0.7", candidates));
    cases.push(("confidence, T 0.7", confidence));
    let laws = [
        ("draft law, T 1", plain()),
        (
            "draft law, top-p .95",
            SamplingOptions {
                top_p: 0.95,
                ..cold
            },
        ),
    ];
    for (name, options) in laws {
        let sampling = sampling(options);
        cases.push((
            name,
            Box::new(move |row, _| {
                black_box(DraftLaw::of_logits(row, &sampling));
            }),
        ));
    }
    for (name, rule, accepted) in [
        ("token rule, T 1, accepted", Rule::Token, true),
        ("token rule, T 1, rejected", Rule::Token, false),
        ("block rule, T 1, accepted", Rule::Block, true),
        ("block rule, T 1, rejected", Rule::Block, false),
    ] {
        cases.push((name, verifying(rule, accepted)));
    }
    cases.push(("penalties", penalising()));
    cases
        .into_iter()
        .map(|(name, read)| Case {
            name,
            read,
            best: vec![f64::INFINITY; 6],
        })
        .collect()
}

fn sampling(options: SamplingOptions) -> Sampling {
    Sampling::new(options).expect("valid")
}

fn choosing(options: SamplingOptions) -> Reading {
    let sampler = Sampler {
        sampling: sampling(options),
        key: NoiseKey::from_seed(1),
    };
    Box::new(move |row, position| {
        black_box(sampler.choose(row, position));
    })
}

/// Reads one row that judges a token: the most likely one, which is accepted as it was certain to
/// be drafted, or one that the target excludes.
fn verifying(rule: Rule, accepted: bool) -> Reading {
    let sampler = Sampler {
        sampling: sampling(SamplingOptions::default()),
        key: NoiseKey::from_seed(1),
    };
    Box::new(move |row, position| {
        let token = if accepted { 0 } else { IDS as TokenId };
        let law = DraftLaw::certain(token);
        let mut verifier = Verifier::new(rule, sampler, position, vec![token], vec![law]);
        black_box(verifier.read(row));
    })
}

fn penalising() -> Reading {
    let options = AdjustmentOptions {
        presence_penalty: 0.5,
        ..AdjustmentOptions::default()
    };
    let adjustments = Arc::new(Adjustments::new(options).expect("valid"));
    let prefix = std::cell::RefCell::new(Prefix::new(adjustments, None));
    for token in 0..500 {
        prefix.borrow_mut().push(token * 7);
    }
    Box::new(move |row, _| {
        black_box(prefix.borrow_mut().process(row)).expect("ids are left");
    })
}

/// Rows as models make them: a bell of the given deviation over all ids and a few favourites, the
/// first id foremost, up to `lead` above its middle. Only a `share` of the ids is possible.
fn rows(deviation: f32, lead: f32, share: f64) -> Vec<Vec<f32>> {
    (0..ROWS as u64)
        .map(|seed| {
            let mut uniform = uniforms(seed);
            let mut row: Vec<f32> = (0..IDS)
                .map(|_| {
                    let sum: f64 = (0..12).map(|_| uniform()).sum();
                    (sum - 6.0) as f32 * deviation
                })
                .collect();
            for favourite in 0..40_u16 {
                let id = (uniform() * IDS as f64) as usize;
                row[id] = lead * (1.0 - f32::from(favourite) / 40.0);
            }
            for logit in &mut row {
                if uniform() >= share {
                    *logit = f32::NEG_INFINITY;
                }
            }
            row[0] = lead;
            row
        })
        .collect()
}

/// Open rows of which the ids from `count` on are impossible, as a restricted vocabulary leaves them.
fn first(count: usize) -> Vec<Vec<f32>> {
    let mut rows = rows(2.6, 13.0, 1.0);
    for row in &mut rows {
        row[count..].fill(f32::NEG_INFINITY);
    }
    rows
}

/// Open rows of `count` ids and no more.
fn alone(count: usize) -> Vec<Vec<f32>> {
    let mut rows = rows(2.6, 13.0, 1.0);
    rows.iter_mut().for_each(|row| row.truncate(count));
    rows
}

/// Uniform numbers by xorshift.
fn uniforms(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}
