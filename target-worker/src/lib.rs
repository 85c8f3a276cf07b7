//! The target worker: it holds the big model, samples from it and verifies proposals, so that its
//! logits never leave it.
//!
//! [`run`] loads the model and serves `specdec.v1.Target`. `grpc` answers the calls; `stream` is a
//! Verify stream from its first command to its last; `session` is one sequence, and `judge` what reads
//! its logits. Knows nothing of
//! clients, and nothing of where a proposal comes from.

mod config;
mod grpc;
mod judge;
mod session;
mod stream;

pub use config::Config;

use engine::Lean;
use grpc::Target;
use models::Role;
use proto::v1::target_server::TargetServer;
use service::{CancellationToken, server::MAX_MESSAGE_BYTES};
use tokio::net::TcpListener;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use worker::Pulse;

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
    let service = TargetServer::new(Target::new(served.clone(), shutdown.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let name = TargetServer::<Target>::NAME;
    let routes = Routes::new(service);
    let (access, pulse) = (&config.access, Pulse::default());
    worker::serve(&served, name, routes, access, listener, shutdown, pulse).await
}
