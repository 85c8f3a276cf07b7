//! The answers to all prompts of a call, as one.

use super::answer::Call;
use super::error::Failure;
use crate::api::Answer;
use futures::StreamExt as _;
use futures::stream::{BoxStream, select_all};
use proto::v1::generate_response::Event;
use service::{Class, Error};
use tokio_stream::wrappers::ReceiverStream;

/// What comes, of all choices of all prompts, as it comes.
pub(super) struct Events {
    answers: BoxStream<'static, (usize, Result<Event, Error>)>,
    call: Call,
    /// Choices of each prompt.
    n: usize,
    /// Choices that have not ended.
    open: usize,
}

impl Events {
    /// Those of `answers`, one for each prompt of `call`.
    pub(super) fn new(call: Call, answers: Vec<Answer>) -> Self {
        let n = call.n();
        let open = n * answers.len();
        let answers = answers.into_iter().enumerate().map(|(prompt, answer)| {
            let events = ReceiverStream::new(answer);
            events.map(move |event| (prompt, event)).boxed()
        });
        let mut answers: Vec<_> = answers.collect();
        // Nearly every call has one prompt, whose tokens need not be gathered.
        let answers = match answers.pop() {
            Some(only) if answers.is_empty() => only,
            last => select_all(answers.into_iter().chain(last)).boxed(),
        };
        Self {
            answers,
            call,
            n,
            open,
        }
    }

    /// The number of choices, of all prompts.
    pub(super) fn choices(&self) -> usize {
        self.n * self.call.prompts.len()
    }

    /// True for the first choice of a prompt.
    pub(super) fn is_first(&self, choice: usize) -> bool {
        choice.is_multiple_of(self.n)
    }

    /// What comes next, with the number of its choice; `None` when all have ended, or after an
    /// error. May be dropped at any time, without loss.
    pub(super) async fn next(&mut self) -> Option<Result<(usize, Event), Failure>> {
        if self.open == 0 {
            return None;
        }
        let (prompt, event) = self.answers.next().await.unwrap_or_else(|| {
            let message = "the answer broke off";
            (0, Err(Error::new(Class::Internal, message)))
        });
        Some(match event {
            Ok(event) => {
                let choice = match &event {
                    Event::Delta(delta) => delta.choice,
                    Event::Finished(finished) => {
                        self.open -= 1;
                        finished.choice
                    }
                };
                Ok((prompt * self.n + choice as usize, event))
            }
            Err(error) => {
                self.open = 0;
                Err(self.call.failure(error, prompt))
            }
        })
    }
}
