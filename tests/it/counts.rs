//! What is answered, refused or tried again is counted, whoever answered it and however early.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use plimsoll_proxy::record::{Phase, StoreOp};
use plimsoll_scripted::Reply;
use tokio::net::TcpStream;

use super::agent::{Agent, bash, explore, metric, plan, provider, until_metric};
use super::support::{EMPTY, Proxy, client, nobody, noise, padded, soon, talk, upstream};

const CHAT: &str = "/v1/chat/completions";
const CAP: usize = 100_000;

async fn plain() -> std::net::SocketAddr {
    upstream(|_| async { Response::new(Body::from("fine")) }).await
}

fn requests(method: &str, route: &str, status: &str) -> String {
    format!(
        r#"plimsoll_http_requests_total{{method="{method}",route="{route}",status="{status}"}} 1"#
    )
}

#[tokio::test]
async fn each_refusal_at_the_edge_is_a_request_that_was_answered() {
    let post = |path: &'static str| move |proxy: &Proxy| client().post(proxy.url(path));
    let (chat, files) = (post(CHAT), post("/v1/files"));
    type Row = (
        &'static str,
        &'static str,
        u16,
        Box<dyn Fn(&Proxy) -> reqwest::RequestBuilder>,
    );
    let table: [Row; 6] = [
        (
            "POST",
            "chat_completions",
            413,
            Box::new(move |proxy| chat(proxy).body(noise(CAP + 1))),
        ),
        (
            "POST",
            "chat_completions",
            400,
            Box::new(move |proxy| chat(proxy).header("x-plimsoll-mode", "maybe").body(EMPTY)),
        ),
        (
            "POST",
            "chat_completions",
            400,
            Box::new(move |proxy| chat(proxy).header("content-encoding", "gzip").body(EMPTY)),
        ),
        (
            "POST",
            "forward",
            426,
            Box::new(move |proxy| files(proxy).header("upgrade", "websocket")),
        ),
        (
            "POST",
            "chat_completions",
            426,
            Box::new(move |proxy| chat(proxy).header("upgrade", "websocket")),
        ),
        (
            "PATCH",
            "forward",
            426,
            Box::new(|proxy| {
                client()
                    .patch(proxy.url(CHAT))
                    .header("upgrade", "websocket")
            }),
        ),
    ];
    for (method, route, status, request) in table {
        let proxy = Proxy::with(plain().await, |config| config.server.body_cap = CAP).await;
        let answer = soon(request(&proxy).send()).await.unwrap();
        assert_eq!(answer.status(), status);
        let line = requests(method, route, &status.to_string());
        assert!(metric(&proxy, &line).await.is_some(), "{line}");
        let duration = "plimsoll_http_request_duration_seconds_count 1";
        assert!(metric(&proxy, duration).await.is_some(), "once: {line}");
        // No hop, hidden or not, was ever on its way.
        let hops = "plimsoll_hidden_hops_count 0";
        assert!(metric(&proxy, hops).await.is_some(), "{line}");
    }
}

