//! What HTTP with server-sent events costs the coordinator beside gRPC, at 64 streams on a connection
//! each, decoded plainly: a piece for each token.

use super::overhead::{STREAMS, Workers};
use super::process::cpu_time;
use crate::{Claim, Connection, Front, Process};
use anyhow::{Result, bail};
use futures::future::{join_all, try_join_all};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// More tokens than a stream comes to.
pub(super) const ENDLESS: u32 = 7_500;

/// Processor time per committed token in microseconds, of each turn.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    streams: usize,
    grpc_us: Vec<f64>,
    http_us: Vec<f64>,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let (turns, window) = if quick { (1, 1.5) } else { (4, 3.0) };
    let workers = Workers::start(0).await?;
    let coordinator = workers.coordinator_with(&[]).await?;
    let mut figures = Figures {
        streams: STREAMS,
        ..Figures::default()
    };
    for turn in 1..=turns {
        for front in [Front::Grpc, Front::Http] {
            progress(&format!("front: {front:?}, turn {turn} of {turns}"));
            let window = Duration::from_secs_f64(window);
            let cost = cost(&coordinator.process, front, window).await?;
            match front {
                Front::Grpc => figures.grpc_us.push(cost),
                Front::Http => figures.http_us.push(cost),
            }
        }
    }
    Ok(figures)
}

async fn cost(process: &Process, front: Front, window: Duration) -> Result<f64> {
    let mut connections = open(process.url(), front, STREAMS).await?;
    let from = Instant::now() + Duration::from_secs(1);
    let until = from + window;
    let cpu = async {
        sleep_until(from.into()).await;
        let before = cpu_time(process)?;
        sleep_until(until.into()).await;
        anyhow::Ok(cpu_time(process)?.saturating_sub(before))
    };
    // The streams go on for a little longer than the processor time is taken.
    let last = until + window / 10;
    let (pieces, cpu) = tokio::join!(endless(&mut connections, last), cpu);
    let pieces = pieces?.into_iter().flatten();
    let tokens = pieces.filter(|at| (from..until).contains(at)).count();
    Ok(cpu?.as_secs_f64() * 1e6 / tokens as f64)
}

/// So many connections to a front.
pub(super) async fn open(url: &str, front: Front, count: usize) -> Result<Vec<Connection>> {
    try_join_all((0..count).map(|_| Connection::open(front, url))).await
}

/// Runs a stream over each connection until `until`; says when pieces of it came.
///
/// # Errors
/// Where one ends before.
pub(super) async fn endless(
    connections: &mut [Connection],
    until: Instant,
) -> Result<Vec<Vec<Instant>>> {
    let streams = connections.iter_mut().map(|connection| async move {
        let mut pieces = Vec::new();
        let ended = tokio::select! {
            ended = connection.complete(ENDLESS, |at| pieces.push(at)) => ended,
            () = sleep_until(until.into()) => return Ok(pieces),
        };
        bail!("a stream ended early: {ended:?}")
    });
    join_all(streams).await.into_iter().collect()
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        // Each the least of its turns: what others take of the machine only adds.
        let [http, grpc] = [&self.http_us, &self.grpc_us]
            .map(|turns| turns.iter().copied().fold(f64::INFINITY, f64::min));
        vec![Claim::at_most(
            "64 streams: CPU per committed token over HTTP over that over gRPC",
            http / grpc,
            1.1,
        )]
    }
}
