//! Listening, and stopping in good order: no new connections, a time to finish, then an end. Owns
//! sockets and connections; never looks into a request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admin::{self, Probes};
use super::connections::{Connections, Held};
use super::descriptors;
use super::edge::{Edge, handle, malformed};
use super::origin::Guard;
use super::socket::Socket;
use crate::record::{AcceptError, ConnectionCut};

/// How long a request's head may take, and a kept connection may idle. Longer than the pools of
/// common clients keep theirs, so that it is they who close first.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// After a failed accept (no file handles left, mostly) the next is tried so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Failed accepts are said once in so long.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Bytes of a connection that are held on their way in or out. A request's head has to fit.
const BUFFER: usize = 128 << 10;

/// Connections that may wait to be accepted; the system may allow fewer. Past that they are dropped,
/// and a client whose request was sent already sees a reset.
const BACKLOG: u32 = 4096;

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address} ({cause}); free it or choose another by {setting}")]
pub struct BindError {
    address: SocketAddr,
    setting: &'static str,
    cause: std::io::Error,
}

/// How a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every request was finished.
    Finished,
    /// The deadline passed, and so many connections were cut.
    Cut(usize),
}

/// Two bound listeners, not yet served.
pub struct Server {
    agents: TcpListener,
    admin: TcpListener,
    edge: Arc<Edge>,
    probes: Probes,
}

impl Server {
    /// Binds both addresses.
    ///
    /// # Errors
    /// If one can't be listened on.
    pub async fn bind(edge: Edge, probes: Probes) -> Result<Self, BindError> {
        let config = edge.config();
        let agents = listen(config.listen, "--listen").await?;
        let admin = listen(config.admin, "--admin").await?;
        Ok(Self {
            agents,
            admin,
            edge: Arc::new(edge),
            probes,
        })
    }

    /// Where agents connect: the real port where 0 was asked for.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn listen_addr(&self) -> std::io::Result<SocketAddr> {
        self.agents.local_addr()
    }

    /// Where metrics and health are.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn admin_addr(&self) -> std::io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until `stop`, then drains: finished requests end their connections, and at the
    /// deadline the rest is cut, which cancels their upstream requests.
    pub async fn run(self, stop: CancellationToken) -> Drained {
        let drain = self.edge.config().drain;
        let graceful = GracefulShutdown::new();
        let cut = CancellationToken::new();
        let over = CancellationToken::new();
        let config = self.edge.config();
        let guard = Guard::new(config.admin.ip(), &config.hosts, &config.origins);
        let admin = tokio::spawn(admin::serve(
            self.admin,
            guard,
            self.probes,
            stop.clone(),
            over.clone(),
        ));
        tokio::select! {
            () = accept(&self.agents, &self.edge, &graceful, &cut) => {}
            () = stop.cancelled() => {}
        }
        drop(self.agents);
        let open = graceful.count();
        let mut finished = std::pin::pin!(graceful.shutdown());
        let drained = match tokio::time::timeout(drain, &mut finished).await {
            Ok(()) => Drained::Finished,
            Err(_) => {
                cut.cancel();
                finished.await;
                Drained::Cut(open)
            }
        };
        over.cancel();
        let _ended = admin.await;
        drained
    }
}

async fn listen(address: SocketAddr, setting: &'static str) -> Result<TcpListener, BindError> {
    bound(address).map_err(|cause| BindError {
        address,
        setting,
        cause,
    })
}

/// As [`TcpListener::bind`], but with a queue for all that come at once.
fn bound(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Else a restart would find the address taken by connections that have ended. Elsewhere than on
    // Unix this means that others may take it too.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts for ever. A connection that fails is its client's matter.
async fn accept(
    listener: &TcpListener,
    edge: &Arc<Edge>,
    graceful: &GracefulShutdown,
    cut: &CancellationToken,
) {
    let connections = Connections::new(descriptors::connections());
    let mut failures = Failures::default();
    loop {
        // Before the system is asked for one, so that no descriptor is taken that is kept back.
        connections.room().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let held = connections.hold();
                let (watcher, cut) = (graceful.watcher(), cut.clone());
                tokio::spawn(connection(stream, held, Arc::clone(edge), watcher, cut));
            }
            Err(error) => {
                failures.note(edge, &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What could not be accepted, said now and then and not each time.
#[derive(Default)]
struct Failures {
    said: Option<Instant>,
    since: u64,
}

impl Failures {
    fn note(&mut self, edge: &Edge, error: &std::io::Error) {
        let why = match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => AcceptError::Descriptors,
            Some(Errno::NOBUFS | Errno::NOMEM) => AcceptError::Memory,
            Some(_) | None => AcceptError::Other,
        };
        edge.metrics().accept_failed(why);
        self.since += 1;
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            tracing::warn!(
                %error,
                failed = self.since,
                "can't accept connections; where files are short, start with a higher `ulimit -n`"
            );
            (self.said, self.since) = (Some(Instant::now()), 0);
        }
    }
}

async fn connection(
    stream: TcpStream,
    held: Held,
    edge: Arc<Edge>,
    watcher: Watcher,
    cut: CancellationToken,
) {
    // Whose address is not known is not on this machine.
    let peer = stream.peer_addr().ok().map(|peer| peer.ip());
    let (shared, slot) = (Arc::clone(&edge), Arc::clone(held.slot()));
    let service = service_fn(move |request| {
        let (edge, busy) = (Arc::clone(&shared), slot.busy());
        // Boxed, because a connection lasts as long as its longest stream, and would else keep the
        // room of everything that a request needs before its answer begins.
        Box::pin(async move { Ok::<_, Infallible>(handle(&edge, peer, request, busy).await) })
    });
    let patience = edge.config().write_timeout;
    let socket = Socket::new(stream, patience, Arc::clone(held.slot()));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(socket), service);
    tokio::select! {
        // A broken connection is no event: the body's owner has seen it.
        ended = watcher.watch(serving) => if let Err(error) = ended {
            malformed(&edge, &error);
        },
        () = held.slot().asked_to_leave() => edge.metrics().connection_cut(ConnectionCut::Idle),
        () = cut.cancelled() => {}
    }
    if held.slot().has_stalled() {
        edge.metrics().connection_cut(ConnectionCut::Stalled);
    }
}
