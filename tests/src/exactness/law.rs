//! Laws of a token and of a short text, as plain lists of probabilities.
//!
//! Deliberately not the types of `speculation`: what is checked must not check itself.

use std::collections::BTreeMap;

/// A token id.
pub type TokenId = u32;

/// The tokens of a text.
pub type Text = Vec<TokenId>;

/// A law of one token: ids of probability over 0, ascending.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Law(Vec<(TokenId, f64)>);

/// A law of texts: each possible text with its probability.
pub type JointLaw = BTreeMap<Text, f64>;

impl Law {
    /// Divides `weights` by their sum. Those that are not over 0 are left out; where none is left
    /// the law is empty, and no token is possible.
    pub fn of_weights(weights: impl IntoIterator<Item = (TokenId, f64)>) -> Self {
        let mut entries: Vec<_> = weights.into_iter().filter(|entry| entry.1 > 0.0).collect();
        entries.sort_by_key(|entry| entry.0);
        let total: f64 = entries.iter().map(|entry| entry.1).sum();
        for entry in &mut entries {
            entry.1 /= total;
        }
        Self(entries)
    }

    /// The ids and their probabilities.
    pub fn entries(&self) -> &[(TokenId, f64)] {
        &self.0
    }

    /// The probability of `token`.
    pub fn probability(&self, token: TokenId) -> f64 {
        let found = self.0.iter().find(|entry| entry.0 == token);
        found.map_or(0.0, |entry| entry.1)
    }

    /// The token that a uniform variable on (0, 1) draws; none from an empty law.
    pub fn draw(&self, uniform: f64) -> Option<TokenId> {
        let mut sum = 0.0;
        let drawn = self.0.iter().find(|entry| {
            sum += entry.1;
            uniform < sum
        });
        drawn.or(self.0.last()).map(|entry| entry.0)
    }

    /// The token of the largest `score`; none in an empty law.
    pub fn best(&self, mut score: impl FnMut(TokenId, f64) -> f64) -> Option<TokenId> {
        let scored = self.0.iter().map(|(token, p)| (*token, score(*token, *p)));
        scored
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|entry| entry.0)
    }
}

/// The law of the first `length` tokens, where `next` is the law of a token after others; none
/// where the text has ended.
pub fn joint(length: usize, next: impl Fn(&[TokenId]) -> Option<Law>) -> JointLaw {
    let mut texts = JointLaw::from([(Text::new(), 1.0)]);
    for _ in 0..length {
        let mut longer = JointLaw::new();
        for (text, mass) in texts {
            match next(&text) {
                None => drop(longer.insert(text, mass)),
                Some(law) => longer.extend(law.0.into_iter().map(|(token, p)| {
                    let text = [&text[..], &[token]].concat();
                    (text, mass * p)
                })),
            }
        }
        texts = longer;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_of_a_text_is_the_product_along_it() {
        let next = |text: &[TokenId]| match text {
            [] => Some(Law::of_weights([(0, 4.0), (1, 1.0), (2, 3.0)])),
            [0] => None,
            [1] => Some(Law::of_weights([(2, 5.0)])),
            _ => Some(Law::of_weights([(1, 1.0), (2, 1.0), (3, 0.0)])),
        };
        let expected = [
            (vec![0], 0.5),
            (vec![1, 2], 0.125),
            (vec![2, 1], 0.1875),
            (vec![2, 2], 0.1875),
        ];
        assert_eq!(joint(2, next), JointLaw::from(expected));
    }

    #[test]
    fn a_uniform_variable_draws_each_token_as_often_as_its_probability() {
        let law = Law::of_weights([(4, 1.0), (2, 1.0), (9, 2.0)]);
        let drawn: Vec<_> = (0..4)
            .map(|i| law.draw(f64::from(i) / 4.0 + 0.1).expect("a token"))
            .collect();
        assert_eq!(drawn, [2, 4, 9, 9]);
        assert_eq!(Law::default().draw(0.5), None);
    }
}
