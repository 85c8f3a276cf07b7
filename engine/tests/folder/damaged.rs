//! Whatever the bytes of a folder's files, nothing panics.

use crate::{load, written};
use engine::tiny::TinyModel;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs;

/// Files whose bytes are changed, with how many of the first are.
const FILES: [(&str, usize); 5] = [
    ("config.json", usize::MAX),
    ("model.safetensors", 3000),
    ("tokenizer.json", usize::MAX),
    ("tokenizer_config.json", usize::MAX),
    ("generation_config.json", usize::MAX),
];

#[test]
fn damaged_folders_never_panic() {
    let seed = rand::rng().random::<u64>();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let tiny = TinyModel {
        layers: 1,
        heads: 2,
        ..TinyModel::default()
    };
    let folder = written(&tiny, 1);
    for (name, first) in FILES {
        let path = folder.path().join(name);
        let whole = fs::read(&path).unwrap();
        let (mut read, mut refused) = (0, 0);
        for _ in 0..150 {
            let mut damaged = whole.clone();
            for _ in 0..rng.random_range(1..4) {
                let place = rng.random_range(0..first.min(whole.len()));
                damaged[place] ^= 1 << rng.random_range(0..8);
            }
            if rng.random_bool(0.1) {
                damaged.truncate(rng.random_range(0..whole.len()));
            }
            fs::write(&path, damaged).unwrap();
            match load(folder.path()) {
                Ok(_) => read += 1,
                Err(refusal) => {
                    refused += 1;
                    let shown = refusal.to_string();
                    assert!(shown.contains(".json") || shown.contains(".safetensors"));
                }
            }
        }
        println!("{name}: read {read}, refused {refused}");
        assert!(refused > 10, "the damage to {name} was felt");
        fs::write(&path, &whole).unwrap();
    }
    load(folder.path()).expect("the folder is whole again");
}
