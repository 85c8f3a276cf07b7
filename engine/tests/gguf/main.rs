//! Whatever the bytes of a model file, it is read or refused with a reason.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too, a failure is the test's"
)]

mod configurations;
mod handmade;

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use engine::gguf::GgufFile;
use engine::tiny::TinyModel;
use engine::{DecoderConfig, LoadError, Vocabulary};
use handmade::{Handmade, assert_contains, open_bytes, tiny};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

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
