//! Log-probabilities are the target's, at every token, whoever proposed it.

use anyhow::Result;
use proto::v1::LogprobsMode::{self, ProcessedLogprobs, RawLogprobs};
use proto::v1::VerificationRule::{Block, Coupled, Token};
use proto::v1::{GenerateRequest, SamplingParams, TokenLogprobs};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Answer, Oracle, Prompting, text_prompt};

const TOKENS: u32 = 24;
const PROMPT: &str = "Once upon a time";
const MODES: [LogprobsMode; 2] = [RawLogprobs, ProcessedLogprobs];
const TEMPERATURE: f32 = 0.7;
const TOP_K: u32 = 12;

fn request(sampling: SamplingParams, top: u32, mode: LogprobsMode) -> GenerateRequest {
    text_prompt(PROMPT)
        .sampling(sampling)
        .seed(11)
        .tokens(TOKENS)
        .logprobs(top, mode)
}

/// Greedy, the model's own law, and one with much done to it.
fn samplings() -> [SamplingParams; 3] {
    let greedy = SamplingParams {
        temperature: Some(0.0),
        ..SamplingParams::default()
    };
    let shaped = SamplingParams {
        presence_penalty: Some(1.0),
        top_p: Some(0.9),
        ..truncated()
    };
    [greedy, SamplingParams::default(), shaped]
}

/// A law that is easily computed here too.
fn truncated() -> SamplingParams {
    SamplingParams {
        temperature: Some(TEMPERATURE),
        top_k: Some(TOP_K),
        ..SamplingParams::default()
    }
}

/// All numbers to the bit.
fn bits(logprobs: &[TokenLogprobs]) -> Vec<(u32, &[u32], Vec<u32>)> {
    let entries = logprobs.iter().map(|entry| {
        let top = entry.top_logprobs.iter().map(|it| it.to_bits()).collect();
        (entry.logprob.to_bits(), &entry.top_ids[..], top)
    });
    entries.collect()
}

async fn check(agreement: Agreement) -> Result<()> {
    let tiny = TinyCluster::start(&[agreement]).await?;
    for sampling in samplings() {
        for mode in MODES {
            let request = || request(sampling.clone(), 5, mode);
            let plain = tiny.client.generate(request().plain()).await?;
            check_shape(&plain, mode);
            let drafted = [0, 4, 8].map(|k| request().drafting(k));
            for answer in tiny.client.generate_all(drafted).await? {
                let what = format!("{sampling:?}, {mode:?}, {:?}", answer.speculation);
                assert_eq!(answer.ids, plain.ids, "{what}");
                assert_eq!(bits(&answer.logprobs), bits(&plain.logprobs), "{what}");
            }
        }
    }
    Ok(())
}

/// What holds of any answer's log-probabilities.
fn check_shape(answer: &Answer, mode: LogprobsMode) {
    for (id, entry) in answer.ids.iter().zip(&answer.logprobs) {
        assert_eq!(entry.top_ids.len(), entry.top_logprobs.len(), "{entry:?}");
        assert!(entry.logprob <= 0.0, "{entry:?}");
        assert!(
            entry.logprob > f32::NEG_INFINITY,
            "a token was drawn: {entry:?}"
        );
        assert!(entry.top_logprobs.is_sorted_by(|a, b| a >= b), "{entry:?}");
        let listed = entry.top_ids.iter().position(|top| top == id);
        if let Some(index) = listed {
            let same = entry.top_logprobs[index].to_bits() == entry.logprob.to_bits();
            assert!(same, "token {id} twice: {entry:?}");
        } else {
            assert!(entry.top_logprobs.iter().all(|top| *top >= entry.logprob));
        }
        assert!(
            mode == ProcessedLogprobs || entry.top_ids.len() == 5,
            "{entry:?}"
        );
    }
}

#[tokio::test]
async fn drafts_that_always_agree_change_no_bit() -> Result<()> {
    check(Agreement::Always).await
}

