//! One request, as a client sends it, and how fast its answer comes.

use super::ratio;
use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use proto::v1::generate_response::Event;
use proto::v1::generation_client::GenerationClient;
use proto::v1::{
    Chat, ChatMessage, Delta, DraftSource, Finished, GenerateRequest, Prompt, SamplingParams,
    Speculation, SpeculationMode, StopParams, VerificationRule, prompt,
};
use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};
use tokio::time;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// The service that must be ready.
const SERVICE: &str = "specdec.v1.Generation";
/// How long the models may take to load.
const READY: Duration = Duration::from_secs(180);
/// The longest silence within an answer.
const SILENCE: Duration = Duration::from_secs(120);

/// What to say of one.
const SILENT: &str = "the coordinator is silent";

/// What to ask for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) max_tokens: u32,
    pub(crate) temperature: f32,
    pub(crate) seed: u64,
    pub(crate) speculate: bool,
    pub(crate) rule: VerificationRule,
    pub(crate) min_draft_tokens: Option<u32>,
    pub(crate) max_draft_tokens: Option<u32>,
    /// Where drafts may come from; empty allows all.
    pub(crate) sources: &'a [DraftSource],
}

/// An answer, whole.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) token_ids: Vec<u32>,
    pub(crate) pace: Pace,
    pub(crate) finished: Finished,
}

/// How fast tokens came after the first ones, so that the prompt's length does not count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    span: Option<(Instant, Instant)>,
    tokens: usize,
}

impl Pace {
    fn add(&mut self, tokens: usize, now: Instant) {
        match &mut self.span {
            _ if tokens == 0 => {}
            None => self.span = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                self.tokens += tokens;
            }
        }
    }

    /// Tokens after the first ones.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// How long they took, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.span
            .map_or(0.0, |(first, last)| (last - first).as_secs_f64())
    }

    /// Tokens per second from the first delta to the last; 0 where there is only one.
    pub(crate) fn tokens_per_second(&self) -> f64 {
        ratio(self.tokens as f64, self.seconds())
    }
}

/// A client of the public service.
pub(crate) struct Client(GenerationClient<Channel>);

impl Client {
    /// Connects to the coordinator.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(GenerationClient::new(connect(url).await?)))
    }

    /// Asks, and gives each new text to `show`.
    pub(crate) async fn generate(
        &mut self,
        ask: &Ask<'_>,
        mut show: impl FnMut(&str) -> Result<()>,
    ) -> Result<Answer> {
        let stream = time::timeout(SILENCE, self.0.generate(ask.request()));
        let mut stream = stream
            .await
            .context(SILENT)?
            .map_err(|status| refused(&status))?
            .into_inner();
        let mut answer = Answer::default();
        let mut finished = None;
        while let Some(response) = time::timeout(SILENCE, stream.message())
            .await
            .context(SILENT)?
            .map_err(|status| refused(&status))?
        {
            match response.event {
                Some(Event::Delta(delta)) => {
                    show(&delta.text)?;
                    answer.add(delta);
                }
                Some(Event::Finished(end)) => finished = Some(end),
                None => {}
            }
        }
        answer.finished = finished.context("the answer broke off")?;
        Ok(answer)
    }
}

impl Answer {
    fn add(&mut self, delta: Delta) {
        self.pace.add(delta.token_ids.len(), Instant::now());
        self.text.push_str(&delta.text);
        self.token_ids.extend(delta.token_ids);
    }
}

impl Ask<'_> {
    fn request(&self) -> GenerateRequest {
        let message = ChatMessage {
            role: "user".to_owned(),
            content: self.prompt.to_owned(),
            ..ChatMessage::default()
        };
        let chat = Chat {
            messages: vec![message],
            ..Chat::default()
        };
        let mode = if self.speculate {
            SpeculationMode::Auto
        } else {
            SpeculationMode::Off
        };
        GenerateRequest {
            prompt: Some(Prompt {
                prompt: Some(prompt::Prompt::Chat(chat)),
            }),
            sampling: Some(SamplingParams {
                temperature: Some(self.temperature),
                ..SamplingParams::default()
            }),
            stop: Some(StopParams {
                max_tokens: Some(self.max_tokens),
                ..StopParams::default()
            }),
            speculation: Some(Speculation {
                mode: mode.into(),
                max_draft_tokens: self.max_draft_tokens.filter(|_| self.speculate),
                min_draft_tokens: self.min_draft_tokens.filter(|_| self.speculate),
                rule: self.rule.into(),
                sources: self.sources.iter().map(|source| (*source).into()).collect(),
                ..Speculation::default()
            }),
            seed: Some(self.seed),
            ..GenerateRequest::default()
        }
    }
}

fn refused(status: &tonic::Status) -> Error {
    anyhow!(
        "the coordinator: {} ({:?})",
        status.message(),
        status.code()
    )
}

/// Shows text as it comes.
pub(crate) fn print(text: &str) -> Result<()> {
    print!("{text}");
    Ok(stdout().flush()?)
}

/// Waits until the coordinator's health says that it takes requests.
pub(crate) async fn ready(url: &str) -> Result<()> {
    let mut client = HealthClient::new(connect(url).await?);
    let request = HealthCheckRequest {
        service: SERVICE.to_owned(),
    };
    let serving = async {
        loop {
            match client.check(request.clone()).await {
                Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => return Ok(()),
                Ok(_) => {}
                Err(status) if status.code() == tonic::Code::NotFound => {}
                Err(status) => bail!("the coordinator's health: {status}"),
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = time::timeout(READY, serving).await;
    waited.with_context(|| format!("the coordinator was not ready within {} s", READY.as_secs()))?
}

async fn connect(url: &str) -> Result<Channel> {
    ensure!(!url.is_empty(), "there is no address");
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true);
    let channel = endpoint.connect().await;
    channel.with_context(|| format!("connect to {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_leaves_out_what_the_prompt_took() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert_eq!(pace.tokens_per_second(), 0.0);
        pace.add(1, at(10));
        assert_eq!(pace.tokens_per_second(), 0.0);
        pace.add(3, at(11));
        pace.add(5, at(12));
        pace.add(0, at(20));
        assert_eq!(pace.tokens_per_second(), 4.0);
    }
}
