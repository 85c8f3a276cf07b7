//! What the driver tells as it goes: the one place that turns it into metrics, spans and times.
//!
//! Everything here is the driver's own, so that nothing is locked for long and nobody waits; a token costs
//! a few additions. What a trace needs is done only where there is one.

use super::course::{Course, Latency, Told};
use super::metrics::{Metrics, OfWorker};
use super::request::Request;
use crate::api::Caller;
use crate::commit::{Delta, FinishReason};
use crate::request::ValidRequest;
use crate::scheduler::{Scheduler, SequenceId, Summary, WorkerId};
use proto::v1::{
    DraftCommand, DraftEvent, TargetCommand, TargetEvent, TargetOpen, VerdictBatch, VerifyBatch,
    target_command::Command, target_event,
};
use service::Error;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

/// Sees what the driver does.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    metrics: Metrics,
    /// By their first choice.
    requests: HashMap<SequenceId, Request>,
    choices: HashMap<SequenceId, Course>,
    /// Batches that are verified: number, when they were sent, and whether no other was under way.
    batches: VecDeque<(u64, Instant, bool)>,
    /// What was shown last of the scheduler's sums.
    shown: (u64, u64),
    /// What is observed of draft workers, and of the target.
    workers: HashMap<Option<WorkerId>, OfWorker>,
}

impl Observer {
    /// One that shows what it sees in `metrics`.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// A request was let in, whose choices have the numbers from `first` on.
    pub(crate) fn admitted(&mut self, first: SequenceId, caller: &Caller, request: &ValidRequest) {
        let seen = Request::new(caller, request, &self.metrics);
        let prompt = request.generation().prompt.len();
        for id in first..first + SequenceId::from(request.n()) {
            self.choices.insert(id, Course::new(first, &seen, prompt));
        }
        self.metrics.waiting.inc_by(i64::from(request.n()));
        self.requests.insert(first, seen);
    }

    /// A command goes to the target.
    pub(crate) fn sending_target(&mut self, command: &mut TargetCommand) {
        match &mut command.command {
            Some(Command::Open(open)) => self.opening(open),
            Some(Command::Verify(batch)) => self.verifying(batch),
            Some(Command::Close(_)) | None => {}
        }
    }

    fn opening(&mut self, open: &mut TargetOpen) {
        let Some(course) = self.choices.get_mut(&open.sequence) else {
            return;
        };
        let Some(request) = self.requests.get(&course.request) else {
            return;
        };
        open.traceparent.clone_from(&request.traceparent);
        if course.open(request, Instant::now()) {
            self.metrics.waiting.dec();
            self.metrics.running.inc();
        }
    }

    fn verifying(&mut self, batch: &VerifyBatch) {
        let alone = self.batches.is_empty();
        self.batches.push_back((batch.step, Instant::now(), alone));
        let rows = batch.items.iter().map(|item| 1 + item.draft_ids.len());
        let rows: usize = rows.sum();
        self.metrics.batch_tokens.observe(rows as f64);
        self.metrics
            .batch_sequences
            .observe(batch.items.len() as f64);
        for item in &batch.items {
            if let Some(course) = self.choices.get_mut(&item.sequence)
                && let Some(request) = self.requests.get(&course.request)
                && request.span.is_recording()
            {
                course.round = Some((SystemTime::now(), item.draft_ids.len()));
            }
        }
    }

    /// The target said something.
    pub(crate) fn heard_target(&mut self, event: &TargetEvent) {
        match &event.event {
            Some(target_event::Event::Opened(opened)) => {
                let course = self.choices.get_mut(&opened.sequence);
                if let Some(course) = course
                    && let Some((tokens, cached)) = course.prefilled(opened.cached_tokens)
                    && let Some(request) = self.requests.get(&course.request)
                {
                    request.of_model.prompt_tokens.inc_by(tokens as u64);
                    self.metrics.prefix_queries.inc_by(tokens as u64);
                    self.metrics.prefix_hits.inc_by(u64::from(cached));
                }
            }
            Some(target_event::Event::Verdicts(verdicts)) => self.verified(verdicts),
            Some(target_event::Event::Load(load)) => self.worker(None).load(load),
            Some(target_event::Event::Closed(_)) | None => {}
        }
    }

    fn verified(&mut self, verdicts: &VerdictBatch) {
        let compute = Duration::from_micros(verdicts.compute_us.into());
        self.metrics.verify_step.observe(compute.as_secs_f64());
        let sent = self.batches.iter().position(|it| it.0 == verdicts.step);
        if let Some((_, sent, true)) = sent.and_then(|index| self.batches.remove(index)) {
            // One that was sent behind another waited for that as well.
            let beside = sent.elapsed().saturating_sub(compute);
            self.worker(None).rtt.observe(beside.as_secs_f64());
        }
        for verdict in &verdicts.items {
            if let Some(course) = self.choices.get_mut(&verdict.sequence)
                && let Some((begun, drafted)) = course.round.take()
                && let Some(request) = self.requests.get(&course.request)
            {
                let mut span = request.span.child("verify", begun);
                span.set("draft_tokens", drafted as i64);
                span.set("accepted_tokens", i64::from(verdict.accepted));
                span.set("choice", (verdict.sequence - course.request) as i64);
            }
        }
    }

