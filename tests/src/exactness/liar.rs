//! A draft worker of the suite's own, that can lie about the law that its tokens come from.

use super::law::{Law, Text, TokenId};
use super::options::OptionSet;
use super::oracle::Oracle;
use super::{LENGTH, Models};
use anyhow::Result;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use proto::v1::draft_server::{Draft, DraftServer};
use proto::v1::{
    DescribeRequest, DraftCommand, DraftCommit, DraftEvent, DraftLaws, DraftOpen, DraftOpened,
    GetTokenizerRequest, ModelDescription, Proposal, TokenizerChunk, VerificationRule,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// What declared counts add up to.
const TOTAL: u32 = 1 << 16;

/// How it draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// From the law that it declares.
    Honest,
    /// The most likely token, while it declares the whole law.
    Greedy,
}

impl Manner {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Greedy => "lying",
        }
    }
}

/// The draft worker, bound to an address and not serving yet.
pub struct Liar {
    listener: TcpListener,
    url: String,
    service: Service,
}

impl Liar {
    /// Binds a worker that drafts with the draft model of `models`, under `options`.
    ///
    /// # Errors
    /// Where no port is free.
    pub async fn bind(models: &Models, options: &OptionSet, manner: Manner) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let vocabulary = &models.draft.vocabulary;
        let description = ModelDescription {
            model_id: manner.name().to_owned(),
            context_length: 4096,
            vocabulary_rows: models.draft.rows as u32,
            tokenizer_size: vocabulary.size as u32,
            tokenizer_fingerprint: vocabulary.fingerprint.clone(),
            eos_token_ids: vocabulary.eos_ids.clone(),
            chat_template: vocabulary.chat_template.clone(),
            max_sequences: 1024,
            max_draft_tokens: 16,
            device: "cpu".to_owned(),
            batch_invariant: true,
            bos_token_id: None,
            processors: None,
        };
        let oracle = Oracle {
            table: &models.draft,
            options,
        };
        let drafting = Drafting {
            laws: declared(&oracle),
            prompt: models.draft.words.prompt.len(),
            manner,
        };
        Ok(Self {
            listener,
            url,
            service: Service {
                description,
                drafting: Arc::new(drafting),
            },
        })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves, until dropped.
    ///
    /// # Errors
    /// Where serving fails.
    pub async fn serve(self) -> Result<()> {
        tonic::transport::Server::builder()
            .add_service(DraftServer::new(self.service))
            .serve_with_incoming(TcpListenerStream::new(self.listener))
            .await?;
        Ok(())
    }
}

/// A law as it is declared: ids, ascending, and counts.
type Declared = Vec<(TokenId, u32)>;

/// What all streams draft with.
struct Drafting {
    /// By the output so far.
    laws: HashMap<Text, Declared>,
    /// Tokens of the prompt.
    prompt: usize,
    manner: Manner,
}

/// The laws after every text that can come, rounded to counts.
fn declared(oracle: &Oracle<'_>) -> HashMap<Text, Declared> {
    let mut laws = HashMap::new();
    for length in 0..LENGTH {
        for text in oracle.joint(length).into_keys() {
            let law = rounded(&oracle.law(&text));
            laws.insert(text, law);
        }
    }
    laws
}

fn rounded(law: &Law) -> Declared {
    let spare = f64::from(TOTAL) - law.entries().len() as f64;
    let count = |p: f64| 1 + (p * spare) as u32;
    let mut counts: Declared = law
        .entries()
        .iter()
        .map(|(token, p)| (*token, count(*p)))
        .collect();
    let sum: u32 = counts.iter().map(|entry| entry.1).sum();
    if let Some(largest) = counts.iter_mut().max_by_key(|entry| entry.1) {
        largest.1 = largest.1 + TOTAL - sum;
    }
    counts
}

struct Service {
    description: ModelDescription,
    drafting: Arc<Drafting>,
}

#[tonic::async_trait]
impl Draft for Service {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<ModelDescription>, Status> {
        Ok(Response::new(self.description.clone()))
    }

    type GetTokenizerStream = stream::Empty<Result<TokenizerChunk, Status>>;

    async fn get_tokenizer(
        &self,
        _request: Request<GetTokenizerRequest>,
    ) -> Result<Response<Self::GetTokenizerStream>, Status> {
        Err(Status::unimplemented("the fingerprint is the target's"))
    }

    type ProposeStream = BoxStream<'static, Result<DraftEvent, Status>>;

