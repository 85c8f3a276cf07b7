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
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(WRITE_STALL)));
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

    const LIMIT: Duration = Duration::from_secs(5);

    fn pair() -> (Connection<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(64);
        (Connection::new(ours, Instant::now() + LIMIT), theirs)
    }

    /// What reading comes to after `said`, however long it takes.
    async fn after(said: &[u8]) -> io::Result<u8> {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(said).await?;
        let mut read = vec![0; said.len()];
        ours.read_exact(&mut read).await?;
        let began = Instant::now();
        let later = async {
            tokio::time::sleep(2 * LIMIT).await;
            theirs.write_all(b"x").await?;
            std::future::pending::<io::Result<()>>().await
        };
        let next = tokio::select! {
            next = ours.read_u8() => next,
            _ = later => unreachable!("it never ends"),
        };
        assert!(next.is_ok() || began.elapsed() >= LIMIT - Duration::from_millis(1));
        next
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_open_what_it_speaks_is_cut_off() {
        for said in [&b""[..], b"P", &PREFACE[..23]] {
            let error = after(said).await.expect_err("too late");
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_begun_may_be_silent() {
        for said in [
            &b"G"[..],
            b"PRx",
            PREFACE,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore",
        ] {
            assert_eq!(after(said).await.expect("open"), b'x', "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_lost() {
        let (mut ours, _theirs) = pair();
        let error = ours.write_all(&[0; 65]).await.expect_err("stalled");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_not() {
        let (mut ours, mut theirs) = pair();
        let slow = async {
            for _ in 0..128 {
                tokio::time::sleep(WRITE_STALL / 2).await;
                theirs.read_u8().await.expect("open");
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 192]), slow);
        written.expect("sent");
    }
}
