//! A small draft-and-verify loop of the rules `token` and `block`, and errors that can be planted
//! in it: those that speculative decoding is known to have shipped with.
//!
//! Without an error it is exact, and the statistic must find nothing; with one it must. Pure: laws
//! come in as functions, and chance from a generator of the caller's.

use super::law::{Law, Text, TokenId};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::HashMap;

/// The law after the output so far, for a round that began after so many of its tokens.
pub type NextLaw<'a> = dyn Fn(&[TokenId], usize) -> Law + 'a;

/// How drafted tokens are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// One by one.
    Token,
    /// Together.
    Block,
}

/// An error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// What `p` has over `q` is put through a softmax instead of divided by its sum.
    ResidualSoftmaxed,
    /// After a rejection the next token is drawn from `p` itself.
    ResidualDropped,
    /// The draft takes its most likely token and declares its whole law.
    DrawnGreedily,
    /// The draft draws with the noise that the rule `coupled` shares, and the target accepts and
    /// continues by the same noise.
    NoiseShared,
    /// Block: the first test that fails ends the block, as if they were the rule token's.
    StopsAtFirstFailure,
    /// A position keeps its variables from one round to the next.
    VariablesReused,
}

/// The loop.
pub struct Speculation<'a> {
    /// The target's law.
    pub target: &'a NextLaw<'a>,
    /// The draft's.
    pub draft: &'a NextLaw<'a>,
    /// How drafted tokens are judged.
    pub rule: Rule,
    /// What is wrong, if anything.
    pub planted: Option<Planted>,
    /// Tokens drafted per round.
    pub drafted: usize,
}

impl Speculation<'_> {
    /// The first `length` tokens of a text.
    pub fn text(&self, length: usize, rng: &mut StdRng) -> Text {
        let reused = self.planted == Some(Planted::VariablesReused);
        let mut chance = Chance {
            rng,
            reused,
            kept: HashMap::new(),
        };
        let mut text = Text::new();
        while text.len() < length {
            self.round(&mut text, &mut chance);
        }
        text.truncate(length);
        text
    }

    fn round(&self, text: &mut Text, chance: &mut Chance<'_>) {
        let base = text.len();
        let draft = self.propose(text, chance);
        let (accepted, next) = match self.rule {
            Rule::Token => self.judge_tokens(text, &draft, chance),
            Rule::Block => self.judge_block(text, &draft, chance),
        };
        text.truncate(base);
        text.extend(draft.iter().take(accepted).map(|drafted| drafted.token));
        text.push(next);
    }

    fn propose(&self, text: &[TokenId], chance: &mut Chance<'_>) -> Vec<Drafted> {
        let mut path = text.to_vec();
        let mut draft = Vec::new();
        while draft.len() < self.drafted {
            let law = (self.draft)(&path, text.len());
            let position = path.len();
            let drawn = match self.planted {
                Some(Planted::DrawnGreedily) => law.best(|_, q| q),
                Some(Planted::NoiseShared) => chance.best(&law, position),
                _ => law.draw(chance.uniform(Variable::Draft, position)),
            };
            let Some(token) = drawn else { break };
            path.push(token);
            draft.push(Drafted { token, law });
        }
        draft
    }

    /// Accepts while `u q(x) < p(x)`. Leaves the accepted tokens in `path`.
    fn judge_tokens(
        &self,
        path: &mut Text,
        draft: &[Drafted],
        chance: &mut Chance<'_>,
    ) -> (usize, TokenId) {
        let base = path.len();
        for (accepted, Drafted { token, law: q }) in draft.iter().enumerate() {
            let p = (self.target)(path, base);
            let u = match self.planted {
                Some(Planted::NoiseShared) => chance.shared(path.len(), *token),
                _ => chance.uniform(Variable::Accept, path.len()),
            };
            if u * q.probability(*token) >= p.probability(*token) {
                return (accepted, self.continuation(&p, q, 1.0, path.len(), chance));
            }
            path.push(*token);
        }
        let p = (self.target)(path, base);
        let none = Law::default();
        let bonus = self.continuation(&p, &none, 1.0, path.len(), chance);
        (draft.len(), bonus)
    }

    /// Accepts up to the last place whose test passes. Leaves all drafted tokens in `path`.
    fn judge_block(
        &self,
        path: &mut Text,
        draft: &[Drafted],
        chance: &mut Chance<'_>,
    ) -> (usize, TokenId) {
        let base = path.len();
        let none = Law::default();
        let (mut ratio, mut verdict) = (1.0, (0, 0));
        for place in 0..=draft.len() {
            let drafted = draft.get(place);
            let p = (self.target)(path, base);
            let q = drafted.map_or(&none, |drafted| &drafted.law);
            let passes =
                chance.uniform(Variable::Accept, path.len()) < probability_to_end(&p, q, ratio);
            if passes {
                let next = self.continuation(&p, q, ratio, path.len(), chance);
                verdict = (place, next);
            } else if self.planted == Some(Planted::StopsAtFirstFailure) {
                break;
            }
            let Some(Drafted { token, .. }) = drafted else {
                break;
            };
            ratio = (ratio * p.probability(*token) / q.probability(*token)).min(1.0);
            if ratio == 0.0 {
                break;
            }
            path.push(*token);
        }
        verdict
    }

    /// The token after the accepted ones: from what `ratio p` has over `q`, which is `p` where
    /// nothing was drafted.
    fn continuation(
        &self,
        p: &Law,
        q: &Law,
        ratio: f64,
        position: usize,
        chance: &mut Chance<'_>,
    ) -> TokenId {
        let over =
            |(token, p): &(TokenId, f64)| (*token, (ratio * p - q.probability(*token)).max(0.0));
        let over: Vec<_> = p.entries().iter().map(over).collect();
        let residual = match self.planted {
            Some(Planted::ResidualSoftmaxed) if !q.entries().is_empty() => {
                Law::of_weights(over.into_iter().map(|(token, over)| (token, over.exp())))
            }
            Some(Planted::ResidualDropped) => p.clone(),
            _ => Law::of_weights(over),
        };
        // Only rounding can leave nothing.
        let law = if residual.entries().is_empty() {
            p
        } else {
            &residual
        };
        let drawn = match self.planted {
            Some(Planted::NoiseShared) => chance.best(law, position),
            _ => law.draw(chance.uniform(Variable::Residual, position)),
        };
        drawn.unwrap_or_default()
    }
}

