//! The driver between a client and a target, with nothing in between.

use super::*;
use crate::api::Caller;
use crate::api::admission::Gate;
use crate::request::{Defaults, ValidRequest};
use crate::scheduler::{DraftLimits, Processors, TargetLimits};
use crate::testing::{self, byte_token};
use proto::v1::{
    CloseReason, Closed, GenerateRequest, Prompt, TargetEvent, TargetOpened, TokenIds, Verdict,
    VerdictBatch, generate_response, prompt, target_command::Command, target_event,
};
use service::{CancellationToken, Class, Error};
use speculation::{LogprobsMode, Rule};
use std::collections::BTreeSet;
use std::time::Duration;

const N: u32 = 3;

/// The test's ends of a driver that has one request with [`N`] choices.
struct Ends {
    events: mpsc::Sender<LinkEvent>,
    /// Kept, so that the driver goes on.
    _admissions: mpsc::Sender<Admission>,
    commands: mpsc::Receiver<TargetCommand>,
    output: mpsc::Receiver<Result<generate_response::Event, Error>>,
    gate: Gate,
}

/// Runs `test` beside a driver.
async fn beside_a_driver(test: impl AsyncFnOnce(Ends)) {
    with_deadline(None, test).await;
}

/// The same, for a client that waits no longer than until `deadline`.
async fn with_deadline(deadline: Option<Instant>, test: impl AsyncFnOnce(Ends)) {
    let (events, from_links) = mpsc::channel(64);
    let (admissions, admitted) = mpsc::channel(64);
    let patience = Patience {
        draft: Duration::from_secs(60),
        target: Duration::from_secs(60),
    };
    let slow = Duration::from_secs(60);
    let options = SpecOptions::default();
    let driver = Driver::new(
        patience,
        options,
        slow,
        from_links,
        admitted,
        Observer::default(),
    );
    let (commands, received) = mpsc::channel(64);
    let up = LinkEvent::TargetUp {
        session: Session::new(commands, CancellationToken::new()),
        limits: TargetLimits {
            max_sequences: 8,
            max_draft_tokens: 8,
            processors: Processors::default(),
        },
        replaced: false,
    };
    events.send(up).await.unwrap();
    let gate = Gate::of(N);
    let (output, responses) = mpsc::channel(64);
    let admission = Admission {
        request: request(),
        caller: Caller {
            deadline,
            ..Caller::default()
        },
        output,
        pass: gate.pass(N),
    };
    admissions.send(admission).await.unwrap();
    let ends = Ends {
        events,
        _admissions: admissions,
        commands: received,
        output: responses,
        gate,
    };
    tokio::select! {
        () = driver.run() => panic!("the driver ends"),
        () = test(ends) => {}
    }
}

fn request() -> ValidRequest {
    let ids = TokenIds { ids: vec![1] };
    let request = GenerateRequest {
        prompt: Some(Prompt {
            prompt: Some(prompt::Prompt::TokenIds(ids)),
        }),
        n: Some(N),
        ..GenerateRequest::default()
    };
    let defaults = Defaults {
        max_draft_tokens: 3,
        min_draft_tokens: 0,
        min_confidence: None,
        rule: Rule::Coupled,
        logprobs: LogprobsMode::Raw,
        max_requests: N,
    };
    ValidRequest::new(request, &testing::shared_model(), &defaults).unwrap()
}

impl Ends {
    async fn say(&self, event: target_event::Event) {
        let event = TargetEvent { event: Some(event) };
        self.events.send(LinkEvent::Target(event)).await.unwrap();
    }

    /// Opens all choices; each has a first token.
    async fn open(&mut self) {
        let mut keys = BTreeSet::new();
        for sequence in 1..=u64::from(N) {
            let command = self.commands.recv().await.unwrap().command;
            let Some(Command::Open(open)) = command else {
                panic!("{command:?}");
            };
            assert_eq!(open.sequence, sequence);
            let key = open.decoding.unwrap().key.unwrap();
            assert!(keys.insert((key.high, key.low)), "each has its own noise");
        }
        for sequence in 1..=u64::from(N) {
            let opened = TargetOpened {
                sequence,
                epoch: 1,
                base_len: 1,
                next_token: byte_token(b'a'),
                logprobs: None,
                cached_tokens: 0,
            };
            self.say(target_event::Event::Opened(opened)).await;
            let event = self.output.recv().await.unwrap().unwrap();
            let generate_response::Event::Delta(delta) = event else {
                panic!("{event:?}");
            };
            assert_eq!((u64::from(delta.choice), &*delta.text), (sequence - 1, "a"));
        }
    }

