//! The clients of running requests: ids to text, and their bounded output queues.

use crate::commit::{Delta, FinishReason, Origin};
use crate::detokenize::Detokenizer;
use crate::model::Model;
use crate::request::ValidRequest;
use crate::scheduler::{SequenceId, Summary};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use proto::v1::{self, GenerateResponse, TokenOrigin, generate_response::Event};
use service::Error;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tonic::Status;

/// A client's half of the output queue.
pub(crate) type Output = mpsc::Sender<Result<GenerateResponse, Status>>;

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Admission {
    /// What to do.
    pub(crate) request: ValidRequest,
    /// The model that it was checked against.
    pub(crate) model: Arc<Model>,
    /// Where the answer goes.
    pub(crate) output: Output,
    /// Its place among those that may run; given back when it is done with.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// What a client did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// It left.
    Gone(SequenceId),
    /// Its full queue has room again.
    Room(SequenceId),
    /// It has got everything.
    Served,
}

/// All clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    clients: HashMap<SequenceId, Client>,
    watches: FuturesUnordered<BoxFuture<'static, ClientEvent>>,
}

#[derive(Debug)]
struct Client {
    model: Arc<Model>,
    output: Output,
    detokenizer: Detokenizer,
    /// What could not be sent yet, in this order.
    delta: Option<v1::Delta>,
    last: Option<Result<v1::Finished, Status>>,
    /// True when the last was sent.
    ended: bool,
    /// True while the queue is watched for room.
    full: bool,
    _permit: OwnedSemaphorePermit,
    /// Dropped with the client, which ends the watch for its leaving.
    _served: oneshot::Sender<()>,
}

impl Clients {
    /// Takes a client in and returns its request.
    pub(super) fn add(&mut self, id: SequenceId, admission: Admission) -> ValidRequest {
        let (served, done) = oneshot::channel();
        let output = admission.output.clone();
        self.watches.push(Box::pin(async move {
            tokio::select! {
                () = output.closed() => ClientEvent::Gone(id),
                _ = done => ClientEvent::Served,
            }
        }));
        let client = Client {
            model: admission.model,
            output: admission.output,
            detokenizer: Detokenizer::default(),
            delta: None,
            last: None,
            ended: false,
            full: false,
            _permit: admission.permit,
            _served: served,
        };
        self.clients.insert(id, client);
        admission.request
    }

    /// Forgets a client.
    pub(super) fn remove(&mut self, id: SequenceId) {
        self.clients.remove(&id);
    }

    /// What a client does next; `None` where there are none.
    pub(super) async fn next(&mut self) -> Option<ClientEvent> {
        self.watches.next().await
    }

    /// Hands committed tokens to a client. False where it does not take them now: they are kept,
    /// and [`ClientEvent::Room`] will follow.
    pub(super) fn deliver(&mut self, id: SequenceId, delta: Delta) -> bool {
        if let Some(client) = self.clients.get_mut(&id) {
            let text = client
                .detokenizer
                .push(&client.model.tokenizer, &delta.tokens);
            client.keep(text, delta);
        }
        self.flush(id)
    }

    /// Ends a client's answer.
    pub(super) fn finish(&mut self, id: SequenceId, summary: Summary) {
        tracing::debug!(sequence = id, ?summary, "request finished");
        if let Some(client) = self.clients.get_mut(&id) {
            let text = std::mem::take(&mut client.detokenizer).finish(&client.model.tokenizer);
            if !text.is_empty() {
                client.keep(text, Delta::default());
            }
            client.last = Some(Ok(finished(summary)));
        }
        self.flush(id);
    }

    /// Ends a client's answer with an error.
    pub(super) fn fail(&mut self, id: SequenceId, error: Error) {
        tracing::warn!(sequence = id, %error, "request failed");
        if let Some(client) = self.clients.get_mut(&id) {
            client.last = Some(Err(error.into()));
        }
        self.flush(id);
    }

    /// The queue of a client had room.
    pub(super) fn room(&mut self, id: SequenceId) -> bool {
        if let Some(client) = self.clients.get_mut(&id) {
            client.full = false;
        }
        self.flush(id)
    }

    /// Sends what waits. True where nothing does any more.
    fn flush(&mut self, id: SequenceId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else {
            return true;
        };
        if client.full {
            return false;
        }
        if !client.send() {
            client.full = true;
            let output = client.output.clone();
            self.watches.push(Box::pin(async move {
                // A closed queue has no room either, but that the client left is seen elsewhere.
                let _ = output.reserve().await;
                ClientEvent::Room(id)
            }));
            return false;
        }
        if client.ended {
            self.clients.remove(&id);
        }
        true
    }
}

impl Client {
    /// Adds to what waits to be sent.
    fn keep(&mut self, text: String, delta: Delta) {
        let waiting = self.delta.get_or_insert_default();
        waiting.text += &text;
        waiting.token_ids.extend(delta.tokens);
        waiting
            .origins
            .extend(delta.origins.into_iter().map(origin));
    }

    /// Sends what the queue takes. True where nothing is left.
    fn send(&mut self) -> bool {
        while self.delta.is_some() || self.last.is_some() {
            match self.output.try_reserve() {
                Ok(place) => {
                    if let Some(delta) = self.delta.take() {
                        place.send(Ok(response(Event::Delta(delta))));
                    } else if let Some(last) = self.last.take() {
                        place.send(last.map(|last| response(Event::Finished(last))));
                        self.ended = true;
                    }
                }
                Err(TrySendError::Full(())) => return false,
                Err(TrySendError::Closed(())) => return true,
            }
        }
        true
    }
}

