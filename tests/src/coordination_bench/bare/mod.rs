//! The measure of the coordinator's own cost: two programs that exchange its messages, of the same
//! sizes and in the same pattern, over the same server and channels, and decide nothing.

mod front;
mod stub;

pub use front::{BareOptions, serve_bare};
pub use stub::{StubOptions, serve_stub};

use anyhow::Result;
use service::CancellationToken;
use service::server;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::Routes;

/// Frames that wait for a connection to take them.
const WAITING: usize = 64;

/// Serves until it is killed.
async fn serve(listen: &str, routes: Routes) -> Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let services = server::Services {
        grpc: routes,
        ..server::Services::default()
    };
    server::serve(
        listener,
        services,
        &server::ServerOptions::default(),
        CancellationToken::new(),
        Duration::ZERO,
    )
    .await
}
