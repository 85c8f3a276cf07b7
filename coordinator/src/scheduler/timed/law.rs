//! What the target writes, and how a draft is wrong: functions of the prefix.

use speculation::TokenId;

/// Token ids.
const VOCABULARY: u64 = 50_000;

/// Where the target's token stands among a draft's next candidates where its own choice is wrong: within
/// the next 1, 2, 4 and 8 (design, verification 7).
const WITHIN: [(f64, usize); 4] = [(0.40, 1), (0.55, 2), (0.70, 4), (0.81, 8)];

/// Tokens that the law looks back.
pub(super) const WINDOW: usize = 6;

pub(super) struct Law;

impl Law {
    /// The target's token after `prefix`.
    pub(super) fn next(prefix: &[TokenId]) -> TokenId {
        token(hash(prefix, 1))
    }

    /// A draft's best `count` candidates after `prefix`, its own choice first.
    pub(super) fn candidates(prefix: &[TokenId], agreement: f64, count: usize) -> Vec<TokenId> {
        let right = Self::next(prefix);
        let rank = rank(prefix, agreement);
        let others = (0..).map(|other| token(hash(prefix, 10 + other)));
        let mut candidates: Vec<_> = others.filter(|other| *other != right).take(count).collect();
        if rank < count {
            candidates[rank] = right;
        }
        candidates
    }
}

/// Where the target's token stands, from 0.
fn rank(prefix: &[TokenId], agreement: f64) -> usize {
    if fraction(hash(prefix, 2)) < agreement {
        return 0;
    }
    let drawn = fraction(hash(prefix, 3));
    let found = WITHIN.iter().find(|(within, _)| drawn < *within);
    found.map_or(usize::MAX, |(_, rank)| *rank)
}

fn hash(prefix: &[TokenId], salt: u64) -> u64 {
    let window = &prefix[prefix.len().saturating_sub(WINDOW)..];
    window
        .iter()
        .fold(mix(salt), |state, token| mix(state ^ u64::from(*token)))
}

fn token(hash: u64) -> TokenId {
    (hash % VOCABULARY) as TokenId + 10
}

fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
