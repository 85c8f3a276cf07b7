//! The connection to one draft worker.

use super::{
    Backoff, CALL_DEADLINE, COMMANDS, LinkEvent, Pulse, REFUSED_PAUSE, REFUSED_TOKEN, ServedModel,
    Session, TOKENIZER_DEADLINE, call, check_serving, collect, relay, tokenizers::first_difference,
};
use crate::model::{self, Model};
use crate::scheduler::{DraftLimits, Processors, WorkerId};
use crate::telemetry::PeerState;
use proto::v1::{
    DescribeRequest, DraftCommand, DraftEvent, GetTokenizerRequest, ModelDescription,
    draft_client::DraftClient,
};
use service::client::{PeerChannel, Peers};
use service::server::MAX_MESSAGE_BYTES;
use service::{CancellationToken, Class, Error};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// What a draft worker serves.
const SERVICE: &str = "specdec.v1.Draft";

/// Keeps a draft worker connected, as long as it has the target's tokenizer.
#[derive(Debug)]
pub(crate) struct DraftLink {
    worker: WorkerId,
    url: String,
    channel: PeerChannel,
    client: DraftClient<PeerChannel>,
    pulse: Pulse,
    served: ServedModel,
    events: mpsc::Sender<LinkEvent>,
}

/// A connection that is not used yet.
struct Connection {
    description: ModelDescription,
    commands: mpsc::Sender<DraftCommand>,
    incoming: Streaming<DraftEvent>,
}

