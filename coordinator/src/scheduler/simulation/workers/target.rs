//! The simulated target.

use super::{Epochs, Held, Sequence, check_decoding, check_epoch, check_laws, closed, logprobs};
use crate::scheduler::SequenceId;
use crate::scheduler::simulation::{Law, VOCABULARY};
use proto::v1::{
    CloseReason, Closed, TargetCommand, TargetEvent, TargetOpened, Verdict, VerdictBatch,
    VerificationRule, VerifyItem, target_command::Command, target_event::Event,
};
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct FakeTarget {
    pub(crate) up: bool,
    /// Takes commands and does nothing.
    pub(crate) hung: bool,
    pub(crate) max_sequences: usize,
    /// The next so many opens are answered by a close.
    pub(crate) refuses: VecDeque<CloseReason>,
    /// The field that those name.
    pub(crate) refused_field: String,
    /// The next so many answers lack log-probabilities.
    pub(crate) forgets: usize,
    /// Proposals may come without laws.
    pub(crate) lawless: bool,
    /// How many tokens that do not exist were proposed to it, under the rules with laws.
    pub(crate) unknown: usize,
    pub(crate) inbox: VecDeque<TargetCommand>,
    pub(crate) outbox: VecDeque<TargetEvent>,
    pub(crate) said: Vec<TargetEvent>,
    pub(crate) held: Held,
    epochs: Epochs,
}

impl Default for FakeTarget {
    fn default() -> Self {
        Self {
            up: false,
            hung: false,
            max_sequences: 8,
            refuses: VecDeque::new(),
            refused_field: String::new(),
            forgets: 0,
            lawless: false,
            unknown: 0,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            said: Vec::new(),
            held: Held::new(),
            epochs: Epochs::new(),
        }
    }
}

impl FakeTarget {
    pub(crate) fn die(&mut self) {
        self.up = false;
        self.inbox.clear();
        self.outbox.clear();
        self.held.clear();
    }

    /// Takes one command.
    pub(crate) fn work(&mut self, law: &Law) -> bool {
        if self.hung {
            return false;
        }
        let Some(command) = self.inbox.pop_front() else {
            return false;
        };
        match command.command.unwrap() {
            Command::Open(open) => {
                let id = open.sequence;
                assert!(!self.held.contains_key(&id), "a sequence is opened once");
                check_epoch(&mut self.epochs, id, open.epoch);
                if let Some(reason) = self.refuses.pop_front() {
                    self.say_closed(id, open.epoch, reason);
                    return true;
                }
                assert!(self.held.len() < self.max_sequences, "the limit is kept");
                let next_token = law.next(&open.token_ids);
                let said = open
                    .logprobs
                    .map(|_| logprobs(next_token, open.token_ids.len()));
                let said = said.filter(|_| !self.forgets_now());
                self.say(Event::Opened(TargetOpened {
                    sequence: id,
                    epoch: open.epoch,
                    base_len: open.token_ids.len() as u32,
                    next_token,
                    logprobs: said,
                    cached_tokens: 0,
                }));
                let sequence = Sequence {
                    epoch: open.epoch,
                    tokens: [open.token_ids, vec![next_token]].concat(),
                    rule: check_decoding(open.decoding.as_ref(), id),
                    logprobs: open.logprobs.is_some(),
                };
                self.held.insert(id, sequence);
            }
            Command::Verify(batch) => {
                let items = batch
                    .items
                    .into_iter()
                    .filter_map(|item| self.verify(item, law));
                let items = items.collect();
                self.say(Event::Verdicts(VerdictBatch {
                    step: batch.step,
                    items,
                    compute_us: 1,
                }));
            }
            Command::Close(close) => {
                self.held.remove(&close.sequence);
            }
        }
        true
    }

    fn verify(&mut self, item: VerifyItem, law: &Law) -> Option<Verdict> {
        let id = item.sequence;
        assert!(item.draft_ids.len() <= 8);
        let forgets = self.forgets_now();
        let held = self.held.get_mut(&id);
        let Some(held) = held.filter(|held| held.epoch == item.epoch) else {
            // Dropped by this worker a moment ago, which the scheduler could not know.
            self.say_closed(id, item.epoch, CloseReason::Desync);
            return None;
        };
        let tokens = &mut held.tokens;
        assert_eq!(
            item.base_len as usize,
            tokens.len(),
            "the target's view is the scheduler's"
        );
        check_laws(&item, held.rule, self.lawless);
        if held.rule != VerificationRule::Coupled {
            let ids = item.draft_ids.iter();
            self.unknown += ids.filter(|token| **token >= VOCABULARY).count();
        }
        let mut accepted = 0;
        for token in &item.draft_ids {
            if law.next(tokens) != *token {
                break;
            }
            tokens.push(*token);
            accepted += 1;
        }
        let next_token = law.next(tokens);
        tokens.push(next_token);
        let base_len = item.base_len as usize;
        let new = tokens.iter().enumerate().skip(base_len);
        let said = new.map(|(at, token)| logprobs(*token, at));
        Some(Verdict {
            sequence: id,
            epoch: held.epoch,
            base_len: item.base_len,
            accepted,
            next_token,
            logprobs: said.filter(|_| held.logprobs && !forgets).collect(),
        })
    }

    fn forgets_now(&mut self) -> bool {
        let forgets = self.forgets > 0;
        self.forgets -= usize::from(forgets);
        forgets
    }

    /// Drops a sequence, as a worker short of memory does.
    pub(crate) fn drop_one(&mut self) {
        if let Some((id, held)) = self.held.pop_first() {
            self.say_closed(id, held.epoch, CloseReason::Evicted);
        }
    }

    fn say_closed(&mut self, sequence: SequenceId, epoch: u32, reason: CloseReason) {
        let field = self.refused_field.clone();
        let closed = closed(sequence, epoch, reason);
        self.say(Event::Closed(Closed { field, ..closed }));
    }

    fn say(&mut self, event: Event) {
        let event = TargetEvent { event: Some(event) };
        self.said.push(event.clone());
        self.outbox.push_back(event);
    }
}