/// A drafted token and the law that it is declared to come from.
#[derive(Debug)]
struct Drafted {
    token: TokenId,
    law: Law,
}

/// With which probability a block ends where it has the ratio `ratio`, given that it goes no
/// further.
fn probability_to_end(p: &Law, q: &Law, ratio: f64) -> f64 {
    if ratio >= 1.0 {
        return 1.0;
    }
    let further: f64 = q
        .entries()
        .iter()
        .map(|(token, q)| (ratio * p.probability(*token)).min(*q))
        .sum();
    (ratio - further) / (1.0 - further)
}

/// What a uniform variable decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Variable {
    Draft,
    Accept,
    Residual,
    /// The shared noise of one token.
    Shared(TokenId),
}

/// Where chance comes from.
struct Chance<'a> {
    rng: &'a mut StdRng,
    reused: bool,
    kept: HashMap<(Variable, usize), f64>,
}

impl Chance<'_> {
    fn uniform(&mut self, variable: Variable, position: usize) -> f64 {
        if self.reused || matches!(variable, Variable::Shared(_)) {
            let rng = &mut *self.rng;
            let kept = self.kept.entry((variable, position));
            *kept.or_insert_with(|| rng.random())
        } else {
            self.rng.random()
        }
    }

    fn shared(&mut self, position: usize, token: TokenId) -> f64 {
        self.uniform(Variable::Shared(token), position)
    }

    /// The argmax of log-probability plus the shared noise of `position`.
    fn best(&mut self, law: &Law, position: usize) -> Option<TokenId> {
        law.best(|token, p| {
            let u = self.shared(position, token);
            p.ln() - (-u.ln()).ln()
        })
    }
}
