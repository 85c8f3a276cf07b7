//! However drafts come about (a model's, n-grams, ahead of the verdict, as the controller chooses), a
//! coupled text is the one of plain decoding, and the other rules keep to what they may use.

use anyhow::Result;
use proto::v1::{DraftSource, GenerateRequest, SamplingParams, TokenOrigin, VerificationRule};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Cluster, ClusterOptions, Prompting as _, text_prompt};

const SOURCES: [&[DraftSource]; 4] = [
    &[],
    &[DraftSource::Model],
    &[DraftSource::Ngram],
    &[DraftSource::Model, DraftSource::Ngram],
];

fn request(seed: u64, temperature: f32) -> GenerateRequest {
    text_prompt("one two three, one two three, one two")
        .sampling(SamplingParams {
            temperature: Some(temperature),
            ..SamplingParams::default()
        })
        .seed(seed)
        .tokens(80)
}

/// `request` with drafts from `sources`: of so many tokens, or as many as pay.
fn drafted(request: &GenerateRequest, sources: &[DraftSource], k: Option<u32>) -> GenerateRequest {
    let mut request = request.clone();
    let speculation = request.speculation.get_or_insert_default();
    speculation.sources = sources.iter().map(|source| (*source).into()).collect();
    speculation.max_draft_tokens = k;
    speculation.min_draft_tokens = k;
    request
}

#[tokio::test]
async fn whatever_drafts_the_text_is_the_plain_one() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let (mut ngrams, mut models) = (0, 0);
    for (seed, temperature) in [(1, 0.0), (2, 0.4), (3, 0.8), (4, 1.0)] {
        let plain = request(seed, temperature);
        let expected = tiny.client.generate(plain.clone().plain()).await?;
        let asked = SOURCES.iter().flat_map(|sources| {
            [None, Some(1), Some(4), Some(12)].map(|k| drafted(&plain, sources, k))
        });
        let answers = tiny.client.generate_all(asked).await?;
        for answer in answers {
            assert_eq!(
                answer.ids, expected.ids,
                "seed {seed}: {:?}",
                answer.speculation
            );
            ngrams += answer.speculation.accepted_ngram_tokens;
            let of_model = |origin: &&i32| **origin == i32::from(TokenOrigin::Draft);
            models += answer.origins.iter().filter(of_model).count();
        }
    }
    eprintln!("accepted: {ngrams} of n-grams, {models} of the model");
    assert!(ngrams > 0 && models > 0, "each took part");
    Ok(())
}

/// A target that takes its time, and a draft that has enough of it to go on meanwhile, and is slow enough
/// that nobody would rather wait for it.
#[tokio::test]
async fn what_is_drafted_ahead_is_used() -> Result<()> {
    let draft = "synthetic:agreement=0.9,base_ms=2";
    let options = ClusterOptions::new("synthetic:base_ms=20", [draft]);
    let cluster = Cluster::start(options).await?;
    let client = cluster.client().await?;
    for temperature in [0.0, 1.0] {
        let request = request(7, temperature).tokens(160);
        let plain = client.generate(request.clone().plain()).await?;
        let asked = drafted(&request, &[DraftSource::Model], None);
        let answer = client.generate(asked).await?;
        assert_eq!(answer.ids, plain.ids);
        let stats = &answer.speculation;
        assert!(stats.ahead_hits > 0, "{stats:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_source_that_is_not_allowed_drafts_nothing() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Always]).await?;
    for rule in [
        VerificationRule::Coupled,
        VerificationRule::Token,
        VerificationRule::Block,
    ] {
        for (sources, barred) in [
            (DraftSource::Model, TokenOrigin::Ngram),
            (DraftSource::Ngram, TokenOrigin::Draft),
        ] {
            let request = request(5, 0.0).rule(rule);
            let asked = drafted(&request, &[sources], Some(4));
            let answer = tiny.client.generate(asked).await?;
            assert!(answer.speculation.draft_tokens > 0, "{rule:?}, {sources:?}");
            assert!(
                !answer.origins.contains(&barred.into()),
                "{rule:?}, {sources:?}: {:?}",
                answer.origins
            );
        }
    }
    Ok(())
}
