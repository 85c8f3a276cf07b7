//! A draft worker without a model: it proposes what a test says, whatever the request demands.

use anyhow::Result;
use engine::Vocabulary;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use proto::v1::draft_server::{Draft, DraftServer};
use proto::v1::{
    DescribeRequest, DraftCommand, DraftEvent, DraftOpened, GetTokenizerRequest, ModelDescription,
    Proposal, TokenizerChunk,
};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// The context that it claims to have.
const CONTEXT: u32 = 4096;

/// A draft worker that serves in this process until it is dropped.
#[derive(Debug)]
pub struct RogueDraft {
    url: String,
    server: tokio::task::JoinHandle<()>,
}

impl RogueDraft {
    /// Serves proposals out of `tokens`, over and over, as a draft model with `vocabulary`.
    ///
    /// # Errors
    /// Where it cannot listen.
    #[expect(clippy::disallowed_methods, reason = "aborted by drop")]
    pub async fn start(vocabulary: &Vocabulary, tokens: &[u32]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let service = DraftServer::new(Rogue {
            description: description(vocabulary),
            tokens: tokens.into(),
        });
        let server = tokio::spawn(async move {
            let serving = tonic::transport::Server::builder().add_service(service);
            let incoming = TcpListenerStream::new(listener);
            if let Err(error) = serving.serve_with_incoming(incoming).await {
                eprintln!("rogue draft worker: {error}");
            }
        });
        Ok(Self { url, server })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for RogueDraft {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn description(vocabulary: &Vocabulary) -> ModelDescription {
    let size = u32::try_from(vocabulary.size).unwrap_or(u32::MAX);
    ModelDescription {
        model_id: "rogue".to_owned(),
        context_length: CONTEXT,
        vocabulary_rows: size,
        tokenizer_size: size,
        tokenizer_fingerprint: vocabulary.fingerprint.clone(),
        eos_token_ids: vocabulary.eos_ids.clone(),
        max_sequences: 64,
        max_draft_tokens: 16,
        device: "none".to_owned(),
        batch_invariant: true,
        ..ModelDescription::default()
    }
}

struct Rogue {
    description: ModelDescription,
    tokens: Arc<[u32]>,
}

#[tonic::async_trait]
impl Draft for Rogue {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<ModelDescription>, Status> {
        Ok(Response::new(self.description.clone()))
    }

    type GetTokenizerStream = BoxStream<'static, Result<TokenizerChunk, Status>>;

    async fn get_tokenizer(
        &self,
        _request: Request<GetTokenizerRequest>,
    ) -> Result<Response<Self::GetTokenizerStream>, Status> {
        Err(Status::unimplemented("the fingerprint says it all"))
    }

    type ProposeStream = BoxStream<'static, Result<DraftEvent, Status>>;

    async fn propose(
        &self,
        request: Request<Streaming<DraftCommand>>,
    ) -> Result<Response<Self::ProposeStream>, Status> {
        let tokens = Arc::clone(&self.tokens);
        let commands = request.into_inner();
        let events = commands.map(move |command| command.map(|it| answer(it, &tokens)));
        Ok(Response::new(events.boxed()))
    }
}

fn answer(command: DraftCommand, tokens: &[u32]) -> DraftEvent {
    let opened = command.opens.iter().map(|open| DraftOpened {
        sequence: open.sequence,
        epoch: open.epoch,
        base_len: open.token_ids.len() as u32,
    });
    let wanting = command.commits.iter().filter(|commit| commit.want > 0);
    let proposals = wanting.map(|commit| {
        let base_len = commit.base_len + commit.token_ids.len() as u32;
        let endless = tokens.iter().cycle().skip(base_len as usize % tokens.len());
        Proposal {
            sequence: commit.sequence,
            epoch: commit.epoch,
            base_len,
            draft_ids: endless.copied().take(commit.want as usize).collect(),
            ..Proposal::default()
        }
    });
    DraftEvent {
        opened: opened.collect(),
        proposals: proposals.collect(),
        ..DraftEvent::default()
    }
}
