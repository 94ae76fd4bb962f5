//! What the proxy adds to a request, against a bare axum + reqwest pass-through in the same run:
//! p50 of whole exchanges over keep-alive connections, the three taken in turn; and the same of a
//! plain append with fdatasync, which is what a durable turn can't cost less than. Before that what the
//! console adds to turns: nobody looks, a page reads what happens, or a page is told and never reads.
//!
//! `cargo bench --bench proxy`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Response;
use axum::serve::ListenerExt as _;
use futures_util::{StreamExt as _, stream};
use plimsoll::cli::wire;
use plimsoll::config::{Backend, Config};
use plimsoll_ingress::{Edge, Server};
use plimsoll_proxy::pipeline::ShownContent;
use plimsoll_proxy::upstream::BaseUrl;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ANSWER: &str = r#"{"id":"c1","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}"#;
const FRAMES: [&str; 4] = [
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"do\"}}]}\n\n",
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ne\"}}]}\n\n",
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];
/// How long the slow upstream takes for its last frame.
const SLOW: Duration = Duration::from_millis(5);

async fn listen(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Answers at once, or as a stream whose last frame takes its time.
async fn upstream() -> SocketAddr {
    listen(Router::new().fallback(async |body: Bytes| {
        if memchr::memmem::find(&body, b"\"stream\":true").is_some() {
            let frames = stream::iter(FRAMES).enumerate().then(async |(at, frame)| {
                if at + 1 == FRAMES.len() {
                    tokio::time::sleep(SLOW).await;
                }
                Ok::<_, std::io::Error>(Bytes::from_static(frame.as_bytes()))
            });
            return Response::builder()
                .header("content-type", "text/event-stream")
                .body(Body::from_stream(frames.boxed()))
                .unwrap();
        }
        Response::builder()
            .header("content-type", "application/json")
            .body(Body::from(ANSWER))
            .unwrap()
    }))
    .await
}

/// The bare pass-through that everything is measured against.
async fn bare(upstream: SocketAddr) -> SocketAddr {
    let pass = async |State(client): State<(reqwest::Client, String)>, body: Bytes| {
        let (client, url) = client;
        let answer = client
            .post(url)
            .header("content-type", "application/json")
            .body(body);
        let answer = axum::http::Response::<reqwest::Body>::from(answer.send().await.unwrap());
        answer.map(Body::new)
    };
    let url = format!("http://{upstream}/v1/chat/completions");
    listen(Router::new().fallback(pass).with_state((client(), url))).await
}

async fn proxy(upstream: SocketAddr, backend: Backend, data: &std::path::Path) -> SocketAddr {
    let (address, _) = served(upstream, backend, data, |_| {}).await;
    address
}

/// A proxy with settings of its own: where agents connect, and where its console is.
async fn served(
    upstream: SocketAddr,
    backend: Backend,
    data: &std::path::Path,
    change: impl FnOnce(&mut Config),
) -> (SocketAddr, SocketAddr) {
    let mut config = Config::default();
    config.server.listen.set_port(0);
    config.server.admin.set_port(0);
    config.upstream.base_url = BaseUrl::parse(&format!("http://{upstream}/v1")).unwrap();
    config.store.backend = backend;
    config.store.path = data.to_path_buf();
    // Nothing is evicted: the history is read, found and rendered whole.
    config.budget.ceiling = 10_000_000;
    change(&mut config);
    let app = wire::app(&config).unwrap();
    let probes = wire::probes(&app, None);
    let server = Server::bind(Edge::new(config.server, app, [1; 32]), probes)
        .await
        .unwrap();
    let addresses = (server.listen_addr().unwrap(), server.admin_addr().unwrap());
    tokio::spawn(server.run(CancellationToken::new()));
    addresses
}

/// A page that is told what happens. One that never reads takes as little as the system allows.
async fn page(console: SocketAddr, reads: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    if !reads {
        socket.set_recv_buffer_size(4096).unwrap();
    }
    let mut stream = socket.connect(console).await.unwrap();
    let head = format!("GET /api/events HTTP/1.1\r\nhost: {console}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    stream
}

/// The p50 of the turns of one growing session at each address, taken in turn, and each first as often
/// as the others.
async fn growing(addresses: &[SocketAddr], turns: usize) -> Vec<Duration> {
    let client = client();
    let urls = addresses.iter();
    let urls: Vec<String> = urls
        .map(|a| format!("http://{a}/v1/chat/completions"))
        .collect();
    let tools = json!([{"type": "function", "function": {"name": "bash", "parameters": {}}}]);
    let mut list: Vec<Value> = vec![json!({"role": "system", "content": "be brief"})];
    let mut times = vec![Vec::new(); urls.len()];
    for turn in 0..turns {
        list.push(json!({"role": "user", "content": format!("go on {turn}")}));
        let body = json!({"model": "gpt-4.1", "messages": list, "tools": tools});
        let body = Bytes::from(body.to_string());
        let count = urls.len();
        let places = (0..count).cycle().skip(turn % count.max(1)).take(count);
        for at in places {
            let (Some(url), Some(times)) = (urls.get(at), times.get_mut(at)) else {
                continue;
            };
            let begun = Instant::now();
            send(&client, url, &body).await;
            if turn >= 20 {
                times.push(begun.elapsed());
            }
        }
        list.push(json!({"role": "assistant", "content": "done"}));
    }
    times.into_iter().map(median).collect()
}

/// What the console adds to turns.
async fn console(upstream: SocketAddr, data: &std::path::Path) {
    let backend = Backend::Memory;
    let withheld = |config: &mut Config| config.console.content = Some(ShownContent::Off);
    let (off, _) = served(upstream, backend, data, withheld).await;
    let (closed, _) = served(upstream, backend, data, |_| {}).await;
    let (read, reads) = served(upstream, backend, data, |_| {}).await;
    let (unread, never) = served(upstream, backend, data, |_| {}).await;
    let (mut reader, _silent) = (page(reads, true).await, page(never, false).await);
    tokio::spawn(async move {
        let mut taken = vec![0; 64 << 10];
        while reader.read(&mut taken).await.is_ok_and(|count| count > 0) {}
    });
    let all = growing(&[closed, off, read, unread], 800).await;
    let [closed, off, read, unread] = all[..] else {
        return;
    };
    let ratio = |time: Duration| time.as_secs_f64() / closed.as_secs_f64();
    println!("a turn with no page open: {closed:?}");
    for (name, time, goal) in [
        ("console.content = \"off\"", off, "0.95 to 1.05"),
        ("a page that reads", read, "-"),
        ("a page that never reads", unread, "at most 1.05"),
    ] {
        println!("  {name}: {time:?}  ratio {:.2} (goal {goal})", ratio(time));
    }
}

fn client() -> reqwest::Client {
    let _already = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tcp_nodelay(true)
        .build()
        .unwrap()
}

/// A session of about so many bytes whose turns before the last one were served before.
struct Session {
    client: reqwest::Client,
    urls: Vec<String>,
    body: Bytes,
}

impl Session {
    async fn warm(addresses: &[SocketAddr], bytes: usize, stream: bool) -> Self {
        let client = client();
        let urls: Vec<String> = addresses
            .iter()
            .map(|a| format!("http://{a}/v1/chat/completions"))
            .collect();
        let line = "src/pipeline/open.rs:120: let state = locate_state(app, &place, request)?;\n";
        let text = line.repeat(3500 / line.len());
        let tools = json!([{"type": "function", "function": {"name": "bash", "parameters": {}}}]);
        let mut list: Vec<Value> = vec![json!({"role": "system", "content": "be brief"})];
        let mut turn = 0;
        let body = loop {
            let small = bytes < 8192;
            let said = if small {
                format!("go on {turn}")
            } else {
                format!("{turn} {text}")
            };
            list.push(json!({"role": "user", "content": said}));
            let body =
                json!({"model": "gpt-4.1", "messages": list, "tools": tools, "stream": stream});
            let body = Bytes::from(body.to_string());
            if body.len() >= bytes {
                break body;
            }
            for url in &urls {
                send(&client, url, &body).await;
            }
            list.push(json!({"role": "assistant", "content": "done"}));
            turn += 1;
        };
        Self { client, urls, body }
    }

    /// The p50 and p99 of each address, taken in turn, and last those of the raw append. A disk takes other
    /// times in a tight loop than between requests, so it is asked between requests, too.
    async fn measure(&self, rounds: usize, raw: &mut Raw) -> Vec<(Duration, Duration)> {
        let mut times = vec![Vec::new(); self.urls.len()];
        let mut appends = Vec::new();
        for round in 0..rounds + 20 {
            let append = raw.append();
            if round >= 20 {
                appends.push(append);
            }
            for (url, times) in self.urls.iter().zip(&mut times) {
                let begun = Instant::now();
                send(&self.client, url, &self.body).await;
                if round >= 20 {
                    times.push(begun.elapsed());
                }
            }
        }
        times.push(appends);
        let both = |times: Vec<Duration>| (share(times.clone(), 50), share(times, 99));
        times.into_iter().map(both).collect()
    }
}

async fn send(client: &reqwest::Client, url: &str, body: &Bytes) {
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .body(body.clone());
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success());
    answer.bytes().await.unwrap();
}

fn median(times: Vec<Duration>) -> Duration {
    share(times, 50)
}

/// What so many of a hundred don't exceed.
fn share(mut times: Vec<Duration>, of_hundred: usize) -> Duration {
    times.sort_unstable();
    let at = times.len() * of_hundred / 100;
    times.get(at).copied().unwrap_or_default()
}

/// A file on the disk that the store is on.
struct Raw(File);

impl Raw {
    fn new(directory: &std::path::Path) -> Self {
        let path = directory.join("raw");
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(file.unwrap())
    }

    /// Appends as much as a record has, and waits until it is durable.
    fn append(&mut self) -> Duration {
        let begun = Instant::now();
        self.0.write_all(&[7; 1500]).unwrap();
        self.0.sync_data().unwrap();
        begun.elapsed()
    }
}

#[tokio::main]
async fn main() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    console(upstream, directory.path()).await;
    let addresses = [
        bare(upstream).await,
        proxy(upstream, Backend::Memory, directory.path()).await,
        proxy(upstream, Backend::Sled, directory.path()).await,
    ];
    let mut raw = Raw::new(directory.path());
    for (name, bytes, stream, rounds, goal) in [
        ("2 KB, answered at once", 2 << 10, false, 1500, "1.5"),
        ("1 MB, answered at once", 1 << 20, false, 200, "3.5"),
        ("2 KB, last frame takes 5 ms", 2 << 10, true, 300, "-"),
    ] {
        let session = Session::warm(&addresses, bytes, stream).await;
        let [bare, memory, sled, append] = session.measure(rounds, &mut raw).await[..] else {
            return;
        };
        let ratio = |time: Duration| time.as_secs_f64() / bare.0.as_secs_f64();
        println!(
            "{name}: p50 and p99 of bare {bare:?}, of a raw append + fdatasync of 1.5 KB {append:?}"
        );
        println!(
            "  memory {memory:?}  ratio {:.2} (goal {goal})",
            ratio(memory.0)
        );
        let over = sled.0.saturating_sub(memory.0).as_secs_f64() / append.0.as_secs_f64();
        println!(
            "  sled   {sled:?}  ratio {:.2}; {over:.2} raw appends over memory (goal 2)",
            ratio(sled.0)
        );
    }
}
