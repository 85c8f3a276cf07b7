//! What requests that are turned away cost those that run: 64 streams, and 500 more connections that
//! ask at once, again and again.

use super::front::{endless, open};
use super::overhead::{STREAMS, Workers};
use crate::{Claim, Connection, Front, Outcome};
use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

const CONNECTIONS: usize = 500;

/// Between two storms.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    streams: usize,
    connections: usize,
    grpc: Storm,
    http: Storm,
}

/// Over one front. Times in milliseconds.
#[derive(Debug, Serialize)]
struct Storm {
    /// Between two tokens of a stream, on average.
    quiet_gap_ms: f64,
    storm_gap_ms: f64,
    /// Until a request was turned away.
    refused_median_ms: f64,
    refused_p99_ms: f64,
    refused_most_ms: f64,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let window = Duration::from_secs_f64(if quick { 1.0 } else { 4.0 });
    let workers = Workers::start(0).await?;
    let streams = STREAMS.to_string();
    let flags = ["--max-requests", &streams, "--max-waiting", "0"];
    let coordinator = workers.coordinator_with(&flags).await?;
    let url = coordinator.process.url();
    progress("storm: over gRPC");
    let grpc = storm(url, Front::Grpc, window).await?;
    progress("storm: over HTTP");
    let http = storm(url, Front::Http, window).await?;
    Ok(Figures {
        streams: STREAMS,
        connections: CONNECTIONS,
        grpc,
        http,
    })
}

/// Runs streams for a window in which nothing else is asked, and for one with storms.
async fn storm(url: &str, front: Front, window: Duration) -> Result<Storm> {
    let mut running = open(url, front, STREAMS).await?;
    let mut refused = open(url, front, CONNECTIONS).await?;
    let quiet = Instant::now() + Duration::from_secs(1);
    let storms = quiet + window;
    let end = storms + window;
    let refusals = async {
        let mut times = Vec::new();
        let mut next = storms;
        while next < end {
            sleep_until(next.into()).await;
            times.extend(refusals(&mut refused).await?);
            next = Instant::now().max(next + PAUSE);
        }
        anyhow::Ok(times)
    };
    let (pieces, times) = tokio::join!(endless(&mut running, end), refusals);
    let (pieces, mut times) = (pieces?, times?);
    times.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Ok(Storm {
        quiet_gap_ms: gap_ms(&pieces, quiet, storms),
        storm_gap_ms: gap_ms(&pieces, storms, end),
        refused_median_ms: quantile(0.5),
        refused_p99_ms: quantile(0.99),
        refused_most_ms: quantile(1.0),
    })
}

/// Has all ask at once; the milliseconds until each was turned away.
async fn refusals(connections: &mut [Connection]) -> Result<Vec<f64>> {
    let asked = connections.iter_mut().map(|connection| async move {
        let start = Instant::now();
        let outcome = connection.complete(1, |_| {}).await?;
        ensure!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        Ok(start.elapsed().as_secs_f64() * 1e3)
    });
    try_join_all(asked).await
}

/// The mean gap between the pieces of a stream that came from `from` to `until`.
fn gap_ms(streams: &[Vec<Instant>], from: Instant, until: Instant) -> f64 {
    let gaps = streams.iter().flat_map(|pieces| pieces.windows(2));
    let gaps = gaps.filter(|pair| (from..until).contains(&pair[0]));
    let gaps: Vec<_> = gaps.map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    gaps.iter().sum::<f64>() * 1e3 / gaps.len() as f64
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claim = |name: &str, storm: &Storm| {
            Claim::at_most(
                format!(
                    "64 streams, 500 refused at once over {name}: inter-token latency over that in quiet"
                ),
                storm.storm_gap_ms / storm.quiet_gap_ms,
                1.2,
            )
        };
        vec![
            claim("gRPC", &self.grpc),
            claim("HTTP", &self.http),
            // Over gRPC it is the time that 500 clients of one program take among themselves.
            Claim::at_most(
                "64 streams, 500 refused at once over HTTP: p99 of refusals, in ms",
                self.http.refused_p99_ms,
                50.0,
            ),
        ]
    }
}
