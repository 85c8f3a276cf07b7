//! A simulated draft worker.

use super::{Epochs, Held, Sequence, check_decoding, check_epoch, closed, law_of};
use crate::scheduler::simulation::{Law, VOCABULARY};
use proto::v1::{
    CloseReason, DraftCommand, DraftCommit, DraftEvent, DraftLaws, DraftOpen, DraftOpened,
    Proposal, VerificationRule,
};
use rand::Rng as _;
use rand::rngs::StdRng;
use speculation::TokenId;
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct FakeDraft {
    pub(crate) up: bool,
    pub(crate) hung: bool,
    /// How often a proposed token is the target's own.
    agreement: f64,
    /// Proposes too many tokens, and some that do not exist.
    pub(crate) garbage: bool,
    pub(crate) max_sequences: usize,
    pub(crate) refuses: VecDeque<CloseReason>,
    pub(crate) inbox: VecDeque<DraftCommand>,
    pub(crate) outbox: VecDeque<DraftEvent>,
    pub(crate) said: Vec<DraftEvent>,
    pub(crate) held: Held,
    epochs: Epochs,
    /// Everything that it was ever told to do.
    pub(crate) told: usize,
}

impl FakeDraft {
    pub(crate) fn new(agreement: f64) -> Self {
        Self {
            up: false,
            hung: false,
            agreement,
            garbage: false,
            max_sequences: 8,
            refuses: VecDeque::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            said: Vec::new(),
            held: Held::new(),
            epochs: Epochs::new(),
            told: 0,
        }
    }

    pub(crate) fn die(&mut self) {
        self.up = false;
        self.inbox.clear();
        self.outbox.clear();
        self.held.clear();
    }

    /// Takes one frame.
    pub(crate) fn work(&mut self, law: &Law, random: &mut StdRng) -> bool {
        if self.hung {
            return false;
        }
        let Some(command) = self.inbox.pop_front() else {
            return false;
        };
        self.told += 1;
        let mut event = DraftEvent::default();
        for open in command.opens {
            self.open(open, &mut event);
        }
        for commit in command.commits {
            event.proposals.extend(self.commit(commit, law, random));
        }
        for id in command.closes {
            self.held.remove(&id);
        }
        self.said.push(event.clone());
        self.outbox.push_back(event);
        true
    }

    fn open(&mut self, open: DraftOpen, event: &mut DraftEvent) {
        let (sequence, epoch) = (open.sequence, open.epoch);
        assert!(
            !self.held.contains_key(&sequence),
            "a sequence is opened once"
        );
        check_epoch(&mut self.epochs, sequence, epoch);
        if let Some(reason) = self.refuses.pop_front() {
            event.closed.push(closed(sequence, epoch, reason));
            return;
        }
        assert!(self.held.len() < self.max_sequences, "the limit is kept");
        event.opened.push(DraftOpened {
            sequence,
            epoch,
            base_len: open.token_ids.len() as u32,
        });
        let held = Sequence {
            epoch,
            rule: check_decoding(open.decoding.as_ref(), sequence),
            tokens: open.token_ids,
            logprobs: false,
        };
        self.held.insert(sequence, held);
    }

    fn commit(&mut self, commit: DraftCommit, law: &Law, random: &mut StdRng) -> Option<Proposal> {
        let held = self.held.get_mut(&commit.sequence)?;
        if held.epoch != commit.epoch {
            assert!(commit.epoch < held.epoch, "epochs grow");
            return None;
        }
        let (epoch, rule, tokens) = (held.epoch, held.rule, &mut held.tokens);
        assert_eq!(
            commit.base_len as usize,
            tokens.len(),
            "no token is left out or sent twice"
        );
        assert!(!commit.token_ids.is_empty() && (1..=8).contains(&commit.want));
        tokens.extend(commit.token_ids);
        let tokens = tokens.clone();
        let surplus = if self.garbage {
            random.random_range(0..30)
        } else {
            0
        };
        let mut guess = tokens.clone();
        for _ in 0..commit.want + surplus {
            guess.push(self.guess(&guess, law, random));
        }
        Some(Proposal {
            sequence: commit.sequence,
            epoch,
            base_len: tokens.len() as u32,
            draft_ids: guess[tokens.len()..].to_vec(),
            compute_us: 1,
            laws: self.laws(&guess, tokens.len(), rule, random),
            ..Proposal::default()
        })
    }

    fn laws(
        &self,
        guess: &[TokenId],
        base_len: usize,
        rule: VerificationRule,
        random: &mut StdRng,
    ) -> Option<DraftLaws> {
        let certain = self.garbage && random.random_bool(0.2);
        if certain || (rule == VerificationRule::Coupled && !self.garbage) {
            return None;
        }
        let laws = guess.iter().enumerate().skip(base_len);
        let laws: Vec<_> = laws.map(|(at, token)| law_of(*token, at)).collect();
        let mut laws = DraftLaws::from(&laws[..]);
        if self.garbage && random.random_bool(0.2) {
            laws.counts.pop();
        }
        Some(laws)
    }

    fn guess(&self, prefix: &[TokenId], law: &Law, random: &mut StdRng) -> TokenId {
        if self.garbage && random.random_bool(0.2) {
            TokenId::MAX
        } else if random.random_bool(self.agreement) {
            law.next(prefix)
        } else {
            1 + law.next(prefix) % (VOCABULARY - 1)
        }
    }

    pub(crate) fn drop_one(&mut self) {
        if let Some((id, held)) = self.held.pop_first() {
            let closed = vec![closed(id, held.epoch, CloseReason::Evicted)];
            self.outbox.push_back(DraftEvent {
                closed,
                ..DraftEvent::default()
            });
        }
    }
}