fn response(event: Event) -> GenerateResponse {
    GenerateResponse { event: Some(event) }
}

fn origin(origin: Origin) -> i32 {
    let origin = match origin {
        Origin::Target => TokenOrigin::Target,
        Origin::Draft => TokenOrigin::Draft,
    };
    origin.into()
}

fn finished(summary: Summary) -> v1::Finished {
    let reason = match summary.reason {
        FinishReason::Stop => v1::FinishReason::Stop,
        FinishReason::Length => v1::FinishReason::Length,
    };
    v1::Finished {
        reason: reason.into(),
        usage: Some(v1::Usage {
            prompt_tokens: summary.prompt_tokens as u32,
            completion_tokens: summary.completion_tokens as u32,
        }),
        speculation: Some(v1::SpeculationStats {
            rounds: summary.stats.rounds,
            draft_tokens: summary.stats.drafted,
            accepted_draft_tokens: summary.stats.accepted,
            acceptance_histogram: summary.stats.histogram,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Stats;
    use crate::testing::{self, byte_token};
    use service::Class;
    use speculation::{NoiseKey, Sampling, SamplingOptions};
    use tokio::sync::Semaphore;

    type Input = mpsc::Receiver<Result<GenerateResponse, Status>>;

    fn admitted(clients: &mut Clients, id: SequenceId, places: usize) -> (Input, Arc<Semaphore>) {
        let running = Arc::new(Semaphore::new(1));
        let (output, input) = mpsc::channel(places);
        let request = ValidRequest {
            prompt: vec![1],
            max_tokens: 100,
            end_tokens: Arc::default(),
            sampling: Sampling::new(SamplingOptions::default()).unwrap(),
            key: NoiseKey(1),
            max_draft_tokens: 3,
        };
        let admission = Admission {
            request,
            model: Arc::new(testing::model()),
            output,
            permit: Arc::clone(&running).try_acquire_owned().unwrap(),
        };
        clients.add(id, admission);
        (input, running)
    }

    fn delta(text: &[u8]) -> Delta {
        Delta {
            tokens: text.iter().copied().map(byte_token).collect(),
            origins: vec![Origin::Target; text.len()],
            finish: None,
        }
    }

    fn summary() -> Summary {
        Summary {
            reason: FinishReason::Length,
            prompt_tokens: 1,
            completion_tokens: 2,
            stats: Stats::default(),
        }
    }

    fn text(response: Result<GenerateResponse, Status>) -> String {
        match response.unwrap().event {
            Some(Event::Delta(delta)) => delta.text,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_slow_client_gets_everything_merged_and_in_order() {
        let mut clients = Clients::default();
        let (mut input, running) = admitted(&mut clients, 1, 1);
        assert!(clients.deliver(1, delta(b"a")));
        assert!(!clients.deliver(1, delta(b"b")), "no place is left");
        assert!(!clients.deliver(1, delta(b"c")));
        clients.finish(1, summary());

        assert_eq!(text(input.recv().await.unwrap()), "a");
        assert_eq!(clients.next().await, Some(ClientEvent::Room(1)));
        assert!(!clients.room(1), "the end still waits");
        assert_eq!(text(input.recv().await.unwrap()), "bc");
        assert_eq!(clients.next().await, Some(ClientEvent::Room(1)));
        assert!(clients.room(1));
        let last = input.recv().await.unwrap().unwrap().event;
        assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");

        assert_eq!(clients.next().await, Some(ClientEvent::Served));
        assert!(input.recv().await.is_none(), "the stream ends");
        assert_eq!(running.available_permits(), 1, "its place is free");
        assert!(clients.next().await.is_none(), "nothing is left of it");
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_and_forgotten() {
        let mut clients = Clients::default();
        let (input, running) = admitted(&mut clients, 7, 1);
        assert!(clients.deliver(7, delta(b"a")));
        assert!(!clients.deliver(7, delta(b"b")));
        drop(input);
        let mut events = vec![clients.next().await.unwrap(), clients.next().await.unwrap()];
        events.retain(|event| *event == ClientEvent::Gone(7));
        assert_eq!(events.len(), 1);
        clients.remove(7);
        assert_eq!(running.available_permits(), 1);
        assert!(clients.room(7), "a late event about it does no harm");
    }

    #[tokio::test]
    async fn what_is_left_of_an_incomplete_character_comes_before_the_end() {
        let mut clients = Clients::default();
        let (mut input, _running) = admitted(&mut clients, 1, 4);
        clients.deliver(1, delta("é".as_bytes().split_at(1).0));
        clients.finish(1, summary());
        assert_eq!(text(input.recv().await.unwrap()), "");
        assert_eq!(text(input.recv().await.unwrap()), "\u{fffd}");
        assert!(input.recv().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn an_error_follows_what_was_committed_and_ends_the_stream() {
        let mut clients = Clients::default();
        let (mut input, _running) = admitted(&mut clients, 1, 1);
        clients.deliver(1, delta(b"a"));
        clients.fail(1, Error::new(Class::Unavailable, "the target is lost"));
        assert_eq!(text(input.recv().await.unwrap()), "a");
        clients.next().await;
        clients.room(1);
        let status = input.recv().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert_eq!(clients.next().await, Some(ClientEvent::Served));
        assert!(input.recv().await.is_none());
    }
}
