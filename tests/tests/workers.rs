//! Draft workers come and go while requests run: no stream is lost, no text changes.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use proto::v1::{GenerateRequest, SamplingParams, VerificationRule, generate_response::Event};
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{
    Client, Cluster, ClusterOptions, PATIENCE, Process, Prompting, eventually, text_prompt,
};

/// A request that has drafts wherever there is a worker, whether they pay or not.
fn request(tokens: u32) -> GenerateRequest {
    let mut request = text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(3)
        .drafting(3)
        .tokens(tokens);
    if let Some(speculation) = &mut request.speculation {
        speculation.min_draft_tokens = Some(3);
    }
    request
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

    /// Checks that the worker drafts. The rule is one whose rounds wait for proposals.
    async fn drafts(&self) -> Result<()> {
        let client = self.cluster.client().await?;
        let request = request(40).rule(VerificationRule::Token);
        let answer = client.generate(request).await?;
        let drafted = answer.speculation.draft_tokens;
        anyhow::ensure!(drafted > 0, "no draft was verified: {answer:?}");
        Ok(())
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
) -> Result<Vec<u32>> {
    let mut stream = client.raw().generate(request).await?.into_inner();
    let mut ids = Vec::new();
    let mut disturb = Some(disturb);
    while let Some(response) = stream.next().await {
        if let Event::Delta(delta) = response?.event.context("event")? {
            ids.extend(delta.token_ids);
        }
        if ids.len() >= count
            && let Some(disturb) = disturb.take()
        {
            disturb().await?;
        }
    }
    anyhow::ensure!(disturb.is_none(), "the stream was too short to disturb it");
    Ok(ids)
}

#[tokio::test]
async fn a_name_stands_for_its_workers_whoever_of_them_listens() -> Result<()> {
    Named::start().await?.drafts().await
}

#[tokio::test]
async fn a_worker_that_is_replaced_while_a_stream_runs_costs_no_token() -> Result<()> {
    let mut named = Named::start().await?;
    named.drafts().await.context("the first worker")?;
    let client = named.cluster.client().await?;
    let plain = client.generate(request(3000).plain()).await?;
    let replace = async || named.replace().await;
    let ids = disturbed(&client, request(3000), 100, replace).await?;
    assert_eq!(ids, plain.ids);
    named.drafts().await.context("its successor")
}
