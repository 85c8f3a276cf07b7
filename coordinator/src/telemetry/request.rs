//! A request from its admission to its end, and the line that the log has of it.

use super::course::Told;
use super::metrics::{Metrics, OfModel};
use crate::api::Caller;
use crate::request::ValidRequest;
use crate::scheduler::Summary;
use service::Error;
use service::telemetry::traces::Span;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A request that runs.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) arrived: Instant,
    /// The same for traces, where it is traced.
    pub(super) begun: SystemTime,
    pub(super) span: Span,
    /// What workers' spans belong to; empty where it is not traced.
    pub(super) traceparent: String,
    pub(super) of_model: OfModel,
    id: String,
    call: Arc<str>,
    tenant: Arc<str>,
    /// Choices that have not ended.
    left: u32,
    ended: Ended,
}

/// What is known of the choices that ended.
#[derive(Debug, Default)]
struct Ended {
    outcome: Option<&'static str>,
    prompt_tokens: usize,
    cached_tokens: u32,
    completion_tokens: usize,
    drafted: u32,
    accepted: u32,
    /// Of the choice that took longest.
    told: Told,
}

impl Request {
    /// `request` of `caller`, as it is let in.
    pub(super) fn new(caller: &Caller, request: &ValidRequest, metrics: &Metrics) -> Self {
        let generation = request.generation();
        let begun = SystemTime::now() - caller.arrived.elapsed();
        let mut span = Span::of_request("generate", &caller.traceparent, begun);
        if span.is_recording() {
            span.set("request.id", caller.request_id.to_string());
            span.set("model", generation.model.name.clone());
            span.set("choices", i64::from(request.n()));
            span.set("prompt_tokens", generation.prompt.len() as i64);
        }
        let traceparent = span.traceparent();
        Self {
            arrived: caller.arrived,
            begun,
            traceparent: traceparent.unwrap_or_else(|| caller.traceparent.clone()),
            span,
            of_model: metrics.of_model(&generation.model.name),
            id: caller.request_id.to_string(),
            call: Arc::clone(&caller.call),
            tenant: Arc::clone(&generation.tenant),
            left: request.n(),
            ended: Ended {
                prompt_tokens: generation.prompt.len(),
                ..Ended::default()
            },
        }
    }

    /// A choice ended by itself.
    pub(super) fn finished(&mut self, outcome: &'static str, summary: &Summary, told: &Told) {
        let ended = &mut self.ended;
        ended.outcome.get_or_insert(outcome);
        ended.completion_tokens += summary.completion_tokens;
        ended.drafted += summary.stats.drafted;
        ended.accepted += summary.stats.accepted;
        self.took(told);
    }

    /// A choice failed, and with it the request.
    pub(super) fn failed(&mut self, error: &Error, told: &Told) {
        self.ended.outcome = Some(error.class.reason());
        self.took(told);
    }

    /// A choice was given up, because its client left or another choice failed.
    pub(super) fn given_up(&mut self, told: &Told) {
        self.ended.outcome.get_or_insert("cancelled");
        self.took(told);
    }

    fn took(&mut self, told: &Told) {
        let ended = &mut self.ended;
        self.left = self.left.saturating_sub(1);
        ended.cached_tokens = ended.cached_tokens.max(told.cached_tokens);
        if told.timings.predicted_ms >= ended.told.timings.predicted_ms {
            ended.told = told.clone();
        }
    }

    /// How it ended, once no choice is left.
    pub(super) fn outcome(&self) -> Option<&'static str> {
        self.ended.outcome.filter(|_| self.left == 0)
    }

    /// Writes the log line, and ends the span.
    pub(super) fn end(mut self, outcome: &'static str) {
        let Ended {
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            drafted,
            accepted,
            told,
            ..
        } = self.ended;
        tracing::info!(
            request_id = self.id,
            call = &*self.call,
            tenant = &*self.tenant,
            model = self.of_model.name,
            outcome,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            draft_tokens = drafted,
            accepted_draft_tokens = accepted,
            queue_ms = told.timings.queue_ms,
            prompt_ms = told.timings.prompt_ms,
            predicted_ms = told.timings.predicted_ms,
            "request ended"
        );
        if self.span.is_recording() {
            self.span.set("outcome", outcome);
            self.span.set("completion_tokens", completion_tokens as i64);
            self.span.set("draft_tokens", i64::from(drafted));
            self.span.set("accepted_draft_tokens", i64::from(accepted));
        }
    }
}
