//! Each option of sampling does what it says, with speculation on.

use anyhow::Result;
use proto::v1::{GenerateRequest, LogprobsMode, SamplingParams};
use specdec_tests::drafts::{Agreement, TinyCluster, byte_token};
use specdec_tests::{Client, Prompting, text_prompt};
use std::collections::HashSet;

const TOKENS: u32 = 40;

fn sampled(change: impl FnOnce(&mut SamplingParams)) -> GenerateRequest {
    text_prompt("The answer is")
        .sampling(SamplingParams::default())
        .choosing(change)
        .seed(21)
        .drafting(4)
        .tokens(TOKENS)
}

fn greedy(change: impl FnOnce(&mut SamplingParams)) -> GenerateRequest {
    sampled(|s| {
        s.temperature = Some(0.0);
        change(s);
    })
}

async fn tiny() -> Result<TinyCluster> {
    TinyCluster::start(&[Agreement::Half]).await
}

async fn ids(client: &Client, request: GenerateRequest) -> Result<Vec<u32>> {
    Ok(client.generate(request).await?.ids)
}

#[tokio::test]
async fn what_leaves_only_the_most_likely_token_is_greedy() -> Result<()> {
    let tiny = tiny().await?;
    let greedy = ids(&tiny.client, greedy(|_| {})).await?;
    let whole = ids(&tiny.client, sampled(|_| {})).await?;
    assert_ne!(whole, greedy, "temperature 1 alone does sample");
    type Change = fn(&mut SamplingParams);
    let only_one: [(&str, Change); 4] = [
        ("min_p 1", |s| s.min_p = Some(1.0)),
        ("top_k 1", |s| s.top_k = Some(1)),
        ("top_p near 0", |s| s.top_p = Some(1e-6)),
        ("a temperature near 0", |s| s.temperature = Some(1e-4)),
    ];
    for (name, change) in only_one {
        let ids = ids(&tiny.client, sampled(change)).await?;
        assert_eq!(ids, greedy, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_bias_forbids_and_forces() -> Result<()> {
    let tiny = tiny().await?;
    let unbiased = ids(&tiny.client, greedy(|_| {})).await?;
    let first = unbiased[0];
    let against = greedy(|s| _ = s.logit_bias.insert(first, -100.0));
    assert!(!ids(&tiny.client, against).await?.contains(&first));
    let other = (first + 1) % 256;
    let forced = ids(
        &tiny.client,
        sampled(|s| _ = s.logit_bias.insert(other, 100.0)),
    )
    .await?;
    assert_eq!(forced, vec![other; TOKENS as usize]);
    Ok(())
}

#[tokio::test]
async fn allowed_and_banned_ids_hold_for_every_token() -> Result<()> {
    let tiny = tiny().await?;
    let allowed: Vec<u32> = (30..60).collect();
    let banned: Vec<u32> = (40..304).collect();
    for temperature in [0.0, 1.0, 5.0] {
        let with = |change: &dyn Fn(&mut SamplingParams)| {
            sampled(|s| {
                s.temperature = Some(temperature);
                change(s);
            })
        };
        let only = with(&|s| s.allowed_token_ids = allowed.clone());
        let not = with(&|s| s.banned_token_ids = banned.clone());
        let both = with(&|s| {
            s.allowed_token_ids = allowed.clone();
            s.banned_token_ids = banned.clone();
        });
        let answers = tiny.client.generate_all([only, not, both]).await?;
        let [only, not, both] = &answers[..] else {
            unreachable!("three requests")
        };
        assert!(only.ids.iter().all(|id| allowed.contains(id)));
        assert!(
            only.ids.iter().any(|id| banned.contains(id)),
            "one alone is not both"
        );
        assert!(not.ids.iter().all(|id| !banned.contains(id)));
        assert!(both.ids.iter().all(|id| (30..40).contains(id)));
    }
    Ok(())
}

#[tokio::test]
async fn bad_words_never_appear() -> Result<()> {
    let tiny = tiny().await?;
    // Few letters that no merge joins, so that a word can be written in one way only.
    let letters = |s: &mut SamplingParams| {
        s.allowed_token_ids = b"abcd".iter().map(|it| byte_token(*it)).collect();
    };
    let free = tiny.client.generate(sampled(letters).tokens(300)).await?;
    let bad = ["ab", "cab", "dd", "db", "b"];
    for words in [&bad[..4], &bad[4..]] {
        let mut request = sampled(letters).tokens(300);
        request.bad_words = words.iter().map(ToString::to_string).collect();
        let answer = tiny.client.generate(request).await?;
        for word in words {
            assert!(!answer.text.contains(word), "{word:?} in {:?}", answer.text);
        }
        let came_up = words
            .iter()
            .filter(|word| free.text.contains(**word))
            .count();
        assert!(came_up > 0, "none of {words:?} comes up in {:?}", free.text);
    }
    Ok(())
}

/// The ids that a law leaves, most likely first, at the first position.
async fn support(client: &Client, request: GenerateRequest) -> Result<Vec<u32>> {
    let request = request
        .tokens(1)
        .logprobs(20, LogprobsMode::ProcessedLogprobs);
    let answer = client.generate(request).await?;
    Ok(answer.logprobs[0].top_ids.clone())
}

#[tokio::test]
async fn typical_p_leaves_the_tokens_of_the_most_typical_surprise() -> Result<()> {
    let tiny = tiny().await?;
    // Two thirds of the mass on one token: its surprise, 0.4, is the closest to the entropy, 0.85,
    // whereas of a flat law plus one unlikely token, the unlikely one is the least typical.
    let weights = |weights: &'static [f32]| {
        move |s: &mut SamplingParams| {
            s.allowed_token_ids = (0..weights.len() as u32).collect();
            // Such a temperature flattens the model's own logits, and a bias of 100 is 1 nat.
            s.temperature = Some(100.0);
            s.logit_bias = (0..).zip(weights.iter().map(|it| 100.0 * it)).collect();
        }
    };
    let law = weights(&[1.0, 0.0, 0.0, -1.0]);
    let all = support(&tiny.client, sampled(law)).await?;
    assert_eq!(all.len(), 4);
    let typical = |p| sampled(law).choosing(|s| s.typical_p = Some(p));
    let least = support(&tiny.client, typical(0.05)).await?;
    assert_eq!(least.len(), 1, "one token suffices for 5 %");
    assert_ne!(least[0], 3, "the least likely token is not the typical one");
    let most = support(&tiny.client, typical(0.9)).await?;
    assert!(!most.contains(&3) && most.len() == 3, "{most:?}");
    for seed in 0..40 {
        let answer = tiny
            .client
            .generate(typical(0.9).seed(seed).tokens(8))
            .await?;
        assert!(!answer.ids.contains(&3), "seed {seed}: {:?}", answer.ids);
    }
    Ok(())
}

#[tokio::test]
async fn three_hundred_seeds_show_all_tokens_of_a_flat_law() -> Result<()> {
    let tiny = tiny().await?;
    let flat = |seed| {
        sampled(|s| {
            s.temperature = Some(100.0);
            s.top_k = Some(8);
        })
        .seed(seed)
        .tokens(3)
    };
    let support = support(&tiny.client, flat(0)).await?;
    assert_eq!(support.len(), 8);
    let answers = tiny.client.generate_all((0..300).map(flat)).await?;
    let seen: HashSet<u32> = answers.iter().map(|answer| answer.ids[0]).collect();
    assert_eq!(seen, support.into_iter().collect());
    Ok(())
}

#[tokio::test]
async fn requests_without_a_seed_differ() -> Result<()> {
    let tiny = tiny().await?;
    let mut texts = HashSet::new();
    for _ in 0..32 {
        let request = GenerateRequest {
            seed: None,
            ..sampled(|_| {}).tokens(8)
        };
        texts.insert(ids(&tiny.client, request).await?);
    }
    assert!(texts.len() > 16, "{} texts of 32 calls", texts.len());
    Ok(())
}
