//! One of our programs, as a process of its own.

use crate::PATIENCE;
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A running program. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    url: String,
    child: Child,
    log: Arc<Mutex<String>>,
}

/// The path of one of our programs, built beside the running test or program.
///
/// # Errors
/// Where it has not been built.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the running program")?;
    let folder = own.parent().context("find the build folder")?;
    // Programs lie in target/release, tests in target/release/deps.
    let folder = if folder.ends_with("deps") {
        folder.parent().context("find the build folder")?
    } else {
        folder
    };
    let path = folder.join(name);
    if !path.is_file() {
        bail!(
            "{} is not built: run `cargo build --release --workspace --bins` first",
            path.display()
        );
    }
    Ok(path)
}

impl Process {
    /// Starts a program with `args` on a free loopback port and waits until it takes calls.
    ///
    /// # Errors
    /// Where it exits or stays silent; the message holds its log.
    pub async fn start(name: &str, args: &[String]) -> Result<Self> {
        Self::start_at(name, args, "127.0.0.1:0").await
    }

    /// As [`start`](Self::start), on a given address: that of an earlier process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_at(name: &str, args: &[String], address: &str) -> Result<Self> {
        let mut child = Command::new(program(name)?)
            .args(args)
            .args(["--listen", address])
            // Two cores carry three programs: whoever has nothing to do must not spin.
            .env("CANDLE_BARRIER_POOL_SPIN_LIMIT", "200")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let log = Arc::new(Mutex::new(String::new()));
        collect_log(&mut child, Arc::clone(&log))?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.strip_prefix("listening on ") {
                    return Ok(url.to_owned());
                }
            }
            bail!("{name} ended before it listened")
        };
        let url = match tokio::time::timeout(PATIENCE, listening).await {
            Ok(Ok(url)) => url,
            Ok(Err(error)) => return Err(error.context(read(&log))),
            Err(_) => bail!(
                "{name} does not listen within {PATIENCE:?}:\n{}",
                read(&log)
            ),
        };
        Ok(Self {
            name: name.to_owned(),
            url,
            child,
            log,
        })
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process id.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn id(&self) -> Result<u32> {
        let id = self.child.id();
        id.with_context(|| format!("{} has ended", self.name))
    }

    /// Memory that it holds, in bytes.
    ///
    /// # Errors
    /// Where it is not running.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.id()?);
        let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Ok(kib.with_context(|| format!("VmRSS is not in {path}"))? * 1024)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// True while it runs.
    ///
    /// # Errors
    /// Where its state cannot be read.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal by its name, such as `STOP`.
    ///
    /// # Errors
    /// Where it has ended.
    pub async fn signal(&self, signal: &str) -> Result<()> {
        let id = self.id()?;
        let status = Command::new("kill")
            .args([format!("-{signal}"), id.to_string()])
            .status()
            .await?;
        anyhow::ensure!(status.success(), "kill -{signal} {id}: {status}");
        Ok(())
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// Where it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("kill")
    }

    /// Waits for its end; returns its exit code.
    ///
    /// # Errors
    /// Where it does not end.
    pub async fn exit_code(&mut self) -> Result<Option<i32>> {
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .with_context(|| format!("{} does not end:\n{}", self.name, read(&self.log)))??;
        Ok(status.code())
    }
}

/// Runs a program that is expected to refuse its arguments; returns its exit code and its log.
///
/// # Errors
/// Where it does not end.
pub async fn refused(name: &str, args: &[&str]) -> Result<(Option<i32>, String)> {
    let run = Command::new(program(name)?)
        .args(args)
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, run)
        .await
        .with_context(|| format!("{name} {args:?} goes on"))??;
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

fn read(log: &Mutex<String>) -> String {
    log.lock().map(|log| log.clone()).unwrap_or_default()
}

/// Gathers standard error until the process ends.
#[expect(
    clippy::disallowed_methods,
    reason = "the task ends with the process, whose owner is the test"
)]
fn collect_log(child: &mut Child, log: Arc<Mutex<String>>) -> Result<()> {
    let stderr = child.stderr.take().context("stderr")?;
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(mut log) = log.lock() {
                log.push_str(&line);
                log.push('\n');
            }
        }
    });
    Ok(())
}
