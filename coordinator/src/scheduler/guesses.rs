//! What may follow a sequence's committed tokens: strings that draft workers drafted.
//!
//! A proposal that was drafted after the committed tokens, one that comes late, what is left of one
//! after a part of it was committed, and the outcomes that a worker followed while a proposal was
//! verified are all the same thing here: a string that is kept as long as it agrees with what is
//! committed. Only under the rule `coupled` is more than the one exact proposal kept: under the
//! others a choice among strings that depends on their tokens would change the law.

use super::proposals::Drafted;
use speculation::control::Round;
use speculation::{TokenId, common_prefix};

/// The most strings kept for one sequence: all outcomes of the longest proposal at the greatest width.
const MAX_GUESSES: usize = 17 * 16 + 1;

/// One string.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Guess {
    pub(super) drafted: Drafted,
    /// So many of its first tokens are an outcome that was presumed; the others were drafted after it.
    pub(super) assumed: usize,
    /// Which of the draft's candidates the outcome's last token was, from 1; 0 where none is assumed.
    pub(super) rank: u32,
    /// How many tokens the worker was asked for after the outcome.
    pub(super) wanted: usize,
}

/// All strings of one sequence, the newest last.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    strings: Vec<Guess>,
}

/// What a commit showed of the outcomes that were followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Which candidate the committed token was; none where it was not among those followed.
    pub(super) rank: Option<usize>,
    /// How many candidates were followed at that position.
    pub(super) followed: usize,
}

impl Guesses {
    /// Keeps `guess`, which follows the committed tokens. False where there are too many already.
    pub(super) fn add(&mut self, guess: Guess) -> bool {
        let fits = self.strings.len() < MAX_GUESSES;
        if fits && !guess.drafted.ids.is_empty() {
            self.strings.push(guess);
        }
        fits
    }

    /// Takes in that `run` was committed, of which the last token was the target's own: keeps the
    /// strings that go on after it. Tells what became of the outcomes that end with its last token.
    pub(super) fn commit(&mut self, run: &[TokenId]) -> Option<Outcome> {
        let outcome = self.outcome(run);
        self.strings.retain_mut(|guess| guess.advance(run));
        outcome
    }

    fn outcome(&self, run: &[TokenId]) -> Option<Outcome> {
        let (next, accepted) = run.split_last()?;
        // A proposal that was cut before verification may have gone on just so.
        let goes_on = |guess: &Guess| guess.assumed == 0 && guess.drafted.ids.starts_with(run);
        if self.strings.iter().any(goes_on) {
            return None;
        }
        let mut outcome = Outcome {
            rank: None,
            followed: 0,
        };
        for guess in &self.strings {
            if guess.assumed == run.len() && guess.drafted.ids.starts_with(accepted) {
                outcome.followed += 1;
                if guess.drafted.ids[accepted.len()] == *next {
                    outcome.rank = Some(guess.rank as usize);
                }
            }
        }
        (outcome.followed > 0).then_some(outcome)
    }

    /// The longest string of which no outcome is left to presume, the newest of several.
    pub(super) fn best(&self) -> Option<&Guess> {
        let certain = self.strings.iter().filter(|guess| guess.assumed == 0);
        certain.max_by_key(|guess| guess.drafted.ids.len())
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.strings.clear();
    }
}

impl Guess {
    /// What `run` says of it where it was not verified and is wrong; none where it may be right.
    pub(super) fn refuted_by(&self, run: &[TokenId]) -> Option<Round> {
        let ids = &self.drafted.ids;
        let agree = common_prefix(ids, run);
        (agree < run.len().min(ids.len())).then_some(Round {
            wanted: self.wanted,
            drafted: ids.len(),
            verified: ids.len(),
            accepted: agree,
        })
    }

    /// Cuts `run` off its beginning; false where it does not begin so, or nothing is left.
    pub(super) fn advance(&mut self, run: &[TokenId]) -> bool {
        let ids = &mut self.drafted.ids;
        // Laws are of the tokens in place: a string with laws is good for one verification.
        if self.drafted.laws.is_some()
            || ids.len() <= run.len()
            || common_prefix(ids, run) < run.len()
        {
            return false;
        }
        self.drafted.cut(run.len());
        self.wanted = if self.assumed >= run.len() {
            self.wanted
        } else {
            self.wanted.saturating_sub(run.len() - self.assumed)
        };
        self.assumed = self.assumed.saturating_sub(run.len());
        if self.assumed == 0 {
            self.rank = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(ids: &[TokenId], assumed: usize, rank: u32) -> Guess {
        Guess {
            drafted: Drafted {
                ids: ids.to_vec(),
                ..Drafted::default()
            },
            assumed,
            rank,
            wanted: ids.len() - assumed,
        }
    }

    fn guesses(all: &[(&[TokenId], usize, u32)]) -> Guesses {
        let mut guesses = Guesses::default();
        for (ids, assumed, rank) in all {
            assert!(guesses.add(guess(ids, *assumed, *rank)));
        }
        guesses
    }

    fn best(guesses: &Guesses) -> Option<&[TokenId]> {
        guesses.best().map(|guess| &guess.drafted.ids[..])
    }

    #[test]
    fn a_commit_keeps_what_goes_on_after_it() {
        let mut kept = guesses(&[
            (&[1, 2, 3], 0, 0),
            (&[1, 9, 4, 5], 2, 2),
            (&[1, 8, 6, 7, 6], 2, 3),
            (&[1, 2, 3, 4, 5], 4, 1),
        ]);
        assert_eq!(
            best(&kept),
            Some(&[1, 2, 3][..]),
            "outcomes are not known yet"
        );
        let outcome = kept.commit(&[1, 9]);
        assert_eq!(
            outcome,
            Some(Outcome {
                rank: Some(2),
                followed: 2
            })
        );
        assert_eq!(best(&kept), Some(&[4, 5][..]));
        assert_eq!(kept.commit(&[7]), None, "no outcome was followed there");
        assert_eq!(best(&kept), None);
    }

    #[test]
    fn what_a_shorter_commit_leaves_of_a_proposal_is_one() {
        let mut kept = guesses(&[(&[1, 2, 3, 4], 0, 0)]);
        kept.commit(&[1]);
        kept.commit(&[2, 3]);
        assert_eq!(best(&kept), Some(&[4][..]));
        kept.commit(&[4]);
        assert_eq!(best(&kept), None, "nothing is left of it");
    }

    #[test]
    fn an_outcome_that_is_half_committed_stays_presumed() {
        let mut kept = guesses(&[(&[1, 2, 9, 5, 6], 3, 2)]);
        kept.commit(&[1]);
        assert_eq!(best(&kept), None);
        kept.commit(&[2, 9]);
        assert_eq!(best(&kept), Some(&[5, 6][..]));
    }

    #[test]
    fn there_is_a_bound() {
        let mut kept = Guesses::default();
        let took = (0..1000).filter(|id| kept.add(guess(&[*id], 0, 0))).count();
        assert_eq!(took, MAX_GUESSES);
    }
}
