//! What the two answers show.

use crate::stack::{Answer, ratio};
use serde::Serialize;
use std::fmt;

/// Both answers, compared.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) text: String,
    /// Whether text and token ids are the same.
    pub(crate) identical: bool,
    /// Speculative over plain decode rate; 0 where the plain one is too short to have one.
    pub(crate) speedup: f64,
    plain: Plain,
    speculative: Speculative,
}

#[derive(Debug, PartialEq, Serialize)]
struct Plain {
    tokens: usize,
    /// From the first tokens to the last: what the prompt took is left out.
    tokens_per_second: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Speculative {
    tokens: usize,
    tokens_per_second: f64,
    draft_tokens: u32,
    accepted_draft_tokens: u32,
    draft_acceptance_rate: f64,
    /// Committed tokens per verification round, the target's own included.
    mean_acceptance_length: f64,
}

impl Report {
    /// Compares the answers to the same request.
    pub(crate) fn new(speculative: Answer, plain: &Answer) -> Self {
        let identical = speculative.text == plain.text && speculative.token_ids == plain.token_ids;
        let stats = speculative.finished.speculation.clone().unwrap_or_default();
        // The first token comes with the prompt, before any round.
        let in_rounds = speculative.token_ids.len().saturating_sub(1);
        let rate = speculative.pace.tokens_per_second();
        let plain_rate = plain.pace.tokens_per_second();
        Self {
            identical,
            speedup: ratio(rate, plain_rate),
            plain: Plain {
                tokens: plain.token_ids.len(),
                tokens_per_second: plain_rate,
            },
            speculative: Speculative {
                tokens: speculative.token_ids.len(),
                tokens_per_second: rate,
                draft_tokens: stats.draft_tokens,
                accepted_draft_tokens: stats.accepted_draft_tokens,
                draft_acceptance_rate: ratio(
                    f64::from(stats.accepted_draft_tokens),
                    f64::from(stats.draft_tokens),
                ),
                mean_acceptance_length: ratio(in_rounds as f64, f64::from(stats.rounds)),
            },
            text: speculative.text,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            plain, speculative, ..
        } = self;
        writeln!(f, "{:<24} {:>12} {:>12}", "", "speculative", "plain")?;
        let mut row = |name: &str, left: String, right: String| {
            writeln!(f, "{name:<24} {left:>12} {right:>12}")
        };
        row(
            "tokens",
            speculative.tokens.to_string(),
            plain.tokens.to_string(),
        )?;
        row(
            "tokens/s (decoding)",
            format!("{:.1}", speculative.tokens_per_second),
            format!("{:.1}", plain.tokens_per_second),
        )?;
        let none = String::new;
        let drafted = speculative.draft_tokens.to_string();
        row("draft tokens", drafted, none())?;
        let accepted = 100.0 * speculative.draft_acceptance_rate;
        row("draft acceptance rate", format!("{accepted:.1} %"), none())?;
        let length = format!("{:.2}", speculative.mean_acceptance_length);
        row("mean acceptance length", length, none())?;
        row("speedup", format!("{:.2}", self.speedup), none())?;
        let identical = if self.identical { "yes" } else { "NO" };
        row("identical", identical.to_owned(), none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::{Finished, SpeculationStats};

    fn answer(text: &str, token_ids: &[u32]) -> Answer {
        Answer {
            text: text.to_owned(),
            token_ids: token_ids.to_vec(),
            finished: Finished {
                speculation: Some(SpeculationStats {
                    rounds: 2,
                    draft_tokens: 8,
                    accepted_draft_tokens: 2,
                    ..SpeculationStats::default()
                }),
                ..Finished::default()
            },
            ..Answer::default()
        }
    }

    #[test]
    fn the_same_text_from_other_tokens_is_not_identical() {
        let plain = answer("ab", &[1, 2]);
        assert!(Report::new(answer("ab", &[1, 2]), &plain).identical);
        assert!(!Report::new(answer("ab", &[3]), &plain).identical);
        assert!(!Report::new(answer("aB", &[1, 2]), &plain).identical);
    }

    #[test]
    fn the_json_has_the_documented_keys() {
        let report = Report::new(answer("x", &[1, 2, 3, 4, 5]), &answer("x", &[1]));
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({
            "text": "x",
            "identical": false,
            "speedup": 0.0,
            "plain": { "tokens": 1, "tokens_per_second": 0.0 },
            "speculative": {
                "tokens": 5,
                "tokens_per_second": 0.0,
                "draft_tokens": 8,
                "accepted_draft_tokens": 2,
                "draft_acceptance_rate": 0.25,
                "mean_acceptance_length": 2.0,
            },
        });
        assert_eq!(json, expected);
    }
}
