//! Shared noise: Gumbel variables that draft and target compute alike.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as
//! easy as 1, 2, 3*, SC 2011). It is counter-based: a variable is a pure function of the key, the
//! position and the token id, so that nothing that happens between two evaluations (a retry, a
//! replay, another draft) can change it.
//!
//! # Discretisation
//! A variable comes from one 32-bit word `x`: `u = (x + 1/2) / 2^32` and `g = -ln(-ln u)`. So `u`
//! has a granularity of `2^-32`, and `g` lies between -3.14 and 22.88. A token is therefore chosen
//! with its law's probability to within about `2^-32`, and one whose probability is below about
//! `e^-26` (5e-12) times that of the most likely token is never chosen.
//!
//! Must not know of logits or laws.

use crate::TokenId;
use crate::wide::wide;
use std::f64::consts::LN_2;

/// The 128-bit key of one request's noise.
///
/// The low 64 bits are the key of Philox. The high 64 bits enter its counter, beside the position
/// and the token id: for one key, every (position, token) has a word of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NoiseKey(pub u128);

impl NoiseKey {
    /// The key of a user's seed. Different seeds have different keys.
    ///
    /// It is the Philox block whose counter holds the seed, under a key kept for this purpose. For
    /// a fixed key Philox is a bijection of its counter, hence the keys differ. This function is
    /// part of what a seed promises its user: changing it changes every seeded text.
    pub fn from_seed(seed: u64) -> Self {
        let [low, high] = words(seed);
        let block = philox([low, high, 0, 0], SEED_EXPANSION);
        Self(
            block
                .into_iter()
                .fold(0, |key, word| key << 32 | u128::from(word)),
        )
    }
}

/// The Gumbel variable of `token` at absolute `position` under `key`: `-ln(-ln u)`, in nats.
///
/// The argmax of log-probability plus such variables is a draw from the law (the Gumbel-max
/// trick). The logarithm is `libm`'s portable one, so that two machines agree to the bit.
pub fn gumbel(key: NoiseKey, position: u64, token: TokenId) -> f64 {
    let noise = PositionNoise::new(key, position);
    gumbel_of_word(noise.word(token))
}

/// What a uniform variable of the ratio rules decides. The streams are independent of each other
/// and of the shared noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Which token the draft proposes.
    Draft,
    /// Whether a drafted token is accepted.
    Accept,
    /// Which token the target chooses where none is accepted any more.
    Residual,
}

impl Stream {
    /// Separates the streams. Any different constants do.
    fn tag(self) -> u32 {
        match self {
            Self::Draft => 0x6472_6166,
            Self::Accept => 0x6163_6365,
            Self::Residual => 0x7265_7369,
        }
    }
}

/// The uniform variable on (0, 1), of 52 random bits, that `stream` has at absolute `position` in
/// the round that follows `base` committed tokens.
///
/// Block verification looks at variables of positions that it then rejects, so a position needs
/// new ones in every round: that is what `base` is for.
pub fn uniform(key: NoiseKey, stream: Stream, base: u64, position: u64) -> f64 {
    let NoiseKey(key) = key;
    // A key of its own per stream: the streams and the shared noise have no counter in common.
    let halves = [key as u64, (key >> 64) as u64].map(words);
    let [[a, b], [c, d]] = halves;
    let [a, b, c, d] = philox([a, b, c, d], [stream.tag(), RATIO_RULES]);
    let [base_low, base_high] = words(base);
    let [low, high] = words(position);
    let counter = [base_low, base_high ^ c, low, high ^ d];
    let [x, y, _, _] = philox(counter, [a, b]);
    let bits = (u64::from(x) << 32 | u64::from(y)) >> 12;
    (bits as f64 + 0.5) / (1_u64 << 52) as f64
}

/// The Philox key, beside the stream's tag, under which the streams' keys are made. Any constant.
const RATIO_RULES: u32 = 0x7261_7469;

/// How many neighbouring ids share one Philox block.
pub(crate) const LANES: u32 = 4;

/// No variable exceeds this: `g <= -ln(1 - u)`, and `u` is at most `1 - 2^-33`.
pub(crate) const MAX_GUMBEL: f64 = 33.0 * LN_2;

/// The noise of one position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PositionNoise {
    key: [u32; 2],
    /// The words of the counter after the first, which is the token's.
    counter: [u32; 3],
}

