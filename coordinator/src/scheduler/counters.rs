//! What speculation did, of all sequences together: the figures that the log and the metrics tell.

use super::Scheduler;
use crate::commit::Origin;
use std::fmt;

/// Positions of a proposal.
const POSITIONS: usize = crate::request::MAX_DRAFT_TOKENS as usize;

/// Sums since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Verdicts, those of plain rounds included.
    pub(crate) rounds: u64,
    /// Tokens committed.
    pub(crate) committed: u64,
    /// Drafts of draft workers.
    pub(crate) model: Drafts,
    /// Drafts without a model.
    pub(crate) ngram: Drafts,
    /// Verdicts after which a proposal was at hand that had been drafted ahead.
    pub(crate) ahead_hits: u64,
    /// Verdicts after which none was although one was drafted ahead.
    pub(crate) ahead_misses: u64,
    /// Messages that were dropped because what they speak of had passed.
    pub(crate) stale: u64,
}

/// Drafts from one source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drafts {
    /// Proposals that were verified.
    pub(crate) proposals: u64,
    /// Their tokens.
    pub(crate) drafted: u64,
    /// Those of them that were committed.
    pub(crate) accepted: u64,
    /// The same by position, the first token of a proposal first.
    pub(crate) accepted_at: [u64; POSITIONS],
}

impl Counters {
    /// Counts a verdict on `drafted` tokens of `origin`, of which `accepted` were committed.
    pub(super) fn record(&mut self, origin: Origin, drafted: usize, accepted: usize) {
        self.rounds += 1;
        let drafts = match origin {
            Origin::Target => return,
            Origin::Draft => &mut self.model,
            Origin::Ngram => &mut self.ngram,
        };
        if drafted == 0 {
            return;
        }
        drafts.proposals += 1;
        drafts.drafted += drafted as u64;
        drafts.accepted += accepted as u64;
        for count in drafts.accepted_at.iter_mut().take(accepted) {
            *count += 1;
        }
    }

    /// Counts a verdict after which a proposal that had been drafted ahead was at hand, or was not.
    pub(super) fn record_ahead(&mut self, hit: bool) {
        self.ahead_hits += u64::from(hit);
        self.ahead_misses += u64::from(!hit);
    }

    /// What was added since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            rounds: self.rounds - before.rounds,
            committed: self.committed - before.committed,
            model: self.model.since(&before.model),
            ngram: self.ngram.since(&before.ngram),
            ahead_hits: self.ahead_hits - before.ahead_hits,
            ahead_misses: self.ahead_misses - before.ahead_misses,
            stale: self.stale - before.stale,
        }
    }

    /// The log line on what was done in `seconds`.
    pub(crate) fn line(&self, seconds: f64) -> Line<'_> {
        Line {
            counters: self,
            seconds,
        }
    }
}

impl Drafts {
    fn since(&self, before: &Self) -> Self {
        Self {
            proposals: self.proposals - before.proposals,
            drafted: self.drafted - before.drafted,
            accepted: self.accepted - before.accepted,
            accepted_at: std::array::from_fn(|position| {
                self.accepted_at[position] - before.accepted_at[position]
            }),
        }
    }
}

/// Counters as a log line, in the words that others use for the same figures.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    counters: &'a Counters,
    seconds: f64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { model, ngram, .. } = self.counters;
        let proposals = model.proposals + ngram.proposals;
        let (drafted, accepted) = (
            model.drafted + ngram.drafted,
            model.accepted + ngram.accepted,
        );
        let rate = |count: u64| count as f64 / self.seconds.max(1e-9);
        write!(
            out,
            "SpecDecoding metrics: Mean acceptance length: {:.2}, \
             Accepted throughput: {:.2} tokens/s, Drafted throughput: {:.2} tokens/s, \
             Accepted: {accepted} tokens, Drafted: {drafted} tokens, \
             Per-position acceptance rate: ",
            1.0 + ratio(accepted, proposals),
            rate(accepted),
            rate(drafted),
        )?;
        let accepted_at =
            |position: usize| model.accepted_at[position] + ngram.accepted_at[position];
        let reached = (0..POSITIONS).take_while(|position| accepted_at(*position) > 0);
        let rates: Vec<_> = reached
            .map(|position| format!("{:.3}", ratio(accepted_at(position), proposals)))
            .collect();
        out.write_str(if rates.is_empty() { "none" } else { "" })?;
        out.write_str(&rates.join(", "))?;
        write!(
            out,
            ", Avg Draft acceptance rate: {:.1}%, Generation throughput: {:.2} tokens/s, \
             N-gram accepted: {} of {} tokens, Draft-ahead hits: {} of {}, Stale messages: {}",
            100.0 * ratio(accepted, drafted),
            rate(self.counters.committed),
            ngram.accepted,
            ngram.drafted,
            self.counters.ahead_hits,
            self.counters.ahead_hits + self.counters.ahead_misses,
            self.counters.stale,
        )
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl Scheduler {
    /// What speculation did since the start.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            stale: self.stale,
            ..self.counters.clone()
        }
    }

    /// Tokens committed since the start.
    pub(crate) fn committed_tokens(&self) -> u64 {
        self.counters.committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_was_done_since_the_last_one() {
        let mut counters = Counters::default();
        counters.record(Origin::Draft, 4, 4);
        counters.committed += 5;
        let before = counters.clone();
        counters.record(Origin::Draft, 4, 2);
        counters.record(Origin::Draft, 4, 1);
        counters.record(Origin::Ngram, 8, 3);
        counters.record(Origin::Draft, 0, 0);
        counters.record(Origin::Target, 0, 0);
        counters.committed += 11;
        counters.record_ahead(true);
        counters.record_ahead(false);
        counters.record_ahead(true);
        let line = counters.since(&before).line(2.0).to_string();
        assert_eq!(
            line,
            "SpecDecoding metrics: Mean acceptance length: 3.00, \
             Accepted throughput: 3.00 tokens/s, Drafted throughput: 8.00 tokens/s, \
             Accepted: 6 tokens, Drafted: 16 tokens, \
             Per-position acceptance rate: 1.000, 0.667, 0.333, \
             Avg Draft acceptance rate: 37.5%, Generation throughput: 5.50 tokens/s, \
             N-gram accepted: 3 of 8 tokens, Draft-ahead hits: 2 of 3, Stale messages: 0"
        );
    }

    #[test]
    fn plain_decoding_has_a_line_too() {
        let mut counters = Counters::default();
        counters.record(Origin::Target, 0, 0);
        let line = counters.line(1.0).to_string();
        assert!(line.contains("Mean acceptance length: 1.00,"), "{line}");
        assert!(
            line.contains("Per-position acceptance rate: none,"),
            "{line}"
        );
    }
}
