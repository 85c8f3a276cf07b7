//! Stands for the workers: answers after the time that their steps would take.

use super::{WAITING, serve};
use anyhow::Result;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use proto::v1::draft_server::{Draft, DraftServer};
use proto::v1::target_server::{Target, TargetServer};
use proto::v1::{
    DescribeRequest, DraftCommand, DraftEvent, GetTokenizerRequest, ModelDescription, Proposal,
    TargetCommand, TargetEvent, TokenizerChunk, Verdict, VerdictBatch, VerifyBatch,
    target_command::Command, target_event::Event,
};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

/// How the stub answers.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct StubOptions {
    /// Milliseconds until verdicts
    #[arg(long)]
    target_ms: f64,
    /// Milliseconds until proposals
    #[arg(long)]
    draft_ms: f64,
    /// Tokens of a proposal
    #[arg(long)]
    draft_tokens: u32,
    /// Tokens that a verdict commits, on average
    #[arg(long)]
    tokens: f64,
}

/// Serves as a target worker and as a draft worker.
///
/// # Errors
/// Where it cannot listen.
pub async fn serve_stub(listen: &str, options: StubOptions) -> Result<()> {
    let routes = Routes::new(TargetServer::new(options)).add_service(DraftServer::new(options));
    serve(listen, routes).await
}

type Events<T> = BoxStream<'static, Result<T, Status>>;

/// Answers each frame on a thread, which sleeps as a worker's executor does.
fn answers<C, E>(
    mut commands: Streaming<C>,
    after: Duration,
    answer: impl Fn(C) -> Option<E> + Send + 'static,
) -> Events<E>
where
    C: Send + 'static,
    E: Send + 'static,
{
    let (events, outgoing) = mpsc::channel(WAITING);
    let (frames, mut taken) = mpsc::channel(WAITING);
    thread::spawn(move || {
        while let Some(frame) = taken.blocking_recv() {
            thread::sleep(after);
            if let Some(event) = answer(frame)
                && events.blocking_send(Ok(event)).is_err()
            {
                return;
            }
        }
    });
    let tasks = service::Tasks::new();
    tasks.spawn("stub", async move {
        while let Ok(Some(command)) = commands.message().await {
            if frames.send(command).await.is_err() {
                return;
            }
        }
    });
    // The task lives as long as the answers are wanted.
    let outgoing = ReceiverStream::new(outgoing);
    outgoing
        .map(move |event| {
            let _ = &tasks;
            event
        })
        .boxed()
}

impl StubOptions {
    fn verdicts(&self, batch: VerifyBatch) -> TargetEvent {
        let verdict = |(number, item): (usize, proto::v1::VerifyItem)| {
            let upto = |number: usize| (number as f64 * self.tokens) as u64;
            let tokens = upto(number + 1) - upto(number);
            Verdict {
                sequence: item.sequence,
                epoch: item.epoch,
                base_len: item.base_len,
                accepted: (tokens.max(1) - 1) as u32,
                next_token: 300,
                ..Verdict::default()
            }
        };
        let verdicts = VerdictBatch {
            step: batch.step,
            items: batch.items.into_iter().enumerate().map(verdict).collect(),
            compute_us: 17_000,
        };
        TargetEvent {
            event: Some(Event::Verdicts(verdicts)),
        }
    }

    fn proposals(&self, command: DraftCommand) -> DraftEvent {
        let proposals = command.commits.into_iter().map(|commit| Proposal {
            sequence: commit.sequence,
            epoch: commit.epoch,
            base_len: commit.base_len + commit.token_ids.len() as u32,
            draft_ids: vec![300; self.draft_tokens as usize],
            compute_us: 7_500,
            ..Proposal::default()
        });
        DraftEvent {
            proposals: proposals.collect(),
            ..DraftEvent::default()
        }
    }
}

fn milliseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e3)
}

#[tonic::async_trait]
impl Target for StubOptions {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<ModelDescription>, Status> {
        Err(Status::unimplemented("a stub has no model"))
    }

    type GetTokenizerStream = Events<TokenizerChunk>;

    async fn get_tokenizer(
        &self,
        _request: Request<GetTokenizerRequest>,
    ) -> Result<Response<Self::GetTokenizerStream>, Status> {
        Err(Status::unimplemented("a stub has no tokenizer"))
    }

    type VerifyStream = Events<TargetEvent>;

    async fn verify(
        &self,
        request: Request<Streaming<TargetCommand>>,
    ) -> Result<Response<Self::VerifyStream>, Status> {
        let (options, after) = (*self, milliseconds(self.target_ms));
        let events = answers(request.into_inner(), after, move |command| {
            match command.command {
                Some(Command::Verify(batch)) => Some(options.verdicts(batch)),
                _ => None,
            }
        });
        Ok(Response::new(events))
    }
}

#[tonic::async_trait]
impl Draft for StubOptions {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<ModelDescription>, Status> {
        Err(Status::unimplemented("a stub has no model"))
    }

    type GetTokenizerStream = Events<TokenizerChunk>;

    async fn get_tokenizer(
        &self,
        _request: Request<GetTokenizerRequest>,
    ) -> Result<Response<Self::GetTokenizerStream>, Status> {
        Err(Status::unimplemented("a stub has no tokenizer"))
    }

    type ProposeStream = Events<DraftEvent>;

    async fn propose(
        &self,
        request: Request<Streaming<DraftCommand>>,
    ) -> Result<Response<Self::ProposeStream>, Status> {
        let (options, after) = (*self, milliseconds(self.draft_ms));
        let events = answers(request.into_inner(), after, move |command| {
            Some(options.proposals(command))
        });
        Ok(Response::new(events))
    }
}
