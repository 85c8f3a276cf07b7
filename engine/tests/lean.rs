//! Models made cheaper: what is kept is as it was, and what is left out is impossible.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

use candle_core::quantized::GgmlDType;
use engine::lean::{FrequentIds, Lean};
use engine::tiny::TinyModel;
use engine::{CacheType, Input, LoadError, LoadOptions, Pool, Source};
use std::path::Path;

const TOKENS: [u32; 6] = [72, 260, 301, 32, 5, 290];

/// The logits after each of the tokens.
fn logits(path: &Path, lean: Lean) -> Vec<Vec<f32>> {
    let options = LoadOptions {
        lean,
        ..LoadOptions::default()
    };
    let mut model = engine::load(&Source::Files(path.to_owned()), options)
        .unwrap()
        .model;
    model.allocate(1, CacheType::F32).unwrap();
    let pool = Pool::new(model.shape().kv, model.shape().kv.block_bytes());
    let mut lease = pool.lease();
    lease.reserve(TOKENS.len()).unwrap();
    let input = Input {
        blocks: lease.blocks(),
        start: 0,
        tokens: &TOKENS,
        wanted: TOKENS.len(),
    };
    let logits = model.forward(&[input]).unwrap();
    logits.rows().map(<[f32]>::to_vec).collect()
}

fn written(tiny: &TinyModel) -> tempfile::TempPath {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    tiny.write(&path).unwrap();
    path
}

fn restricted(count: usize) -> Lean {
    Lean {
        output: Some(FrequentIds { count, file: None }),
        ..Lean::default()
    }
}

fn encoded(name: &str) -> Lean {
    Lean {
        encoding: Some(name.parse().unwrap()),
        ..Lean::default()
    }
}

#[test]
fn kept_ids_have_the_logits_that_they_had_and_others_none() {
    for (tied, dtype) in [
        (false, GgmlDType::F32),
        (true, GgmlDType::Q8_0),
        (false, GgmlDType::Q4_0),
    ] {
        let path = written(&TinyModel {
            tied,
            dtype,
            padding: 11,
            ..TinyModel::default()
        });
        let full = logits(&path, Lean::default());
        // 256 bytes, 3 control tokens behind all others, and the first 21 merges.
        let lean = logits(&path, restricted(280));
        let kept = |id: usize| id < 277 || (304..307).contains(&id);
        for (row, (lean, full)) in lean.iter().zip(&full).enumerate() {
            assert_eq!(lean.len(), full.len());
            for (id, (lean, full)) in lean.iter().zip(full).enumerate() {
                let expected = if kept(id) { *full } else { f32::NEG_INFINITY };
                assert_eq!(*lean, expected, "{dtype:?}, row {row}, id {id}");
            }
        }
        assert_eq!(logits(&path, restricted(10_000))[0].len(), full[0].len());
    }
}

#[test]
fn weights_encoded_anew_say_nearly_the_same() {
    let path = written(&TinyModel::default());
    let full = logits(&path, Lean::default());
    let spread = |rows: &[Vec<f32>]| {
        let squares = rows
            .iter()
            .flatten()
            .map(|logit| logit * logit)
            .sum::<f32>();
        (squares / rows.iter().flatten().count() as f32).sqrt()
    };
    let mut before = 0.0;
    for name in ["q8_0", "q6_k", "q4_0"] {
        let lean = logits(&path, encoded(name));
        let differences: Vec<Vec<f32>> = lean
            .iter()
            .zip(&full)
            .map(|(lean, full)| lean.iter().zip(full).map(|(a, b)| a - b).collect())
            .collect();
        let error = spread(&differences) / spread(&full);
        assert!(error > before && error < 0.4, "{name}: off by {error}");
        before = error;
    }
}

#[test]
fn both_go_together() {
    let path = written(&TinyModel::default());
    let encoded = encoded("q8_0");
    let both = Lean {
        output: restricted(280).output,
        ..encoded.clone()
    };
    let (both, encoded) = (logits(&path, both), logits(&path, encoded));
    assert_eq!(both[3][300], f32::NEG_INFINITY);
    assert_eq!(both[3][..277], encoded[3][..277]);
}

#[test]
fn a_wrong_list_of_frequent_ids_is_refused_by_name_and_line() {
    let path = written(&TinyModel::default());
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("ids.txt");
    let refusal = || -> LoadError {
        let output = Some(FrequentIds {
            count: 280,
            file: Some(list.clone()),
        });
        let options = LoadOptions {
            lean: Lean {
                output,
                ..Lean::default()
            },
            ..LoadOptions::default()
        };
        engine::load(&Source::Files(path.to_path_buf()), options)
            .err()
            .unwrap()
    };
    let missing = refusal().to_string();
    assert!(missing.contains("ids.txt"), "{missing}");
    std::fs::write(&list, "270\n271\n9999\n").unwrap();
    let wrong = refusal().to_string();
    assert!(
        wrong.contains("ids.txt") && wrong.contains("line 3"),
        "{wrong}"
    );
}
