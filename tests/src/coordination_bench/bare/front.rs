//! Stands for the coordinator: takes streams, and once it has enough of them sends rounds to the
//! workers and each verdict to its client.

use super::{WAITING, serve};
use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use proto::v1::draft_client::DraftClient;
use proto::v1::generation_server::{Generation, GenerationServer};
use proto::v1::target_client::TargetClient;
use proto::v1::{
    Delta, DetokenizeRequest, DetokenizeResponse, DraftCommand, DraftCommit, DraftEvent,
    GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse, TargetCommand,
    TargetEvent, TokenOrigin, TokenizeRequest, TokenizeResponse, VerifyBatch, VerifyItem,
    generate_response, target_command::Command, target_event,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

/// What the program is to move.
#[derive(Debug, Clone, clap::Args)]
pub struct BareOptions {
    /// The target worker's stub
    #[arg(long)]
    target: String,
    /// The draft worker's stub
    #[arg(long)]
    draft: String,
    /// Tokens of a proposal; with 0 the draft worker hears of nothing
    #[arg(long)]
    draft_tokens: u32,
    /// Streams that take part; nothing moves before so many are there
    #[arg(long)]
    streams: usize,
}

type Output = mpsc::Sender<Result<GenerateResponse, Status>>;

/// Serves streams.
///
/// # Errors
/// Where it cannot listen, or a worker is not there.
pub async fn serve_bare(listen: &str, options: &BareOptions) -> Result<()> {
    let (streams, arriving) = mpsc::channel(options.streams);
    let mut rounds = Rounds::connect(options).await?;
    let routes = Routes::new(GenerationServer::new(Front { streams }));
    tokio::select! {
        served = serve(listen, routes) => served,
        moved = rounds.run(options.streams, arriving) => moved,
    }
}

struct Front {
    streams: mpsc::Sender<Output>,
}

#[tonic::async_trait]
impl Generation for Front {
    type GenerateStream = BoxStream<'static, Result<GenerateResponse, Status>>;

    async fn generate(
        &self,
        _request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let (output, outgoing) = mpsc::channel(WAITING);
        let sent = self.streams.send(output).await;
        sent.map_err(|_| Status::unavailable("the rounds are over"))?;
        Ok(Response::new(ReceiverStream::new(outgoing).boxed()))
    }

    async fn tokenize(
        &self,
        _request: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        Err(Status::unimplemented("there is no tokenizer"))
    }

    async fn detokenize(
        &self,
        _request: Request<DetokenizeRequest>,
    ) -> Result<Response<DetokenizeResponse>, Status> {
        Err(Status::unimplemented("there is no tokenizer"))
    }

    async fn list_models(
        &self,
        _request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        Err(Status::unimplemented("there is no model"))
    }
}

/// The streams to the workers.
struct Rounds {
    draft_tokens: u32,
    to_target: mpsc::Sender<TargetCommand>,
    from_target: Streaming<TargetEvent>,
    to_draft: mpsc::Sender<DraftCommand>,
    from_draft: Streaming<DraftEvent>,
}

impl Rounds {
    async fn connect(options: &BareOptions) -> Result<Self> {
        let mut target = TargetClient::new(service::client::channel(&options.target)?);
        let mut draft = DraftClient::new(service::client::channel(&options.draft)?);
        let (to_target, outgoing) = mpsc::channel(WAITING);
        let from_target = target.verify(ReceiverStream::new(outgoing)).await?;
        let (to_draft, outgoing) = mpsc::channel(WAITING);
        let from_draft = draft.propose(ReceiverStream::new(outgoing)).await?;
        Ok(Self {
            draft_tokens: options.draft_tokens,
            to_target,
            from_target: from_target.into_inner(),
            to_draft,
            from_draft: from_draft.into_inner(),
        })
    }

    /// Rounds of `count` streams, until none of them is left; then of the next.
    async fn run(&mut self, count: usize, mut arriving: mpsc::Receiver<Output>) -> Result<()> {
        loop {
            let mut clients = Vec::new();
            while clients.len() < count {
                clients.push(arriving.recv().await.context("the server has ended")?);
            }
            let mut lens = vec![20_u32; count];
            let mut last = vec![1_u32; count];
            while clients.iter().any(|client| !client.is_closed()) {
                let drafted = self.drafted(&lens, &last).await?;
                let verdicts = self.verified(&lens, drafted).await?;
                for (index, tokens) in verdicts.into_iter().enumerate() {
                    lens[index] += tokens;
                    last[index] = tokens;
                    // That a client left is no matter here.
                    let _ = clients[index].send(Ok(delta(tokens))).await;
                }
            }
        }
    }

    /// Has proposals drafted; none where there are to be none.
    async fn drafted(&mut self, lens: &[u32], last: &[u32]) -> Result<Vec<Vec<u32>>> {
        if self.draft_tokens == 0 {
            return Ok(vec![Vec::new(); lens.len()]);
        }
        let commits = (1..).zip(lens.iter().zip(last));
        let commits = commits.map(|(sequence, (len, last))| DraftCommit {
            sequence,
            epoch: 1,
            base_len: len - last,
            token_ids: vec![300; *last as usize],
            want: self.draft_tokens,
            ..DraftCommit::default()
        });
        let command = DraftCommand {
            commits: commits.collect(),
            ..DraftCommand::default()
        };
        self.to_draft.send(command).await?;
        let mut drafted = Vec::new();
        while drafted.len() < lens.len() {
            let event = self.from_draft.message().await?;
            let proposals = event.context("the draft worker has ended")?.proposals;
            drafted.extend(proposals.into_iter().map(|proposal| proposal.draft_ids));
        }
        Ok(drafted)
    }

    /// How many tokens each proposal's verdict commits.
    async fn verified(&mut self, lens: &[u32], drafted: Vec<Vec<u32>>) -> Result<Vec<u32>> {
        let items = (1..).zip(lens.iter().zip(drafted));
        let items = items.map(|(sequence, (len, draft_ids))| VerifyItem {
            sequence,
            epoch: 1,
            base_len: *len,
            draft_ids,
            laws: None,
        });
        let batch = VerifyBatch {
            step: 1,
            items: items.collect(),
        };
        let command = TargetCommand {
            command: Some(Command::Verify(batch)),
        };
        self.to_target.send(command).await?;
        let event = self.from_target.message().await?;
        match event.context("the target has ended")?.event {
            Some(target_event::Event::Verdicts(verdicts)) => {
                let items = verdicts.items.into_iter();
                Ok(items.map(|verdict| verdict.accepted + 1).collect())
            }
            other => anyhow::bail!("no verdicts: {other:?}"),
        }
    }
}

fn delta(tokens: u32) -> GenerateResponse {
    let count = tokens as usize;
    GenerateResponse {
        event: Some(generate_response::Event::Delta(Delta {
            text: " bada".repeat(count),
            token_ids: vec![300; count],
            origins: vec![i32::from(TokenOrigin::Draft); count],
            ..Delta::default()
        })),
    }
}
