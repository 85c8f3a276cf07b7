//! How the choices of a chat are written.

use super::Front;
use super::answer::{Call, Form};
use super::error::Failure;
use super::finish::{StopReason, Writing, reason};
use super::logprobs::ChatLogprobs;
use super::tools::ToolCall;
use proto::v1::{Delta, Finished};
use serde::Serialize;
use utoipa::ToSchema;

/// A choice.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChatChoice {
    /// Its number.
    index: usize,
    /// What the assistant says.
    message: AssistantMessage,
    /// Where they were asked for.
    logprobs: Option<ChatLogprobs>,
    /// Why it ended: stop, length or `tool_calls`.
    finish_reason: &'static str,
    /// What it stopped at, besides the model's own end of text.
    stop_reason: Option<StopReason>,
}

/// What the assistant says.
#[derive(Debug, Serialize, ToSchema)]
struct AssistantMessage {
    /// Always assistant.
    role: &'static str,
    /// The text; null where functions are called and nothing is said.
    content: Option<String>,
    /// The functions that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// A piece of a choice.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChatPiece {
    /// The choice's number.
    index: usize,
    /// What it adds.
    delta: ChatDelta,
    /// Where they were asked for.
    logprobs: Option<ChatLogprobs>,
    /// Why the choice ended, in its last piece.
    finish_reason: Option<&'static str>,
    /// What it stopped at, besides the model's own end of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
}

/// What a piece adds.
#[derive(Debug, Default, Serialize, ToSchema)]
struct ChatDelta {
    /// In the first piece of a choice: assistant.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// More text.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// More functions that are called, each whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// Writes a chat.
#[derive(Debug)]
pub(super) struct ChatForm {
    writing: Writing,
    /// For each choice, whether it began, and how many functions it called.
    choices: Vec<(bool, u32)>,
}

impl ChatForm {
    /// For `call`.
    ///
    /// # Errors
    /// Where no model is there.
    pub(super) fn new(front: &Front, call: &Call) -> Result<Self, Failure> {
        Ok(Self {
            writing: Writing::new(front, call)?,
            choices: Vec::new(),
        })
    }

    fn logprobs(&self, delta: &Delta) -> Option<ChatLogprobs> {
        let tokens = self.writing.tokens.as_ref()?;
        Some(ChatLogprobs::new(tokens, delta))
    }

    /// What is known of a choice so far.
    fn so_far(&mut self, choice: usize) -> &mut (bool, u32) {
        let known = self.choices.len().max(choice + 1);
        self.choices.resize(known, (false, 0));
        &mut self.choices[choice]
    }

    /// The role, the first time.
    fn role(&mut self, choice: usize) -> Option<&'static str> {
        let (begun, _) = self.so_far(choice);
        (!std::mem::replace(begun, true)).then_some(ASSISTANT)
    }
}

const ASSISTANT: &str = "assistant";

impl Form for ChatForm {
    const OBJECTS: [&'static str; 2] = ["chat.completion", "chat.completion.chunk"];
    const PREFIX: &'static str = "chatcmpl-";
    type Choice = ChatChoice;
    type Piece = ChatPiece;

    fn piece(&mut self, choice: usize, delta: Delta) -> Option<ChatPiece> {
        let logprobs = self.logprobs(&delta);
        if delta.text.is_empty() && delta.tool_calls.is_empty() && logprobs.is_none() {
            return None;
        }
        let role = self.role(choice);
        let (_, called) = self.so_far(choice);
        let mut tool_calls = Vec::with_capacity(delta.tool_calls.len());
        for call in delta.tool_calls {
            tool_calls.push(ToolCall::told(call, Some(*called)));
            *called += 1;
        }
        let said = !delta.text.is_empty() || tool_calls.is_empty();
        Some(ChatPiece {
            index: choice,
            delta: ChatDelta {
                role,
                content: said.then_some(delta.text),
                tool_calls,
            },
            logprobs,
            finish_reason: None,
            stop_reason: None,
        })
    }

    fn end(&mut self, choice: usize, ended: &Finished) -> ChatPiece {
        ChatPiece {
            index: choice,
            delta: ChatDelta {
                role: self.role(choice),
                ..ChatDelta::default()
            },
            logprobs: None,
            finish_reason: Some(reason(ended)),
            stop_reason: self.writing.stop_reason(ended),
        }
    }

    fn whole(&mut self, choice: usize, delta: Delta, ended: &Finished) -> ChatChoice {
        let logprobs = self.logprobs(&delta);
        let calls = delta.tool_calls.into_iter();
        let tool_calls: Vec<_> = calls.map(|call| ToolCall::told(call, None)).collect();
        let said = !delta.text.is_empty() || tool_calls.is_empty();
        ChatChoice {
            index: choice,
            message: AssistantMessage {
                role: ASSISTANT,
                content: said.then_some(delta.text),
                tool_calls,
            },
            logprobs,
            finish_reason: reason(ended),
            stop_reason: self.writing.stop_reason(ended),
        }
    }
}
