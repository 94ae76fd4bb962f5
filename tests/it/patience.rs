//! Connections that died while they were idle, and upstreams that are down for a while: what is sent again,
//! for how long, and what is sent once only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Body;
use axum::response::Response;
use futures_util::future::join_all;
use plimsoll_wire::Dialect;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::{Answer, metric, received};
use crate::support::{EMPTY, Proxy, client, nobody, raw_upstream, read_head, soon, upstream};
use crate::unread::answers::{
    DIALECTS, FIRST, THEN, path, request, streamed, whole_hidden, whole_text,
};

/// How a kept connection takes its second request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is closed when the request has come.
    Closed,
    /// It is reset, as by a balancer that has forgotten it.
    Reset,
    /// It is closed after the upstream may have worked on the request.
    Late,
}

fn answer(dialect: Dialect, streams: bool) -> String {
    let (kind, body) = match streams {
        true => (
            "text/event-stream",
            streamed(dialect, Some(THEN), false).concat(),
        ),
        false => ("application/json", whole_text(dialect, THEN)),
    };
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Reads a request with a body of a known length, or of one chunk.
async fn read_request(stream: &mut TcpStream) -> bool {
    let head = read_head(stream).await.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        let mut body = vec![0; length.parse().unwrap()];
        return stream.read_exact(&mut body).await.is_ok();
    }
    while head.contains("transfer-encoding: chunked") {
        let mut line = String::new();
        while !line.ends_with("\r\n") {
            line.push(stream.read_u8().await.unwrap().into());
        }
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).await.unwrap();
        if size == 0 {
            break;
        }
    }
    !head.is_empty()
}

/// An upstream whose connections serve one request each and end with the second. Counts the requests.
async fn forgetful(dialect: Dialect, streams: bool, end: End) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let addr = raw_upstream(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            if !read_request(&mut stream).await {
                return;
            }
            count.fetch_add(1, Ordering::SeqCst);
            let answer = answer(dialect, streams);
            stream.write_all(answer.as_bytes()).await.unwrap();
            if end == End::Reset {
                // Bytes that nobody read make the system reset the connection.
                if stream.read_u8().await.is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                return;
            }
            if read_request(&mut stream).await {
                count.fetch_add(1, Ordering::SeqCst);
                if end == End::Late {
                    tokio::time::sleep(Duration::from_millis(1_300)).await;
                }
            }
        }
    })
    .await;
    (addr, asked)
}

async fn ask(proxy: &Proxy, dialect: Dialect, streams: bool) -> Answer {
    let asked = client()
        .post(proxy.url(path(dialect)))
        .body(request(dialect, streams));
    received(soon(asked.send()).await.unwrap(), streams).await
}

