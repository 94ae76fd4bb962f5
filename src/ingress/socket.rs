//! A client's connection as a stream of bytes that is cut where its client does not read. Owns the
//! clock of a write that waits; never looks at what is written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::Slot;

/// Bytes that the system takes of us beyond what it has sent: more would only wait there, where a
/// client that does not read could have megabytes wait.
const UNSENT: u32 = 128 << 10;

/// A connection whose writes may wait only so long.
pub(super) struct Socket {
    stream: TcpStream,
    patience: Duration,
    /// Made by the first write that waits, and set anew by each further one: a write that does
    /// not wait costs nothing.
    clock: Option<Pin<Box<Sleep>>>,
    waits: bool,
    slot: Arc<Slot>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, patience: Duration, slot: Arc<Slot>) -> Self {
        // Without this, Nagle and delayed acknowledgement cost a stream 40 ms a frame.
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

    /// What came of a write; one that has waited too long has failed.
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

/// Has the system hold little for a client that does not read, and give up one that is gone, also
/// behind our last write. What a system does not know is left as it is.
#[cfg(target_os = "linux")]
fn tune(stream: &TcpStream, patience: Duration) {
    let socket = socket2::SockRef::from(stream);
    let _unsupported = socket.set_tcp_notsent_lowat(UNSENT);
    let _unsupported = socket.set_tcp_user_timeout(Some(patience * 2));
}

#[cfg(not(target_os = "linux"))]
fn tune(stream: &TcpStream, _patience: Duration) {
    let _unsupported = socket2::SockRef::from(stream).set_send_buffer_size(UNSENT as usize);
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
