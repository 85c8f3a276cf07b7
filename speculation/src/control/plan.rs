//! What would give a sequence the most tokens per second.

use super::rates::{Ahead, Rates};
use super::{Acceptance, MAX_DRAFT, Ranks, StepCosts, Trust, WIDTHS};

/// Lengths that are considered. Between the long ones a step more or less changes little.
const LENGTHS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16];

/// What is tried where a cost was never measured: enough to measure it.
const TRIAL: usize = 2;

/// What the simpler of two plans may be worse by and still be taken: it holds up better where
/// what was measured is a little wrong.
const SIMPLER: f64 = 1.01;

/// All that a sequence's plan depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Of this sequence.
    pub acceptance: &'a Acceptance,
    /// Of its draft worker.
    pub ranks: &'a Ranks,
    /// Seconds of a verification, by rows.
    pub verify: &'a StepCosts,
    /// The same, measured while drafts were computed ahead: they may share a machine. Where nothing
    /// was, `verify` holds.
    pub verify_ahead: &'a StepCosts,
    /// Seconds of a draft step, by the sequences (and branches) that it advances.
    pub draft: &'a StepCosts,
    /// Round trip to the draft worker without what it computes, in seconds; none where it was never
    /// measured.
    pub draft_rtt: Option<f64>,
    /// The same for the target worker.
    pub target_rtt: f64,
    /// All sequences that the target decodes at once, this one among them.
    pub sequences: usize,
    /// Those that this draft worker drafts for, this one among them.
    pub drafting: usize,
    /// The fewest tokens to draft: 0 leaves it to the plan.
    pub min: usize,
    /// The most. The same as `min` fixes the length.
    pub max: usize,
    /// What may be computed at the same time.
    pub overlap: Overlap,
    /// How far plans have held.
    pub trust: &'a Trust,
}

/// What draft worker and target may compute at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// One at a time: they compute on the same processor cores, so that what one does meanwhile is
    /// taken from the other.
    Nothing,
    /// One sequence's draft and another's verification, or plain rounds until a draft is there.
    Rounds,
    /// That, and what may follow the draft that is being verified.
    Ahead,
}

/// What to draft for a sequence in each of its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Tokens to draft after what is committed.
    pub want: usize,
    /// Tokens to draft ahead after each outcome; 0 does not draft ahead.
    pub ahead_want: usize,
    /// Candidates that are followed at each position; 1 follows the draft's own choice at the end.
    pub ahead_width: usize,
    /// Batches that the target's sequences are divided into, 1 or 2: two alternate, so that one
    /// drafts while the other is verified.
    pub groups: usize,
    /// The sequence's tokens per second, as expected. 0 where it is not known.
    pub rate: f64,
    /// The same by costs and acceptance alone, as if such plans had always held.
    pub predicted: f64,
    /// The most that it may be: the rate, or what it would be if rows cost nothing where nothing has
    /// measured lately what they cost.
    pub hope: f64,
    /// The same in plain decoding.
    pub plain_rate: f64,
    /// The best number of batches in plain decoding.
    pub plain_groups: usize,
    /// False where a cost was never measured: the plan is a trial then, and the rates mean nothing.
    pub known: bool,
    /// True where plain decoding of so many sequences was measured lately.
    pub plain_known: bool,
}

/// A way to speculate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The target waits for drafts, or goes on without them until they are there.
    Waiting,
    /// Two batches: one is verified while the other is drafted.
    Alternating,
    /// Drafting ahead.
    Ahead,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Alternating, Self::Ahead];
}

impl Plan {
    /// The way that it goes.
    pub fn way(&self) -> Way {
        match (self.ahead_want, self.groups) {
            (0, 0 | 1) => Way::Waiting,
            (0, _) => Way::Alternating,
            _ => Way::Ahead,
        }
    }
}

