//! The scheduler among workers and clients that do their worst, in a world of messages without IO.
//!
//! Links keep their order, as streams do, but may die with all they hold at any time; messages from
//! before may turn up again. Whatever happens, a text that is finished must be the one that plain
//! decoding writes, and nothing may be left anywhere.

mod checks;
mod faults;
mod runs;
mod tenants;
mod workers;

use super::{
    Action, DraftLimits, Event, Patience, Processors, Scheduler, SequenceId, SpecOptions, Summary,
    TargetLimits,
};
use crate::commit::Origin;
use crate::request::Choice;
use crate::testing;
use proto::v1::{LogprobsParams, VerificationRule, VerifyBatch};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use service::Error;
use speculation::{NoiseKey, TokenId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workers::{FakeDraft, FakeTarget};

const PATIENCE: Patience = Patience {
    draft: Duration::from_secs(2),
    target: Duration::from_secs(30),
};

/// Tokens of the simulated vocabulary; drafts know some more.
const VOCABULARY: TokenId = 12;
const EOS: TokenId = 0;

/// Each request has another.
const RULES: [VerificationRule; 3] = [
    VerificationRule::Coupled,
    VerificationRule::Token,
    VerificationRule::Block,
];

/// What the target writes: a function of the prefix, the same for all who ask.
#[derive(Debug, Clone)]
struct Law {
    seed: u64,
    /// One token in so many is the end of the text.
    eos_every: u64,
    /// Where the end of the text comes in any case.
    eos_at: Option<usize>,
}

impl Law {
    fn next(&self, prefix: &[TokenId]) -> TokenId {
        if self.eos_at == Some(prefix.len()) {
            return EOS;
        }
        let mut hash = self.seed ^ 0x9e37_79b9_7f4a_7c15;
        for token in prefix {
            hash = (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3);
            hash ^= hash >> 29;
        }
        if hash.is_multiple_of(self.eos_every) {
            return EOS;
        }
        1 + (hash >> 7) as TokenId % (VOCABULARY - 1)
    }
}

/// What goes wrong, as chances per step of the simulation, in percent.
#[derive(Debug, Clone, Default)]
struct Chaos {
    link_dies: u32,
    worker_drops_a_sequence: u32,
    old_message_returns: u32,
    client_leaves: u32,
    client_stalls: u32,
    time_jumps: u32,
}

/// One request as the simulation sees it.
#[derive(Debug)]
struct Client {
    choice: Choice,
    text: String,
    tokens: Vec<TokenId>,
    origins: Vec<Origin>,
    full: bool,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Finished(Summary),
    Failed(Error),
    Left,
}

#[derive(Debug)]
struct World {
    scheduler: Scheduler,
    law: Law,
    now: Instant,
    random: StdRng,
    target: FakeTarget,
    drafts: Vec<FakeDraft>,
    clients: BTreeMap<SequenceId, Client>,
    /// How many sequences each batch had.
    batches: Vec<usize>,
    resets: usize,
}

impl World {
    /// A world with drafts that agree with the target so often, one worker each.
    fn new(seed: u64, law: Law, agreements: &[f64]) -> Self {
        let mut world = Self {
            scheduler: Scheduler::new(PATIENCE, SpecOptions::default()),
            law,
            now: Instant::now(),
            random: StdRng::seed_from_u64(seed),
            target: FakeTarget::default(),
            drafts: agreements
                .iter()
                .map(|agreement| FakeDraft::new(*agreement))
                .collect(),
            clients: BTreeMap::new(),
            batches: Vec::new(),
            resets: 0,
        };
        world.restore();
        world
    }

    fn admit(&mut self, prompt: usize, budget: usize, max_draft: usize) -> SequenceId {
        self.admit_for("", prompt, budget, max_draft)
    }

    fn admit_for(
        &mut self,
        tenant: &str,
        prompt: usize,
        budget: usize,
        max_draft: usize,
    ) -> SequenceId {
        let id = self.clients.len() as SequenceId + 1;
        let prompt = (0..prompt).map(|_| self.random.random_range(1..VOCABULARY));
        let mut generation = testing::generation(prompt.collect(), budget);
        generation.tenant = tenant.into();
        generation.stop.end_tokens = vec![EOS];
        generation.decoding.rule = RULES[id as usize % RULES.len()].into();
        generation.logprobs = id.is_multiple_of(2).then(LogprobsParams::default);
        generation.max_draft_tokens = max_draft;
        generation.min_draft_tokens = max_draft;
        // What is tested here is what becomes of draft workers' proposals.
        generation.sources.ngram = false;
        let choice = Choice {
            generation: Arc::new(generation),
            key: NoiseKey(id.into()),
        };
        let client = Client {
            choice: choice.clone(),
            text: String::new(),
            tokens: Vec::new(),
            origins: Vec::new(),
            full: false,
            end: None,
        };
        self.clients.insert(id, client);
        self.event(Event::Admit(id, choice));
        id
    }

    /// Connects whoever is not.
    fn restore(&mut self) {
        if !self.target.up {
            self.target_up();
        }
        for worker in 0..self.drafts.len() {
            if !self.drafts[worker].up {
                self.draft_up(worker);
            }
        }
    }

    fn target_up(&mut self) {
        self.target.up = true;
        let limits = TargetLimits {
            max_sequences: self.target.max_sequences,
            max_draft_tokens: 8,
            processors: Processors::default(),
        };
        self.event(Event::TargetUp {
            limits,
            replaced: false,
        });
    }

    fn target_dies(&mut self) {
        self.target.die();
        self.event(Event::TargetDown);
    }

    fn draft_up(&mut self, worker: usize) {
        self.drafts[worker].up = true;
        let limits = DraftLimits {
            max_sequences: self.drafts[worker].max_sequences,
            max_draft_tokens: 8,
            context_length: 1000,
            processors: Processors::default(),
        };
        self.event(Event::DraftUp(worker, limits));
    }

    fn draft_dies(&mut self, worker: usize) {
        self.drafts[worker].die();
        self.event(Event::DraftDown(worker));
    }

    /// Hands the scheduler an event and does what it says.
    fn event(&mut self, event: Event) {
        self.scheduler.handle(event, self.now);
        self.advance();
    }

    fn advance(&mut self) {
        for action in self.scheduler.advance(self.now) {
            self.perform(action);
        }
        assert!(
            self.scheduler.advance(self.now).is_empty(),
            "nothing is left to do"
        );
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::SendTarget(command) => {
                if let Some(batch) = workers::batch(&command) {
                    self.check_batch(batch);
                }
                self.target.inbox.push_back(*command);
            }
            Action::ResetTarget => {
                self.resets += 1;
                self.target.die();
            }
            Action::SendDraft(worker, command) => {
                assert!(self.drafts[worker].up, "no message goes to a lost worker");
                self.drafts[worker].inbox.push_back(command);
            }
            Action::Deliver(id, delta) => {
                let client = self.clients.get_mut(&id).unwrap();
                assert!(client.end.is_none(), "nothing follows the end");
                assert_eq!(delta.tokens.len(), delta.origins.len());
                let asked = client.choice.generation.logprobs.is_some();
                let len = client.choice.generation.prompt.len() + client.tokens.len();
                let logprobs = delta.tokens.iter().zip(len..);
                let logprobs = logprobs.map(|(token, at)| workers::logprobs(*token, at));
                let logprobs = logprobs.filter(|_| asked).collect::<Vec<_>>();
                assert_eq!(delta.logprobs, logprobs, "each token has its own");
                client.text += &delta.text;
                client.tokens.extend(delta.tokens);
                client.origins.extend(delta.origins);
            }
            Action::Finish(id, summary) => self.end(id, End::Finished(summary)),
            Action::Fail(id, error) => self.end(id, End::Failed(error)),
        }
    }

    fn check_batch(&mut self, batch: &VerifyBatch) {
        self.batches.push(batch.items.len());
        for item in &batch.items {
            let client = &self.clients[&item.sequence];
            let left = client.choice.generation.max_tokens - client.tokens.len();
            assert!(
                item.draft_ids.len() < left,
                "the target's own token has room"
            );
        }
    }

    fn end(&mut self, id: SequenceId, end: End) {
        let client = self.clients.get_mut(&id).unwrap();
        assert!(client.end.is_none(), "a text ends once");
        client.end = Some(end);
    }

    /// Moves one message of one link one step further. False where there is none.
    fn carry_one(&mut self) -> bool {
        let mut links: Vec<usize> = (0..=self.drafts.len()).collect();
        while !links.is_empty() {
            let link = links.swap_remove(self.random.random_range(0..links.len()));
            let back_first = self.random.random();
            let moved = match link.checked_sub(1) {
                None => self.carry_target(back_first) || self.carry_target(!back_first),
                Some(worker) => {
                    self.carry_draft(worker, back_first) || self.carry_draft(worker, !back_first)
                }
            };
            if moved {
                return true;
            }
        }
        false
    }

    fn carry_target(&mut self, back: bool) -> bool {
        if !back {
            return self.target.work(&self.law);
        }
        let event = self.target.outbox.pop_front();
        event
            .map(|event| self.event(Event::Target(event)))
            .is_some()
    }

    fn carry_draft(&mut self, worker: usize, back: bool) -> bool {
        if !back {
            return self.drafts[worker].work(&self.law, &mut self.random);
        }
        let event = self.drafts[worker].outbox.pop_front();
        event
            .map(|event| self.event(Event::Draft(worker, event)))
            .is_some()
    }

    /// Runs until nothing moves; time passes where all wait for it.
    fn settle(&mut self) {
        for _ in 0..200_000 {
            if self.carry_one() {
                continue;
            }
            match self.scheduler.deadline(self.now) {
                Some(deadline) => {
                    assert!(
                        deadline > self.now,
                        "a deadline that has passed has been dealt with"
                    );
                    self.now = deadline;
                    self.advance();
                }
                None => return,
            }
        }
        panic!("the simulation does not come to rest: {self:#?}");
    }
}