impl DraftLink {
    /// A link to `url`, not connected yet.
    ///
    /// # Errors
    /// [`Class::Invalid`] where `url` is not a valid address.
    pub(crate) fn new(
        worker: WorkerId,
        url: String,
        peers: &Peers,
        served: ServedModel,
        events: mpsc::Sender<LinkEvent>,
        pulse: Pulse,
    ) -> Result<Self, Error> {
        let channel = peers.channel(&url)?;
        pulse.known(Some(worker), &url);
        let client = DraftClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            worker,
            url,
            channel,
            client,
            pulse,
            served,
            events,
        })
    }

    /// Connects, again and again. Ends with the driver, or when it is to `retire`.
    pub(crate) async fn run(mut self, retire: CancellationToken) {
        self.keep_connected(&retire).await;
        self.pulse.gone(self.worker);
    }

    async fn keep_connected(&mut self, retire: &CancellationToken) {
        let mut backoff = Backoff::default();
        while let Some(Some(target)) = retire.run_until_cancelled(self.target()).await {
            let connection = match retire.run_until_cancelled(self.connect(&target)).await {
                Some(connection) => connection,
                None => return,
            };
            let lost = match connection {
                Ok(connection) => {
                    backoff.reset();
                    self.serve(connection, &target, retire).await
                }
                Err(error) => Some(error),
            };
            let Some(error) = lost else {
                return;
            };
            let pause = self.pause(&target, &error, &mut backoff);
            if retire.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// The model that the target serves. `None` where nobody will ever say, or listen.
    async fn target(&mut self) -> Option<Arc<Model>> {
        if self.events.is_closed() {
            return None;
        }
        self.served.wait_for(Option::is_some).await.ok()?.clone()
    }

    async fn connect(&mut self, target: &Model) -> Result<Connection, Error> {
        let description = call(CALL_DEADLINE, self.client.describe(DescribeRequest {})).await?;
        let description = description.into_inner();
        check_serving(&self.channel, SERVICE).await?;
        self.check_tokenizer(target, &description).await?;
        let (commands, outgoing) = mpsc::channel(COMMANDS);
        let proposing = self.client.propose(ReceiverStream::new(outgoing));
        let incoming = call(CALL_DEADLINE, proposing).await?.into_inner();
        Ok(Connection {
            description,
            commands,
            incoming,
        })
    }

    /// One connection, from its beginning to its end: says why it ended where there is to be another.
    async fn serve(
        &mut self,
        connection: Connection,
        target: &Model,
        retire: &CancellationToken,
    ) -> Option<Error> {
        let Connection {
            description,
            commands,
            incoming,
        } = connection;
        let (worker, reset) = (self.worker, CancellationToken::new());
        let session = Session::new(commands, reset.clone());
        let up = LinkEvent::DraftUp(worker, session, limits(&description));
        self.events.send(up).await.ok()?;
        let ModelDescription {
            model_id, device, ..
        } = &description;
        tracing::info!(
            worker,
            url = self.url,
            model = model_id,
            device,
            "draft worker usable"
        );
        self.pulse.up(Some(worker), &self.url, model_id);
        let wrap = |event| LinkEvent::Draft(worker, event);
        let lost = tokio::select! {
            error = relay(incoming, &reset, &self.events, wrap) => Some(error),
            error = replaced(&mut self.served, target) => Some(error),
            () = retire.cancelled() => None,
            never = self.pulse.watch(Some(worker), &self.channel, SERVICE) => match never {},
        };
        let down = match &lost {
            Some(_) => LinkEvent::DraftDown(worker),
            None => LinkEvent::DraftRetired(worker),
        };
        self.events.send(down).await.ok()?;
        lost
    }

    async fn check_tokenizer(
        &mut self,
        target: &Model,
        description: &ModelDescription,
    ) -> Result<(), Error> {
        if description.tokenizer_fingerprint == target.tokenizer_fingerprint
            && description.tokenizer_size == target.tokenizer_size
        {
            return Ok(());
        }
        let json = call(TOKENIZER_DEADLINE, async {
            let chunks = self.client.get_tokenizer(GetTokenizerRequest {}).await?;
            collect(chunks.into_inner()).await
        })
        .await?;
        let draft = tokio::task::spawn_blocking(move || model::read_tokenizer(&json))
            .await
            .map_err(|error| Error::new(Class::Internal, error.to_string()))??;
        let difference = first_difference(&target.tokenizer, &draft, target.tokenizer_size)
            .unwrap_or_else(|| "the tokenizers differ in which tokens are special".to_owned());
        Err(Error::new(Class::Mismatch, difference))
    }

    async fn pause(&mut self, target: &Model, error: &Error, backoff: &mut Backoff) {
        let (worker, url) = (self.worker, &self.url);
        let refused = error.class == Class::Mismatch;
        let state = if refused {
            PeerState::Refused
        } else {
            PeerState::Disconnected
        };
        self.pulse.down(Some(worker), state);
        if refused {
            tracing::error!(worker, url, "draft worker refused: {error}");
            let _ = tokio::time::timeout(REFUSED_PAUSE, replaced(&mut self.served, target)).await;
            return;
        }
        if backoff.is_first() && error.class == Class::Unauthenticated {
            tracing::error!(worker, url, "draft worker not connected: {REFUSED_TOKEN}");
        } else if backoff.is_first() {
            tracing::warn!(worker, url, %error, "draft worker not connected");
        } else {
            tracing::debug!(worker, url, %error, "draft worker still not connected");
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

fn limits(description: &ModelDescription) -> DraftLimits {
    DraftLimits {
        max_sequences: description.max_sequences as usize,
        max_draft_tokens: description.max_draft_tokens as usize,
        context_length: description.context_length as usize,
        processors: Processors::described(description.processors.as_ref()),
    }
}

/// Ends when the target serves a model with another tokenizer than `target`, which makes what was
/// found out about the draft's void.
async fn replaced(served: &mut ServedModel, target: &Model) -> Error {
    let differs = |model: &Option<Arc<Model>>| {
        model
            .as_ref()
            .is_some_and(|model| model.tokenizer_fingerprint != target.tokenizer_fingerprint)
    };
    let ended = served.wait_for(differs).await.is_err();
    if ended {
        // The target's task has ended, so nothing will change any more.
        std::future::pending::<()>().await;
    }
    Error::new(Class::Unavailable, "the target serves another model now")
}
