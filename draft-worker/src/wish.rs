//! What a commit asks for, checked.

use proto::v1::DraftCommit;
use speculation::Rule;
use worker::{Fault, Limits};

/// The most outcomes that are followed at one position.
const MAX_WIDTH: u32 = 16;

/// What a commit asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Wish {
    /// Tokens to propose; 0 for none.
    pub(crate) want: usize,
    /// A proposal ends before the first token that is less likely.
    pub(crate) min_confidence: f64,
    /// How to draft ahead, where that is wanted.
    pub(crate) ahead: Option<Ahead>,
}

/// How outcomes of the verification under way are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Tokens after each outcome. At least one.
    pub(crate) want: usize,
    /// Outcomes at each position, 1 to 16.
    pub(crate) width: usize,
}

impl Wish {
    /// Numbers that are too large are cut to what the worker does.
    ///
    /// # Errors
    /// Names the field that makes no sense.
    pub(crate) fn parse(commit: &DraftCommit, rule: Rule, limits: &Limits) -> Result<Self, Fault> {
        let least = commit.min_confidence;
        if !(0.0..1.0).contains(&least) {
            return Err(Fault::invalid(format!(
                "min_confidence must be from 0 to below 1, not {least}"
            )));
        }
        let tokens = |count: u32| (count as usize).min(limits.max_draft_tokens);
        let ahead = Ahead {
            want: tokens(commit.ahead_want),
            width: commit.ahead_width.min(MAX_WIDTH) as usize,
        };
        let is_ahead = commit.want > 0 && ahead.want > 0 && ahead.width > 0;
        Ok(Self {
            want: tokens(commit.want),
            min_confidence: f64::from(least),
            ahead: (is_ahead && rule == Rule::Coupled).then_some(ahead),
        })
    }

    /// How many candidates are noted at each position of a line: its own token, and those that are
    /// followed in its place.
    pub(crate) fn candidates(&self) -> usize {
        let wide = self.ahead.filter(|ahead| ahead.width > 1);
        wide.map_or(1, |ahead| ahead.width + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::CloseReason;

    const LIMITS: Limits = Limits {
        tokenizer_size: 10,
        context_length: 100,
        max_sequences: 1,
        max_draft_tokens: 8,
    };

    fn commit(want: u32, ahead_want: u32, ahead_width: u32, min_confidence: f32) -> DraftCommit {
        DraftCommit {
            want,
            ahead_want,
            ahead_width,
            min_confidence,
            ..DraftCommit::default()
        }
    }

    fn parse(commit: &DraftCommit) -> Wish {
        Wish::parse(commit, Rule::Coupled, &LIMITS).expect("valid")
    }

    #[test]
    fn what_is_too_much_is_cut_to_what_the_worker_does() {
        let wish = parse(&commit(u32::MAX, u32::MAX, u32::MAX, 0.5));
        let ahead = Ahead { want: 8, width: 16 };
        assert_eq!((wish.want, wish.ahead), (8, Some(ahead)));
        assert_eq!(wish.candidates(), 17);
        assert_eq!(parse(&commit(4, 4, 1, 0.0)).candidates(), 1);
    }

    #[test]
    fn nothing_is_drafted_ahead_without_all_that_it_takes() {
        for (want, ahead_want, ahead_width) in [(0, 2, 2), (2, 0, 2), (2, 2, 0)] {
            let wish = parse(&commit(want, ahead_want, ahead_width, 0.0));
            assert_eq!(wish.ahead, None);
        }
        for rule in [Rule::Token, Rule::Block] {
            let wish = Wish::parse(&commit(2, 2, 2, 0.0), rule, &LIMITS).expect("valid");
            assert_eq!((wish.want, wish.ahead), (2, None));
        }
    }

    #[test]
    fn a_confidence_that_is_none_is_refused_by_name() {
        for least in [-0.1, 1.0, f32::NAN, f32::INFINITY] {
            let wrong = Wish::parse(&commit(1, 0, 0, least), Rule::Token, &LIMITS);
            let fault = wrong.expect_err("wrong");
            assert_eq!(fault.reason, CloseReason::Invalid);
            assert!(fault.detail.starts_with("min_confidence"), "{fault}");
        }
    }
}
