//! A program of ours, running.

use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time;

/// How long a program may take until it listens. Reading a model from a cold disk takes a while.
const START: Duration = Duration::from_secs(180);
/// How many lines of a log are worth showing.
const TAIL: usize = 20;

/// A running program. Killed when dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    // Kept open: a program that prints once more must not fail for it.
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program on a free loopback port, on the processor core `core` alone where one is given. Its
    /// log goes to a file in `logs`.
    pub(crate) fn spawn(
        name: &str,
        program: &Path,
        args: &[&str],
        core: Option<usize>,
        logs: &Path,
    ) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let mut command = match core {
            Some(core) => {
                let mut taskset = Command::new("taskset");
                taskset.arg("--cpu-list").arg(core.to_string()).arg(program);
                taskset
            }
            None => Command::new(program),
        };
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            // Three programs share these cores: whoever has nothing to do must not spin for long.
            .env("CANDLE_BARRIER_POOL_SPIN_LIMIT", "200")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stdout = child.stdout.take().context("read from the program")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            lines: BufReader::new(stdout).lines(),
            url: String::new(),
            log,
        })
    }

    /// Waits until the program says where it listens.
    pub(crate) async fn url(&mut self) -> Result<String> {
        let said = time::timeout(START, self.read_url()).await;
        let url = said.with_context(|| {
            let seconds = START.as_secs();
            format!("{} did not listen within {seconds} s", self.name)
        })??;
        self.url.clone_from(&url);
        Ok(url)
    }

    async fn read_url(&mut self) -> Result<String> {
        while let Some(line) = self.lines.next_line().await? {
            if let Some(url) = line.strip_prefix("listening on ") {
                return Ok(url.trim().to_owned());
            }
        }
        let status = self.child.wait().await?;
        bail!("{} ended with {status} before it listened", self.name)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens; empty before [`url`](Self::url).
    pub(crate) fn address(&self) -> &str {
        &self.url
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        use nix::sys::signal::{Signal, kill};
        use nix::unistd::Pid;
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid {
            // It may have ended just now.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn wait(&mut self) {
        if let Err(error) = self.child.wait().await {
            eprintln!("could not wait for {}: {error}", self.name);
        }
    }

    /// Ends it.
    pub(crate) async fn kill(&mut self) {
        if let Err(error) = self.child.kill().await {
            eprintln!("could not end {}: {error}", self.name);
        }
    }
}

/// Returns once this program is asked to end.
pub(crate) async fn interrupted() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
