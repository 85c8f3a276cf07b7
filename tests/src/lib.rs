//! The kit of the end-to-end tests: real processes on loopback, a client, and tiny models.
//!
//! [`Cluster`] starts the three programs and stops them when dropped; [`Client`] talks to the
//! coordinator as a user would; [`drafts`] writes tiny model pairs that agree as often as a test
//! needs; [`Oracle`] is the target's model without the services, and [`RogueDraft`] a draft worker
//! that proposes anything. [`exactness`] is the suite that users run: `cargo xtask exactness`.

mod authority;
mod claim;
mod client;
mod cluster;
pub mod coordination_bench;
pub mod drafts;
pub mod engine_bench;
pub mod exactness;
mod front;
mod http;
mod oracle;
mod probe;
mod process;
pub mod proxy;
mod rogue;
mod watch;

pub use authority::{Authority, Certified};
pub use claim::Claim;
pub use client::{Answer, Client, Prompting, chat, ids_prompt, text_prompt};
pub use cluster::{Cluster, ClusterOptions};
pub use front::{Connection, Front, Outcome};
pub use http::{Http, HttpAnswer};
pub use oracle::Oracle;
pub use probe::{Probed, Scrape, get};
pub use process::{Process, program, refused};
pub use rogue::RogueDraft;
pub use watch::SequenceCount;

use std::time::Duration;

/// How long anything may take before a test calls it a hang. Generous: the machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds.
///
/// # Errors
/// Names `what` where it does not hold within `patience`.
pub async fn eventually<F, R>(
    what: &str,
    patience: Duration,
    mut condition: F,
) -> anyhow::Result<()>
where
    F: FnMut() -> R,
    R: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + patience;
    while !condition().await {
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "{what}: not within {patience:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
