//! Accepting connections, as many as there are places for.

use super::places::{Place, Places};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How many connections the system may hold that wait to be accepted. It takes the lower of this
/// and its own limit (on Linux, `net.core.somaxconn`). Where more come at once they are reset, so
/// this is well above the usual 128: whoever is too many is to be told so by us.
const BACKLOG: u32 = 4096;

/// How long accepting pauses where the system refuses, for example for want of file descriptors.
/// Without it, the accept loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Listens at `address`, ready for many connections at once. Must be called within a Tokio runtime.
///
/// # Errors
/// Where the system does not let it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A server that was just stopped does not keep its address from the next.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

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
    async fn many_connections_may_come_before_any_is_accepted() {
        let listener = listen("127.0.0.1:0".parse().expect("address")).expect("listen");
        let address = listener.local_addr().expect("address");
        // What finds no room is asked for again by the system after a second, and again.
        let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let waiting: Result<Vec<_>, _> = (0..500).map(|_| connect()).collect();
        assert_eq!(waiting.expect("500 that wait").len(), 500);
        let mut acceptor = Acceptor::new(listener, Places::new(&ServerOptions::default()));
        acceptor.next().await;
    }

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
