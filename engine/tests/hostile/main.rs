//! Files that nobody vouches for: the corpus of the fuzzer, and thousands of seeded changes to it.

mod bodies;
mod memory;
mod mutations;
mod seeds;

use bodies::BODIES;
use engine::{Checkpoint, DecoderConfig, Vocabulary, gguf::GgufFile};
use mutations::mutated;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Of each file of the corpus.
const MAX_BYTES: usize = 4096;
/// Changed files that each body is given, unless `HOSTILE_CASES` states another number.
const CASES: u64 = 4000;

/// Memory is counted for the whole process, so tests that count take turns.
static TURN: Mutex<()> = Mutex::new(());

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/hostile/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("every target has a corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("a file"));
    files.into_iter().map(read).collect()
}

/// Says which case it was, where one goes wrong.
struct Case(String);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was {}", self.0);
        }
    }
}

fn run_changed(target: &str) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (_, body) = BODIES
        .iter()
        .find(|(name, _)| *name == target)
        .expect("a body");
    let mut files = Vec::new();
    for (path, bytes) in corpus(target) {
        let _case = Case(path.display().to_string());
        assert!(bytes.len() <= MAX_BYTES, "{} bytes", bytes.len());
        body(&bytes);
        files.push(bytes);
    }
    let cases = std::env::var("HOSTILE_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("a number of cases"));
    for seed in 0..cases {
        let _case = Case(format!("{target} of seed {seed}"));
        body(&mutated(&files, &mut StdRng::seed_from_u64(seed)));
    }
}

#[test]
fn gguf_headers_are_read_or_refused() {
    run_changed("gguf_header");
}

#[test]
fn gguf_vocabularies_are_read_or_refused() {
    run_changed("gguf_vocabulary");
}

#[test]
fn safetensors_headers_are_read_or_refused() {
    run_changed("safetensors_header");
}

#[test]
fn configurations_of_folders_are_read_or_refused() {
    run_changed("config_json");
}

#[test]
fn tokenizers_of_folders_are_read_or_refused() {
    run_changed("tokenizer_json");
}

/// A GGUF file of nothing but an array of zeros of the type numbered `tag`, `size` bytes each.
fn array(tag: u32, size: usize, length: usize) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(5u64.to_le_bytes());
    bytes.extend(b"large");
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(tag.to_le_bytes());
    bytes.extend((length as u64).to_le_bytes());
    bytes.resize(bytes.len() + size * length, 0);
    bytes
}

#[test]
fn arrays_take_memory_in_proportion_to_the_file() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.gguf");
    for (tag, size, length, taken) in [
        // Bytes, numbers and strings of no letters: as many as are let in, and then more.
        (0, 1, 1 << 20, true),
        (0, 1, (1 << 20) + 1, false),
        (7, 1, 8 << 20, false),
        (3, 2, 4 << 20, false),
        (4, 4, 4 << 20, true),
        (8, 8, 2 << 20, true),
        (10, 8, (8 << 20) + 1, false),
    ] {
        let bytes = array(tag, size, length);
        fs::write(&path, &bytes).expect("written");
        let mut refusal = None;
        let peak = memory::peak(|| refusal = GgufFile::open(&path).err());
        let what = format!("{length} elements of type {tag} took {peak} bytes");
        assert!(peak <= (36 << 20) + 8 * bytes.len(), "{what}");
        assert_eq!(refusal.is_none(), taken, "{what}");
        if let Some(refusal) = refusal {
            assert!(
                refusal.to_string().contains("large brings the arrays"),
                "{refusal}"
            );
        }
    }
}

/// A token far behind all others would make a table of them all.
#[test]
fn ids_without_tokens_take_no_memory() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for seed in seeds::seeds("tokenizer_json") {
        let text = String::from_utf8(seed).expect("text");
        bodies::tokenizer_json(text.replace("\"b\":1", "\"b\":15999999").as_bytes());
        bodies::tokenizer_json(text.replace("\"id\":4", "\"id\":15999999").as_bytes());
    }
}

/// Otherwise the changes would be to files that are refused at their first byte.
#[test]
fn the_seeds_are_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("seed.gguf");
    for seed in seeds::seeds("gguf_vocabulary") {
        fs::write(&path, seed).expect("written");
        let file = GgufFile::open(&path).expect("a header");
        DecoderConfig::from_gguf(&file).expect("a configuration");
        Vocabulary::from_gguf(&file).expect("a vocabulary");
    }
    for seed in seeds::seeds("safetensors_header") {
        engine::safetensors::SafetensorsHeader::read(&seed).expect("a header");
    }
    fs::write(folder.path().join("model.safetensors"), bodies::SAFETENSORS).expect("written");
    for config in seeds::seeds("config_json") {
        fs::write(folder.path().join("config.json"), config).expect("written");
        Checkpoint::open(folder.path())
            .expect("opened")
            .config()
            .expect("a configuration");
    }
    fs::write(folder.path().join("config.json"), bodies::CONFIG).expect("written");
    for tokenizer in seeds::seeds("tokenizer_json") {
        fs::write(folder.path().join("tokenizer.json"), tokenizer).expect("written");
        Checkpoint::open(folder.path())
            .expect("opened")
            .vocabulary()
            .expect("a vocabulary");
    }
}

/// `cargo test --release --workspace --test hostile -- --ignored` writes the seeds where they are
/// missing; what the fuzzer finds is added by hand.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_seeds() {
    for (target, _) in BODIES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/hostile/corpus")
            .join(target);
        fs::create_dir_all(&folder).expect("made");
        for (number, seed) in seeds::seeds(target).into_iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed).expect("written");
        }
    }
}
