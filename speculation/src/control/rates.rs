//! Tokens per second of one sequence where all do the same, by what they do.

use super::{MAX_DRAFT, Situation, StepCosts, WIDTHS};

/// A way of drafting ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Tokens to draft where nothing was drafted ahead.
    pub(super) want: usize,
    /// Tokens to draft ahead after each outcome.
    pub(super) ahead_want: usize,
    /// How many candidates are followed at each position: an index into [`WIDTHS`].
    pub(super) width: usize,
}

/// Lookups by tokens drafted for each sequence.
type Table = [f64; MAX_DRAFT + 1];

/// What a situation's rates are computed from, looked up once.
pub(super) struct Rates<'a> {
    situation: &'a Situation<'a>,
    sequences: usize,
    /// Seconds of a verification, its round trip among them.
    verify: Table,
    verify_ahead: Table,
    /// The same for half of the sequences.
    verify_half: Table,
    /// Seconds of a draft step, for all and for half.
    draft: f64,
    draft_half: f64,
    expected: Table,
    widths: [Width; WIDTHS.len()],
}

/// What drafting ahead with one width is computed from.
struct Width {
    /// The probability that the outcome is among those followed.
    hit: Table,
    /// Of the hits, the part that follows a whole proposal.
    at_end: Table,
    /// Seconds of a draft step that advances all outcomes of everyone.
    step: Table,
    /// Seconds of a draft step for one sequence, and all outcomes of the others.
    redraft_step: Table,
}

/// Of the rounds after a hit: tokens, rows for each sequence besides the first, and the probability
/// of the next hit.
struct AfterHit {
    tokens: f64,
    drafted: f64,
    hit: f64,
}

impl<'a> Rates<'a> {
    /// `None` where a cost was never measured.
    pub(super) fn new(situation: &'a Situation<'a>) -> Option<Self> {
        let (sequences, drafting) = (situation.sequences.max(1), situation.drafting.max(1));
        situation.verify.seconds(1)?;
        let verify = |costs: &StepCosts, sequences: usize| -> Table {
            std::array::from_fn(|k| {
                let rows = sequences * (k + 1);
                let seconds = costs
                    .seconds(rows)
                    .or_else(|| situation.verify.seconds(rows));
                seconds.unwrap_or(0.0) + situation.target_rtt
            })
        };
        Some(Self {
            situation,
            sequences,
            verify: verify(situation.verify, sequences),
            verify_ahead: verify(situation.verify_ahead, sequences),
            verify_half: verify(situation.verify, sequences.div_ceil(2)),
            draft: situation.draft.seconds(drafting)?,
            draft_half: situation.draft.seconds(drafting.div_ceil(2))?,
            expected: std::array::from_fn(|k| situation.acceptance.expected(k)),
            widths: WIDTHS.map(|width| Width::new(situation, width)),
        })
    }

    pub(super) fn plain_is_known(&self) -> bool {
        self.situation.verify.is_known(self.sequences)
    }

    /// Plain decoding: the rate, and in how many batches.
    pub(super) fn plain(&self) -> (f64, usize) {
        let one = 1.0 / positive(self.verify[0]);
        let two = 1.0 / positive(self.alternating(0));
        if self.sequences > 1 && two > one * 1.01 {
            (two, 2)
        } else {
            (one, 1)
        }
    }

    /// Drafting `k` tokens, then verifying them, in one batch or in two that alternate.
    pub(super) fn synchronous(&self, k: usize, groups: usize) -> f64 {
        let seconds = match groups {
            1 => self.situation.draft_rtt + k as f64 * self.draft + self.verify[k],
            _ if self.sequences < 2 => return 0.0,
            _ => self.alternating(k),
        };
        self.expected[k] / positive(seconds)
    }

    /// Seconds of a round of one of two batches: the target computes both in it, and each is
    /// drafted and on its way while the other is computed.
    fn alternating(&self, k: usize) -> f64 {
        let computing = self.verify_half[k] - self.situation.target_rtt;
        let drafting = match k {
            0 => 0.0,
            _ => self.situation.draft_rtt + k as f64 * self.draft_half,
        };
        (2.0 * computing).max(drafting + self.verify_half[k])
    }

