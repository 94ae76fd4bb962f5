//! A client's connection as a stream of bytes that is cut if the client does not read. Owns the
//! clock of a write that waits. Never looks at what is written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::ConnectionState;

/// How many unsent bytes the system takes. More would only wait there, and a client that does not
/// read could make megabytes wait. The sooner such a client is noticed, the less its upstream has
/// sent by then: the HTTP client reads more at once from a connection on which more has piled up,
/// and the proxy holds what it read. The window of the connection is not limited by it.
const UNSENT_BYTES: u32 = 32 << 10;

/// A connection whose writes may wait only for a limited time.
pub(super) struct Socket {
    stream: TcpStream,
    patience: Duration,
    /// Made by the first write that waits, and set again by each later one. A write that does not
    /// wait costs nothing.
    clock: Option<Pin<Box<Sleep>>>,
    waits: bool,
    slot: Arc<ConnectionState>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, patience: Duration, slot: Arc<ConnectionState>) -> Self {
        // Without this, Nagle's algorithm and delayed acknowledgements cost a stream 40 ms per
        // frame.
        let _unsupported = stream.set_nodelay(true);
        tune(&stream, patience);
        Self {
            stream,
            patience,
            clock: None,
            waits: false,
            slot,
        }
    }

    /// Checks the outcome of a write. A write that waited too long fails.
    fn watched(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if wrote.is_ready() {
            if self.waits {
                self.waits = false;
                self.slot.writing(false);
            }
            return wrote;
        }
        let until = Instant::now() + self.patience;
        let clock = self
            .clock
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        // The clock begins with the first write that waits, and not with each attempt.
        if !self.waits {
            self.waits = true;
            self.slot.writing(true);
            clock.as_mut().reset(until);
        }
        ready!(clock.as_mut().poll(cx));
        self.slot.stalled();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Tells the system to hold little for a client that does not read, and to give up a client that is
/// gone, even after the last write. An option that a system does not know is skipped.
#[cfg(target_os = "linux")]
fn tune(stream: &TcpStream, patience: Duration) {
    let socket = socket2::SockRef::from(stream);
    let _unsupported = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
    let _unsupported = socket.set_tcp_user_timeout(Some(patience * 2));
}

#[cfg(not(target_os = "linux"))]
fn tune(stream: &TcpStream, _patience: Duration) {
    let _unsupported = socket2::SockRef::from(stream).set_send_buffer_size(UNSENT_BYTES as usize);
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.watched(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
