//! `specdec.v1.Generation`: the service over gRPC.

use super::{Answer, Api, Caller};
use futures::StreamExt as _;
use futures::stream::Map;
use proto::v1::generate_response::Event;
use proto::v1::generation_server::Generation;
use proto::v1::{
    DetokenizeRequest, DetokenizeResponse, GenerateRequest, GenerateResponse, ListModelsRequest,
    ListModelsResponse, TokenizeRequest, TokenizeResponse,
};
use service::Error;
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Answers the calls.
#[derive(Debug)]
pub(crate) struct Grpc(pub(crate) Arc<Api>);

type Responses = Map<
    ReceiverStream<Result<Event, Error>>,
    fn(Result<Event, Error>) -> Result<GenerateResponse, Status>,
>;

#[tonic::async_trait]
impl Generation for Grpc {
    type GenerateStream = Responses;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Responses>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let caller = Caller::new(metadata.as_ref(), &extensions);
        let answer = self.0.generate(request, caller).await?;
        Ok(Response::new(responses(answer)))
    }

    async fn tokenize(
        &self,
        request: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        let tokenized = self.0.tokenize(request.into_inner()).await?;
        Ok(Response::new(TokenizeResponse {
            token_ids: tokenized.token_ids,
            text: tokenized.text,
        }))
    }

    async fn detokenize(
        &self,
        request: Request<DetokenizeRequest>,
    ) -> Result<Response<DetokenizeResponse>, Status> {
        let text = self.0.detokenize(request.into_inner()).await?;
        Ok(Response::new(DetokenizeResponse { text }))
    }

    async fn list_models(
        &self,
        _request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        let models = self.0.models();
        Ok(Response::new(ListModelsResponse { models }))
    }
}

fn responses(answer: Answer) -> Responses {
    ReceiverStream::new(answer).map(|event| match event {
        Ok(event) => Ok(GenerateResponse { event: Some(event) }),
        Err(error) => Err(error.into()),
    })
}
