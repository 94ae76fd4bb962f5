//! Clients that send slowly, that do not read, and that want every place: none of them keeps what
//! others need, and none who only takes its time is cut.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use plimsoll::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::agent::{metric, until_metric};
use crate::support::{EMPTY, PATIENCE, Proxy, client, error_of, padded, soon, talk, upstream};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const FILES: &str = "/v1/files";
const WHILE: Duration = Duration::from_millis(400);

/// One place, and no patience with who holds it for nothing.
fn short(config: &mut Config) {
    config.server.max_in_flight = 1;
    config.server.pace.wait = WHILE;
    config.server.write_timeout = WHILE;
}

/// Reads the body first, as providers do.
async fn echo() -> SocketAddr {
    upstream(|request| async {
        match to_bytes(request.into_body(), usize::MAX).await {
            Ok(body) => Response::new(Body::from(body)),
            Err(_) => Response::builder().status(418).body(Body::empty()).unwrap(),
        }
    })
    .await
}

/// Asks until the place is free again.
async fn served_again(proxy: &Proxy) {
    soon(async {
        loop {
            let request = client().post(proxy.url(FILES)).body("x");
            if request.send().await.unwrap().status() != 503 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
}

/// Sends pieces with a pause after each until they end or an answer comes; then the answer's
/// first bytes.
async fn trickle(addr: SocketAddr, head: &str, piece: &[u8], pieces: usize, pause: u64) -> String {
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    write.write_all(head.as_bytes()).await.unwrap();
    let piece = piece.to_vec();
    let sending = tokio::spawn(async move {
        for _ in 0..pieces {
            if write.write_all(&piece).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        write
    });
    let mut answer = vec![0; 4096];
    let length = soon(read.read(&mut answer)).await.unwrap();
    sending.abort();
    answer.truncate(length);
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_that_trickles_gives_its_place_back() {
    let proxy = Proxy::with(echo().await, short).await;
    let chunked =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    for (what, head, piece) in [
        ("chat", head(CHAT, 100_000), " "),
        ("messages", head(MESSAGES, 100_000), " "),
        ("forwarded", head(FILES, 100_000), " "),
        ("chunked", chunked, "1\r\n \r\n"),
    ] {
        let answer = trickle(proxy.addr, &head, piece.as_bytes(), 10_000, 20).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{what}: {answer}");
        assert!(answer.contains("server.body_wait"), "{what}: {answer}");
        served_again(&proxy).await;
    }
}

#[tokio::test]
async fn a_body_has_a_last_moment_whatever_its_rate() {
    let proxy = Proxy::with(echo().await, |config| {
        short(config);
        config.server.pace.most = 2 * WHILE;
    })
    .await;
    for path in [CHAT, FILES] {
        let head = head(path, 10 << 20);
        let answer = trickle(proxy.addr, &head, &[b' '; 4096], 2_000, 10).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{path}: {answer}");
        served_again(&proxy).await;
    }
}

#[tokio::test]
async fn a_body_that_keeps_its_rate_may_take_its_time() {
    let proxy = Proxy::with(echo().await, |config| {
        short(config);
        config.server.pace.rate = 1024;
    })
    .await;
    for path in [CHAT, FILES] {
        let body = padded(100_000);
        let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
        let head = head(path, body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        for piece in body.chunks(5_000) {
            stream.write_all(piece).await.unwrap();
            tokio::time::sleep(WHILE / 8).await;
        }
        let mut answer = [0; 12];
        soon(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200", "{path}");
    }
}

#[tokio::test]
async fn a_chunk_that_is_none_is_the_callers_fault() {
    let proxy = Proxy::before(echo().await).await;
    for path in [CHAT, MESSAGES, FILES] {
        for bad in [
            "zz\r\n",
            "5\r\nabcdefgh\r\n0\r\n\r\n",
            "-1\r\n\r\n",
            "ffffffffffffffffff\r\n",
        ] {
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                 transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n{bad}"
            );
            let answer = String::from_utf8(talk(proxy.addr, request.as_bytes()).await).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400"), "{path} {bad}: {answer}");
            let error = answer.contains("invalid_request_error");
            assert!(error && !answer.contains("upstream"), "{path}: {answer}");
        }
    }
    let upstream = r#"plimsoll_http_requests_total{method="POST",route="forward",status="502"}"#;
    assert_eq!(metric(&proxy, upstream).await, None);
}

/// What was made of an answer, and whether somebody still wants it.
#[derive(Clone, Default)]
struct Made {
    bytes: Arc<AtomicUsize>,
    left: Arc<AtomicBool>,
}

/// Sets its flag when it is dropped.
struct Left(Arc<AtomicBool>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Made {
    /// An answer of so many equal pieces.
    fn answer(&self, kind: &'static str, piece: Bytes, pieces: usize) -> Response {
        let (bytes, left) = (self.bytes.clone(), Left(self.left.clone()));
        let pieces = stream::iter(0..pieces).map(move |_| {
            let _held = &left;
            bytes.fetch_add(piece.len(), Ordering::SeqCst);
            Ok::<_, Infallible>(piece.clone())
        });
        let response = Response::builder().header("content-type", kind);
        response.body(Body::from_stream(pieces)).unwrap()
    }

    async fn nobody_wants_it(&self) {
        soon(async {
            while !self.left.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

/// A frame of a chat stream with so many bytes of text.
fn frame(text: usize) -> Bytes {
    let text = "x".repeat(text);
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
    )
    .into()
}

/// A whole chat answer with so many bytes of text.
fn whole(text: usize) -> Bytes {
    let text = "x".repeat(text);
    format!(
        "{{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"m\",\"choices\":[{{\"index\":0,\
         \"finish_reason\":\"stop\",\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}}}}]}}"
    )
    .into()
}

/// Asks for more than a client that reads nothing has room for.
async fn ask(proxy: &Proxy, path: &str, stream: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    let mut stream_to = socket.connect(proxy.addr).await.unwrap();
    // With tools, so that hidden ones go with them and the answer is read on its way.
    let tools = crate::agent::tools();
    let body = format!(
        r#"{{"model":"m","stream":{stream},"tools":{tools},"messages":[{{"role":"user","content":"go"}}]}}"#
    );
    let request = format!("{}{body}", head(path, body.len()));
    stream_to.write_all(request.as_bytes()).await.unwrap();
    stream_to
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_and_its_upstream_too() {
    for (what, path, streamed) in [
        ("a stream", CHAT, true),
        ("a whole answer", CHAT, false),
        ("a forwarded answer", FILES, true),
    ] {
        let made = Made::default();
        let (answering, first) = (made.clone(), Arc::new(AtomicBool::new(true)));
        let addr = upstream(move |request: Request| {
            let (made, first) = (answering.clone(), first.clone());
            async move {
                drop(to_bytes(request.into_body(), usize::MAX).await);
                match first.swap(false, Ordering::SeqCst) {
                    false => Response::new(Body::from("{}")),
                    true if streamed => made.answer("text/event-stream", frame(20_000), 1_000_000),
                    true => made.answer("application/json", whole(4 << 20), 1),
                }
            }
        })
        .await;
        let proxy = Proxy::with(addr, short).await;
        let silent = ask(&proxy, path, streamed).await;
        made.nobody_wants_it().await;
        served_again(&proxy).await;
        if what == "a stream" {
            let cut = r#"plimsoll_stream_aborts_total{phase="body",side="client"} 1"#;
            until_metric(&proxy, cut).await;
        }
        let cut = r#"plimsoll_cut_connections_total{why="stalled"} 1"#;
        until_metric(&proxy, cut).await;
        drop(silent);
    }
}

#[tokio::test]
async fn who_reads_slowly_or_waits_for_the_upstream_is_not_cut() {
    let pieces = 60;
    let addr = upstream(move |_| async move {
        let frames = stream::iter(0..pieces).then(move |n| async move {
            if n == pieces - 1 {
                // Nothing to write is no stalled client.
                tokio::time::sleep(4 * WHILE).await;
            }
            Ok::<_, Infallible>(frame(20_000))
        });
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Body::from_stream(frames)).unwrap()
    })
    .await;
    let proxy = Proxy::with(addr, short).await;
    let mut slow = ask(&proxy, CHAT, true).await;
    let (mut read, mut buffer) = (0, vec![0; 32 << 10]);
    // The upstream never says that it is done, so the end is a broken one.
    while let Ok(Ok(length @ 1..)) = tokio::time::timeout(PATIENCE, slow.read(&mut buffer)).await {
        read += length;
        tokio::time::sleep(WHILE / 20).await;
    }
    assert!(read >= pieces * frame(20_000).len(), "{read}");
}

#[tokio::test]
async fn what_waits_for_a_slow_client_is_bounded_by_bytes() {
    let made = Made::default();
    let answering = made.clone();
    let addr = upstream(move |_| {
        let made = answering.clone();
        async move { made.answer("text/event-stream", frame(512 << 10), 1_000) }
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let silent = ask(&proxy, CHAT, true).await;
    // Until it goes no further; the system's own buffers on the way hold some.
    let mut before = 0;
    soon(async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = made.bytes.load(Ordering::SeqCst);
            if now == before && now > 0 {
                return;
            }
            before = now;
        }
    })
    .await;
    assert!(before < 20 << 20, "{before} bytes wait for nobody");
    drop(silent);
}

#[tokio::test]
async fn one_tenant_leaves_places_to_the_others() {
    let open = Arc::new(AtomicBool::new(false));
    let release = open.clone();
    let addr = upstream(move |_| {
        let open = open.clone();
        async move {
            while !open.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Response::new(Body::from("{}"))
        }
    })
    .await;
    let proxy = Proxy::with(addr, |config| config.server.max_in_flight = 8).await;
    let send = |key: &str, path: &str| {
        let request = client().post(proxy.url(path)).body(EMPTY);
        let request = match key {
            "" => request,
            key => request.bearer_auth(key),
        };
        tokio::spawn(async move { request.send().await.unwrap() })
    };
    let greedy: Vec<_> = [CHAT, FILES]
        .into_iter()
        .cycle()
        .take(8)
        .map(|path| send("a", path))
        .collect();
    let flights = async |count: usize| {
        let line = format!("plimsoll_in_flight_requests {count}");
        soon(async { while metric(&proxy, &line).await.is_none() {} }).await;
    };
    flights(8).await;
    let refused = soon(send("a", CHAT)).await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(error_of(refused).await.3, "overloaded");
    let other = send("b", CHAT);
    flights(9).await;
    assert_eq!(soon(send("a", FILES)).await.unwrap().status(), 503, "still");
    release.store(true, Ordering::SeqCst);
    assert_eq!(soon(other).await.unwrap().status(), 200);
    for waiting in greedy {
        assert_eq!(soon(waiting).await.unwrap().status(), 200);
    }
    assert_eq!(soon(send("", CHAT)).await.unwrap().status(), 200);
}
