//! What goes wrong outside never changes a text and never leaves anything behind.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use futures::future::try_join_all;
use proto::v1::{SamplingParams, TokenOrigin, generate_response::Event};
use specdec_tests::drafts::{Agreement, write, write_draft, write_target};
use specdec_tests::{
    Client, Cluster, ClusterOptions, PATIENCE, Prompting, SequenceCount, eventually, text_prompt,
};
use std::time::Duration;

const WITHIN_A_SECOND: Duration = Duration::from_secs(1);

fn long_request(tokens: u32) -> proto::v1::GenerateRequest {
    text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(3)
        .drafting(3)
        .tokens(tokens)
}

async fn cluster(drafts: usize, args: &[&str]) -> Result<(tempfile::TempDir, Cluster)> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let mut options = ClusterOptions::new(target, vec![draft; drafts]);
    options.coordinator_args = args.iter().map(ToString::to_string).collect();
    Ok((folder, Cluster::start(options).await?))
}

/// Reads a stream until it holds `count` tokens, then runs `disturb`, then reads to the end.
async fn disturbed(
    client: &Client,
    tokens: u32,
    count: usize,
    disturb: impl AsyncFnOnce() -> Result<()>,
) -> Result<(Vec<u32>, Vec<i32>)> {
    let mut stream = client
        .raw()
        .generate(long_request(tokens))
        .await?
        .into_inner();
    let (mut ids, mut origins) = (Vec::new(), Vec::new());
    let mut disturb = Some(disturb);
    while let Some(response) = stream.next().await {
        if let Event::Delta(delta) = response?.event.context("event")? {
            ids.extend(delta.token_ids);
            origins.extend(delta.origins);
        }
        if ids.len() >= count
            && let Some(disturb) = disturb.take()
        {
            disturb().await?;
        }
    }
    anyhow::ensure!(
        disturb.is_none(),
        "the stream was long enough to disturb it"
    );
    Ok((ids, origins))
}

fn drafted(origins: &[i32]) -> usize {
    let draft = i32::from(TokenOrigin::Draft);
    origins.iter().filter(|origin| **origin == draft).count()
}

#[tokio::test]
async fn a_killed_draft_worker_costs_no_token() -> Result<()> {
    let (_folder, mut cluster) = cluster(1, &[]).await?;
    let client = cluster.client().await?;
    let plain = client.generate(long_request(600).plain()).await?;
    let draft = &mut cluster.drafts[0];
    let (ids, origins) = disturbed(&client, 600, 100, async || draft.kill().await).await?;
    assert_eq!(ids, plain.ids);
    assert!(
        drafted(&origins[..100]) > 0,
        "drafts took part before the kill"
    );
    assert_eq!(drafted(&origins[300..]), 0, "and not long after it");
    Ok(())
}

#[tokio::test]
async fn a_hung_draft_worker_costs_no_token() -> Result<()> {
    let (_folder, cluster) = cluster(1, &["--draft-timeout-ms", "200"]).await?;
    let client = cluster.client().await?;
    let plain = client.generate(long_request(400).plain()).await?;
    let draft = &cluster.drafts[0];
    let (ids, origins) = disturbed(&client, 400, 100, async || draft.signal("STOP").await).await?;
    assert_eq!(ids, plain.ids);
    assert!(drafted(&origins[..100]) > 0);
    Ok(())
}

