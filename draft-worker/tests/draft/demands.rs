//! What a request may demand beside its sampling: a rule, an end, a form of the text.

use crate::support::{Worker, commit, greedy, open, warm};
use proto::v1::structured_output::Form;
use proto::v1::{CloseReason, Decoding, StructuredOutput, VerificationRule};
use speculation::DraftLaw;

const PROMPT: &[u32] = &[11, 42, 7, 300, 5];

fn last() -> (usize, &'static [u32]) {
    let (before, last) = PROMPT.split_at(PROMPT.len() - 1);
    (before.len(), last)
}

#[tokio::test]
async fn under_the_rules_that_compare_every_token_comes_with_its_law() {
    let worker = Worker::start("synthetic", &[]).await;
    for rule in [VerificationRule::Token, VerificationRule::Block] {
        let decoding = Decoding {
            rule: rule.into(),
            ..warm()
        };
        let (base, new) = last();
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, &PROMPT[..base], &decoding)).await;
        let proposal = stream.propose(commit(1, 1, base, new, 6)).await;
        let laws = Vec::<DraftLaw>::try_from(proposal.laws.as_ref().expect("laws")).expect("laws");
        assert_eq!(laws.len(), proposal.draft_ids.len());
        for (token, law) in proposal.draft_ids.iter().zip(&laws) {
            assert!(
                law.probability(*token) > 0.0,
                "{rule:?}: drawn from its law"
            );
        }
        assert!(laws.iter().any(|law| law.entries().len() > 1));
    }
}

#[tokio::test]
async fn coupled_and_certain_tokens_carry_no_laws() {
    let worker = Worker::start("synthetic", &[]).await;
    let certain = Decoding {
        rule: VerificationRule::Token.into(),
        ..greedy()
    };
    for decoding in &[warm(), certain] {
        let (base, new) = last();
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, &PROMPT[..base], decoding)).await;
        let proposal = stream.propose(commit(1, 1, base, new, 6)).await;
        assert_eq!((proposal.draft_ids.len(), proposal.laws), (6, None));
    }
}

#[tokio::test]
async fn a_proposal_ends_with_the_text() {
    let worker = Worker::start("synthetic", &[]).await;
    let (base, new) = last();
    let free = worker.fresh(PROMPT, &greedy(), 6).await;
    let decoding = Decoding {
        end_token_ids: vec![free[2]],
        ..greedy()
    };
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, &PROMPT[..base], &decoding)).await;
    let proposal = stream.propose(commit(1, 1, base, new, 6)).await;
    let end = free
        .iter()
        .position(|id| *id == free[2])
        .expect("it is there");
    assert_eq!(proposal.draft_ids, free[..=end]);
    // What follows is as ever: the draft does not mind that the target went on.
    let went_on = [&free[..], &[9]].concat();
    let next = stream
        .propose(commit(1, 1, PROMPT.len(), &went_on, 2))
        .await;
    let text = [PROMPT, &went_on].concat();
    assert_eq!(next.draft_ids, worker.fresh(&text, &decoding, 2).await);
}

#[tokio::test]
async fn a_draft_keeps_to_the_form_and_a_form_that_it_cannot_read_closes_it_alone() {
    let worker = Worker::start("synthetic", &[]).await;
    let formed = |regex: &str| Decoding {
        structured: Some(StructuredOutput {
            form: Some(Form::Regex(regex.to_owned())),
        }),
        prompt_len: PROMPT.len() as u32,
        ..warm()
    };
    let mut stream = worker.stream().await;
    stream.send_open(open(1, 1, PROMPT, &formed("("))).await;
    let closed = stream.closed().await;
    assert_eq!(
        (closed.reason(), &*closed.field),
        (CloseReason::Invalid, "structured.regex")
    );
    // Two digits and the end, where up to eight tokens are wanted.
    stream.open(open(2, 1, PROMPT, &formed("[0-9]{3}"))).await;
    let free = worker.fresh(&[PROMPT, &[9]].concat(), &warm(), 1).await;
    let proposal = stream.propose(commit(2, 1, PROMPT.len(), &free, 8)).await;
    assert!(proposal.draft_ids.len() <= 8, "{proposal:?}");
}
