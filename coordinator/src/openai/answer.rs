//! From a call to its answer: whole, or a stream of server-sent events. How a choice is written is
//! its [`Form`]'s matter.

use super::Front;
use super::bodies::StreamOptions;
use super::error::Failure;
use super::events::Events;
use super::fields::Rename;
use super::stats::{Metrics, Tally, Timings, Usage};
use super::stream;
use crate::api::Caller;
use axum::Json;
use axum::response::{IntoResponse as _, Response};
use proto::v1::generate_response::Event;
use proto::v1::{Delta, Finished, GenerateRequest, Prompt, prompt};
use serde::Serialize;
use service::Error;
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// A call of the service, as a body asked for it.
#[derive(Debug)]
pub(super) struct Call {
    /// What is asked for, but for the prompt.
    pub(super) request: GenerateRequest,
    /// What of. At least one.
    pub(super) prompts: Vec<prompt::Prompt>,
    /// How the answer is streamed, where it is.
    pub(super) stream: Option<StreamOptions>,
    /// What the body calls some fields.
    pub(super) own: Vec<Rename>,
}

impl Call {
    /// What `error`, which the prompt at `index` met, is to the client.
    pub(super) fn failure(&self, error: Error, index: usize) -> Failure {
        let failure = Failure::of(error, &self.own);
        if self.prompts.len() > 1 {
            failure.of_prompt(index)
        } else {
            failure
        }
    }

    /// The request for the prompt at `index`, which is taken out.
    fn with_prompt(&mut self, index: usize) -> GenerateRequest {
        let empty = prompt::Prompt::Text(String::new());
        let prompt = std::mem::replace(&mut self.prompts[index], empty);
        GenerateRequest {
            prompt: Some(Prompt {
                prompt: Some(prompt),
            }),
            ..self.request.clone()
        }
    }

    /// The number of choices of each prompt.
    pub(super) fn n(&self) -> usize {
        self.request.n.unwrap_or(1) as usize
    }
}

/// How an answer is written. Choices are numbered through: those of the first prompt come first.
pub(super) trait Form: Send + 'static {
    /// What a whole answer is called, and a piece of a stream.
    const OBJECTS: [&'static str; 2];
    /// What the answer's name begins with.
    const PREFIX: &'static str;
    /// A whole choice.
    type Choice: Serialize + Send;
    /// A piece of a choice.
    type Piece: Serialize + Send;

    /// More of a choice; `None` where there is nothing to tell yet.
    fn piece(&mut self, choice: usize, delta: Delta) -> Option<Self::Piece>;

    /// The end of a choice.
    fn end(&mut self, choice: usize, ended: &Finished) -> Self::Piece;

    /// A whole choice, of which `delta` is everything.
    fn whole(&mut self, choice: usize, delta: Delta, ended: &Finished) -> Self::Choice;
}

/// What every answer, and every piece of one, has in common.
#[derive(Debug)]
pub(super) struct Head {
    id: String,
    created: u64,
    model: String,
}

/// An answer, or a piece of one.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Envelope<'a, C> {
    /// Its name.
    id: &'a str,
    /// What it is.
    object: &'static str,
    /// When it was begun, in seconds since 1970.
    created: u64,
    /// Whose it is.
    model: &'a str,
    /// The choices.
    choices: Vec<C>,
    /// Token counts; in a stream that was asked to end with them, null before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    usage: Option<Option<Usage>>,
    /// What speculation did.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Metrics>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
}

impl Head {
    fn new(prefix: &str, model: String) -> Self {
        Self {
            id: format!("{prefix}{:032x}", rand::random::<u128>()),
            created: now(),
            model,
        }
    }

    /// `choices`, of which nothing more is said.
    pub(super) fn over<C>(&self, object: &'static str, choices: Vec<C>) -> Envelope<'_, C> {
        Envelope {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage: None,
            metrics: None,
            timings: None,
        }
    }
}

impl<C> Envelope<'_, C> {
    /// Says that token counts follow at the end.
    #[must_use]
    pub(super) fn counted_later(mut self) -> Self {
        self.usage = Some(None);
        self
    }

    /// Says what all of it took.
    #[must_use]
    pub(super) fn counted(mut self, tally: &Tally) -> Self {
        self.usage = Some(Some(tally.usage()));
        self.metrics = Some(tally.metrics());
        self.timings = tally.timings();
        self
    }
}

/// The time, in seconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Starts `call` and writes its answer. Dropping it gives the call up.
///
/// # Errors
/// Why there is none.
pub(super) async fn answer<F: Form>(
    front: &Front,
    caller: Caller,
    mut call: Call,
    form: F,
) -> Result<Response, Failure> {
    let model = front.api.model(&call.request.model)?.name.clone();
    let head = Head::new(F::PREFIX, model);
    let mut answers = Vec::with_capacity(call.prompts.len());
    for index in 0..call.prompts.len() {
        // One at a time: a body can be large, and only what was checked is small.
        let answer = front.api.generate(call.with_prompt(index), caller.clone());
        let answer = answer.await.map_err(|error| call.failure(error, index))?;
        answers.push(answer);
    }
    let stream = call.stream;
    let events = Events::new(call, answers);
    match stream {
        Some(options) => stream::respond(events, head, form, options).await,
        None => whole(events, &head, form).await,
    }
}

/// The answer, all at once.
async fn whole<F: Form>(mut events: Events, head: &Head, mut form: F) -> Result<Response, Failure> {
    let mut tally = Tally::default();
    let mut deltas = vec![Delta::default(); events.choices()];
    let mut choices = Vec::with_capacity(deltas.len());
    while let Some(event) = events.next().await {
        match event? {
            (choice, Event::Delta(delta)) => append(&mut deltas[choice], delta),
            (choice, Event::Finished(ended)) => {
                tally.add(&ended, events.is_first(choice));
                let delta = std::mem::take(&mut deltas[choice]);
                choices.push((choice, form.whole(choice, delta, &ended)));
            }
        }
    }
    choices.sort_by_key(|(choice, _)| *choice);
    let choices = choices.into_iter().map(|(_, choice)| choice).collect();
    let [object, _] = F::OBJECTS;
    Ok(Json(head.over::<F::Choice>(object, choices).counted(&tally)).into_response())
}

fn append(all: &mut Delta, more: Delta) {
    all.text += &more.text;
    all.token_ids.extend(more.token_ids);
    all.logprobs.extend(more.logprobs);
    all.tool_calls.extend(more.tool_calls);
}
