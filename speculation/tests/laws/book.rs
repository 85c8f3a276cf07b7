//! The ratio rules by the book, over whole laws, with a place for each mistake that is easily made.

use speculation::{DraftLaw, Law, NoiseKey, Rule, Stream, TokenId, Verdict, gumbel, uniform};

/// A mistake in the implementation of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// The residual goes through a softmax instead of being divided by its sum.
    SoftmaxedResidual,
    /// The draft draws from another law than it declares.
    OtherLaw,
    /// The draft draws with the shared noise of a token, and so does the test of acceptance.
    SharedNoise,
    /// The variables of a position are the same in every round.
    SameEachRound,
}

/// The variables of one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) key: NoiseKey,
    pub(crate) base: u64,
    pub(crate) mistake: Mistake,
}

impl Round {
    /// The variable of a stream for the `index`th token of the round.
    pub(crate) fn uniform(&self, stream: Stream, index: usize) -> f64 {
        let position = self.base + index as u64;
        let base = match self.mistake {
            Mistake::SameEachRound => 0,
            _ => self.base,
        };
        uniform(self.key, stream, base, position)
    }

    /// The `index`th drafted token.
    pub(crate) fn draw(&self, law: &DraftLaw, index: usize) -> TokenId {
        match self.mistake {
            Mistake::SharedNoise => {
                let perturbed =
                    |(token, q): (TokenId, f64)| (q.ln() + self.gumbel(token, index), token);
                let best = law
                    .probabilities()
                    .map(perturbed)
                    .max_by(|a, b| a.0.total_cmp(&b.0));
                best.expect("a law has entries").1
            }
            Mistake::OtherLaw => {
                let u = self.uniform(Stream::Draft, index);
                // The other way round among the ids: the most likely may be the least.
                law.draw(u.powi(2))
            }
            _ => law.draw(self.uniform(Stream::Draft, index)),
        }
    }

    /// The variable that decides on `token`.
    fn accept(&self, token: TokenId, index: usize) -> f64 {
        match self.mistake {
            // The uniform variable that the noise was made of.
            Mistake::SharedNoise => (-(-self.gumbel(token, index)).exp()).exp(),
            _ => self.uniform(Stream::Accept, index),
        }
    }

    fn gumbel(&self, token: TokenId, index: usize) -> f64 {
        gumbel(self.key, self.base + index as u64, token)
    }

    /// The verdict on `draft`, given the target's law after each of its prefixes.
    pub(crate) fn verify(
        &self,
        rule: Rule,
        draft: &[TokenId],
        laws: &[DraftLaw],
        rows: &[Law],
    ) -> Verdict {
        let ids = rows
            .iter()
            .flat_map(|row| row.entries())
            .map(|entry| entry.0 + 1)
            .max()
            .unwrap_or(0);
        let p = |row: usize| -> Vec<f64> { (0..ids).map(|id| rows[row].probability(id)).collect() };
        let q = |row: usize| -> Vec<f64> {
            let law = laws.get(row);
            (0..ids)
                .map(|id| law.map_or(0.0, |law| law.probability(id)))
                .collect()
        };
        let k = draft.len();
        let ratios: Vec<f64> = draft
            .iter()
            .enumerate()
            .fold(vec![1.0], |mut ratios, (i, &x)| {
                let before: f64 = if rule == Rule::Block { ratios[i] } else { 1.0 };
                ratios.push((before * rows[i].probability(x) / laws[i].probability(x)).min(1.0));
                ratios
            });
        let accepted = match rule {
            Rule::Token => (0..k)
                .take_while(|&i| self.accept(draft[i], i) < ratios[i + 1])
                .count(),
            _ => (0..=k)
                .rfind(|&i| self.ends(&p(i), &q(i), ratios[i], i, draft))
                .unwrap_or(0),
        };
        let scale = if rule == Rule::Block {
            ratios[accepted]
        } else {
            1.0
        };
        let left = p(accepted)
            .into_iter()
            .zip(q(accepted))
            .map(|(p, q)| (scale * p - q).max(0.0));
        let next = self.residual(left.collect(), &p(accepted), accepted);
        Verdict { accepted, next }
    }

    /// The test of the block rule on the first `index` tokens.
    fn ends(&self, p: &[f64], q: &[f64], ratio: f64, index: usize, draft: &[TokenId]) -> bool {
        let token = draft.get(index).copied().unwrap_or(0);
        let longer: f64 = p.iter().zip(q).map(|(p, q)| (ratio * p).min(*q)).sum();
        index == 0 || self.accept(token, index) * (1.0 - longer) < ratio - longer
    }

    fn residual(&self, mut weights: Vec<f64>, p: &[f64], index: usize) -> TokenId {
        if self.mistake == Mistake::SoftmaxedResidual {
            weights.iter_mut().for_each(|weight| *weight = weight.exp());
        }
        if weights.iter().sum::<f64>() <= 0.0 {
            weights = p.to_vec();
        }
        let mass = self.uniform(Stream::Residual, index) * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let reached = weights.iter().position(|weight| {
            sum += weight;
            mass < sum
        });
        reached.expect("below the sum") as TokenId
    }
}
