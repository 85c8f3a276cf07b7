//! A draft's cache stays the committed prefix: otherwise texts stay right and acceptance decays.

use anyhow::Result;
use proto::v1::SamplingParams;
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{Cluster, ClusterOptions, Prompting, text_prompt};

async fn cluster(agreement: Agreement) -> Result<(tempfile::TempDir, Cluster)> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), agreement)?;
    let cluster = Cluster::start(ClusterOptions::new(target, [draft])).await?;
    Ok((folder, cluster))
}

#[tokio::test]
async fn a_draft_equal_to_its_target_is_always_accepted() -> Result<()> {
    let (_folder, cluster) = cluster(Agreement::Always).await?;
    let request = text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(1)
        .drafting(4)
        .tokens(2000);
    let answer = cluster.client().await?.generate(request).await?;
    assert_eq!(answer.ids.len(), 2000);
    let stats = &answer.speculation;
    assert!(stats.draft_tokens > 1500, "{stats:?}");
    assert_eq!(stats.accepted_draft_tokens, stats.draft_tokens, "{stats:?}");
    Ok(())
}

#[tokio::test]
async fn acceptance_of_a_poor_draft_does_not_decay() -> Result<()> {
    let (_folder, cluster) = cluster(Agreement::Half).await?;
    let request = text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(2)
        .drafting(4)
        .tokens(2000);
    let answer = cluster.client().await?.generate(request).await?;
    let draft = i32::from(proto::v1::TokenOrigin::Draft);
    let share = |origins: &[i32]| {
        origins.iter().filter(|origin| **origin == draft).count() as f64 / origins.len() as f64
    };
    let (first, last) = (
        share(&answer.origins[..500]),
        share(&answer.origins[1500..]),
    );
    eprintln!("share of drafted tokens: first 500 {first:.3}, last 500 {last:.3}");
    assert!(last > first - 0.15, "first {first}, last {last}");
    Ok(())
}
