//! A server of gRPC and HTTP on one port: keepalive, health, reflection, draining. Knows nothing of
//! what its services do.

mod connection;
mod health;

pub use axum::Router;
pub use health::health;
pub use tonic_health::ServingStatus;
pub use tonic_health::server::HealthReporter;

use anyhow::Context as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

/// The largest message that any of our servers and channels takes: a prompt of a million ids.
///
/// Whoever builds a service or a client sets it there, with `max_decoding_message_size`; tonic's
/// own limit is 4 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// How often a silent connection is probed, and how long the answer may take.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Calls were still open when the time for draining was over. They were cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("calls were still open {0:?} after shutdown began")]
pub struct GraceExpired(pub Duration);

/// Serves `routes` on `listener`, with reflection of `specdec.v1` beside them, and what `http` has for
/// clients that do not speak gRPC, until `shutdown`; then lets open calls end for at most `grace`. When it returns, or is dropped, no connection is
/// left. [`health`] makes the health service, for the caller to put among `routes`.
///
/// Prints `listening on http://ADDRESS` on standard output once calls are taken.
///
/// # Errors
/// Where serving fails, or with [`GraceExpired`] where `grace` passes with calls still open.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    http: Router,
    shutdown: CancellationToken,
    grace: Duration,
) -> anyhow::Result<()> {
    let address = listener.local_addr().context("read the bound address")?;
    let cut_off = CancellationToken::new();
    let _cut_off_on_return = cut_off.clone().drop_guard();
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .accept_http1(true)
        .add_routes(Routes::from(
            with_reflection(routes)?.into_axum_router().merge(http),
        ))
        .serve_with_incoming_shutdown(
            connection::accepted(listener, cut_off),
            shutdown.clone().cancelled_owned(),
        );
    announce(address);
    tokio::select! {
        ended = serving => ended.context("serve gRPC"),
        () = passed(&shutdown, grace) => Err(GraceExpired(grace).into()),
    }
}

/// Ends when `grace` has passed since `shutdown`.
async fn passed(shutdown: &CancellationToken, grace: Duration) {
    shutdown.cancelled().await;
    tracing::info!(?grace, "draining open calls");
    tokio::time::sleep(grace).await;
}

/// Adds both versions of the reflection service: tools ask for either.
fn with_reflection(routes: Routes) -> anyhow::Result<Routes> {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let context = "read the descriptors for reflection";
    Ok(routes
        .add_service(described().build_v1().context(context)?)
        .add_service(described().build_v1alpha().context(context)?))
}

/// Tells whoever started the process where it listens: with port 0 only this line does.
fn announce(address: SocketAddr) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "listening on http://{address}").and_then(|()| out.flush());
    if let Err(error) = written {
        tracing::debug!(%error, "standard output is closed");
    }
    tracing::info!(%address, "listening");
}