#[tokio::test]
async fn what_is_no_request_at_all_is_counted() {
    let long = format!(
        "GET /v1/models HTTP/1.1\r\nx-long: {}\r\n\r\n",
        "x".repeat(320 << 10)
    );
    for (bytes, method, status) in [
        (
            "CONNECT a.example:443 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            "CONNECT",
            "405",
        ),
        ("GET / HTTP/9.9\r\n\r\n", "other", "400"),
        ("what is this?\r\n\r\n", "other", "400"),
        (long.as_str(), "other", "431"),
    ] {
        let proxy = Proxy::before(plain().await).await;
        let answer = talk(proxy.addr, bytes.as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        until_metric(&proxy, &requests(method, "forward", status)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_its_body_is_counted() {
    let proxy = Proxy::before(plain().await).await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    let half =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{{\"a\"");
    tokio::io::AsyncWriteExt::write_all(&mut stream, half.as_bytes())
        .await
        .unwrap();
    drop(stream);
    // Whether a status was still written or not, is the connection's affair.
    until_metric(&proxy, "plimsoll_http_request_duration_seconds_count 1").await;
}

#[tokio::test]
async fn connections_that_are_tried_again_are_counted() {
    // (path, body, tries again): a body that was streamed is gone.
    for (path, retries, counted) in [(CHAT, 2, 2), (CHAT, 0, 0), ("/v1/files", 2, 0)] {
        let (_held, upstream) = nobody();
        let proxy = Proxy::with(upstream, |config| config.upstream.retries = retries).await;
        let answer = soon(client().post(proxy.url(path)).body(EMPTY).send()).await;
        assert_eq!(answer.unwrap().status(), 502);
        let line = metric(&proxy, r#"plimsoll_retries_total{reason="connect"}"#).await;
        let expect = format!(r#"plimsoll_retries_total{{reason="connect"}} {counted}"#);
        assert_eq!(line, Some(expect), "{path} {retries}");
    }
    for stream in [false, true] {
        let (_held, upstream) = nobody();
        let proxy = Proxy::with(upstream, |config| config.upstream.retries = 1).await;
        assert_eq!(
            Agent::new(&proxy, stream).told("go").ask().await.status,
            502
        );
        let line = r#"plimsoll_retries_total{reason="connect"} 1"#;
        assert!(metric(&proxy, line).await.is_some(), "a managed turn");
    }
}

#[tokio::test]
async fn each_phase_and_each_operation_of_the_store_is_measured() {
    for stream in [false, true] {
        let hidden = Reply::calls(vec![explore("d1", "a")]);
        let provider = provider(plan([
            ("go", vec![Reply::calls(vec![bash("b1")])]),
            ("b1", vec![hidden]),
        ]))
        .await;
        let first = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&first, stream).told("go");
        agent.work("out").await;
        // A process that remembers nothing finds the session in the store.
        let store = Arc::clone(&first.app.store);
        let proxy = Proxy::wired(provider.address, |_| {}, |app| app.store = store).await;
        agent.url = proxy.url(CHAT);
        agent.turn().await;
        let measured = async |line: String| {
            let found = metric(&proxy, &line).await.unwrap();
            let count: u64 = found.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(count > 0, "{found}");
        };
        for phase in Phase::ALL {
            let phase = phase.name();
            measured(format!(
                r#"plimsoll_overhead_seconds_count{{phase="{phase}"}}"#
            ))
            .await;
        }
        for op in StoreOp::ALL {
            let op = op.name();
            measured(format!(r#"plimsoll_store_op_seconds_count{{op="{op}"}}"#)).await;
        }
        // What is remembered is looked up nowhere.
        let reads =
            ["links", "blobs"].map(|op| format!("plimsoll_store_op_seconds_count{{op=\"{op}\"}}"));
        let before = [
            metric(&proxy, &reads[0]).await,
            metric(&proxy, &reads[1]).await,
        ];
        agent.user("and now?");
        agent.turn().await;
        let after = [
            metric(&proxy, &reads[0]).await,
            metric(&proxy, &reads[1]).await,
        ];
        assert_eq!(before, after);
    }
}

#[tokio::test]
async fn a_coding_that_cannot_be_read_is_a_failure_of_ours() {
    let proxy = Proxy::before(plain().await).await;
    let request = client()
        .post(proxy.url(CHAT))
        .header("content-encoding", "br");
    let answer = soon(request.body(padded(100)).send()).await.unwrap();
    assert_eq!(answer.headers()["x-plimsoll-fail-open"], "ingress");
    for line in [
        r#"plimsoll_fail_open_total{stage="ingress"} 1"#.to_owned(),
        requests("POST", "chat_completions", "200"),
    ] {
        assert!(metric(&proxy, &line).await.is_some(), "{line}");
    }
}