    async fn propose(
        &self,
        request: Request<Streaming<DraftCommand>>,
    ) -> Result<Response<Self::ProposeStream>, Status> {
        let proposing = Proposing {
            drafting: Arc::clone(&self.drafting),
            sequences: HashMap::new(),
            rng: StdRng::seed_from_u64(1),
        };
        Ok(Response::new(proposing.run(request.into_inner()).boxed()))
    }
}

/// One Propose stream.
struct Proposing {
    drafting: Arc<Drafting>,
    sequences: HashMap<u64, Sequence>,
    rng: StdRng,
}

struct Sequence {
    epoch: u32,
    tokens: Text,
    /// Whether the rule wants the laws.
    declares: bool,
}

impl Proposing {
    fn run(
        self,
        commands: Streaming<DraftCommand>,
    ) -> impl Stream<Item = Result<DraftEvent, Status>> {
        stream::unfold((self, commands), |(mut proposing, mut commands)| async {
            loop {
                let event = match commands.message().await {
                    Ok(Some(command)) => proposing.take(command),
                    Ok(None) | Err(_) => return None,
                };
                if event != DraftEvent::default() {
                    return Some((Ok(event), (proposing, commands)));
                }
            }
        })
    }

    fn take(&mut self, command: DraftCommand) -> DraftEvent {
        let opens = command.opens.into_iter();
        let opened = opens.map(|open| self.open(open)).collect();
        let commits = command.commits.into_iter();
        let proposals = commits.filter_map(|commit| self.commit(commit)).collect();
        for sequence in command.closes {
            self.sequences.remove(&sequence);
        }
        DraftEvent {
            opened,
            proposals,
            ..DraftEvent::default()
        }
    }

    fn open(&mut self, open: DraftOpen) -> DraftOpened {
        let coupled = i32::from(VerificationRule::Coupled);
        let rule = open.decoding.as_ref().map(|decoding| decoding.rule);
        let opened = DraftOpened {
            sequence: open.sequence,
            epoch: open.epoch,
            base_len: open.token_ids.len() as u32,
        };
        let sequence = Sequence {
            epoch: open.epoch,
            tokens: open.token_ids,
            declares: rule != Some(coupled),
        };
        self.sequences.insert(open.sequence, sequence);
        opened
    }

    fn commit(&mut self, commit: DraftCommit) -> Option<Proposal> {
        let sequence = self.sequences.get_mut(&commit.sequence)?;
        if sequence.epoch != commit.epoch || sequence.tokens.len() != commit.base_len as usize {
            return None;
        }
        sequence.tokens.extend(commit.token_ids);
        if commit.want == 0 {
            return None;
        }
        let output = sequence.tokens.get(self.drafting.prompt..)?;
        let draft = self.drafting.draft(output, commit.want, &mut self.rng);
        Some(Proposal {
            sequence: commit.sequence,
            epoch: commit.epoch,
            base_len: sequence.tokens.len() as u32,
            laws: sequence.declares.then(|| message(&draft)),
            draft_ids: draft.into_iter().map(|(token, _)| token).collect(),
            compute_us: 1,
            ..Proposal::default()
        })
    }
}

impl Drafting {
    /// Up to `want` tokens, each with the law that is declared for it.
    fn draft(&self, output: &[TokenId], want: u32, rng: &mut StdRng) -> Vec<(TokenId, &Declared)> {
        let mut path = output.to_vec();
        let mut draft = Vec::new();
        while let Some(law) = self.laws.get(&path)
            && draft.len() < want as usize
        {
            let Some(token) = self.draw(law, rng) else {
                break;
            };
            path.push(token);
            draft.push((token, law));
        }
        draft
    }

    fn draw(&self, law: &Declared, rng: &mut StdRng) -> Option<TokenId> {
        let mut left = rng.random_range(0..TOTAL);
        let drawn = match self.manner {
            Manner::Greedy => law.iter().max_by_key(|entry| entry.1),
            Manner::Honest => law.iter().find(|entry| {
                let here = left < entry.1;
                left = left.saturating_sub(entry.1);
                here
            }),
        };
        drawn.map(|entry| entry.0)
    }
}

fn message(draft: &[(TokenId, &Declared)]) -> DraftLaws {
    let mut message = DraftLaws::default();
    for (_, law) in draft {
        message.sizes.push(law.len() as u32);
        let mut last = 0;
        for (token, count) in *law {
            message.id_gaps.push(token - last);
            message.counts.push(*count);
            last = *token;
        }
    }
    message
}
