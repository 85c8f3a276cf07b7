//! Drafts made cheaper, by a restricted vocabulary and by weights encoded anew, change no text under
//! the rule `coupled` and no law under the others.

use anyhow::Result;
use proto::v1::{GenerateRequest, SamplingParams, VerificationRule};
use specdec_tests::exactness::options::option_sets;
use specdec_tests::exactness::table::Table;
use specdec_tests::exactness::{Models, laws};
use specdec_tests::{Client, Cluster, ClusterOptions, Prompting as _, text_prompt};

/// Bytes and control tokens alone, of a vocabulary that has as many as a sixth more.
const LEAN: [&str; 4] = ["--draft-vocab", "1", "--requantize", "q8_0"];
const BYTES: u32 = 256;

async fn start(models: &Models) -> Result<(Cluster, Client)> {
    let options = ClusterOptions {
        coordinator_args: owned(&["--max-requests", "1024"]),
        worker_args: owned(&["--threads", "1", "--max-sequences", "256"]),
        draft_args: owned(&LEAN),
        ..ClusterOptions::new(&models.target_path, [&models.draft_path])
    };
    let cluster = Cluster::start(options).await?;
    let client = cluster.client().await?;
    Ok((cluster, client))
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|&flag| flag.to_owned()).collect()
}

fn request(seed: u64, sampling: SamplingParams) -> GenerateRequest {
    text_prompt("The answer is")
        .sampling(sampling)
        .seed(seed)
        .tokens(48)
}

#[tokio::test]
async fn coupled_texts_are_those_of_plain_decoding() -> Result<()> {
    let (_cluster, client) = start(&Models::write()?).await?;
    let (mut accepted, mut outside) = (0, 0);
    for temperature in [0.0, 0.7, 1.0] {
        for seed in 0..4 {
            let sampling = SamplingParams {
                temperature: Some(temperature),
                ..SamplingParams::default()
            };
            let plain = client
                .generate(request(seed, sampling.clone()).plain())
                .await?;
            for k in [1, 4, 8] {
                let drafted = request(seed, sampling.clone()).drafting(k);
                let answer = client.generate(drafted).await?;
                assert_eq!(
                    answer.ids, plain.ids,
                    "temperature {temperature}, seed {seed}, k {k}"
                );
                accepted += answer.speculation.accepted_draft_tokens;
                outside += answer.ids.iter().filter(|id| **id >= BYTES).count();
            }
        }
    }
    assert!(accepted > 100, "{accepted} accepted");
    assert!(
        outside > 100,
        "{outside} tokens that the drafts cannot propose"
    );
    Ok(())
}

#[tokio::test]
async fn texts_have_the_targets_law_under_every_rule() -> Result<()> {
    let models = Models::write()?;
    let (_cluster, client) = start(&models).await?;
    let sets = option_sets(&models.target.words);
    let plain = sets
        .iter()
        .find(|set| set.name == "plain")
        .expect("an option set");
    let mut lines = Vec::new();
    for rule in [
        VerificationRule::Coupled,
        VerificationRule::Token,
        VerificationRule::Block,
    ] {
        let sampling = laws::Sampling {
            samples: 1024,
            first_seed: 77,
        };
        lines.push(laws::line(&client, &models.target, rule, plain, sampling).await?);
    }
    let table = Table::judge(lines, 77, 1e-5);
    eprintln!("{table}");
    assert!(table.is_good(), "the table says what is wrong");
    Ok(())
}
