//! One client: what waits for it, and its bounded output queue.
//!
//! All choices of its request share the queue. What the queue does not take is merged: into one
//! delta for each choice, so a slow client costs no more memory than its choices have text.

use crate::api::Caller;
use crate::api::admission::Pass;
use crate::commit::{Delta, FinishReason, Matched, Origin};
use crate::request::ValidRequest;
use crate::scheduler::Summary;
use crate::telemetry::Told;
use crate::tools::{Read, Reader};
use proto::v1::{self, TokenOrigin, finished, generate_response::Event};
use service::Error;
use std::collections::BTreeMap;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, OwnedPermit};

/// Events that wait for a slow client; more tokens are merged into the last. One place is kept for the
/// error that ends the stream of one that takes none of them.
pub(crate) const OUTPUT: usize = 33;

/// A client's half of the output queue.
pub(crate) type Output = mpsc::Sender<Result<Event, Error>>;

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Admission {
    /// What to do.
    pub(crate) request: ValidRequest,
    /// Who asks, and until when.
    pub(crate) caller: Caller,
    /// Where the answer goes: a queue of [`OUTPUT`].
    pub(crate) output: Output,
    /// What its choices hold of the capacity; given back as they are done with.
    pub(crate) pass: Pass,
}

/// Why not all was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The queue is full.
    Full,
    /// The client left.
    Gone,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    output: Output,
    /// The place that is kept in the queue; none where the client left at once.
    kept: Option<OwnedPermit<Result<Event, Error>>>,
    /// What could not be sent yet, by choice.
    waiting: BTreeMap<u32, Waiting>,
    /// Reads the calls of functions in each choice, where there can be any.
    calls: Vec<Reader>,
    /// What ends the stream early, after that.
    failure: Option<Error>,
    /// How many ends of choices, or one failure, are still to be sent.
    unfinished: u32,
    pass: Pass,
}

/// What waits of one choice, in this order.
#[derive(Debug, Default)]
struct Waiting {
    delta: Option<v1::Delta>,
    finished: Option<v1::Finished>,
}

impl Waiting {
    /// What waits of the text of `choice`, which this is of.
    fn delta(&mut self, choice: u32) -> &mut v1::Delta {
        self.delta.get_or_insert_with(|| v1::Delta {
            choice,
            ..v1::Delta::default()
        })
    }
}

impl Client {
    /// A client that has got nothing yet.
    pub(super) fn new(output: Output, pass: Pass, request: &ValidRequest) -> Self {
        let reader = |_| request.calls().cloned().map(Reader::new);
        Self {
            kept: output.clone().try_reserve_owned().ok(),
            output,
            waiting: BTreeMap::new(),
            calls: (0..request.n()).filter_map(reader).collect(),
            failure: None,
            unfinished: request.n(),
            pass,
        }
    }

    /// Its half of the queue.
    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    /// True when it has got everything.
    pub(super) fn is_served(&self) -> bool {
        self.unfinished == 0
    }

    /// Adds to what waits to be sent.
    pub(super) fn keep(&mut self, choice: u32, delta: Delta) {
        let read = match self.calls.get_mut(choice as usize) {
            Some(reader) => reader.push(&delta.text),
            None => Read::from(delta.text),
        };
        let waiting = self.waiting.entry(choice).or_default();
        let waiting = waiting.delta(choice);
        waiting.text += &read.text;
        waiting.tool_calls.extend(read.calls);
        waiting.token_ids.extend(delta.tokens);
        let origins = delta.origins.into_iter().map(origin);
        waiting.origins.extend(origins);
        waiting.logprobs.extend(delta.logprobs);
    }

    /// Adds the end of a choice.
    pub(super) fn finish(&mut self, choice: u32, summary: Summary, told: Told) {
        let waiting = self.waiting.entry(choice).or_default();
        let mut finished = finished(choice, summary, told);
        if let Some(reader) = self.calls.get_mut(choice as usize) {
            let read = reader.finish();
            if read != Read::default() {
                let delta = waiting.delta(choice);
                delta.text += &read.text;
                delta.tool_calls.extend(read.calls);
            }
            if reader.has_called() && finished.reason() == v1::FinishReason::Stop {
                finished.set_reason(v1::FinishReason::ToolCalls);
            }
        }
        waiting.finished = Some(finished);
    }

    /// Ends the stream with `error`, once all that waits is sent.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
    }

    /// Ends the stream with `error`, in place of all that waits.
    pub(super) fn cut(self, error: Error) {
        if let Some(kept) = self.kept {
            kept.send(Err(error));
        }
    }

    /// Sends what the queue takes.
    ///
    /// # Errors
    /// Where something is left.
    pub(super) fn send(&mut self) -> Result<(), Unsent> {
        while !self.is_served() && (!self.waiting.is_empty() || self.failure.is_some()) {
            let place = self.output.try_reserve().map_err(|error| match error {
                TrySendError::Full(()) => Unsent::Full,
                TrySendError::Closed(()) => Unsent::Gone,
            })?;
            if let Some(event) = next(&mut self.waiting) {
                if matches!(event, Event::Finished(_)) {
                    self.unfinished -= 1;
                    self.pass.choice_ended();
                }
                place.send(Ok(event));
            } else if let Some(error) = self.failure.take() {
                self.unfinished = 0;
                place.send(Err(error));
            }
        }
        Ok(())
    }
}

/// Takes what is first of what waits.
fn next(waiting: &mut BTreeMap<u32, Waiting>) -> Option<Event> {
    let mut first = waiting.first_entry()?;
    let Waiting { delta, finished } = first.get_mut();
    let event = delta
        .take()
        .map(Event::Delta)
        .or_else(|| finished.take().map(Event::Finished));
    if finished.is_none() {
        first.remove();
    }
    event
}

fn origin(origin: Origin) -> i32 {
    let origin = match origin {
        Origin::Target => TokenOrigin::Target,
        Origin::Draft => TokenOrigin::Draft,
        Origin::Ngram => TokenOrigin::Ngram,
    };
    origin.into()
}

fn finished(choice: u32, summary: Summary, told: Told) -> v1::Finished {
    let reason = match summary.reason {
        FinishReason::Stop(_) => v1::FinishReason::Stop,
        FinishReason::Length => v1::FinishReason::Length,
        FinishReason::Cancelled => v1::FinishReason::Cancelled,
    };
    let matched = match summary.reason {
        FinishReason::Stop(Matched::Token(id)) => Some(finished::Matched::StopTokenId(id)),
        FinishReason::Stop(Matched::String(stop)) => Some(finished::Matched::StopString(stop)),
        FinishReason::Length | FinishReason::Cancelled => None,
    };
    v1::Finished {
        reason: reason.into(),
        usage: Some(v1::Usage {
            prompt_tokens: summary.prompt_tokens as u32,
            completion_tokens: summary.completion_tokens as u32,
            cached_tokens: told.cached_tokens,
        }),
        speculation: Some(v1::SpeculationStats {
            rounds: summary.stats.rounds,
            draft_tokens: summary.stats.drafted,
            accepted_draft_tokens: summary.stats.accepted,
            acceptance_histogram: summary.stats.histogram,
            ngram_draft_tokens: summary.stats.ngram_drafted,
            accepted_ngram_tokens: summary.stats.ngram_accepted,
            ahead_hits: summary.stats.ahead_hits,
            ahead_misses: summary.stats.ahead_misses,
        }),
        choice,
        matched,
        timings: Some(told.timings),
    }
}
