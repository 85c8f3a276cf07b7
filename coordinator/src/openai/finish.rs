//! Why a choice ended, in the words of OpenAI and vLLM.

use super::Front;
use super::answer::Call;
use super::error::Failure;
use super::tokens::Tokens;
use crate::model::Model;
use proto::v1::{FinishReason, Finished, finished::Matched};
use serde::Serialize;
use speculation::TokenId;
use std::sync::Arc;
use utoipa::ToSchema;

/// What a text stopped at, besides the model's own end of text.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum StopReason {
    /// This token.
    Token(u32),
    /// This string.
    String(String),
}

/// What a call's choices need of the model to be written.
#[derive(Debug)]
pub(super) struct Writing {
    /// Where log-probabilities were asked for.
    pub(super) tokens: Option<Tokens>,
    /// The model's own ends of text, where they end this one.
    own_ends: Arc<[TokenId]>,
}

impl Writing {
    /// For `call`.
    ///
    /// # Errors
    /// Where no model is there.
    pub(super) fn new(front: &Front, call: &Call) -> Result<Self, Failure> {
        let model: Arc<Model> = front.api.model(&call.request.model)?;
        let request = &call.request;
        let ignored = request.stop.as_ref().is_some_and(|stop| stop.ignore_eos);
        let own_ends = if ignored {
            Arc::default()
        } else {
            Arc::clone(&model.end_tokens)
        };
        let tokens = request.logprobs.is_some().then(|| Tokens::new(model));
        Ok(Self { tokens, own_ends })
    }

    /// What the choice stopped at.
    pub(super) fn stop_reason(&self, ended: &Finished) -> Option<StopReason> {
        match ended.matched.as_ref()? {
            Matched::StopTokenId(id) if self.own_ends.contains(id) => None,
            Matched::StopTokenId(id) => Some(StopReason::Token(*id)),
            Matched::StopString(string) => Some(StopReason::String(string.clone())),
        }
    }
}

/// Why the choice ended.
pub(super) fn reason(ended: &Finished) -> &'static str {
    match ended.reason() {
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Cancelled => "abort",
        FinishReason::Stop | FinishReason::Unspecified => "stop",
    }
}
