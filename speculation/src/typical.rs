//! Locally typical sampling (Meister, Pimentel, Wiher and Cotterell, *Locally typical sampling*,
//! 2023): of the possible tokens it keeps those that are about as surprising as is to be expected.

use crate::TokenId;
use crate::scores::Scores;

/// The fewest of `ids` whose surprise `-ln p` is closest to the entropy of their law and whose
/// probability reaches `typical_p`; on a tie the lower id comes first.
pub(crate) fn typical(scores: &Scores<'_>, mut ids: Vec<TokenId>, typical_p: f64) -> Vec<TokenId> {
    ids.sort_unstable();
    let entries: Vec<(TokenId, f64, f64)> = ids
        .into_iter()
        .filter_map(|id| Some((id, scores.of(id)?, scores.weight(id))))
        .collect();
    let total: f64 = entries.iter().map(|entry| entry.2).sum();
    // Scores are log-probabilities up to a constant, which drops out of all differences.
    let weighted = entries.iter().map(|(_, score, weight)| score * weight);
    let mean = weighted.sum::<f64>() / total;
    let mut entries: Vec<_> = entries
        .into_iter()
        .map(|(id, score, weight)| ((score - mean).abs(), id, weight))
        .collect();
    closest(&mut entries, typical_p * total)
}

/// The ids of the fewest `entries` (distance, id, weight) that weigh `needed`, the closest first.
fn closest(mut entries: &mut [(f64, TokenId, f64)], needed: f64) -> Vec<TokenId> {
    let closer =
        |a: &(f64, TokenId, f64), b: &(f64, TokenId, f64)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let (mut kept, mut weight) = (Vec::new(), 0.0);
    // Few are mostly enough, and sorting a whole vocabulary takes long.
    let mut size = HEAD;
    while !entries.is_empty() {
        size = size.min(entries.len());
        if size < entries.len() {
            entries.select_nth_unstable_by(size, closer);
        }
        let (head, rest) = entries.split_at_mut(size);
        head.sort_unstable_by(closer);
        for (_, id, own) in head {
            kept.push(*id);
            weight += *own;
            if weight >= needed {
                return kept;
            }
        }
        (entries, size) = (rest, size * 16);
    }
    kept
}

/// How many ids are sorted first.
const HEAD: usize = 64;