#[tokio::test]
async fn a_call_goes_out_anew_if_its_kept_connection_was_dead() {
    for dialect in DIALECTS {
        for streams in [false, true] {
            for end in [End::Closed, End::Reset] {
                let (addr, asked) = forgetful(dialect, streams, end).await;
                // What is repeated here is no retry of the settings.
                let proxy = Proxy::with(addr, |config| config.upstream.retries = 0).await;
                for turn in 0..3 {
                    // The connection is kept once the whole answer was read, which the client does not see.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let answer = ask(&proxy, dialect, streams).await;
                    let what = format!("{dialect:?} {streams} {end:?} {turn} {}", answer.text());
                    assert_eq!(answer.status, 200, "{what}");
                    assert!(answer.text().contains(THEN) && !answer.broken, "{what}");
                }
                // The second call found the dead connection, and the new one was not kept.
                assert_eq!(asked.load(Ordering::SeqCst), 4, "{dialect:?} {end:?}");
                let counted = metric(&proxy, r#"plimsoll_retries_total{reason="idle"}"#).await;
                let line = r#"plimsoll_retries_total{reason="idle"} 1"#;
                assert_eq!(counted.as_deref(), Some(line));
            }
        }
    }
}

#[tokio::test]
async fn what_an_upstream_may_have_worked_on_is_sent_once() {
    // A connection that took its time to die, and one that was made for the call.
    let (addr, asked) = forgetful(Dialect::Chat, false, End::Late).await;
    let proxy = Proxy::before(addr).await;
    assert_eq!(ask(&proxy, Dialect::Chat, false).await.status, 200);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(ask(&proxy, Dialect::Chat, false).await.status, 502);
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    let fresh = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fresh);
    let addr = raw_upstream(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            read_request(&mut stream).await;
            count.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let proxy = Proxy::with(addr, |config| {
        config.upstream.retry_for = Some(Duration::from_secs(30));
    })
    .await;
    assert_eq!(ask(&proxy, Dialect::Chat, false).await.status, 502);
    assert_eq!(fresh.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_body_that_was_streamed_is_sent_once() {
    let (addr, asked) = forgetful(Dialect::Chat, false, End::Closed).await;
    let proxy = Proxy::with(addr, |config| {
        config.upstream.retry_for = Some(Duration::from_secs(30));
    })
    .await;
    for status in [200, 502] {
        let sent = client()
            .post(proxy.url("/v1/files"))
            .body(EMPTY)
            .send()
            .await;
        assert_eq!(sent.unwrap().status(), status);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// An upstream that fails with these headers until it was asked so often. Counts how often.
async fn down(
    dialect: Dialect,
    status: u16,
    failures: usize,
    waits: &'static [(&'static str, &'static str)],
) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let addr = upstream(move |request| {
        let fails = count.fetch_add(1, Ordering::SeqCst) < failures;
        async move {
            let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
            let streams = String::from_utf8_lossy(&body.unwrap()).contains("\"stream\":true");
            if fails {
                let mut answer = Response::builder().status(status);
                for (name, value) in waits {
                    answer = answer.header(*name, *value);
                }
                return answer.body(Body::from("down")).unwrap();
            }
            let (kind, body) = match streams {
                true => (
                    "text/event-stream",
                    streamed(dialect, Some(THEN), false).concat(),
                ),
                false => ("application/json", whole_text(dialect, THEN)),
            };
            let answer = Response::builder().header("content-type", kind);
            answer.body(Body::from(body)).unwrap()
        }
    })
    .await;
    (addr, asked)
}

async fn patient(addr: SocketAddr, time: Duration) -> Proxy {
    Proxy::with(addr, |config| {
        config.upstream.retries = 0;
        config.upstream.retry_for = Some(time);
    })
    .await
}

const SOON: &[(&str, &str)] = &[("retry-after-ms", "1")];

#[tokio::test]
async fn an_upstream_that_is_down_is_tried_again_for_a_time() {
    let one = async |dialect: Dialect, streams: bool, status: u16| {
        let (addr, asked) = down(dialect, status, 4, SOON).await;
        let proxy = patient(addr, Duration::from_secs(60)).await;
        let answer = ask(&proxy, dialect, streams).await;
        let what = format!("{dialect:?} {streams} {status} {}", answer.text());
        assert_eq!(answer.status, 200, "{what}");
        assert!(answer.text().contains(THEN), "{what}");
        assert_eq!(asked.load(Ordering::SeqCst), 5, "{what}");
    };
    let statuses = [429, 502, 503, 504, 529].into_iter();
    let all = statuses.flat_map(|status| {
        let both = DIALECTS.map(|dialect| [(dialect, false, status), (dialect, true, status)]);
        both.into_iter().flatten()
    });
    join_all(all.map(|(dialect, streams, status)| one(dialect, streams, status))).await;
    // What no waiting mends is told at once.
    for status in [401, 500] {
        let (addr, asked) = down(Dialect::Chat, status, 1, SOON).await;
        let proxy = patient(addr, Duration::from_secs(60)).await;
        let answer = ask(&proxy, Dialect::Chat, false).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, "down"));
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{status}");
    }
}

#[tokio::test]
async fn the_time_for_retries_ends_with_the_upstreams_own_answer() {
    let (addr, asked) = down(Dialect::Chat, 529, usize::MAX, &[]).await;
    let proxy = patient(addr, Duration::from_millis(700)).await;
    let begun = Instant::now();
    let answer = ask(&proxy, Dialect::Chat, true).await;
    assert_eq!((answer.status, answer.text().as_str()), (529, "down"));
    assert!(begun.elapsed() >= Duration::from_millis(500), "too soon");
    assert!(asked.load(Ordering::SeqCst) > 2);

    // An upstream that asks for more than is left is not asked again, and the client hears of it.
    let (addr, asked) = down(Dialect::Chat, 503, usize::MAX, &[("retry-after", "61")]).await;
    let proxy = patient(addr, Duration::from_secs(60)).await;
    let answer = ask(&proxy, Dialect::Chat, true).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, "61"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// All calls of a later hop share the time: it is not given to each anew.
#[tokio::test]
async fn a_later_hop_waits_no_longer_than_the_time_for_retries() {
    for dialect in DIALECTS {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let addr = upstream(move |_| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    let answer = Response::builder().header("content-type", "text/event-stream");
                    let said = streamed(dialect, Some(FIRST), true).concat();
                    return answer.body(Body::from(said)).unwrap();
                }
                let answer = Response::builder().status(503);
                let answer = answer.header("retry-after-ms", "900");
                answer.body(Body::from("down")).unwrap()
            }
        })
        .await;
        let proxy = patient(addr, Duration::from_secs(1)).await;
        let begun = Instant::now();
        let answer = ask(&proxy, dialect, true).await;
        let took = begun.elapsed();
        let what = format!("{dialect:?} {took:?} {}", answer.text());
        assert!(answer.text().contains(FIRST), "{what}");
        // The hop itself, and once more before the second is over.
        assert_eq!(asked.load(Ordering::SeqCst), 3, "{what}");
        assert!(took < Duration::from_secs(2), "{what}");
    }
}

