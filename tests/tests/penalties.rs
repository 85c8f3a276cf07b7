//! Penalties count tokens: not steps, not what was only drafted, not what was rejected.

use anyhow::Result;
use proto::v1::{GenerateRequest, SamplingParams};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Oracle, Prompting, text_prompt};
use std::collections::HashMap;

const TOKENS: u32 = 40;
const REPETITIVE: &str = "the the the the and the and the the the and and the";

fn penalized(change: impl FnOnce(&mut SamplingParams)) -> GenerateRequest {
    text_prompt(REPETITIVE)
        .choosing(change)
        .seed(5)
        .tokens(TOKENS)
}

/// The greedy text under a frequency penalty, counted here token by token.
fn expected(oracle: &mut Oracle, prompt: &[u32], penalty: f32) -> Result<Vec<u32>> {
    let mut tokens = prompt.to_vec();
    let mut counts: HashMap<usize, f32> = HashMap::new();
    for _ in 0..TOKENS {
        let mut logits = oracle.logits(&tokens)?.pop().unwrap_or_default();
        for (token, count) in &counts {
            logits[*token] -= penalty * count;
        }
        let best = (1..logits.len()).fold(
            0,
            |best, id| {
                if logits[id] > logits[best] { id } else { best }
            },
        );
        *counts.entry(best).or_default() += 1.0;
        tokens.push(best as u32);
    }
    Ok(tokens.split_off(prompt.len()))
}

#[tokio::test]
async fn a_frequency_penalty_counts_every_accepted_token() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Always]).await?;
    let mut oracle = Oracle::load(&tiny.target)?;
    let prompt = tiny.client.tokenize(REPETITIVE).await?;
    let mut texts = Vec::new();
    for penalty in [0.0, 2.0, -2.0] {
        let expected = expected(&mut oracle, &prompt, penalty)?;
        let request = |k| {
            penalized(|s| {
                s.temperature = Some(0.0);
                s.frequency_penalty = Some(penalty);
            })
            .drafting(k)
        };
        let mut drafted = 0;
        for k in 0..=8 {
            let answer = tiny.client.generate(request(k)).await?;
            assert_eq!(answer.ids, expected, "penalty {penalty}, k = {k}");
            let stats = &answer.speculation;
            assert_eq!(stats.accepted_draft_tokens, stats.draft_tokens, "{stats:?}");
            drafted += stats.draft_tokens;
        }
        // Not of each text: a short one may be over before its draft is ready.
        assert!(drafted > 0, "penalty {penalty}: the draft took part");
        texts.push(expected);
    }
    let most = |ids: &[u32]| {
        ids.iter()
            .map(|id| ids.iter().filter(|it| *it == id).count())
            .max()
    };
    assert!(
        most(&texts[1]) < most(&texts[0]),
        "2 keeps tokens from coming again"
    );
    assert!(most(&texts[2]) > most(&texts[0]), "-2 has them come again");
    Ok(())
}

#[tokio::test]
async fn rejected_drafts_leave_no_trace_in_the_penalties() -> Result<()> {
    for agreement in [Agreement::Half, Agreement::Never] {
        let tiny = TinyCluster::start(&[agreement]).await?;
        let (mut verified, mut accepted) = (0, 0);
        for temperature in [0.0, 1.0] {
            let request = || {
                penalized(|s| {
                    s.temperature = Some(temperature);
                    s.presence_penalty = Some(2.0);
                    s.repetition_penalty = Some(1.3);
                    s.frequency_penalty = Some(0.7);
                })
            };
            let plain = tiny.client.generate(request().plain()).await?;
            let drafted = (1..=8).map(|k| request().drafting(k));
            for (index, answer) in tiny.client.generate_all(drafted).await?.iter().enumerate() {
                let what = format!(
                    "{agreement:?}, temperature {temperature}, k = {}",
                    index + 1
                );
                assert_eq!(answer.ids, plain.ids, "{what}");
                verified += answer.speculation.draft_tokens;
                accepted += answer.speculation.accepted_draft_tokens;
            }
        }
        assert!(accepted < verified, "{agreement:?}: something was rejected");
    }
    Ok(())
}
