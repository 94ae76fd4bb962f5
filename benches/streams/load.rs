//! Streams to be read, and clients that read them at once, slowly or not at all. Asserts that a
//! stream that was read is whole, and nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Bytes of the conversation that comes with each request.
pub const SAID: usize = 16 << 10;
/// The header that says how many frames are wanted.
const FRAMES: &str = "x-frames";
/// The header that says how many milliseconds lie between two of them.
const PACE: &str = "x-pace";
/// With a tool of its own a request is offered ours, and its answer is read on its way.
const TOOL: &str =
    r#"{"type":"function","function":{"name":"bash","parameters":{"type":"object"}}}"#;
/// How fast a provider sends the frames of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One in so many milliseconds, as a model writes tokens.
    #[allow(dead_code, reason = "the test of this name only floods")]
    Tokens(u64),
    /// As fast as they are taken, which no model does.
    Flood,
}

impl Pace {
    fn between(self) -> u64 {
        match self {
            Self::Tokens(millis) => millis,
            Self::Flood => 0,
        }
    }
}

/// What is not read to its end has no end.
const ENDLESS: usize = 1 << 30;
/// How a slow client reads: less than a model writes.
const SIP: (usize, Duration) = (4 << 10, Duration::from_millis(250));

fn frame() -> Bytes {
    // A token a frame and some bytes that hide its length, as providers send it.
    let hidden = "x".repeat(64);
    let frame = format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\
         \"model\":\"m\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_1\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word\"}},\"logprobs\":null,\
         \"finish_reason\":null}}],\"obfuscation\":\"{hidden}\"}}\n\n"
    );
    frame.into()
}

const LAST: &[u8] =
    b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\
    \"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A number in a header; none is 0.
fn asked(headers: &HeaderMap, name: &str) -> u64 {
    let value = headers.get(name).and_then(|text| text.to_str().ok());
    value.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Serves streams at the pace that each asks for, for ever.
pub async fn provide(listener: TcpListener) {
    let frame = frame();
    let answer = move |request: Request| {
        let frame = frame.clone();
        async move {
            let frames = asked(request.headers(), FRAMES);
            let pace = Duration::from_millis(asked(request.headers(), PACE));
            drop(to_bytes(request.into_body(), usize::MAX).await);
            let begun = Instant::now();
            let last = stream::iter([Bytes::from_static(LAST)]);
            let all = stream::iter(0..frames)
                .then(move |number| {
                    let frame = frame.clone();
                    async move {
                        // A provider that falls behind catches up, as a model's server does.
                        let due = begun + pace * u32::try_from(number).unwrap();
                        if due > Instant::now() {
                            tokio::time::sleep_until(due).await;
                        }
                        frame
                    }
                })
                .chain(last);
            let response = Response::builder().header("content-type", "text/event-stream");
            response
                .body(Body::from_stream(all.map(Ok::<_, Infallible>)))
                .unwrap()
        }
    };
    let router = axum::Router::new().fallback(answer);
    axum::serve(listener, router).await.unwrap();
}

/// Asks for a stream of so many frames, behind a conversation of so many bytes.
async fn ask(proxy: SocketAddr, frames: usize, pace: Pace, said: usize) -> TcpStream {
    let said = "so it was said ".repeat(said / 15);
    let body = format!(
        r#"{{"model":"m","stream":true,"tools":[{TOOL}],"messages":[{{"role":"user","content":"{said}"}}]}}"#
    );
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer k\r\n{FRAMES}: {frames}\r\n\
         {PACE}: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        pace.between(),
        body.len()
    );
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

/// Reads so many streams at once, each of so many frames, and to its end: what is wrong with those
/// that did not come whole.
pub async fn fast(proxy: SocketAddr, streams: usize, frames: usize, pace: Pace) -> Vec<String> {
    fast_behind(proxy, (streams, Duration::ZERO), (frames, pace), SAID).await
}

/// The same behind a conversation of so many bytes, each so long after the one before it.
pub async fn fast_behind(
    proxy: SocketAddr,
    (streams, apart): (usize, Duration),
    (frames, pace): (usize, Pace),
    said: usize,
) -> Vec<String> {
    let begun = Instant::now();
    let readers = (0..).take(streams).map(|number: u32| {
        tokio::spawn(async move {
            tokio::time::sleep_until(begun + apart * number).await;
            read(proxy, frames, pace, said).await
        })
    });
    let mut wrong = Vec::new();
    for reader in readers.collect::<Vec<_>>() {
        wrong.extend(reader.await.unwrap().err());
    }
    wrong
}

/// Reads one stream to its end.
async fn read(proxy: SocketAddr, frames: usize, pace: Pace, said: usize) -> Result<(), String> {
    let least = frames * frame().len();
    let mut stream = ask(proxy, frames, pace, said).await;
    let (mut all, mut buffer, mut tail) = (0, vec![0; 64 << 10], Vec::new());
    let end = loop {
        match stream.read(&mut buffer).await {
            Ok(0) => break "its end".to_owned(),
            Ok(length) => {
                all += length;
                tail.extend_from_slice(&buffer[..length]);
                tail.drain(..tail.len().saturating_sub(64));
            }
            Err(error) => break error.to_string(),
        }
    };
    let text = String::from_utf8_lossy(&tail);
    if all > least && text.contains("[DONE]") && text.ends_with("0\r\n\r\n") {
        return Ok(());
    }
    Err(format!("{end} behind {all} of {least} bytes: {text}"))
}

/// So many streams of which nothing, or a little now and then, is read. They last until they are
/// aborted; each has begun when this returns.
pub async fn slow(
    proxy: SocketAddr,
    streams: usize,
    pace: Pace,
    sips: bool,
) -> Vec<JoinHandle<()>> {
    let mut readers = Vec::new();
    for _ in 0..streams {
        let mut stream = ask(proxy, ENDLESS, pace, SAID).await;
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        readers.push(tokio::spawn(async move {
            let mut buffer = vec![0; SIP.0];
            loop {
                tokio::time::sleep(SIP.1).await;
                if sips && !matches!(stream.read(&mut buffer).await, Ok(1..)) {
                    return;
                }
            }
        }));
    }
    readers
}
