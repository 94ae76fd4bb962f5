//! A process that may open few files: it takes what it may have, keeps some back for whoever looks
//! after it, and says what it could not accept.

use std::net::SocketAddr;

use axum::body::Body;
use axum::response::Response;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::child::Serving;
use crate::support::{EMPTY, client, soon, upstream};

const CHAT: &str = "/v1/chat/completions";

async fn ok() -> SocketAddr {
    upstream(|_| async { Response::new(Body::from("{}")) }).await
}

async fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let response = client().get(format!("http://{addr}{path}")).send();
    let response = soon(response).await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn asks(proxy: &Serving) -> u16 {
    let request = client().post(proxy.url(CHAT)).body(EMPTY);
    soon(request.send()).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn idle_connections_silence_neither_the_admin_port_nor_agents() {
    let proxy = Serving::start(ok().await, "ulimit -n 256", &[]);
    for sent in [
        "",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-le",
    ] {
        let mut idle = Vec::new();
        for _ in 0..400 {
            let mut stream = soon(TcpStream::connect(proxy.listen)).await.unwrap();
            // One that was closed already may refuse it.
            let _closed = stream.write_all(sent.as_bytes()).await;
            idle.push(stream);
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(get(proxy.admin, path).await.0, 200, "{path}");
        }
        for _ in 0..5 {
            assert_eq!(asks(&proxy).await, 200);
        }
        let (_, metrics) = get(proxy.admin, "/metrics").await;
        assert!(metrics.contains("plimsoll_cut_connections_total{why=\"idle\"}"));
    }
}

#[tokio::test]
async fn idle_connections_to_the_admin_port_take_none_of_agents() {
    let proxy = Serving::start(ok().await, "ulimit -n 256", &[]);
    let (before, mut idle) = (proxy.open_files(), Vec::new());
    for sent in [
        "",
        "GET /livez HTTP/1.1\r\nho",
        "GET /api/events HTTP/1.1\r\n\r\n",
    ] {
        for _ in 0..300 {
            let mut stream = soon(TcpStream::connect(proxy.admin)).await.unwrap();
            let _closed = stream.write_all(sent.as_bytes()).await;
            idle.push(stream);
        }
        // Whoever comes next is heard there, and agents do not notice.
        assert_eq!(get(proxy.admin, "/livez").await.0, 200, "{sent}");
        for _ in 0..5 {
            assert_eq!(asks(&proxy).await, 200, "{sent}");
        }
        let taken = proxy.open_files() - before;
        assert!(taken < 64, "{sent}: {taken} more files are open");
    }
    assert!(!proxy.log().contains("can't accept"), "{}", proxy.log());
}

#[tokio::test]
async fn requests_that_hold_their_connections_leave_the_admin_port_alone() {
    let addr = upstream(|_| async { std::future::pending::<Response>().await }).await;
    let proxy = Serving::start(addr, "ulimit -n 256", &[]);
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{EMPTY}",
        EMPTY.len()
    );
    let mut open = Vec::new();
    for _ in 0..300 {
        let mut stream = soon(TcpStream::connect(proxy.listen)).await.unwrap();
        let _closed = stream.write_all(request.as_bytes()).await;
        open.push(stream);
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(proxy.admin, path).await.0, 200, "{path}");
    }
    // Another tenant's request is heard all the same, if only to be refused.
    let other = client()
        .post(proxy.url(CHAT))
        .bearer_auth("other")
        .header("x-plimsoll-budget", "12")
        .body(EMPTY);
    assert_eq!(soon(other.send()).await.unwrap().status(), 400);
}

#[tokio::test]
async fn the_limit_is_raised_to_what_the_system_allows() {
    let proxy = Serving::start(ok().await, "ulimit -Sn 128", &[]);
    let limits = proxy.proc("limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let mut values = line["Max open files".len()..].split_whitespace();
    let (soft, hard) = (values.next().unwrap(), values.next().unwrap());
    let hard = hard.parse::<u64>().unwrap_or(u64::MAX);
    assert_eq!(soft.parse::<u64>().unwrap(), hard.min(65_536));
}

#[tokio::test]
async fn what_could_not_be_accepted_is_counted_and_said() {
    let mut proxy = Serving::start(ok().await, "ulimit -n 36", &[]);
    let (_, metrics) = get(proxy.admin, "/metrics").await;
    for why in ["descriptors", "memory", "other"] {
        let zero = format!("plimsoll_accept_errors_total{{why=\"{why}\"}} 0");
        assert!(metrics.contains(&zero), "{why}");
    }
    // So few files are not enough for the least that each port may have.
    let mut taken = Vec::new();
    for _ in 0..8 {
        taken.push(soon(TcpStream::connect(proxy.admin)).await.unwrap());
    }
    let mut agents = Vec::new();
    for _ in 0..16 {
        agents.push(soon(TcpStream::connect(proxy.listen)).await.unwrap());
    }
    let line = tokio::task::spawn_blocking(move || {
        let line = proxy.line("can't accept");
        (proxy, line)
    });
    let (proxy, line) = soon(line).await.unwrap();
    assert!(line.contains("WARN"), "{line}");
    drop((taken, agents));
    let (_, metrics) = get(proxy.admin, "/metrics").await;
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("plimsoll_accept_errors_total{why=\"descriptors\"}"));
    assert!(!counted.unwrap().ends_with(" 0"), "{counted:?}");
    assert!(
        proxy.log().matches("can't accept").count() < 5,
        "said too often"
    );
}
