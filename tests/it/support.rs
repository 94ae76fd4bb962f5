//! What all modules share: a proxy on a free port, upstreams made of a function, a raw client.
//! Asserts nothing of its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use plimsoll::cli::wire;
use plimsoll::config::{Backend, Config};
use plimsoll_ingress::{Drained, Edge, Probes, Readiness, Server};
use plimsoll_proxy::pipeline::App;
use plimsoll_proxy::upstream::BaseUrl;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Long enough for a busy machine; no test waits for it unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A future that has to end.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("took too long")
}

/// Waits until a process has given back what is above so many bytes of its memory.
pub async fn at_rest(most: u64, resident: impl Fn() -> u64) {
    for _ in 0..PATIENCE.as_millis() / 50 {
        if resident() <= most {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} MiB, not {}", resident() >> 20, most >> 20);
}

/// A running proxy.
pub struct Proxy {
    pub app: Arc<App>,
    pub addr: SocketAddr,
    pub admin: SocketAddr,
    pub stop: CancellationToken,
    pub ended: JoinHandle<Drained>,
}

impl Proxy {
    /// A proxy before `upstream`, its base there being `/v1`.
    pub async fn before(upstream: SocketAddr) -> Self {
        Self::with(upstream, |_| {}).await
    }

    /// The same, with other settings.
    pub async fn with(upstream: SocketAddr, change: impl FnOnce(&mut Config)) -> Self {
        Self::wired(upstream, change, |_| {}).await
    }

    /// The same, with other parts: a store that fails, a clock that jumps.
    pub async fn wired(
        upstream: SocketAddr,
        change: impl FnOnce(&mut Config),
        rewire: impl FnOnce(&mut App),
    ) -> Self {
        let mut config = Config::default();
        config.server.listen.set_port(0);
        config.server.admin.set_port(0);
        config.upstream.base_url = BaseUrl::parse(&format!("http://{upstream}/v1")).unwrap();
        config.store.backend = Backend::Memory;
        // What upstreams are asked beside turns is told by tests of its own.
        config.upstream.ask_models = false;
        // What is told of late guidance is told by tests of its own.
        config.budget.guide_at = 0.0;
        change(&mut config);
        let mut app = wire::app(&config).unwrap();
        rewire(Arc::get_mut(&mut app).unwrap());
        let probes = Probes {
            ready: Arc::new(Readiness::default),
            ..wire::probes(&app, config.store.snapshots)
        };
        let server = Server::bind(Edge::new(config.server, Arc::clone(&app), [1; 32]), probes)
            .await
            .unwrap();
        let (addr, admin) = (server.listen_addr().unwrap(), server.admin_addr().unwrap());
        let stop = CancellationToken::new();
        let ended = tokio::spawn(server.run(stop.clone()));
        Self {
            app,
            addr,
            admin,
            stop,
            ended,
        }
    }

    /// Ends it as a signal does, with all that it recorded on the disk.
    pub async fn end(self) {
        self.stop.cancel();
        soon(self.ended).await.unwrap();
        self.app.store.close().unwrap();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// What its store has under any name, each once.
    pub fn linked(&self) -> Vec<Bytes> {
        let linked = self.app.store.linked().unwrap();
        let ids: BTreeSet<_> = linked.into_iter().map(|(_, id)| id).collect();
        let ids: Vec<_> = ids.into_iter().collect();
        let blobs = self.app.store.blobs(&ids).unwrap();
        blobs.into_iter().flatten().collect()
    }
}

/// A client that changes nothing by itself.
pub fn client() -> reqwest::Client {
    let _already = rustls::crypto::ring::default_provider().install_default();
    let plain = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none());
    plain.build().unwrap()
}

/// An upstream made of a function.
pub async fn upstream<F, R>(answer: F) -> SocketAddr
where
    F: Fn(Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

/// A request as an upstream got it, and the status that it gave it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub status: u16,
}

impl Seen {
    /// The body, which has to be JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub const fn is_refused(&self) -> bool {
        self.status != 200
    }
}

