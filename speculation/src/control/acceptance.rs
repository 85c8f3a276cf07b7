//! How many drafted tokens are accepted, by position.

use super::MAX_DRAFT;
use super::change::Change;

/// Rounds that a sequence's acceptance remembers.
const SEQUENCE_MEMORY: f64 = 64.0;

/// Rounds, of all its sequences, that a draft worker's acceptance remembers.
const WORKER_MEMORY: f64 = 512.0;

/// Rounds that are remembered where there was a change.
const SHORT_MEMORY: f64 = 5.0;

/// What is assumed of a draft that nobody has seen: the mean over the real pair's prompts is .72
/// to .75 (design, verification 2.2).
const PRIOR: f64 = 0.7;

/// For how many rounds an assumption counts at first, and after how many rounds of its own for half
/// of that: it would stay a bias.
const PRIOR_WEIGHT: f64 = 2.0;
const PRIOR_HALVED: f64 = 8.0;

/// The same for what many rounds of the draft worker's other sequences say: the first rounds of a text are
/// worse evidence of how it goes on. Half of that is due to so many rounds.
const KNOWN_WEIGHT: f64 = 8.0;
const KNOWN_AFTER: f64 = 32.0;

/// What became of one proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Tokens that the draft was asked for.
    pub wanted: usize,
    /// Tokens that it proposed: fewer where it stopped early.
    pub drafted: usize,
    /// Tokens that were verified: fewer where the coordinator trimmed.
    pub verified: usize,
    /// Tokens that were accepted.
    pub accepted: usize,
}

/// The probability that drafted tokens are accepted, by position: of one sequence, or of all of a
/// draft worker's.
///
/// Kept as hazards: of the rounds that reached a position, how many passed it. So a round counts
/// exactly for the positions that it tells something of. Where all that was verified was accepted
/// and more had been drafted, the rest is unknown and counts for nothing; where the draft itself
/// stopped early, the next position counts as not passed, since a longer wish would have brought
/// nothing.
///
/// It remembers its last rounds exponentially, and only the last few once those show that
/// something has changed.
#[derive(Debug, Clone)]
pub struct Acceptance {
    assumed: [f64; MAX_DRAFT],
    /// For how many rounds each assumption counts at first.
    certain: [f64; MAX_DRAFT],
    long: [Count; MAX_DRAFT],
    short: [Count; MAX_DRAFT],
    memory: f64,
    change: Change,
    /// Mean of drafted / wanted.
    fullness: f64,
    survival: [f64; MAX_DRAFT],
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    reached: f64,
    passed: f64,
}

impl Acceptance {
    /// Of a sequence whose draft nobody has seen.
    pub fn prior() -> Self {
        Self::new([PRIOR; MAX_DRAFT], 1.0, SEQUENCE_MEMORY)
    }

    /// Of a draft worker that nobody has seen.
    pub fn of_worker() -> Self {
        Self::new([PRIOR; MAX_DRAFT], 1.0, WORKER_MEMORY)
    }

    /// Of a new sequence: what is known of its draft worker, outweighed in time by its own rounds.
    pub fn from_prior(worker: &Acceptance) -> Self {
        let assumed = std::array::from_fn(|index| worker.hazard(index + 1));
        let mut acceptance = Self::new(assumed, worker.fullness, SEQUENCE_MEMORY);
        for (certain, seen) in acceptance.certain.iter_mut().zip(&worker.long) {
            let known = seen.reached / (seen.reached + KNOWN_AFTER);
            *certain += (KNOWN_WEIGHT - PRIOR_WEIGHT) * known;
        }
        acceptance.derive();
        acceptance
    }

    /// Known beforehand, by position; the last one holds beyond. For planning, not for learning.
    pub fn stated(by_position: &[f64]) -> Self {
        let last = by_position.last().copied().unwrap_or(0.0);
        let at = |index: usize| by_position.get(index).copied().unwrap_or(last);
        let assumed = std::array::from_fn(|index| at(index).clamp(0.0, 1.0));
        Self::new(assumed, 1.0, SEQUENCE_MEMORY)
    }

    fn new(assumed: [f64; MAX_DRAFT], fullness: f64, memory: f64) -> Self {
        let mut acceptance = Self {
            assumed,
            certain: [PRIOR_WEIGHT; MAX_DRAFT],
            long: [Count::default(); MAX_DRAFT],
            short: [Count::default(); MAX_DRAFT],
            memory,
            change: Change::default(),
            fullness,
            survival: [0.0; MAX_DRAFT],
        };
        acceptance.derive();
        acceptance
    }

    /// Takes in what became of a proposal.
    pub fn observe(&mut self, round: Round) {
        if round.wanted == 0 || round.accepted > round.verified || round.verified > round.drafted {
            return;
        }
        let fullness = round.drafted as f64 / round.wanted as f64;
        self.fullness += (fullness.min(1.0) - self.fullness) / self.memory;
        let stopped = round.verified == round.drafted && round.drafted < round.wanted;
        let failed = round.accepted < round.verified || stopped;
        if round.verified > 0 || stopped {
            self.count(round.accepted, failed);
        }
    }

    /// `passed` positions passed; the next one `failed`, or nothing is known of it.
    fn count(&mut self, passed: usize, failed: bool) {
        let reached = (passed + usize::from(failed)).min(MAX_DRAFT);
        let mut changed = false;
        for index in 0..reached {
            changed |= self.change.observe(index < passed, self.hazard(index + 1));
        }
        for (counts, memory) in [
            (&mut self.long, self.memory),
            (&mut self.short, SHORT_MEMORY),
        ] {
            for (index, count) in counts.iter_mut().enumerate() {
                count.reached *= 1.0 - 1.0 / memory;
                count.passed *= 1.0 - 1.0 / memory;
                count.reached += f64::from(u8::from(index < reached));
                count.passed += f64::from(u8::from(index < passed));
            }
        }
        if changed {
            self.long = self.short;
            // What was assumed is of before.
            self.certain = [PRIOR_WEIGHT; MAX_DRAFT];
        }
        self.derive();
    }

    fn derive(&mut self) {
        let mut survival = 1.0;
        let mut shift = 0.0;
        for index in 0..MAX_DRAFT {
            let Count { reached, passed } = self.long[index];
            // What is not seen yet is off its assumption by half of what the position before is.
            let assumed = (self.assumed[index] + 0.5 * shift).clamp(0.0, 1.0);
            let weight = self.certain[index] / (1.0 + reached / PRIOR_HALVED);
            let hazard = (passed + weight * assumed) / (reached + weight);
            shift = hazard - self.assumed[index];
            survival *= hazard;
            self.survival[index] = survival;
        }
    }

    /// The probability that position `l` is accepted where those before it were.
    pub fn hazard(&self, l: usize) -> f64 {
        let before = self.survival(l.saturating_sub(1));
        if before > 0.0 {
            self.survival(l) / before
        } else {
            0.0
        }
    }

    /// The probability that at least `l` drafted tokens are accepted, where so many were asked for.
    pub fn survival(&self, l: usize) -> f64 {
        match l.checked_sub(1) {
            None => 1.0,
            Some(index) => self.survival.get(index).copied().unwrap_or(0.0),
        }
    }

    /// Tokens that a round with `k` asked for commits, the target's own among them: E(k).
    pub fn expected(&self, k: usize) -> f64 {
        1.0 + self.survival.iter().take(k).sum::<f64>()
    }

    /// Tokens that are drafted where `k` are asked for: drafts may stop early.
    pub fn drafted(&self, k: usize) -> f64 {
        k as f64 * self.fullness
    }
}
