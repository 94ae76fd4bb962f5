//! Connections that can be closed from outside, between any two bytes.
//!
//! Owns the listener and the thin layer over each socket that a fault needs to close it before
//! any header is written. It never looks at what is sent.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// A handle on one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link(Arc<State>);

#[derive(Debug, Default)]
struct State {
    closed: AtomicBool,
    reader: AtomicWaker,
}

impl Link {
    /// Closes the connection: nothing is written from now on, and reading meets the end.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.reader.wake();
    }

    fn closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }
}

/// All connections of a listener.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links(Arc<Mutex<Vec<Weak<State>>>>);

impl Links {
    fn open(&self) -> Link {
        let link = Link::default();
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|known| known.strong_count() > 0);
        links.push(Arc::downgrade(&link.0));
        link
    }

    /// Closes every connection that is open.
    pub(crate) fn close(&self) {
        let links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for state in links.iter().filter_map(Weak::upgrade) {
            Link(state).close();
        }
    }
}

/// A TCP listener whose connections are links.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    links: Links,
}

impl Port {
    /// Binds a port of the loopback interface, 0 for any.
    pub(crate) async fn bind(port: u16, links: Links) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok((Self { listener, links }, address))
    }
}

impl Listener for Port {
    type Io = Socket;
    type Addr = Link;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // Small writes must leave at once, or cuts between them would be undone. A
                    // socket that refuses the option is still a socket.
                    stream.set_nodelay(true).ok();
                    let link = self.links.open();
                    return (
                        Socket {
                            stream,
                            link: link.clone(),
                        },
                        link,
                    );
                }
                // Out of descriptors, most likely: wait for some to be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Link::default())
    }
}

impl Connected<IncomingStream<'_, Port>> for Link {
    fn connect_info(stream: IncomingStream<'_, Port>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A socket that heeds its link.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    link: Link,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.link.0.reader.register(context.waker());
        if self.link.closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.link.closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
