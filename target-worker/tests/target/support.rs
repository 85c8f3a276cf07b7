//! A target worker in this process, and a coordinator's end of its Verify streams.

use proto::v1::target_client::TargetClient;
use proto::v1::target_command::Command;
use proto::v1::target_event::Event;
use proto::v1::{
    Closed, Decoding, NoiseKey, SamplingParams, TargetClose, TargetCommand, TargetEvent,
    TargetOpen, TargetOpened, VerdictBatch, VerificationRule, VerifyBatch, VerifyItem,
};
use service::{CancellationToken, Tasks};
use std::time::Duration;
use target_worker::Config;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// How long an answer may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A target worker. Stopped when dropped.
pub(crate) struct Worker {
    pub(crate) shutdown: CancellationToken,
    pub(crate) ended: oneshot::Receiver<anyhow::Result<()>>,
    channel: Channel,
    _tasks: Tasks,
}

impl Worker {
    /// Serves `model`, with more flags.
    pub(crate) async fn start(model: &str, flags: &[&str]) -> Self {
        let args = [&["target-worker", "--model", model], flags].concat();
        let config: Config =
            service::config::parse_from(args.iter().map(Into::into)).expect("valid flags");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (tasks, shutdown) = (Tasks::new(), CancellationToken::new());
        let (report, ended) = oneshot::channel();
        let token = shutdown.clone();
        tasks.spawn("worker", async move {
            let _ = report.send(target_worker::run(config, listener, token).await);
        });
        Self {
            shutdown,
            ended,
            channel: service::client::channel(&format!("http://{address}")).expect("valid"),
            _tasks: tasks,
        }
    }

    pub(crate) fn client(&self) -> TargetClient<Channel> {
        TargetClient::new(self.channel.clone())
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) async fn stream(&self) -> Stream {
        let (commands, sent) = mpsc::channel(16);
        let events = self.client().verify(ReceiverStream::new(sent)).await;
        Stream {
            commands,
            events: events.expect("a stream").into_inner(),
            active: 0,
            steps: 0,
        }
    }

    /// What the target writes by itself after `prompt`: `count` tokens.
    pub(crate) async fn plain(
        &self,
        prompt: &[u32],
        decoding: &Decoding,
        count: usize,
    ) -> Vec<u32> {
        let mut stream = self.stream().await;
        let mut text = vec![stream.open(open(1, 1, prompt, decoding)).await.next_token];
        while text.len() < count {
            let batch = stream
                .verify(vec![item(1, 1, prompt.len() + text.len(), &[])])
                .await;
            text.push(batch.items[0].next_token);
        }
        text
    }
}

/// A Verify stream.
pub(crate) struct Stream {
    pub(crate) commands: mpsc::Sender<TargetCommand>,
    pub(crate) events: Streaming<TargetEvent>,
    /// Active sequences, as the worker said last.
    pub(crate) active: u32,
    steps: u64,
}

impl Stream {
    pub(crate) async fn send(&self, command: Command) {
        let command = TargetCommand {
            command: Some(command),
        };
        self.commands.send(command).await.expect("the stream lives");
    }

    /// The next event that is no load; `None` at the end of the stream.
    pub(crate) async fn try_next(&mut self) -> Option<Event> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.events.message()).await;
            let event = next.expect("in time").expect("no failure")?;
            match event.event.expect("an event that is known") {
                Event::Load(load) => self.active = load.active_sequences,
                event => return Some(event),
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Event {
        self.try_next().await.expect("an event")
    }

    pub(crate) async fn closed(&mut self) -> Closed {
        match self.next().await {
            Event::Closed(closed) => closed,
            other => panic!("not closed: {other:?}"),
        }
    }

    pub(crate) async fn verdicts(&mut self) -> VerdictBatch {
        match self.next().await {
            Event::Verdicts(verdicts) => verdicts,
            other => panic!("no verdicts: {other:?}"),
        }
    }

    pub(crate) async fn open(&mut self, open: TargetOpen) -> TargetOpened {
        self.send(Command::Open(open)).await;
        match self.next().await {
            Event::Opened(opened) => opened,
            other => panic!("not opened: {other:?}"),
        }
    }

    pub(crate) async fn send_verify(&mut self, items: Vec<VerifyItem>) -> u64 {
        self.steps += 1;
        let step = self.steps;
        self.send(Command::Verify(VerifyBatch { step, items }))
            .await;
        step
    }

    pub(crate) async fn verify(&mut self, items: Vec<VerifyItem>) -> VerdictBatch {
        let step = self.send_verify(items).await;
        let verdicts = self.verdicts().await;
        assert_eq!(verdicts.step, step);
        verdicts
    }

    pub(crate) async fn close(&self, sequence: u64) {
        self.send(Command::Close(TargetClose { sequence })).await;
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

pub(crate) fn open(sequence: u64, epoch: u32, prompt: &[u32], decoding: &Decoding) -> TargetOpen {
    TargetOpen {
        sequence,
        epoch,
        token_ids: prompt.to_vec(),
        decoding: Some(decoding.clone()),
        logprobs: None,
        ..TargetOpen::default()
    }
}

pub(crate) fn item(sequence: u64, epoch: u32, base_len: usize, draft: &[u32]) -> VerifyItem {
    VerifyItem {
        sequence,
        epoch,
        base_len: base_len as u32,
        draft_ids: draft.to_vec(),
        laws: None,
    }
}
