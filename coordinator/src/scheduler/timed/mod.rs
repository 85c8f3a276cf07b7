//! The scheduler among workers that take their time, on a virtual clock.
//!
//! Target, draft workers and network are simulated to the microsecond, so that what batching, draft-ahead
//! and the controller are worth is a number that is the same on every machine. The texts are checked
//! as well: whatever is drafted, they are those of plain decoding.

mod draft;
mod law;
mod machine;
mod pace;
mod rates;
mod shared;
mod target;

use super::{
    Action, DraftLimits, Event, Patience, Processors, Scheduler, SequenceId, SpecOptions, Summary,
    TargetLimits,
};
use crate::request::Choice;
use crate::testing;
use draft::TimedDraft;
use law::Law;
use machine::{Machine, Worker};
use pace::{Rough, Step};
use proto::v1::{self, DraftCommand, TargetCommand};
use speculation::{NoiseKey, TokenId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use target::TimedTarget;

const PATIENCE: Patience = Patience {
    draft: Duration::from_secs(2),
    target: Duration::from_secs(30),
};

/// The most tokens that are drafted unless a request has it otherwise.
const LONGEST: usize = 8;

/// Microseconds since the beginning.
type Micros = u64;

/// What a world is like.
#[derive(Debug, Clone)]
struct Setting {
    target: Step,
    target_rtt: Micros,
    drafts: Vec<DraftSetting>,
    options: SpecOptions,
    /// Target and draft workers share one machine's time.
    shared: bool,
    rough: Rough,
}

impl Setting {
    /// What each worker says that it computes on.
    fn processors(&self) -> Processors {
        let shared = self.shared.then(|| v1::Processors {
            machine: "the one".to_owned(),
            cores: vec![0],
            threads: 1,
        });
        Processors::described(shared.as_ref())
    }
}

#[derive(Debug, Clone, Copy)]
struct DraftSetting {
    step: Step,
    rtt: Micros,
    agreement: f64,
    max_sequences: usize,
    /// What it takes to open a sequence.
    prefill: Micros,
}

/// What happens at a time.
#[derive(Debug)]
enum Happening {
    AtTarget(Box<TargetCommand>),
    AtDraft(usize, DraftCommand),
    /// On this machine, as of this version of what runs there.
    StepEnds(usize, u64),
    AtCoordinator(Box<Event>),
    /// Nothing: the scheduler asked to be woken.
    Wake,
}

/// A request that is asked again and again.
#[derive(Debug)]
struct Client {
    tokens: Vec<TokenId>,
    prompt: Vec<TokenId>,
    end: Option<Summary>,
}

#[derive(Debug)]
struct World {
    setting: Setting,
    scheduler: Scheduler,
    origin: Instant,
    now: Micros,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,
    target: TimedTarget,
    drafts: Vec<TimedDraft>,
    /// The target's, then one of each draft worker; the first alone where it is shared.
    machines: Vec<Machine>,
    clients: BTreeMap<SequenceId, Client>,
    /// Requests so far.
    admitted: SequenceId,
    committed: usize,
    /// When the scheduler is to be woken.
    wake_at: Option<Micros>,
    min_draft: usize,
    max_draft: usize,
}

impl World {
    fn new(setting: Setting) -> Self {
        let mut world = Self {
            scheduler: Scheduler::new(PATIENCE, setting.options),
            origin: Instant::now(),
            now: 0,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            target: TimedTarget::new(setting.target, setting.rough),
            drafts: Vec::new(),
            machines: Vec::new(),
            clients: BTreeMap::new(),
            admitted: 0,
            committed: 0,
            wake_at: None,
            min_draft: 0,
            max_draft: LONGEST,
            setting,
        };
        let machines = if world.setting.shared {
            1
        } else {
            1 + world.setting.drafts.len()
        };
        world.machines.resize_with(machines, Machine::default);
        let limits = TargetLimits {
            max_sequences: 256,
            max_draft_tokens: 16,
            processors: world.setting.processors(),
        };
        world.event(Event::TargetUp {
            limits,
            replaced: false,
        });
        for (worker, draft) in world.setting.drafts.clone().into_iter().enumerate() {
            world
                .drafts
                .push(TimedDraft::new(draft, world.setting.rough));
            let limits = DraftLimits {
                max_sequences: draft.max_sequences,
                max_draft_tokens: 16,
                context_length: 1_000_000,
                processors: world.setting.processors(),
            };
            world.event(Event::DraftUp(worker, limits));
        }
        world
    }

    /// Drafts of a fixed length.
    fn fixed(mut self, length: usize) -> Self {
        (self.min_draft, self.max_draft) = (length, length);
        self
    }

    /// From now on drafts are as long as the controller has it.
    fn free(&mut self) {
        (self.min_draft, self.max_draft) = (0, LONGEST);
    }

    /// From now on nothing is drafted.
    fn plain(&mut self) {
        (self.min_draft, self.max_draft) = (0, 0);
    }

    /// All clients go.
    fn leave(&mut self) {
        for id in self.clients.keys().copied().collect::<Vec<_>>() {
            self.event(Event::ClientGone(id));
        }
        self.clients.clear();
    }

    fn instant(&self) -> Instant {
        self.origin + Duration::from_micros(self.now)
    }

    fn admit(&mut self, budget: usize) -> SequenceId {
        self.admitted += 1;
        let id = self.admitted;
        let prompt = vec![id as TokenId, 7, 7, 7];
        let mut generation = testing::generation(prompt.clone(), budget);
        generation.stop.end_tokens = Vec::new();
        generation.max_draft_tokens = self.max_draft;
        generation.min_draft_tokens = self.min_draft;
        generation.sources.ngram = false;
        let choice = Choice {
            generation: Arc::new(generation),
            key: NoiseKey(id.into()),
        };
        let client = Client {
            tokens: Vec::new(),
            prompt,
            end: None,
        };
        self.clients.insert(id, client);
        self.event(Event::Admit(id, choice));
        id
    }

    fn after(&mut self, delay: Micros, happening: Happening) {
        self.next += 1;
        self.queue.push(Reverse((self.now + delay, self.next)));
        self.happenings.insert(self.next, happening);
    }

    fn event(&mut self, event: Event) {
        let now = self.instant();
        self.scheduler.handle(event, now);
        self.advance();
    }

    fn advance(&mut self) {
        let now = self.instant();
        for action in self.scheduler.advance(now) {
            self.perform(action);
        }
        // The driver's clock ticks in milliseconds.
        let tick =
            |deadline: Instant| (deadline - self.origin).as_micros().div_ceil(1000) as Micros;
        let deadline = self.scheduler.deadline(now);
        let at = deadline.map(|deadline| (tick(deadline) * 1000).max(self.now));
        if let Some(at) = at.filter(|at| self.wake_at != Some(*at)) {
            self.wake_at = Some(at);
            self.after(at - self.now, Happening::Wake);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::SendTarget(command) => {
                self.after(self.setting.target_rtt / 2, Happening::AtTarget(command));
            }
            Action::SendDraft(worker, command) => {
                let delay = self.setting.drafts[worker].rtt / 2;
                self.after(delay, Happening::AtDraft(worker, command));
            }
            Action::Deliver(id, delta) => {
                self.committed += delta.tokens.len();
                let client = self.clients.get_mut(&id).expect("a client");
                client.tokens.extend(delta.tokens);
            }
            Action::Finish(id, summary) => self.finish(id, summary),
            Action::ResetTarget | Action::Fail(..) => panic!("nothing fails here: {action:?}"),
        }
    }

    fn finish(&mut self, id: SequenceId, summary: Summary) {
        let client = self.clients.get_mut(&id).expect("a client");
        client.end = Some(summary);
        let mut plain = client.prompt.clone();
        for token in &client.tokens {
            assert_eq!(*token, Law::next(&plain), "the text is the plain one");
            plain.push(*token);
        }
    }

    /// Lets time pass, up to `end`, or until all texts are finished.
    fn run(&mut self, end: Micros) {
        while self.clients.values().any(|client| client.end.is_none()) {
            let Some(Reverse((at, number))) = self.queue.pop() else {
                panic!("nothing happens any more");
            };
            let happening = self.happenings.remove(&number).expect("each once");
            if at > end {
                self.now = end;
                self.queue.push(Reverse((at, number)));
                self.happenings.insert(number, happening);
                return;
            }
            self.now = at;
            self.happen(happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake => self.wake(),
            Happening::AtCoordinator(event) => self.event(*event),
            Happening::AtTarget(command) => {
                self.target.take(*command, self.now);
                self.start_target();
            }
            Happening::AtDraft(worker, command) => {
                let said = self.drafts[worker].take(command, self.now);
                self.say(worker, said);
                self.start_draft(worker);
            }
            Happening::StepEnds(machine, version) => self.steps_end(machine, version),
        }
    }

    fn steps_end(&mut self, machine: usize, version: u64) {
        if self.machines[machine].version != version {
            return;
        }
        let ended = self.machines[machine].finish(self.now);
        for worker in &ended {
            match *worker {
                Worker::Target => self.tell(),
                Worker::Draft(worker) => {
                    let said = self.drafts[worker].end_step(self.now);
                    self.say(worker, said);
                }
            }
        }
        for worker in ended {
            match worker {
                Worker::Target => self.start_target(),
                Worker::Draft(worker) => self.start_draft(worker),
            }
        }
        self.foresee(machine);
    }

    /// What the target says at the end of a step.
    fn tell(&mut self) {
        let delay = self.setting.target_rtt / 2;
        for event in self.target.end_step(self.now) {
            let event = Event::Target(event);
            self.after(delay, Happening::AtCoordinator(Box::new(event)));
        }
    }

    /// Only the latest of the scheduler's wishes to be woken counts.
    fn wake(&mut self) {
        if self.wake_at == Some(self.now) {
            self.wake_at = None;
            self.advance();
        }
    }

    fn say(&mut self, worker: usize, said: Option<proto::v1::DraftEvent>) {
        let delay = self.setting.drafts[worker].rtt / 2;
        if let Some(event) = said {
            self.after(
                delay,
                Happening::AtCoordinator(Box::new(Event::Draft(worker, event))),
            );
        }
    }

    fn start_target(&mut self) {
        if let Some(work) = self.target.start_step() {
            self.start(0, Worker::Target, work);
        }
    }

    fn start_draft(&mut self, worker: usize) {
        if let Some(work) = self.drafts[worker].start_step(self.now) {
            let machine = if self.setting.shared { 0 } else { 1 + worker };
            self.start(machine, Worker::Draft(worker), work);
        }
    }

    fn start(&mut self, machine: usize, worker: Worker, work: Micros) {
        self.machines[machine].start(worker, work, self.now);
        self.foresee(machine);
    }

    fn foresee(&mut self, machine: usize) {
        let running = &self.machines[machine];
        let version = running.version;
        if let Some(delay) = running.next_end() {
            self.after(delay, Happening::StepEnds(machine, version));
        }
    }
}
