//! The arithmetic of the ratio rules: what a drafted path is worth to the target, as probabilities.
//!
//! Must not know of noise: the verifier compares these numbers with uniform variables, and the
//! tests add them up over all drafted paths.

use crate::row_law::TargetLaw;
use crate::{Law, TokenId};

/// A node of the drafted path, where the target's law and the draft's meet.
///
/// # Why block verification is exact
/// With `r` the ratio of a node, every node keeps one promise: given that the draft came by it, it
/// is accepted with probability `r`. The root has `r = 1`. Its children have
/// `r(x) = min(1, r p(x) / q(x))`, of which the draft reaches each with probability `q(x)`, so that
/// something longer is accepted with probability `s = sum_x min(r p(x), q(x))`. The node itself
/// adds what is missing: it is accepted, where nothing longer is, with probability
/// `(r - s) / (1 - s)`, and then continued with a draw from `(r p - q)+`, whose sum is just
/// `r - s`. Each token `x` thus follows the node with `r p(x)` in all: through its child or as a
/// continuation. The promise speaks of one node and its children alone, so a proposal may end where
/// it likes, even where its own tokens tell it to, as long as it does not look at the token it
/// leaves out: at a node without children `s = 0`.
#[derive(Debug)]
pub(crate) struct Node<'a, P = Law> {
    /// The target's law of the next token.
    pub(crate) p: &'a P,
    /// The draft's, with the ids ascending; empty where the proposal ends.
    pub(crate) q: &'a [(TokenId, f64)],
    /// With which probability the path up to here is accepted, given that it was drafted. Over 0,
    /// at most 1.
    pub(crate) ratio: f64,
}

impl<P: TargetLaw> Node<'_, P> {
    /// The ratio of the child that `token` leads to; from a ratio of 1 it is the probability to
    /// accept the token. 0 for a token that the draft's law excludes, which it cannot have drawn.
    pub(crate) fn ratio_after(&self, token: TokenId) -> f64 {
        let drafted = self.q.iter().find(|entry| entry.0 == token);
        drafted.map_or(0.0, |(_, q)| {
            (self.ratio * self.p.probability(token) / q).min(1.0)
        })
    }

    /// With which probability the path is accepted up to here, given that it is no further.
    pub(crate) fn ending(&self) -> f64 {
        if self.ratio >= 1.0 {
            // Also where rounding leaves nothing missing: some verdict there must be.
            return 1.0;
        }
        let longer: f64 = self
            .q
            .iter()
            .map(|(token, q)| (self.ratio * self.p.probability(*token)).min(*q))
            .sum();
        let missing = self.ratio - longer;
        if missing > 0.0 {
            missing / (1.0 - longer)
        } else {
            0.0
        }
    }

    /// The token that a uniform variable on (0, 1) draws to follow where the path is accepted up to
    /// here and no further.
    pub(crate) fn continuation(&self, uniform: f64) -> TokenId {
        let runs = || (0..self.p.runs()).map(|run| (run, self.run_residual(run)));
        let total: f64 = runs().map(|run| run.1).sum();
        if total > 0.0 {
            let (run, before) = pick(runs(), uniform * total);
            let residual = self.residual_of(run).into_iter();
            pick(residual, uniform * total - before).0
        } else {
            // Only rounding can leave nothing.
            let (q, ratio) = (&[][..], 1.0);
            Node { q, ratio, ..*self }.continuation(uniform)
        }
    }

    /// What the target's law has over the draft's, by ascending id: weights that their sum, where
    /// it is over 0, makes a law of.
    pub(crate) fn residual(&self) -> impl Iterator<Item = (TokenId, f64)> {
        (0..self.p.runs()).flat_map(|run| self.residual_of(run))
    }

    /// The sum of the residual over a run. Mostly the draft has no id there.
    fn run_residual(&self, run: usize) -> f64 {
        if self.q.iter().any(|entry| self.p.run_of(entry.0) == run) {
            self.residual_of(run).iter().map(|entry| entry.1).sum()
        } else {
            self.ratio * self.p.run_probability(run)
        }
    }

    fn residual_of(&self, run: usize) -> Vec<(TokenId, f64)> {
        let mut drafted = self.q.iter().peekable();
        let mut residual = self.p.run_entries(run);
        for (token, p) in &mut residual {
            while drafted.next_if(|entry| entry.0 < *token).is_some() {}
            let q = drafted
                .next_if(|entry| entry.0 == *token)
                .map_or(0.0, |entry| entry.1);
            *p = (self.ratio * *p - q).max(0.0);
        }
        residual
    }
}

/// The first of `weights` at which they add up to more than `mass`, and the sum before it; the last
/// with any weight where rounding keeps their sum below.
fn pick<T: Copy + Default>(weights: impl Iterator<Item = (T, f64)>, mass: f64) -> (T, f64) {
    let (mut picked, mut before, mut sum) = (T::default(), 0.0, 0.0);
    for (item, weight) in weights.filter(|entry| entry.1 > 0.0) {
        (picked, before) = (item, sum);
        sum += weight;
        if mass < sum {
            break;
        }
    }
    (picked, before)
}