    /// Answers batches by one token for each sequence, until each had one.
    async fn commit(&mut self) {
        let mut committed = BTreeSet::new();
        while committed.len() < N as usize {
            let Some(Command::Verify(batch)) = self.commands.recv().await.unwrap().command else {
                panic!("no batch");
            };
            let items = batch.items.iter().map(|item| Verdict {
                sequence: item.sequence,
                epoch: item.epoch,
                base_len: item.base_len,
                accepted: 0,
                next_token: byte_token(b'a'),
                logprobs: Vec::new(),
            });
            committed.extend(batch.items.iter().map(|item| item.sequence));
            let verdicts = VerdictBatch {
                step: batch.step,
                items: items.collect(),
                ..VerdictBatch::default()
            };
            self.say(target_event::Event::Verdicts(verdicts)).await;
        }
    }

    /// A draft worker joins. Returns what it is told.
    async fn draft_up(&self, worker: WorkerId) -> mpsc::Receiver<DraftCommand> {
        let (commands, told) = mpsc::channel(64);
        let session = Session::new(commands, CancellationToken::new());
        let limits = DraftLimits {
            max_sequences: 8,
            max_draft_tokens: 8,
            context_length: 100,
            processors: Processors::default(),
        };
        let up = LinkEvent::DraftUp(worker, session, limits);
        self.events.send(up).await.unwrap();
        told
    }

    /// Waits until no place is taken.
    async fn all_free(&self) {
        while self.gate.stats().running > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// The sequences that the target is told to free next, so many of them.
    async fn closes(&mut self, count: usize) -> BTreeSet<u64> {
        let mut closed = BTreeSet::new();
        while closed.len() < count {
            if let Some(Command::Close(close)) = self.commands.recv().await.unwrap().command {
                closed.insert(close.sequence);
            }
        }
        closed
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_all_its_choices() {
    beside_a_driver(async |mut ends: Ends| {
        ends.open().await;
        ends.output.close();
        assert_eq!(ends.closes(3).await, BTreeSet::from([1, 2, 3]));
        ends.all_free().await;
    })
    .await;
}

#[tokio::test]
async fn a_choice_that_fails_ends_the_stream_and_frees_the_others() {
    beside_a_driver(async |mut ends: Ends| {
        ends.open().await;
        let closed = Closed {
            sequence: 2,
            epoch: 1,
            reason: CloseReason::Error.into(),
            ..Closed::default()
        };
        ends.say(target_event::Event::Closed(closed)).await;
        let error = ends.output.recv().await.unwrap().unwrap_err();
        assert_eq!(error.class, Class::Internal);
        assert!(ends.output.recv().await.is_none());
        assert_eq!(ends.closes(2).await, BTreeSet::from([1, 3]));
        ends.all_free().await;
    })
    .await;
}

#[tokio::test]
async fn a_deadline_that_passes_ends_the_stream_and_frees_its_choices() {
    let deadline = Instant::now() + Duration::from_millis(500);
    with_deadline(Some(deadline), async |mut ends: Ends| {
        ends.open().await;
        let error = ends.output.recv().await.unwrap().unwrap_err();
        assert_eq!(error.class, Class::Deadline);
        assert!(Instant::now() >= deadline);
        assert!(ends.output.recv().await.is_none());
        assert_eq!(ends.closes(3).await, BTreeSet::from([1, 2, 3]));
        ends.all_free().await;
    })
    .await;
}

/// The sequences that a draft worker is told to open next, so many of them.
async fn opened(told: &mut mpsc::Receiver<DraftCommand>, count: usize) -> BTreeSet<u64> {
    let mut opened = BTreeSet::new();
    while opened.len() < count {
        let command = told.recv().await.expect("a command");
        opened.extend(command.opens.iter().map(|open| open.sequence));
    }
    opened
}

#[tokio::test]
async fn sequences_move_from_a_worker_that_leaves_to_one_that_joined() {
    beside_a_driver(async |mut ends: Ends| {
        ends.open().await;
        let mut first = ends.draft_up(0).await;
        let all = BTreeSet::from([1, 2, 3]);
        ends.commit().await;
        assert_eq!(opened(&mut first, 3).await, all);
        // Numbers may come in any order.
        let mut second = ends.draft_up(7).await;
        ends.events.send(LinkEvent::DraftRetired(0)).await.unwrap();
        assert_eq!(opened(&mut second, 3).await, all);
        assert!(first.recv().await.is_none(), "its connection is given up");
        // Its number may be another's now.
        let mut third = ends.draft_up(0).await;
        ends.events.send(LinkEvent::DraftDown(7)).await.unwrap();
        assert_eq!(opened(&mut third, 3).await, all);
    })
    .await;
}
