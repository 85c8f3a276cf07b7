//! The law that a request prescribes, from the definitions, as plainly as they can be written.
//!
//! Uses nothing of `speculation` and nothing of `grammar`: those are what is checked. Works on the
//! logits of the alphabet and of the ends alone, since requests allow no other token.

use super::law::{JointLaw, Law, TokenId, joint};
use super::options::OptionSet;
use super::tables::Table;
use proto::v1::SamplingParams;

/// One model's law of a token under one option set.
#[derive(Debug, Clone, Copy)]
pub struct Oracle<'a> {
    /// The model.
    pub table: &'a Table,
    /// The request's options.
    pub options: &'a OptionSet,
}

impl Oracle<'_> {
    /// The law of the token after `output`; empty where no token is possible.
    pub fn law(&self, output: &[TokenId]) -> Law {
        self.law_counting(output, output.len())
    }

    /// As [`law`](Self::law), but the penalties see only the first `counted` tokens of the output:
    /// wrong, unless that is all of it.
    pub fn law_counting(&self, output: &[TokenId], counted: usize) -> Law {
        let Some(logits) = self.table.logits(output) else {
            return Law::default();
        };
        let words = &self.table.words;
        let text: String = output.iter().map(|id| words.text(*id)).collect();
        let mut scores = Vec::new();
        for (id, logit) in logits {
            if self.is_possible(&text, id) {
                let score = self.penalized(id, f64::from(logit), &output[..counted]);
                let bias = self.options.sampling.logit_bias.get(&id);
                scores.push((id, score + bias.copied().map_or(0.0, f64::from)));
            }
        }
        truncated(scores, &self.options.sampling)
    }

    /// The law of the first `length` tokens, or of fewer where the text ends.
    pub fn joint(&self, length: usize) -> JointLaw {
        joint(length, |output| {
            let last = output.last();
            let ended = last.is_some_and(|last| self.table.words.ends.contains(last));
            (!ended).then(|| self.law(output))
        })
    }

    /// With a grammar: a text of the alphabet that goes on matching, or an end where it matches.
    /// Else the alphabet.
    fn is_possible(&self, text: &str, id: TokenId) -> bool {
        let words = &self.table.words;
        let is_end = words.ends.contains(&id);
        if !self.options.grammar {
            return !is_end;
        }
        match advance(State::Between, text) {
            None => false,
            Some(state) if is_end => state == State::Between && !text.is_empty(),
            Some(state) => advance(state, words.text(id)).is_some(),
        }
    }

    fn penalized(&self, id: TokenId, logit: f64, output: &[TokenId]) -> f64 {
        let sampling = &self.options.sampling;
        let repetition = f64::from(sampling.repetition_penalty.unwrap_or(1.0));
        let presence = f64::from(sampling.presence_penalty.unwrap_or(0.0));
        let frequency = f64::from(sampling.frequency_penalty.unwrap_or(0.0));
        let times = output.iter().filter(|token| **token == id).count();
        let mut score = logit;
        if times > 0 || self.table.words.prompt.contains(&id) {
            if score > 0.0 {
                score /= repetition;
            } else {
                score *= repetition;
            }
        }
        if times > 0 {
            score -= presence + frequency * times as f64;
        }
        score
    }
}

/// Temperature, then top-k, then top-p of what top-k leaves, then min-p.
fn truncated(scores: Vec<(TokenId, f64)>, sampling: &SamplingParams) -> Law {
    let temperature = f64::from(sampling.temperature.unwrap_or(1.0));
    let peak = scores.iter().map(|entry| entry.1).fold(f64::MIN, f64::max);
    let mut weights: Vec<_> = scores
        .into_iter()
        .map(|(id, score)| (id, ((score - peak) / temperature).exp()))
        .collect();
    weights.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    match sampling.top_k.unwrap_or(0) {
        0 => {}
        k => weights.truncate(k as usize),
    }
    let total: f64 = weights.iter().map(|entry| entry.1).sum();
    let enough = total * f64::from(sampling.top_p.unwrap_or(1.0));
    let mut before = 0.0;
    weights.retain(|entry| {
        let kept = before < enough;
        before += entry.1;
        kept
    });
    let least = f64::from(sampling.min_p.unwrap_or(0.0));
    weights.retain(|entry| entry.1 >= least);
    Law::of_weights(weights)
}

/// Where a text stands in the regular expression `(er*s|r)+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between two parts, before the first or after the last.
    Between,
    /// After `e` and any number of `r`: an `s` is still to come.
    Open,
}

/// Where `text` leads from `state`; none where the text cannot go on so.
fn advance(state: State, text: &str) -> Option<State> {
    text.chars()
        .try_fold(state, |state, letter| match (state, letter) {
            (State::Between, 'e') | (State::Open, 'r') => Some(State::Open),
            (State::Between, 'r') | (State::Open, 's') => Some(State::Between),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(sampling: &SamplingParams, weights: &[f64]) -> Vec<(TokenId, f64)> {
        let scores = (0..).zip(weights.iter().map(|weight| weight.ln()));
        truncated(scores.collect(), sampling).entries().to_vec()
    }

    fn ids(sampling: &SamplingParams, weights: &[f64]) -> Vec<TokenId> {
        let law = kept(sampling, weights);
        law.into_iter().map(|entry| entry.0).collect()
    }

    #[test]
    fn truncation_keeps_what_the_definitions_keep() {
        let weights = [0.1, 0.4, 0.2, 0.3];
        let with = |change: fn(&mut SamplingParams)| {
            let mut sampling = SamplingParams::default();
            change(&mut sampling);
            ids(&sampling, &weights)
        };
        assert_eq!(with(|_| {}), [0, 1, 2, 3]);
        assert_eq!(with(|s| s.top_k = Some(2)), [1, 3]);
        assert_eq!(with(|s| s.top_p = Some(0.69)), [1, 3]);
        assert_eq!(with(|s| s.top_p = Some(0.71)), [1, 2, 3]);
        assert_eq!(with(|s| s.min_p = Some(0.6)), [1, 3]);
        // Of the half that top-k leaves, three fifths are 0.42: more than the first has.
        let both = |s: &mut SamplingParams| {
            s.top_k = Some(2);
            s.top_p = Some(0.6);
        };
        assert_eq!(with(both), [1, 3]);
    }

    #[test]
    fn temperature_divides_scores() {
        let sampling = SamplingParams {
            temperature: Some(0.5),
            ..SamplingParams::default()
        };
        let law = kept(&sampling, &[1.0, 2.0]);
        assert!((law[1].1 - 0.8).abs() < 1e-12, "{law:?}");
    }

    #[test]
    fn the_automaton_is_the_regular_expression() {
        for (text, goes_on) in [
            ("", true),
            ("e", true),
            ("es", true),
            ("errrs", true),
            ("rrer", true),
            ("s", false),
            ("ee", false),
            ("ess", false),
            ("rs", false),
        ] {
            let state = advance(State::Between, text);
            assert_eq!(state.is_some(), goes_on, "{text}");
        }
    }
}
