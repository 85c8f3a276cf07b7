//! Tokens per second of one sequence where all do the same, by what they do.

use super::{MAX_DRAFT, Situation};

/// A way of drafting ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Tokens to draft where nothing was drafted ahead.
    pub(super) want: usize,
    /// Tokens to draft ahead after each outcome.
    pub(super) ahead_want: usize,
    /// Candidates followed at each position.
    pub(super) width: usize,
}

/// Of a round after a hit: tokens, seconds of verification, and the probability of the next hit.
struct AfterHit {
    tokens: f64,
    verify: f64,
    hit: f64,
}

/// What a situation's rates are computed from, looked up once.
pub(super) struct Rates<'a> {
    situation: &'a Situation<'a>,
    sequences: usize,
    drafting: usize,
    /// Seconds of a verification with so many tokens drafted for each, on top of the round trip.
    verify: [f64; MAX_DRAFT + 1],
    verify_ahead: [f64; MAX_DRAFT + 1],
    /// The same for half of the sequences.
    verify_half: [f64; MAX_DRAFT + 1],
    /// Seconds of a draft step, for all and for half.
    draft: f64,
    draft_half: f64,
    expected: [f64; MAX_DRAFT + 1],
}

impl<'a> Rates<'a> {
    /// `None` where a cost was never measured.
    pub(super) fn new(situation: &'a Situation<'a>) -> Option<Self> {
        let (sequences, drafting) = (situation.sequences.max(1), situation.drafting.max(1));
        let half = sequences.div_ceil(2);
        let verify = |rows: usize| situation.verify.seconds(rows);
        let verify_ahead = |rows: usize| {
            situation
                .verify_ahead
                .seconds(rows)
                .or_else(|| verify(rows))
        };
        verify(1)?;
        let table = |sequences: usize, costs: &dyn Fn(usize) -> Option<f64>| {
            std::array::from_fn(|k| costs(sequences * (k + 1)).unwrap_or(0.0))
        };
        Some(Self {
            situation,
            sequences,
            drafting,
            verify: table(sequences, &verify),
            verify_ahead: table(sequences, &verify_ahead),
            verify_half: table(half, &verify),
            draft: situation.draft.seconds(drafting)?,
            draft_half: situation.draft.seconds(drafting.div_ceil(2))?,
            expected: std::array::from_fn(|k| situation.acceptance.expected(k)),
        })
    }

    pub(super) fn plain_is_known(&self) -> bool {
        self.situation.verify.is_known(self.sequences)
    }

    /// Plain decoding: the rate, and in how many batches.
    pub(super) fn plain(&self) -> (f64, usize) {
        let one = 1.0 / positive(self.verify[0] + self.situation.target_rtt);
        let two = if self.sequences > 1 {
            let half = self.verify_half[0];
            1.0 / positive((2.0 * half).max(half + self.situation.target_rtt))
        } else {
            0.0
        };
        if two > one * 1.01 { (two, 2) } else { (one, 1) }
    }

    /// Drafting `k` tokens, then verifying them, in one batch or in two that alternate.
    pub(super) fn synchronous(&self, k: usize, groups: usize) -> f64 {
        let (draft_rtt, target_rtt) = (self.situation.draft_rtt, self.situation.target_rtt);
        let steps = k as f64;
        let seconds = match groups {
            1 => draft_rtt + steps * self.draft + self.verify[k] + target_rtt,
            _ if self.sequences < 2 => return 0.0,
            _ => {
                let verify = self.verify_half[k];
                (2.0 * verify).max(draft_rtt + steps * self.draft_half + verify + target_rtt)
            }
        };
        self.expected[k] / positive(seconds)
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
        let after_hit = self.after_hit(ahead);
        let hit_after_miss = self.hit(want, width);
        let hits = hit_after_miss / positive(1.0 - after_hit.hit + hit_after_miss);
        let misses = 1.0 - hits;

        let steps = self.ahead_seconds(ahead_want, ahead_want, width);
        let hit =
            (after_hit.verify + self.situation.target_rtt).max(self.situation.draft_rtt + steps);
        let verify_miss = self.verify_ahead[want] + self.situation.target_rtt;
        let redraft = self.situation.draft_rtt + want as f64 * self.redraft_step(ahead);
        // What is drafted ahead after a fresh proposal begins as that is sent: both share the way.
        let miss = verify_miss.max(self.ahead_seconds(want, ahead_want, width));

        let tokens = hits * after_hit.tokens + misses * self.expected[want];
        if self.sequences < 2 {
            return tokens / positive(hits * hit + misses * (redraft + miss));
        }
        // The batch of the others goes on while one redrafts: at its end it may just be missed.
        let waiting = tokens / positive(hits * hit + misses * (redraft + 0.5 * hit + miss));
        let rounds = (redraft / positive(hit)).max(1.0);
        let riding = (tokens + misses * rounds) / positive(hit * (hits + misses * (1.0 + rounds)));
        waiting.max(riding)
    }

    /// A round that begins with what was drafted ahead. After the draft's own last token the first
    /// candidate takes a step of its own, so that those outcomes have a token less.
    fn after_hit(&self, ahead: Ahead) -> AfterHit {
        let Ahead {
            ahead_want: long,
            width,
            ..
        } = ahead;
        let short = long.saturating_sub(1);
        let at_end = self.hit_at_end(long, width);
        let mean = |long: f64, short: f64| at_end * short + (1.0 - at_end) * long;
        AfterHit {
            tokens: mean(self.expected[long], self.expected[short]),
            verify: mean(self.verify_ahead[long], self.verify_ahead[short]),
            hit: mean(self.hit(long, width), self.hit(short, width)),
        }
    }

    /// Of the hits, the part that follows a whole proposal.
    fn hit_at_end(&self, k: usize, width: usize) -> f64 {
        let Situation {
            ranks, acceptance, ..
        } = self.situation;
        let at_end = acceptance.survival(k) * ranks.after_acceptance(width);
        at_end / positive(self.hit(k, width))
    }

    fn hit(&self, k: usize, width: usize) -> f64 {
        let hit = self
            .situation
            .ranks
            .hit(k, width, self.situation.acceptance);
        hit.clamp(0.0, 1.0)
    }

    /// Seconds to draft ahead after a proposal of `k` tokens.
    fn ahead_seconds(&self, k: usize, ahead_want: usize, width: usize) -> f64 {
        let branches = if width > 1 { (k + 1) * width } else { 1 };
        ahead_want as f64 * self.draft_seconds(self.drafting * branches)
    }

    /// A step for a sequence that missed advances the branches of the others too.
    fn redraft_step(&self, ahead: Ahead) -> f64 {
        let branches = if ahead.width > 1 {
            (ahead.ahead_want + 1) * ahead.width
        } else {
            1
        };
        self.draft_seconds((self.drafting - 1) * branches + 1)
    }

    fn draft_seconds(&self, rows: usize) -> f64 {
        self.situation.draft.seconds(rows).unwrap_or(self.draft)
    }
}

fn positive(seconds: f64) -> f64 {
    seconds.max(1e-9)
}
