//! What a request may demand beside its sampling: a rule, log-probabilities, a form of the text.

use crate::support::{Worker, greedy, item, open, warm};
use proto::v1::structured_output::Form;
use proto::v1::target_command::Command;
use proto::v1::{
    CloseReason, Decoding, DraftLaws, LogprobsMode, LogprobsParams, SamplingParams,
    StructuredOutput, VerificationRule,
};
use speculation::DraftLaw;

const PROMPT: &[u32] = &[11, 42, 7];
const BASE: usize = PROMPT.len() + 1;
const RULES: [VerificationRule; 3] = [
    VerificationRule::Coupled,
    VerificationRule::Token,
    VerificationRule::Block,
];

fn ruled(rule: VerificationRule) -> Decoding {
    Decoding {
        rule: rule.into(),
        prompt_len: PROMPT.len() as u32,
        ..warm()
    }
}

/// A law in which each of `ids` is as likely as the others.
fn even(ids: &[u32]) -> DraftLaw {
    let count = 65_536 / ids.len() as u32;
    DraftLaw::from_entries(ids.iter().map(|id| (*id, count)).collect()).expect("a law")
}

#[tokio::test]
async fn an_id_that_is_no_token_is_a_rejection_under_every_rule() {
    let worker = Worker::start("synthetic", &[]).await;
    for rule in RULES {
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, PROMPT, &ruled(rule))).await;
        let mut foreign = item(1, 1, BASE, &[u32::MAX, 9, 9]);
        let laws = [even(&[9, u32::MAX]), even(&[9]), even(&[9])];
        foreign.laws = Some(DraftLaws::from(&laws[..]));
        let batch = stream.verify(vec![foreign]).await;
        assert_eq!(batch.items[0].accepted, 0, "{rule:?}");
        assert!(batch.items[0].next_token < 512);
        // The sequence goes on.
        let batch = stream.verify(vec![item(1, 1, BASE + 1, &[])]).await;
        assert_eq!(batch.items.len(), 1, "{rule:?}");
    }
}

#[tokio::test]
async fn laws_that_do_not_fit_close_the_sequence_and_name_the_field() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    for (sequence, draft, laws, named) in [
        (1, &[5, 6][..], vec![even(&[5])], "laws"),
        (2, &[5], vec![even(&[6, 7])], "draft_ids[0]"),
    ] {
        let block = ruled(VerificationRule::Block);
        stream.open(open(sequence, 1, PROMPT, &block)).await;
        let mut wrong = item(sequence, 1, BASE, draft);
        wrong.laws = Some(DraftLaws::from(&laws[..]));
        stream.send_verify(vec![wrong]).await;
        let closed = stream.closed().await;
        assert_eq!(closed.reason(), CloseReason::Invalid);
        assert!(closed.detail.starts_with(named), "{closed:?}");
        assert!(closed.field.is_empty(), "the client is not to blame");
        stream.verdicts().await;
    }
}

#[tokio::test]
async fn every_committed_token_has_its_log_probabilities() {
    let worker = Worker::start("synthetic", &[]).await;
    let truth = worker.plain(PROMPT, &greedy(), 8).await;
    let mut stream = worker.stream().await;
    let mut asked = open(1, 1, PROMPT, &greedy());
    asked.logprobs = Some(LogprobsParams {
        top: 2,
        mode: LogprobsMode::RawLogprobs.into(),
    });
    let opened = stream.open(asked).await;
    let first = opened.logprobs.expect("asked for");
    assert_eq!(
        first.top_ids[0], opened.next_token,
        "greedy takes the likeliest"
    );
    assert_eq!(first.top_logprobs[0].to_bits(), first.logprob.to_bits());
    assert_eq!(first.top_logprobs.len(), 2);
    // Two right tokens, a wrong one, and one that is never judged.
    let wrong = (truth[3] + 1) % 512;
    let draft = [truth[1], truth[2], wrong, 5];
    let batch = stream.verify(vec![item(1, 1, BASE, &draft)]).await;
    let verdict = &batch.items[0];
    assert_eq!((verdict.accepted, verdict.next_token), (2, truth[3]));
    let tops: Vec<u32> = verdict
        .logprobs
        .iter()
        .map(|entry| entry.top_ids[0])
        .collect();
    assert_eq!(tops, truth[1..4]);
    for entry in &verdict.logprobs {
        assert_eq!(entry.logprob.to_bits(), entry.top_logprobs[0].to_bits());
    }
}

#[tokio::test]
async fn a_form_holds_at_every_position_and_a_broken_one_names_the_clients_field() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    let formed = |form| Decoding {
        structured: Some(StructuredOutput { form: Some(form) }),
        ..ruled(VerificationRule::Coupled)
    };
    for (form, field) in [
        (Form::Regex("(".to_owned()), "structured.regex"),
        (Form::JsonSchema("{".to_owned()), "structured.json_schema"),
        (Form::Lark("start: nothing".to_owned()), "structured.lark"),
    ] {
        let broken = open(1, 1, PROMPT, &formed(form));
        stream.send(Command::Open(broken)).await;
        let closed = stream.closed().await;
        assert_eq!(
            (closed.reason(), &*closed.field),
            (CloseReason::Invalid, field)
        );
        assert!(!closed.detail.is_empty());
    }
    // Three tokens at most, then the end of text, whatever is drafted.
    let digits = formed(Form::Regex("[0-9]{3}".to_owned()));
    let mut text = vec![stream.open(open(2, 1, PROMPT, &digits)).await.next_token];
    while text.len() < 4 {
        let base = PROMPT.len() + text.len();
        let batch = stream.verify(vec![item(2, 1, base, &[9, 9])]).await;
        assert_eq!(batch.items[0].accepted, 0, "no letter is accepted");
        text.push(batch.items[0].next_token);
    }
    let (last, digits) = text.split_last().expect("four tokens");
    let description = worker
        .client()
        .describe(proto::v1::DescribeRequest {})
        .await;
    let ends = description.expect("an answer").into_inner().eos_token_ids;
    assert!(ends.contains(last), "{last} ends the text");
    assert!(digits.iter().all(|id| !ends.contains(id)));
}

#[tokio::test]
async fn a_request_that_leaves_no_token_is_refused_in_the_clients_terms() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    let mut nothing = ruled(VerificationRule::Coupled);
    nothing.sampling = Some(SamplingParams {
        allowed_token_ids: vec![5],
        banned_token_ids: vec![5],
        ..SamplingParams::default()
    });
    stream
        .send(Command::Open(open(1, 1, PROMPT, &nothing)))
        .await;
    let closed = stream.closed().await;
    assert_eq!(
        (closed.reason(), &*closed.field),
        (CloseReason::Invalid, "sampling")
    );
    assert!(closed.detail.contains("position 3"), "{closed:?}");
}
