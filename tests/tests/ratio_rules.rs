//! The rules `token` and `block`: one seed gives one text only with the same drafts, and then it
//! does.

use anyhow::Result;
use proto::v1::VerificationRule::{self, Block, Token};
use proto::v1::{GenerateRequest, SamplingParams};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Answer, Prompting, text_prompt};

const RULES: [VerificationRule; 2] = [Token, Block];

fn request(seed: u64, rule: VerificationRule) -> GenerateRequest {
    text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(seed)
        .rule(rule)
        .drafting(4)
        .tokens(80)
}

/// The texts of both rules and some seeds, one after the other, on a cluster of its own.
async fn texts() -> Result<Vec<Answer>> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let mut answers = Vec::new();
    for rule in RULES {
        for seed in 0..4 {
            answers.push(tiny.client.generate(request(seed, rule)).await?);
        }
    }
    Ok(answers)
}

#[tokio::test]
async fn the_same_drafts_give_the_same_text_again() -> Result<()> {
    let (first, again) = (texts().await?, texts().await?);
    for (index, (first, again)) in first.iter().zip(&again).enumerate() {
        let what = format!("{:?}, seed {}", RULES[index / 4], index % 4);
        assert_eq!(first.ids, again.ids, "{what}");
        assert_eq!(first.origins, again.origins, "{what}");
        let acceptance = first.acceptance();
        assert!(acceptance > 0.0 && acceptance < 1.0, "{what}: {acceptance}");
    }
    Ok(())
}

#[tokio::test]
async fn at_temperature_0_every_rule_gives_the_plain_text() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let greedy = |rule| request(1, rule).choosing(|s| s.temperature = Some(0.0));
    let plain = tiny.client.generate(greedy(Token).plain()).await?;
    for rule in RULES {
        for k in 0..=8 {
            let answer = tiny.client.generate(greedy(rule).drafting(k)).await?;
            assert_eq!(answer.ids, plain.ids, "{rule:?}, k = {k}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn without_drafts_every_rule_is_plain_decoding() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    for rule in RULES {
        let plain = tiny.client.generate(request(1, rule).plain()).await?;
        let undrafted = tiny.client.generate(request(1, rule).drafting(0)).await?;
        assert_eq!(plain.ids, undrafted.ids, "{rule:?}");
        assert_eq!(undrafted.speculation.draft_tokens, 0);
    }
    Ok(())
}
