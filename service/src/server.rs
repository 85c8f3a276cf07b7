//! A server of gRPC and HTTP on one port: TLS, limits, keys, health, reflection, draining. Knows
//! nothing of what its services do.

mod accept;
mod body;
mod connection;
mod gate;
mod health;
mod http;
mod options;
mod places;

pub use accept::listen;
pub use axum::Router;
pub use body::timely_bodies;
pub use gate::Gate;
pub use health::health;
pub use options::ServerOptions;
pub use tonic_health::ServingStatus;
pub use tonic_health::server::HealthReporter;

use crate::Tasks;
use crate::reload::{Reloaded, reloaded};
use accept::Acceptor;
use anyhow::Context as _;
use http::Http;
use places::Places;
use rustls::ServerConfig;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// The largest message that any of our servers and channels takes: a prompt of a million ids.
///
/// Whoever builds a service or a client sets it there, with `max_decoding_message_size`; tonic's
/// own limit is 4 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Calls were still open when the time for draining was over. They were cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("calls were still open {0:?} after shutdown began")]
pub struct GraceExpired(pub Duration);

/// What is served, and to whom.
#[derive(Debug, Default)]
pub struct Services {
    /// For clients that speak gRPC. [`health`] makes the health service, for the caller to put among
    /// them; reflection of `specdec.v1` is added.
    pub grpc: Routes,
    /// For clients that do not. Their requests' bodies have to come in time.
    pub http: Router,
    /// Who may call; anybody where there is none.
    pub gate: Option<Gate>,
}

/// Serves `services` on `listener` until `shutdown`; then lets open calls end for at most `grace`.
/// When it returns, or is dropped, no connection is left.
///
/// Prints `listening on http://ADDRESS` (or `https`) on standard output once calls are taken.
///
/// # Errors
/// Where serving fails, or with [`GraceExpired`] where `grace` passes with calls still open.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    options: &ServerOptions,
    shutdown: CancellationToken,
    grace: Duration,
) -> anyhow::Result<()> {
    let address = listener.local_addr().context("read the bound address")?;
    let (upkeep, connections) = (Tasks::new(), Tasks::new());
    let tls = certificates(options, &upkeep)?;
    let encrypted = tls.is_some();
    let router = services.router(options)?;
    let spawner = connections.spawner();
    let http = Http::new(router, tls, options, spawner.clone(), shutdown.clone());
    let mut acceptor = Acceptor::new(listener, Places::new(options));
    announce(address, encrypted);
    while let Some((stream, place)) = shutdown.run_until_cancelled(acceptor.next()).await {
        let serving = http.clone().serve(stream);
        spawner.spawn("connection", async move {
            serving.await;
            drop(place);
        });
    }
    // Closes the listener: whoever comes now is refused by the system.
    drop(acceptor);
    tracing::info!(?grace, "draining open calls");
    let drained = tokio::time::timeout(grace, connections.finished()).await;
    drained.map_err(|_| GraceExpired(grace).into())
}

/// The server's certificates, read again on SIGHUP; `None` where it does not speak TLS.
fn certificates(
    options: &ServerOptions,
    upkeep: &Tasks,
) -> anyhow::Result<Option<Reloaded<ServerConfig>>> {
    if !options.is_encrypted() {
        return Ok(None);
    }
    let options = options.clone();
    let read = move || {
        let missing = || crate::config::ConfigError("--tls-cert: is not set".to_owned());
        options.read_tls()?.ok_or_else(missing)
    };
    reloaded(upkeep, "TLS certificates", read).map(Some)
}

impl Services {
    /// All routes, behind the gate.
    fn router(self, options: &ServerOptions) -> anyhow::Result<Router> {
        let grpc = with_reflection(self.grpc)?.into_axum_router();
        let router = grpc.merge(timely_bodies(self.http, options.body_timeout()));
        Ok(match self.gate {
            Some(gate) => gate.before(router),
            None => router,
        })
    }
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
fn announce(address: SocketAddr, encrypted: bool) {
    let scheme = if encrypted { "https" } else { "http" };
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "listening on {scheme}://{address}").and_then(|()| out.flush());
    if let Err(error) = written {
        tracing::debug!(%error, "standard output is closed");
    }
    tracing::info!(%address, scheme, "listening");
}
