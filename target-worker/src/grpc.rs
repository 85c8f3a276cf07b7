//! The calls of `specdec.v1.Target`.

use crate::stream;
use proto::v1;
use service::{CancellationToken, Tasks};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use worker::{Served, TokenizerStream};

/// Events that wait for a coordinator to read them; while they do, no more of its commands are
/// taken.
const EVENT_QUEUE: usize = 64;

/// The service.
pub(crate) struct Target {
    served: Served,
    streams: Tasks,
    shutdown: CancellationToken,
}

impl Target {
    pub(crate) fn new(served: Served, shutdown: CancellationToken) -> Self {
        Self {
            served,
            streams: Tasks::new(),
            shutdown,
        }
    }
}

#[tonic::async_trait]
impl v1::target_server::Target for Target {
    async fn describe(
        &self,
        _request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::ModelDescription>, Status> {
        Ok(Response::new((*self.served.description).clone()))
    }

    type GetTokenizerStream = TokenizerStream;

    async fn get_tokenizer(
        &self,
        _request: Request<v1::GetTokenizerRequest>,
    ) -> Result<Response<TokenizerStream>, Status> {
        let chunks = worker::tokenizer_chunks(self.served.vocabulary.clone());
        Ok(Response::new(chunks))
    }

    type VerifyStream = ReceiverStream<Result<v1::TargetEvent, Status>>;

    async fn verify(
        &self,
        request: Request<Streaming<v1::TargetCommand>>,
    ) -> Result<Response<Self::VerifyStream>, Status> {
        let (events, received) = mpsc::channel(EVENT_QUEUE);
        let (served, shutdown) = (self.served.clone(), self.shutdown.clone());
        let stream = stream::serve(request.into_inner(), events, served, shutdown);
        self.streams.spawn("verify stream", stream);
        Ok(Response::new(ReceiverStream::new(received)))
    }
}
