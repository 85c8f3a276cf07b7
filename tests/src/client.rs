//! A client of the public service.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use proto::v1::{
    self, Chat, ChatMessage, GenerateRequest, Prompt, SamplingParams, Speculation, SpeculationMode,
    StopParams, generate_response::Event, generation_client::GenerationClient, prompt,
};
use tonic::transport::Channel;

/// A client of one coordinator.
#[derive(Debug, Clone)]
pub struct Client {
    inner: GenerationClient<Channel>,
    channel: Channel,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The texts of all deltas, joined.
    pub text: String,
    /// The committed tokens.
    pub ids: Vec<u32>,
    /// Where each came from.
    pub origins: Vec<i32>,
    /// Why it ended.
    pub reason: v1::FinishReason,
    /// Token counts.
    pub usage: v1::Usage,
    /// What speculation did.
    pub speculation: v1::SpeculationStats,
}

impl Answer {
    /// Accepted over verified drafted tokens.
    pub fn acceptance(&self) -> f64 {
        f64::from(self.speculation.accepted_draft_tokens) / f64::from(self.speculation.draft_tokens)
    }
}

/// Shorthands that build requests.
pub trait Prompting: Sized {
    /// Generates `count` tokens, whatever the model's end of text.
    #[must_use]
    fn tokens(self, count: u32) -> Self;
    /// Stops after `count` tokens, or at the model's end of text.
    #[must_use]
    fn at_most(self, count: u32) -> Self;
    /// Sets how tokens are chosen.
    #[must_use]
    fn sampling(self, sampling: SamplingParams) -> Self;
    /// Sets the seed.
    #[must_use]
    fn seed(self, seed: u64) -> Self;
    /// Drafts up to `k` tokens per round.
    #[must_use]
    fn drafting(self, k: u32) -> Self;
    /// Decodes plainly.
    #[must_use]
    fn plain(self) -> Self;
}

impl Prompting for GenerateRequest {
    fn tokens(mut self, count: u32) -> Self {
        self.stop = Some(StopParams {
            max_tokens: Some(count),
            ignore_eos: true,
        });
        self
    }

    fn at_most(mut self, count: u32) -> Self {
        self.stop = Some(StopParams {
            max_tokens: Some(count),
            ignore_eos: false,
        });
        self
    }

    fn sampling(mut self, sampling: SamplingParams) -> Self {
        self.sampling = Some(sampling);
        self
    }

    fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    fn drafting(mut self, k: u32) -> Self {
        self.speculation = Some(Speculation {
            max_draft_tokens: Some(k),
            ..Speculation::default()
        });
        self
    }

    fn plain(mut self) -> Self {
        self.speculation = Some(Speculation {
            mode: SpeculationMode::Off.into(),
            ..Speculation::default()
        });
        self
    }
}

/// A request that continues `text`, greedily.
pub fn text_prompt(text: &str) -> GenerateRequest {
    greedy(prompt::Prompt::Text(text.to_owned()))
}

/// A request that answers one user message, greedily.
pub fn chat(message: &str) -> GenerateRequest {
    greedy(prompt::Prompt::Chat(Chat {
        messages: vec![ChatMessage {
            role: "user".to_owned(),
            content: message.to_owned(),
        }],
    }))
}

fn greedy(prompt: prompt::Prompt) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(Prompt {
            prompt: Some(prompt),
        }),
        sampling: Some(SamplingParams {
            temperature: Some(0.0),
            ..SamplingParams::default()
        }),
        ..GenerateRequest::default()
    }
}

impl Client {
    /// Connects to a coordinator.
    ///
    /// # Errors
    /// Where nothing listens at `url`.
    pub async fn connect(url: &str) -> Result<Self> {
        let channel = service::client::channel(url)?;
        let inner = GenerationClient::new(channel.clone());
        Ok(Self { inner, channel })
    }

    /// True where the coordinator's health says that it serves.
    pub async fn is_serving(&self) -> bool {
        let mut health = tonic_health::pb::health_client::HealthClient::new(self.channel.clone());
        let request = tonic_health::pb::HealthCheckRequest {
            service: "specdec.v1.Generation".to_owned(),
        };
        health.check(request).await.is_ok_and(|response| {
            response.into_inner().status()
                == tonic_health::pb::health_check_response::ServingStatus::Serving
        })
    }

    /// The raw client.
    pub fn raw(&self) -> GenerationClient<Channel> {
        self.inner.clone()
    }

    /// Generates to the end.
    ///
    /// # Errors
    /// The call's status, or an answer that breaks the protocol.
    pub async fn generate(&self, request: GenerateRequest) -> Result<Answer> {
        let mut stream = self.raw().generate(request).await?.into_inner();
        let (mut text, mut ids, mut origins) = (String::new(), Vec::new(), Vec::new());
        while let Some(response) = stream.next().await {
            match response?.event.context("an empty response")? {
                Event::Delta(delta) => {
                    text.push_str(&delta.text);
                    ids.extend(delta.token_ids);
                    origins.extend(delta.origins);
                }
                Event::Finished(finished) => {
                    anyhow::ensure!(stream.next().await.is_none(), "something after the end");
                    return Ok(Answer {
                        text,
                        ids,
                        origins,
                        reason: finished.reason(),
                        usage: finished.usage.context("usage")?,
                        speculation: finished.speculation.context("speculation")?,
                    });
                }
            }
        }
        anyhow::bail!(
            "the stream ended without a finish after {} tokens",
            ids.len()
        )
    }
}
