//! The text is the target's own, whatever is drafted.

use crate::support::{Stream, Worker, greedy, item, open, warm};
use proto::v1::Decoding;

const PROMPT: &[u32] = &[11, 42, 7, 300, 5];
const VOCAB: u32 = 512;

/// A proposal of `k` tokens of which the first `right` are what the target chooses.
fn draft(truth: &[u32], k: usize, right: usize) -> Vec<u32> {
    let tokens = truth.iter().take(k).enumerate();
    tokens
        .map(|(i, &id)| if i < right { id } else { (id + 1) % VOCAB })
        .collect()
}

/// Decodes 40 tokens or more with proposals of `k` of which `right(round)` are right.
async fn decode(
    stream: &mut Stream,
    sequence: u64,
    decoding: &Decoding,
    truth: &[u32],
    k: usize,
    right: impl Fn(usize) -> usize,
) -> Vec<u32> {
    let opened = stream.open(open(sequence, 1, PROMPT, decoding)).await;
    assert_eq!(opened.base_len as usize, PROMPT.len());
    let mut text = vec![opened.next_token];
    for round in 0.. {
        if text.len() >= 40 {
            break;
        }
        let right = right(round);
        let base = PROMPT.len() + text.len();
        let draft = draft(&truth[text.len()..], k, right);
        let batch = stream.verify(vec![item(sequence, 1, base, &draft)]).await;
        let verdict = &batch.items[0];
        assert_eq!(verdict.accepted as usize, right, "k {k}, round {round}");
        assert_eq!(verdict.base_len as usize, base);
        text.extend(&draft[..right]);
        text.push(verdict.next_token);
    }
    text
}

#[tokio::test]
async fn right_wrong_and_partly_right_proposals_give_the_plain_text() {
    let worker = Worker::start("synthetic", &[]).await;
    for decoding in &[greedy(), warm()] {
        let truth = worker.plain(PROMPT, decoding, 60).await;
        let mut stream = worker.stream().await;
        for k in 1..=8 {
            let rights: [&dyn Fn(usize) -> usize; 3] = [&|_| k, &|_| 0, &|round| round % (k + 1)];
            for (kind, right) in rights.into_iter().enumerate() {
                let sequence = (k * 3 + kind) as u64;
                let text = decode(&mut stream, sequence, decoding, &truth, k, right).await;
                assert_eq!(text, truth[..text.len()], "k {k}, kind {kind}");
                stream.close(sequence).await;
                stream.closed().await;
            }
        }
    }
}

#[tokio::test]
async fn sequences_in_one_batch_do_not_change_each_other() {
    let worker = Worker::start("synthetic", &[]).await;
    let prompts: Vec<Vec<u32>> = (0..6).map(|i| vec![20 + i, 9, 3 * i]).collect();
    let mut truths = Vec::new();
    for prompt in &prompts {
        truths.push(worker.plain(prompt, &warm(), 30).await);
    }
    let mut stream = worker.stream().await;
    let mut texts = Vec::new();
    for (i, prompt) in prompts.iter().enumerate() {
        texts.push(vec![
            stream
                .open(open(i as u64, 1, prompt, &warm()))
                .await
                .next_token,
        ]);
    }
    for round in 0..8 {
        // A different number of right tokens for each.
        let drafts: Vec<_> = (texts.iter().zip(&truths).enumerate())
            .map(|(i, (text, truth))| draft(&truth[text.len()..], 3, (round + i) % 4))
            .collect();
        let items = (texts.iter().zip(&drafts).enumerate())
            .map(|(i, (text, draft))| item(i as u64, 1, prompts[i].len() + text.len(), draft))
            .collect();
        for verdict in stream.verify(items).await.items {
            let i = verdict.sequence as usize;
            texts[i].extend(&drafts[i][..verdict.accepted as usize]);
            texts[i].push(verdict.next_token);
        }
        if texts.iter().any(|text| text.len() > 26) {
            break;
        }
    }
    for (text, truth) in texts.iter().zip(&truths) {
        assert!(text.len() > 8);
        assert_eq!(text, &truth[..text.len()]);
    }
}

#[tokio::test]
async fn a_sequence_that_is_opened_again_goes_on_with_the_same_text() {
    let worker = Worker::start("synthetic", &[]).await;
    let truth = worker.plain(PROMPT, &warm(), 40).await;
    let mut stream = worker.stream().await;
    for epoch in 1..20 {
        let committed = [PROMPT, &truth[..epoch * 2]].concat();
        let opened = stream
            .open(open(9, epoch as u32, &committed, &warm()))
            .await;
        assert_eq!(opened.next_token, truth[epoch * 2]);
    }
}

#[tokio::test]
async fn an_id_that_is_no_token_is_a_rejection() {
    let worker = Worker::start("synthetic", &[]).await;
    let truth = worker.plain(PROMPT, &greedy(), 10).await;
    let mut stream = worker.stream().await;
    for (sequence, id) in [(1, VOCAB), (2, u32::MAX)] {
        stream.open(open(sequence, 1, PROMPT, &greedy())).await;
        let draft = [truth[1], id, truth[3]];
        let batch = stream
            .verify(vec![item(sequence, 1, PROMPT.len() + 1, &draft)])
            .await;
        assert_eq!(batch.items[0].accepted, 1);
        assert_eq!(batch.items[0].next_token, truth[2]);
    }
}

#[tokio::test]
async fn a_text_goes_on_to_the_last_place_of_the_context() {
    let worker = Worker::start("synthetic:context=16", &[]).await;
    let mut stream = worker.stream().await;
    let mut text = vec![stream.open(open(1, 1, PROMPT, &greedy())).await.next_token];
    while PROMPT.len() + text.len() < 16 {
        let base = PROMPT.len() + text.len();
        let batch = stream.verify(vec![item(1, 1, base, &[1; 9])]).await;
        let verdict = &batch.items[0];
        text.extend(vec![1; verdict.accepted as usize]);
        text.push(verdict.next_token);
    }
    assert_eq!(PROMPT.len() + text.len(), 16);
    stream.send_verify(vec![item(1, 1, 16, &[])]).await;
    let closed = stream.closed().await;
    assert!(closed.detail.contains("context of 16"), "{closed:?}");
}
