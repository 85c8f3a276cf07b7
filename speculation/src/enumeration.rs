//! The rules that compare probabilities, added up over all drafted paths of small models: exact
//! probabilities, no noise. It is the proof by calculation that a rule leaves the target's law as it
//! is, with the arithmetic that verifies proposals.

use crate::ratio::Node;
use crate::{Law, TokenId};
use std::collections::HashMap;

#[cfg(test)]
mod tests;

/// What the draft draws from, by ascending id; empty where the proposal ends.
pub type DraftEntries = Vec<(TokenId, f64)>;

/// A target, a draft, and where the draft stops: functions of the tokens so far.
pub struct Pair<'a> {
    /// The target's law of the next token.
    pub target: &'a dyn Fn(&[TokenId]) -> Law,
    /// The draft's.
    pub draft: &'a dyn Fn(&[TokenId]) -> DraftEntries,
}

/// What a rule commits: the probabilities of texts, and the expected number of accepted tokens.
#[derive(Debug, Default)]
pub struct Committed {
    texts: HashMap<Vec<TokenId>, f64>,
    accepted: f64,
}

impl Committed {
    /// The expected number of accepted tokens.
    pub fn accepted(&self) -> f64 {
        self.accepted
    }

    /// How far the committed text is from the target's own, at most, over all texts of `length`
    /// tokens.
    pub fn distance(self, target: &dyn Fn(&[TokenId]) -> Law, length: usize) -> f64 {
        let mut own = Self::default();
        own.texts.insert(Vec::new(), 1.0);
        let own = own.completed(target, length);
        let texts = self.completed(target, length);
        let at = |law: &HashMap<Vec<TokenId>, f64>, text| law.get(text).copied().unwrap_or(0.0);
        own.keys()
            .chain(texts.keys())
            .map(|text| (at(&own, text) - at(&texts, text)).abs())
            .fold(0.0, f64::max)
    }

    /// With probability `mass` the path to `node` is accepted and no more.
    fn end(&mut self, path: &[TokenId], node: &Node<'_>, mass: f64) {
        self.accepted += mass * path.len() as f64;
        let total: f64 = node.residual().map(|entry| entry.1).sum();
        for (token, weight) in node.residual() {
            let text = [path, &[token]].concat();
            let p = if total > 0.0 {
                weight / total
            } else {
                node.p.probability(token)
            };
            *self.texts.entry(text).or_default() += mass * p;
        }
    }

    /// The law of the first `length` tokens, shorter texts being decoded further.
    fn completed(
        self,
        target: &dyn Fn(&[TokenId]) -> Law,
        length: usize,
    ) -> HashMap<Vec<TokenId>, f64> {
        let mut texts = self.texts;
        for short in 0..length {
            for (text, mass) in texts.clone().iter().filter(|(text, _)| text.len() == short) {
                texts.remove(text);
                for (token, p) in target(text).entries() {
                    *texts.entry([&text[..], &[*token]].concat()).or_default() += mass * p;
                }
            }
        }
        texts
    }
}

/// What the rule `token` commits.
pub fn by_token(pair: &Pair<'_>) -> Committed {
    let mut committed = Committed::default();
    token_rule(pair, &[], 1.0, &mut committed);
    committed
}

/// What the rule `block` commits.
///
/// # Panics
/// Where some proposal would have no verdict: a mistake in the rule.
pub fn by_block(pair: &Pair<'_>) -> Committed {
    let mut committed = Committed::default();
    let left = block_rule(pair, &[], 1.0, 1.0, &mut committed);
    assert_eq!(left, 0.0, "some proposals have no verdict");
    committed
}

/// The token rule: stop at the first rejection.
fn token_rule(pair: &Pair<'_>, path: &[TokenId], mass: f64, committed: &mut Committed) {
    let (p, q) = ((pair.target)(path), (pair.draft)(path));
    let node = Node {
        p: &p,
        q: &q,
        ratio: 1.0,
    };
    if q.is_empty() {
        committed.end(path, &node, mass);
    }
    for (token, drawn) in &q {
        let accepted = node.ratio_after(*token);
        committed.end(path, &node, mass * drawn * (1.0 - accepted));
        if accepted > 0.0 {
            token_rule(
                pair,
                &[path, &[*token]].concat(),
                mass * drawn * accepted,
                committed,
            );
        }
    }
}

/// The block rule: each drafted path ends at its last node that passes its own test. Returns with
/// which probability none on the way from `path` on does.
fn block_rule(
    pair: &Pair<'_>,
    path: &[TokenId],
    ratio: f64,
    mass: f64,
    committed: &mut Committed,
) -> f64 {
    if ratio == 0.0 {
        return mass;
    }
    let (p, q) = ((pair.target)(path), (pair.draft)(path));
    let node = Node {
        p: &p,
        q: &q,
        ratio,
    };
    let mut left = if q.is_empty() { mass } else { 0.0 };
    for (token, drawn) in &q {
        let longer = [path, &[*token]].concat();
        left += block_rule(
            pair,
            &longer,
            node.ratio_after(*token),
            mass * drawn,
            committed,
        );
    }
    let ends = node.ending();
    committed.end(path, &node, left * ends);
    left * (1.0 - ends)
}
