//! Whatever the bytes of a model file, it is read or refused with a reason.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{DecoderConfig, Family, LoadError, Vocabulary};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A GGUF file put together by hand.
#[derive(Default)]
struct Handmade {
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
}

impl Handmade {
    fn key(mut self, name: &str, tag: u32, value: &[u8]) -> Self {
        string(&mut self.keys, name);
        self.keys.extend(tag.to_le_bytes());
        self.keys.extend(value);
        self.key_count += 1;
        self
    }

    fn tensor(mut self, name: &str, dimensions: &[u64], dtype: u32, offset: u64) -> Self {
        string(&mut self.tensors, name);
        self.tensors.extend((dimensions.len() as u32).to_le_bytes());
        for length in dimensions {
            self.tensors.extend(length.to_le_bytes());
        }
        self.tensors.extend(dtype.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    /// Opens it with `data` bytes of tensor data behind the header.
    fn open(&self, data: usize) -> Result<GgufFile, LoadError> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.key_count.to_le_bytes());
        bytes.extend(&self.keys);
        bytes.extend(&self.tensors);
        bytes.resize(bytes.len().next_multiple_of(32) + data, 7);
        open_bytes(&bytes)
    }

    fn refusal(&self, data: usize) -> String {
        self.open(data).expect_err("to be refused").to_string()
    }
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn open_bytes(bytes: &[u8]) -> Result<GgufFile, LoadError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("handmade.gguf");
    fs::write(&path, bytes).unwrap();
    GgufFile::open(&path)
}

fn tiny(model: &TinyModel) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tiny.gguf");
    model.write(&path).unwrap();
    (folder, path)
}

fn one_layer() -> TinyModel {
    TinyModel {
        layers: 1,
        ..TinyModel::default()
    }
}

/// Everything that loading does before the weights.
fn read_all(path: &Path) -> Result<(DecoderConfig, Vocabulary), LoadError> {
    let file = GgufFile::open(path)?;
    Ok((
        DecoderConfig::from_gguf(&file)?,
        Vocabulary::from_gguf(&file)?,
    ))
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn files_that_are_no_models_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("absent.gguf");
    let absent = GgufFile::open(&path).unwrap_err();
    assert!(matches!(absent, LoadError::Io { .. }), "{absent:?}");
    assert_contains(&absent.to_string(), &["absent.gguf"]);
    let of_folder = GgufFile::open(folder.path()).unwrap_err();
    assert!(matches!(of_folder, LoadError::Io { .. }), "{of_folder:?}");
    for bytes in [&b""[..], b"G", b"PK\x03\x04 a zip archive", &[0; 4096]] {
        let refusal = open_bytes(bytes).unwrap_err();
        assert!(matches!(refusal, LoadError::Invalid { .. }), "{refusal:?}");
        assert_contains(&refusal.to_string(), &["handmade.gguf"]);
    }
    let refusal = open_bytes(b"GGUF\x00\x00\x00\x03").unwrap_err();
    assert!(
        matches!(refusal, LoadError::Unsupported { .. }),
        "a big-endian file: {refusal:?}"
    );
}

