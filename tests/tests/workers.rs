//! Draft workers come and go while requests run: no stream is lost, no text changes.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use proto::v1::{GenerateRequest, SamplingParams, TokenOrigin, generate_response::Event};
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{
    Client, Cluster, ClusterOptions, PATIENCE, Process, Prompting, eventually, text_prompt,
};

fn request(tokens: u32) -> GenerateRequest {
    text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(3)
        .drafting(3)
        .tokens(tokens)
}

/// A target and a coordinator that looks for draft workers under a name, and one worker there.
struct Named {
    cluster: Cluster,
    draft: Process,
    draft_args: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Named {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let target = write_target(folder.path())?;
        let model = write_draft(folder.path(), Agreement::Half)?;
        let draft_args = vec!["--model".to_owned(), model];
        let draft = Process::start("draft-worker", &draft_args).await?;
        let (_, port) = draft.url().rsplit_once(':').context("a port")?;
        let mut options = ClusterOptions::new(target, Vec::<String>::new());
        // The name may have an address at which nobody listens, too.
        let name = format!("dns://localhost:{port}");
        options.coordinator_args = ["--draft", &name, "--draft-resolve-ms", "50"]
            .map(str::to_owned)
            .to_vec();
        let cluster = Cluster::start(options).await?;
        let named = Self {
            cluster,
            draft,
            draft_args,
            _folder: folder,
        };
        named.usable(1).await?;
        Ok(named)
    }

    /// Waits until the coordinator has connected to draft workers `count` times.
    async fn usable(&self, count: usize) -> Result<()> {
        eventually("a draft worker is usable", PATIENCE, || async {
            let log = self.cluster.coordinator.log();
            log.matches("draft worker usable").count() >= count
        })
        .await
    }

    /// Kills the worker and starts another at its address.
    async fn replace(&mut self) -> Result<()> {
        let address = self.draft.url().trim_start_matches("http://").to_owned();
        self.draft.kill().await?;
        self.draft = Process::start_at("draft-worker", &self.draft_args, &address).await?;
        self.usable(2).await
    }
}

/// Reads a stream; runs `disturb` once `count` tokens have come.
async fn disturbed(
    client: &Client,
    request: GenerateRequest,
    count: usize,
    disturb: impl AsyncFnOnce() -> Result<()>,
) -> Result<(Vec<u32>, Vec<i32>)> {
    let mut stream = client.raw().generate(request).await?.into_inner();
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
    anyhow::ensure!(disturb.is_none(), "the stream was too short to disturb it");
    Ok((ids, origins))
}

fn drafted(origins: &[i32]) -> usize {
    let draft = i32::from(TokenOrigin::Draft);
    origins.iter().filter(|origin| **origin == draft).count()
}

#[tokio::test]
async fn a_name_stands_for_its_workers_whoever_of_them_listens() -> Result<()> {
    let named = Named::start().await?;
    let client = named.cluster.client().await?;
    let plain = client.generate(request(200).plain()).await?;
    let answer = client.generate(request(200)).await?;
    assert_eq!(answer.ids, plain.ids);
    assert!(drafted(&answer.origins) > 0, "the worker drafts");
    Ok(())
}

#[tokio::test]
async fn a_worker_that_is_replaced_while_a_stream_runs_costs_no_token() -> Result<()> {
    let mut named = Named::start().await?;
    let client = named.cluster.client().await?;
    let tokens = 3000;
    let plain = client.generate(request(tokens).plain()).await?;
    let replace = async || named.replace().await;
    let (ids, origins) = disturbed(&client, request(tokens), 100, replace).await?;
    assert_eq!(ids, plain.ids);
    assert!(drafted(&origins[..100]) > 0, "the first drafts");
    let late = &origins[tokens as usize - 500..];
    assert!(
        drafted(late) > 0,
        "and so does its successor, for the same stream"
    );
    Ok(())
}
