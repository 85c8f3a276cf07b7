//! The public service: checks requests, admits them, and hands out their answers.

use crate::driver::Admission;
use crate::links::ServedModel;
use crate::model::Model;
use crate::prompt::{self, Tokenized};
use crate::request::{self, Defaults, ValidRequest};
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
    /// One permit per choice that may run at once.
    pub(crate) places: Arc<Semaphore>,
    /// What a client gets who does not say.
    pub(crate) defaults: Defaults,
}

impl Api {
    /// The served model.
    fn model(&self) -> Result<Arc<Model>, Error> {
        let model = self.served.borrow().clone();
        model.ok_or_else(|| Error::new(Class::Unavailable, "the target is not connected"))
    }

    /// So many places among the requests that may run.
    fn places(&self, count: u32) -> Result<OwnedSemaphorePermit, Error> {
        let places = Arc::clone(&self.places).try_acquire_many_owned(count);
        places.map_err(|_| overloaded("too many requests are running"))
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
        let mut permits = self.places(1)?;
        let defaults = self.defaults;
        let request =
            check(move || ValidRequest::new(request.into_inner(), &model, &defaults)).await?;
        if request.n() > 1 {
            permits.merge(self.places(request.n() - 1)?);
        }
        let (output, stream) = mpsc::channel(OUTPUT);
        let admission = Admission {
            request,
            output,
            permits,
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
        let _place = self.places(1)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proto::v1::{Prompt, TokenIds, prompt};
    use speculation::{LogprobsMode, Rule};
    use tokio::sync::watch;

    fn request(n: u32) -> Request<GenerateRequest> {
        let ids = TokenIds { ids: vec![1] };
        Request::new(GenerateRequest {
            prompt: Some(Prompt {
                prompt: Some(prompt::Prompt::TokenIds(ids)),
            }),
            n: Some(n),
            ..GenerateRequest::default()
        })
    }

    #[tokio::test]
    async fn each_choice_takes_a_place_and_gives_it_back() {
        let (_publish, served) = watch::channel(Some(testing::shared_model()));
        let (admissions, mut admitted) = mpsc::channel(3);
        let places = Arc::new(Semaphore::new(3));
        let api = Api {
            served,
            admissions,
            places: Arc::clone(&places),
            defaults: Defaults {
                max_draft_tokens: 3,
                min_draft_tokens: 0,
                min_confidence: None,
                rule: Rule::Coupled,
                logprobs: LogprobsMode::Raw,
                max_requests: 3,
            },
        };
        let stream = api.generate(request(2)).await;
        assert!(stream.is_ok());
        assert_eq!(places.available_permits(), 1);
        let refused = api.generate(request(2)).await.expect_err("one is left");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        let wrong = api.generate(request(4)).await.expect_err("never so many");
        assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
        assert_eq!(
            places.available_permits(),
            1,
            "what is refused keeps no place"
        );
        assert!(api.generate(request(1)).await.is_ok());
        assert_eq!(places.available_permits(), 0);
        while let Ok(admission) = admitted.try_recv() {
            drop(admission);
        }
        assert_eq!(places.available_permits(), 3);
    }
}
