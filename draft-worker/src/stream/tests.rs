//! What is left in the engine when a stream's sequences are gone: nothing.

use super::*;
use engine::{CacheType, Engine, EngineOptions, Model as _, Synthetic};
use proto::v1::{CloseReason, Closed, Decoding, ModelDescription, NoiseKey, VerificationRule};
use service::Tasks;
use tokio_stream::wrappers::ReceiverStream;
use worker::Limits;

const PROMPT: [u32; 50] = [11; 50];

/// An engine with room for a few sequences and some of their forks.
fn served(base_ms: u32, blocks: usize) -> Served {
    let description = format!("agreement=0.75,base_ms={base_ms}");
    let model = Synthetic::new(description.parse().expect("a description"));
    let vocabulary = std::sync::Arc::new(model.vocabulary());
    let limits = Limits {
        tokenizer_size: 512,
        context_length: model.shape().context_length,
        max_sequences: 4,
        max_draft_tokens: 16,
    };
    let options = EngineOptions {
        max_sequences: 4,
        cache_bytes: blocks * model.shape().kv.block_bytes(),
        cache_type: CacheType::F32,
        prefix_sharing: false,
        max_step_tokens: 64,
        tokenizer_size: 512,
    };
    let engine = Engine::start(Box::new(model), options).expect("a thread");
    Served::new(engine, vocabulary, ModelDescription::default(), limits)
}

struct Peer {
    commands: mpsc::Sender<Result<DraftCommand, Status>>,
    events: mpsc::Receiver<Result<DraftEvent, Status>>,
    _tasks: Tasks,
}

impl Peer {
    fn start(served: &Served) -> Self {
        let (commands, taken) = mpsc::channel(16);
        let (told, events) = mpsc::channel(16);
        let tasks = Tasks::new();
        let stream = serve(
            ReceiverStream::new(taken),
            told,
            served.clone(),
            CancellationToken::new(),
        );
        tasks.spawn("stream", stream);
        Self {
            commands,
            events,
            _tasks: tasks,
        }
    }

    async fn send(&self, command: DraftCommand) {
        self.commands.send(Ok(command)).await.expect("it lives");
    }

    async fn open(&self, sequence: u64) {
        let opens = vec![DraftOpen {
            sequence,
            epoch: 1,
            token_ids: PROMPT.to_vec(),
            decoding: Some(Decoding {
                key: Some(NoiseKey { high: 3, low: 4 }),
                rule: VerificationRule::Coupled.into(),
                ..Decoding::default()
            }),
            ..DraftOpen::default()
        }];
        self.send(DraftCommand {
            opens,
            ..DraftCommand::default()
        })
        .await;
    }

    async fn commit(&self, sequence: u64, base: usize, tokens: &[u32]) {
        let commits = vec![DraftCommit {
            sequence,
            epoch: 1,
            base_len: base as u32,
            token_ids: tokens.to_vec(),
            want: 4,
            ahead_want: 8,
            ahead_width: 3,
            ..DraftCommit::default()
        }];
        self.send(DraftCommand {
            commits,
            ..DraftCommand::default()
        })
        .await;
    }

    async fn close(&self, sequence: u64) {
        let closes = vec![sequence];
        self.send(DraftCommand {
            closes,
            ..DraftCommand::default()
        })
        .await;
    }

    /// Proposals of `sequence` until one that `is_last`.
    async fn until(&mut self, sequence: u64, is_last: impl Fn(&Proposal) -> bool) -> Proposal {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await;
            let event = event
                .expect("in time")
                .expect("it lives")
                .expect("no failure");
            let is_asked = |closed: &Closed| closed.reason() == CloseReason::Requested;
            assert!(event.closed.iter().all(is_asked), "{:?}", event.closed);
            let mut own = event
                .proposals
                .into_iter()
                .filter(|p| p.sequence == sequence);
            if let Some(proposal) = own.find(|proposal| is_last(proposal)) {
                return proposal;
            }
        }
    }
}

/// Waits until the engine holds `used` blocks.
async fn settled(engine: &Engine, used: usize) {
    let settled = async {
        while engine.cache().blocks.used != used {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), settled).await;
    waited.unwrap_or_else(|_| panic!("{} blocks are held, not {used}", engine.cache().blocks.used));
}

#[tokio::test]
async fn nothing_is_left_of_a_sequence_that_is_closed_while_its_outcomes_are_drafted() {
    let served = served(5, 400);
    let mut peer = Peer::start(&served);
    for sequence in 1..=3 {
        peer.open(sequence).await;
        peer.commit(sequence, PROMPT.len(), &[9]).await;
        peer.until(sequence, |proposal| proposal.assumed.is_empty())
            .await;
        assert!(served.engine.cache().blocks.used >= 2);
        assert_eq!(
            served.engine.active_sequences(),
            1,
            "forks are no sequences"
        );
        peer.close(sequence).await;
        settled(&served.engine, 0).await;
        assert_eq!(served.engine.active_sequences(), 0);
    }
}

#[tokio::test]
async fn a_commit_leaves_nothing_of_the_outcomes_that_did_not_come_about() {
    let served = served(0, 400);
    let mut peer = Peer::start(&served);
    peer.open(1).await;
    let mut base = PROMPT.len();
    let mut run = vec![9];
    for round in 0..20 {
        peer.commit(1, base, &run).await;
        base += run.len();
        let is_last =
            |proposal: &Proposal| proposal.rank == 2 && proposal.base_len as usize == base;
        let outcome = peer.until(1, is_last).await;
        run = if round % 2 == 0 {
            outcome.assumed
        } else {
            vec![round]
        };
    }
    let commits = vec![DraftCommit {
        sequence: 1,
        epoch: 1,
        base_len: base as u32,
        token_ids: vec![9],
        ..DraftCommit::default()
    }];
    peer.send(DraftCommand {
        commits,
        ..DraftCommand::default()
    })
    .await;
    // What the one sequence holds.
    let held = served.engine.cache().blocks;
    assert!(held.used > 0);
    peer.close(1).await;
    settled(&served.engine, 0).await;
}

#[tokio::test]
async fn where_there_is_no_room_for_forks_sequences_draft_all_the_same() {
    // Two sequences of two blocks each fill it.
    let served = served(0, 4);
    let mut peer = Peer::start(&served);
    for sequence in 1..=2 {
        peer.open(sequence).await;
        peer.commit(sequence, PROMPT.len(), &[9]).await;
        let proposal = peer
            .until(sequence, |proposal| proposal.assumed.is_empty())
            .await;
        assert_eq!(proposal.draft_ids.len(), 4);
    }
    for sequence in 1..=2 {
        peer.commit(sequence, PROMPT.len() + 1, &[10]).await;
        let base = PROMPT.len() as u32 + 2;
        let is_line =
            |proposal: &Proposal| proposal.assumed.is_empty() && proposal.base_len == base;
        assert_eq!(peer.until(sequence, is_line).await.draft_ids.len(), 4);
    }
    assert_eq!(served.engine.cache().preemptions, 0, "forks make way");
}