/// An upstream that takes anything and keeps it.
#[derive(Clone)]
pub struct Lenient {
    pub addr: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Lenient {
    /// Answers the nth request, from 0, with what `answer` makes of its body.
    pub async fn start<F>(answer: F) -> Self
    where
        F: Fn(usize, &Bytes) -> Response + Clone + Send + Sync + 'static,
    {
        Self::judging(move |before, request| answer(before.len(), &request.body)).await
    }

    /// Answers each request with what `answer` makes of those before and of itself.
    pub async fn judging<F>(answer: F) -> Self
    where
        F: Fn(&[Seen], &Seen) -> Response + Clone + Send + Sync + 'static,
    {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = Arc::clone(&seen);
        let addr = upstream(move |request| {
            let (log, answer) = (Arc::clone(&log), answer.clone());
            async move {
                let (parts, body) = request.into_parts();
                let mut request = Seen {
                    path: parts.uri.path().to_owned(),
                    headers: parts.headers,
                    body: to_bytes(body, usize::MAX).await.unwrap(),
                    status: 0,
                };
                let mut log = log.lock().unwrap();
                let response = answer(&log, &request);
                request.status = response.status().as_u16();
                log.push(request);
                response
            }
        })
        .await;
        Self { addr, seen }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The bodies of all requests.
    pub fn bodies(&self) -> Vec<Bytes> {
        self.seen().into_iter().map(|seen| seen.body).collect()
    }

    /// The newest body as JSON.
    pub fn newest(&self) -> Value {
        self.seen().last().unwrap().value()
    }
}

/// An answer of an upstream: events if it begins as those do, else JSON.
pub fn answered(status: u16, body: impl ToString) -> Response {
    let body = body.to_string();
    let kind = match body.starts_with("data:") || body.starts_with("event:") {
        true => "text/event-stream",
        false => "application/json",
    };
    let built = Response::builder().status(status);
    let built = built.header("content-type", kind);
    built.body(Body::from(body)).unwrap()
}

/// A stream of events, each named by its type; those of Responses are numbered.
pub fn frames(events: &[Value]) -> String {
    let frame = |(number, event): (usize, &Value)| {
        let mut event = event.clone();
        let kind = event["type"].as_str().unwrap().to_owned();
        if kind.starts_with("response.") {
            event["sequence_number"] = number.into();
        }
        format!("event: {kind}\ndata: {event}\n\n")
    };
    events.iter().enumerate().map(frame).collect()
}

/// An answer of Responses as a stream, which ends as its status says.
pub fn response_events(response: &Value) -> String {
    let mut begun = response.clone();
    (begun["status"], begun["output"]) = ("in_progress".into(), json!([]));
    let mut events = vec![json!({"type": "response.created", "response": begun})];
    for (at, item) in response["output"].as_array().unwrap().iter().enumerate() {
        for kind in ["added", "done"] {
            let kind = format!("response.output_item.{kind}");
            events.push(json!({"type": kind, "output_index": at, "item": item}));
        }
    }
    let end = format!("response.{}", response["status"].as_str().unwrap());
    events.push(json!({"type": end, "response": response}));
    frames(&events)
}

/// An upstream made of a function on bare connections.
pub async fn raw_upstream<F, R>(talk: F) -> SocketAddr
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream));
        }
    });
    addr
}

/// An address that refuses connections while the socket is kept: bound, so that no other test is given
/// its port, and not listening.
pub fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Sender and body: what is sent becomes frames; dropping the sender ends the body.
pub fn channel_body() -> (mpsc::Sender<&'static str>, Body) {
    let (sender, receiver) = mpsc::channel::<&'static str>(1);
    let frames = futures_util::stream::unfold(receiver, async |mut receiver| {
        let text = receiver.recv().await?;
        Some((
            Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(text.as_bytes()))),
            receiver,
        ))
    });
    (sender, Body::new(StreamBody::new(frames.boxed())))
}

/// Reads a request's head off a bare connection.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Sends bytes and reads until the proxy closes.
pub async fn talk(addr: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    answer
}

/// Reads of an error of ours: (status, type, param, code, message).
pub async fn error_of(response: reqwest::Response) -> (u16, String, String, String, String) {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    let text = |name: &str| body["error"][name].as_str().unwrap_or("null").to_owned();
    (
        status,
        text("type"),
        text("param"),
        text("code"),
        text("message"),
    )
}

/// `length` bytes that no compressor or guess reproduces.
pub fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// A request without messages: read as a turn, and forwarded as it is.
pub const EMPTY: &str = r#"{"messages":[]}"#;

/// The same with so many bytes in all.
pub fn padded(length: usize) -> Vec<u8> {
    let (front, back) = (r#"{"messages":[],"pad":""#, r#""}"#);
    let pad = "x".repeat(length - front.len() - back.len());
    format!("{front}{pad}{back}").into_bytes()
}