/// What an upstream answers, call after call: a hidden call, or a refusal and what it asks to wait in milliseconds.
type Script = [Option<(u16, &'static str)>];

/// An upstream that answers by a script, and by its last line from then on. Counts the calls.
async fn scripted(
    dialect: Dialect,
    streams: bool,
    script: &'static Script,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let addr = upstream(move |_| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match script.get(call).or(script.last()).unwrap() {
                Some((status, wait)) => {
                    let answer = Response::builder().status(*status);
                    let answer = answer.header("retry-after-ms", *wait);
                    answer.body(Body::from("no")).unwrap()
                }
                None => {
                    let (kind, body) = match streams {
                        true => ("text/event-stream", streamed(dialect, None, true).concat()),
                        false => ("application/json", whole_hidden(dialect)),
                    };
                    let answer = Response::builder().header("content-type", kind);
                    answer.body(Body::from(body)).unwrap()
                }
            }
        }
    })
    .await;
    (addr, asked)
}

/// What is sent in place of a refused hop shares that hop's time, whether it is a view or the client's own request.
#[tokio::test]
async fn what_takes_the_place_of_a_refused_hop_gets_no_time_of_its_own() {
    const WAITS: Option<(u16, &str)> = Some((503, "1500"));
    const REFUSED: Option<(u16, &str)> = Some((400, "1"));
    // After the first wait less is left than this asks for.
    const ASKS_FOR_MORE: Option<(u16, &str)> = Some((503, "19000"));
    let one = async |dialect: Dialect, streams: bool, script: &'static Script| {
        let (addr, asked) = scripted(dialect, streams, script).await;
        let proxy = patient(addr, Duration::from_secs(20)).await;
        let answer = ask(&proxy, dialect, streams).await;
        let what = format!("{dialect:?} {streams} {script:?} {}", answer.text());
        // A stream whose head was sent breaks off.
        assert!(answer.status == 503 || answer.broken, "{what}");
        assert_eq!(asked.load(Ordering::SeqCst), script.len(), "{what}");
    };
    let first: &Script = &[WAITS, REFUSED, ASKS_FOR_MORE];
    let later: &Script = &[None, WAITS, REFUSED, ASKS_FOR_MORE];
    let all = DIALECTS.into_iter().flat_map(|dialect| {
        [(false, first), (false, later), (true, first), (true, later)]
            .map(|(streams, script)| (dialect, streams, script))
    });
    join_all(all.map(|(dialect, streams, script)| one(dialect, streams, script))).await;
}

