//! Files that went wrong: seeded changes to sound ones.

use rand::rngs::StdRng;
use rand::{Rng, seq::IndexedRandom as _};

/// Counts, lengths and offsets at which arithmetic goes wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    7,
    31,
    255,
    0xffff,
    0x1_0000,
    1 << 24,
    (1 << 24) - 1,
    i32::MAX as u64,
    u32::MAX as u64,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// What JSON readers are fed.
const SNIPPETS: [&str; 17] = [
    "-1",
    "15999999",
    "1e999",
    "1e-999",
    "18446744073709551616",
    "16777215",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "\\u0000",
    "\\ud800",
    "\"id\":4294967295",
    ",",
    "0.5",
];

/// One of `files` with some changes.
pub(crate) fn mutated(files: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = files.choose(rng).cloned().unwrap_or_default();
    for _ in 0..rng.random_range(1..6) {
        change(&mut bytes, files, rng);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, files: &[Vec<u8>], rng: &mut StdRng) {
    let place = rng.random_range(0..=bytes.len());
    let rest = bytes.len() - place;
    let end = place + rng.random_range(0..=rest.min(64));
    match rng.random_range(0..10) {
        0 => bytes.truncate(place),
        1 => drop(bytes.drain(place..end)),
        2 => {
            let piece = bytes[place..end].to_vec();
            bytes.splice(place..place, piece);
        }
        3 => {
            let other = files.choose(rng).map(Vec::as_slice).unwrap_or_default();
            let from = rng.random_range(0..=other.len());
            let until = other.len().min(from + 64);
            bytes.splice(place..end, other[from..until].iter().copied());
        }
        4 | 5 => {
            let number = NUMBERS
                .choose(rng)
                .copied()
                .unwrap_or_default()
                .to_le_bytes();
            let width = [1, 2, 4, 8][rng.random_range(0..4)];
            let width = width.min(rest);
            bytes[place..place + width].copy_from_slice(&number[..width]);
        }
        6 | 7 => {
            let snippet = SNIPPETS.choose(rng).copied().unwrap_or_default();
            let until = number_at(bytes, place).unwrap_or(end);
            bytes.splice(place..until, snippet.bytes());
        }
        8 => {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = rng.random();
            }
        }
        _ => {
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
    }
}

/// Where the digits that begin at `place` end.
fn number_at(bytes: &[u8], place: usize) -> Option<usize> {
    let digits = bytes[place..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    Some(digits.count())
        .filter(|count| *count > 0)
        .map(|count| place + count)
}
