//! A gRPC server: limits, keepalive, health, reflection, draining.

use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// The largest message that any of our servers and channels takes: a prompt of a million ids.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Serves `routes` on `listener`, with reflection of `specdec.v1` beside them, until `shutdown`;
/// then lets open calls end for at most `grace`.
///
/// Prints `listening on http://ADDRESS` on standard output once calls are taken.
///
/// # Errors
/// Where serving fails or `grace` passes with calls still open.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    shutdown: CancellationToken,
    grace: Duration,
) -> anyhow::Result<()> {
    let _ = (listener, routes, shutdown, grace);
    todo!("helper: service")
}
