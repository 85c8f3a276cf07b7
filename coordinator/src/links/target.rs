//! The connection to the target worker.

use super::{
    Backoff, CALL_DEADLINE, COMMANDS, LinkEvent, REFUSED_TOKEN, Session, TOKENIZER_DEADLINE, call,
    collect, relay,
};
use crate::model::Model;
use crate::scheduler::TargetLimits;
use proto::v1::{
    DescribeRequest, GetTokenizerRequest, ModelDescription, target_client::TargetClient,
};
use service::client::{PeerChannel, Peers};
use service::server::MAX_MESSAGE_BYTES;
use service::{CancellationToken, Class, Error};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// Keeps the target connected and publishes the model that it serves.
#[derive(Debug)]
pub(crate) struct TargetLink {
    url: String,
    client: TargetClient<PeerChannel>,
    model_name: Option<String>,
    served: watch::Sender<Option<Arc<Model>>>,
    events: mpsc::Sender<LinkEvent>,
    /// What was served last.
    last: Option<(ModelDescription, Arc<Model>)>,
}

impl TargetLink {
    /// A link to `url`, not connected yet. `served` holds the model while it is; `model_name`
    /// replaces its own name in requests.
    ///
    /// # Errors
    /// [`Class::Invalid`] where `url` is not a valid address.
    pub(crate) fn new(
        url: String,
        peers: &Peers,
        model_name: Option<String>,
        served: watch::Sender<Option<Arc<Model>>>,
        events: mpsc::Sender<LinkEvent>,
    ) -> Result<Self, Error> {
        let client = TargetClient::new(peers.channel(&url)?)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            url,
            client,
            model_name,
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
            if backoff.is_first() && error.class == Class::Unauthenticated {
                tracing::error!(url = self.url, "target not connected: {REFUSED_TOKEN}");
            } else if backoff.is_first() {
                tracing::warn!(url = self.url, %error, "target not connected");
            } else {
                tracing::debug!(url = self.url, %error, "target still not connected");
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// One connection, from its beginning to its end. `Ok` where the driver has ended.
    async fn connected(&mut self, backoff: &mut Backoff) -> Result<(), Error> {
        let description = call(CALL_DEADLINE, self.client.describe(DescribeRequest {})).await?;
        let description = description.into_inner();
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
            "target connected"
        );
        self.last = Some((description, Arc::clone(&model)));
        self.served.send_replace(Some(model));
        backoff.reset();
        Err(relay(incoming, &reset, &self.events, LinkEvent::Target).await)
    }

    /// The model of `description`, and whether it is another than before.
    async fn model(&mut self, description: &ModelDescription) -> Result<(Arc<Model>, bool), Error> {
        let last = self.last.as_ref();
        if let Some((_, model)) = last.filter(|(last, _)| is_same_model(last, description)) {
            return Ok((Arc::clone(model), false));
        }
        let json = call(TOKENIZER_DEADLINE, async {
            let chunks = self.client.get_tokenizer(GetTokenizerRequest {}).await?;
            collect(chunks.into_inner()).await
        })
        .await?;
        let (name, description) = (self.model_name.clone(), description.clone());
        let model =
            tokio::task::spawn_blocking(move || Model::new(name.as_deref(), &description, &json))
                .await
                .map_err(|error| Error::new(Class::Internal, error.to_string()))??;
        if let Err(reason) = &model.template {
            tracing::warn!(reason, "conversations are refused");
        }
        Ok((Arc::new(model), self.last.is_some()))
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
