//! A client of the public service.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use proto::v1::{
    self, Chat, ChatMessage, DraftSource, Finished, GenerateRequest, LogprobsMode, LogprobsParams,
    Prompt, SamplingParams, SpeculationMode, StopParams, StructuredOutput, TokenIds, TokenOrigin,
    TokenizeRequest, VerificationRule, generate_response::Event,
    generation_client::GenerationClient, prompt, structured_output,
};
use tonic::Status;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Requests that [`Client::generate_all`] has running at once.
const AT_ONCE: usize = 32;

/// A client of one coordinator.
#[derive(Debug, Clone)]
pub struct Client {
    inner: GenerationClient<Channel>,
    channel: Channel,
}

/// A whole answer: one choice of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The texts of all deltas, joined.
    pub text: String,
    /// The committed tokens.
    pub ids: Vec<u32>,
    /// Where each came from.
    pub origins: Vec<i32>,
    /// Their log-probabilities, where asked for.
    pub logprobs: Vec<v1::TokenLogprobs>,
    /// The functions that it calls.
    pub tool_calls: Vec<v1::ToolCall>,
    /// Why it ended.
    pub reason: v1::FinishReason,
    /// The stop token or stop string that ended it.
    pub matched: Option<v1::finished::Matched>,
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

    /// What holds of every answer: the tokens delivered are the tokens counted, each with its origin
    /// and, where asked for, its log-probabilities.
    fn check_counts(&self, logprobs: bool) -> Result<()> {
        let tokens = self.ids.len();
        let target = i32::from(TokenOrigin::Target);
        let ngram = i32::from(TokenOrigin::Ngram);
        let accepted = self.origins.iter().filter(|it| **it != target).count();
        let ngrams = self.origins.iter().filter(|it| **it == ngram).count();
        let stats = &self.speculation;
        for (what, count, expected) in [
            ("usage", self.usage.completion_tokens as usize, tokens),
            ("origins", self.origins.len(), tokens),
            (
                "logprobs",
                self.logprobs.len(),
                if logprobs { tokens } else { 0 },
            ),
            ("accepted", stats.accepted_draft_tokens as usize, accepted),
            ("n-grams", stats.accepted_ngram_tokens as usize, ngrams),
        ] {
            anyhow::ensure!(
                count == expected,
                "{what}: {count}, not {expected}: {self:?}"
            );
        }
        let verified = stats.draft_tokens as usize;
        anyhow::ensure!(accepted <= verified, "accepted, not verified: {self:?}");
        Ok(())
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
    /// Changes how tokens are chosen.
    #[must_use]
    fn choosing(self, change: impl FnOnce(&mut SamplingParams)) -> Self;
    /// Changes when the text ends.
    #[must_use]
    fn stopping(self, change: impl FnOnce(&mut StopParams)) -> Self;
    /// Sets the seed.
    #[must_use]
    fn seed(self, seed: u64) -> Self;
    /// Drafts up to `k` tokens per round.
    #[must_use]
    fn drafting(self, k: u32) -> Self;
    /// Decodes plainly.
    #[must_use]
    fn plain(self) -> Self;
    /// Verifies by `rule`.
    #[must_use]
    fn rule(self, rule: VerificationRule) -> Self;
    /// Asks for the log-probabilities of the committed and of the `top` most likely tokens.
    #[must_use]
    fn logprobs(self, top: u32, mode: LogprobsMode) -> Self;
    /// Asks for `n` choices.
    #[must_use]
    fn choices(self, n: u32) -> Self;
    /// Ends the text at a string as well.
    #[must_use]
    fn stop_string(self, string: &str) -> Self;
    /// The text must match `form`.
    #[must_use]
    fn structured(self, form: structured_output::Form) -> Self;
}

impl Prompting for GenerateRequest {
    fn tokens(mut self, count: u32) -> Self {
        let stop = self.stop.get_or_insert_default();
        stop.max_tokens = Some(count);
        stop.ignore_eos = true;
        self
    }

    fn at_most(mut self, count: u32) -> Self {
        let stop = self.stop.get_or_insert_default();
        stop.max_tokens = Some(count);
        stop.ignore_eos = false;
        self
    }

    fn sampling(mut self, sampling: SamplingParams) -> Self {
        self.sampling = Some(sampling);
        self
    }

    fn choosing(mut self, change: impl FnOnce(&mut SamplingParams)) -> Self {
        change(self.sampling.get_or_insert_default());
        self
    }

    fn stopping(mut self, change: impl FnOnce(&mut StopParams)) -> Self {
        change(self.stop.get_or_insert_default());
        self
    }

    fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    fn drafting(mut self, k: u32) -> Self {
        let speculation = self.speculation.get_or_insert_default();
        // Of so many in every round, whether or not it pays: these are tests of what happens then.
        speculation.max_draft_tokens = Some(k);
        speculation.min_draft_tokens = Some(k);
        speculation.sources = vec![DraftSource::Model.into()];
        self
    }

    fn plain(mut self) -> Self {
        let speculation = self.speculation.get_or_insert_default();
        speculation.mode = SpeculationMode::Off.into();
        self
    }

    fn rule(mut self, rule: VerificationRule) -> Self {
        let speculation = self.speculation.get_or_insert_default();
        speculation.rule = rule.into();
        self
    }

    fn logprobs(mut self, top: u32, mode: LogprobsMode) -> Self {
        self.logprobs = Some(LogprobsParams {
            top,
            mode: mode.into(),
        });
        self
    }

    fn choices(mut self, n: u32) -> Self {
        self.n = Some(n);
        self
    }

