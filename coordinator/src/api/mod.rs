//! What the service does, whoever asks and how: checks a request, admits it, and hands out its
//! answer. gRPC ([`grpc`]) and HTTP (`crate::openai`) are two ways to say the same.

pub(crate) mod admission;
mod caller;
mod checks;
pub(crate) mod grpc;
#[cfg(test)]
mod tests;

pub(crate) use caller::Caller;
pub(crate) use checks::Checks;

use crate::deployments::Deployments;
use crate::driver::{Admission, OUTPUT};
use crate::model::Model;
use crate::prompt::{self, Tokenized};
use crate::request::{self, Defaults, ValidRequest};
use admission::Gate;
use proto::v1::generate_response::Event;
use proto::v1::{self, DetokenizeRequest, GenerateRequest, TokenizeRequest};
use service::{Class, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

/// How many calls that only ask for tokens or their text are taken at once.
pub(crate) const LOOKUPS: usize = 64;

/// When one that is turned away there may try again: lookups take milliseconds.
const LOOKUP_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is generated, as it comes. Dropping it gives the request up.
pub(crate) type Answer = mpsc::Receiver<Result<Event, Error>>;

/// The service behind both fronts.
#[derive(Debug)]
pub(crate) struct Api {
    /// The models, and where admitted requests for each go.
    pub(crate) deployments: Deployments,
    /// Who may run, and who waits.
    pub(crate) gate: Gate,
    /// Where requests are checked.
    pub(crate) checks: Checks,
    /// One permit for each of the [`LOOKUPS`].
    pub(crate) lookups: Semaphore,
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
        let (model, admissions) = self.deployments.find(&request.model)?;
        let defaults = self.defaults;
        // What cannot even wait is refused before anything is done for it.
        let choices = request::check_choices(request.n, &defaults)?;
        let priority = request::check_priority(request.priority)?;
        let arrival = self.gate.arrive(&caller.identity, choices)?;
        let work = move || ValidRequest::new(request, &model, &defaults);
        let request = self.checks.run(caller.deadline, work).await?;
        let request = request.of(&caller.identity);
        let pass = arrival
            .admitted(&request, priority, caller.deadline)
            .await?;
        let (output, answer) = mpsc::channel(OUTPUT);
        let admission = Admission {
            request,
            caller,
            output,
            pass,
        };
        // It holds as many as may run at once.
        admissions
            .try_send(admission)
            .map_err(|_| Error::new(Class::Unavailable, "the model is no longer served"))?;
        Ok(answer)
    }

    /// The token ids of a prompt.
    ///
    /// # Errors
    /// Why it has none, with the field's path where one is wrong.
    pub(crate) async fn tokenize(&self, request: TokenizeRequest) -> Result<Tokenized, Error> {
        let model = self.model(&request.model)?;
        let _lookup = self.lookup()?;
        let work = move || prompt::tokenize(request.prompt, &model);
        self.checks.run(None, work).await
    }

    /// The text of token ids.
    ///
    /// # Errors
    /// Why they have none, with the field's path where one is wrong.
    pub(crate) async fn detokenize(&self, request: DetokenizeRequest) -> Result<String, Error> {
        let model = self.model(&request.model)?;
        let _lookup = self.lookup()?;
        let work = move || prompt::detokenize(request.token_ids, &model);
        self.checks.run(None, work).await
    }

    /// The models that can be asked for: the target first, then drafts that answer alone.
    pub(crate) fn models(&self) -> Vec<v1::Model> {
        let models = self.deployments.models().into_iter();
        let told = models.map(|(model, role)| v1::Model {
            id: model.name.clone(),
            // It came as a u32.
            context_length: model.context_length as u32,
            role: role.into(),
        });
        told.collect()
    }

    /// The model that a request means by `name`.
    ///
    /// # Errors
    /// As [`Deployments::find`].
    pub(crate) fn model(&self, name: &str) -> Result<Arc<Model>, Error> {
        Ok(self.deployments.find(name)?.0)
    }

    /// A place among the lookups.
    fn lookup(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.lookups.try_acquire().map_err(|_| {
            let class = Class::Overloaded {
                retry_after: LOOKUP_RETRY_AFTER,
            };
            Error::new(class, "too many prompts are being tokenized")
        })
    }
}
