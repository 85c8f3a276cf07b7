//! What the service does, whoever asks and how: checks a request, admits it, and hands out its
//! answer. gRPC ([`grpc`]) and HTTP (`crate::openai`) are two ways to say the same.

mod caller;
pub(crate) mod grpc;
#[cfg(test)]
mod tests;

pub(crate) use caller::Caller;

use crate::driver::Admission;
use crate::links::ServedModel;
use crate::model::Model;
use crate::prompt::{self, Tokenized};
use crate::request::{self, Defaults, ValidRequest};
use proto::v1::generate_response::Event;
use proto::v1::{self, DetokenizeRequest, GenerateRequest, ModelRole, TokenizeRequest};
use service::{Class, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How long checking a request may take: nearly all of it is the tokenizer's.
const CHECK_DEADLINE: Duration = Duration::from_secs(10);

/// Events that wait for a slow client; more tokens are merged into the last.
const OUTPUT: usize = 32;

/// When a client that was turned away may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is generated, as it comes. Dropping it gives the request up.
pub(crate) type Answer = mpsc::Receiver<Result<Event, Error>>;

/// The service behind both fronts.
#[derive(Debug)]
pub(crate) struct Api {
    /// The served model, while there is one.
    pub(crate) served: ServedModel,
    /// Where admitted requests go.
    pub(crate) admissions: mpsc::Sender<Admission>,
    /// One permit per choice that may run at once.
    pub(crate) places: Arc<Semaphore>,
    /// What a client gets who does not say.
    pub(crate) defaults: Defaults,
}

impl Api {
    /// Checks `request`, admits it and starts it.
    ///
    /// # Errors
    /// Why it cannot run, with the field's path where one is wrong.
    pub(crate) async fn generate(
        &self,
        request: GenerateRequest,
        caller: Caller,
    ) -> Result<Answer, Error> {
        let model = self.model()?;
        let mut permits = self.places(1)?;
        let defaults = self.defaults;
        let request = check(move || ValidRequest::new(request, &model, &defaults)).await?;
        let request = request.of(&caller.identity);
        if request.n() > 1 {
            permits.merge(self.places(request.n() - 1)?);
        }
        let (output, answer) = mpsc::channel(OUTPUT);
        let admission = Admission {
            request,
            output,
            permits,
        };
        self.admissions
            .try_send(admission)
            .map_err(|_| overloaded("too many requests arrive at once"))?;
        Ok(answer)
    }

    /// The token ids of a prompt.
    ///
    /// # Errors
    /// Why it has none, with the field's path where one is wrong.
    pub(crate) async fn tokenize(&self, request: TokenizeRequest) -> Result<Tokenized, Error> {
        let model = self.model()?;
        let _place = self.places(1)?;
        check(move || {
            request::check_model(&request.model, &model)?;
            prompt::tokenize(request.prompt, &model)
        })
        .await
    }

    /// The text of token ids.
    ///
    /// # Errors
    /// Why they have none, with the field's path where one is wrong.
    pub(crate) async fn detokenize(&self, request: DetokenizeRequest) -> Result<String, Error> {
        let model = self.model()?;
        let _place = self.places(1)?;
        check(move || {
            request::check_model(&request.model, &model)?;
            prompt::detokenize(request.token_ids, &model)
        })
        .await
    }

    /// The models that can be asked for: none before a target is connected.
    pub(crate) fn models(&self) -> Vec<v1::Model> {
        let model = self.model().ok();
        let target = model.map(|model| v1::Model {
            id: model.name.clone(),
            // It came as a u32.
            context_length: model.context_length as u32,
            role: ModelRole::Target.into(),
        });
        target.into_iter().collect()
    }

    /// The served model.
    ///
    /// # Errors
    /// [`Class::Unavailable`] while there is none.
    pub(crate) fn model(&self) -> Result<Arc<Model>, Error> {
        let model = self.served.borrow().clone();
        model.ok_or_else(|| Error::new(Class::Unavailable, "the target is not connected"))
    }

    /// So many places among the requests that may run.
    fn places(&self, count: u32) -> Result<OwnedSemaphorePermit, Error> {
        let places = Arc::clone(&self.places).try_acquire_many_owned(count);
        places.map_err(|_| overloaded("too many requests are running"))
    }
}

/// Runs what may take the processor for long beside the tasks that must not wait.
async fn check<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let work = tokio::task::spawn_blocking(work);
    match tokio::time::timeout(CHECK_DEADLINE, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(Error::new(Class::Internal, error.to_string())),
        Err(_) => Err(Error::new(
            Class::Deadline,
            "checking the request took too long",
        )),
    }
}

fn overloaded(message: &str) -> Error {
    let class = Class::Overloaded {
        retry_after: RETRY_AFTER,
    };
    Error::new(class, message)
}
