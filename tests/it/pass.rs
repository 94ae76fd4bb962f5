//! What goes through goes through unchanged, both ways, as it comes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use plimsoll_ingress::Hosts;

use crate::support::{
    EMPTY, Proxy, channel_body, client, noise, padded, raw_upstream, read_head, soon, talk,
    upstream,
};

/// What the upstream was asked last.
type Seen = Arc<Mutex<Option<(Method, String, HeaderMap, Bytes)>>>;

/// An upstream that keeps what it is asked and answers with `answer`.
async fn keeping(answer: fn() -> Response) -> (std::net::SocketAddr, Seen) {
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    let addr = upstream(move |request| {
        let kept = Arc::clone(&kept);
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let asked = parts.uri.path_and_query().unwrap().to_string();
            *kept.lock().unwrap() = Some((parts.method, asked, parts.headers, body));
            answer()
        }
    })
    .await;
    (addr, seen)
}

#[tokio::test]
async fn any_method_and_path_arrives_byte_for_byte() {
    let (addr, seen) = keeping(|| Response::new(Body::from(noise(300_000)))).await;
    let proxy = Proxy::before(addr).await;
    let table = [
        ("POST", "/v1/chat/completions", "/v1/chat/completions"),
        (
            "POST",
            "/chat/completions?a=b%20c&d",
            "/v1/chat/completions?a=b%20c&d",
        ),
        (
            "POST",
            "/openai/deployments/d/chat/completions",
            "/v1/openai/deployments/d/chat/completions",
        ),
        ("POST", "/v1/embeddings", "/v1/embeddings"),
        ("POST", "/v1/files", "/v1/files"),
        ("PUT", "/v1/a%2Fb/c", "/v1/a%2Fb/c"),
        ("PATCH", "/v1/", "/v1/"),
        (
            "DELETE",
            "/v1/files/f?x=/chat/completions",
            "/v1/files/f?x=/chat/completions",
        ),
        ("PROPFIND", "/unknown//path", "/unknown//path"),
        ("OPTIONS", "/v1/chat/completions", "/v1/chat/completions"),
    ];
    for (method, path, wanted) in table {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let sent = padded(200_000);
        let request = client()
            .request(method.clone(), proxy.url(path))
            .body(sent.clone());
        let response = soon(request.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{method} {path}");
        assert_eq!(
            response.bytes().await.unwrap(),
            noise(300_000),
            "{method} {path}"
        );
        let (got_method, got_path, _, got) = seen.lock().unwrap().take().unwrap();
        assert_eq!((got_method, got_path.as_str()), (method, wanted));
        assert_eq!(got, sent, "{path}");
    }
}

#[tokio::test]
async fn requests_without_a_body_have_none_upstream() {
    let (addr, seen) = keeping(|| Response::new(Body::empty())).await;
    let proxy = Proxy::before(addr).await;
    soon(client().get(proxy.url("/v1/models")).send())
        .await
        .unwrap();
    let (method, path, headers, body) = seen.lock().unwrap().take().unwrap();
    assert_eq!(
        (method, path.as_str(), body.len()),
        (Method::GET, "/v1/models", 0)
    );
    assert!(!headers.contains_key("transfer-encoding"), "{headers:?}");
}

#[tokio::test]
async fn headers_are_filtered_both_ways() {
    let (addr, seen) = keeping(|| {
        Response::builder()
            .header("x-request-id", "req_1")
            .header("content-type", "text/odd")
            .header("set-cookie", "a=b")
            .header("connection", "x-private")
            .header("x-private", "1")
            .header("x-plimsoll-turn", "9")
            .header("retry-after", "3")
            .header("x-twice", "1")
            .header("x-twice", "2")
            .body(Body::from("x"))
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(addr).await;
    for path in ["/v1/chat/completions", "/v1/embeddings"] {
        let request = client()
            .post(proxy.url(path))
            .header("authorization", "Bearer sk-1")
            .header("x-api-key", "k")
            .header("cookie", "a=b")
            .header("proxy-authorization", "Basic x")
            .header("x-plimsoll-session", "s")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("te", "trailers")
            .header("accept-encoding", "gzip, br")
            .header("x-session-id", "ses_1")
            .body(EMPTY);
        let response = soon(request.send()).await.unwrap();
        let (_, _, up, _) = seen.lock().unwrap().take().unwrap();
        for (name, value) in [
            ("authorization", "Bearer sk-1"),
            ("x-api-key", "k"),
            ("accept-encoding", "gzip, br"),
            ("x-session-id", "ses_1"),
            ("content-length", "15"),
            ("host", &addr.to_string()),
        ] {
            assert_eq!(up.get(name).unwrap(), value, "{path}: {name}");
        }
        for name in [
            "cookie",
            "proxy-authorization",
            "x-plimsoll-session",
            "x-hop",
            "te",
        ] {
            assert!(!up.contains_key(name), "{path}: {name}");
        }
        let down = response.headers();
        assert_eq!(down["x-request-id"], "req_1");
        assert_eq!(down["content-type"], "text/odd");
        assert_eq!(down["retry-after"], "3");
        assert_eq!(
            down.get_all("x-twice").iter().collect::<Vec<_>>(),
            ["1", "2"]
        );
        for name in ["set-cookie", "x-private", "x-plimsoll-turn"] {
            assert!(!down.contains_key(name), "{path}: {name}");
        }
    }
}

#[tokio::test]
async fn upstream_errors_arrive_byte_for_byte() {
    let table: [(u16, &str); 9] = [
        (
            400,
            r#"{"error":{"message":"bad","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#,
        ),
        (401, r#"{"error":{"message":"Incorrect API key"}}"#),
        (404, "<html>not found</html>"),
        (413, ""),
        (422, "{\"detail\" : [ ]}\n"),
        (429, r#"{"error":{"code":"rate_limit_exceeded"}}"#),
        (500, "\u{fffd} odd \r\n bytes"),
        (503, "busy"),
        (529, r#"{"type":"overloaded_error"}"#),
    ];
    let addr = upstream(move |request| async move {
        let status: u16 = request.headers()["x-want"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let (_, body) = table.iter().find(|(wanted, _)| *wanted == status).unwrap();
        let answer = Response::builder()
            .status(status)
            .header("retry-after", "7");
        answer.body(Body::from(*body)).unwrap()
    })
    .await;
    let proxy = Proxy::before(addr).await;
    for path in ["/v1/chat/completions", "/v1/embeddings"] {
        for (status, body) in table {
            let request = client()
                .post(proxy.url(path))
                .header("x-want", status)
                .body(EMPTY);
            let response = soon(request.send()).await.unwrap();
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()["retry-after"], "7");
            assert_eq!(response.text().await.unwrap(), body, "{path} {status}");
        }
    }
}

#[tokio::test]
async fn redirects_and_encodings_are_the_clients_business() {
    let gzipped: &[u8] = b"\x1f\x8b not really, and nobody may look";
    let addr = upstream(move |_| async move {
        Response::builder()
            .status(302)
            .header("location", "/elsewhere")
            .header("content-encoding", "gzip")
            .body(Body::from(gzipped))
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let response = soon(client().get(proxy.url("/v1/x")).send()).await.unwrap();
    assert_eq!(response.status(), 302);
    assert_eq!(response.headers()["location"], "/elsewhere");
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.bytes().await.unwrap(), gzipped);
}

#[tokio::test]
async fn a_head_keeps_its_length() {
    let addr = upstream(|_| async {
        Response::builder()
            .header("content-length", "12345")
            .body(Body::empty())
            .unwrap()
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let response = soon(client().head(proxy.url("/v1/files/f")).send())
        .await
        .unwrap();
    assert_eq!(response.headers()["content-length"], "12345");
}

/// Programs that know Ollama ask for its own paths beside OpenAI's, and whether it is there at all.
#[tokio::test]
async fn paths_of_no_api_go_to_the_root_of_the_upstream() {
    let (addr, seen) = keeping(|| Response::new(Body::from("Ollama is running"))).await;
    let proxy = Proxy::before(addr).await;
    for (method, path) in [
        (Method::HEAD, "/"),
        (Method::GET, "/"),
        (Method::GET, "/api/tags"),
        (Method::POST, "/api/show?x=1"),
    ] {
        let asked = client().request(method.clone(), proxy.url(path));
        let response = soon(asked.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{method} {path}");
        let text = response.text().await.unwrap();
        let wanted = if method == Method::HEAD {
            ""
        } else {
            "Ollama is running"
        };
        assert_eq!(text, wanted, "{method} {path}");
        let (got, asked, ..) = seen.lock().unwrap().take().unwrap();
        assert_eq!((got, asked.as_str()), (method, path));
    }
}

#[tokio::test]
async fn responses_are_not_buffered() {
    for path in ["/v1/chat/completions", "/v1/embeddings"] {
        let (sender, body) = channel_body();
        let body = Arc::new(Mutex::new(Some(body)));
        let addr = upstream(move |_| {
            let body = body.lock().unwrap().take().unwrap();
            async {
                Response::builder()
                    .header("content-type", "text/event-stream")
                    .body(body)
                    .unwrap()
            }
        })
        .await;
        let proxy = Proxy::before(addr).await;
        let sending = client().post(proxy.url(path)).body(EMPTY).send();
        sender.send("data: 1\n\n").await.unwrap();
        let mut stream = soon(sending).await.unwrap().bytes_stream();
        // The upstream sends the next frame only once the client holds the one before.
        for (held, next) in [("data: 1\n\n", "data: \u{e9}"), ("data: \u{e9}", "\n\n")] {
            assert_eq!(soon(stream.next()).await.unwrap().unwrap(), held, "{path}");
            sender.send(next).await.unwrap();
        }
        assert_eq!(soon(stream.next()).await.unwrap().unwrap(), "\n\n");
        drop(sender);
        assert!(soon(stream.next()).await.is_none(), "{path}");
    }
}

#[tokio::test]
async fn uploads_are_not_buffered() {
    let (reached, mut arrived) = mpsc::channel(4);
    let addr = upstream(move |request| {
        let reached = reached.clone();
        async move {
            let mut body = request.into_body().into_data_stream();
            while let Some(Ok(chunk)) = body.next().await {
                reached.send(chunk).await.unwrap();
            }
            Response::new(Body::from("done"))
        }
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let (sender, body) = channel_body();
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let sending = tokio::spawn(client().post(proxy.url("/v1/files")).body(body).send());
    for part in ["one", "two", "three"] {
        sender.send(part).await.unwrap();
        assert_eq!(soon(arrived.recv()).await.unwrap(), part);
    }
    drop(sender);
    let response = soon(sending).await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "done");
}

#[tokio::test]
async fn chunked_bodies_are_managed_too() {
    let (addr, seen) = keeping(|| Response::new(Body::empty())).await;
    let proxy = Proxy::before(addr).await;
    let request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
        transfer-encoding: chunked\r\n\r\n3\r\n{\"m\r\nd\r\nessages\": []}\r\n0\r\n\r\n";
    let answer = talk(proxy.addr, request).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let (_, _, headers, body) = seen.lock().unwrap().take().unwrap();
    assert_eq!(body, "{\"messages\": []}");
    assert_eq!(headers["content-length"], "16");
}

#[tokio::test]
async fn an_absolute_url_names_no_host_to_us() {
    let (addr, seen) = keeping(|| Response::new(Body::from("ok"))).await;
    let proxy = Proxy::with(addr, |config| {
        config.server.hosts = Hosts::read(&["evil.example".to_owned()]).unwrap();
    })
    .await;
    let request = b"GET http://evil.example/v1/models HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let answer = talk(proxy.addr, request).await;
    assert!(answer.ends_with(b"ok"));
    let (_, path, headers, _) = seen.lock().unwrap().take().unwrap();
    assert_eq!(path, "/v1/models");
    assert_eq!(headers["host"], addr.to_string());
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on() {
    let (addr, seen) = keeping(|| Response::new(Body::from("ok"))).await;
    let proxy = Proxy::before(addr).await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    let head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
        expect: 100-continue\r\ncontent-length: 15\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut go_on = [0; 25];
    soon(stream.read_exact(&mut go_on)).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(EMPTY.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.ends_with(b"ok"));
    let (_, _, headers, body) = seen.lock().unwrap().take().unwrap();
    assert_eq!(body, EMPTY);
    assert!(!headers.contains_key("expect"));
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let (addr, _) = keeping(|| Response::new(Body::from("ok"))).await;
    let proxy = Proxy::before(addr).await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    for _ in 0..3 {
        stream
            .write_all(b"GET /v1/x HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            answer.push(soon(stream.read_u8()).await.unwrap());
        }
    }
}

/// Answers, and takes what still comes: a connection that is closed before that loses the answer.
async fn close_with(mut stream: TcpStream, answer: &str) {
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _left = stream.read_to_end(&mut rest).await;
}

/// A provider may refuse a request for its headers, and read the rest while the client still writes.
#[tokio::test]
async fn an_early_answer_reaches_a_client_that_still_writes() {
    let upstream = raw_upstream(|mut stream| async move {
        read_head(&mut stream).await;
        let answer =
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        close_with(stream, answer).await;
    })
    .await;
    let proxy = Proxy::before(upstream).await;
    let body = noise(8 << 20);
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in body.chunks(1 << 20) {
        soon(stream.write_all(piece)).await.unwrap();
        // The answer has come through by then.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut answer = [0; 12];
    soon(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

/// What an upstream gets of a request without a body, with an empty one, and with one that is streamed.
#[tokio::test]
async fn a_head_gains_no_more_than_a_host_and_that_anything_is_accepted() {
    let upstream = raw_upstream(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let (first, rest) = head.split_once("\r\n").unwrap();
        let mut lines: Vec<&str> = rest.trim_end().split("\r\n").collect();
        lines.retain(|line| !line.starts_with("host: 127.0.0.1:"));
        lines.sort_unstable();
        let seen = format!("{first}|{}", lines.join("|"));
        let length = seen.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{seen}"
        );
        close_with(stream, &answer).await;
    })
    .await;
    let proxy = Proxy::before(upstream).await;
    for (sent, body, seen) in [
        (
            "GET /v1/files?a=%20b HTTP/1.1",
            "",
            "GET /v1/files?a=%20b HTTP/1.1|accept: */*",
        ),
        (
            "POST /v1/files HTTP/1.1\r\naccept: text/*\r\ncontent-length: 0",
            "",
            "POST /v1/files HTTP/1.1|accept: text/*",
        ),
        (
            "PUT /v1/files HTTP/1.1\r\ncontent-length: 2",
            "ab",
            "PUT /v1/files HTTP/1.1|accept: */*|content-length: 2",
        ),
        (
            "POST /v1/files HTTP/1.1\r\ntransfer-encoding: chunked",
            "2\r\nab\r\n0\r\n\r\n",
            "POST /v1/files HTTP/1.1|accept: */*|transfer-encoding: chunked",
        ),
    ] {
        let request = format!("{sent}\r\nhost: localhost\r\nconnection: close\r\n\r\n{body}");
        let answer = String::from_utf8(talk(proxy.addr, request.as_bytes()).await).unwrap();
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, seen);
    }
}
