//! Caps, refusals and health: every refusal is in OpenAI's shape and says what to do.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::Response;
use futures_util::StreamExt as _;
use plimsoll::config::ProfileSection;
use plimsoll_ingress::Drained;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::metric;
use crate::support::{
    EMPTY, Proxy, channel_body, client, error_of, noise, padded, soon, talk, upstream,
};

const CHAT: &str = "/v1/chat/completions";
const CAP: usize = 100_000;

/// Echoes the body, and the content-encoding that it came with.
async fn echo() -> std::net::SocketAddr {
    upstream(|request| async {
        let coding = request.headers().get("content-encoding").cloned();
        let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let mut response = Response::new(Body::from(body));
        if let Some(coding) = coding {
            response.headers_mut().insert("x-coding", coding);
        }
        response
    })
    .await
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn bodies_over_the_cap_are_413() {
    let proxy = Proxy::with(echo().await, |config| config.server.body_cap = CAP).await;
    let fits = soon(client().post(proxy.url(CHAT)).body(padded(CAP)).send())
        .await
        .unwrap();
    assert_eq!(fits.bytes().await.unwrap(), padded(CAP));

    let stream = futures_util::stream::iter(
        noise(CAP + 1)
            .chunks(5_000)
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>(),
    );
    let chunked = reqwest::Body::wrap_stream(stream.map(Ok::<_, std::io::Error>));
    let bomb = zstd::encode_all(vec![b' '; CAP + 1].as_slice(), 1).unwrap();
    for (what, request) in [
        (
            "length",
            client().post(proxy.url(CHAT)).body(noise(CAP + 1)),
        ),
        (
            "twice as much",
            client().post(proxy.url(CHAT)).body(noise(2 * CAP)),
        ),
        ("chunked", client().post(proxy.url(CHAT)).body(chunked)),
        (
            "bomb",
            client()
                .post(proxy.url(CHAT))
                .header("content-encoding", "zstd")
                .body(bomb),
        ),
    ] {
        let (status, kind, _, code, message) = error_of(soon(request.send()).await.unwrap()).await;
        assert_eq!(
            (status, kind.as_str(), code.as_str()),
            (413, "invalid_request_error", "body_too_large"),
            "{what}"
        );
        assert!(message.contains("server.body_cap"), "{message}");
    }

    let passed = soon(
        client()
            .post(proxy.url("/v1/files"))
            .body(noise(3 * CAP))
            .send(),
    )
    .await
    .unwrap();
    assert_eq!(
        passed.bytes().await.unwrap(),
        noise(3 * CAP),
        "what is streamed has no cap"
    );
}

#[tokio::test]
async fn a_client_that_writes_before_it_reads_gets_the_answer_and_no_reset() {
    let cap = 8 << 20;
    let proxy = Proxy::with(echo().await, |config| config.server.body_cap = cap).await;
    // Far more than socket buffers hold: unread, it would be answered with a reset.
    let mut request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        2 * cap
    )
    .into_bytes();
    request.extend(noise(2 * cap));
    let answer = talk(proxy.addr, &request).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

/// Many clients send a request's head and its body in two writes, and read only then.
#[tokio::test]
async fn a_refusal_for_the_head_alone_waits_for_the_body() {
    let proxy = Proxy::before(echo().await).await;
    for (header, status) in [
        ("x-plimsoll-budget: 12", 400),
        ("x-plimsoll-mode: sometimes", 400),
        ("origin: https://elsewhere.example", 403),
    ] {
        let body = r#"{"model":"m","messages":[]}"#;
        let length = body.len();
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{header}\r\ncontent-length: {length}\r\n\r\n"
        );
        let next = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The answer could have been sent by then, and the connection closed.
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(body.as_bytes()).await.unwrap();
        stream.write_all(next.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        soon(stream.read_to_end(&mut answers)).await.unwrap();
        let answers = String::from_utf8_lossy(&answers);
        let refused = format!("HTTP/1.1 {status}");
        assert!(answers.starts_with(&refused), "{header}: {answers}");
        assert!(
            answers.contains("HTTP/1.1 200"),
            "the connection goes on, {header}: {answers}"
        );
    }
}

#[tokio::test]
async fn a_client_that_asks_first_is_refused_before_it_sends() {
    let proxy = Proxy::with(echo().await, |config| config.server.body_cap = CAP).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 999999999\r\n\r\n"
    );
    let answer = talk(proxy.addr, head.as_bytes()).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn compressed_bodies_are_understood_and_forwarded_as_sent() {
    let proxy = Proxy::before(echo().await).await;
    let body = br#"{"model":"m","messages":[]}"#;
    for (coding, sent) in [
        ("gzip", gzip(body)),
        ("zstd", zstd::encode_all(&body[..], 1).unwrap()),
    ] {
        let request = client()
            .post(proxy.url(CHAT))
            .header("content-encoding", coding)
            .body(sent.clone());
        let response = soon(request.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{coding}");
        assert_eq!(response.headers()["x-coding"], coding);
        assert_eq!(response.bytes().await.unwrap(), sent);

        let broken = client()
            .post(proxy.url(CHAT))
            .header("content-encoding", coding)
            .body(EMPTY);
        let (status, _, param, code, message) = error_of(soon(broken.send()).await.unwrap()).await;
        assert_eq!(
            (status, param.as_str(), code.as_str()),
            (400, "content-encoding", "invalid_body")
        );
        assert!(message.contains(coding), "{message}");
    }
}

#[tokio::test]
async fn a_coding_that_we_cannot_read_goes_through_and_says_so() {
    let proxy = Proxy::before(echo().await).await;
    let request = client()
        .post(proxy.url(CHAT))
        .header("content-encoding", "br")
        .body("not ours");
    let response = soon(request.send()).await.unwrap();
    assert_eq!(response.headers()["x-coding"], "br");
    assert_eq!(response.headers()["x-plimsoll-fail-open"], "ingress");
    assert_eq!(response.text().await.unwrap(), "not ours");
}

#[tokio::test]
async fn headers_of_ours_with_bad_values_are_400() {
    let proxy = Proxy::with(echo().await, |config| {
        let small = ProfileSection {
            when: None,
            turns: config.turns(),
        };
        config.profiles.insert("small".to_owned(), small);
    })
    .await;
    for (name, bad, hint) in [
        ("x-plimsoll-budget", "12", "4000"),
        ("x-plimsoll-budget", "400%", "40%"),
        ("x-plimsoll-mode", "maybe", "observe"),
        ("x-plimsoll-profile", "huge", "small"),
        ("x-plimsoll-policy", "lru", "cwl"),
        ("x-plimsoll-session", "a b", "without spaces"),
        ("x-plimsoll-parent", "", "1 to 256"),
    ] {
        let request = client().post(proxy.url(CHAT)).header(name, bad).body(EMPTY);
        let (status, kind, param, code, message) =
            error_of(soon(request.send()).await.unwrap()).await;
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert_eq!((param.as_str(), code.as_str()), (name, "invalid_header"));
        assert!(message.contains(hint), "{message}");
    }
    let good = client()
        .post(proxy.url(CHAT))
        .header("x-plimsoll-budget", "4000")
        .header("x-plimsoll-mode", "off")
        .header("x-plimsoll-profile", "small")
        .body(EMPTY);
    assert_eq!(soon(good.send()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn what_is_not_plain_http_is_refused() {
    let proxy = Proxy::before(echo().await).await;
    let websocket = client()
        .get(proxy.url("/v1/responses"))
        .header("connection", "Upgrade")
        .header("upgrade", "WebSocket")
        .header("sec-websocket-version", "13");
    let response = soon(websocket.send()).await.unwrap();
    assert!(response.headers().contains_key("upgrade"));
    assert_eq!(error_of(response).await.0, 426);

    let connect = talk(
        proxy.addr,
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(
        connect.starts_with(b"HTTP/1.1 405"),
        "{}",
        String::from_utf8_lossy(&connect)
    );

    let dots = talk(
        proxy.addr,
        b"GET /v1/../admin HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(
        dots.starts_with(b"HTTP/1.1 400"),
        "{}",
        String::from_utf8_lossy(&dots)
    );
}

#[tokio::test]
async fn a_full_house_is_503_and_empties_again() {
    let (sender, body) = channel_body();
    let body = Arc::new(Mutex::new(Some(body)));
    let addr = upstream(move |_| {
        let held = body.lock().unwrap().take();
        async { Response::new(held.unwrap_or_else(|| Body::from("free"))) }
    })
    .await;
    let proxy = Proxy::with(addr, |config| config.server.max_in_flight = 1).await;
    let holding = soon(client().post(proxy.url(CHAT)).body(EMPTY).send())
        .await
        .unwrap();
    // The head has arrived but the body has not ended: the place is still taken.
    let refused = soon(client().get(proxy.url("/v1/models")).send())
        .await
        .unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    let (status, kind, _, code, _) = error_of(refused).await;
    assert_eq!(
        (status, kind.as_str(), code.as_str()),
        (503, "server_error", "overloaded")
    );
    let counted = r#"plimsoll_http_requests_total{method="GET",route="forward",status="503"} 1"#;
    assert!(metric(&proxy, counted).await.is_some());
    sender.send("end").await.unwrap();
    drop(sender);
    assert_eq!(soon(holding.text()).await.unwrap(), "end");
    soon(async {
        while client()
            .get(proxy.url("/v1/models"))
            .send()
            .await
            .unwrap()
            .status()
            != 200
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_that_never_comes_whole_is_no_request() {
    let proxy = Proxy::before(echo().await).await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    let half =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{{\"a\"");
    stream.write_all(half.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let next = soon(client().post(proxy.url(CHAT)).body(EMPTY).send())
        .await
        .unwrap();
    assert_eq!(next.status(), 200, "the process lives");
}

#[tokio::test]
async fn admin_shows_health_and_metrics_until_the_end() {
    let (sender, body) = channel_body();
    let body = Arc::new(Mutex::new(Some(body)));
    let addr = upstream(move |_| {
        let body = body.lock().unwrap().take().unwrap();
        async { Response::new(body) }
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let admin = proxy.admin;
    let ask = async |path: &str| {
        let response = soon(client().get(format!("http://{admin}{path}")).send())
            .await
            .unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(ask("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(ask("/readyz").await, (200, "ok\n".to_owned()));
    let (status, metrics) = ask("/metrics").await;
    assert_eq!(status, 200);
    assert!(
        metrics.contains("plimsoll_build_info{"),
        "{}",
        metrics.len()
    );
    assert_eq!(ask("/v1/models").await.0, 404);

    let open = soon(client().post(proxy.url(CHAT)).body(EMPTY).send())
        .await
        .unwrap();
    proxy.stop.cancel();
    soon(async { while ask("/readyz").await.0 == 200 {} }).await;
    assert_eq!(ask("/livez").await.0, 200);
    drop(sender);
    assert_eq!(soon(open.text()).await.unwrap(), "");
    assert_eq!(soon(proxy.ended).await.unwrap(), Drained::Finished);
}