    /// Drafting ahead. Rounds are of two kinds: those that begin with what was drafted ahead, and
    /// those after a miss. Which one comes next depends on the one before through how long its
    /// proposal was, so the kinds follow a Markov chain of two states, whose stationary
    /// distribution weighs their tokens and seconds.
    ///
    /// After a miss a sequence waits for its next proposal or, where others go on meanwhile, rides
    /// along with one token; the better one counts.
    pub(super) fn ahead(&self, ahead: Ahead) -> f64 {
        let Ahead {
            want,
            ahead_want,
            width,
        } = ahead;
        let of = &self.widths[width];
        let after_hit = self.after_hit(ahead);
        let hits = of.hit[want] / positive(1.0 - after_hit.hit + of.hit[want]);
        let misses = 1.0 - hits;
        let tokens = hits * after_hit.tokens + misses * self.expected[want];

        let draft_rtt = self.situation.draft_rtt;
        let steps = ahead_want as f64;
        // A proposal that was drafted ahead is promoted by the commit, and outcomes are followed
        // from then on. After a fresh one they are followed while that is on its way.
        let ahead_after_hit = draft_rtt + steps * of.step[ahead_want];
        let ahead_after_miss = steps * of.step[want];
        let redraft = draft_rtt + want as f64 * of.redraft_step[ahead_want];
        if self.sequences < 2 {
            let hit = at(&self.verify_ahead, after_hit.drafted).max(ahead_after_hit);
            let miss = self.verify_ahead[want].max(ahead_after_miss);
            return tokens / positive(hits * hit + misses * (redraft + miss));
        }
        // Of many sequences a batch holds some of each kind.
        let drafted = hits * after_hit.drafted + misses * want as f64;
        let round =
            at(&self.verify_ahead, drafted).max(hits * ahead_after_hit + misses * ahead_after_miss);
        // The others' batch is on its way when a proposal comes: half of it is waited for.
        let waiting = tokens / positive(round + misses * (redraft + 0.5 * round));
        waiting.max(self.riding(tokens, drafted, misses, redraft, round))
    }

    /// The rate where sequences that missed ride along with one token until their proposal is
    /// there, at least one round. Their rows make the rounds of the others shorter, on average.
    fn riding(&self, tokens: f64, drafted: f64, misses: f64, redraft: f64, round: f64) -> f64 {
        let rides = misses * (redraft / positive(round)).max(1.0);
        let verify = at(&self.verify_ahead, drafted / (1.0 + rides));
        let shorter = at(&self.verify_ahead, drafted) - verify;
        (tokens + rides) / positive((1.0 + rides) * (round - shorter).max(verify))
    }

    /// After the draft's own last token the first candidate takes a step of its own, so that those
    /// outcomes have a token less.
    fn after_hit(&self, ahead: Ahead) -> AfterHit {
        let of = &self.widths[ahead.width];
        let long = ahead.ahead_want;
        let short = long.saturating_sub(1);
        let at_end = of.at_end[long];
        let mean = |long: f64, short: f64| at_end * short + (1.0 - at_end) * long;
        AfterHit {
            tokens: mean(self.expected[long], self.expected[short]),
            drafted: mean(long as f64, short as f64),
            hit: mean(of.hit[long], of.hit[short]),
        }
    }
}

impl Width {
    fn new(situation: &Situation<'_>, width: usize) -> Self {
        let Situation {
            acceptance, ranks, ..
        } = situation;
        let hit: Table = std::array::from_fn(|k| ranks.hit(k, width, acceptance).clamp(0.0, 1.0));
        let at_end = ranks.after_acceptance(width);
        let drafting = situation.drafting.max(1);
        let seconds = |rows: usize| situation.draft.seconds(rows).unwrap_or(0.0);
        let outcomes = |k: usize| if width > 1 { (k + 1) * width } else { 1 };
        Self {
            at_end: std::array::from_fn(|k| acceptance.survival(k) * at_end / positive(hit[k])),
            hit,
            step: std::array::from_fn(|k| seconds(drafting * outcomes(k))),
            redraft_step: std::array::from_fn(|k| seconds((drafting - 1) * outcomes(k) + 1)),
        }
    }
}

/// Between two entries of a table.
fn at(table: &Table, k: f64) -> f64 {
    let below = (k.max(0.0) as usize).min(MAX_DRAFT - 1);
    table[below] + (table[below + 1] - table[below]) * (k - below as f64)
}

fn positive(value: f64) -> f64 {
    value.max(1e-9)
}
