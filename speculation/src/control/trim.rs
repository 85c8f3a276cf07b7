//! What of a batch is worth its verification.

use super::StepCosts;

/// How many drafted tokens of each item to verify, so that the batch commits the most tokens per
/// second (design, verification 4).
///
/// `items` has for each item the survival of its drafted slots: the probability that all up to the
/// slot are accepted. Slots are sorted by it, and the prefix is taken that maximises
/// (N + Σ survival) / (`other_seconds` + verification of N + slots rows), where `other_seconds` is
/// what the round costs besides. A slot counts only with all before it, so a survival above that
/// of the slot before is taken as that one. Where costs are unknown, all are kept.
pub fn trim(items: &[Vec<f64>], verify: &StepCosts, other_seconds: f64) -> Vec<usize> {
    let all: Vec<usize> = items.iter().map(Vec::len).collect();
    let Some(plain) = verify.seconds(items.len()) else {
        return all;
    };
    let slots = by_survival(items);
    let mut tokens = items.len() as f64;
    let mut best = (rate(tokens, other_seconds + plain), 0);
    for (taken, (survival, _)) in slots.iter().enumerate() {
        tokens += survival;
        let rows = items.len() + taken + 1;
        let seconds = other_seconds + verify.seconds(rows).unwrap_or(plain);
        let now = rate(tokens, seconds);
        if now > best.0 {
            best = (now, taken + 1);
        }
    }
    let mut kept = vec![0; items.len()];
    for (_, item) in &slots[..best.1] {
        kept[*item] += 1;
    }
    kept
}

/// Survival and item of every slot, the likeliest first.
fn by_survival(items: &[Vec<f64>]) -> Vec<(f64, usize)> {
    let mut slots = Vec::with_capacity(items.iter().map(Vec::len).sum());
    for (item, survivals) in items.iter().enumerate() {
        let mut before: f64 = 1.0;
        for survival in survivals {
            before = before.min(survival.max(0.0));
            slots.push((before, item));
        }
    }
    slots.sort_by(|a, b| b.0.total_cmp(&a.0));
    slots
}

fn rate(tokens: f64, seconds: f64) -> f64 {
    tokens / seconds.max(1e-9)
}
