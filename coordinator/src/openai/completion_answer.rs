//! How the choices of a completion are written.

use super::Front;
use super::answer::{Call, Form};
use super::error::Failure;
use super::finish::{StopReason, Writing, reason};
use super::logprobs::CompletionLogprobs;
use proto::v1::{Delta, Finished};
use serde::Serialize;
use utoipa::ToSchema;

/// A choice, or a piece of one.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CompletionChoice {
    /// Its number: that of its prompt times n, and that among the prompt's choices.
    index: usize,
    /// The text.
    text: String,
    /// Where they were asked for.
    logprobs: Option<CompletionLogprobs>,
    /// Why it ended: stop or length. Null before the end.
    finish_reason: Option<&'static str>,
    /// What it stopped at, besides the model's own end of text.
    stop_reason: Option<StopReason>,
}

/// Writes completions.
#[derive(Debug)]
pub(super) struct CompletionForm {
    writing: Writing,
    /// The texts of the prompts, where they are written before the choices.
    echoed: Vec<String>,
    /// Choices of each prompt.
    n: usize,
    /// What is known of each choice.
    choices: Vec<SoFar>,
}

/// What is known of a choice that is under way.
#[derive(Debug, Clone, Default)]
struct SoFar {
    begun: bool,
    /// The characters of its tokens.
    offset: usize,
}

impl CompletionForm {
    /// For `call`; each choice begins with its prompt's text among `echoed`, where there are any.
    ///
    /// # Errors
    /// Where no model is there.
    pub(super) fn new(front: &Front, call: &Call, echoed: Vec<String>) -> Result<Self, Failure> {
        Ok(Self {
            writing: Writing::new(front, call)?,
            echoed,
            n: call.n(),
            choices: Vec::new(),
        })
    }

    /// `text`, the next of a choice, with the prompt before it where it begins.
    fn text(&mut self, choice: usize, text: String) -> String {
        let begun = std::mem::replace(&mut self.so_far(choice).begun, true);
        match self.echoed.get(choice / self.n) {
            Some(prompt) if !begun => format!("{prompt}{text}"),
            _ => text,
        }
    }

    fn logprobs(&mut self, choice: usize, delta: &Delta) -> Option<CompletionLogprobs> {
        let mut offset = self.so_far(choice).offset;
        let tokens = self.writing.tokens.as_ref()?;
        let logprobs = CompletionLogprobs::new(tokens, delta, &mut offset);
        self.so_far(choice).offset = offset;
        Some(logprobs)
    }

    fn so_far(&mut self, choice: usize) -> &mut SoFar {
        let known = self.choices.len().max(choice + 1);
        self.choices.resize(known, SoFar::default());
        &mut self.choices[choice]
    }
}

impl Form for CompletionForm {
    const OBJECTS: [&'static str; 2] = ["text_completion"; 2];
    const PREFIX: &'static str = "cmpl-";
    type Choice = CompletionChoice;
    type Piece = CompletionChoice;

    fn piece(&mut self, choice: usize, delta: Delta) -> Option<CompletionChoice> {
        let logprobs = self.logprobs(choice, &delta);
        let text = self.text(choice, delta.text);
        (!text.is_empty() || logprobs.is_some()).then_some(CompletionChoice {
            index: choice,
            text,
            logprobs,
            finish_reason: None,
            stop_reason: None,
        })
    }

    fn end(&mut self, choice: usize, ended: &Finished) -> CompletionChoice {
        CompletionChoice {
            index: choice,
            text: self.text(choice, String::new()),
            logprobs: None,
            finish_reason: Some(reason(ended)),
            stop_reason: self.writing.stop_reason(ended),
        }
    }

    fn whole(&mut self, choice: usize, delta: Delta, ended: &Finished) -> CompletionChoice {
        CompletionChoice {
            index: choice,
            logprobs: self.logprobs(choice, &delta),
            text: self.text(choice, delta.text),
            finish_reason: Some(reason(ended)),
            stop_reason: self.writing.stop_reason(ended),
        }
    }
}
