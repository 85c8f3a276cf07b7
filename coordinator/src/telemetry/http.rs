//! What operators and their machines ask over HTTP: `/health`, `/ready` and `/metrics`.

use super::admissions::Admissions;
use super::health::{Peer, Workers};
use super::{Board, Metrics};
use crate::api::admission::Gate;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use service::CancellationToken;
use tokio::sync::watch;

/// What health is told from.
#[derive(Debug, Clone)]
struct Health {
    workers: watch::Receiver<Workers>,
    shutdown: CancellationToken,
}

/// The answer of `/health` and `/ready`.
#[derive(Debug, Serialize)]
struct Report {
    /// `ok`, `degraded` (it serves, more slowly than it could), `draining` or `unavailable`.
    status: &'static str,
    /// Why it does not serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    target: &'static str,
    drafts: Vec<Draft>,
}

/// A draft worker, without its address: this is for whoever asks.
#[derive(Debug, Serialize)]
struct Draft {
    worker: usize,
    state: &'static str,
}

/// The routes. From `shutdown` on it is not ready.
pub(crate) fn router(
    board: &Board,
    metrics: &Metrics,
    gate: Gate,
    shutdown: CancellationToken,
) -> Router {
    let health = Health {
        workers: board.subscribe(),
        shutdown,
    };
    let mut registry = metrics.registry().registry;
    registry.register_collector(Box::new(Admissions {
        gate,
        metrics: metrics.clone(),
    }));
    Router::new()
        .route("/health", get(tell_health))
        .route("/ready", get(tell_ready))
        .with_state(health)
        .merge(service::telemetry::metrics::router(registry))
}

/// Whether it serves: false while loading, without a target, and while that hangs.
async fn tell_health(State(health): State<Health>) -> (StatusCode, Json<Report>) {
    let report = health.report();
    let code = if report.reason.is_some() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    (code, Json(report))
}

/// Whether new requests should come here: not either while those that run are finished before the end.
async fn tell_ready(State(health): State<Health>) -> (StatusCode, Json<Report>) {
    let (code, Json(report)) = tell_health(State(health)).await;
    if report.status == "draining" {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(report));
    }
    (code, Json(report))
}

impl Health {
    fn report(&self) -> Report {
        let workers = self.workers.borrow();
        let reason = workers.failure();
        let status = if reason.is_some() {
            "unavailable"
        } else if self.shutdown.is_cancelled() {
            "draining"
        } else if workers.is_degraded() {
            "degraded"
        } else {
            "ok"
        };
        let name = |peer: &Peer| peer.state.name();
        let drafts = workers.drafts.iter().map(|(worker, peer)| Draft {
            worker: *worker,
            state: name(peer),
        });
        Report {
            status,
            reason,
            target: workers.target.as_ref().map_or("disconnected", name),
            drafts: drafts.collect(),
        }
    }
}
