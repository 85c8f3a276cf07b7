//! The connection to the target worker, or to a draft worker whose model answers alone.

use super::{
    Backoff, CALL_DEADLINE, COMMANDS, LinkEvent, Pulse, REFUSED_PAUSE, REFUSED_TOKEN, Session,
    TOKENIZER_DEADLINE, call, check_serving, collect, relay,
};
use crate::model::{Model, ModelOptions};
use crate::scheduler::{Processors, TargetLimits};
use crate::telemetry::PeerState;
use proto::v1::{
    DescribeRequest, GetTokenizerRequest, ModelDescription, ModelRole, target_client::TargetClient,
};
use service::client::{PeerChannel, Peers};
use service::server::MAX_MESSAGE_BYTES;
use service::{CancellationToken, Class, Error};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// What a target serves.
const SERVICE: &str = "specdec.v1.Target";

/// The models that links have fetched, so that workers of one model share it. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownModels(Arc<Mutex<Vec<Known>>>);

/// A model, as long as anybody has it.
type Known = (ModelDescription, Weak<Model>);

/// Keeps the target connected and publishes the model that it serves.
#[derive(Debug)]
pub(crate) struct TargetLink {
    role: ModelRole,
    known: KnownModels,
    url: String,
    channel: PeerChannel,
    client: TargetClient<PeerChannel>,
    pulse: Pulse,
    options: ModelOptions,
    served: watch::Sender<Option<Arc<Model>>>,
    events: mpsc::Sender<LinkEvent>,
    /// What was served last.
    last: Option<(ModelDescription, Arc<Model>)>,
}