#[tokio::test]
async fn a_date_to_retry_after_is_kept() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let addr = upstream(move |_| {
        let fails = count.fetch_add(1, Ordering::SeqCst) < 1;
        async move {
            if !fails {
                return Response::new(Body::from(whole_text(Dialect::Chat, THEN)));
            }
            let date = SystemTime::now() + Duration::from_secs(2);
            let date = jiff::Timestamp::try_from(date).unwrap();
            let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
            let date = printer.timestamp_to_rfc9110_string(&date).unwrap();
            let answer = Response::builder().status(503).header("retry-after", date);
            answer.body(Body::empty()).unwrap()
        }
    })
    .await;
    let proxy = patient(addr, Duration::from_secs(60)).await;
    let begun = Instant::now();
    assert_eq!(ask(&proxy, Dialect::Chat, false).await.status, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    // Dates have no fractions of a second.
    assert!(begun.elapsed() >= Duration::from_millis(900), "too soon");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_retries() {
    let (addr, asked) = down(Dialect::Chat, 503, usize::MAX, &[("retry-after-ms", "50")]).await;
    let proxy = patient(addr, Duration::from_secs(600)).await;
    let url = proxy.url(path(Dialect::Chat));
    let body = request(Dialect::Chat, true);
    let sending = tokio::spawn(client().post(url).body(body).send());
    while asked.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sending.abort();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let then = asked.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(asked.load(Ordering::SeqCst), then);
}

#[tokio::test]
async fn an_upstream_that_does_not_listen_is_waited_for() {
    let (held, addr) = nobody();
    let proxy = patient(addr, Duration::from_secs(60)).await;
    let url = proxy.url(path(Dialect::Chat));
    let body = request(Dialect::Chat, false);
    let sending = tokio::spawn(client().post(url).body(body).send());
    tokio::time::sleep(Duration::from_millis(600)).await;
    let listener = held.listen(16).unwrap();
    let answer = || async { Response::new(Body::from(whole_text(Dialect::Chat, THEN))) };
    let router = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let response = soon(sending).await.unwrap().unwrap();
    assert!(response.text().await.unwrap().contains(THEN));
}

#[tokio::test]
async fn a_client_hears_heartbeats_while_its_upstream_is_down() {
    for dialect in DIALECTS {
        let (addr, asked) = down(dialect, 503, 4, &[("retry-after-ms", "300")]).await;
        let proxy = beating(addr, Duration::from_secs(60)).await;
        let answer = ask(&proxy, dialect, true).await;
        let text = answer.text();
        assert_eq!(answer.status, 200, "{dialect:?} {text}");
        assert!(text.contains(THEN) && !answer.broken, "{dialect:?} {text}");
        let beats = text.lines().filter(|line| *line == ": plimsoll").count();
        assert!(beats > 2, "{dialect:?} {text}");
        assert_eq!(asked.load(Ordering::SeqCst), 5, "{dialect:?}");
        // A client that waits for a whole body has nothing to read before it comes.
        let (addr, _) = down(dialect, 503, 2, &[("retry-after-ms", "300")]).await;
        let proxy = beating(addr, Duration::from_secs(60)).await;
        let answer = ask(&proxy, dialect, false).await;
        let text = answer.text();
        assert!(answer.status == 200 && text.starts_with('{'), "{text}");
    }
}

#[tokio::test]
async fn what_comes_of_a_wait_is_told_behind_heartbeats() {
    for dialect in DIALECTS {
        // Asking again may help: the connection breaks, as the upstream's would.
        let (addr, _) = down(dialect, 503, usize::MAX, &[]).await;
        let proxy = beating(addr, Duration::from_millis(900)).await;
        let answer = ask(&proxy, dialect, true).await;
        let text = answer.text();
        assert!(answer.broken && text.contains(": plimsoll\n"), "{text}");

        // It can't: an error event.
        let asked = Arc::new(AtomicUsize::new(0));
        let addr = upstream(move |_| {
            let down = asked.fetch_add(1, Ordering::SeqCst) < 4;
            async move {
                let status = if down { 503 } else { 401 };
                let answer = Response::builder()
                    .status(status)
                    .header("retry-after-ms", "300");
                let error = r#"{"error":{"message":"no such key","type":"auth"}}"#;
                answer.body(Body::from(error)).unwrap()
            }
        })
        .await;
        let proxy = beating(addr, Duration::from_secs(60)).await;
        let answer = ask(&proxy, dialect, true).await;
        let text = answer.text();
        assert!(!answer.broken, "{dialect:?} {text}");
        assert!(text.contains(": plimsoll\n"), "{dialect:?} {text}");
        assert!(text.contains("no such key"), "{dialect:?} {text}");
    }
}

/// A proxy that is patient, and whose clients are not.
async fn beating(addr: SocketAddr, time: Duration) -> Proxy {
    Proxy::with(addr, |config| {
        config.upstream.retries = 0;
        config.upstream.retry_for = Some(time);
        config.streams.heartbeat = Duration::from_millis(150);
    })
    .await
}