    /// The target is lost, and with it what it was at.
    pub(crate) fn target_lost(&mut self) {
        self.batches.clear();
    }

    /// A command goes to a draft worker.
    pub(crate) fn sending_draft(&mut self, command: &mut DraftCommand) {
        for open in &mut command.opens {
            let course = self.choices.get(&open.sequence);
            let request = course.and_then(|course| self.requests.get(&course.request));
            if let Some(request) = request {
                open.traceparent.clone_from(&request.traceparent);
            }
        }
        for commit in command.commits.iter().filter(|commit| commit.want > 0) {
            if let Some(course) = self.choices.get_mut(&commit.sequence) {
                course.asked = Some(Instant::now());
            }
        }
    }

    /// A draft worker said something.
    pub(crate) fn heard_draft(&mut self, worker: WorkerId, event: &DraftEvent) {
        if let Some(load) = &event.load {
            self.worker(Some(worker)).load(load);
        }
        let step = &self.worker(Some(worker)).step;
        for took in &event.steps {
            step.observe(f64::from(took.micros) / 1e6);
        }
        for proposal in event.proposals.iter().filter(|it| it.assumed.is_empty()) {
            let Some(course) = self.choices.get_mut(&proposal.sequence) else {
                continue;
            };
            let Some(asked) = course.asked.take() else {
                continue;
            };
            let took = asked.elapsed();
            if let Some(request) = self.requests.get(&course.request)
                && request.span.is_recording()
            {
                let mut span = request.span.child("draft", SystemTime::now() - took);
                span.set("worker", worker as i64);
                span.set("draft_tokens", proposal.draft_ids.len() as i64);
                span.set("choice", (proposal.sequence - course.request) as i64);
            }
            let compute = Duration::from_micros(proposal.compute_us.into());
            let beside = took.saturating_sub(compute);
            self.worker(Some(worker)).rtt.observe(beside.as_secs_f64());
        }
    }

    /// Tokens were committed.
    pub(crate) fn delivered(&mut self, id: SequenceId, delta: &Delta) {
        let Some(course) = self.choices.get_mut(&id) else {
            return;
        };
        let Some(request) = self.requests.get(&course.request) else {
            return;
        };
        let of_model = &request.of_model;
        of_model.generation_tokens.inc_by(delta.tokens.len() as u64);
        match course.deliver(Instant::now()) {
            Latency::First(took) => of_model.first_token.observe(took.as_secs_f64()),
            Latency::Between(took) => of_model.between_tokens.observe(took.as_secs_f64()),
        }
    }

    /// A choice ended by itself. Returns what its client is told.
    pub(crate) fn finished(&mut self, id: SequenceId, summary: &Summary) -> Told {
        let outcome = match summary.reason {
            FinishReason::Stop(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        };
        self.ended(id, |request, told| request.finished(outcome, summary, told))
    }

    /// A choice failed.
    pub(crate) fn failed(&mut self, id: SequenceId, error: &Error) {
        self.ended(id, |request, told| request.failed(error, told));
    }

    /// A choice is given up.
    pub(crate) fn given_up(&mut self, id: SequenceId) {
        self.ended(id, Request::given_up);
    }

    fn ended(&mut self, id: SequenceId, tell: impl FnOnce(&mut Request, &Told)) -> Told {
        let Some(course) = self.choices.remove(&id) else {
            return Told::default();
        };
        let running = course.is_running();
        let gauge = if running {
            &self.metrics.running
        } else {
            &self.metrics.waiting
        };
        gauge.dec();
        let told = course.told(Instant::now());
        if let Some(request) = self.requests.get_mut(&course.request) {
            tell(request, &told);
            if let Some(outcome) = request.outcome() {
                self.end(course.request, outcome);
            }
        }
        told
    }

    fn end(&mut self, id: SequenceId, outcome: &'static str) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        let of_model = &request.of_model;
        let took = request.arrived.elapsed().as_secs_f64();
        of_model.latency.observe(took);
        self.metrics.ended(&of_model.name, outcome);
        request.end(outcome);
    }

    /// Shows what `scheduler` has counted, where that is new.
    pub(crate) fn show(&mut self, scheduler: &Scheduler) {
        let sums = (scheduler.committed_tokens(), scheduler.stale_messages());
        if self.shown != sums {
            self.shown = sums;
            let malformed = scheduler.malformed_proposals();
            self.metrics.show(&scheduler.counters(), malformed);
        }
    }

    fn worker(&mut self, worker: Option<WorkerId>) -> &OfWorker {
        let metrics = &self.metrics;
        self.workers
            .entry(worker)
            .or_insert_with(|| metrics.of_worker(worker))
    }
}
