//! The bytes of a connection: it has to begin in time, and a peer that takes no bytes is lost.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// What every HTTP/2 connection begins with. What differs is HTTP/1, whose parser has a clock of its
/// own; that of HTTP/2 probes the peer.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a peer may take none of the bytes that wait for it.
const WRITE_STALL: Duration = Duration::from_secs(60);

/// A connection that fails where its peer stays silent at its beginning, or reads no more.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    /// While it is not clear yet which protocol it speaks.
    opening: Option<Opening>,
    /// Runs while bytes wait to be sent.
    stalled: Option<Pin<Box<Sleep>>>,
    /// For how long.
    write_stall: Duration,
}

#[derive(Debug)]
struct Opening {
    /// How much of [`PREFACE`] has come.
    matched: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Connection<S> {
    /// `stream`, which must say by `deadline` what it speaks.
    pub(super) fn new(stream: S, deadline: Instant) -> Self {
        Self {
            stream,
            opening: Some(Opening {
                matched: 0,
                deadline: Box::pin(sleep_until(deadline)),
            }),
            stalled: None,
            write_stall: WRITE_STALL,
        }
    }

    /// Passes on what a write came to; an error where nothing could be sent for too long.
    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stall = self.write_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        expired(stalled, cx, "the peer takes no more bytes")
    }
}

impl Opening {
    /// True while `bytes` leave open which protocol it is.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let expected = &PREFACE[self.matched..];
        self.matched += bytes.len();
        self.matched < PREFACE.len() && expected.starts_with(bytes)
    }
}

fn expired<T>(
    clock: &mut Pin<Box<Sleep>>,
    cx: &mut Context<'_>,
    message: &'static str,
) -> Poll<io::Result<T>> {
    let late = |()| Err(io::Error::new(ErrorKind::TimedOut, message));
    clock.as_mut().poll(cx).map(late)
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let Some(opening) = &mut this.opening else {
            return read;
        };
        if opening.take(&buffer.filled()[before..]) {
            if read.is_pending() {
                return expired(&mut opening.deadline, cx, "the peer does not begin");
            }
        } else {
            this.opening = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.watched(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.watched(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.watched(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(50);

    fn pair(write_stall: Duration) -> (Connection<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(64);
        let mut ours = Connection::new(ours, Instant::now() + SHORT);
        ours.write_stall = write_stall;
        (ours, theirs)
    }

    /// A connection on which `said` has come, and its other end.
    async fn after(said: &[u8]) -> (Connection<DuplexStream>, DuplexStream) {
        let (mut ours, mut theirs) = pair(PATIENCE);
        theirs.write_all(said).await.expect("room");
        let mut read = vec![0; said.len()];
        ours.read_exact(&mut read).await.expect("open");
        assert_eq!(read, said);
        (ours, theirs)
    }

    #[tokio::test]
    async fn who_leaves_open_what_it_speaks_is_cut_off() {
        for said in [&b""[..], b"P", &PREFACE[..23]] {
            let (mut ours, _theirs) = after(said).await;
            let next = timeout(PATIENCE, ours.read_u8()).await;
            let error = next.expect("in time").expect_err("too late");
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{said:?}");
        }
    }

    #[tokio::test]
    async fn who_has_begun_may_be_silent() {
        for said in [
            &b"G"[..],
            b"PRx",
            PREFACE,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore",
        ] {
            let (mut ours, _theirs) = after(said).await;
            let silence = timeout(4 * SHORT, ours.read_u8()).await;
            assert!(silence.is_err(), "{said:?}: {silence:?}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_is_lost() {
        let (mut ours, _theirs) = pair(SHORT);
        let written = timeout(PATIENCE, ours.write_all(&[0; 65])).await;
        let error = written.expect("in time").expect_err("stalled");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_peer_that_reads_slowly_is_not() {
        let stall = Duration::from_secs(2);
        let (mut ours, mut theirs) = pair(stall);
        let began = Instant::now();
        let slow = async {
            while began.elapsed() < 2 * stall {
                theirs.read_u8().await.expect("open");
                sleep(stall / 20).await;
            }
            let mut rest = Vec::new();
            theirs.read_to_end(&mut rest).await.expect("open");
        };
        let write = async {
            let written = ours.write_all(&[0; 256]).await;
            drop(ours);
            written
        };
        let (written, ()) = tokio::join!(write, slow);
        written.expect("sent");
    }
}
