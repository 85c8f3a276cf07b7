//! What may come of the verification that is under way: outcomes of a line, each followed by a fork of
//! the sequence.
//!
//! The target accepts some of the line and then chooses a token of its own: in place of one of the line, or
//! after all of it. Which one, the draft can guess well: under the rule `coupled` it knows the target's noise. An
//! outcome is such a guess: the accepted tokens and the chosen one, its path. All outcomes of a line are drafted
//! side by side, as many steps each, so that they cost the rows of a batch and not the time of each.

use crate::line::Line;
use crate::proposer::{Drafted, Pick};
use crate::sequence::Slot;
use crate::wish::Ahead;
use speculation::TokenId;
use std::sync::Arc;
use tokio_util::sync::DropGuard;
use worker::Fault;

/// The most outcomes that are followed of one line.
const MAX_OUTCOMES: usize = 144;

/// How an outcome's draft begins: a fork keeps some tokens, and feeds one more.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// The path, as far as it is known: the last token may be still to be picked.
    path: Vec<TokenId>,
    /// Which of the draft's candidates the last token of the path is.
    rank: usize,
    pub(crate) pick: Option<Pick>,
    pub(crate) keep: usize,
    pub(crate) feed: TokenId,
    /// Tokens to decode, the one that is picked included.
    pub(crate) count: usize,
}

/// A line whose outcomes are to be followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) line: &'a Line,
    /// Committed tokens before it.
    pub(crate) base: usize,
    /// The last of those.
    pub(crate) last: TokenId,
    /// The longest sequence.
    pub(crate) context: usize,
    /// What ends a text: nothing follows.
    pub(crate) ends: &'a [TokenId],
}

/// An outcome that is followed. Dropped, its draft is abandoned and its fork is gone.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) id: u64,
    start: Start,
    /// The fork.
    pub(crate) slot: Slot,
    /// Abandons its draft.
    pub(crate) guard: DropGuard,
    /// What it drafted, once that is done.
    pub(crate) line: Option<Line>,
}

/// An outcome whose draft is done.
#[derive(Debug)]
pub(crate) struct Foreseen {
    /// The tokens that are presumed.
    pub(crate) assumed: Vec<TokenId>,
    /// Which of the draft's candidates the last of them is.
    pub(crate) rank: usize,
    pub(crate) line: Line,
}

/// The outcomes of one line that are followed.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Vec<Outcome>);

impl Ground<'_> {
    /// The outcomes that are worth following, the likeliest candidates of all positions first.
    pub(crate) fn starts(self, ahead: Ahead) -> Vec<Start> {
        let ranks = 1..=ahead.width;
        let of_rank = |rank| {
            let own = self.after_all(rank, ahead);
            let others =
                (0..self.line.len()).filter_map(move |at| self.instead(at, rank + 1, ahead));
            own.into_iter().chain(others)
        };
        ranks.flat_map(of_rank).take(MAX_OUTCOMES).collect()
    }

    /// The outcome in which all of the line is accepted. Its first step brings the token after that.
    fn after_all(self, rank: usize, ahead: Ahead) -> Option<Start> {
        let Self { line, base, .. } = self;
        let feed = line.ids.last().copied().unwrap_or(self.last);
        let count = ahead.want.min(self.room(line.len()));
        let is_followed = count > 1 && !self.ends.contains(&feed);
        is_followed.then(|| Start {
            path: line.ids.clone(),
            rank,
            pick: Some(Pick {
                rank,
                token: Arc::default(),
            }),
            keep: base + line.len() - 1,
            feed,
            count,
        })
    }

    /// The outcome in which `at` tokens are accepted and then comes another one than the line's.
    fn instead(self, at: usize, rank: usize, ahead: Ahead) -> Option<Start> {
        let token = *self.line.candidates.get(at)?.get(rank - 1)?;
        let count = ahead.want.min(self.room(at + 1));
        let is_followed = count > 0 && !self.ends.contains(&token);
        is_followed.then(|| Start {
            path: [&self.line.ids[..at], &[token]].concat(),
            rank,
            pick: None,
            keep: self.base + at,
            feed: token,
            count,
        })
    }

    /// How many tokens there is room for after `len` that follow the committed ones.
    fn room(self, len: usize) -> usize {
        self.context.saturating_sub(self.base + len)
    }
}

impl Outcome {
    pub(crate) fn new(id: u64, start: Start, slot: Slot, guard: DropGuard) -> Self {
        Self {
            id,
            start,
            slot,
            guard,
            line: None,
        }
    }

    /// How many tokens the fork is sure to hold.
    pub(crate) fn keep(&self) -> usize {
        self.start.keep
    }