impl PositionNoise {
    pub(crate) fn new(key: NoiseKey, position: u64) -> Self {
        let [low, high] = words(position);
        let [a, b] = words((key.0 >> 64) as u64);
        Self {
            key: words(key.0 as u64),
            counter: [low, a ^ high, b],
        }
    }

    /// The random words of the ids from `group * LANES`.
    #[inline(always)]
    pub(crate) fn words(&self, group: u32) -> [u32; 4] {
        let [low, high, rest] = self.counter;
        philox([group, low, high, rest], self.key)
    }

    /// The random words of many groups from `group`.
    pub(crate) fn many_words(&self, group: u32) -> ManyWords {
        many_words(self.key, self.counter, group)
    }

    /// The random word of `token`.
    pub(crate) fn word(&self, token: TokenId) -> u32 {
        self.words(token / LANES)[(token % LANES) as usize]
    }
}

/// How many groups are evaluated at once.
pub(crate) const GROUPS: usize = 16;

/// The words of [`GROUPS`] groups: those of the first id of each, of the second, and so on. All
/// side by side, which takes a fraction of the time that they take one by one.
pub(crate) type ManyWords = [[u32; GROUPS]; LANES as usize];

wide! {
    fn many_words(key: [u32; 2], counter: [u32; 3], group: u32) -> ManyWords {
        let [low, high, rest] = counter;
        let mut a: [u32; GROUPS] = std::array::from_fn(|i| group.wrapping_add(i as u32));
        let (mut b, mut c, mut d) = ([low; GROUPS], [high; GROUPS], [rest; GROUPS]);
        let mut key = key;
        for _ in 0..ROUNDS {
            for i in 0..GROUPS {
                [a[i], b[i], c[i], d[i]] = round([a[i], b[i], c[i], d[i]], key);
            }
            key = bump(key);
        }
        [a, b, c, d]
    }
}

wide! {
    /// The largest of `words`.
    pub(crate) fn largest(words: &ManyWords) -> u32 {
        let mut lanes = [0; VECTOR];
        for words in words.as_flattened().as_chunks::<VECTOR>().0 {
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = (*lane).max(*word);
            }
        }
        lanes.into_iter().max().unwrap_or(0)
    }
}

/// How many words fill a vector.
const VECTOR: usize = 8;

/// The Gumbel variable that `word` stands for.
pub(crate) fn gumbel_of_word(word: u32) -> f64 {
    let uniform = (f64::from(word) + 0.5) / TWO_POW_32;
    -libm::log(-libm::log(uniform))
}

/// A word below which every variable is below `value`, found without a logarithm.
///
/// As `-ln u >= 1 - u`, `g <= -ln(1 - u)`. So `g >= value` takes `1 - u <= e^-value`, which is
/// `!x + 1/2 <= 2^32 e^-value`. With `e^-value = 2^-(n + f)` the last factor is at most the chord
/// `1 - f / 2`, which exceeds `2^-f` by 6 % at most. The bound is close: for a large `g` both sides
/// of the first step are nearly equal.
pub(crate) fn least_word(value: f64) -> u32 {
    let exponent = value.clamp(0.0, MAX_GUMBEL) * std::f64::consts::LOG2_E;
    let whole = exponent as u32;
    let chord = 1.0 - (exponent - f64::from(whole)) / 2.0;
    // The factor is far more than the products can be off. A number beyond 32 bits becomes the
    // largest.
    let largest = (1_u64 << 33 >> whole) as f64 / 2.0 * chord * (1.0 + 1e-9);
    !(largest as u32)
}

const TWO_POW_32: f64 = 4_294_967_296.0;

/// The Philox key under which seeds are expanded. Any constant does.
const SEED_EXPANSION: [u32; 2] = [0x7370_6563, 0x7365_6564];

/// The 32-bit halves of `value`, the low one first.
#[inline(always)]
fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// One block of Philox4x32-10: section 3.3 of the paper, with its multipliers and Weyl constants.
#[inline(always)]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        (counter, key) = (round(counter, key), bump(key));
    }
    counter
}

const ROUNDS: usize = 10;

