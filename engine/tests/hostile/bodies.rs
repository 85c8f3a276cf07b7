//! What is done with the bytes of a file that nobody vouches for. Each body panics where a promise is
//! broken: whatever the bytes, they are read or refused with a reason that names the file, in memory
//! in proportion to them.
//!
//! The plain tests and the fuzzer share this file; docs/fuzzing.md says how.

use super::memory::peak;
use engine::gguf::GgufFile;
use engine::safetensors::SafetensorsHeader;
use engine::{Checkpoint, DecoderConfig, LoadError, Vocabulary};
use std::path::PathBuf;
use std::{env, fs, process};

/// What a body may take beside what is in proportion to the bytes: patterns that tokenizers compile,
/// and ids that no token has.
const FLAT: usize = 4 << 20;
/// How many bytes a body may take for each that it is given.
const PER_BYTE: usize = 100;
/// An error shows no more than so many bytes of what it refuses.
const MAX_ERROR: usize = 4096;

/// A body.
pub type Body = fn(&[u8]);

/// All of them, by the name of their target and of the folder of their corpus.
pub const BODIES: [(&str, Body); 5] = [
    ("gguf_header", gguf_header),
    ("gguf_vocabulary", gguf_vocabulary),
    ("safetensors_header", safetensors_header),
    ("config_json", config_json),
    ("tokenizer_json", tokenizer_json),
];

/// The header of a GGUF file.
pub fn gguf_header(bytes: &[u8]) {
    let scratch = scratch("gguf-header");
    let path = scratch.write("hostile.gguf", bytes);
    within(bytes, || refused(GgufFile::open(&path)));
}

/// All of a GGUF file that is read before its tensors.
pub fn gguf_vocabulary(bytes: &[u8]) {
    let scratch = scratch("gguf-vocabulary");
    let path = scratch.write("hostile.gguf", bytes);
    within(bytes, || {
        let Ok(file) = GgufFile::open(&path) else {
            return;
        };
        refused(DecoderConfig::from_gguf(&file));
        refused(Vocabulary::from_gguf(&file));
    });
}

/// The header of a safetensors file.
pub fn safetensors_header(bytes: &[u8]) {
    within(bytes, || {
        if let Err(detail) = SafetensorsHeader::read(bytes) {
            check(&detail);
        }
    });
}

/// A folder with these bytes as its `config.json`.
pub fn config_json(bytes: &[u8]) {
    folder("config-json", "config.json", bytes, |checkpoint| {
        refused(checkpoint.config());
    });
}

/// A folder with these bytes as its `tokenizer.json`.
pub fn tokenizer_json(bytes: &[u8]) {
    folder("tokenizer-json", "tokenizer.json", bytes, |checkpoint| {
        refused(checkpoint.vocabulary());
    });
}

/// Opens a folder in which only `name` is hostile.
fn folder(place: &str, name: &str, bytes: &[u8], read: impl FnOnce(&Checkpoint)) {
    let scratch = scratch(place);
    for (sound, content) in [("config.json", CONFIG), ("model.safetensors", SAFETENSORS)] {
        if sound != name {
            scratch.write(sound, content.as_bytes());
        }
    }
    scratch.write(name, bytes);
    within(bytes, || match Checkpoint::open(&scratch.0) {
        Ok(checkpoint) => read(&checkpoint),
        refusal => refused(refusal),
    });
}

/// A smallest configuration.
pub const CONFIG: &str = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":8,
"intermediate_size":16,"num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,
"vocab_size":16000000,"max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":10000.0,
"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1}"#;

/// One tensor of one number.
pub const SAFETENSORS: &str =
    "\x37\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} \0\0\0\0";

/// A folder for one call.
struct Scratch(PathBuf);

fn scratch(place: &str) -> Scratch {
    let folder = env::temp_dir().join(format!("specdec-hostile-{}-{place}", process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    Scratch(folder)
}

impl Scratch {
    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file can be written");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left over is in the folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `read`, which must not take more memory than `bytes` entitle it to.
fn within(bytes: &[u8], read: impl FnOnce()) {
    let taken = peak(read);
    let allowed = FLAT + PER_BYTE * bytes.len();
    assert!(
        taken <= allowed,
        "{taken} bytes for {} of input",
        bytes.len()
    );
}

fn refused<T>(read: Result<T, LoadError>) {
    if let Err(error) = read {
        check(&error.to_string());
    }
}

fn check(error: &str) {
    assert!(!error.is_empty(), "an error says what is wrong");
    assert!(error.len() <= MAX_ERROR, "an error is no dump: {error}");
}
