//! Sequences come and go, and one that fails takes no other with it.

use crate::support::{PATIENCE, Stream, Worker, greedy, item, open};
use proto::v1::target_command::Command;
use proto::v1::target_event::Event;
use proto::v1::{CloseReason, DescribeRequest, GetTokenizerRequest};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const PROMPT: &[u32] = &[11, 42, 7];
const BASE: usize = PROMPT.len() + 1;

#[tokio::test]
async fn a_worker_says_what_it_serves() {
    let worker = Worker::start("synthetic", &["--max-sequences", "3"]).await;
    let mut client = worker.client();
    let description = client
        .describe(DescribeRequest {})
        .await
        .expect("answers")
        .into_inner();
    assert_eq!(description.max_sequences, 3);
    assert_eq!(description.max_draft_tokens, 16);
    assert_eq!(description.tokenizer_size, 512);
    assert!(description.batch_invariant);
    let mut chunks = client
        .get_tokenizer(GetTokenizerRequest {})
        .await
        .expect("answers")
        .into_inner();
    let mut document = Vec::new();
    while let Some(chunk) = chunks.message().await.expect("no failure") {
        document.extend(chunk.data);
    }
    assert!(document.starts_with(b"{"), "a JSON document");
}

#[tokio::test]
async fn health_says_serving_for_the_service_and_the_whole() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut health = HealthClient::new(worker.channel());
    for service in ["", "specdec.v1.Target"] {
        let service = service.to_owned();
        let answer = health.check(HealthCheckRequest { service }).await;
        let status = answer.expect("known").into_inner().status();
        assert_eq!(status, ServingStatus::Serving);
    }
}

#[tokio::test]
async fn a_desync_closes_that_sequence_alone() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    for sequence in [1, 2] {
        stream.open(open(sequence, 1, PROMPT, &greedy())).await;
    }
    stream
        .send_verify(vec![item(1, 1, BASE + 1, &[]), item(2, 1, BASE, &[])])
        .await;
    let closed = stream.closed().await;
    assert_eq!((closed.sequence, closed.reason()), (1, CloseReason::Desync));
    let verdicts = stream.verdicts().await.items;
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0].sequence, 2);
    let next = BASE + 1 + verdicts[0].accepted as usize;
    assert_eq!(
        stream.verify(vec![item(2, 1, next, &[])]).await.items.len(),
        1
    );
}

#[tokio::test]
async fn what_belongs_to_an_older_epoch_is_dropped() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 2, PROMPT, &greedy())).await;
    for epoch in [1, 2] {
        stream
            .send(Command::Open(open(1, epoch, &[5], &greedy())))
            .await;
    }
    let stale = vec![item(1, 1, BASE, &[]), item(8, 1, BASE, &[])];
    assert!(stream.verify(stale).await.items.is_empty());
    assert_eq!(
        stream.verify(vec![item(1, 2, BASE, &[])]).await.items.len(),
        1
    );
    stream.send_verify(vec![item(1, 3, BASE + 1, &[])]).await;
    let closed = stream.closed().await;
    assert_eq!((closed.epoch, closed.reason()), (3, CloseReason::Desync));
}

#[tokio::test]
async fn wrong_fields_close_with_the_field_named() {
    let worker = Worker::start("synthetic", &["--max-draft-tokens", "4"]).await;
    let mut stream = worker.stream().await;
    let empty = open(1, 1, &[], &greedy());
    let foreign = open(2, 1, &[1, 512], &greedy());
    let mut keyless = greedy();
    keyless.key = None;
    let keyless = open(3, 1, PROMPT, &keyless);
    let mut cold = greedy();
    cold.sampling.get_or_insert_default().temperature = Some(-1.0);
    let cold = open(4, 1, PROMPT, &cold);
    for (open, field) in [
        (empty, "token_ids"),
        (foreign, "token_ids[1]"),
        (keyless, "decoding.key"),
        (cold, "decoding.sampling.temperature"),
    ] {
        stream.send(Command::Open(open)).await;
        let closed = stream.closed().await;
        assert_eq!(closed.reason(), CloseReason::Invalid);
        assert!(closed.detail.starts_with(field), "{closed:?}");
    }
    stream.open(open(5, 1, PROMPT, &greedy())).await;
    stream.send_verify(vec![item(5, 1, BASE, &[1; 5])]).await;
    assert!(stream.closed().await.detail.starts_with("draft_ids"));
    assert!(stream.verdicts().await.items.is_empty());
    stream.open(open(6, 1, PROMPT, &greedy())).await;
    stream
        .send_verify(vec![item(6, 1, BASE, &[]), item(6, 1, BASE, &[])])
        .await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Invalid);
    assert!(stream.verdicts().await.items.is_empty());
}