#[tokio::test]
async fn drafts_that_agree_half_the_time_change_no_bit() -> Result<()> {
    check(Agreement::Half).await
}

#[tokio::test]
async fn drafts_that_never_agree_change_no_bit() -> Result<()> {
    check(Agreement::Never).await
}

#[tokio::test]
async fn greedy_tokens_are_the_most_likely_ones() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let greedy = || samplings()[0].clone();
    let raw = tiny
        .client
        .generate(request(greedy(), 1, RawLogprobs))
        .await?;
    for (id, entry) in raw.ids.iter().zip(&raw.logprobs) {
        assert_eq!(entry.top_ids, [*id]);
        assert_eq!(entry.top_logprobs, [entry.logprob]);
    }
    let processed = request(greedy(), 3, ProcessedLogprobs);
    for entry in tiny.client.generate(processed).await?.logprobs {
        assert_eq!((entry.logprob, &entry.top_logprobs[..]), (0.0, &[0.0][..]));
    }
    Ok(())
}

#[tokio::test]
async fn without_top_entries_there_are_none_and_unasked_there_is_nothing() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let asked = request(SamplingParams::default(), 0, RawLogprobs);
    let mut unasked = asked.clone();
    unasked.logprobs = None;
    let answers = tiny.client.generate_all([asked, unasked]).await?;
    let [asked, unasked] = &answers[..] else {
        unreachable!("two requests")
    };
    assert!(asked.logprobs.iter().all(|entry| entry.top_ids.is_empty()));
    assert_eq!(unasked.logprobs, []);
    assert_eq!(asked.ids, unasked.ids, "asking changes nothing");
    Ok(())
}

/// The log-probabilities of the `kept` most likely tokens at a temperature, the most likely first.
fn law(logits: &[f32], temperature: f32, kept: usize) -> Vec<(u32, f64)> {
    let scaled = logits
        .iter()
        .map(|it| f64::from(*it) / f64::from(temperature));
    let mut law: Vec<(u32, f64)> = (0..).zip(scaled).collect();
    law.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    law.truncate(kept);
    let total = law
        .iter()
        .map(|entry| (entry.1 - law[0].1).exp())
        .sum::<f64>();
    let log_total = law[0].1 + total.ln();
    law.iter()
        .map(|(id, score)| (*id, score - log_total))
        .collect()
}

fn close(a: f32, b: f64) -> bool {
    (f64::from(a) - b).abs() < 1e-4
}

#[tokio::test]
async fn under_every_rule_they_are_those_of_the_model_for_the_same_tokens() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let mut oracle = Oracle::load(&tiny.target)?;
    let prompt = tiny.client.tokenize(PROMPT).await?;
    let mut accepted = 0;
    for rule in [Coupled, Token, Block] {
        for mode in MODES {
            let request = request(truncated(), 20, mode).rule(rule).drafting(4);
            let answer = tiny.client.generate(request).await?;
            accepted += answer.speculation.accepted_draft_tokens;
            let rows = oracle.logits(&[&prompt[..], &answer.ids].concat())?;
            let rows = &rows[prompt.len() - 1..];
            for ((id, entry), row) in answer.ids.iter().zip(&answer.logprobs).zip(rows) {
                let expected = match mode {
                    ProcessedLogprobs => law(row, TEMPERATURE, TOP_K as usize),
                    _ => law(row, 1.0, row.len()),
                };
                let own = expected.iter().find(|it| it.0 == *id);
                assert!(
                    own.is_some_and(|own| close(entry.logprob, own.1)),
                    "{rule:?} {entry:?}"
                );
                let top = &expected[..expected.len().min(20)];
                let ids: Vec<u32> = top.iter().map(|it| it.0).collect();
                assert_eq!(entry.top_ids, ids, "{rule:?}, {mode:?}");
                for (logprob, expected) in entry.top_logprobs.iter().zip(top) {
                    assert!(close(*logprob, expected.1), "{rule:?} {entry:?}");
                }
            }
        }
    }
    assert!(accepted > 0, "some of the tokens were drafted");
    Ok(())
}