    /// The whole path; none where its last token is not known yet.
    fn path(&self) -> Option<Vec<TokenId>> {
        let mut path = self.start.path.clone();
        if let Some(pick) = &self.start.pick {
            path.push(*pick.token.get()?);
        }
        Some(path)
    }
}

impl Outcomes {
    pub(crate) fn push(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    /// The outcome that came about, where it is followed. All others are dropped.
    pub(crate) fn take(self, run: &[TokenId]) -> Option<Outcome> {
        let mut outcomes = self.0.into_iter();
        outcomes.find(|outcome| outcome.path().is_some_and(|path| path == run))
    }

    /// Notes what was drafted; none where that is nothing, or where the draft failed: the outcome is not
    /// followed any more then.
    pub(crate) fn settle(&mut self, id: u64, result: Result<Drafted, Fault>) -> Option<Foreseen> {
        let place = self.0.iter().position(|outcome| outcome.id == id)?;
        let outcome = &mut self.0[place];
        let line = match result {
            Ok(Drafted { line, .. }) if line.len() > 0 => line,
            Ok(_) => return self.forget(place),
            Err(fault) => {
                tracing::debug!(%fault, "an outcome is not followed");
                return self.forget(place);
            }
        };
        outcome.line = Some(line.clone());
        let assumed = outcome.path()?;
        let rank = outcome.start.rank;
        Some(Foreseen {
            assumed,
            rank,
            line,
        })
    }

    fn forget(&mut self, place: usize) -> Option<Foreseen> {
        self.0.swap_remove(place);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Ahead = Ahead { want: 4, width: 2 };

    fn line() -> Line {
        let mut line = Line::default();
        line.push(vec![7, 1, 2], 1.0);
        line.push(vec![8, 3, 4], 1.0);
        line
    }

    /// Path, rank, tokens kept, token fed, tokens to decode.
    type Told = (Vec<TokenId>, usize, usize, TokenId, usize);

    fn starts(line: &Line, context: usize, ends: &[TokenId], ahead: Ahead) -> Vec<Told> {
        let ground = Ground {
            line,
            base: 10,
            last: 6,
            context,
            ends,
        };
        let starts = ground.starts(ahead).into_iter();
        starts
            .map(|start| (start.path, start.rank, start.keep, start.feed, start.count))
            .collect()
    }

    #[test]
    fn the_likeliest_candidates_of_all_positions_come_first() {
        let expected = [
            (vec![7, 8], 1, 11, 8, 4),
            (vec![1], 2, 10, 1, 4),
            (vec![7, 3], 2, 11, 3, 4),
            (vec![7, 8], 2, 11, 8, 4),
            (vec![2], 3, 10, 2, 4),
            (vec![7, 4], 3, 11, 4, 4),
        ];
        assert_eq!(starts(&line(), 100, &[], AHEAD), expected);
    }

    #[test]
    fn a_width_of_one_follows_the_lines_own_end_alone() {
        let mut narrow = Line::default();
        narrow.push(vec![7], 1.0);
        let ahead = Ahead { want: 4, width: 1 };
        assert_eq!(starts(&narrow, 100, &[], ahead), [(vec![7], 1, 10, 7, 4)]);
        let nothing = Line::default();
        assert_eq!(starts(&nothing, 100, &[], ahead), [(vec![], 1, 9, 6, 4)]);
    }

    #[test]
    fn nothing_follows_the_end_of_a_text() {
        let paths = |ends: &[TokenId]| -> Vec<_> {
            let all = starts(&line(), 100, ends, AHEAD).into_iter();
            all.map(|start| start.0).collect()
        };
        assert_eq!(paths(&[8]), [vec![1], vec![7, 3], vec![2], vec![7, 4]]);
        assert_eq!(
            paths(&[1, 4]),
            [vec![7, 8], vec![7, 3], vec![7, 8], vec![2]]
        );
    }

    #[test]
    fn nothing_is_drafted_past_the_end_of_the_context() {
        let counts = |context| -> Vec<_> {
            let all = starts(&line(), context, &[], AHEAD).into_iter();
            all.map(|start| (start.0.len(), start.4)).collect()
        };
        // At 14 there is room for two tokens after the line.
        assert_eq!(counts(14)[..3], [(2, 2), (1, 3), (2, 2)]);
        assert_eq!(counts(13)[..2], [(1, 2), (2, 1)]);
        assert!(counts(11).is_empty());
    }

    #[test]
    fn no_line_has_more_outcomes_than_the_most() {
        let mut long = Line::default();
        for id in 0..16 {
            long.push((id * 20..id * 20 + 17).collect(), 1.0);
        }
        let ahead = Ahead { want: 4, width: 16 };
        assert_eq!(starts(&long, 1000, &[], ahead).len(), MAX_OUTCOMES);
    }
}
