//! Serving a worker's gRPC service, with health that follows the engine.

use crate::{AccessOptions, Served, metrics};
use engine::{Engine, EngineError};
use service::server::{HealthReporter, Services, ServingStatus};
use service::{CancellationToken, Tasks};
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::Routes;

/// How long sequences that are open when shutdown begins may go on.
const GRACE: Duration = Duration::from_secs(10);

/// How often the engine's thread is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(1);

/// How the engine's life is told from its death.
#[derive(Debug, Clone, Copy)]
pub struct Pulse {
    /// How long a step of the engine may take before the worker is reported as not serving. Far more
    /// than any usable model's takes.
    pub patience: Duration,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
        }
    }
}

/// Serves `routes`, which hold the services `names`, and the worker's metrics, to whom `access` lets in,
/// until `shutdown`. The health
/// of `names`, and of the server as a whole, is serving while the engine makes progress, as `pulse` says.
///
/// # Errors
/// As [`service::server::serve`].
pub async fn serve(
    served: &Served,
    names: &'static [&'static str],
    routes: Routes,
    access: &AccessOptions,
    listener: TcpListener,
    shutdown: CancellationToken,
    pulse: Pulse,
) -> anyhow::Result<()> {
    let (reporter, health) = service::server::health(&shutdown);
    let health_of = HealthOf { reporter, names };
    health_of.report(ServingStatus::Serving).await;
    let tasks = Tasks::new();
    let engine = served.engine.clone();
    tasks.spawn("engine health", follow(engine, health_of, pulse));
    let services = Services {
        grpc: routes.add_service(health),
        http: service::telemetry::metrics::router(metrics::registry(served.engine.clone())),
        gate: access.gate(&tasks)?,
    };
    service::server::serve(listener, services, &access.server, shutdown, GRACE).await
}

/// Whose health is reported.
struct HealthOf {
    reporter: HealthReporter,
    names: &'static [&'static str],
}

impl HealthOf {
    async fn report(&self, status: ServingStatus) {
        for service in self.names.iter().chain(&[""]) {
            self.reporter.set_service_status(*service, status).await;
        }
    }
}

/// Reports that nothing is served while the engine's thread makes no progress, and once it has stopped.
async fn follow(engine: Engine, health: HealthOf, pulse: Pulse) {
    loop {
        let alive = tokio::select! {
            alive = beat(&engine, &health, pulse.patience) => alive,
            () = engine.stopped() => Err(EngineError::Stopped),
        };
        if alive.is_err() {
            tracing::error!("the engine has stopped: this worker serves no more");
            return health.report(ServingStatus::NotServing).await;
        }
    }
}

/// Waits for one sign of life, and a while after it.
async fn beat(engine: &Engine, health: &HealthOf, patience: Duration) -> Result<(), EngineError> {
    let mut answer = pin!(engine.ping());
    match tokio::time::timeout(patience, &mut answer).await {
        Ok(alive) => alive?,
        Err(_) => {
            tracing::error!(
                ?patience,
                "the engine makes no progress: this worker does not serve"
            );
            health.report(ServingStatus::NotServing).await;
            answer.await?;
            tracing::info!("the engine makes progress again");
            health.report(ServingStatus::Serving).await;
        }
    }
    tokio::time::sleep(PING_EVERY).await;
    Ok(())
}
