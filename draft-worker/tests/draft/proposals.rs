//! Proposals follow what is committed, and nothing that was drafted and rejected.

use crate::support::{Stream, Worker, commit, greedy, open, warm};
use proto::v1::Decoding;

const PROMPT: &[u32] = &[11, 42, 7, 300, 5];
const VOCAB: u32 = 512;

/// What the model writes by itself after `PROMPT`: `count` tokens, one per call.
async fn plain(worker: &Worker, decoding: &Decoding, count: usize) -> Vec<u32> {
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, &PROMPT[..4], decoding)).await;
    let mut committed = PROMPT.to_vec();
    while committed.len() < PROMPT.len() + count {
        let base = committed.len() - 1;
        let proposal = stream
            .propose(commit(1, 1, base, &committed[base..], 1))
            .await;
        assert_eq!(proposal.draft_ids.len(), 1);
        committed.extend(proposal.draft_ids);
    }
    committed.split_off(PROMPT.len())
}

#[tokio::test]
async fn a_draft_that_is_the_target_is_accepted_whole_for_hundreds_of_tokens() {
    let worker = Worker::start("synthetic", &[]).await;
    for decoding in &[greedy(), warm()] {
        let truth = plain(&worker, decoding, 400).await;
        let mut stream = worker.stream().await;
        for k in [1, 2, 3, 5, 8, 16] {
            stream.open(open(k as u64, 1, PROMPT, decoding)).await;
            // The target writes the first token after the prompt.
            let (mut from, mut to) = (0, 1);
            while to + k < truth.len() {
                let new = commit(k as u64, 1, PROMPT.len() + from, &truth[from..to], k as u32);
                let proposal = stream.propose(new).await;
                assert_eq!(proposal.draft_ids, truth[to..to + k], "k {k} at {to}");
                // All are accepted, and the bonus token follows.
                (from, to) = (to, to + k + 1);
            }
        }
    }
}

#[tokio::test]
async fn after_any_rejection_proposals_are_those_of_a_fresh_cache() {
    let worker = Worker::start("synthetic", &[]).await;
    for decoding in &[greedy(), warm()] {
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, PROMPT, decoding)).await;
        let mut committed = PROMPT.to_vec();
        let mut proposal: Vec<u32> = Vec::new();
        for round in 0..60 {
            // Accept some, then correct; the correction is sometimes the drafted token itself.
            let accepted = round % (proposal.len() + 1);
            let drafted = proposal.get(accepted).copied().unwrap_or(9);
            let correction = (drafted + u32::from(round % 3 > 0)) % VOCAB;
            let new = [&proposal[..accepted], &[correction]].concat();
            let base = committed.len();
            committed.extend(&new);
            let want = 1 + round as u32 % 6;
            proposal = stream
                .propose(commit(1, 1, base, &new, want))
                .await
                .draft_ids;
            assert_eq!(
                proposal,
                worker.fresh(&committed, decoding, want).await,
                "round {round}"
            );
        }
    }
}

#[tokio::test]
async fn commits_that_want_nothing_are_recorded() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &greedy())).await;
    stream.propose(commit(1, 1, 5, &[8], 4)).await;
    stream.send_commit(commit(1, 1, 6, &[9, 10], 0)).await;
    stream.send_commit(commit(1, 1, 8, &[11], 0)).await;
    let proposal = stream.propose(commit(1, 1, 9, &[12], 4)).await;
    let committed = [PROMPT, &[8, 9, 10, 11, 12]].concat();
    assert_eq!(
        proposal.draft_ids,
        worker.fresh(&committed, &greedy(), 4).await
    );
}

#[tokio::test]
async fn the_newest_commit_wins() {
    let worker = Worker::start("synthetic:base_ms=40", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &warm())).await;
    // Sixteen steps of 40 ms, given up for what comes after them.
    stream.send_commit(commit(1, 1, 5, &[8], 16)).await;
    stream.send_commit(commit(1, 1, 6, &[9], 2)).await;
    let proposal = stream.proposal().await;
    assert_eq!(proposal.base_len, 7);
    let committed = [PROMPT, &[8, 9]].concat();
    assert_eq!(
        proposal.draft_ids,
        worker.fresh(&committed, &warm(), 2).await
    );
    // The abandoned draft left nothing behind.
    let next = stream.propose(commit(1, 1, 7, &[3], 2)).await;
    let committed = [&committed[..], &[3]].concat();
    assert_eq!(next.draft_ids, worker.fresh(&committed, &warm(), 2).await);
}

#[tokio::test]
async fn a_commit_in_the_middle_of_the_prefill_waits_for_it() {
    let worker = Worker::start("synthetic:base_ms=20", &["--max-step-tokens", "64"]).await;
    let mut stream = worker.stream().await;
    let prompt = [PROMPT; 100].concat();
    stream.send_open(open(1, 1, &prompt, &greedy())).await;
    let length = prompt.len();
    stream.send_commit(commit(1, 1, length, &[8], 5)).await;
    stream.send_commit(commit(1, 1, length + 1, &[9], 3)).await;
    assert_eq!(stream.opened().await.base_len as usize, length);
    let proposal = stream.proposal().await;
    assert_eq!(proposal.base_len as usize, length + 2);
    let committed = [&prompt[..], &[8, 9]].concat();
    assert_eq!(
        proposal.draft_ids,
        worker.fresh(&committed, &greedy(), 3).await
    );
}

#[tokio::test]
async fn a_proposal_ends_where_the_context_does() {
    let worker = Worker::start("synthetic:context=16", &["--max-draft-tokens", "8"]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &greedy())).await;
    for (base, new, length) in [(5, 1, 8), (6, 5, 5), (11, 4, 1), (15, 1, 0)] {
        let new = vec![1; new];
        let proposal = stream.propose(commit(1, 1, base, &new, 12)).await;
        assert_eq!(proposal.draft_ids.len(), length, "after {base}");
    }
}

#[tokio::test]
async fn sequences_draft_side_by_side() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    for sequence in 0..6 {
        let prompt = [20 + sequence as u32, 9];
        stream.open(open(sequence, 1, &prompt, &warm())).await;
    }
    let commits = (0..6)
        .map(|sequence| commit(sequence, 1, 2, &[5], 4))
        .collect();
    let command = proto::v1::DraftCommand {
        commits,
        ..Default::default()
    };
    stream.send(command).await;
    for _ in 0..6 {
        let proposal = stream.proposal().await;
        let committed = [20 + proposal.sequence as u32, 9, 5];
        assert_eq!(proposal.draft_ids, fresh_of(&worker, &committed).await);
    }
}

async fn fresh_of(worker: &Worker, committed: &[u32]) -> Vec<u32> {
    worker.fresh(committed, &warm(), 4).await
}

#[tokio::test]
async fn a_prompt_of_one_token_is_opened() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream: Stream = worker.stream().await;
    assert_eq!(stream.open(open(1, 1, &[7], &greedy())).await.base_len, 1);
    let proposal = stream.propose(commit(1, 1, 1, &[8], 3)).await;
    assert_eq!(
        proposal.draft_ids,
        worker.fresh(&[7, 8], &greedy(), 3).await
    );
}