#[tokio::test]
async fn a_full_worker_refuses_and_a_freed_place_is_taken() {
    let worker = Worker::start("synthetic", &["--max-sequences", "2"]).await;
    let mut stream = worker.stream().await;
    for sequence in [1, 2] {
        stream.open(open(sequence, 1, PROMPT, &greedy())).await;
    }
    stream
        .send(Command::Open(open(3, 1, PROMPT, &greedy())))
        .await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Overloaded);
    stream.close(1).await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Requested);
    stream.open(open(3, 2, PROMPT, &greedy())).await;
    assert_eq!(
        stream.verify(vec![item(2, 1, BASE, &[])]).await.items.len(),
        1
    );
}

#[tokio::test]
async fn a_busy_sequence_makes_room_for_its_own_next_epoch() {
    let worker = Worker::start("synthetic:base_ms=30", &["--max-sequences", "1"]).await;
    let mut stream = worker.stream().await;
    stream
        .send(Command::Open(open(1, 1, &[1; 4000], &greedy())))
        .await;
    let opened = stream.open(open(1, 2, PROMPT, &greedy())).await;
    assert_eq!(opened.epoch, 2);
}

#[tokio::test]
async fn a_close_ends_the_work_that_runs() {
    let worker = Worker::start("synthetic:base_ms=30", &["--max-step-tokens", "16"]).await;
    let mut stream = worker.stream().await;
    // 250 steps of 30 ms: longer than this test's patience for anything else would allow.
    stream
        .send(Command::Open(open(1, 1, &[1; 4000], &greedy())))
        .await;
    stream.close(1).await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Requested);
    until_active(&mut stream, 0).await;
    stream.open(open(2, 1, PROMPT, &greedy())).await;
    until_active(&mut stream, 1).await;
}

#[tokio::test]
async fn the_end_of_a_stream_frees_all_of_its_sequences() {
    let worker = Worker::start("synthetic:base_ms=5", &[]).await;
    let mut stays = worker.stream().await;
    stays.open(open(1, 1, PROMPT, &greedy())).await;
    let mut goes = worker.stream().await;
    for sequence in 1..=5 {
        goes.open(open(sequence, 1, PROMPT, &greedy())).await;
    }
    until_active(&mut stays, 6).await;
    // In the middle of work.
    goes.send_verify(
        (1..=5)
            .map(|sequence| item(sequence, 1, BASE, &[1; 8]))
            .collect(),
    )
    .await;
    drop(goes);
    until_active(&mut stays, 1).await;
}

#[tokio::test]
async fn a_coordinator_that_stops_sending_gets_what_it_asked_for() {
    let worker = Worker::start("synthetic:base_ms=5", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &greedy())).await;
    stream.send_verify(vec![item(1, 1, BASE, &[1, 2])]).await;
    let (unused, _) = tokio::sync::mpsc::channel(1);
    drop(std::mem::replace(&mut stream.commands, unused));
    assert_eq!(stream.verdicts().await.items.len(), 1);
    assert!(stream.try_next().await.is_none());
}

#[tokio::test]
async fn shutdown_lets_open_sequences_end_and_takes_no_new_ones() {
    let mut worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &greedy())).await;
    worker.shutdown.cancel();
    assert_eq!(
        stream.verify(vec![item(1, 1, BASE, &[])]).await.items.len(),
        1
    );
    loop {
        // Whether the shutdown or this command is seen first is open.
        stream
            .send(Command::Open(open(2, 1, PROMPT, &greedy())))
            .await;
        match stream.next().await {
            Event::Closed(closed) => {
                assert_eq!(closed.reason(), CloseReason::Overloaded);
                break;
            }
            _ => {
                stream.close(2).await;
                stream.closed().await;
            }
        }
    }
    stream.close(1).await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Requested);
    assert!(stream.try_next().await.is_none(), "the stream ends");
    drop(stream);
    let ended = tokio::time::timeout(PATIENCE, &mut worker.ended).await;
    ended
        .expect("in time")
        .expect("reported")
        .expect("a clean end");
}

/// Asks until the worker says that `active` sequences are open.
async fn until_active(stream: &mut Stream, active: u32) {
    let asked = std::time::Instant::now();
    while stream.active != active {
        assert!(
            asked.elapsed() < PATIENCE,
            "{} are active, not {active}",
            stream.active
        );
        assert!(stream.verify(Vec::new()).await.items.is_empty());
    }
}