    fn stop_string(mut self, string: &str) -> Self {
        let stop = self.stop.get_or_insert_default();
        stop.strings.push(string.to_owned());
        self
    }

    fn structured(mut self, form: structured_output::Form) -> Self {
        self.structured = Some(StructuredOutput { form: Some(form) });
        self
    }
}

/// A request that continues `text`, greedily.
pub fn text_prompt(text: &str) -> GenerateRequest {
    greedy(prompt::Prompt::Text(text.to_owned()))
}

/// A request that continues `ids`, greedily.
pub fn ids_prompt(ids: Vec<u32>) -> GenerateRequest {
    greedy(prompt::Prompt::TokenIds(TokenIds { ids }))
}

/// A request that answers one user message, greedily.
pub fn chat(message: &str) -> GenerateRequest {
    greedy(prompt::Prompt::Chat(Chat {
        messages: vec![ChatMessage {
            role: "user".to_owned(),
            content: message.to_owned(),
            ..ChatMessage::default()
        }],
        ..Chat::default()
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
        self.health()
            .await
            .is_ok_and(|said| said == ServingStatus::Serving)
    }

    /// What the coordinator's health says.
    ///
    /// # Errors
    /// Where it says nothing.
    pub async fn health(&self) -> Result<ServingStatus, Status> {
        let mut health = HealthClient::new(self.channel.clone());
        let request = HealthCheckRequest {
            service: "specdec.v1.Generation".to_owned(),
        };
        Ok(health.check(request).await?.get_ref().status())
    }

    /// The raw client.
    pub fn raw(&self) -> GenerationClient<Channel> {
        self.inner.clone()
    }

    /// Generates to the end, the one choice that is asked for.
    ///
    /// # Errors
    /// The call's status, or an answer that breaks the protocol.
    pub async fn generate(&self, request: GenerateRequest) -> Result<Answer> {
        let mut answers = self.generate_choices(request).await?;
        anyhow::ensure!(answers.len() == 1, "{} choices", answers.len());
        answers.pop().context("a choice")
    }

    /// Generates to the end, many requests side by side; the answers in the order of the requests.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), the first.
    pub async fn generate_all(
        &self,
        requests: impl IntoIterator<Item = GenerateRequest>,
    ) -> Result<Vec<Answer>> {
        stream::iter(requests)
            .map(|request| self.generate(request))
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// The token ids of a text prompt.
    ///
    /// # Errors
    /// The call's status.
    pub async fn tokenize(&self, text: &str) -> Result<Vec<u32>> {
        let (ids, _) = self
            .tokenize_prompt(prompt::Prompt::Text(text.to_owned()))
            .await?;
        Ok(ids)
    }

    /// The token ids of a prompt, and the text that they were made of.
    ///
    /// # Errors
    /// The call's status.
    pub async fn tokenize_prompt(&self, prompt: prompt::Prompt) -> Result<(Vec<u32>, String)> {
        let request = TokenizeRequest {
            prompt: Some(Prompt {
                prompt: Some(prompt),
            }),
            ..TokenizeRequest::default()
        };
        let response = self.raw().tokenize(request).await?.into_inner();
        Ok((response.token_ids, response.text))
    }

    /// Generates to the end, all choices, in their order.
    ///
    /// # Errors
    /// The call's status, or an answer that breaks the protocol.
    pub async fn generate_choices(&self, request: GenerateRequest) -> Result<Vec<Answer>> {
        let count = request.n.unwrap_or(1) as usize;
        let logprobs = request.logprobs.is_some();
        let mut choices = vec![Choice::default(); count];
        let mut stream = self.raw().generate(request).await?.into_inner();
        while let Some(response) = stream.next().await {
            let event = response?.event.context("an empty response")?;
            let index = match &event {
                Event::Delta(delta) => delta.choice,
                Event::Finished(finished) => finished.choice,
            };
            let choice = choices
                .get_mut(index as usize)
                .context("a choice too many")?;
            choice.take(event)?;
        }
        let answers = choices.into_iter().map(Choice::answer);
        answers
            .map(|answer| {
                let answer = answer?;
                answer.check_counts(logprobs)?;
                Ok(answer)
            })
            .collect()
    }
}

/// A choice as it comes in.
#[derive(Debug, Clone, Default)]
struct Choice {
    text: String,
    ids: Vec<u32>,
    origins: Vec<i32>,
    logprobs: Vec<v1::TokenLogprobs>,
    tool_calls: Vec<v1::ToolCall>,
    finished: Option<Finished>,
}

impl Choice {
    fn take(&mut self, event: Event) -> Result<()> {
        anyhow::ensure!(self.finished.is_none(), "something after the end");
        match event {
            Event::Delta(delta) => {
                self.text.push_str(&delta.text);
                self.ids.extend(delta.token_ids);
                self.origins.extend(delta.origins);
                self.logprobs.extend(delta.logprobs);
                self.tool_calls.extend(delta.tool_calls);
            }
            Event::Finished(finished) => self.finished = Some(finished),
        }
        Ok(())
    }

    fn answer(self) -> Result<Answer> {
        let Some(finished) = self.finished else {
            let count = self.ids.len();
            anyhow::bail!("the stream ended without a finish after {count} tokens");
        };
        Ok(Answer {
            text: self.text,
            ids: self.ids,
            origins: self.origins,
            logprobs: self.logprobs,
            tool_calls: self.tool_calls,
            reason: finished.reason(),
            usage: finished.usage.context("usage")?,
            speculation: finished.speculation.context("speculation")?,
            matched: finished.matched,
        })
    }
}
