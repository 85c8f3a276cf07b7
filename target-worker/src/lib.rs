//! The target worker: it holds the big model, samples from it and verifies proposals, so that its
//! logits never leave it.
//!
//! [`run`] loads the model and serves `specdec.v1.Target`; [`service()`] does so for a model that another
//! worker has loaded. `grpc` answers the calls; `stream` is a
//! Verify stream from its first command to its last; `session` is one sequence, and `judge` what reads
//! its logits. Knows nothing of
//! clients, and nothing of where a proposal comes from.

mod config;
mod grpc;
mod judge;
mod session;
mod stream;

pub use config::Config;

use ::service::{CancellationToken, server::MAX_MESSAGE_BYTES};
use engine::Lean;
use grpc::Target;
use models::Role;
use proto::v1::target_server::{self, TargetServer};
use tokio::net::TcpListener;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use worker::{Pulse, Served};

/// The name of the service, for those who ask for its health.
pub const NAME: &str = TargetServer::<Target>::NAME;

/// Loads the model and serves it on `listener` until `shutdown`; sequences that are open then may
/// go on for a while.
///
/// # Errors
/// Where the model cannot be loaded, naming it, or where serving fails.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let loading = worker::load_engine(&config.model, Lean::default(), Role::Target);
    let Some(served) = shutdown.run_until_cancelled(loading).await else {
        return Ok(());
    };
    let served = served?;
    let routes = Routes::new(service(&served, &shutdown));
    let (access, pulse) = (&config.access, Pulse::default());
    worker::serve(&served, &[NAME], routes, access, listener, shutdown, pulse).await
}

/// `specdec.v1.Target` on `served`, which may serve other calls beside it. From `shutdown` on it takes
/// no more sequences.
pub fn service(
    served: &Served,
    shutdown: &CancellationToken,
) -> TargetServer<impl target_server::Target> {
    TargetServer::new(Target::new(served.clone(), shutdown.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}
