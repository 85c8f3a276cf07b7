//! The three programs, wired together.

use crate::{Client, PATIENCE, Process, eventually};
use anyhow::Result;

/// What a cluster runs.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// The target's model, as `--model` takes it.
    pub target: String,
    /// One draft worker per model.
    pub drafts: Vec<String>,
    /// More flags for the coordinator.
    pub coordinator_args: Vec<String>,
    /// More flags for all workers.
    pub worker_args: Vec<String>,
    /// More flags for the draft workers.
    pub draft_args: Vec<String>,
}

/// A target worker, draft workers, and a coordinator over them. Stopped when dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The target worker.
    pub target: Process,
    /// The draft workers.
    pub drafts: Vec<Process>,
    /// The coordinator.
    pub coordinator: Process,
}

impl ClusterOptions {
    /// A target and drafts, the rest by default.
    pub fn new<D: Into<String>>(
        target: impl Into<String>,
        drafts: impl IntoIterator<Item = D>,
    ) -> Self {
        Self {
            target: target.into(),
            drafts: drafts.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

impl Cluster {
    /// Starts the programs and waits until the coordinator is ready and knows every draft worker.
    ///
    /// # Errors
    /// Where a program does not come up; the message holds its log.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let worker = |model: &String| {
            let mut args = vec!["--model".to_owned(), model.clone()];
            args.extend(options.worker_args.iter().cloned());
            args
        };
        let target = Process::start("target-worker", &worker(&options.target)).await?;
        let mut drafts = Vec::new();
        for model in &options.drafts {
            let args = [worker(model), options.draft_args.clone()].concat();
            drafts.push(Process::start("draft-worker", &args).await?);
        }
        let mut args = vec!["--target".to_owned(), target.url().to_owned()];
        for draft in &drafts {
            args.extend(["--draft".to_owned(), draft.url().to_owned()]);
        }
        args.extend(options.coordinator_args.iter().cloned());
        let coordinator = Process::start("coordinator", &args).await?;
        let cluster = Self {
            target,
            drafts,
            coordinator,
        };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// A client of the coordinator.
    ///
    /// # Errors
    /// Where it cannot connect.
    pub async fn client(&self) -> Result<Client> {
        Client::connect(self.coordinator.url()).await
    }

    async fn ready(&self) -> Result<()> {
        let client = self.client().await?;
        eventually("the coordinator serves", PATIENCE, || client.is_serving()).await?;
        let drafts = self.drafts.len();
        eventually("every draft worker was judged", PATIENCE, || async {
            let log = self.coordinator.log();
            let judged = |words| log.matches(words).count();
            judged("draft worker usable") + judged("draft worker refused") >= drafts
        })
        .await
    }
}
