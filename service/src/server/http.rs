//! Speaking HTTP/1.1 and HTTP/2 over a connection, within limits, until it ends or serving does.

use super::connection::Connection;
use super::{Router, ServerOptions};
use crate::reload::Reloaded;
use crate::tasks::Spawner;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How often a silent HTTP/2 connection is probed, and how long the answer may take.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Headers of one request: how many over HTTP/1, and their bytes.
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Calls at once over one HTTP/2 connection. More wait at the client.
const MAX_STREAMS: u32 = 1024;

/// Streams that a peer opened and reset before we looked at them; one with more is cut off. Much
/// fewer than it takes to make work of it.
const MAX_PENDING_RESETS: usize = 20;

/// Streams that we reset because a peer broke the protocol; one with more is cut off.
const MAX_ERROR_RESETS: usize = 128;

/// What connections are served with.
#[derive(Debug, Clone)]
pub(super) struct Http {
    builder: auto::Builder<Calls>,
    router: Router,
    tls: Option<Reloaded<ServerConfig>>,
    header_timeout: Duration,
    shutdown: CancellationToken,
}

/// Runs the calls of HTTP/2 connections.
#[derive(Debug, Clone)]
struct Calls(Spawner);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        self.0.spawn("call", call);
    }
}

impl Http {
    /// Serves `router`; calls run as tasks of `spawner`, and end early from `shutdown` on.
    pub(super) fn new(
        router: Router,
        tls: Option<Reloaded<ServerConfig>>,
        options: &ServerOptions,
        spawner: Spawner,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            builder: builder(options.header_timeout(), Calls(spawner)),
            router,
            tls,
            header_timeout: options.header_timeout(),
            shutdown,
        }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(self, stream: TcpStream) {
        let deadline = Instant::now() + self.header_timeout;
        let Some(tls) = &self.tls else {
            return self.speak(Connection::new(stream, deadline)).await;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        match timeout_at(deadline, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.speak(Connection::new(stream, deadline)).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
            Err(_) => tracing::debug!("a client took too long to begin TLS"),
        }
    }

    async fn speak<S>(&self, stream: Connection<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(self.router.clone());
        let speaking = self.builder.serve_connection(TokioIo::new(stream), service);
        let mut speaking = std::pin::pin!(speaking);
        let ended = tokio::select! {
            ended = speaking.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                speaking.as_mut().graceful_shutdown();
                speaking.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        }
    }
}

fn builder(header_timeout: Duration, calls: Calls) -> auto::Builder<Calls> {
    let mut builder = auto::Builder::new(calls);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS);
    builder
}
