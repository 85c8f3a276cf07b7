//! Sequences come and go, and one that fails takes no other with it.

use crate::support::{Answer, PATIENCE, Stream, Worker, commit, greedy, open};
use engine::tiny::TinyModel;
use proto::v1::{CloseReason, DescribeRequest, DraftCommand, DraftCommit, DraftOpen};

const PROMPT: &[u32] = &[11, 42, 7];
const BASE: usize = PROMPT.len();

#[tokio::test]
async fn a_worker_says_what_it_serves() {
    let worker = Worker::start(
        "synthetic",
        &["--max-sequences", "3", "--batch-invariant=false"],
    )
    .await;
    let answer = worker.client().describe(DescribeRequest {}).await;
    let description = answer.expect("answers").into_inner();
    assert_eq!(description.max_sequences, 3);
    assert_eq!(description.tokenizer_size, 512);
    assert!(!description.batch_invariant);
}

#[tokio::test]
async fn a_desync_closes_that_sequence_alone() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    for sequence in [1, 2] {
        stream.open(open(sequence, 1, PROMPT, &greedy())).await;
    }
    stream.send_commit(commit(1, 1, BASE + 1, &[5], 2)).await;
    let closed = stream.closed().await;
    assert_eq!((closed.sequence, closed.reason()), (1, CloseReason::Desync));
    assert_eq!(
        stream
            .propose(commit(2, 1, BASE, &[5], 2))
            .await
            .draft_ids
            .len(),
        2
    );
}

#[tokio::test]
async fn what_belongs_to_an_older_epoch_is_dropped() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 2, PROMPT, &greedy())).await;
    stream.send_open(open(1, 1, &[5], &greedy())).await;
    stream.send_commit(commit(1, 1, BASE, &[5], 2)).await;
    stream.send_commit(commit(8, 1, BASE, &[5], 2)).await;
    assert_eq!(stream.propose(commit(1, 2, BASE, &[5], 2)).await.epoch, 2);
    stream.send_commit(commit(1, 3, BASE + 1, &[5], 2)).await;
    let closed = stream.closed().await;
    assert_eq!((closed.epoch, closed.reason()), (3, CloseReason::Desync));
}

#[tokio::test]
async fn wrong_fields_close_with_the_field_named() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    let keyless = DraftOpen {
        decoding: None,
        ..open(2, 1, PROMPT, &greedy())
    };
    for (open, field) in [
        (open(1, 1, &[], &greedy()), "token_ids"),
        (keyless, "decoding"),
    ] {
        stream.send_open(open).await;
        let closed = stream.closed().await;
        assert_eq!(closed.reason(), CloseReason::Invalid);
        assert!(closed.detail.starts_with(field), "{closed:?}");
    }
    for (sequence, tokens, field) in [(3, &[][..], "token_ids"), (4, &[5, 512], "token_ids[1]")] {
        stream.open(open(sequence, 1, PROMPT, &greedy())).await;
        stream
            .send_commit(commit(sequence, 1, BASE, tokens, 2))
            .await;
        let closed = stream.closed().await;
        assert_eq!(closed.reason(), CloseReason::Invalid);
        assert!(closed.detail.starts_with(field), "{closed:?}");
    }
    stream.open(open(5, 1, PROMPT, &greedy())).await;
    let impossible = DraftCommit {
        min_confidence: 1.0,
        ..commit(5, 1, BASE, &[5], 2)
    };
    stream.send_commit(impossible).await;
    let closed = stream.closed().await;
    assert_eq!(closed.reason(), CloseReason::Invalid);
    assert!(closed.detail.starts_with("min_confidence"), "{closed:?}");
}

#[tokio::test]
async fn a_full_worker_refuses_and_a_freed_place_is_taken() {
    let worker = Worker::start("synthetic", &["--max-sequences", "2"]).await;
    let mut stream = worker.stream().await;
    for sequence in [1, 2] {
        stream.open(open(sequence, 1, PROMPT, &greedy())).await;
    }
    stream.send_open(open(3, 1, PROMPT, &greedy())).await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Overloaded);
    stream.send_close(1).await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Requested);
    stream.open(open(3, 2, PROMPT, &greedy())).await;
    assert_eq!(
        stream
            .propose(commit(2, 1, BASE, &[5], 2))
            .await
            .draft_ids
            .len(),
        2
    );
}

#[tokio::test]
async fn a_sequence_that_is_opened_and_closed_in_one_frame_is_closed() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    let command = DraftCommand {
        opens: vec![open(1, 1, PROMPT, &greedy())],
        commits: vec![commit(1, 1, BASE, &[5], 8)],
        closes: vec![1],
    };
    stream.send(command).await;
    assert_eq!(stream.closed().await.reason(), CloseReason::Requested);
    until_active(&mut stream, 0).await;
}

#[tokio::test]
async fn a_busy_sequence_makes_room_for_its_own_next_epoch() {
    let worker = Worker::start("synthetic:base_ms=30", &["--max-sequences", "1"]).await;
    let mut stream = worker.stream().await;
    stream.send_open(open(1, 1, &[1; 4000], &greedy())).await;
    stream.send_open(open(1, 2, PROMPT, &greedy())).await;
    assert_eq!(stream.opened().await.epoch, 2);
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
    // In the middle of work.
    goes.send_commit(commit(1, 1, BASE, &[5], 16)).await;
    drop(goes);
    until_active(&mut stays, 1).await;
}

#[tokio::test]
async fn a_sequence_that_gave_its_cache_up_goes_on_with_the_same_proposals() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    TinyModel::default().write(&path).expect("written");
    let path = path.to_str().expect("text");
    let prompts = [[1; 700], [2; 700]];
    let mut proposals = Vec::new();
    // A cache of 1 MiB holds one of these, not both.
    for mib in ["1024", "1"] {
        let worker = Worker::start(path, &["--cache-mib", mib]).await;
        let mut stream = worker.stream().await;
        for (sequence, prompt) in (1..).zip(&prompts) {
            stream.open(open(sequence, 1, prompt, &greedy())).await;
        }
        let proposal = stream.propose(commit(1, 1, 700, &[5], 2)).await;
        proposals.push(proposal.draft_ids);
    }
    assert_eq!(proposals[0].len(), 2);
    assert_eq!(proposals[0], proposals[1]);
}

#[tokio::test]
async fn shutdown_ends_a_stream_with_its_last_sequence() {
    let mut worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &greedy())).await;
    worker.shutdown.cancel();
    stream.propose(commit(1, 1, BASE, &[5], 2)).await;
    stream.send_close(1).await;
    assert!(matches!(stream.next().await, Answer::Closed(_)));
    assert!(stream.try_next().await.is_none(), "the stream ends");
    drop(stream);
    let ended = tokio::time::timeout(PATIENCE, &mut worker.ended).await;
    ended
        .expect("in time")
        .expect("reported")
        .expect("a clean end");
}

/// Asks until the worker says that `active` sequences are open. What it asks for is refused, and
/// opens nothing.
async fn until_active(stream: &mut Stream, active: u32) {
    let asked = std::time::Instant::now();
    while stream.active != active {
        assert!(
            asked.elapsed() < PATIENCE,
            "{} are active, not {active}",
            stream.active
        );
        stream.send_open(open(99, 1, &[], &greedy())).await;
        assert_eq!(stream.closed().await.sequence, 99);
    }
}