#[test]
fn metadata_is_read_as_written() {
    let nested = {
        let mut bytes = 9u32.to_le_bytes().to_vec();
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(5u32.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        bytes.extend((-1i32).to_le_bytes());
        bytes.extend(2i32.to_le_bytes());
        bytes
    };
    let file = Handmade::default()
        .key("small", 0, &[200])
        .key("negative", 5, &(-3i32).to_le_bytes())
        .key("half", 6, &0.5f32.to_le_bytes())
        .key("nan", 6, &f32::NAN.to_le_bytes())
        .key("long", 10, &u64::MAX.to_le_bytes())
        .key("nested", 9, &nested)
        .open(0)
        .unwrap();
    assert_eq!(file.count("small").unwrap(), 200);
    assert_eq!(file.count("long").unwrap(), usize::MAX);
    assert_eq!(file.number("negative").unwrap(), -3.0);
    assert_eq!(file.number("half").unwrap(), 0.5);
    assert_eq!(file.list("nested").unwrap().len(), 1);
    for refusal in [
        file.count("negative").unwrap_err(),
        file.count("half").unwrap_err(),
        file.number("nan").unwrap_err(),
        file.string("half").unwrap_err(),
        file.list("half").unwrap_err(),
        file.count("absent").unwrap_err(),
    ] {
        assert!(matches!(refusal, LoadError::Invalid { .. }), "{refusal:?}");
    }
    assert_contains(
        &file.string("absent").unwrap_err().to_string(),
        &["handmade.gguf", "absent is absent"],
    );
}

#[test]
fn tensors_are_read_as_written() {
    let (_folder, path) = tiny(&TinyModel {
        dtype: GgmlDType::Q8_0,
        ..one_layer()
    });
    let file = GgufFile::open(&path).unwrap();
    let mut stock = {
        let mut reader = fs::File::open(&path).unwrap();
        let content = candle_core::quantized::gguf_file::Content::read(&mut reader).unwrap();
        move |name: &str| {
            content
                .tensor(&mut reader, name, &Device::Cpu)
                .unwrap()
                .dequantize(&Device::Cpu)
                .unwrap()
        }
    };
    for name in [
        "token_embd.weight",
        "blk.0.ffn_down.weight",
        "output_norm.weight",
    ] {
        let shape = file.tensor_shape(name).unwrap();
        let tensor = file.tensor(name, shape, &Device::Cpu).unwrap();
        let values = tensor.dequantize(&Device::Cpu).unwrap();
        let flat =
            |tensor: candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values.dims(), shape);
        assert_eq!(flat(values), flat(stock(name)), "{name}");
    }
    assert_eq!(
        file.tensor_shape("blk.0.ffn_down.weight"),
        Some(&[128, 256][..])
    );
    let refusal = file
        .tensor("blk.0.ffn_down.weight", &[256, 128], &Device::Cpu)
        .unwrap_err();
    assert_contains(
        &refusal.to_string(),
        &["blk.0.ffn_down.weight", "[128, 256]", "[256, 128]"],
    );
    let refusal = file.tensor("blk.9", &[1], &Device::Cpu).unwrap_err();
    assert_contains(&refusal.to_string(), &["blk.9", "absent"]);
}

#[test]
fn tensors_outside_the_file_are_refused() {
    let one = |dimensions: &[u64], dtype, offset| {
        Handmade::default().tensor("w", dimensions, dtype, offset)
    };
    assert!(one(&[8, 4], 0, 0).open(128).is_ok());
    assert_contains(
        &one(&[8, 4], 0, 0).refusal(127),
        &["tensor w", "224", "223"],
    );
    assert_contains(&one(&[8, 4], 0, 32).refusal(128), &["tensor w"]);
    assert_contains(&one(&[8, 4], 0, 8).refusal(1024), &["not a multiple of 32"]);
    let last = u64::MAX - 31;
    assert_contains(&one(&[8, 4], 0, last).refusal(128), &["tensor w"]);
    for huge in [
        [u64::MAX, 2],
        [1 << 32, 1 << 32],
        [1 << 62, 1],
        [1 << 40, 1],
    ] {
        assert_contains(&one(&huge, 0, 0).refusal(128), &["tensor w"]);
    }
    for empty in [&[0u64, 4][..], &[4, 0], &[]] {
        assert_contains(&one(empty, 0, 0).refusal(128), &["tensor w is empty"]);
    }
    assert_contains(&one(&[31, 1], 8, 0).refusal(128), &["blocks of 32"]);
    assert_contains(
        &one(&[1; 5], 0, 0).refusal(128),
        &["tensor w", "5 dimensions"],
    );
}

#[test]
fn unknown_types_are_named() {
    let file = Handmade::default().tensor("blk.0.attn_q.weight", &[256], 23, 0);
    let refusal = file.open(1024).unwrap_err();
    assert!(matches!(refusal, LoadError::Unsupported { .. }));
    assert_contains(
        &refusal.to_string(),
        &["blk.0.attn_q.weight", "IQ4_XS", "Q4_0"],
    );
}

