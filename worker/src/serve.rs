//! Serving a worker's gRPC service, with health that follows the engine.

use crate::{AccessOptions, Served};
use engine::Engine;
use service::server::{HealthReporter, Services, ServingStatus};
use service::{CancellationToken, Tasks};
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::Routes;

/// How long sequences that are open when shutdown begins may go on.
const GRACE: Duration = Duration::from_secs(10);

/// Serves `routes`, which hold the service `name`, to whom `access` lets in, until `shutdown`. The health of `name`, and of
/// the server as a whole, is serving until the engine has stopped.
///
/// # Errors
/// As [`service::server::serve`].
pub async fn serve(
    served: &Served,
    name: &'static str,
    routes: Routes,
    access: &AccessOptions,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (reporter, health) = service::server::health(&shutdown);
    reporter
        .set_service_status(name, ServingStatus::Serving)
        .await;
    let tasks = Tasks::new();
    tasks.spawn(
        "engine health",
        follow(served.engine.clone(), reporter, name),
    );
    let services = Services {
        grpc: routes.add_service(health),
        gate: access.gate(&tasks)?,
        ..Services::default()
    };
    service::server::serve(listener, services, &access.server, shutdown, GRACE).await
}

/// Reports that nothing is served any more once the engine has stopped.
async fn follow(engine: Engine, reporter: HealthReporter, name: &'static str) {
    engine.stopped().await;
    tracing::error!("the engine has stopped: this worker serves no more");
    for service in ["", name] {
        reporter
            .set_service_status(service, ServingStatus::NotServing)
            .await;
    }
}
