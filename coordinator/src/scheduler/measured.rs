//! What is measured of draft workers and of the target.
//!
//! Times are those that this coordinator sees: what other coordinators add to a worker's steps is part of
//! what a step costs us.

use super::speculating::Speculating;
use speculation::control::{
    Acceptance, Confidence, Delay, Ewma, Look, Plan, Ranks, Round, StepCosts, Trust, Way,
    observe_verification, plain_groups,
};

/// The share of recent plans that want two groups from which two are formed, and below which one.
const GROUPS_IN: f64 = 0.6;
const GROUPS_OUT: f64 = 0.4;

/// No draft is asked to be surer than this.
const MOST_CONFIDENT: f32 = 0.95;

/// Round trips that their mean remembers.
const RTT_MEMORY: f64 = 32.0;

/// The weight of the latest plan in that share.
const GROUPS_WEIGHT: f64 = 0.05;

/// What is measured of a draft worker.
#[derive(Debug)]
pub(super) struct Measured {
    /// Seconds of a draft step, by sequences drafted at once.
    pub(super) step: StepCosts,
    /// Seconds from a demand to its proposal, beside drafting.
    pub(super) rtt: Delay,
    /// How many of its tokens are accepted.
    pub(super) acceptance: Acceptance,
    /// Where the target's token stands among its candidates.
    pub(super) ranks: Ranks,
    /// What its own probabilities say of acceptance.
    pub(super) confidence: Confidence,
    /// The target's step at which a sequence of it was last probed.
    pub(super) probed: u64,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            step: StepCosts::default(),
            rtt: Delay::new(RTT_MEMORY),
            acceptance: Acceptance::of_worker(),
            ranks: Ranks::default(),
            confidence: Confidence::default(),
            probed: 0,
        }
    }
}

impl Measured {
    /// Takes in what became of a proposal, for the worker and for the sequence.
    pub(super) fn observe(&mut self, round: Round, sequence: &mut Speculating) {
        self.acceptance.observe(round);
        let own = &mut sequence.acceptance;
        own.get_or_insert_with(|| Acceptance::from_prior(&self.acceptance))
            .observe(round);
    }

    /// The confidence below which one more drafted token costs more time than it saves. Those that
    /// are drafted while something is verified, what they follow or another batch, cost none.
    pub(super) fn least_confidence(&self, plan: &Plan, drafting: usize) -> f32 {
        let waits = plan.way() == Way::Waiting;
        let step = self.step.seconds(drafting).filter(|_| waits);
        step.map_or(0.0, |step| {
            let least = self.confidence.min_confidence(plan.rate, step, 1.0);
            least.clamp(0.0, MOST_CONFIDENT)
        })
    }
}

/// What is measured of the target.
#[derive(Debug)]
pub(super) struct Verifying {
    /// Seconds of a step, by rows.
    pub(super) step: StepCosts,
    /// The same while draft workers draft ahead, which costs where they share a machine with it.
    pub(super) step_ahead: StepCosts,
    /// Seconds from a batch to its verdicts, beside verification.
    pub(super) rtt: Delay,
    /// Seconds from verdicts until the next batch could be sent: what we take ourselves for each round.
    pub(super) turnaround: Ewma,
    /// How far plans hold.
    pub(super) trust: Trust,
    /// Whether to decode plainly, to see what that costs.
    pub(super) look: Look,
    /// Prompts were prefilled during the latest batch: what it took says nothing of others.
    pub(super) disturbed: bool,
    /// Sequences that the target decodes at present.
    pub(super) sequences: usize,
    /// The share of recent plans that want two groups.
    wants_two: f64,
    two: bool,
}

impl Default for Verifying {
    fn default() -> Self {
        Self {
            step: StepCosts::default(),
            step_ahead: StepCosts::default(),
            rtt: Delay::new(RTT_MEMORY),
            turnaround: Ewma::new(RTT_MEMORY),
            trust: Trust::new(),
            look: Look::new(),
            disturbed: false,
            sequences: 0,
            wants_two: 0.0,
            two: false,
        }
    }
}

impl Verifying {
    /// Batches that may be under way at once: with two, one group is verified while the other drafts.
    pub(super) fn groups(&self) -> usize {
        1 + usize::from(self.two && !self.look.is_on())
    }

    /// Seconds of a round beside the target's step.
    pub(super) fn beside(&self) -> f64 {
        self.rtt.seconds().unwrap_or(0.0) + self.turnaround.value_or(0.0)
    }

    /// A step of `rows` took `seconds`; `ahead` where draft workers drafted meanwhile.
    pub(super) fn observe(&mut self, ahead: bool, rows: usize, seconds: f64) {
        observe_verification(&mut self.step, &mut self.step_ahead, rows, seconds, ahead);
    }

    /// A step is over, whether or not it told what such steps take.
    pub(super) fn end_step(&mut self) {
        self.look.step(self.step.is_known(self.sequences));
    }

    /// A sequence wants so many batches; where it has no plan, as many as are best in plain decoding.
    pub(super) fn vote(&mut self, groups: Option<usize>) {
        let groups =
            groups.unwrap_or_else(|| plain_groups(&self.step, self.beside(), self.sequences));
        let vote = if groups > 1 { 1.0 } else { 0.0 };
        self.wants_two += GROUPS_WEIGHT * (vote - self.wants_two);
        self.two = self.wants_two > if self.two { GROUPS_OUT } else { GROUPS_IN };
    }
}