/// Finds the plan with the highest rate, under the assumption that all sequences do the same.
///
/// | plan | seconds of a round | tokens |
/// |---|---|---|
/// | plain | t_v(N) + r_t | 1 |
/// | one batch | r_d + k·t_d(n) + t_v(N(k+1)) + r_t | E(k) |
/// | two batches | the larger of 2·t_v(⌈N/2⌉(k+1)) and r_d + k·t_d(⌈n/2⌉) + t_v(⌈N/2⌉(k+1)) + r_t | E(k) |
/// | ahead, a hit | the larger of t_v(N(s+1)) + r_t and r_d + s·t_d(rows) | E(s) |
///
/// N: sequences, n: those of the draft worker, r: round trips, k: tokens drafted, s: tokens drafted
/// ahead; rows: of a draft step ahead, n·(k+1)·width, or n for width 1. What a miss costs is with
/// `Rates::ahead`. Takes some microseconds.
pub fn plan(situation: &Situation<'_>) -> Plan {
    let max = situation.max.min(MAX_DRAFT);
    let min = situation.min.min(max);
    let Some(rates) = Rates::new(situation) else {
        return trial(situation, min, max);
    };
    let (plain_rate, plain_groups) = rates.plain();
    let mut best = Plan {
        want: 0,
        ahead_want: 0,
        ahead_width: 0,
        groups: plain_groups,
        rate: if min == 0 { plain_rate } else { 0.0 },
        predicted: 0.0,
        hope: 0.0,
        plain_rate,
        plain_groups,
        known: true,
        plain_known: rates.plain_is_known(),
    };
    if max == 0 {
        return best;
    }
    // The rate of speculation is told even where plain decoding is better: the gate compares them.
    best.rate = 0.0;
    let groups = if situation.overlap == Overlap::Nothing {
        1..=1
    } else {
        1..=2
    };
    for want in lengths(min.max(1), max) {
        for groups in groups.clone() {
            let way = if groups == 1 {
                Way::Waiting
            } else {
                Way::Alternating
            };
            let predicted = rates.synchronous(want, groups);
            let rate = predicted * situation.trust.of(way);
            if rate > best.rate * if groups == 1 { 1.0 } else { SIMPLER } {
                best = Plan {
                    want,
                    groups,
                    rate,
                    predicted,
                    ..best
                };
            }
        }
    }
    if situation.overlap == Overlap::Ahead {
        let trust = situation.trust.of(Way::Ahead);
        let ahead = best_ahead(&rates, min, max);
        let simpler = best.rate * SIMPLER;
        if let Some((ahead, predicted)) = ahead.filter(|(_, rate)| rate * trust > simpler) {
            best = Plan {
                want: ahead.want,
                ahead_want: ahead.ahead_want,
                ahead_width: WIDTHS[ahead.width],
                groups: 1,
                rate: predicted * trust,
                predicted,
                ..best
            };
        }
    }
    best.hope = best.rate;
    if !rates.rows_are_known() {
        let free = lengths(min.max(1), max).map(|want| rates.if_rows_were_free(want));
        best.hope = free.fold(best.rate, f64::max);
    }
    best
}

fn best_ahead(rates: &Rates<'_>, min: usize, max: usize) -> Option<(Ahead, f64)> {
    let mut best: Option<(Ahead, f64)> = None;
    for want in lengths(min.max(1), max) {
        for width in 0..WIDTHS.len() {
            for ahead_want in lengths(min.max(1), max) {
                let ahead = Ahead {
                    want,
                    ahead_want,
                    width,
                };
                let rate = rates.ahead(ahead);
                if best.is_none_or(|best| rate > best.1) {
                    best = Some((ahead, rate));
                }
            }
        }
    }
    best
}

/// Something small, since nothing is known.
fn trial(situation: &Situation<'_>, min: usize, max: usize) -> Plan {
    Plan {
        want: TRIAL.clamp(min, max),
        ahead_want: 0,
        ahead_width: 0,
        groups: 1,
        rate: 0.0,
        predicted: 0.0,
        hope: 0.0,
        plain_rate: 0.0,
        plain_groups: 1,
        known: false,
        plain_known: situation.verify.is_known(situation.sequences),
    }
}

fn lengths(min: usize, max: usize) -> impl Iterator<Item = usize> {
    let between = LENGTHS
        .into_iter()
        .filter(move |length| (min..max).contains(length));
    between.chain([max])
}