impl TargetLink {
    /// A link to `url`, not connected yet. `served` holds the model while it is, which is one of `known`
    /// if any is the same; `options` are the operator's. `role` is what the worker there is otherwise.
    ///
    /// # Errors
    /// [`Class::Invalid`] where `url` is not a valid address.
    #[expect(clippy::too_many_arguments, reason = "each once, where it is made")]
    pub(crate) fn new(
        role: ModelRole,
        known: KnownModels,
        url: String,
        peers: &Peers,
        options: ModelOptions,
        served: watch::Sender<Option<Arc<Model>>>,
        events: mpsc::Sender<LinkEvent>,
        pulse: Pulse,
    ) -> Result<Self, Error> {
        let channel = peers.channel(&url)?;
        pulse.known(None, &url);
        let client = TargetClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            role,
            known,
            url,
            channel,
            client,
            pulse,
            options,
            served,
            events,
            last: None,
        })
    }

    /// Connects, again and again. Ends with the driver.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::default();
        while !self.events.is_closed() {
            let Err(error) = self.connected(&mut backoff).await else {
                return;
            };
            if self.served.send_replace(None).is_some() {
                // Where the driver is gone, the loop ends.
                let _ = self.events.send(LinkEvent::TargetDown).await;
            }
            self.pulse.down(None, PeerState::Disconnected);
            let pause = self.pause(&error, &mut backoff);
            tokio::time::sleep(pause).await;
        }
    }

    /// How long to wait after `error`, which is logged.
    fn pause(&self, error: &Error, backoff: &mut Backoff) -> Duration {
        let (url, who) = (&self.url, self.who());
        if backoff.is_first() && error.class == Class::Unauthenticated {
            tracing::error!(url, "{who} not connected: {REFUSED_TOKEN}");
        } else if backoff.is_first() {
            tracing::warn!(url, %error, "{who} not connected");
        } else {
            tracing::debug!(url, %error, "{who} still not connected");
        }
        let pause = backoff.next();
        // A draft worker that offers drafts alone.
        let unserved = self.role == ModelRole::Draft && error.class == Class::NotFound;
        if unserved { REFUSED_PAUSE } else { pause }
    }

    /// What people call it.
    fn who(&self) -> &'static str {
        match self.role {
            ModelRole::Draft => "draft model",
            ModelRole::Target | ModelRole::Unspecified => "target",
        }
    }

    /// One connection, from its beginning to its end. `Ok` where the driver has ended.
    async fn connected(&mut self, backoff: &mut Backoff) -> Result<(), Error> {
        let description = call(CALL_DEADLINE, self.client.describe(DescribeRequest {})).await?;
        let description = description.into_inner();
        check_serving(&self.channel, SERVICE).await?;
        let (model, replaced) = self.model(&description).await?;
        let (commands, outgoing) = mpsc::channel(COMMANDS);
        let verifying = self.client.verify(ReceiverStream::new(outgoing));
        let incoming = call(CALL_DEADLINE, verifying).await?.into_inner();

        let reset = CancellationToken::new();
        let up = LinkEvent::TargetUp {
            session: Session::new(commands, reset.clone()),
            limits: TargetLimits {
                max_sequences: description.max_sequences as usize,
                max_draft_tokens: description.max_draft_tokens as usize,
                processors: Processors::described(description.processors.as_ref()),
            },
            replaced,
        };
        if self.events.send(up).await.is_err() {
            return Ok(());
        }
        tracing::info!(
            url = self.url,
            model = model.name,
            context_length = model.context_length,
            device = description.device,
            "{} connected",
            self.who()
        );
        self.last = Some((description, Arc::clone(&model)));
        let name = model.name.clone();
        self.served.send_replace(Some(model));
        self.pulse.up(None, &self.url, &name);
        backoff.reset();
        tokio::select! {
            error = relay(incoming, &reset, &self.events, LinkEvent::Target) => Err(error),
            never = self.pulse.watch(None, &self.channel, SERVICE) => match never {},
        }
    }

    /// The model of `description`, and whether it is another than before.
    async fn model(&mut self, description: &ModelDescription) -> Result<(Arc<Model>, bool), Error> {
        let last = self.last.as_ref();
        if let Some((_, model)) = last.filter(|(last, _)| is_same_model(last, description)) {
            return Ok((Arc::clone(model), false));
        }
        let replaced = self.last.is_some();
        // Held meanwhile, so that links that start together fetch a model once.
        let known = self.known.clone();
        let mut known = known.0.lock().await;
        known.retain(|(_, model)| model.strong_count() > 0);
        let same = known
            .iter()
            .find(|(known, _)| is_same_model(known, description));
        if let Some(model) = same.and_then(|(_, model)| model.upgrade()) {
            return Ok((model, replaced));
        }
        let model = Arc::new(self.fetch(description).await?);
        known.push((description.clone(), Arc::downgrade(&model)));
        Ok((model, replaced))
    }

    /// The model of `description`, with the tokenizer from the worker.
    async fn fetch(&mut self, description: &ModelDescription) -> Result<Model, Error> {
        let json = call(TOKENIZER_DEADLINE, async {
            let chunks = self.client.get_tokenizer(GetTokenizerRequest {}).await?;
            collect(chunks.into_inner()).await
        })
        .await?;
        let (options, description) = (self.options.clone(), description.clone());
        let model = tokio::task::spawn_blocking(move || Model::new(&options, &description, &json))
            .await
            .map_err(|error| Error::new(Class::Internal, error.to_string()))??;
        if let Err(reason) = &model.template {
            tracing::warn!(reason, "conversations are refused");
        }
        Ok(model)
    }
}

/// True where a sequence that one began can be continued by the other.
fn is_same_model(a: &ModelDescription, b: &ModelDescription) -> bool {
    let of = |description: &ModelDescription| ModelDescription {
        max_sequences: 0,
        max_draft_tokens: 0,
        device: String::new(),
        ..description.clone()
    };
    of(a) == of(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_on_another_device_serves_the_same_model() {
        let cpu = ModelDescription {
            model_id: "m".into(),
            device: "cpu".into(),
            max_sequences: 4,
            ..ModelDescription::default()
        };
        let gpu = ModelDescription {
            device: "cuda".into(),
            max_sequences: 64,
            ..cpu.clone()
        };
        assert!(is_same_model(&cpu, &gpu));
        let other = ModelDescription {
            tokenizer_fingerprint: "x".into(),
            ..cpu.clone()
        };
        assert!(!is_same_model(&cpu, &other));
    }
}
