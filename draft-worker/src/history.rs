//! What is committed of one sequence, and how much of it the cache in the engine holds.
//!
//! After a proposal the cache holds all committed tokens and the drafted ones but the last, which
//! was chosen and never fed. So after a full acceptance two tokens are due: that last one and the
//! bonus token. After a rejection the cache is cut back to what was accepted.

use speculation::{TokenId, common_prefix};
use worker::Fault;

/// What is committed of one sequence, and how much of it the cache holds.
#[derive(Debug, Clone)]
pub(crate) struct History {
    committed: Vec<TokenId>,
    /// The cache begins with this many committed tokens.
    fed: usize,
    /// What the cache holds after all committed tokens: drafted ones.
    ahead: Vec<TokenId>,
}

/// Work for the engine: cut the cache back to `keep` tokens, then feed `tokens`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Feed {
    pub(crate) keep: usize,
    pub(crate) tokens: Vec<TokenId>,
}

impl History {
    /// A sequence of `committed` tokens, none of which are fed. There is at least one.
    pub(crate) fn new(committed: Vec<TokenId>) -> Self {
        Self {
            committed,
            fed: 0,
            ahead: Vec::new(),
        }
    }

    /// Committed tokens.
    pub(crate) fn len(&self) -> usize {
        self.committed.len()
    }

    /// Adds `tokens`, which were committed after the first `base_len`.
    ///
    /// # Errors
    /// A desync where `base_len` is not what is committed.
    pub(crate) fn commit(&mut self, base_len: u32, tokens: &[TokenId]) -> Result<(), Fault> {
        if base_len as usize != self.committed.len() {
            return Err(Fault::desync(format!(
                "base_len is {base_len}, {} tokens are committed",
                self.committed.len()
            )));
        }
        if self.fed == self.committed.len() {
            self.fed += common_prefix(&self.ahead, tokens);
        }
        if self.ahead.starts_with(tokens) {
            self.ahead.drain(..tokens.len());
        } else {
            self.ahead.clear();
        }
        self.committed.extend_from_slice(tokens);
        Ok(())
    }

    /// The last committed token.
    pub(crate) fn last(&self) -> TokenId {
        self.committed.last().copied().unwrap_or_default()
    }

    /// What to feed before the next token after `line`, drafted tokens, can be drafted: at least the
    /// last one, after which the model chooses. Until [`drafted`](Self::drafted) says otherwise, the
    /// cache is sure to hold only what the feed keeps.
    pub(crate) fn feed(&mut self, line: &[TokenId]) -> Feed {
        let committed = self.committed.len();
        let held = match self.fed == committed {
            true => committed + common_prefix(&self.ahead, line),
            false => self.fed,
        };
        let keep = held.min(committed + line.len() - 1);
        self.fed = keep.min(committed);
        self.ahead = line[..keep.saturating_sub(committed)].to_vec();
        let due = self.committed[self.fed..].iter();
        Feed {
            keep,
            tokens: due.chain(&line[self.ahead.len()..]).copied().collect(),
        }
    }

    /// The cache is another one from now on, that of a fork: it is sure to hold the first `length`
    /// committed tokens.
    pub(crate) fn switched(&mut self, length: usize) {
        self.fed = length;
        self.ahead.clear();
    }

    /// What to feed so that only the last committed token is due; `None` where nothing else is.
    pub(crate) fn prefill(&self) -> Option<Feed> {
        let all_but_last = self.committed.len() - 1;
        (self.fed < all_but_last).then(|| Feed {
            keep: self.fed,
            tokens: self.committed[self.fed..all_but_last].to_vec(),
        })
    }

    /// The cache holds the first `length` committed tokens.
    pub(crate) fn prefilled(&mut self, length: usize) {
        self.fed = length;
    }

