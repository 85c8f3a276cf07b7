//! A coordinator, a target worker and a draft worker as processes on this machine, and a client.

mod cluster;
mod process;
mod request;

pub(crate) use cluster::{Cluster, Cores};
pub(crate) use request::{Answer, Ask, Client, print};

use crate::{cargo, models};
use anyhow::{Result, bail};
use tokio::runtime;

/// Builds and starts the programs with the models of `preset`, and runs `work` with the
/// coordinator's address; the workers on `cores`. Stops the programs whatever comes of it, Ctrl-C included.
pub(crate) fn run<T>(
    preset: &str,
    cores: Cores,
    work: impl AsyncFnOnce(&mut Cluster, &str) -> Result<T>,
) -> Result<T> {
    models::fetch_all(&[preset.to_owned()])?;
    eprintln!("building the programs");
    let programs = cargo::build_programs()?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut cluster = Cluster::new(programs)?;
        let session = async {
            let coordinator = cluster.start(preset, cores).await?;
            work(&mut cluster, &coordinator).await
        };
        let (outcome, failed) = tokio::select! {
            outcome = session => {
                let failed = outcome.is_err();
                (outcome, failed)
            }
            interrupted = process::interrupted() => {
                (interrupted.and_then(|()| bail!("interrupted")), false)
            }
        };
        if failed {
            cluster.show_logs();
        }
        cluster.stop().await;
        outcome
    })
}

/// Returns when the user asks for the end, or once every program has ended.
pub(crate) async fn until_interrupted(cluster: &mut Cluster) -> Result<()> {
    tokio::select! {
        interrupted = process::interrupted() => interrupted,
        watched = cluster.report_ends() => watched,
    }
}

/// `part / whole`; 0 where there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
