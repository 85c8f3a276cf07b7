//! Accepted connections: without Nagle's delay, and closed from our side when serving is over.

use futures::{Stream, stream};
use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long accepting pauses where the system refuses, for example for want of file descriptors.
/// Without it, the accept loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The connections that `listener` accepts, without end. All close when `cut_off` is cancelled.
pub(super) fn accepted(
    listener: TcpListener,
    cut_off: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    stream::unfold((listener, cut_off), |(listener, cut_off)| async move {
        let connection = Connection {
            stream: accept(&listener).await,
            cut_off: Box::pin(cut_off.clone().cancelled_owned()),
        };
        Some((Ok(connection), (listener, cut_off)))
    })
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        match accepted {
            Ok(stream) => return stream,
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

/// A connection that fails once serving is over, which ends its calls.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    cut_off: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    /// The stream, or an error once serving is over. Wakes the task of `cx` at that moment.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.cut_off.as_mut().poll(cx) {
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
            Poll::Ready(()) => Err(io::Error::new(
                ErrorKind::ConnectionAborted,
                "the server has shut down",
            )),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().open(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().open(cx)?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().open(cx)?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().open(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn pair(cut_off: &CancellationToken) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let mut accepted = Box::pin(accepted(listener, cut_off.clone()));
        let (ours, theirs) = tokio::join!(accepted.next(), TcpStream::connect(address));
        (
            ours.expect("endless").expect("accepted"),
            theirs.expect("connected"),
        )
    }

    #[tokio::test]
    async fn accepted_connections_send_small_messages_at_once() {
        let (ours, _theirs) = pair(&CancellationToken::new()).await;
        assert!(ours.stream.nodelay().expect("socket option"));
    }

    #[tokio::test]
    async fn cutting_off_wakes_a_reader_and_fails_a_writer() {
        let cut_off = CancellationToken::new();
        let (mut ours, mut theirs) = pair(&cut_off).await;
        theirs.write_all(b"x").await.expect("write");
        assert_eq!(ours.read_u8().await.expect("open"), b'x');

        let read = tokio::time::timeout(Duration::from_secs(30), ours.read_u8());
        let (read, ()) = tokio::join!(read, async { cut_off.cancel() });
        let read = read.expect("woken in time").expect_err("cut off");
        assert_eq!(read.kind(), ErrorKind::ConnectionAborted);
        let write = ours.write_all(b"y").await;
        assert_eq!(
            write.expect_err("cut off").kind(),
            ErrorKind::ConnectionAborted
        );
    }
}
