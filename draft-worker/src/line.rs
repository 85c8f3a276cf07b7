//! Tokens drafted in a row, with what is known of each.

use speculation::TokenId;

/// Tokens drafted in a row. All but `ids` are there under the rule `coupled` only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) ids: Vec<TokenId>,
    /// The probability of each under the draft's law, 255 for certain.
    pub(crate) confidences: Vec<u8>,
    /// What the draft would take at each place, the best first: the token itself, and then as many more
    /// as were asked for.
    pub(crate) candidates: Vec<Vec<TokenId>>,
}

impl Line {
    /// Adds the first of `candidates`.
    pub(crate) fn push(&mut self, candidates: Vec<TokenId>, confidence: f64) {
        self.ids.extend(candidates.first());
        // Saturates.
        self.confidences.push((confidence * 255.0).round() as u8);
        self.candidates.push(candidates);
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.confidences.truncate(len);
        self.candidates.truncate(len);
    }

    /// What is left of the line once `run` is committed: nothing where it says something else.
    pub(crate) fn after(mut self, run: &[TokenId]) -> Self {
        if !self.ids.starts_with(run) {
            return Self::default();
        }
        self.ids.drain(..run.len());
        self.confidences.drain(..run.len());
        self.candidates.drain(..run.len());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let mut line = Line::default();
        line.push(vec![7, 1], 0.5);
        line.push(vec![8], 1.0);
        line.push(vec![9, 2, 3], 0.0);
        line
    }

    #[test]
    fn a_commit_that_agrees_leaves_the_rest() {
        let rest = line().after(&[7]);
        assert_eq!(rest.ids, [8, 9]);
        assert_eq!(rest.confidences, [255, 0]);
        assert_eq!(rest.candidates, [vec![8], vec![9, 2, 3]]);
        assert_eq!(line().after(&[7, 8, 9]), Line::default());
    }

    #[test]
    fn a_commit_that_differs_leaves_nothing() {
        for run in [&[1][..], &[7, 9], &[7, 8, 9, 10]] {
            assert_eq!(line().after(run), Line::default());
        }
    }
}
