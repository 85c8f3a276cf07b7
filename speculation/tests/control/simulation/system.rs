//! The system: batches of sequences that are drafted for, verified, and committed.

use super::counts::{Counts, Policy};
use super::world::World;
use rand::SeedableRng;
use rand::rngs::StdRng;
use speculation::control::{
    Acceptance, Arrival, Delay, Gate, Look, Mode, Offer, Overlap, Plan, Ranks, Round, Situation,
    StepCosts, Trust, observe_verification, plan, wait_for,
};

/// The most that is drafted.
const MAX: usize = 8;

/// What a sequence has for its next round, or will have.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Proposal {
    tokens: usize,
    at: f64,
    /// Drafted ahead.
    ahead: bool,
}

struct Sequence {
    acceptance: Acceptance,
    gate: Gate,
    next: Option<Proposal>,
    /// Its last verdict.
    last: f64,
}

/// What a sequence does in a round.
#[derive(Debug, Clone, Copy)]
struct Item {
    sequence: usize,
    plan: Plan,
    mode: Mode,
    tokens: usize,
    ahead: bool,
}

pub(super) struct System {
    world: World,
    policy: Policy,
    rng: StdRng,
    sequences: Vec<Sequence>,
    /// When each batch's members have their verdicts.
    ready: Vec<f64>,
    target_free: f64,
    verify: StepCosts,
    verify_ahead: StepCosts,
    draft: StepCosts,
    draft_rtt: Delay,
    target_rtt: Delay,
    ranks: Ranks,
    worker: Acceptance,
    trust: Trust,
    look: Look,
    pub(super) counts: Counts,
}

impl System {
    pub(super) fn new(world: World, policy: Policy, seed: u64) -> Self {
        Self {
            world,
            policy,
            rng: StdRng::seed_from_u64(seed),
            sequences: Vec::new(),
            ready: vec![0.0],
            target_free: 0.0,
            verify: StepCosts::new(),
            verify_ahead: StepCosts::new(),
            draft: StepCosts::new(),
            draft_rtt: Delay::new(32.0),
            target_rtt: Delay::new(32.0),
            ranks: Ranks::new(),
            worker: Acceptance::of_worker(),
            trust: Trust::new(),
            look: Look::new(),
            counts: Counts::default(),
        }
    }

    /// Runs for so many rounds of every sequence.
    pub(super) fn run(&mut self, rounds: usize) {
        let end = self.counts.rounds + rounds * self.world.sequences;
        while self.counts.rounds < end {
            self.admit();
            let groups = self.ready.len();
            let group = (0..groups)
                .min_by(|a, b| self.ready[*a].total_cmp(&self.ready[*b]))
                .unwrap_or(0);
            let wanted = self.batch(group, groups);
            self.regroup(wanted);
        }
    }

    pub(super) fn switches(&self) -> u32 {
        let switches = self
            .sequences
            .iter()
            .map(|sequence| sequence.gate.switches());
        switches.max().unwrap_or(0)
    }

    /// Other conditions. Sequences that are too many end.
    pub(super) fn enter(&mut self, world: World) {
        self.world = world;
        self.sequences.truncate(world.sequences);
        self.admit();
    }

    fn admit(&mut self) {
        while self.sequences.len() < self.world.sequences {
            self.sequences.push(Sequence {
                acceptance: Acceptance::from_prior(&self.worker),
                gate: Gate::new(),
                next: None,
                last: self.counts.seconds,
            });
        }
    }

    fn regroup(&mut self, groups: usize) {
        let groups = groups.clamp(1, self.sequences.len().min(2));
        if groups != self.ready.len() {
            let latest = self.ready.iter().copied().fold(0.0, f64::max);
            self.ready = vec![latest; groups];
        }
    }

    /// One batch, from verdict to verdict. Returns how many batches the next ones should be.
    fn batch(&mut self, group: usize, groups: usize) -> usize {
        let now = self.ready[group];
        let members = (0..self.sequences.len()).filter(|member| member % groups == group);
        let mut items: Vec<Item> = members.map(|member| self.decide(member)).collect();
        self.ask(&items, now);
        let begin = now + self.wait(&items, now, groups).unwrap_or(0.0);
        self.take(&mut items, begin);
        let begin = begin.max(self.target_free);
        let done = self.verify(&items, begin);
        for item in &items {
            self.commit(item, now, begin, done);
        }
        self.ready[group] = done;
        self.counts.seconds = self.ready.iter().copied().fold(0.0, f64::max);
        votes(&items)
    }

