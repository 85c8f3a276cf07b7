//! A draft worker in this process, and a coordinator's end of its Propose streams.

use draft_worker::Config;
use proto::v1::draft_client::DraftClient;
use proto::v1::{
    Closed, Decoding, DraftCommand, DraftCommit, DraftEvent, DraftOpen, DraftOpened, NoiseKey,
    Proposal, SamplingParams, VerificationRule,
};
use service::{CancellationToken, Tasks};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// How long an answer may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A draft worker. Stopped when dropped.
pub(crate) struct Worker {
    pub(crate) shutdown: CancellationToken,
    pub(crate) ended: oneshot::Receiver<anyhow::Result<()>>,
    channel: Channel,
    _tasks: Tasks,
}

impl Worker {
    /// Serves `model`, with more flags.
    pub(crate) async fn start(model: &str, flags: &[&str]) -> Self {
        let args = [&["draft-worker", "--model", model], flags].concat();
        let config: Config =
            service::config::parse_from(args.iter().map(Into::into)).expect("valid flags");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (tasks, shutdown) = (Tasks::new(), CancellationToken::new());
        let (report, ended) = oneshot::channel();
        let token = shutdown.clone();
        tasks.spawn("worker", async move {
            let _ = report.send(draft_worker::run(config, listener, token).await);
        });
        Self {
            shutdown,
            ended,
            channel: service::client::channel(&format!("http://{address}")).expect("valid"),
            _tasks: tasks,
        }
    }

    pub(crate) fn client(&self) -> DraftClient<Channel> {
        DraftClient::new(self.channel.clone())
    }

    pub(crate) async fn stream(&self) -> Stream {
        let (commands, sent) = mpsc::channel(16);
        let events = self.client().propose(ReceiverStream::new(sent)).await;
        Stream {
            commands,
            events: events.expect("a stream").into_inner(),
            active: 0,
            ready: VecDeque::new(),
        }
    }

    /// What the model proposes after `committed`, from a cache that never saw anything else.
    pub(crate) async fn fresh(
        &self,
        committed: &[u32],
        decoding: &Decoding,
        want: u32,
    ) -> Vec<u32> {
        let mut stream = self.stream().await;
        let (last, prefix) = committed.split_last().expect("two tokens or more");
        stream.open(open(1, 1, prefix, decoding)).await;
        let commit = commit(1, 1, prefix.len(), &[*last], want);
        stream.propose(commit).await.draft_ids
    }
}

/// A Propose stream.
pub(crate) struct Stream {
    pub(crate) commands: mpsc::Sender<DraftCommand>,
    pub(crate) events: Streaming<DraftEvent>,
    /// Active sequences, as the worker said last.
    pub(crate) active: u32,
    ready: VecDeque<Answer>,
}

/// What a worker says of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Opened(DraftOpened),
    Proposal(Proposal),
    Closed(Closed),
}

impl Stream {
    pub(crate) async fn send(&self, command: DraftCommand) {
        self.commands.send(command).await.expect("the stream lives");
    }

    pub(crate) async fn send_open(&self, open: DraftOpen) {
        let opens = vec![open];
        self.send(DraftCommand {
            opens,
            ..Default::default()
        })
        .await;
    }

    pub(crate) async fn send_commit(&self, commit: DraftCommit) {
        let commits = vec![commit];
        self.send(DraftCommand {
            commits,
            ..Default::default()
        })
        .await;
    }

    pub(crate) async fn send_close(&self, sequence: u64) {
        let closes = vec![sequence];
        self.send(DraftCommand {
            closes,
            ..Default::default()
        })
        .await;
    }

    /// The next answer; `None` at the end of the stream.
    pub(crate) async fn try_next(&mut self) -> Option<Answer> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(answer);
            }
            let next = tokio::time::timeout(PATIENCE, self.events.message()).await;
            let event = next.expect("in time").expect("no failure")?;
            assert_ne!(event, DraftEvent::default(), "no frame is empty");
            if let Some(load) = event.load {
                self.active = load.active_sequences;
            }
            self.ready
                .extend(event.opened.into_iter().map(Answer::Opened));
            self.ready
                .extend(event.proposals.into_iter().map(Answer::Proposal));
            self.ready
                .extend(event.closed.into_iter().map(Answer::Closed));
        }
    }

    pub(crate) async fn next(&mut self) -> Answer {
        self.try_next().await.expect("an answer")
    }

    pub(crate) async fn closed(&mut self) -> Closed {
        match self.next().await {
            Answer::Closed(closed) => closed,
            other => panic!("not closed: {other:?}"),
        }
    }

    pub(crate) async fn opened(&mut self) -> DraftOpened {
        match self.next().await {
            Answer::Opened(opened) => opened,
            other => panic!("not opened: {other:?}"),
        }
    }

    pub(crate) async fn proposal(&mut self) -> Proposal {
        match self.next().await {
            Answer::Proposal(proposal) => proposal,
            other => panic!("no proposal: {other:?}"),
        }
    }

    pub(crate) async fn open(&mut self, open: DraftOpen) -> DraftOpened {
        self.send_open(open).await;
        self.opened().await
    }

    pub(crate) async fn propose(&mut self, commit: DraftCommit) -> Proposal {
        let (sequence, base_len) = (
            commit.sequence,
            commit.base_len + commit.token_ids.len() as u32,
        );
        self.send_commit(commit).await;
        let proposal = self.proposal().await;
        assert_eq!((proposal.sequence, proposal.base_len), (sequence, base_len));
        proposal
    }
}

pub(crate) fn greedy() -> Decoding {
    decoding(SamplingParams {
        temperature: Some(0.0),
        ..SamplingParams::default()
    })
}

pub(crate) fn warm() -> Decoding {
    decoding(SamplingParams {
        temperature: Some(0.9),
        top_p: Some(0.95),
        ..SamplingParams::default()
    })
}

pub(crate) fn decoding(sampling: SamplingParams) -> Decoding {
    Decoding {
        sampling: Some(sampling),
        key: Some(NoiseKey { high: 3, low: 4 }),
        rule: VerificationRule::Coupled.into(),
        ..Decoding::default()
    }
}

pub(crate) fn open(sequence: u64, epoch: u32, tokens: &[u32], decoding: &Decoding) -> DraftOpen {
    DraftOpen {
        sequence,
        epoch,
        token_ids: tokens.to_vec(),
        decoding: Some(decoding.clone()),
        ..DraftOpen::default()
    }
}

pub(crate) fn commit(
    sequence: u64,
    epoch: u32,
    base_len: usize,
    tokens: &[u32],
    want: u32,
) -> DraftCommit {
    DraftCommit {
        sequence,
        epoch,
        base_len: base_len as u32,
        token_ids: tokens.to_vec(),
        want,
        ..DraftCommit::default()
    }
}
