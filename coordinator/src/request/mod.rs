//! A request, checked once at the edge: what lies behind works with valid requests only.

mod drafting;
mod sampling;
mod stop;
mod structured;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use drafting::Sources;
pub(crate) use stop::StopRules;

use crate::access::Identity;
use crate::model::Model;
use crate::prompt as prompts;
use crate::tools::{Calling, Reading};
use proto::v1::{self, GenerateRequest, LogprobsParams, prompt};
use service::Error;
use speculation::{LogprobsMode, NoiseKey, Rule, TokenId};
use std::sync::Arc;

/// The most tokens that a request may have drafted per round.
pub(crate) const MAX_DRAFT_TOKENS: u32 = 16;

/// The most choices that a request may ask for.
const MAX_CHOICES: u32 = 64;

/// The highest priority, and the lowest below zero.
const MAX_PRIORITY: i32 = 100;

/// The longest name of a tenant.
const MAX_TENANT_BYTES: usize = 64;

/// What a client gets who does not say, and what the server can do at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    /// The most tokens to draft per round.
    pub(crate) max_draft_tokens: u32,
    /// The fewest, at most as many.
    pub(crate) min_draft_tokens: u32,
    /// Proposals end before a token that is less probable.
    pub(crate) min_confidence: Option<f32>,
    /// How proposals are verified.
    pub(crate) rule: Rule,
    /// Which log-probabilities are reported.
    pub(crate) logprobs: LogprobsMode,
    /// The most choices that run at once, of all requests.
    pub(crate) max_requests: u32,
}

/// A request that can run.
#[derive(Debug, Clone)]
pub(crate) struct ValidRequest {
    /// How many choices it asks for: at least one.
    n: u32,
    /// The noise of the first.
    key: NoiseKey,
    generation: Arc<Generation>,
}

/// One choice of a request: one sequence for the workers.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// What all choices of the request share.
    pub(crate) generation: Arc<Generation>,
    /// The noise that its tokens are chosen with.
    pub(crate) key: NoiseKey,
}

/// What to generate and how.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Whose request it is.
    pub(crate) tenant: Arc<str>,
    /// The model that the request was checked against.
    pub(crate) model: Arc<Model>,
    /// The prompt's token ids: at least one, and fewer than the context holds.
    pub(crate) prompt: Vec<TokenId>,
    /// The most tokens to generate: at least one, and no more than the context has room for.
    pub(crate) max_tokens: usize,
    /// What else ends the text.
    pub(crate) stop: StopRules,
    /// How workers decode it, but for the key, which is the choice's.
    pub(crate) decoding: v1::Decoding,
    /// Which log-probabilities to report; its mode is stated.
    pub(crate) logprobs: Option<LogprobsParams>,
    /// The most tokens to draft per round; 0 is plain decoding.
    pub(crate) max_draft_tokens: usize,
    /// The fewest, at most as many; 0 leaves it to what is measured.
    pub(crate) min_draft_tokens: usize,
    /// A draft model's proposal ends before a token that is less probable under its own law. `None`
    /// leaves it to what is measured.
    pub(crate) min_confidence: Option<f32>,
    /// Where drafts may come from.
    pub(crate) sources: Sources,
    /// How the calls of functions in the text are read, where there can be any.
    pub(crate) calls: Option<Reading>,
}

impl ValidRequest {
    /// Checks `request` against `model`. Takes time for a long prompt.
    ///
    /// # Errors
    /// [`Class::Invalid`](service::Class::Invalid) with the field's path.
    pub(crate) fn new(
        mut request: GenerateRequest,
        model: &Arc<Model>,
        defaults: &Defaults,
    ) -> Result<Self, Error> {
        let calls = calls(&mut request, model)?;
        structured::check(&request)?;
        let n = check_choices(request.n, defaults)?;
        let key = match request.seed {
            Some(seed) => NoiseKey::from_seed(seed),
            None => NoiseKey(rand::random()),
        };
        let generation = Arc::new(Generation::new(request, calls, model, defaults)?);
        Ok(Self { n, key, generation })
    }

    /// How the calls of functions in its answers are read, where there can be any.
    pub(crate) fn calls(&self) -> Option<&Reading> {
        self.generation.calls.as_ref()
    }

    /// The same, of `identity`: nobody has the tenants of another.
    #[must_use]
    pub(crate) fn of(mut self, identity: &Identity) -> Self {
        // Nothing shares it before its choices are taken.
        if let Some(generation) = Arc::get_mut(&mut self.generation) {
            generation.tenant = identity.tenant(&generation.tenant);
        }
        self
    }

    /// How many choices it asks for.
    pub(crate) fn n(&self) -> u32 {
        self.n
    }

    /// Whose it is.
    pub(crate) fn tenant(&self) -> &Arc<str> {
        &self.generation.tenant
    }

    /// The length of its prompt, in tokens.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.generation.prompt.len()
    }

    /// The most tokens that each of its choices may have.
    pub(crate) fn max_tokens(&self) -> usize {
        self.generation.max_tokens
    }

    /// What all its choices share.
    pub(crate) fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Its choices, in order.
    pub(crate) fn choices(&self) -> impl Iterator<Item = Choice> {
        (0..self.n).map(|choice| Choice {
            generation: Arc::clone(&self.generation),
            key: choice_key(self.key, choice),
        })
    }
}