    fn decide(&mut self, member: usize) -> Item {
        let plan = self.plan(member);
        let mode = match self.policy {
            Policy::Controller => {
                let mode = self.sequences[member].gate.decide(&plan);
                if mode == Mode::On {
                    self.look.consider(&plan);
                }
                if self.look.is_on() { Mode::Off } else { mode }
            }
            Policy::Fixed(0, ..) => Mode::Off,
            Policy::Fixed(..) => Mode::On,
        };
        Item {
            sequence: member,
            plan,
            mode,
            tokens: 0,
            ahead: false,
        }
    }

    fn plan(&self, member: usize) -> Plan {
        if let Policy::Fixed(want, ahead_want, ahead_width, groups) = self.policy {
            return Plan {
                want,
                ahead_want,
                ahead_width,
                groups,
                rate: 1.0,
                predicted: 1.0,
                hope: 1.0,
                plain_rate: 1.0,
                plain_groups: groups,
                known: true,
                plain_known: true,
            };
        }
        plan(&Situation {
            acceptance: &self.sequences[member].acceptance,
            ranks: &self.ranks,
            verify: &self.verify,
            verify_ahead: &self.verify_ahead,
            draft: &self.draft,
            draft_rtt: self.draft_rtt.seconds(),
            target_rtt: self.target_rtt.seconds().unwrap_or(0.0),
            sequences: self.sequences.len(),
            drafting: self.sequences.len(),
            min: 0,
            max: MAX,
            overlap: Overlap::Ahead,
            trust: &self.trust,
        })
    }

    /// Asks for the proposals that are missing; one batch at the draft worker computes them.
    fn ask(&mut self, items: &[Item], now: f64) {
        let lacks = |system: &Self, item: &&Item| {
            item.mode == Mode::On && system.sequences[item.sequence].next.is_none()
        };
        let lacking: Vec<Item> = items
            .iter()
            .filter(|item| lacks(self, item))
            .copied()
            .collect();
        let Some(longest) = lacking.iter().map(|item| item.plan.want).max() else {
            return;
        };
        let at = now + self.draft_seconds(lacking.len(), longest);
        self.counts.drafts += lacking.len();
        for item in lacking {
            self.sequences[item.sequence].next = Some(Proposal {
                tokens: item.plan.want,
                at,
                ahead: false,
            });
        }
    }

    /// How long to wait for proposals that are under way.
    fn wait(&self, items: &[Item], now: f64, groups: usize) -> Option<f64> {
        let busy = (self.target_free - now).max(0.0);
        let mut offer = Offer {
            sequences: items.len(),
            tokens: items.len() as f64,
            rows: items.len(),
            other_seconds: if groups == 1 {
                self.world.target_rtt
            } else {
                0.0
            },
        };
        let mut later = Vec::new();
        for item in items.iter().filter(|item| item.mode == Mode::On) {
            let sequence = &self.sequences[item.sequence];
            let Some(proposal) = sequence.next else {
                continue;
            };
            let tokens = sequence.acceptance.expected(proposal.tokens) - 1.0;
            if proposal.at <= now + busy {
                offer.tokens += tokens;
                offer.rows += proposal.tokens;
            } else {
                later.push(Arrival {
                    seconds: proposal.at - now - busy,
                    tokens,
                    rows: proposal.tokens,
                });
            }
        }
        let costs = if self.verify.seconds(1).is_some() {
            &self.verify
        } else {
            &self.verify_ahead
        };
        // The first rounds have to find out what drafts cost.
        let unknown = costs.seconds(1).is_none();
        let last = later.iter().map(|arrival| arrival.seconds).reduce(f64::max);
        let wait = if unknown {
            last
        } else {
            wait_for(&offer, &later, costs)
        };
        wait.map(|wait| wait + busy)
    }

    /// Takes the proposals that are there. Late ones are compared with what is committed meanwhile,
    /// and what is left of them stays where it agrees.
    fn take(&mut self, items: &mut [Item], begin: f64) {
        for item in items {
            let next = self.sequences[item.sequence].next.take();
            let Some(proposal) = next.filter(|_| item.mode == Mode::On) else {
                continue;
            };
            if proposal.at <= begin + 1e-9 {
                (item.tokens, item.ahead) = (proposal.tokens, proposal.ahead);
                continue;
            }
            let agreed = self.world.accepted(&mut self.rng, proposal.tokens);
            self.learn(item.sequence, proposal.tokens, agreed);
            if agreed > 0 && proposal.tokens > 1 {
                self.sequences[item.sequence].next = Some(Proposal {
                    tokens: proposal.tokens - 1,
                    ..proposal
                });
            }
        }
    }

