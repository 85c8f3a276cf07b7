//! Many short texts, written round by round as the service does, against the target's law of whole
//! texts. Seeds are fixed, so a test that passes once passes always.

use crate::book::{Mistake, Round};
use crate::reference::sampling;
use crate::statistics::{chi_square_critical, g_test};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use speculation::{DraftLaw, Law, NoiseKey, Rule, Sampler, Sampling, TokenId, Verdict, Verifier};
use std::collections::HashMap;

const VOCABULARY: usize = 4;
const PROMPT: [TokenId; 2] = [1, 0];
/// Tokens of a text that is looked at.
const LENGTH: usize = 3;
/// Drafted tokens per round.
const DRAFTED: usize = 3;

/// Two models of the last two tokens, and how tokens are chosen.
#[derive(Debug, Clone, Copy)]
struct Pair {
    seed: u64,
    sampling: Sampling,
}

impl Pair {
    fn target(&self, text: &[TokenId]) -> Vec<f32> {
        let context = text
            .iter()
            .rev()
            .take(2)
            .fold(7, |sum, id| sum * 31 + u64::from(*id));
        let mut rng = StdRng::seed_from_u64(self.seed * 1000 + context);
        (0..VOCABULARY)
            .map(|_| rng.random_range(-1.5..1.5))
            .collect()
    }

    fn draft(&self, text: &[TokenId]) -> Vec<f32> {
        let mut rng = StdRng::seed_from_u64(self.seed + u64::from(text[text.len() - 1]));
        let target = self.target(text).into_iter();
        target
            .map(|logit| logit + rng.random_range(-2.0..2.0))
            .collect()
    }

    fn law(&self, text: &[TokenId]) -> Law {
        Law::new(&self.target(text), &self.sampling)
    }

    /// The law of the first tokens after the prompt.
    fn texts(&self) -> Vec<(Vec<TokenId>, f64)> {
        let mut texts = vec![(Vec::new(), 1.0)];
        for _ in 0..LENGTH {
            let longer = |(text, mass): &(Vec<TokenId>, f64)| {
                let law = self.law(&[&PROMPT, &text[..]].concat());
                let (text, mass) = (text.clone(), *mass);
                let next = law.entries().to_vec().into_iter();
                next.map(move |(token, p)| ([&text[..], &[token]].concat(), mass * p))
            };
            texts = texts.iter().flat_map(longer).collect();
        }
        texts
    }

    /// A proposal after `text`, with its laws where the rule needs them.
    fn propose(
        &self,
        rule: Rule,
        text: &[TokenId],
        round: &Round,
    ) -> (Vec<TokenId>, Vec<DraftLaw>) {
        let (mut text, mut laws) = (text.to_vec(), Vec::new());
        let base = text.len();
        for index in 0..DRAFTED {
            let logits = self.draft(&text);
            if rule == Rule::Coupled {
                let sampler = Sampler {
                    sampling: self.sampling,
                    key: round.key,
                };
                text.push(sampler.choose(&logits, text.len() as u64).token);
            } else {
                let law = DraftLaw::quantize(&Law::new(&logits, &self.sampling));
                text.push(round.draw(&law, index));
                laws.push(law);
            }
        }
        (text.split_off(base), laws)
    }

    /// The verdict of the shipped verifier.
    fn verify(
        &self,
        rule: Rule,
        text: &[TokenId],
        key: NoiseKey,
        draft: &[TokenId],
        laws: &[DraftLaw],
    ) -> Verdict {
        let sampler = Sampler {
            sampling: self.sampling,
            key,
        };
        let mut verifier = Verifier::new(
            rule,
            sampler,
            text.len() as u64,
            draft.to_vec(),
            laws.to_vec(),
        );
        let mut length = 0;
        while !verifier.is_settled() {
            verifier.read(&self.target(&[text, &draft[..length]].concat()));
            length += 1;
        }
        verifier.verdict().expect("settled")
    }

    /// Writes a text, and says how many drafted tokens its rounds accepted and how many there were.
    fn write(&self, rule: Rule, key: NoiseKey, mistake: Mistake) -> (Vec<TokenId>, usize, usize) {
        let mut text = PROMPT.to_vec();
        let (mut accepted, mut rounds) = (0, 0);
        while text.len() < PROMPT.len() + LENGTH {
            let round = Round {
                key,
                base: text.len() as u64,
                mistake,
            };
            let (draft, laws) = self.propose(rule, &text, &round);
            let shipped = || self.verify(rule, &text, key, &draft, &laws);
            let verdict = match mistake {
                Mistake::None | Mistake::OtherLaw => shipped(),
                _ => self.by_the_book(rule, &text, &round, &draft, &laws),
            };
            text.extend(&draft[..verdict.accepted]);
            text.push(verdict.next);
            (accepted, rounds) = (accepted + verdict.accepted, rounds + 1);
        }
        (text[PROMPT.len()..][..LENGTH].to_vec(), accepted, rounds)
    }

