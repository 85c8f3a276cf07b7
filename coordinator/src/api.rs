//! The public service: checks requests, admits them, and hands out their answers.

use crate::driver::Admission;
use crate::links::ServedModel;
use crate::model::Model;
use crate::prompt::{self, Tokenized};
use crate::request::{self, ValidRequest};
use proto::v1::generation_server::Generation;
use proto::v1::{self, GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse};
use proto::v1::{TokenizeRequest, TokenizeResponse};
use service::{Class, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// How long checking a request may take: nearly all of it is the tokenizer's.
const CHECK_DEADLINE: Duration = Duration::from_secs(10);

/// Responses that wait for a slow client; more tokens are merged into the last.
const OUTPUT: usize = 32;

/// When a client that was turned away may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answers the calls of the public service.
#[derive(Debug)]
pub(crate) struct Api {
    /// The served model, while there is one.
    pub(crate) served: ServedModel,
    /// Where admitted requests go.
    pub(crate) admissions: mpsc::Sender<Admission>,
    /// One permit per request that may run at once.
    pub(crate) places: Arc<Semaphore>,
    /// Tokens to draft per round where a request does not say.
    pub(crate) default_draft: u32,
}

impl Api {
    /// The served model.
    fn model(&self) -> Result<Arc<Model>, Error> {
        let model = self.served.borrow().clone();
        model.ok_or_else(|| Error::new(Class::Unavailable, "the target is not connected"))
    }

    /// A place among the requests that may run.
    fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| overloaded("too many requests are running"))
    }
}

#[tonic::async_trait]
impl Generation for Api {
    type GenerateStream = ReceiverStream<Result<GenerateResponse, Status>>;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let model = self.model()?;
        let permit = self.place()?;
        let default_draft = self.default_draft;
        let checked_against = Arc::clone(&model);
        let request =
            check(move || ValidRequest::new(request.into_inner(), &checked_against, default_draft))
                .await?;
        let (output, stream) = mpsc::channel(OUTPUT);
        let admission = Admission {
            request,
            model,
            output,
            permit,
        };
        self.admissions
            .try_send(admission)
            .map_err(|_| overloaded("too many requests arrive at once"))?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn tokenize(
        &self,
        request: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        let model = self.model()?;
        let _place = self.place()?;
        let Tokenized { token_ids, text } = check(move || {
            let request = request.into_inner();
            request::check_model(&request.model, &model)?;
            prompt::tokenize(request.prompt, &model)
        })
        .await?;
        Ok(Response::new(TokenizeResponse { token_ids, text }))
    }

    async fn list_models(
        &self,
        _request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        let models = self.model().ok().map(|model| v1::Model {
            id: model.name.clone(),
            // It came as a u32.
            context_length: model.context_length as u32,
        });
        Ok(Response::new(ListModelsResponse {
            models: models.into_iter().collect(),
        }))
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
