//! A bad network to the draft worker never changes a text, and never keeps a stream from its end.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use proto::v1::{SamplingParams, generate_response::Event};
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::proxy::{Link, Proxy};
use specdec_tests::{Client, PATIENCE, Process, Prompting, eventually, text_prompt};
use std::time::Duration;

const TOKENS: u32 = 400;

/// A cluster whose draft worker is behind a link.
struct Linked {
    _folder: tempfile::TempDir,
    _workers: [Process; 2],
    coordinator: Process,
    link: Proxy,
}

impl Linked {
    async fn start(link: Link) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let model = |path| ["--model".to_owned(), path];
        let target = Process::start("target-worker", &model(write_target(folder.path())?)).await?;
        let draft = write_draft(folder.path(), Agreement::Half)?;
        let draft = Process::start("draft-worker", &model(draft)).await?;
        let link = Proxy::start(draft.url(), link)?;
        let args = [
            ["--target", target.url()],
            ["--draft", &link.url()],
            ["--draft-timeout-ms", "200"],
        ];
        let args = args.concat().into_iter().map(ToOwned::to_owned);
        let coordinator = Process::start("coordinator", &args.collect::<Vec<_>>()).await?;
        let linked = Self {
            _folder: folder,
            _workers: [target, draft],
            coordinator,
            link,
        };
        let client = linked.client().await?;
        eventually("the coordinator serves", PATIENCE, || client.is_serving()).await?;
        linked.usable(1).await?;
        Ok(linked)
    }

    async fn client(&self) -> Result<Client> {
        Client::connect(self.coordinator.url()).await
    }

    /// Waits until the draft worker has been connected so many times.
    async fn usable(&self, times: usize) -> Result<()> {
        let usable = || {
            self.coordinator
                .log()
                .matches("draft worker usable")
                .count()
        };
        eventually("the draft worker is usable", PATIENCE, || async {
            usable() >= times
        })
        .await
    }
}

fn request() -> proto::v1::GenerateRequest {
    text_prompt("Once upon a time")
        .sampling(SamplingParams::default())
        .seed(3)
        .drafting(3)
        .tokens(TOKENS)
}

/// Reads a stream to its end. Runs `disturb` once it has given 100 tokens.
async fn disturbed(client: &Client, disturb: impl AsyncFnOnce() -> Result<()>) -> Result<Vec<u32>> {
    let mut stream = client.raw().generate(request()).await?.into_inner();
    let mut ids = Vec::new();
    let mut disturb = Some(disturb);
    let mut finished = false;
    while let Some(response) = stream.next().await {
        match response?.event.context("event")? {
            Event::Delta(delta) => ids.extend(delta.token_ids),
            Event::Finished(_) => finished = true,
        }
        if ids.len() >= 100
            && let Some(disturb) = disturb.take()
        {
            disturb().await?;
        }
    }
    anyhow::ensure!(finished, "the stream ended without a finish");
    Ok(ids)
}

#[tokio::test]
async fn delay_jitter_and_little_bandwidth_cost_no_token() -> Result<()> {
    let link = Link {
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(3),
        bytes_per_second: Some(200_000),
        seed: 9,
    };
    let linked = Linked::start(link).await?;
    let client = linked.client().await?;
    let plain = client.generate(request().plain()).await?;
    let answer = client.generate(request()).await?;
    assert_eq!(answer.ids, plain.ids);
    assert!(answer.speculation.draft_tokens > 0, "drafts took part");
    Ok(())
}

#[tokio::test]
async fn a_cut_link_costs_no_token_and_is_used_again_once_it_is_back() -> Result<()> {
    let linked = Linked::start(Link::default()).await?;
    let client = linked.client().await?;
    let plain = client.generate(request().plain()).await?;
    let ids = disturbed(&client, async || {
        linked.link.cut();
        Ok(())
    })
    .await?;
    assert_eq!(ids, plain.ids);
    linked.link.restore();
    linked.usable(2).await?;
    let answer = client.generate(request()).await?;
    assert_eq!(answer.ids, plain.ids);
    assert!(
        answer.speculation.draft_tokens > 0,
        "drafts take part again"
    );
    Ok(())
}

#[tokio::test]
async fn a_stalled_link_costs_no_token() -> Result<()> {
    let linked = Linked::start(Link::default()).await?;
    let client = linked.client().await?;
    let plain = client.generate(request().plain()).await?;
    let ids = disturbed(&client, async || {
        linked.link.stall();
        Ok(())
    })
    .await?;
    assert_eq!(ids, plain.ids);
    // What waited meanwhile comes late: of a sequence that is gone.
    linked.link.restore();
    assert_eq!(client.generate(request()).await?.ids, plain.ids);
    Ok(())
}

#[tokio::test]
async fn a_link_that_slows_down_in_the_middle_of_a_stream_costs_no_token() -> Result<()> {
    let linked = Linked::start(Link::default()).await?;
    let client = linked.client().await?;
    let plain = client.generate(request().plain()).await?;
    let ids = disturbed(&client, async || {
        linked.link.set(Link {
            jitter: Duration::from_millis(4),
            ..Link::with_rtt(Duration::from_millis(8))
        });
        Ok(())
    })
    .await?;
    assert_eq!(ids, plain.ids);
    Ok(())
}
