//! An upstream that refuses, stalls, lies or breaks, and clients that leave: the caller always gets
//! a clear error or a broken connection, never a clean end that is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::agent::metric;
use crate::support::{
    EMPTY, Proxy, channel_body, client, error_of, nobody, raw_upstream, read_head, soon, upstream,
};

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/embeddings?key=sk-query-secret"];

/// What comes back for a request that carries secrets; none of them may be in it.
async fn failure(proxy: &Proxy, path: &str) -> (u16, String, String, String, String) {
    let request = client()
        .post(proxy.url(path))
        .header("authorization", "Bearer sk-secret")
        .body(EMPTY);
    let error = error_of(soon(request.send()).await.unwrap()).await;
    assert!(!error.4.contains("secret"), "{}", error.4);
    error
}

#[tokio::test]
async fn a_refused_connection_is_502() {
    let (_held, upstream) = nobody();
    let proxy = Proxy::with(upstream, |config| config.upstream.retries = 1).await;
    for path in PATHS {
        let (status, kind, param, code, message) = failure(&proxy, path).await;
        assert_eq!(
            (status, kind.as_str(), param.as_str()),
            (502, "server_error", "null")
        );
        assert_eq!(code, "upstream_unreachable");
        assert!(message.contains("upstream.base_url"), "{message}");
    }
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_502() {
    let (_held, upstream) = nobody();
    let proxy = Proxy::with(upstream, |config| {
        config.upstream.retries = 0;
        config.upstream.base_url =
            plimsoll_proxy::upstream::BaseUrl::parse("http://nowhere.invalid/v1").unwrap();
    })
    .await;
    assert_eq!(failure(&proxy, PATHS[0]).await.3, "upstream_unreachable");
}

#[tokio::test]
async fn silence_before_the_first_byte_is_504() {
    let addr = raw_upstream(|mut stream| async move {
        read_head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let short = Duration::from_millis(100);
    let proxy = Proxy::with(addr, |config| config.upstream.first_byte_timeout = short).await;
    for path in PATHS {
        let (status, _, _, code, message) = failure(&proxy, path).await;
        assert_eq!((status, code.as_str()), (504, "upstream_timeout"));
        assert!(message.contains("first_byte_timeout"), "{message}");
    }
}

#[tokio::test]
async fn an_upload_that_moves_is_no_silence() {
    let addr = upstream(|request| async {
        let body = axum::body::to_bytes(request.into_body(), usize::MAX)
            .await
            .unwrap();
        Response::new(Body::from(body))
    })
    .await;
    let limit = Duration::from_secs(2);
    let proxy = Proxy::with(addr, |config| config.upstream.first_byte_timeout = limit).await;
    let (sender, body) = channel_body();
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let sending = tokio::spawn(client().post(proxy.url("/v1/files")).body(body).send());
    // Longer than the limit in all, with pauses far shorter than it.
    for _ in 0..6 {
        sender.send("x").await.unwrap();
        tokio::time::sleep(limit / 4).await;
    }
    drop(sender);
    let response = soon(sending).await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "xxxxxx");
}

#[tokio::test]
async fn no_http_at_all_is_502() {
    for garbage in [
        b"".as_slice(),
        b"\xff\xfe\x00garbage\r\n\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nhalf",
    ] {
        let addr = raw_upstream(move |mut stream| async move {
            read_head(&mut stream).await;
            let _gone = stream.write_all(garbage).await;
        })
        .await;
        let proxy = Proxy::before(addr).await;
        for path in PATHS {
            let (status, _, _, code, _) = failure(&proxy, path).await;
            assert_eq!(
                (status, code.as_str()),
                (502, "upstream_broken"),
                "{garbage:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_head_of_60_kib_passes_and_one_of_200_is_502() {
    for (kib, expected) in [(60, 200), (200, 502)] {
        let addr = raw_upstream(move |mut stream| async move {
            read_head(&mut stream).await;
            let long = "x".repeat(kib << 10);
            let head = format!("HTTP/1.1 200 OK\r\nx-long: {long}\r\ncontent-length: 0\r\n\r\n");
            // The proxy may hang up before it has read all.
            let _gone = stream.write_all(head.as_bytes()).await;
        })
        .await;
        let proxy = Proxy::before(addr).await;
        let response = soon(client().get(proxy.url("/v1/files")).send()).await;
        assert_eq!(response.unwrap().status(), expected, "{kib} KiB");
    }
}

/// Answers with these bytes, then closes or waits.
async fn half(answer: &'static [u8], close: bool) -> std::net::SocketAddr {
    raw_upstream(move |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(answer).await.unwrap();
        if !close {
            std::future::pending::<()>().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_stream_that_is_cut_never_ends_cleanly() {
    let answers: [&'static [u8]; 3] = [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
    ];
    for answer in answers {
        let proxy = Proxy::before(half(answer, true).await).await;
        for path in PATHS {
            let response = soon(client().post(proxy.url(path)).body(EMPTY).send())
                .await
                .unwrap();
            assert_eq!(response.status(), 200);
            let mut stream = response.bytes_stream();
            let mut got = Vec::new();
            let end = loop {
                match soon(stream.next()).await {
                    Some(Ok(bytes)) => got.extend_from_slice(&bytes),
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            };
            assert_eq!(got, b"hello", "what came goes on");
            assert!(end.is_some(), "a cut looked like an end");
        }
    }
}

#[tokio::test]
async fn a_forwarded_answer_that_breaks_at_once_still_has_its_status() {
    let broken = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n";
    for path in ["/v1/embeddings", "/v1/models"] {
        let proxy = Proxy::before(half(broken, true).await).await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut stream = tokio::net::TcpStream::connect(proxy.addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // How the connection ends is the system's affair.
        let _ended = soon(stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer:?}");
        assert!(!answer.ends_with("0\r\n\r\n"), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_cut() {
    let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let addr = half(answer, false).await;
    let proxy = Proxy::with(addr, |config| {
        config.upstream.idle_timeout = Duration::from_millis(100)
    })
    .await;
    let response = soon(client().post(proxy.url(PATHS[0])).body(EMPTY).send())
        .await
        .unwrap();
    assert!(soon(response.bytes()).await.is_err());
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_cancels_the_upstream() {
    for path in PATHS {
        let (gone, mut cancelled) = mpsc::channel(1);
        let addr = raw_upstream(move |mut stream| {
            let gone = gone.clone();
            async move {
                read_head(&mut stream).await;
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
                stream.write_all(head).await.unwrap();
                let mut rest = Vec::new();
                let _reset = stream.read_to_end(&mut rest).await;
                gone.send(()).await.unwrap();
            }
        })
        .await;
        let proxy = Proxy::before(addr).await;
        let mut response = soon(client().post(proxy.url(path)).body(EMPTY).send())
            .await
            .unwrap();
        assert_eq!(soon(response.chunk()).await.unwrap().unwrap(), "hello");
        drop(response);
        soon(cancelled.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_cancels_the_upstream() {
    for path in PATHS {
        let (event, mut events) = mpsc::channel(2);
        let addr = raw_upstream(move |mut stream| {
            let event = event.clone();
            async move {
                read_head(&mut stream).await;
                event.send("asked").await.unwrap();
                let mut rest = Vec::new();
                let _reset = stream.read_to_end(&mut rest).await;
                event.send("cancelled").await.unwrap();
            }
        })
        .await;
        let proxy = Proxy::before(addr).await;
        let sending = tokio::spawn(client().post(proxy.url(path)).body(EMPTY).send());
        assert_eq!(soon(events.recv()).await, Some("asked"));
        sending.abort();
        assert_eq!(soon(events.recv()).await, Some("cancelled"));
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_its_upload_leaves_no_request_behind() {
    let (event, mut events) = mpsc::channel(2);
    let addr = upstream(move |request| {
        let event = event.clone();
        async move {
            let mut body = request.into_body().into_data_stream();
            while let Some(chunk) = body.next().await {
                event.send(chunk.is_ok()).await.unwrap();
            }
            Response::new(Body::empty())
        }
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let (sender, body) = channel_body();
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let sending = tokio::spawn(client().post(proxy.url("/v1/files")).body(body).send());
    sender.send("part").await.unwrap();
    assert_eq!(soon(events.recv()).await, Some(true));
    sending.abort();
    assert_eq!(
        soon(events.recv()).await,
        Some(false),
        "the upload must break, not end"
    );
}

/// An upstream that answers 503 until it has been asked `failures` times.
async fn unsteady(failures: usize) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let addr = upstream(move |_| {
        let fails = count.fetch_add(1, Ordering::SeqCst) < failures;
        async move {
            let status = if fails { 503 } else { 200 };
            let answer = Response::builder()
                .status(status)
                .header("retry-after-ms", "1");
            answer.body(Body::from(status.to_string())).unwrap()
        }
    })
    .await;
    (addr, asked)
}

#[tokio::test]
async fn statuses_are_retried_only_where_config_says_so() {
    // (statuses, retries, failures, path) -> (status, times asked)
    type Row = (&'static [u16], u32, usize, &'static str, u16, usize);
    let table: [Row; 5] = [
        (&[], 2, 1, PATHS[0], 503, 1),
        (&[503], 2, 2, PATHS[0], 200, 3),
        (&[503], 2, 9, PATHS[0], 503, 3),
        (&[429], 2, 1, PATHS[0], 503, 1),
        // A body that was streamed is gone: sent once.
        (&[503], 2, 1, PATHS[1], 503, 1),
    ];
    for (statuses, retries, failures, path, status, times) in table {
        let (addr, asked) = unsteady(failures).await;
        let proxy = Proxy::with(addr, |config| {
            config.upstream.retry_statuses = statuses.to_vec();
            config.upstream.retries = retries;
        })
        .await;
        let response = soon(client().post(proxy.url(path)).body(EMPTY).send())
            .await
            .unwrap();
        assert_eq!(
            response.status().as_u16(),
            status,
            "{statuses:?} {failures}"
        );
        assert_eq!(response.text().await.unwrap(), status.to_string());
        assert_eq!(
            asked.load(Ordering::SeqCst),
            times,
            "{statuses:?} {failures}"
        );
        let counted = metric(&proxy, r#"plimsoll_retries_total{reason="status"}"#).await;
        let again = times - 1;
        let line = format!(r#"plimsoll_retries_total{{reason="status"}} {again}"#);
        assert_eq!(counted, Some(line));
    }
}

#[tokio::test]
async fn a_refused_connection_is_tried_again() {
    // Nobody listens until the first try has failed; the retry finds the upstream.
    let (held, addr) = nobody();
    let proxy = Proxy::with(addr, |config| config.upstream.retries = 8).await;
    let sending = tokio::spawn(client().post(proxy.url(PATHS[0])).body(EMPTY).send());
    while tokio::net::TcpStream::connect(addr).await.is_ok() {}
    tokio::time::sleep(Duration::from_millis(50)).await;
    let listener = held.listen(16).unwrap();
    let router = axum::Router::new().fallback(|| async { "back" });
    tokio::spawn(async move { axum::serve(listener, router).await });
    let response = soon(sending).await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "back");
}
