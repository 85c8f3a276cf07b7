//! Synthetic workers and the coordinators over them, with a link to each draft worker.

use crate::proxy::{Link, Proxy};
use crate::{Client, PATIENCE, Process, eventually};
use anyhow::Result;
use engine::synthetic::Description;

/// More than any section has streams.
const MAX_SEQUENCES: &str = "256";

/// A synthetic draft worker behind a link.
#[derive(Debug)]
pub(crate) struct DraftStand {
    pub(crate) process: Process,
    pub(crate) link: Proxy,
    description: Description,
}

/// A coordinator, and a client of it.
#[derive(Debug)]
pub(crate) struct CoordinatorStand {
    pub(crate) process: Process,
    pub(crate) client: Client,
}

/// A synthetic target worker.
pub(crate) async fn target(description: &Description) -> Result<Process> {
    Process::start("target-worker", &worker_args(description)).await
}

/// The flags of a coordinator that drafts by the model alone, and only when its tokens are
/// committed.
pub(crate) const SYNCHRONOUS: [&str; 4] = ["--spec-draft-ahead", "off", "--spec-ngram", "off"];

impl DraftStand {
    pub(crate) async fn start(description: Description, link: Link) -> Result<Self> {
        let process = Process::start("draft-worker", &worker_args(&description)).await?;
        let link = Proxy::start(process.url(), link)?;
        Ok(Self {
            process,
            link,
            description,
        })
    }

    /// Starts the process again, where it was.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        let address = self.process.url().trim_start_matches("http://").to_owned();
        let args = worker_args(&self.description);
        self.process = Process::start_at("draft-worker", &args, &address).await?;
        Ok(())
    }
}

impl CoordinatorStand {
    /// Starts a coordinator and waits until it can use every worker.
    pub(crate) async fn start(
        target: &Process,
        drafts: &[&DraftStand],
        flags: &[&str],
    ) -> Result<Self> {
        let drafts = drafts.iter().map(|draft| draft.link.url()).collect();
        Self::over(target.url(), drafts, flags).await
    }

    /// As [`start`](Self::start), over any workers.
    pub(crate) async fn over(target: &str, drafts: Vec<String>, flags: &[&str]) -> Result<Self> {
        let mut args = vec!["--target".to_owned(), target.to_owned()];
        for draft in &drafts {
            args.extend(["--draft".to_owned(), draft.clone()]);
        }
        args.extend(flags.iter().map(ToString::to_string));
        let process = Process::start("coordinator", &args).await?;
        let client = Client::connect(process.url()).await?;
        eventually("the coordinator serves", PATIENCE, || client.is_serving()).await?;
        let usable = || process.log().matches("draft worker usable").count();
        eventually("every draft worker is usable", PATIENCE, || async {
            usable() >= drafts.len()
        })
        .await?;
        Ok(Self { process, client })
    }
}

fn worker_args(description: &Description) -> Vec<String> {
    let Description {
        vocab,
        agreement,
        base_ms,
        row_ms,
        ..
    } = description;
    let model =
        format!("synthetic:vocab={vocab},agreement={agreement},base_ms={base_ms},row_ms={row_ms}");
    ["--model", &model, "--max-sequences", MAX_SEQUENCES]
        .map(ToOwned::to_owned)
        .to_vec()
}