    fn by_the_book(
        &self,
        rule: Rule,
        text: &[TokenId],
        round: &Round,
        draft: &[TokenId],
        laws: &[DraftLaw],
    ) -> Verdict {
        let rows: Vec<_> = (0..=draft.len())
            .map(|length| self.law(&[text, &draft[..length]].concat()))
            .collect();
        round.verify(rule, draft, laws, &rows)
    }

    /// The G statistic of many texts as a share of its critical value, and the tokens accepted per
    /// round.
    fn score(&self, rule: Rule, mistake: Mistake, texts: u64) -> (f64, f64) {
        let mut counts: HashMap<Vec<TokenId>, u32> = HashMap::new();
        let (mut accepted, mut rounds) = (0, 0);
        for seed in 0..texts {
            let key = NoiseKey::from_seed(self.seed << 32 | seed);
            let (text, more, count) = self.write(rule, key, mistake);
            *counts.entry(text).or_default() += 1;
            (accepted, rounds) = (accepted + more, rounds + count);
        }
        let law = self.texts();
        let possible = law.iter().filter(|(text, _)| counts.contains_key(text));
        assert_eq!(
            possible.count(),
            counts.len(),
            "a text that the target excludes"
        );
        let (g, degrees) = g_test(&law, &counts);
        (
            g / chi_square_critical(degrees),
            accepted as f64 / rounds as f64,
        )
    }
}

fn pairs() -> Vec<Pair> {
    let pair = |seed, sampling| Pair { seed, sampling };
    vec![
        pair(1, sampling(1.0, 0, 1.0, 0.0)),
        pair(2, sampling(0.7, 0, 0.9, 0.0)),
        pair(3, sampling(1.4, 3, 1.0, 0.05)),
    ]
}

#[test]
fn texts_have_the_targets_law_under_every_rule() {
    for pair in pairs() {
        for rule in [Rule::Coupled, Rule::Token, Rule::Block] {
            let (g, accepted) = pair.score(rule, Mistake::None, 40_000);
            eprintln!(
                "pair {}, {rule:?}: G {g:.2} of critical, {accepted:.3} accepted",
                pair.seed
            );
            assert!(
                g < 1.0,
                "pair {}, {rule:?}: G {g} times critical",
                pair.seed
            );
            assert!(
                accepted > 0.3,
                "pair {}, {rule:?}: {accepted} accepted",
                pair.seed
            );
        }
    }
}

#[test]
fn every_planted_mistake_is_noticed() {
    let pair = pairs()[0];
    for (rule, mistake) in [
        (Rule::Token, Mistake::SoftmaxedResidual),
        (Rule::Block, Mistake::SoftmaxedResidual),
        (Rule::Token, Mistake::OtherLaw),
        (Rule::Block, Mistake::OtherLaw),
        (Rule::Token, Mistake::SharedNoise),
        (Rule::Block, Mistake::SharedNoise),
        (Rule::Block, Mistake::SameEachRound),
    ] {
        let (g, _) = pair.score(rule, mistake, 40_000);
        eprintln!("{rule:?}, {mistake:?}: G {g:.2} of critical");
        assert!(g > 1.0, "{rule:?}, {mistake:?}: G {g} times critical");
    }
}

/// Which also makes the mistakes above mistakes in the shipped rule and not in another one.
#[test]
fn verdicts_are_those_of_the_book() {
    for pair in pairs() {
        for rule in [Rule::Token, Rule::Block] {
            for seed in 0..3000 {
                let (key, text) = (NoiseKey::from_seed(seed), PROMPT.to_vec());
                let round = Round {
                    key,
                    base: text.len() as u64,
                    mistake: Mistake::None,
                };
                let (draft, laws) = pair.propose(rule, &text, &round);
                let verdict = pair.verify(rule, &text, key, &draft, &laws);
                let expected = pair.by_the_book(rule, &text, &round, &draft, &laws);
                assert_eq!(
                    verdict, expected,
                    "pair {}, {rule:?}, seed {seed}",
                    pair.seed
                );
            }
        }
    }
}
