//! Simulated workers. They check what the scheduler sends as strictly as real ones.

use super::{Law, SequenceId, VOCABULARY};
use proto::v1::{
    CloseReason, Closed, DraftCommand, DraftCommit, DraftEvent, DraftOpen, DraftOpened, Proposal,
    TargetCommand, TargetEvent, TargetOpened, Verdict, VerdictBatch, VerifyBatch, VerifyItem,
    target_command::Command, target_event::Event,
};
use rand::Rng as _;
use rand::rngs::StdRng;
use speculation::TokenId;
use std::collections::{BTreeMap, VecDeque};

/// A sequence at a worker: its epoch and its tokens.
type Held = BTreeMap<SequenceId, (u32, Vec<TokenId>)>;

/// The last epoch of each sequence, over all connections.
type Epochs = BTreeMap<SequenceId, u32>;

fn check_epoch(epochs: &mut Epochs, sequence: SequenceId, epoch: u32) {
    let last = epochs.insert(sequence, epoch);
    assert!(last < Some(epoch), "epochs grow: {epoch} after {last:?}");
}

#[derive(Debug)]
pub(super) struct FakeTarget {
    pub(super) up: bool,
    /// Takes commands and does nothing.
    pub(super) hung: bool,
    pub(super) max_sequences: usize,
    /// The next so many opens are answered by a close.
    pub(super) refuses: VecDeque<CloseReason>,
    pub(super) inbox: VecDeque<TargetCommand>,
    pub(super) outbox: VecDeque<TargetEvent>,
    pub(super) said: Vec<TargetEvent>,
    pub(super) held: Held,
    epochs: Epochs,
}

impl Default for FakeTarget {
    fn default() -> Self {
        Self {
            up: false,
            hung: false,
            max_sequences: 8,
            refuses: VecDeque::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            said: Vec::new(),
            held: Held::new(),
            epochs: Epochs::new(),
        }
    }
}

impl FakeTarget {
    pub(super) fn die(&mut self) {
        self.up = false;
        self.inbox.clear();
        self.outbox.clear();
        self.held.clear();
    }

    /// Takes one command.
    pub(super) fn work(&mut self, law: &Law) -> bool {
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
                self.say(Event::Opened(TargetOpened {
                    sequence: id,
                    epoch: open.epoch,
                    base_len: open.token_ids.len() as u32,
                    next_token,
                }));
                let tokens = [open.token_ids, vec![next_token]].concat();
                self.held.insert(id, (open.epoch, tokens));
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
        assert!(
            item.draft_ids.len() <= 8 && item.draft_ids.iter().all(|token| *token < VOCABULARY)
        );
        let Some((epoch, tokens)) = self.held.get_mut(&id).filter(|held| held.0 == item.epoch)
        else {
            // Dropped by this worker a moment ago, which the scheduler could not know.
            self.say_closed(id, item.epoch, CloseReason::Desync);
            return None;
        };
        assert_eq!(
            item.base_len as usize,
            tokens.len(),
            "the target's view is the scheduler's"
        );
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
        Some(Verdict {
            sequence: id,
            epoch: *epoch,
            base_len: item.base_len,
            accepted,
            next_token,
        })
    }

    /// Drops a sequence, as a worker short of memory does.
    pub(super) fn drop_one(&mut self) {
        if let Some((id, (epoch, _))) = self.held.pop_first() {
            self.say_closed(id, epoch, CloseReason::Evicted);
        }
    }

    fn say_closed(&mut self, sequence: SequenceId, epoch: u32, reason: CloseReason) {
        self.say(Event::Closed(closed(sequence, epoch, reason)));
    }

    fn say(&mut self, event: Event) {
        let event = TargetEvent { event: Some(event) };
        self.said.push(event.clone());
        self.outbox.push_back(event);
    }
}

#[derive(Debug)]
pub(super) struct FakeDraft {
    pub(super) up: bool,
    pub(super) hung: bool,
    /// How often a proposed token is the target's own.
    agreement: f64,
    /// Proposes too many tokens, and some that do not exist.
    pub(super) garbage: bool,
    pub(super) max_sequences: usize,
    pub(super) refuses: VecDeque<CloseReason>,
    pub(super) inbox: VecDeque<DraftCommand>,
    pub(super) outbox: VecDeque<DraftEvent>,
    pub(super) said: Vec<DraftEvent>,
    pub(super) held: Held,
    epochs: Epochs,
    /// Everything that it was ever told to do.
    pub(super) told: usize,
}

impl FakeDraft {
    pub(super) fn new(agreement: f64) -> Self {
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

    pub(super) fn die(&mut self) {
        self.up = false;
        self.inbox.clear();
        self.outbox.clear();
        self.held.clear();
    }

    /// Takes one frame.
    pub(super) fn work(&mut self, law: &Law, random: &mut StdRng) -> bool {
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
        self.held.insert(sequence, (epoch, open.token_ids));
    }

    fn commit(&mut self, commit: DraftCommit, law: &Law, random: &mut StdRng) -> Option<Proposal> {
        let (epoch, tokens) = self.held.get_mut(&commit.sequence)?;
        if *epoch != commit.epoch {
            assert!(commit.epoch < *epoch, "epochs grow");
            return None;
        }
        assert_eq!(
            commit.base_len as usize,
            tokens.len(),
            "no token is left out or sent twice"
        );
        assert!(!commit.token_ids.is_empty() && (1..=8).contains(&commit.want));
        tokens.extend(commit.token_ids);
        let (epoch, tokens) = (*epoch, tokens.clone());
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
        })
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

    pub(super) fn drop_one(&mut self) {
        if let Some((id, (epoch, _))) = self.held.pop_first() {
            let closed = vec![closed(id, epoch, CloseReason::Evicted)];
            self.outbox.push_back(DraftEvent {
                closed,
                ..DraftEvent::default()
            });
        }
    }
}

fn closed(sequence: SequenceId, epoch: u32, reason: CloseReason) -> Closed {
    Closed {
        sequence,
        epoch,
        reason: reason.into(),
        detail: "simulated".to_owned(),
    }
}

/// The batch that a command holds.
pub(super) fn batch(command: &TargetCommand) -> Option<&VerifyBatch> {
    match &command.command {
        Some(Command::Verify(batch)) => Some(batch),
        _ => None,
    }
}
