//! Stands for the workers: answers after the time that their steps would take, and computes nothing.

use super::{WAITING, serve};
use anyhow::Result;
use engine::Vocabulary;
use engine::synthetic::{Description, Synthetic};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use proto::v1::draft_server::{Draft, DraftServer};
use proto::v1::target_server::{Target, TargetServer};
use proto::v1::{
    DescribeRequest, DraftCommand, DraftCommit, DraftEvent, DraftOpened, GetTokenizerRequest,
    ModelDescription, Proposal, TargetCommand, TargetEvent, TargetOpened, TokenizerChunk, Verdict,
    VerdictBatch, VerifyBatch, VerifyItem, target_command::Command, target_event::Event,
};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

/// A word of the vocabulary: every token of every text.
const TOKEN: u32 = 400;

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

/// Both workers.
#[derive(Clone)]
struct Stub {
    options: StubOptions,
    vocabulary: Arc<Vocabulary>,
}

/// Serves as a target worker and as a draft worker.
///
/// # Errors
/// Where it cannot listen.
pub async fn serve_stub(listen: &str, options: StubOptions) -> Result<()> {
    let stub = Stub {
        options,
        vocabulary: Arc::new(Synthetic::new(Description::default()).vocabulary()),
    };
    let routes = Routes::new(TargetServer::new(stub.clone())).add_service(DraftServer::new(stub));
    serve(listen, routes).await
}

type Events<T> = BoxStream<'static, Result<T, Status>>;

/// Answers each frame on a thread, which sleeps as a worker's executor does.
fn answers<C, E>(
    mut commands: Streaming<C>,
    answer: impl Fn(C) -> (Duration, Option<E>) + Send + 'static,
) -> Response<Events<E>>
where
    C: Send + 'static,
    E: Send + 'static,
{
    let (events, outgoing) = mpsc::channel(WAITING);
    let (frames, mut taken) = mpsc::channel(WAITING);
    thread::spawn(move || {
        while let Some(frame) = taken.blocking_recv() {
            let (after, event) = answer(frame);
            thread::sleep(after);
            if let Some(event) = event
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
    let outgoing = ReceiverStream::new(outgoing).map(move |event| {
        let _ = &tasks;
        event
    });
    Response::new(outgoing.boxed())
}

impl Stub {
    fn describe(&self) -> Response<ModelDescription> {
        let size = self.vocabulary.size as u32;
        Response::new(ModelDescription {
            model_id: "stub".to_owned(),
            context_length: 8192,
            vocabulary_rows: size,
            tokenizer_size: size,
            tokenizer_fingerprint: self.vocabulary.fingerprint.clone(),
            eos_token_ids: self.vocabulary.eos_ids.clone(),
            max_sequences: 256,
            max_draft_tokens: 16,
            device: "none".to_owned(),
            batch_invariant: true,
            ..ModelDescription::default()
        })
    }

    fn tokenizer(&self) -> Response<Events<TokenizerChunk>> {
        let data = self.vocabulary.tokenizer_json.clone();
        Response::new(stream::iter([Ok(TokenizerChunk { data })]).boxed())
    }
}

impl StubOptions {
    fn target(self, command: TargetCommand) -> (Duration, Option<TargetEvent>) {
        let (after, event) = match command.command {
            Some(Command::Open(open)) => {
                let opened = TargetOpened {
                    sequence: open.sequence,
                    epoch: open.epoch,
                    base_len: open.token_ids.len() as u32,
                    next_token: TOKEN,
                    ..TargetOpened::default()
                };
                (0.0, Event::Opened(opened))
            }
            Some(Command::Verify(batch)) => (self.target_ms, Event::Verdicts(self.verdicts(batch))),
            Some(Command::Close(_)) | None => return (Duration::ZERO, None),
        };
        let event = TargetEvent { event: Some(event) };
        (milliseconds(after), Some(event))
    }

    fn verdicts(self, batch: VerifyBatch) -> VerdictBatch {
        let verdict = |(number, item): (usize, VerifyItem)| {
            let upto = |number: usize| (number as f64 * self.tokens) as u32;
            let tokens = upto(number + 1) - upto(number);
            Verdict {
                sequence: item.sequence,
                epoch: item.epoch,
                base_len: item.base_len,
                accepted: tokens.saturating_sub(1).min(item.draft_ids.len() as u32),
                next_token: TOKEN,
                ..Verdict::default()
            }
        };
        VerdictBatch {
            step: batch.step,
            items: batch.items.into_iter().enumerate().map(verdict).collect(),
            compute_us: (self.target_ms * 1e3) as u32,
        }
    }

    fn draft(self, command: DraftCommand) -> (Duration, Option<DraftEvent>) {
        let opened = command.opens.iter().map(|open| DraftOpened {
            sequence: open.sequence,
            epoch: open.epoch,
            base_len: open.token_ids.len() as u32,
        });
        let wanting = command.commits.iter().filter(|commit| commit.want > 0);
        let event = DraftEvent {
            opened: opened.collect(),
            proposals: wanting.map(|commit| self.proposal(commit)).collect(),
            ..DraftEvent::default()
        };
        let drafts = !event.proposals.is_empty();
        let after = if drafts { self.draft_ms } else { 0.0 };
        let answers = drafts || !event.opened.is_empty();
        (milliseconds(after), answers.then_some(event))
    }

    fn proposal(self, commit: &DraftCommit) -> Proposal {
        Proposal {
            sequence: commit.sequence,
            epoch: commit.epoch,
            base_len: commit.base_len + commit.token_ids.len() as u32,
            draft_ids: vec![TOKEN; self.draft_tokens.min(commit.want) as usize],
            compute_us: (self.draft_ms * 1e3) as u32,
            ..Proposal::default()
        }
    }
}

fn milliseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e3)
}

#[tonic::async_trait]
impl Target for Stub {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<ModelDescription>, Status> {
        Ok(self.describe())
    }

    type GetTokenizerStream = Events<TokenizerChunk>;

    async fn get_tokenizer(
        &self,
        _request: Request<GetTokenizerRequest>,
    ) -> Result<Response<Self::GetTokenizerStream>, Status> {
        Ok(self.tokenizer())
    }

    type VerifyStream = Events<TargetEvent>;

    async fn verify(
        &self,
        request: Request<Streaming<TargetCommand>>,
    ) -> Result<Response<Self::VerifyStream>, Status> {
        let options = self.options;
        let commands = request.into_inner();
        Ok(answers(commands, move |command| options.target(command)))
    }
}

#[tonic::async_trait]
impl Draft for Stub {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<ModelDescription>, Status> {
        Ok(self.describe())
    }

    type GetTokenizerStream = Events<TokenizerChunk>;

    async fn get_tokenizer(
        &self,
        _request: Request<GetTokenizerRequest>,
    ) -> Result<Response<Self::GetTokenizerStream>, Status> {
        Ok(self.tokenizer())
    }

    type ProposeStream = Events<DraftEvent>;

    async fn propose(
        &self,
        request: Request<Streaming<DraftCommand>>,
    ) -> Result<Response<Self::ProposeStream>, Status> {
        let options = self.options;
        let commands = request.into_inner();
        Ok(answers(commands, move |command| options.draft(command)))
    }
}