#[tokio::test]
async fn another_draft_worker_takes_over() -> Result<()> {
    let (_folder, mut cluster) = cluster(2, &[]).await?;
    let client = cluster.client().await?;
    let plain = client.generate(long_request(1500).plain()).await?;
    let draft = &mut cluster.drafts[0];
    let runs = try_join_all((0..2).map(|_| client.generate(long_request(1500))));
    let kill = async {
        draft.kill().await?;
        anyhow::Ok(())
    };
    let (answers, ()) = futures::try_join!(runs, kill)?;
    for answer in answers {
        assert_eq!(answer.ids, plain.ids);
        let late = &answer.origins[1000..];
        assert!(drafted(late) > 0, "the worker that is left drafts for both");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_frees_both_workers_within_a_second() -> Result<()> {
    let (_folder, cluster) = cluster(1, &[]).await?;
    let client = cluster.client().await?;
    let mut target = SequenceCount::of_target(cluster.target.url()).await?;
    let mut draft = SequenceCount::of_draft(cluster.drafts[0].url()).await?;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = client
            .raw()
            .generate(long_request(3500))
            .await?
            .into_inner();
        stream.next().await.context("a first token")??;
        streams.push(stream);
    }
    target.reaches(8, PATIENCE).await?;
    draft.reaches(8, PATIENCE).await?;
    drop(streams);
    let (at_target, at_draft) = tokio::join!(
        target.reaches(0, WITHIN_A_SECOND),
        draft.reaches(0, WITHIN_A_SECOND)
    );
    at_target.context("target")?;
    at_draft.context("draft")?;
    Ok(())
}

#[tokio::test]
async fn a_restarted_target_goes_on_where_it_was() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let model = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let mut cluster = Cluster::start(ClusterOptions::new(model.clone(), [draft])).await?;
    let client = cluster.client().await?;
    let plain = client.generate(long_request(600).plain()).await?;
    let address = cluster
        .target
        .url()
        .trim_start_matches("http://")
        .to_owned();
    let target = &mut cluster.target;
    let (ids, _) = disturbed(&client, 600, 100, async || {
        target.kill().await?;
        let args = ["--model".to_owned(), model.clone()];
        *target = specdec_tests::Process::start_at("target-worker", &args, &address).await?;
        Ok(())
    })
    .await?;
    assert_eq!(ids, plain.ids);
    Ok(())
}

#[tokio::test]
async fn without_a_target_requests_fail_and_health_says_so() -> Result<()> {
    let (_folder, mut cluster) = cluster(1, &["--target-timeout-ms", "300"]).await?;
    let client = cluster.client().await?;
    cluster.target.kill().await?;
    eventually("health says not serving", PATIENCE, || async {
        !client.is_serving().await
    })
    .await?;
    let refused = client.raw().generate(long_request(10)).await;
    assert_eq!(
        refused.map(drop).map_err(|status| status.code()),
        Err(tonic::Code::Unavailable)
    );
    Ok(())
}

#[tokio::test]
async fn a_draft_of_another_tokenizer_is_refused_and_the_first_difference_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let cluster = Cluster::start(ClusterOptions::new(target, ["synthetic"])).await?;
    let log = cluster.coordinator.log();
    let refusal = log
        .lines()
        .find(|line| line.contains("draft worker refused"))
        .context("a refusal in the coordinator's log")?;
    assert!(
        refusal.contains("token "),
        "names the first token that differs: {refusal}"
    );
    let answer = cluster.client().await?.generate(long_request(20)).await?;
    assert_eq!(answer.ids.len(), 20);
    let draft = i32::from(TokenOrigin::Draft);
    assert!(
        !answer.origins.contains(&draft),
        "decoding goes on without it"
    );
    Ok(())
}

#[tokio::test]
async fn a_padded_vocabulary_is_the_same_vocabulary() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let padded = engine::tiny::TinyModel {
        padding: 64,
        ..engine::tiny::TinyModel::default()
    };
    let draft = write(folder.path(), "padded.gguf", &padded)?;
    let cluster = Cluster::start(ClusterOptions::new(target, [draft])).await?;
    let answer = cluster.client().await?.generate(long_request(50)).await?;
    assert!(answer.speculation.draft_tokens > 0, "the draft takes part");
    Ok(())
}

#[tokio::test]
async fn all_programs_end_on_sigterm() -> Result<()> {
    let (_folder, mut cluster) = cluster(1, &[]).await?;
    for process in [
        &mut cluster.coordinator,
        &mut cluster.target,
        &mut cluster.drafts[0],
    ] {
        process.signal("TERM").await?;
        assert_eq!(process.exit_code().await?, Some(0), "{}", process.log());
    }
    Ok(())
}
