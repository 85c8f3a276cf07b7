//! One coordinator over one target worker and one draft worker.

use super::process::Process;
use super::request;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time;

/// How long programs get to end by themselves.
const GRACE: Duration = Duration::from_secs(5);
/// How often to look whether one has ended.
const POLL: Duration = Duration::from_millis(200);

/// The processes that are running.
pub(crate) struct Cluster {
    programs: BTreeMap<String, PathBuf>,
    logs: TempDir,
    processes: Vec<Process>,
}

/// Which processor cores the workers compute on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    /// All of them, both.
    Shared,
    /// The target worker on the first, the draft worker on the second: as on machines of their own.
    Own,
}

impl Cluster {
    /// A cluster of `programs` that runs nothing yet.
    pub(crate) fn new(programs: BTreeMap<String, PathBuf>) -> Result<Self> {
        Ok(Self {
            programs,
            logs: TempDir::with_prefix("specdec-demo-")?,
            processes: Vec::new(),
        })
    }

    /// Starts all three and gives the coordinator's address once it answers for the models.
    pub(crate) async fn start(&mut self, preset: &str, cores: Cores) -> Result<String> {
        eprintln!("starting the workers: loading the models of {preset}");
        let of = |worker| (cores == Cores::Own).then_some(worker);
        let target = self.spawn("target-worker", &["--model", preset], of(0))?;
        let draft = self.spawn("draft-worker", &["--model", preset], of(1))?;
        let target = self.processes[target].url().await?;
        let draft = self.processes[draft].url().await?;
        eprintln!("starting the coordinator");
        let coordinator = self.spawn(
            "coordinator",
            &["--target", &target, "--draft", &draft],
            None,
        )?;
        let url = self.processes[coordinator].url().await?;
        tokio::select! {
            ready = request::ready(&url) => ready?,
            ended = self.any_end() => ended?,
        }
        Ok(url)
    }

    fn spawn(&mut self, name: &str, args: &[&str], core: Option<usize>) -> Result<usize> {
        let program = self
            .programs
            .get(name)
            .with_context(|| format!("{name} was not built"))?;
        self.processes
            .push(Process::spawn(name, program, args, core, self.logs.path())?);
        Ok(self.processes.len() - 1)
    }

    /// Fails as soon as one of the processes has ended.
    pub(crate) async fn any_end(&mut self) -> Result<()> {
        loop {
            for process in &mut self.processes {
                if let Some(status) = process.ended()? {
                    bail!("{} ended with {status}", process.name());
                }
            }
            time::sleep(POLL).await;
        }
    }

    /// Says when a process ends, and returns once all have. One may be ended on purpose: to see
    /// how the others go on.
    pub(crate) async fn report_ends(&mut self) -> Result<()> {
        let mut running: Vec<&mut Process> = self.processes.iter_mut().collect();
        while !running.is_empty() {
            let mut left = Vec::new();
            for process in running {
                match process.ended()? {
                    Some(status) => eprintln!("{} ended with {status}", process.name()),
                    None => left.push(process),
                }
            }
            running = left;
            time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Says where everything is.
    pub(crate) fn show_addresses(&self) {
        println!();
        for process in self.processes.iter().rev() {
            println!("grpc: {} ({})", process.address(), process.name());
        }
        if let Some(coordinator) = self.processes.last() {
            let address = coordinator.address();
            println!("openai: {address}/v1");
            let address = address.trim_start_matches("http://");
            println!(
                "\ntry: grpcurl -plaintext -d '{{\"prompt\": {{\"text\": \"def fibonacci(n):\"}}, \
                 \"stop\": {{\"max_tokens\": 64}}}}' {address} specdec.v1.Generation/Generate"
            );
        }
        println!("\nrunning until Ctrl-C");
    }

    /// Shows how each log ends.
    pub(crate) fn show_logs(&self) {
        for process in &self.processes {
            eprintln!("--- {} ---\n{}", process.name(), process.log_tail());
        }
    }

    /// Asks all to end, and ends those that do not.
    pub(crate) async fn stop(&mut self) {
        for process in &self.processes {
            process.terminate();
        }
        let all = async {
            for process in &mut self.processes {
                process.wait().await;
            }
        };
        if time::timeout(GRACE, all).await.is_err() {
            for process in &mut self.processes {
                process.kill().await;
            }
        }
    }
}
