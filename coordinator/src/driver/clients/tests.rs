use super::*;
use crate::api::Caller;
use crate::api::admission::Gate;
use crate::commit::{FinishReason, Matched, Origin};
use crate::request::{Defaults, ValidRequest};
use crate::scheduler::Stats;
use crate::testing::{self, byte_token};
use proto::v1::{self, GenerateRequest, generate_response::Event};
use service::Class;
use speculation::{LogprobsMode, Rule};
use tokio::sync::mpsc;

type Input = mpsc::Receiver<Result<Event, Error>>;

/// As many as a test's requests have choices at most.
const PLACES: u32 = 3;

const SLOW: Duration = Duration::from_millis(40);

const NONE: [SequenceId; 0] = [];

fn request(n: u32) -> ValidRequest {
    let ids = v1::TokenIds { ids: vec![1] };
    let prompt = v1::prompt::Prompt::TokenIds(ids);
    let request = GenerateRequest {
        prompt: Some(v1::Prompt {
            prompt: Some(prompt),
        }),
        n: Some(n),
        ..GenerateRequest::default()
    };
    let defaults = Defaults {
        max_draft_tokens: 3,
        min_draft_tokens: 0,
        min_confidence: None,
        rule: Rule::Coupled,
        logprobs: LogprobsMode::Raw,
        max_requests: 64,
    };
    ValidRequest::new(request, &testing::shared_model(), &defaults).unwrap()
}

/// A client with `n` choices and a queue of `places`.
fn admitted(clients: &mut Clients, id: SequenceId, n: u32, places: usize) -> (Input, Gate) {
    let gate = Gate::of(PLACES);
    // One is kept.
    let (output, input) = mpsc::channel(places + 1);
    let admission = Admission {
        request: request(n),
        caller: Caller::default(),
        output,
        pass: gate.pass(n),
    };
    let choices = clients.add(id, admission);
    let ids: Vec<_> = choices.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, Vec::from_iter(id..id + u64::from(n)));
    (input, gate)
}

impl Gate {
    /// How many places are free.
    fn free(&self) -> u32 {
        PLACES - self.stats().running
    }
}

fn delta(text: &str) -> Delta {
    Delta {
        text: text.to_owned(),
        tokens: text.bytes().map(byte_token).collect(),
        origins: vec![Origin::Target; text.len()],
        logprobs: vec![v1::TokenLogprobs::default(); text.len()],
        finish: None,
    }
}

fn summary(reason: FinishReason) -> Summary {
    Summary {
        reason,
        prompt_tokens: 1,
        completion_tokens: 2,
        stats: Stats::default(),
    }
}

async fn next(input: &mut Input) -> Event {
    input.recv().await.unwrap().unwrap()
}

/// The choice and the text of the delta that is next.
async fn text(input: &mut Input) -> (u32, String) {
    match next(input).await {
        Event::Delta(delta) => {
            assert_eq!(delta.token_ids.len(), delta.text.len());
            assert_eq!(delta.origins.len(), delta.text.len());
            assert_eq!(delta.logprobs.len(), delta.text.len());
            (delta.choice, delta.text)
        }
        other => panic!("{other:?}"),
    }
}