#[test]
fn contradictions_are_refused() {
    let value = 1u32.to_le_bytes();
    let twice = Handmade::default().key("a", 4, &value).key("a", 4, &value);
    assert_contains(&twice.refusal(0), &["a appears twice"]);
    let twice = Handmade::default()
        .tensor("w", &[8], 0, 0)
        .tensor("w", &[8], 0, 32);
    assert_contains(&twice.refusal(64), &["tensor w appears twice"]);
    for alignment in [0u32, 1, 33, 1 << 31] {
        let file = Handmade::default().key("general.alignment", 4, &alignment.to_le_bytes());
        assert_contains(&file.refusal(64), &["general.alignment"]);
    }
    let file = Handmade::default().key("flag", 7, &[2]);
    assert_contains(&file.refusal(0), &["flag"]);
    let file = Handmade::default().key("odd", 13, &[2; 8]);
    assert_contains(&file.refusal(0), &["odd", "13"]);
    let file = Handmade::default().key("latin1", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xe9]);
    assert_contains(&file.refusal(0), &["latin1", "UTF-8"]);
    let file = Handmade::default().key(&"k".repeat(5000), 0, &[1]);
    assert_contains(&file.refusal(0), &["5000"]);
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    for counts in [[u64::MAX, 0], [0, u64::MAX], [1 << 30, 1 << 30], [3, 0]] {
        let mut bytes = b"GGUF\x03\x00\x00\x00".to_vec();
        bytes.extend(counts[0].to_le_bytes());
        bytes.extend(counts[1].to_le_bytes());
        bytes.resize(100, 0);
        let refusal = open_bytes(&bytes).unwrap_err();
        assert_contains(&refusal.to_string(), &["count"]);
    }
    for tag in [0u32, 4, 8, 9] {
        let mut array = tag.to_le_bytes().to_vec();
        array.extend((1u64 << 40).to_le_bytes());
        let file = Handmade::default().key("tokens", 9, &array);
        assert_contains(&file.refusal(64), &["tokens"]);
    }
    let mut deep = Vec::new();
    for _ in 0..1000 {
        deep.extend(9u32.to_le_bytes());
        deep.extend(1u64.to_le_bytes());
    }
    let file = Handmade::default().key("deep", 9, &deep);
    assert_contains(&file.refusal(64), &["deep"]);
    let mut long = 0u32.to_le_bytes().to_vec();
    long.extend((9u64 << 20).to_le_bytes());
    long.resize(long.len() + (9 << 20), 0);
    let file = Handmade::default().key("long", 9, &long);
    assert_contains(&file.refusal(0), &["long"]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (_folder, path) = tiny(&one_layer());
    let whole = fs::read(&path).unwrap();
    let header = header_len(&whole);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // Behind the last tensor there may be padding.
    let within_data = (header..whole.len() - 32).rev().step_by(9973);
    let within_header = (0..header).rev().step_by(3);
    for length in within_data.chain(within_header) {
        file.set_len(length as u64).unwrap();
        let refusal = GgufFile::open(&path).expect_err("a cut file");
        assert_contains(&refusal.to_string(), &["tiny.gguf"]);
    }
}

/// Where the name of the last tensor of a one-layer model stands: nearly the header's end.
fn header_len(file: &[u8]) -> usize {
    let name = b"blk.0.";
    file.windows(name.len())
        .rposition(|window| window == name)
        .expect("a layer")
}

#[test]
fn damaged_files_never_panic() {
    let seed = rand::rng().random::<u64>();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (_folder, path) = tiny(&one_layer());
    let whole = fs::read(&path).unwrap();
    let header = header_len(&whole) + 64;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let (mut read, mut refused) = (0, 0);
    for _ in 0..2000 {
        let damage = rng.random_range(1..4);
        let places: Vec<usize> = (0..damage).map(|_| rng.random_range(0..header)).collect();
        for &place in &places {
            let byte = whole[place] ^ (1 << rng.random_range(0..8));
            file.write_all_at(&[byte], place as u64).unwrap();
        }
        match read_all(&path) {
            Ok(_) => read += 1,
            Err(refusal) => {
                refused += 1;
                assert_contains(&refusal.to_string(), &["tiny.gguf"]);
            }
        }
        for &place in &places {
            file.write_all_at(&whole[place..=place], place as u64)
                .unwrap();
        }
    }
    println!("read {read}, refused {refused}");
    assert!(refused > 200, "the damage was felt");
    read_all(&path).expect("the file is whole again");
}