#[inline(always)]
fn round(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [low_0, high_0] = words(u64::from(counter[0]) * 0xD251_1F53);
    let [low_1, high_1] = words(u64::from(counter[2]) * 0xCD9E_8D57);
    [
        high_1 ^ counter[1] ^ key[0],
        low_1,
        high_0 ^ counter[3] ^ key[1],
        low_0,
    ]
}

#[inline(always)]
fn bump(key: [u32; 2]) -> [u32; 2] {
    [
        key[0].wrapping_add(0x9E37_79B9),
        key[1].wrapping_add(0xBB67_AE85),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn philox_gives_the_known_answers_of_its_authors() {
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, block) in cases {
            assert_eq!(philox(counter, key), block, "{counter:x?} under {key:x?}");
        }
    }

    #[test]
    fn words_made_together_are_those_made_one_by_one() {
        let noise = PositionNoise::new(NoiseKey::from_seed(3), 1 << 33 | 5);
        for group in [0, 1, 37_984, u32::MAX / LANES - GROUPS as u32] {
            let together = noise.many_words(group);
            for (i, group) in (group..).take(GROUPS).enumerate() {
                assert_eq!(together.map(|column| column[i]), noise.words(group));
            }
        }
    }

    /// Two releases that disagree here cannot serve one request together, nor repeat a seed.
    #[test]
    fn noise_is_the_same_on_every_machine_and_in_every_release() {
        let key = NoiseKey::from_seed(42);
        assert_eq!(key, NoiseKey(0xd5a8_2563_a3f9_05de_2dd1_beaf_01f0_3e84));
        assert_eq!(gumbel(key, 7, 1000).to_bits(), 0xbfb3_b935_397e_02b5);
        assert_eq!(
            gumbel(key, 1 << 40, 151_642).to_bits(),
            0x3fc9_b9bf_bcc4_9821
        );
    }

    #[test]
    fn every_part_of_key_position_and_token_matters() {
        let reference = (NoiseKey(3 << 96 | 5 << 64 | 7 << 32 | 11), 13, 17);
        let (key, position, token) = reference;
        let mut seen = HashSet::from([gumbel(key, position, token).to_bits()]);
        for bit in 0..128 {
            let other = NoiseKey(key.0 ^ (1 << bit));
            assert!(seen.insert(gumbel(other, position, token).to_bits()));
        }
        for bit in 0..64 {
            let other = position ^ (1 << bit);
            // The halves of the key and the position that share a word of the counter.
            let fresh = bit < 32;
            assert_eq!(seen.insert(gumbel(key, other, token).to_bits()), fresh);
        }
        for bit in 0..32 {
            let other = token ^ (1 << bit);
            assert!(seen.insert(gumbel(key, position, other).to_bits()));
        }
    }

    #[test]
    fn different_seeds_have_different_keys() {
        let seeds = (0..1000).chain((0..64).map(|bit| 1 << bit).filter(|seed| *seed >= 1000));
        let keys: Vec<_> = seeds.map(NoiseKey::from_seed).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn the_least_word_is_a_bound_and_a_close_one() {
        for step in -40..2400 {
            let value = f64::from(step) / 100.0;
            let least = least_word(value);
            if least > 0 {
                assert!(gumbel_of_word(least - 1) < value, "{value}");
            }
            if (3.0..22.0).contains(&value) {
                assert!(gumbel_of_word(least) > value - 0.3, "{value}");
            }
        }
        let scattered = (0..10_000).flat_map(|group| philox([group, 0, 0, 0], [0; 2]));
        for word in scattered.chain([0, 1, u32::MAX - 1, u32::MAX]) {
            let value = gumbel_of_word(word);
            assert!((-3.131..=MAX_GUMBEL).contains(&value), "{word:x}");
            assert!(least_word(value) <= word, "{word:x}");
        }
    }

    #[test]
    fn variables_have_the_mean_and_variance_of_the_gumbel_law() {
        let key = NoiseKey::from_seed(1);
        let count = 400_000_u32;
        let draws: Vec<_> = (0..count).map(|token| gumbel(key, 0, token)).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(count);
        let variance = draws.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / f64::from(count);
        let euler = 0.577_215_664_901_532_9;
        let pi = std::f64::consts::PI;
        // Five standard errors.
        assert!((mean - euler).abs() < 0.0102, "mean {mean}");
        assert!(
            (variance - pi * pi / 6.0).abs() < 0.0273,
            "variance {variance}"
        );
    }
}
