//! Whether a batch should wait for proposals that are under way.

use super::StepCosts;
use super::costs::seconds_beside;

/// What is at hand for a batch. Those that would ride along with one token, since their proposals
/// are not there, are counted in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Sequences.
    pub sequences: usize,
    /// Tokens that the batch commits, as expected: at least one for each sequence.
    pub tokens: f64,
    /// Rows that the target computes.
    pub rows: usize,
    /// Seconds until these sequences can go on, besides waiting and verification: the target's
    /// round trip where one batch is under way at a time, 0 where others keep the target busy.
    pub other_seconds: f64,
}

/// A proposal that is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// From now.
    pub seconds: f64,
    /// Tokens, as expected, that the batch commits more where it has waited for this.
    pub tokens: f64,
    /// Rows that it adds.
    pub rows: usize,
}

/// How long to wait before what is at hand is verified, by tokens per second of waiting and
/// verification together; `None` not to wait.
///
/// Waiting for one proposal is waiting for all before it. Where nothing was measured there is no
/// waiting; and none at all for a gain within the error of measurement. What is verified before the
/// last proposal is there is verified `beside` drafts: they may share a machine.
pub fn wait_for(
    now: &Offer,
    later: &[Arrival],
    verify: &StepCosts,
    beside: &StepCosts,
) -> Option<f64> {
    /// What waiting has to bring.
    const WORTH: f64 = 1.01;
    let rate = |tokens: f64, rows: usize, waited: f64, drafting: bool| {
        let verification = if drafting {
            seconds_beside(verify, beside, rows)
        } else {
            verify.seconds(rows)
        };
        let seconds = waited + verification? + now.other_seconds;
        Some(tokens / seconds.max(1e-9))
    };
    let at_once = rate(now.tokens, now.rows, 0.0, !later.is_empty())?;
    let mut later = later.to_vec();
    later.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let (mut tokens, mut rows) = (now.tokens, now.rows);
    let mut best = (at_once * WORTH, None);
    let last = later.len().saturating_sub(1);
    for (index, arrival) in later.into_iter().enumerate() {
        let seconds = arrival.seconds.max(0.0);
        tokens += arrival.tokens;
        rows += arrival.rows;
        let waited = rate(tokens, rows, seconds, index < last)?;
        if waited > best.0 {
            best = (waited, Some(seconds));
        }
    }
    best.1
}
