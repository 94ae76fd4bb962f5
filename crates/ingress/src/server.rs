//! Listens, and stops in good order: no new connections, then time to finish, then an end. Owns
//! sockets and connections. Never looks into a request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use plimsoll_proxy::record::{AcceptError, ConnectionCut};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::access::AccessGuard;
use super::admin::{self, Probes};
use super::admin_port;
use super::connections::{Connections, HeldConnection};
use super::descriptors;
use super::edge::{Edge, handle, malformed};
use super::origin::OriginGuard;
use super::seldom::Seldom;
use super::socket::Socket;

/// How long the head of a request may take, and how long a kept connection may be idle. This is
/// longer than common clients keep theirs, so that they close first.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The pause after a failed accept. Most often the process has no descriptors left.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many bytes of a connection are buffered in each direction. The head of a request has to fit.
const BUFFER_BYTES: usize = 128 << 10;

/// How many connections may wait to be accepted. The system may allow fewer. Any more are dropped,
/// and a client that has sent its request already sees a reset.
const BACKLOG: u32 = 4096;

/// Why an address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address} ({cause}); free it or choose another by {setting}")]
pub struct BindError {
    address: SocketAddr,
    setting: &'static str,
    cause: std::io::Error,
}

/// How a server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All requests were finished.
    Finished,
    /// The time was up, and this many connections were cut.
    Cut(usize),
}

/// The listeners, bound but not served yet.
pub struct Server {
    agents: TcpListener,
    admin: TcpListener,
    access: Arc<AccessGuard>,
    edge: Arc<Edge>,
    probes: Probes,
    aside: Option<Aside>,
}

impl Server {
    /// Binds both addresses.
    ///
    /// # Errors
    /// [`BindError`] if an address can't be listened on.
    pub async fn bind(edge: Edge, probes: Probes) -> Result<Self, BindError> {
        let settings = edge.settings();
        let agents = listen(settings.listen, "--listen").await?;
        let admin = listen(settings.admin, "--admin").await?;
        let bound = admin.local_addr().unwrap_or(settings.admin);
        let access = AccessGuard::new(settings, bound);
        if let Ok(address) = agents.local_addr() {
            probes.console.serves(format!("http://{address}"));
        }
        Ok(Self {
            agents,
            admin,
            access,
            edge: Arc::new(edge),
            probes,
            aside: None,
        })
    }

    /// Serves another listener too, until the last request of an agent is finished.
    #[must_use]
    pub fn with(self, aside: Option<Aside>) -> Self {
        Self { aside, ..self }
    }

    /// The address of the other listener, if there is one.
    #[must_use]
    pub fn aside_addr(&self) -> Option<SocketAddr> {
        self.aside.as_ref()?.listener.local_addr().ok()
    }

    /// The address for agents, with its real port if 0 was configured.
    ///
    /// # Errors
    /// The system's error.
    pub fn listen_addr(&self) -> std::io::Result<SocketAddr> {
        self.agents.local_addr()
    }

    /// The address for metrics and health.
    ///
    /// # Errors
    /// The system's error.
    pub fn admin_addr(&self) -> std::io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until `stop`, and then drains: connections end when their requests are finished. When
    /// the time is up, the rest is cut, which cancels their upstream requests.
    pub async fn run(self, stop: CancellationToken) -> Drained {
        let drain = self.edge.settings().drain;
        let graceful = GracefulShutdown::new();
        let cut = CancellationToken::new();
        let over = CancellationToken::new();
        // The admin port's thread ends with this, however it ends.
        let _over = over.clone().drop_guard();
        let settings = self.edge.settings();
        let guard = OriginGuard::new(settings.admin.ip(), &settings.hosts, &settings.origins);
        let router = admin::router(guard, self.access, self.probes, stop.clone());
        let edge = Arc::clone(&self.edge);
        let failed =
            move |failures: &mut Seldom, error: &std::io::Error| note(&edge, failures, error);
        let admin = admin_port::serve("admin", self.admin.into_std(), router, failed, over.clone());
        let aside = self.aside.map(|aside| aside.serve(over.clone()));
        tokio::select! {
            () = accept(&self.agents, &self.edge, &graceful, &cut) => {}
            () = stop.cancelled() => {}
        }
        drop(self.agents);
        // The admin listener stays up while the server drains, so that probes see it as draining.
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
        if let Some(aside) = aside {
            let _ended = aside.await;
        }
        drained
    }
}

