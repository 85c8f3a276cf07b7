//! `POST /v1/completions`: texts or token ids go on, as they are.

use super::Front;
use super::answer::{Call, Envelope, answer};
use super::bodies::CompletionRequest;
use super::body::Body;
use super::completion_answer::{CompletionChoice, CompletionForm};
use super::error::{ErrorBody, Failure};
use super::values::Prompts;
use crate::api::Caller;
use axum::extract::State;
use axum::response::Response;
use proto::v1::{DetokenizeRequest, GenerateRequest, LogprobsParams, TokenIds, prompt};

/// The most prompts of a request.
const MAX_PROMPTS: usize = 64;

/// Continues texts.
///
/// # Errors
/// Why they cannot be continued.
#[utoipa::path(post, path = "/v1/completions", tag = "generation", request_body = CompletionRequest,
    responses(
        (status = 200, description = "The answer, or a stream of its pieces", content(
            (Envelope<'static, CompletionChoice> = "application/json"),
            (Envelope<'static, CompletionChoice> = "text/event-stream"),
        )),
        (status = "default", description = "Why there is none", body = ErrorBody),
    ))]
pub(super) async fn completions(
    State(front): State<Front>,
    caller: Caller,
    Body(body): Body<CompletionRequest>,
) -> Result<Response, Failure> {
    let echo = body.echo.unwrap_or_default();
    let call = body.translate()?;
    let echoed = if echo {
        texts(&front, &call).await?
    } else {
        Vec::new()
    };
    let form = CompletionForm::new(&front, &call, echoed)?;
    answer(&front, caller, call, form).await
}

impl CompletionRequest {
    /// The same as a call of the service.
    ///
    /// # Errors
    /// Names the field that cannot be translated.
    pub(super) fn translate(mut self) -> Result<Call, Failure> {
        let parameters = self.parameters();
        let stream = parameters.streaming()?;
        if self.echo.unwrap_or_default() && self.logprobs.is_some() {
            let message = "cannot go with logprobs: the prompt has none";
            return Err(Failure::invalid("echo", message));
        }
        if self
            .best_of
            .is_some_and(|best| best != parameters.n.unwrap_or(1))
        {
            return Err(Failure::invalid("best_of", "must be the same as n"));
        }
        let mut own = vec![("logprobs.top", "logprobs"), ("token_ids", "prompt")];
        let mut request = GenerateRequest::default();
        parameters.fill(&mut request, &mut own)?;
        request.logprobs = self.logprobs.map(|top| LogprobsParams { top, mode: 0 });
        Ok(Call {
            request,
            prompts: prompts(self.prompt)?,
            stream,
            own,
        })
    }
}

/// The prompts, each as the service has it.
fn prompts(prompts: Option<Prompts>) -> Result<Vec<prompt::Prompt>, Failure> {
    let prompts: Vec<prompt::Prompt> = match prompts {
        None => return Err(Failure::invalid("prompt", "is missing")),
        Some(Prompts::Text(text)) => vec![prompt::Prompt::Text(text)],
        Some(Prompts::Texts(texts)) => texts.into_iter().map(prompt::Prompt::Text).collect(),
        Some(Prompts::Ids(ids)) => vec![of_ids(ids)],
        Some(Prompts::ManyIds(lists)) => lists.into_iter().map(of_ids).collect(),
    };
    if prompts.len() > MAX_PROMPTS {
        let message = format!(
            "must be at most {MAX_PROMPTS} prompts, not {}",
            prompts.len()
        );
        return Err(Failure::invalid("prompt", message));
    }
    Ok(prompts)
}

fn of_ids(ids: Vec<u32>) -> prompt::Prompt {
    prompt::Prompt::TokenIds(TokenIds { ids })
}

/// The texts of the prompts of `call`.
///
/// # Errors
/// Where ids are none of the model's.
async fn texts(front: &Front, call: &Call) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::with_capacity(call.prompts.len());
    for (index, prompt) in call.prompts.iter().enumerate() {
        texts.push(match prompt {
            prompt::Prompt::Text(text) => text.clone(),
            prompt::Prompt::TokenIds(TokenIds { ids }) => {
                let ids = DetokenizeRequest {
                    model: call.request.model.clone(),
                    token_ids: ids.clone(),
                };
                let text = front.api.detokenize(ids).await;
                text.map_err(|error| call.failure(error, index))?
            }
            prompt::Prompt::Chat(_) => String::new(),
        });
    }
    Ok(texts)
}