#[test]
fn configurations_are_read_from_both_families() {
    for family in [Family::Llama, Family::Qwen2] {
        let (_folder, path) = tiny(&TinyModel {
            family,
            padding: 5,
            ..TinyModel::default()
        });
        let config = DecoderConfig::from_gguf(&GgufFile::open(&path).unwrap()).unwrap();
        assert_eq!(config.family, family);
        assert_eq!((config.hidden, config.layers), (128, 2));
        assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 2, 32));
        assert_eq!(config.context_length, 4096);
        assert_eq!(config.vocabulary_rows, 256 + 48 + 3 + 5);
        assert_eq!(config.rope_base, 10_000.0);
        assert!((config.norm_epsilon - 1e-5).abs() < 1e-9);
    }
}

/// A handmade file of a valid configuration, less the key `without`.
fn configured(without: &str) -> Handmade {
    let counts = [
        ("llama.context_length", 64u32),
        ("llama.embedding_length", 32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", 64),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
        ("llama.rope.dimension_count", 8),
    ];
    let mut architecture = Vec::new();
    string(&mut architecture, "llama");
    let mut file = Handmade::default().tensor("token_embd.weight", &[32, 4], 0, 0);
    if without != "general.architecture" {
        file = file.key("general.architecture", 8, &architecture);
    }
    for (key, count) in counts {
        if key != without {
            file = file.key(key, 4, &count.to_le_bytes());
        }
    }
    let epsilon = "llama.attention.layer_norm_rms_epsilon";
    if epsilon != without {
        file = file.key(epsilon, 6, &1e-5f32.to_le_bytes());
    }
    file
}

#[test]
fn absurd_configurations_are_refused_by_key() {
    DecoderConfig::from_gguf(&configured("").open(512).unwrap()).unwrap();
    for key in [
        "general.architecture",
        "llama.context_length",
        "llama.embedding_length",
        "llama.block_count",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        let refusal = DecoderConfig::from_gguf(&configured(key).open(512).unwrap()).unwrap_err();
        assert_contains(&refusal.to_string(), &[key, "absent"]);
    }
    for (key, count) in [
        ("llama.context_length", 0),
        ("llama.context_length", u32::MAX),
        ("llama.embedding_length", 33),
        ("llama.block_count", 0),
        ("llama.block_count", u32::MAX),
        ("llama.feed_forward_length", 0),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count", 32),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count_kv", 3),
        ("llama.attention.key_length", 7),
        ("llama.attention.value_length", 4),
        ("llama.rope.dimension_count", 4),
        ("llama.rope.freq_base", 0),
        ("llama.rope.scaling.factor", 2),
        ("llama.attention.sliding_window", 16),
        ("llama.expert_count", 8),
    ] {
        let file = configured(key).key(key, 4, &count.to_le_bytes());
        let refusal = DecoderConfig::from_gguf(&file.open(512).unwrap()).unwrap_err();
        let named = match key {
            // Shows as an embedding of other rows.
            "llama.embedding_length" => "embedding_length of 33",
            other => other,
        };
        assert_contains(&refusal.to_string(), &[named]);
    }
    let scaled = configured("").tensor("rope_freqs.weight", &[4], 0, 512);
    let refusal = DecoderConfig::from_gguf(&scaled.open(1024).unwrap()).unwrap_err();
    assert!(matches!(refusal, LoadError::Unsupported { .. }));
    assert_contains(&refusal.to_string(), &["rope_freqs.weight"]);
}

#[test]
fn other_architectures_are_named_with_what_is_supported() {
    let mut architecture = Vec::new();
    string(&mut architecture, "mamba");
    let file = configured("general.architecture").key("general.architecture", 8, &architecture);
    let refusal = DecoderConfig::from_gguf(&file.open(512).unwrap()).unwrap_err();
    assert!(matches!(refusal, LoadError::Unsupported { .. }));
    assert_contains(&refusal.to_string(), &["mamba", "llama", "qwen2"]);
}
