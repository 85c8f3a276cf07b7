//! Files that are read again when the process is told to by SIGHUP.

use crate::Tasks;
use crate::config::ConfigError;
use anyhow::Context as _;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What was read last.
pub type Reloaded<T> = watch::Receiver<Arc<T>>;

/// Reads now, and again at every SIGHUP. A later failure is logged, and what was read before stays.
/// `what` is its name in logs.
///
/// # Errors
/// Where the first reading fails.
pub fn reloaded<T: Send + Sync + 'static>(
    tasks: &Tasks,
    what: &'static str,
    read: impl Fn() -> Result<T, ConfigError> + Send + 'static,
) -> anyhow::Result<Reloaded<T>> {
    // Before the reading: a change after it must not be missed.
    let mut hangups = signal(SignalKind::hangup()).context("handle SIGHUP")?;
    let (publish, current) = watch::channel(Arc::new(read()?));
    tasks.spawn("reload", async move {
        while hangups.recv().await.is_some() {
            match read() {
                Ok(value) => {
                    publish.send_replace(Arc::new(value));
                    tracing::info!(what, "files read again");
                }
                Err(error) => {
                    tracing::error!(what, %error, "files not read again: what was read before stays");
                }
            }
        }
    });
    Ok(current)
}
