//! Who is ahead in a race of perturbed scores. Knows nothing of logits and of noise.

use crate::{Choice, TokenId};

/// The best of a race so far; on a tie the lower id is better.
pub(crate) trait Podium {
    /// What is below this is of no interest.
    fn bar(&self) -> f64;

    /// Takes an id in, where it is good enough.
    fn take(&mut self, perturbed: f64, id: TokenId);
}

/// The winner, and by how much it leads.
pub(crate) struct FirstTwo {
    winner: TokenId,
    best: f64,
    second: f64,
}

/// The best few, the best first.
pub(crate) struct Best {
    count: usize,
    entries: Vec<(f64, TokenId)>,
}

impl Default for FirstTwo {
    fn default() -> Self {
        Self {
            winner: 0,
            best: f64::NEG_INFINITY,
            second: f64::NEG_INFINITY,
        }
    }
}

impl FirstTwo {
    pub(crate) fn choice(self) -> Choice {
        Choice {
            token: self.winner,
            margin: (self.best - self.second) as f32,
        }
    }
}

impl Podium for FirstTwo {
    #[inline(always)]
    fn bar(&self) -> f64 {
        self.second
    }

    #[inline(always)]
    fn take(&mut self, perturbed: f64, id: TokenId) {
        if perturbed > self.best || (perturbed == self.best && id < self.winner) {
            self.second = self.best;
            self.best = perturbed;
            self.winner = id;
        } else if perturbed > self.second {
            self.second = perturbed;
        }
    }
}

impl Best {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            count,
            entries: Vec::with_capacity(count + 1),
        }
    }

    pub(crate) fn ids(self) -> Vec<TokenId> {
        self.entries.into_iter().map(|entry| entry.1).collect()
    }
}

impl Podium for Best {
    fn bar(&self) -> f64 {
        let is_full = self.entries.len() >= self.count;
        let last = self.entries.last().filter(|_| is_full);
        last.map_or(f64::NEG_INFINITY, |entry| entry.0)
    }

    fn take(&mut self, perturbed: f64, id: TokenId) {
        let better =
            |entry: &(f64, TokenId)| entry.0 > perturbed || (entry.0 == perturbed && entry.1 < id);
        let place = self.entries.partition_point(better);
        if place < self.count {
            self.entries.insert(place, (perturbed, id));
            self.entries.truncate(self.count);
        }
    }
}
