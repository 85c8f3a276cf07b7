//! How one choice of a request went: when it got where, and what is told of that at its end.

use super::request::Request;
use proto::v1::Timings;
use service::telemetry::traces::Span;
use std::time::{Duration, Instant, SystemTime};

/// What the client is told at the end of a choice, beside what the scheduler counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Told {
    /// Tokens of the prompt that the target's cache held.
    pub(crate) cached_tokens: u32,
    /// How long it took.
    pub(crate) timings: Timings,
}

/// One choice that runs.
#[derive(Debug)]
pub(super) struct Course {
    /// The first choice of its request.
    pub(super) request: u64,
    prompt_tokens: usize,
    arrived: Instant,
    opened: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    cached: Option<u32>,
    /// The part that is under way until the first token: the queue, then the prefill.
    beginning: Span,
    /// The round that is under way, where it is traced: since when, and with how many drafted tokens.
    pub(super) round: Option<(SystemTime, usize)>,
    /// When a proposal was asked for that has not come.
    pub(super) asked: Option<Instant>,
}

impl Course {
    /// A choice of `request`, which came with the number `first`.
    pub(super) fn new(first: u64, request: &Request, prompt_tokens: usize) -> Self {
        Self {
            request: first,
            prompt_tokens,
            arrived: request.arrived,
            opened: None,
            first: None,
            last: None,
            cached: None,
            beginning: request.span.child("queue", request.begun),
            round: None,
            asked: None,
        }
    }

    /// The target is given its prompt. False where it had been before.
    pub(super) fn open(&mut self, request: &Request, now: Instant) -> bool {
        if self.opened.is_some() {
            return false;
        }
        self.opened = Some(now);
        if request.span.is_recording() {
            // First the one ends, then the other begins.
            self.beginning = Span::default();
            self.beginning = request.span.child("prefill", SystemTime::now());
            self.beginning
                .set("prompt_tokens", self.prompt_tokens as i64);
        }
        true
    }

    /// The target has prefilled its prompt, of which it had `cached`. `None` where it had before.
    pub(super) fn prefilled(&mut self, cached: u32) -> Option<(usize, u32)> {
        if self.cached.is_some() {
            return None;
        }
        // It looked for all that it was given; only the prompt is the client's.
        let cached = cached.min(self.prompt_tokens as u32);
        self.cached = Some(cached);
        self.beginning.set("cached_tokens", i64::from(cached));
        self.beginning = Span::default();
        Some((self.prompt_tokens, cached))
    }

    /// Tokens came. How long after those before them; for the first, after the arrival.
    pub(super) fn deliver(&mut self, now: Instant) -> Latency {
        let before = self.last.replace(now);
        match before {
            Some(before) => Latency::Between(now - before),
            None => {
                self.first = Some(now);
                Latency::First(now - self.arrived)
            }
        }
    }

    /// True once the target was given its prompt.
    pub(super) fn is_running(&self) -> bool {
        self.opened.is_some()
    }

    /// What is told of it at `now`.
    pub(super) fn told(&self, now: Instant) -> Told {
        let opened = self.opened.unwrap_or(now);
        let first = self.first.unwrap_or(now);
        let last = self.last.unwrap_or(first);
        let ms =
            |from: Instant, to: Instant| (to.saturating_duration_since(from)).as_secs_f64() * 1e3;
        Told {
            cached_tokens: self.cached.unwrap_or(0),
            timings: Timings {
                queue_ms: ms(self.arrived, opened),
                prompt_ms: ms(opened, first),
                predicted_ms: ms(first, last),
            },
        }
    }
}

/// How long tokens were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Latency {
    /// The first of a choice.
    First(Duration),
    /// Any later ones.
    Between(Duration),
}
