//! `POST /v1/chat/completions`: a conversation goes on.

use super::Front;
use super::answer::{Call, Envelope, answer};
use super::bodies::ChatRequest;
use super::body::Body;
use super::chat_answer::{ChatChoice, ChatForm, ChatPiece};
use super::error::{ErrorBody, Failure};
use super::messages::Message;
use super::tools::{self, Tool, ToolChoice};
use super::values::Json;
use crate::api::Caller;
use axum::extract::State;
use axum::response::Response;
use proto::v1::{Chat, GenerateRequest, LogprobsParams, prompt};

/// Answers a conversation.
///
/// # Errors
/// Why it cannot be answered.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "generation", request_body = ChatRequest,
    responses(
        (status = 200, description = "The answer, or a stream of its pieces", content(
            (Envelope<'static, ChatChoice> = "application/json"),
            (Envelope<'static, ChatPiece> = "text/event-stream"),
        )),
        (status = "default", description = "Why there is none", body = ErrorBody),
    ))]
pub(super) async fn chat(
    State(front): State<Front>,
    caller: Caller,
    Body(body): Body<ChatRequest>,
) -> Result<Response, Failure> {
    let call = body.translate()?;
    let form = ChatForm::new(&front, &call)?;
    answer(&front, caller, call, form).await
}

impl ChatRequest {
    /// The same as a call of the service.
    ///
    /// # Errors
    /// Names the field that cannot be translated.
    pub(super) fn translate(mut self) -> Result<Call, Failure> {
        let parameters = self.parameters();
        let stream = parameters.streaming()?;
        let mut own = vec![("prompt", "messages")];
        let mut request = GenerateRequest::default();
        parameters.fill(&mut request, &mut own)?;
        request.logprobs = logprobs(self.logprobs, self.top_logprobs)?;
        if let Some(tokens) = self.max_completion_tokens {
            own.push(("stop.max_tokens", "max_completion_tokens"));
            request.stop.get_or_insert_default().max_tokens = Some(tokens);
        }
        let chat = self.conversation().translate()?;
        Ok(Call {
            request,
            prompts: vec![prompt::Prompt::Chat(chat)],
            stream,
            own,
        })
    }

    fn conversation(self) -> Conversation {
        Conversation {
            messages: self.messages,
            tools: self.tools,
            tool_choice: self.tool_choice,
            chat_template_kwargs: self.chat_template_kwargs,
            continue_final_message: self.continue_final_message,
            add_generation_prompt: self.add_generation_prompt,
        }
    }
}

/// A conversation, as bodies have it.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) tools: Option<Vec<Tool>>,
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) chat_template_kwargs: Option<Json>,
    pub(super) continue_final_message: Option<bool>,
    pub(super) add_generation_prompt: Option<bool>,
}

impl Conversation {
    /// The same as the service has it.
    ///
    /// # Errors
    /// Names the field that cannot be translated.
    pub(super) fn translate(self) -> Result<Chat, Failure> {
        let continues = self.continue_final_message.unwrap_or_default();
        if self.add_generation_prompt.unwrap_or(!continues) == continues {
            let message = "must be the opposite of continue_final_message";
            return Err(Failure::invalid("add_generation_prompt", message));
        }
        let messages = self.messages.into_iter().enumerate();
        let messages = messages.map(|(index, message)| message.translate(index));
        let (tools, tool_choice) = tools::of_request(self.tools, self.tool_choice)?;
        let arguments = self.chat_template_kwargs;
        Ok(Chat {
            messages: messages.collect::<Result<_, _>>()?,
            tools,
            tool_choice,
            template_arguments: arguments.map(|json| json.0).unwrap_or_default(),
            continue_final_message: continues,
        })
    }
}

/// What is reported of each token.
fn logprobs(wanted: Option<bool>, top: Option<u32>) -> Result<Option<LogprobsParams>, Failure> {
    match (wanted.unwrap_or_default(), top.unwrap_or_default()) {
        (true, top) => Ok(Some(LogprobsParams { top, mode: 0 })),
        (false, 0) => Ok(None),
        (false, _) => {
            let message = "can be given only together with logprobs";
            Err(Failure::invalid("top_logprobs", message))
        }
    }
}