/// A listener for others than agents, with paths of its own, that is bound but not served yet.
pub struct Aside {
    name: &'static str,
    listener: TcpListener,
    router: Router,
}

impl Aside {
    /// Binds an address. `setting` is how it is chosen, and `name` what its thread is called.
    ///
    /// # Errors
    /// [`BindError`] if the address can't be listened on.
    pub async fn bind(
        name: &'static str,
        address: SocketAddr,
        setting: &'static str,
        router: Router,
    ) -> Result<Self, BindError> {
        let listener = listen(address, setting).await?;
        Ok(Self {
            name,
            listener,
            router,
        })
    }

    /// Serves until `stop`, on a thread of its own. What it returns ends when that has ended.
    fn serve(self, stop: CancellationToken) -> oneshot::Receiver<()> {
        let name = self.name;
        let failed = move |failures: &mut Seldom, error: &std::io::Error| {
            if let Some(failed) = failures.note() {
                tracing::warn!(%error, failed, port = name, "can't accept connections");
            }
        };
        admin_port::serve(name, self.listener.into_std(), self.router, failed, stop)
    }
}

async fn listen(address: SocketAddr, setting: &'static str) -> Result<TcpListener, BindError> {
    bound(address).map_err(|cause| BindError {
        address,
        setting,
        cause,
    })
}

/// Does the same as [`TcpListener::bind`], but with a queue for many connections at once.
fn bound(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Without this, a restart would find the address taken by connections that have ended. On other
    // systems than Unix it would let others take the address.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts for ever. A connection that fails concerns only its client.
async fn accept(
    listener: &TcpListener,
    edge: &Arc<Edge>,
    graceful: &GracefulShutdown,
    cut: &CancellationToken,
) {
    let connections = Connections::new(descriptors::connections());
    let mut failures = Seldom::default();
    loop {
        // Waits before it accepts, so that a connection never takes a descriptor that is kept back.
        connections.room().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let held = connections.hold();
                let (watcher, cut) = (graceful.watcher(), cut.clone());
                tokio::spawn(connection(stream, held, Arc::clone(edge), watcher, cut));
            }
            Err(error) => {
                note(edge, &mut failures, &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Counts an accept that failed.
fn note(edge: &Edge, failures: &mut Seldom, error: &std::io::Error) {
    let why = match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => AcceptError::Descriptors,
        Some(Errno::NOBUFS | Errno::NOMEM) => AcceptError::Memory,
        Some(_) | None => AcceptError::Other,
    };
    edge.metrics().accept_failed(why);
    if let Some(failed) = failures.note() {
        tracing::warn!(
            %error,
            failed,
            "can't accept connections; where files are short, start with a higher `ulimit -n`"
        );
    }
}

/// What all connections have in common. `head` is how long a head may take, and how long they may be idle.
pub(super) fn protocol(head: Duration) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(BUFFER_BYTES);
    protocol
}

async fn connection(
    stream: TcpStream,
    held: HeldConnection,
    edge: Arc<Edge>,
    watcher: Watcher,
    cut: CancellationToken,
) {
    // A client whose address is not known does not count as being on this machine.
    let peer = stream.peer_addr().ok().map(|peer| peer.ip());
    let (shared, slot) = (Arc::clone(&edge), Arc::clone(held.slot()));
    let service = service_fn(move |request| {
        let (edge, busy) = (Arc::clone(&shared), slot.busy());
        // Boxed, because a connection lasts as long as its longest stream. It would otherwise keep
        // room for everything that a request needs before its answer begins.
        Box::pin(async move { Ok::<_, Infallible>(handle(&edge, peer, request, busy).await) })
    });
    let patience = edge.settings().write_timeout;
    let socket = Socket::new(stream, patience, Arc::clone(held.slot()));
    let serving = protocol(HEAD_TIMEOUT).serve_connection(TokioIo::new(socket), service);
    tokio::select! {
        // A broken connection is not reported here: the owner of the body has seen it.
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
