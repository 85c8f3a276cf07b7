//! Tokens per second of one sequence where all do the same, by what they do.

use super::{MAX_DRAFT, Overlap, Situation, StepCosts, WIDTHS};

/// What a plan by proposals that come late is worth beside one of the same rate by proposals that
/// come in time: it stands and falls with how the batches happen to be.
const LATE: f64 = 0.97;

/// A way of drafting ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Tokens to draft where nothing was drafted ahead.
    pub(crate) want: usize,
    /// Tokens to draft ahead after each outcome.
    pub(crate) ahead_want: usize,
    /// How many candidates are followed at each position: an index into [`WIDTHS`].
    pub(crate) width: usize,
}

/// Lookups by tokens drafted for each sequence.
type Table = [f64; MAX_DRAFT + 1];

/// What a situation's rates are computed from, looked up once.
pub(crate) struct Rates<'a> {
    situation: &'a Situation<'a>,
    sequences: usize,
    /// Seconds of a verification, its round trip among them.
    verify: Table,
    verify_ahead: Table,
    /// The same for half of the sequences.
    verify_half: Table,
    draft_rtt: f64,
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

/// A way of drafting ahead, in figures.
struct Chain {
    want: f64,
    hit_after_miss: f64,
    after_hit: AfterHit,
    /// Seconds until what was drafted ahead is there, after a hit from the last verdict on, after a
    /// miss from the begin of the verification on.
    ahead_after_hit: f64,
    ahead_after_miss: f64,
    /// Seconds until a fresh proposal is there.
    redraft: f64,
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
    pub(crate) fn new(situation: &'a Situation<'a>) -> Option<Self> {
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
            draft_rtt: situation.draft_rtt?,
            draft: situation.draft.seconds(drafting)?,
            draft_half: situation.draft.seconds(drafting.div_ceil(2))?,
            expected: std::array::from_fn(|k| situation.acceptance.expected(k)),
            widths: WIDTHS.map(|width| Width::new(situation, width)),
        })
    }

    pub(crate) fn plain_is_known(&self) -> bool {
        self.situation.verify.is_known(self.sequences)
    }

    /// Plain decoding: the rate, and in how many batches.
    pub(crate) fn plain(&self) -> (f64, usize) {
        faster(self.sequences, self.verify[0], self.alternating(0))
    }

    /// Drafting `k` tokens, then verifying them, in one batch or in two that alternate.
    ///
    /// In one batch the target waits for the draft or, where that is far away, decodes plainly
    /// meanwhile: what is left of the proposal then is of use if it begins with what was committed.
    pub(crate) fn synchronous(&self, k: usize, groups: usize) -> f64 {
        let drafting = self.draft_rtt + k as f64 * self.draft;
        match groups {
            1 => {
                let waiting = self.expected[k] / positive(drafting + self.verify[k]);
                // Whoever batches waits where a batch with the proposal beats one without it.
                let waits = waiting * self.verify[0] >= 1.0;
                if waits || self.situation.overlap == Overlap::Nothing {
                    waiting
                } else {
                    waiting.max(LATE * self.late(k, drafting))
                }
            }
            _ if self.sequences < 2 => 0.0,
            _ => self.expected[k] / positive(self.alternating(k)),
        }
    }

    /// Drafting `k` tokens where the rows of a verification cost nothing, and drafts of some are
    /// hidden behind the verification of others if they may be.
    pub(crate) fn if_rows_were_free(&self, k: usize) -> f64 {
        let (drafting, verifying) = (self.draft_rtt + k as f64 * self.draft, self.verify[0]);
        let round = match self.situation.overlap {
            Overlap::Nothing => drafting + verifying,
            Overlap::Rounds | Overlap::Ahead => drafting.max(verifying),
        };
        self.expected[k] / positive(round)
    }

    /// True where steps with the drafts of some sequences were measured lately, and not only plain
    /// ones.
    pub(crate) fn rows_are_known(&self) -> bool {
        let with_some_drafts = (3 * self.sequences).div_ceil(2);
        self.situation.verify.is_recent(with_some_drafts)
    }

    /// Decoding plainly until the proposal is there. 0 where nothing would be left of it.
    fn late(&self, k: usize, drafting: f64) -> f64 {
        let rides = (drafting / positive(self.verify[0])).ceil();
        let left = k as f64 - rides;
        if left < 1.0 {
            return 0.0;
        }
        let agree = self.agree(rides);
        let tokens = rides + agree * self.left(k as f64, rides);
        tokens / positive(rides * self.verify[0] + agree * at(&self.verify, left))
    }

    /// Seconds of a round of one of two batches: the target computes both in it, and each is
    /// drafted and on its way while the other is computed.
    fn alternating(&self, k: usize) -> f64 {
        let drafting = match k {
            0 => 0.0,
            _ => self.draft_rtt + k as f64 * self.draft_half,
        };
        in_turn(self.verify_half[k], self.situation.target_rtt, drafting)
    }

    /// Drafting ahead. Rounds are of two kinds: those that begin with what was drafted ahead, and
    /// those after a miss. Which one comes next depends on the one before through how long its
    /// proposal was, so the kinds follow a Markov chain of two states, whose stationary
    /// distribution weighs their tokens and seconds.
    ///
    /// Where a proposal is not there in time, a sequence waits for it or rides along with one token
    /// a round until it is, as [`super::wait_for`] would have it.
    pub(crate) fn ahead(&self, ahead: Ahead) -> f64 {
        let of = &self.widths[ahead.width];
        let (want, steps) = (ahead.want, ahead.ahead_want as f64);
        let draft_rtt = self.draft_rtt;
        let chain = Chain {
            want: want as f64,
            hit_after_miss: of.hit[want],
            after_hit: self.after_hit(ahead),
            // A proposal that was drafted ahead is promoted by the commit, and outcomes are
            // followed from then on. After a fresh one they are while that is on its way.
            ahead_after_hit: draft_rtt + steps * of.step[ahead.ahead_want],
            ahead_after_miss: steps * of.step[want],
            redraft: draft_rtt + want as f64 * of.redraft_step[ahead.ahead_want],
        };
        self.chain(&chain)
    }

    fn chain(&self, chain: &Chain) -> f64 {
        let after_hit = &chain.after_hit;
        let verify_hit = at(&self.verify_ahead, after_hit.drafted);
        let verify_miss = at(&self.verify_ahead, chain.want);
        let ride = positive(self.verify_ahead[0]);
        let fresh = at(&self.expected, chain.want);
        let others = self.sequences > 1;

        // Seconds that what was drafted ahead comes too late, and rounds ridden meanwhile.
        let late_hit = (chain.ahead_after_hit - verify_hit).max(0.0);
        let late_miss = (chain.ahead_after_miss - verify_miss).max(0.0);
        let hits_ride = after_hit.tokens * ride < late_hit + verify_hit;
        let rides_hit = if hits_ride { late_hit / ride } else { 0.0 };
        let hit_after_hit = after_hit.hit * self.agree(rides_hit);
        let hits = chain.hit_after_miss / positive(1.0 - hit_after_hit + chain.hit_after_miss);
        let misses = 1.0 - hits;

        // What the others have at hand decides whether a batch waits for those that missed; if it
        // does, half a batch is waited for besides, and if it does not, a round at least is ridden.
        let at_hand = if others { hits * after_hit.tokens } else { 0.0 };
        let share = if others { misses } else { 1.0 };
        let misses_ride = (at_hand + share * fresh) * verify_miss
            < (at_hand + share) * (chain.redraft + verify_miss);
        let join = if others { 0.5 * verify_hit } else { 0.0 };
        let rides_miss = if misses_ride {
            (chain.redraft / ride).max(1.0)
        } else {
            0.0
        };
        let waits_miss = if misses_ride {
            0.0
        } else {
            chain.redraft + join
        };
        if rides_hit > after_hit.drafted || rides_miss > chain.want {
            return 0.0;
        }

        let agree_miss = positive(self.agree(rides_miss));
        let rides = hits * after_hit.hit * rides_hit + misses * rides_miss / agree_miss;
        let tokens = hits * self.left_of(after_hit, rides_hit)
            + misses * self.left(chain.want, rides_miss)
            + rides;
        let waits_hit = if hits_ride { 0.0 } else { hits * late_hit };
        let waits = misses * (waits_miss + late_miss) + waits_hit;
        let drafted = hits * (after_hit.drafted - rides_hit) + misses * (chain.want - rides_miss);
        // Of many sequences a batch holds some of each kind, and costs what they are on average.
        let verifying = at(&self.verify_ahead, drafted / (1.0 + rides)) * (1.0 + rides);
        tokens / positive(verifying + waits)
    }

    /// The probability that the first `rides` drafted tokens are what was committed meanwhile.
    fn agree(&self, rides: f64) -> f64 {
        let survival = |l: usize| self.situation.acceptance.survival(l);
        // Where a verification seems to take no time, rounds beyond number are ridden.
        let below = (rides.max(0.0) as usize).min(MAX_DRAFT);
        let part = (rides.max(0.0) - below as f64).min(1.0);
        survival(below) * (1.0 - part) + survival(below + 1) * part
    }

    /// Tokens of a round with what is left of `k` drafted ones, where the first `rides` of them
    /// agreed with what was committed meanwhile.
    fn left(&self, k: f64, rides: f64) -> f64 {
        let beyond = (at(&self.expected, k) - at(&self.expected, rides.min(k))).max(0.0);
        1.0 + beyond / positive(self.agree(rides))
    }

    fn left_of(&self, after_hit: &AfterHit, rides: f64) -> f64 {
        if rides > 0.0 {
            self.left(after_hit.drafted, rides)
        } else {
            after_hit.tokens
        }
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

/// In how many batches `sequences` are best decoded plainly, 1 or 2: two are where one is on its way while
/// the other is computed.
pub fn plain_groups(verify: &StepCosts, target_rtt: f64, sequences: usize) -> usize {
    let round = |rows| Some(verify.seconds(rows)? + target_rtt);
    let rounds = round(sequences).zip(round(sequences.div_ceil(2)));
    rounds.map_or(1, |(one, half)| {
        faster(sequences, one, in_turn(half, target_rtt, 0.0)).1
    })
}

/// Seconds of a round in which a target computes two batches in turn: of `verify` seconds each, `rtt` of
/// them on its way, and of `drafting` before.
fn in_turn(verify: f64, rtt: f64, drafting: f64) -> f64 {
    (2.0 * (verify - rtt)).max(drafting + verify)
}

/// The better rate of rounds of `one` batch and of two, and how many batches that is.
fn faster(sequences: usize, one: f64, two: f64) -> (f64, usize) {
    let (one, two) = (1.0 / positive(one), 1.0 / positive(two));
    if sequences > 1 && two > one * 1.01 {
        (two, 2)
    } else {
        (one, 1)
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