async fn end(input: &mut Input) -> v1::Finished {
    match next(input).await {
        Event::Finished(finished) => finished,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_slow_client_gets_everything_merged_and_in_order() {
    let mut clients = Clients::new(SLOW);
    let (mut input, running) = admitted(&mut clients, 1, 1, 1);
    assert_eq!(clients.deliver(1, delta("a")), NONE);
    assert_eq!(clients.deliver(1, delta("b")), [1], "no place is left");
    assert_eq!(clients.deliver(1, delta("c")), [1]);
    assert_eq!(
        clients.finish(1, summary(FinishReason::Length), Told::default()),
        NONE
    );

    assert_eq!(text(&mut input).await, (0, "a".to_owned()));
    assert_eq!(clients.next().await, Some(ClientEvent::Room(1)));
    assert_eq!(clients.room(1), NONE, "the end still waits");
    assert_eq!(text(&mut input).await, (0, "bc".to_owned()));
    assert_eq!(clients.next().await, Some(ClientEvent::Room(1)));
    assert_eq!(clients.room(1), NONE);
    assert_eq!(end(&mut input).await.reason(), v1::FinishReason::Length);

    assert_eq!(clients.next().await, Some(ClientEvent::Served));
    assert!(input.recv().await.is_none(), "the stream ends");
    assert_eq!(running.free(), PLACES, "its place is free");
    assert!(clients.next().await.is_none(), "nothing is left of it");
    assert!(clients.owners.is_empty());
}

#[tokio::test]
async fn choices_share_a_stream_that_ends_with_the_last() {
    let mut clients = Clients::new(SLOW);
    let (mut input, running) = admitted(&mut clients, 5, 3, 16);
    for (id, word) in [(6, "b"), (5, "a"), (7, "c")] {
        clients.deliver(id, delta(word));
        let choice = (id - 5) as u32;
        assert_eq!(text(&mut input).await, (choice, word.to_owned()));
    }
    let stop = FinishReason::Stop(Matched::String("\n".to_owned()));
    for (ended, (id, reason)) in [
        (7, stop),
        (5, FinishReason::Length),
        (6, FinishReason::Length),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(running.free() as usize, ended, "each has its place");
        clients.finish(id, summary(reason), Told::default());
        let finished = end(&mut input).await;
        assert_eq!(u64::from(finished.choice), id - 5);
        let matched = v1::finished::Matched::StopString("\n".to_owned());
        assert_eq!(finished.matched, (id == 7).then_some(matched));
    }
    assert_eq!(clients.next().await, Some(ClientEvent::Served));
    assert!(input.recv().await.is_none());
    assert_eq!(running.free(), PLACES);
}

#[tokio::test]
async fn a_slow_client_holds_all_its_choices_up_and_no_others() {
    let mut clients = Clients::new(SLOW);
    let (mut input, _running) = admitted(&mut clients, 1, 3, 1);
    let (_other, _) = admitted(&mut clients, 4, 1, 1);
    clients.deliver(2, delta("a"));
    assert_eq!(clients.deliver(3, delta("b")), [1, 2, 3]);
    assert_eq!(clients.deliver(4, delta("x")), NONE);
    assert_eq!(clients.deliver(2, delta("c")), [1, 2, 3]);
    assert_eq!(
        clients.finish(2, summary(FinishReason::Length), Told::default()),
        [1, 3]
    );
    let mut texts = vec![text(&mut input).await];
    let mut ready = Vec::new();
    while ready.is_empty() {
        assert_eq!(clients.next().await, Some(ClientEvent::Room(1)));
        ready = clients.room(1);
        match next(&mut input).await {
            Event::Delta(delta) => texts.push((delta.choice, delta.text)),
            Event::Finished(finished) => assert_eq!(finished.choice, 1),
        }
    }
    assert_eq!(ready, [1, 3], "what has ended does not go on");
    let expected = [(1, "a"), (1, "c"), (2, "b")];
    assert_eq!(
        texts,
        expected.map(|(choice, text)| (choice, text.to_owned()))
    );
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_and_forgotten() {
    let mut clients = Clients::new(SLOW);
    let (input, running) = admitted(&mut clients, 7, 2, 1);
    clients.deliver(7, delta("a"));
    assert_eq!(clients.deliver(8, delta("b")), [7, 8]);
    drop(input);
    let mut events = vec![clients.next().await.unwrap(), clients.next().await.unwrap()];
    events.retain(|event| *event == ClientEvent::Gone(7));
    assert_eq!(events.len(), 1);
    assert_eq!(clients.remove(7), [7, 8], "all its sequences are freed");
    assert_eq!(running.free(), PLACES);
    assert_eq!(clients.room(7), NONE, "a late event about it does no harm");
    assert_eq!(clients.deliver(8, delta("c")), NONE);
    assert!(clients.owners.is_empty());
}

#[tokio::test]
async fn an_error_follows_what_was_committed_and_ends_the_stream() {
    let mut clients = Clients::new(SLOW);
    let (mut input, _running) = admitted(&mut clients, 1, 1, 1);
    clients.deliver(1, delta("a"));
    clients.fail(1, Error::new(Class::Unavailable, "the target is lost"));
    assert_eq!(text(&mut input).await, (0, "a".to_owned()));
    clients.next().await;
    clients.room(1);
    let status = input.recv().await.unwrap().unwrap_err();
    assert_eq!(status.class, Class::Unavailable);
    assert_eq!(clients.next().await, Some(ClientEvent::Served));
    assert!(input.recv().await.is_none());
}

#[tokio::test]
async fn a_choice_that_fails_fails_the_request_and_frees_the_others() {
    for places in [1, 16] {
        let mut clients = Clients::new(SLOW);
        let (mut input, running) = admitted(&mut clients, 1, 3, places);
        clients.finish(1, summary(FinishReason::Length), Told::default());
        let error = Error::new(Class::Internal, "the target failed");
        assert_eq!(clients.fail(2, error), [3]);
        // What the others said before they heard of it.
        assert_eq!(clients.deliver(3, delta("c")), NONE);
        assert_eq!(
            clients.finish(3, summary(FinishReason::Length), Told::default()),
            NONE
        );
        assert_eq!(end(&mut input).await.choice, 0);
        if places == 1 {
            assert_eq!(clients.next().await, Some(ClientEvent::Room(1)));
            assert_eq!(clients.room(1), NONE);
        }
        assert_eq!(clients.next().await, Some(ClientEvent::Served));
        let status = input.recv().await.unwrap().unwrap_err();
        assert_eq!(status.class, Class::Internal);
        assert!(input.recv().await.is_none(), "it ends the stream");
        assert_eq!(running.free(), PLACES);
        assert!(clients.owners.is_empty());
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off_with_a_reason_and_forgotten() {
    let mut clients = Clients::new(SLOW);
    let (mut input, gate) = admitted(&mut clients, 1, 2, 1);
    let start = Instant::now();
    clients.deliver(1, delta("a"));
    assert_eq!(clients.deliver(2, delta("b")), [1, 2]);
    let event = clients.next().await;
    assert_eq!(event, Some(ClientEvent::Cut(1, Cut::Slow)));
    assert!(start.elapsed() >= SLOW);
    assert_eq!(clients.cut(1, Cut::Slow), [1, 2], "both are freed");
    assert_eq!(gate.free(), PLACES);
    assert_eq!(text(&mut input).await, (0, "a".to_owned()));
    let error = input.recv().await.unwrap().unwrap_err();
    assert_eq!(error.class, Class::Aborted);
    assert_eq!(clients.next().await, Some(ClientEvent::Served));
    assert!(input.recv().await.is_none(), "what waited is gone");
    assert!(clients.owners.is_empty() && clients.clients.is_empty());
}
