//! `/tokenize` and `/detokenize`: text to token ids and back, as vLLM and llama.cpp have it.

use super::Front;
use super::body::Body;
use super::chat::Conversation;
use super::error::{ErrorBody, Failure};
use super::messages::Message;
use super::tools::Tool;
use super::values::Json;
use axum::Json as Answer;
use axum::extract::State;
use proto::v1::{self, Prompt, prompt};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What to tokenize: one of `prompt`, `content` and `messages`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenizeRequest {
    /// The model. Without, the only one.
    model: Option<String>,
    /// A text, as vLLM has it.
    prompt: Option<String>,
    /// A text, as llama.cpp has it.
    content: Option<String>,
    /// A conversation.
    messages: Option<Vec<Message>>,
    /// The tools of a conversation.
    tools: Option<Vec<Tool>>,
    /// Puts the model's first token before a text. Default true for `prompt`, false for `content`.
    #[serde(alias = "add_special")]
    add_special_tokens: Option<bool>,
    /// Gives the tokens' strings as well.
    return_token_strs: Option<bool>,
    /// More variables for the model's chat template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Json>,
    /// Goes on with the last message, which is the assistant's.
    continue_final_message: Option<bool>,
    /// Begins the assistant's next message: the opposite of `continue_final_message`.
    add_generation_prompt: Option<bool>,
}

/// Token ids.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Tokenized {
    /// How many.
    count: usize,
    /// The longest sequence in tokens.
    max_model_len: usize,
    /// The ids.
    tokens: Vec<u32>,
    /// Their strings in the vocabulary, where they were asked for.
    token_strs: Option<Vec<String>>,
}

/// What to detokenize.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DetokenizeRequest {
    /// The model. Without, the only one.
    model: Option<String>,
    /// The ids.
    tokens: Vec<u32>,
}

/// A text, under both names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Detokenized {
    /// As vLLM has it.
    prompt: String,
    /// As llama.cpp has it.
    content: String,
}

/// Tokenizes a text or a conversation.
///
/// # Errors
/// Why it has no tokens.
#[utoipa::path(post, path = "/tokenize", tag = "tokens", request_body = TokenizeRequest,
    responses(
        (status = 200, description = "The ids", body = Tokenized),
        (status = "default", description = "Why there are none", body = ErrorBody),
    ))]
pub(super) async fn tokenize(
    State(front): State<Front>,
    Body(mut body): Body<TokenizeRequest>,
) -> Result<Answer<Tokenized>, Failure> {
    let model = front.api.model(body.model.as_deref().unwrap_or_default())?;
    let strings = body.return_token_strs.unwrap_or_default();
    let (name, special) = match (&body.prompt, &body.content) {
        (_, Some(_)) => ("content", body.add_special_tokens.or(Some(false))),
        (Some(_), _) => ("prompt", body.add_special_tokens),
        (None, None) => ("messages", None),
    };
    let request = v1::TokenizeRequest {
        model: body.model.take().unwrap_or_default(),
        prompt: Some(Prompt {
            prompt: Some(body.prompt()?),
        }),
    };
    let tokenized = front.api.tokenize(request).await;
    let own = [("prompt", name)];
    let mut tokens = tokenized
        .map_err(|error| Failure::of(error, &own))?
        .token_ids;
    // The service puts it before every text, unless it is there already.
    if special == Some(false) && tokens.first() == model.bos_token.as_ref() {
        tokens.remove(0);
    }
    let token_strs = strings.then(|| {
        let string = |id: &u32| model.tokenizer.id_to_token(*id).unwrap_or_default();
        tokens.iter().map(string).collect()
    });
    Ok(Answer(Tokenized {
        count: tokens.len(),
        max_model_len: model.context_length,
        tokens,
        token_strs,
    }))
}

impl TokenizeRequest {
    fn prompt(self) -> Result<prompt::Prompt, Failure> {
        match (self.prompt, self.content, self.messages) {
            (Some(text), None, None) | (None, Some(text), None) => Ok(prompt::Prompt::Text(text)),
            (None, None, Some(messages)) => {
                let conversation = Conversation {
                    messages,
                    tools: self.tools,
                    tool_choice: None,
                    chat_template_kwargs: self.chat_template_kwargs,
                    continue_final_message: self.continue_final_message,
                    add_generation_prompt: self.add_generation_prompt,
                };
                Ok(prompt::Prompt::Chat(conversation.translate()?))
            }
            (None, None, None) => Err(Failure::invalid("prompt", "is missing")),
            _ => {
                let message = "only one of prompt, content and messages can be given";
                Err(Failure::invalid("prompt", message))
            }
        }
    }
}

/// The text of token ids.
///
/// # Errors
/// Why they have none.
#[utoipa::path(post, path = "/detokenize", tag = "tokens", request_body = DetokenizeRequest,
    responses(
        (status = 200, description = "The text", body = Detokenized),
        (status = "default", description = "Why there is none", body = ErrorBody),
    ))]
pub(super) async fn detokenize(
    State(front): State<Front>,
    Body(body): Body<DetokenizeRequest>,
) -> Result<Answer<Detokenized>, Failure> {
    let request = v1::DetokenizeRequest {
        model: body.model.unwrap_or_default(),
        token_ids: body.tokens,
    };
    let text = front.api.detokenize(request).await;
    let text = text.map_err(|error| Failure::of(error, &[("token_ids", "tokens")]))?;
    Ok(Answer(Detokenized {
        prompt: text.clone(),
        content: text,
    }))
}