    fn draft_seconds(&mut self, rows: usize, steps: usize) -> f64 {
        let step = self.world.draft_seconds(&mut self.rng, rows);
        let rtt = self.world.draft_rtt * self.world.noise(&mut self.rng);
        self.draft.observe(rows, step);
        self.draft_rtt.observe(rtt);
        rtt + steps as f64 * step
    }

    fn verify(&mut self, items: &[Item], begin: f64) -> f64 {
        let rows = items.iter().map(|item| item.tokens + 1).sum();
        let ahead = items
            .iter()
            .any(|item| item.tokens > 0 && item.plan.ahead_want > 0);
        let seconds = self.world.verify_seconds(&mut self.rng, rows, ahead);
        observe_verification(
            &mut self.verify,
            &mut self.verify_ahead,
            rows,
            seconds,
            ahead,
        );
        self.look.step(self.verify.is_known(self.sequences.len()));
        let rtt = self.world.target_rtt * self.world.noise(&mut self.rng);
        self.target_rtt.observe(rtt);
        self.target_free = begin + seconds;
        self.target_free + rtt
    }

    fn commit(&mut self, item: &Item, now: f64, begin: f64, done: f64) {
        let accepted = self.world.accepted(&mut self.rng, item.tokens);
        self.counts.rounds += 1;
        self.counts.tokens += 1 + accepted;
        let last = std::mem::replace(&mut self.sequences[item.sequence].last, done);
        let sequences = self.sequences.len();
        self.trust
            .observe(&item.plan, item.mode, 1 + accepted, done - last, sequences);
        self.counts.plain += usize::from(item.mode != Mode::On);
        if item.tokens > 0 {
            self.learn(item.sequence, item.tokens, accepted);
            self.follow(item, accepted, now, begin, done);
        }
        if item.mode == Mode::Probe {
            self.counts.probes += 1;
            self.draft_seconds(1, item.plan.want);
            let accepted = self.world.accepted(&mut self.rng, item.plan.want);
            self.learn(item.sequence, item.plan.want, accepted);
        }
    }

    fn learn(&mut self, sequence: usize, tokens: usize, accepted: usize) {
        let round = Round {
            wanted: tokens,
            drafted: tokens,
            verified: tokens,
            accepted,
        };
        self.sequences[sequence].acceptance.observe(round);
        self.worker.observe(round);
    }

    /// What was drafted ahead meanwhile: whether it holds what came.
    fn follow(&mut self, item: &Item, accepted: usize, now: f64, begin: f64, done: f64) {
        if item.plan.ahead_want == 0 {
            return;
        }
        let width = item.plan.ahead_width;
        let whole = accepted == item.tokens;
        let rank = World::rank(&mut self.rng, whole);
        let found = Some(rank).filter(|rank| *rank <= width);
        match whole {
            true => self.ranks.observe_bonus(found, width),
            false if width > 1 => self.ranks.observe_rejection(found, width),
            false => {}
        }
        let outcomes = if width > 1 {
            (item.tokens + 1) * width
        } else {
            1
        };
        let rows = outcomes * self.sequences.len();
        let step = self.world.draft_seconds(&mut self.rng, rows);
        self.draft.observe(rows, step);
        let drafting = item.plan.ahead_want as f64 * step;
        let at = if item.ahead {
            now + self.world.draft_rtt + drafting
        } else {
            begin + drafting
        };
        let tokens = item.plan.ahead_want - usize::from(whole);
        if found.is_some() && (whole || width > 1) && tokens > 0 {
            self.sequences[item.sequence].next = Some(Proposal {
                tokens: tokens.min(MAX),
                at: at.max(done),
                ahead: true,
            });
        }
    }
}

fn votes(items: &[Item]) -> usize {
    let groups = items.iter().map(|item| match item.mode {
        Mode::On => item.plan.groups,
        _ => item.plan.plain_groups,
    });
    let two = groups.filter(|groups| *groups == 2).count();
    if 2 * two > items.len() { 2 } else { 1 }
}