impl Generation {
    fn new(
        request: GenerateRequest,
        calls: Option<Reading>,
        model: &Arc<Model>,
        defaults: &Defaults,
    ) -> Result<Self, Error> {
        let tenant = check_tenant(request.tenant)?;
        let drafting = drafting::check(request.speculation, request.seed.is_some(), defaults)?;
        let logprobs = request.logprobs;
        let logprobs = logprobs.map(|params| check_logprobs(params, defaults));
        let logprobs = logprobs.transpose()?;
        let stop_params = request.stop.unwrap_or_default();
        let max_tokens = stop_params.max_tokens;
        let stop = StopRules::new(stop_params, model)?;
        let mut decoding = v1::Decoding {
            sampling: Some(request.sampling.unwrap_or_default()),
            key: None,
            rule: v1::VerificationRule::from(drafting.rule).into(),
            prompt_len: 0,
            bad_words: words::tokenize(&request.bad_words, model)?,
            // It was a u32 in the request.
            min_tokens: stop.min_tokens as u32,
            end_token_ids: stop.end_tokens.clone(),
            structured: request.structured,
        };
        sampling::check(&decoding, model)?;
        let prompt = prompts::tokenize(request.prompt, model)?.token_ids;
        let room = room_after(&prompt, model)?;
        // Contexts are far below 2^32.
        decoding.prompt_len = prompt.len() as u32;
        Ok(Self {
            tenant,
            model: Arc::clone(model),
            max_tokens: stop.budget(max_tokens, room)?,
            prompt,
            stop,
            decoding,
            logprobs,
            max_draft_tokens: drafting.max_tokens as usize,
            min_draft_tokens: drafting.min_tokens as usize,
            min_confidence: drafting.min_confidence,
            sources: drafting.sources,
            calls,
        })
    }
}

impl Choice {
    /// How workers decode it.
    pub(crate) fn decoding(&self) -> v1::Decoding {
        v1::Decoding {
            key: Some(self.key.into()),
            ..self.generation.decoding.clone()
        }
    }
}

/// How calls of functions are read in the answer to `request`, which is made to demand those that
/// must be there.
fn calls(request: &mut GenerateRequest, model: &Model) -> Result<Option<Reading>, Error> {
    let prompt = request.prompt.as_ref();
    let Some(prompt::Prompt::Chat(chat)) = prompt.and_then(|prompt| prompt.prompt.as_ref()) else {
        return Ok(None);
    };
    let calling = Calling::new(chat, model)?;
    if let Some(structured) = calling.structured()? {
        if request.structured.is_some() {
            let message = "cannot go with calls of functions that must be made or match a schema";
            return Err(Error::invalid("structured", message));
        }
        let reading = calling.reading();
        request.structured = Some(structured);
        return Ok(reading);
    }
    Ok(calling.reading())
}

/// The key of a choice of the request with `key`: that very key for the first; for the others, the
/// same with the key of the seed (low half of `key`, plus the choice's number) laid over it.
/// Different seeds have different keys, so different choices have. Part of what a seed promises.
fn choice_key(key: NoiseKey, choice: u32) -> NoiseKey {
    if choice == 0 {
        return key;
    }
    let seed = (key.0 as u64).wrapping_add(u64::from(choice));
    NoiseKey(key.0 ^ NoiseKey::from_seed(seed).0)
}

/// Checks how many choices a request asks for; unset is one.
///
/// # Errors
/// [`Class::Invalid`](service::Class::Invalid).
pub(crate) fn check_choices(n: Option<u32>, defaults: &Defaults) -> Result<u32, Error> {
    let n = n.unwrap_or(1);
    let most = MAX_CHOICES.min(defaults.max_requests);
    if n == 0 || n > most {
        let message = format!("must be 1 to {most}, not {n}");
        return Err(Error::invalid("n", message));
    }
    Ok(n)
}

/// Checks how urgent a request is.
///
/// # Errors
/// [`Class::Invalid`](service::Class::Invalid).
pub(crate) fn check_priority(priority: i32) -> Result<i32, Error> {
    if (-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        return Ok(priority);
    }
    let message = format!("must be -{MAX_PRIORITY} to {MAX_PRIORITY}, not {priority}");
    Err(Error::invalid("priority", message))
}

/// Checks whose request it is.
fn check_tenant(tenant: String) -> Result<Arc<str>, Error> {
    if tenant.len() > MAX_TENANT_BYTES {
        let message = format!(
            "must have at most {MAX_TENANT_BYTES} bytes, not {}",
            tenant.len()
        );
        return Err(Error::invalid("tenant", message));
    }
    Ok(tenant.into())
}

fn check_logprobs(params: LogprobsParams, defaults: &Defaults) -> Result<LogprobsParams, Error> {
    let mode = v1::LogprobsMode::try_from(params.mode)
        .map_err(|error| Error::invalid("logprobs.mode", error.to_string()))?;
    let most = proto::MAX_TOP_LOGPROBS;
    if params.top > most {
        let message = format!("must be at most {most}, not {}", params.top);
        return Err(Error::invalid("logprobs.top", message));
    }
    let mode = LogprobsMode::try_from(mode).unwrap_or(defaults.logprobs);
    Ok(LogprobsParams {
        top: params.top,
        mode: v1::LogprobsMode::from(mode).into(),
    })
}

/// How many tokens the context has room for after `prompt`.
fn room_after(prompt: &[TokenId], model: &Model) -> Result<usize, Error> {
    let context = model.context_length;
    match context.checked_sub(prompt.len()) {
        Some(room) if room > 0 => Ok(room),
        _ => {
            let len = prompt.len();
            let message = format!(
                "the prompt has {len} tokens, and the context of {context} must hold at least one more"
            );
            Err(Error::invalid("prompt", message))
        }
    }
}
