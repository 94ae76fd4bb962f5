//! The sockets of the admin listener, and of what else is no agent's, and the thread that serves them: `/livez`
//! answers while the workers are busy, and a connection that does nothing takes no descriptor from an agent. Owns
//! these. Never knows what is answered.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use plimsoll_console::Viewer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::connections::{Busy, Connections, HeldConnection};
use super::descriptors;
use super::limit::HeldBody;
use super::seldom::Seldom;
use super::server::{ACCEPT_PAUSE, HEAD_TIMEOUT, protocol};
use super::socket::Socket;

/// How long a reader may take nothing of what waits for it.
const READER_PATIENCE: Duration = Duration::from_secs(30);
/// How many threads read the store for answers at most.
const READERS: usize = 32;

/// Serves on a thread of its own, which has this name, until `stop`. What it returns ends when that has ended. Agents
/// are served even if there is no thread for it.
pub(super) fn serve(
    name: &'static str,
    listener: io::Result<std::net::TcpListener>,
    router: Router,
    failed: impl Fn(&mut Seldom, &io::Error) + Send + 'static,
    stop: CancellationToken,
) -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    let work = move || {
        if let Err(error) = listener.and_then(|listener| served(listener, router, failed, stop)) {
            tracing::error!(%error, port = name, "a port can't be served; agents are");
        }
        drop(ended);
    };
    let thread = thread::Builder::new().name(name.to_owned());
    if let Err(error) = thread.spawn(work) {
        tracing::error!(%error, port = name, "there is no thread for a port; agents are served");
    }
    end
}

fn served(
    listener: std::net::TcpListener,
    router: Router,
    failed: impl Fn(&mut Seldom, &io::Error),
    stop: CancellationToken,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READERS)
        .build()?;
    let served = runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        tokio::select! {
            () = accept(&listener, &router, failed, HEAD_TIMEOUT) => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    });
    // A session that is being played must not delay the end.
    runtime.shutdown_background();
    served
}

/// Accepts for ever, and tells of each accept that failed. If all places are taken, the connection that has been
/// idle for longest goes.
async fn accept(
    listener: &TcpListener,
    router: &Router,
    failed: impl Fn(&mut Seldom, &io::Error),
    head: Duration,
) {
    let connections = Connections::new(descriptors::admin_connections());
    let mut failures = Seldom::default();
    loop {
        connections.room().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, connections.hold(), router.clone(), head));
            }
            Err(error) => {
                failed(&mut failures, &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, held: HeldConnection, router: Router, head: Duration) {
    let (slot, router) = (Arc::clone(held.slot()), TowerToHyperService::new(router));
    let viewer = Viewer(stream.peer_addr().ok().map(|peer| peer.ip().to_canonical()));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(viewer);
        let (busy, answer) = (slot.busy(), router.call(request));
        async move {
            let response = answer.await?;
            Ok::<_, Infallible>(while_busy(response, busy))
        }
    });
    let socket = Socket::new(stream, READER_PATIENCE, Arc::clone(held.slot()));
    tokio::select! {
        // Whoever asked has gone, or said something that is not HTTP and was told so.
        _ended = protocol(head).serve_connection(TokioIo::new(socket), service) => {}
        () = held.slot().asked_to_leave() => {}
    }
}

/// Counts a connection as busy until its answer ends. A stream of events never does. Its page opens another
/// one when it is cut, so it may give its place to who would else get no answer.
fn while_busy(response: Response<Body>, busy: Busy) -> Response<Body> {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_some_and(|kind| kind == "text/event-stream") {
        return response;
    }
    response.map(|body| Body::new(HeldBody::new(body, busy)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_says_nothing_more_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let head = Duration::from_millis(50);
        tokio::spawn(async move { accept(&listener, &Router::new(), |_, _| {}, head).await });
        for said in [
            "",
            "GET /livez HT",
            "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            let mut heard = Vec::new();
            let ended = stream.read_to_end(&mut heard);
            let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
            assert!(ended.is_ok(), "{said}");
        }
    }
}
