//! The draft worker: it holds the small model and proposes tokens.
//!
//! [`run`] loads the model and serves `specdec.v1.Draft`, and on the same engine `specdec.v1.Target`,
//! for those who ask for the small model alone. `grpc` answers the calls; `stream` is a
//! Propose stream from its first command to its last; `history` keeps what one sequence's cache
//! holds of its committed tokens; `proposer` draws tokens; `outcomes` are what is drafted ahead while the target
//! verifies. Knows nothing of clients, and nothing of the target's model.

mod config;
mod grpc;
mod history;
mod line;
mod outcomes;
mod proposer;
mod sequence;
mod stream;
mod wish;

pub use config::Config;

use grpc::Draft;
use models::Role;
use proto::v1::draft_server::DraftServer;
use service::{CancellationToken, server::MAX_MESSAGE_BYTES};
use tokio::net::TcpListener;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use worker::Pulse;

/// The services: proposals, and the model alone.
static NAMES: [&str; 2] = [DraftServer::<Draft>::NAME, target_worker::NAME];

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
    let loading = worker::load_engine(&config.model, config.lean(), Role::Draft);
    let Some(served) = shutdown.run_until_cancelled(loading).await else {
        return Ok(());
    };
    let served = served?;
    let service = DraftServer::new(Draft::new(served.clone(), shutdown.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let routes = Routes::new(service);
    // A model that lacks tokens would not say what it says as a target.
    let (names, routes) = if config.draft_vocab.is_some() {
        (&NAMES[..1], routes)
    } else {
        let alone = target_worker::service(&served, &shutdown);
        (&NAMES[..], routes.add_service(alone))
    };
    let (access, pulse) = (&config.access, Pulse::default());
    worker::serve(&served, names, routes, access, listener, shutdown, pulse).await
}