    /// All committed tokens were fed, and `proposal` follows them: all of it but its last token was fed.
    pub(crate) fn drafted(&mut self, proposal: &[TokenId]) {
        self.fed = self.committed.len();
        self.ahead.clear();
        if let Some((_never_fed, fed)) = proposal.split_last() {
            self.ahead.extend_from_slice(fed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::CloseReason;

    fn drafted(proposal: &[TokenId]) -> History {
        let mut history = History::new(vec![1, 2, 3]);
        history.feed(&[]);
        history.drafted(proposal);
        history
    }

    fn feed_of(mut history: History, new: &[TokenId]) -> (usize, Vec<TokenId>) {
        history.commit(3, new).expect("in step");
        let feed = history.feed(&[]);
        (feed.keep, feed.tokens)
    }

    #[test]
    fn after_a_full_acceptance_two_tokens_are_fed() {
        let feed = feed_of(drafted(&[4, 5, 6]), &[4, 5, 6, 7]);
        assert_eq!(feed, (5, vec![6, 7]));
    }

    #[test]
    fn after_a_rejection_the_cache_is_cut_to_what_was_accepted() {
        assert_eq!(feed_of(drafted(&[4, 5, 6]), &[9]), (3, vec![9]));
        assert_eq!(feed_of(drafted(&[4, 5, 6]), &[4, 9]), (4, vec![9]));
        assert_eq!(feed_of(drafted(&[4, 5, 6]), &[4, 5, 9]), (5, vec![9]));
    }

    #[test]
    fn the_last_committed_token_is_always_fed_again() {
        // Two of three drafted tokens were committed and nothing after them.
        assert_eq!(feed_of(drafted(&[4, 5, 6]), &[4, 5]), (4, vec![5]));
    }

    #[test]
    fn tokens_that_match_a_discarded_draft_are_fed_again() {
        let mut history = drafted(&[4, 5, 6]);
        history.commit(3, &[9]).expect("in step");
        // The cache still holds 4 and 5, at the places of other tokens now.
        history.commit(4, &[4, 5]).expect("in step");
        let feed = history.feed(&[]);
        assert_eq!((feed.keep, feed.tokens), (3, vec![9, 4, 5]));
    }

    #[test]
    fn what_is_left_of_a_line_is_kept_when_it_is_gone_on_with() {
        // The cache holds 4, 5 and 6 after 1, 2 and 3.
        let feed = |new: &[TokenId], rest: &[TokenId]| {
            let mut history = drafted(&[4, 5, 6, 7]);
            history.commit(3, new).expect("in step");
            let feed = history.feed(rest);
            (feed.keep, feed.tokens)
        };
        assert_eq!(feed(&[4], &[5, 6, 7]), (6, vec![7]));
        assert_eq!(feed(&[4], &[5, 6]), (5, vec![6]));
        assert_eq!(feed(&[4], &[5, 9]), (5, vec![9]));
        assert_eq!(feed(&[4, 5, 6], &[7]), (6, vec![7]));
        assert_eq!(feed(&[4, 5, 6, 7], &[]), (6, vec![7]));
        assert_eq!(feed(&[4, 9], &[5]), (4, vec![9, 5]));
    }

    #[test]
    fn a_line_that_was_not_gone_on_with_leaves_only_what_its_feed_kept() {
        let mut history = drafted(&[4, 5, 6]);
        history.commit(3, &[4]).expect("in step");
        assert_eq!(history.feed(&[5, 6]).keep, 5);
        history.commit(4, &[5, 6, 8]).expect("in step");
        let feed = history.feed(&[]);
        assert_eq!((feed.keep, feed.tokens), (5, vec![6, 8]));
    }

    #[test]
    fn a_fork_holds_what_it_began_with() {
        let mut history = drafted(&[4, 5, 6]);
        history.commit(3, &[4, 9]).expect("in step");
        history.switched(4);
        let mut other = history.clone();
        assert_eq!(
            history.feed(&[]),
            Feed {
                keep: 4,
                tokens: vec![9]
            }
        );
        // It fed the 9, and of what it drafted all but the last.
        other.drafted(&[10, 11]);
        other.commit(5, &[10, 11, 12]).expect("in step");
        let feed = other.feed(&[]);
        assert_eq!((feed.keep, feed.tokens), (6, vec![11, 12]));
    }

    #[test]
    fn several_commits_without_a_draft_are_fed_together() {
        let mut history = drafted(&[4, 5]);
        history.commit(3, &[4]).expect("in step");
        history.commit(4, &[7]).expect("in step");
        history.commit(5, &[8]).expect("in step");
        let feed = history.feed(&[]);
        assert_eq!((feed.keep, feed.tokens), (4, vec![7, 8]));
    }

    #[test]
    fn an_abandoned_draft_leaves_only_what_its_feed_kept() {
        let mut history = drafted(&[4, 5, 6]);
        history.commit(3, &[4, 9]).expect("in step");
        assert_eq!(history.feed(&[]).keep, 4);
        // The draft after this feed is dropped: nothing says how far the engine came.
        history.commit(5, &[10]).expect("in step");
        let feed = history.feed(&[]);
        assert_eq!((feed.keep, feed.tokens), (4, vec![9, 10]));
    }

    #[test]
    fn another_base_is_a_desync_and_changes_nothing() {
        let mut history = drafted(&[4]);
        for base in [0, 2, 4, u32::MAX] {
            let fault = history.commit(base, &[1]).expect_err("a gap");
            assert_eq!(fault.reason, CloseReason::Desync);
        }
        assert_eq!(history.len(), 3);
    }

    #[test]
    fn a_prefill_leaves_the_last_token() {
        let mut history = History::new(vec![1, 2, 3]);
        let feed = history.prefill().expect("two are due");
        assert_eq!((feed.keep, feed.tokens), (0, vec![1, 2]));
        history.prefilled(2);
        assert_eq!(history.prefill(), None);
        assert_eq!(History::new(vec![1]).prefill(), None);
    }
}
