//! Accepting connections, as many as there are places for.

use super::places::{Place, Places};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long accepting pauses where the system refuses, for example for want of file descriptors.
/// Without it, the accept loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Accepts connections.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: TcpListener,
    places: Arc<Places>,
    /// True where the last connection found no place.
    full: bool,
}

impl Acceptor {
    /// Accepts at `listener` while there are `places`.
    pub(super) fn new(listener: TcpListener, places: Places) -> Self {
        Self {
            listener,
            places: Arc::new(places),
            full: false,
        }
    }

    /// The next connection that has a place, without Nagle's delay. Others are closed.
    pub(super) async fn next(&mut self) -> (TcpStream, Place) {
        loop {
            let accepted = self.listener.accept().await.and_then(|(stream, peer)| {
                stream.set_nodelay(true)?;
                Ok((stream, peer.ip()))
            });
            match accepted {
                Ok((stream, peer)) => match self.places.take(peer) {
                    Some(place) => {
                        self.full = false;
                        return (stream, place);
                    }
                    None if std::mem::replace(&mut self.full, true) => {}
                    None => tracing::warn!(%peer, "too many connections: more are closed at once"),
                },
                Err(error) if is_of_one_connection(&error) => {
                    tracing::debug!(%error, "connection was lost before it was accepted");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// True where the next connection may well be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::InvalidInput
            | ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerOptions;

    #[tokio::test]
    async fn accepted_connections_send_small_messages_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let mut acceptor = Acceptor::new(listener, Places::new(&ServerOptions::default()));
        let ((ours, _place), theirs) = tokio::join!(acceptor.next(), TcpStream::connect(address));
        theirs.expect("connected");
        assert!(ours.nodelay().expect("socket option"));
    }
}
