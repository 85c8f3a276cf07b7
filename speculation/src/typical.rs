//! Locally typical sampling (Meister, Pimentel, Wiher and Cotterell, *Locally typical sampling*,
//! 2023): of the possible tokens it keeps those that are about as surprising as is to be expected.

use crate::TokenId;
use crate::exponential::LEAST_EXPONENT;
use crate::scores::{ROUNDING, Scores};

/// The fewest of all ids whose surprise `-ln p` is closest to the entropy of their law and whose
/// probability reaches `typical_p`; on a tie the lower id comes first.
pub(crate) fn typical(scores: &Scores<'_>, typical_p: f64) -> Vec<TokenId> {
    let (total, moment) = scores.moments();
    // Scores are log-probabilities up to a constant, which drops out of all differences.
    let (mean, needed) = (moment / total, typical_p * total);
    let mut radius = RADIUS;
    loop {
        // All that are within the radius: if these weigh enough, nobody beyond is among the closest.
        let lowest = scores.cutoff(mean - radius);
        let mut entries: Vec<_> = scores
            .logits()
            .at_least(lowest)
            .filter_map(|id| Some(((scores.of(id)? - mean).abs(), id)))
            .filter(|(distance, _)| *distance <= radius)
            .map(|(distance, id)| (distance, id, scores.weight(id)))
            .collect();
        let weight: f64 = entries.iter().map(|entry| entry.2).sum();
        // No score is further than the least exponent.
        if weight >= needed * (1.0 + ROUNDING) || radius > -LEAST_EXPONENT {
            return closest(&mut entries, needed);
        }
        radius *= 2.0;
    }
}

/// The fewest of `ids` whose surprise is closest to the entropy of the law that they make up, and
/// whose share of it reaches `typical_p`; on a tie the lower id comes first.
pub(crate) fn typical_of(
    scores: &Scores<'_>,
    mut ids: Vec<TokenId>,
    typical_p: f64,
) -> Vec<TokenId> {
    ids.sort_unstable();
    let entries: Vec<(TokenId, f64, f64)> = ids
        .into_iter()
        .filter_map(|id| Some((id, scores.of(id)?, scores.weight(id))))
        .collect();
    let total: f64 = entries.iter().map(|entry| entry.2).sum();
    let weighted = entries.iter().map(|(_, score, weight)| score * weight);
    let mean = weighted.sum::<f64>() / total;
    let mut entries: Vec<_> = entries
        .into_iter()
        .map(|(id, score, weight)| ((score - mean).abs(), id, weight))
        .collect();
    closest(&mut entries, typical_p * total)
}

/// The ids of the fewest `entries` (distance, id, weight) that weigh `needed`, the closest of all.
/// Sorting a whole vocabulary would take long: each step puts half of what is open on one side.
fn closest(mut entries: &mut [(f64, TokenId, f64)], needed: f64) -> Vec<TokenId> {
    let closer =
        |a: &(f64, TokenId, f64), b: &(f64, TokenId, f64)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let (mut kept, mut weight) = (Vec::new(), 0.0);
    while entries.len() > FEW {
        let middle = entries.len() / 2;
        entries.select_nth_unstable_by(middle, closer);
        let (near, far) = entries.split_at_mut(middle);
        let near_weight: f64 = near.iter().map(|entry| entry.2).sum();
        if weight + near_weight < needed {
            weight += near_weight;
            kept.extend(near.iter().map(|entry| entry.1));
            entries = far;
        } else {
            entries = near;
        }
    }
    entries.sort_unstable_by(closer);
    for (_, id, own) in entries {
        kept.push(*id);
        weight += *own;
        if weight >= needed {
            break;
        }
    }
    kept
}

/// So many ids are sorted.
const FEW: usize = 64;

/// How far from the entropy is looked first, in nats.
const RADIUS: f64 = 1.0;
