//! Who is asked for and which page asks: a page of the web neither drives a local proxy nor reads
//! its metrics, under any name that it gives it. What programs send goes on as before, but for a token that
//! is meant for another server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::Response;
use plimsoll::config::{Config, Flags};

use super::support::{EMPTY, Proxy, client, soon, talk, upstream};

const PATHS: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/models",
];

/// An upstream that counts what reaches it.
async fn counting() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let addr = upstream(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Response::new(Body::from("{}")) }
    });
    (addr.await, count)
}

/// What a request with these headers is answered: its status, and all of the answer.
async fn answer(addr: SocketAddr, line: &str, headers: &str) -> (u16, String) {
    let request = if line.starts_with("POST") {
        let length = EMPTY.len();
        format!("{line}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{EMPTY}")
    } else {
        format!("{line}\r\n{headers}connection: close\r\n\r\n")
    };
    let answer = String::from_utf8(talk(addr, request.as_bytes()).await).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

/// Holds that a refusal has this code, says which setting allows it, and grants no page anything.
fn is_refused((status, answer): (u16, String), code: &str, setting: &str, what: &str) {
    assert_eq!(status, 403, "{what}: {answer}");
    assert!(answer.contains(code), "{what}: {answer}");
    assert!(answer.contains(setting), "{what}: {answer}");
    assert!(!answer.contains("access-control"), "{what}: {answer}");
}

#[tokio::test]
async fn a_loopback_port_answers_to_loopback_names_only() {
    let (provider, count) = counting().await;
    let proxy = Proxy::before(provider).await;
    let foreign = [
        "host: evil.example\r\n",
        "host: evil.example:8787\r\n",
        "host: localhost.evil.example\r\n",
        "host: 127.0.0.1.evil.example\r\n",
        "host: localhost@evil.example\r\n",
        "host: 10.0.0.7\r\n",
        "host: 0.0.0.0:8787\r\n",
        "host: 128.0.0.1\r\n",
        "host: [::2]:8787\r\n",
        "host: [2001:db8::1]\r\n",
        "host: localhost:8787:8787\r\n",
        "host: \r\n",
        "host: localhost, evil.example\r\n",
        "host: localhost\r\nhost: evil.example\r\n",
        "host: evil.example\r\nhost: localhost\r\n",
    ];
    for host in foreign {
        for path in PATHS {
            let line = format!("POST {path} HTTP/1.1");
            let answer = answer(proxy.addr, &line, host).await;
            is_refused(answer, "host_not_allowed", "server.hosts", host);
        }
        for path in ["/metrics", "/livez", "/readyz", "/"] {
            let line = format!("GET {path} HTTP/1.1");
            let answer = answer(proxy.admin, &line, host).await;
            is_refused(answer, "host_not_allowed", "server.hosts", host);
        }
    }
    // The target of a request outranks its header.
    for (addr, path) in [(proxy.addr, "/v1/models"), (proxy.admin, "/metrics")] {
        let line = format!("GET http://evil.example{path} HTTP/1.1");
        let answer = answer(addr, &line, "host: localhost\r\n").await;
        is_refused(answer, "host_not_allowed", "server.hosts", "target");
    }
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn loopback_names_are_served_in_every_form() {
    let (provider, count) = counting().await;
    let proxy = Proxy::before(provider).await;
    let own = [
        "host: localhost\r\n",
        "host: localhost:8787\r\n",
        "host: LocalHost:1\r\n",
        "host: localhost.\r\n",
        "host: 127.0.0.1:8787\r\n",
        "host: 127.8.9.10\r\n",
        "host: [::1]:8787\r\n",
        "host: [0:0:0:0:0:0:0:1]\r\n",
    ];
    for (at, host) in own.into_iter().enumerate() {
        let (status, _) = answer(proxy.addr, "GET /v1/models HTTP/1.1", host).await;
        assert_eq!(
            (status, count.load(Ordering::Relaxed)),
            (200, at + 1),
            "{host}"
        );
        let (status, _) = answer(proxy.admin, "GET /livez HTTP/1.1", host).await;
        assert_eq!(status, 200, "{host}");
    }
    // What names no host is no browser's: the image's own check of its health asks like this.
    for addr in [proxy.addr, proxy.admin] {
        let (status, _) = answer(addr, "GET /livez HTTP/1.0", "").await;
        assert_eq!(status, 200);
    }
    let absolute = "GET http://localhost:8787/v1/models HTTP/1.1";
    let (status, _) = answer(proxy.addr, absolute, "host: localhost:8787\r\n").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn pages_of_the_web_are_refused() {
    let (provider, count) = counting().await;
    let proxy = Proxy::before(provider).await;
    let foreign = [
        "https://evil.example",
        "http://evil.example:8787",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost@evil.example",
        "http://10.0.0.7:3000",
        "http://0.0.0.0:8787",
        "http://localhost:3000 http://evil.example",
        "null",
        "",
        "localhost",
        "file://",
        "chrome-extension://localhost",
        "app://localhost",
    ];
    for origin in foreign {
        let headers = format!("host: localhost\r\norigin: {origin}\r\n");
        let preflight = format!("{headers}access-control-request-method: POST\r\n");
        for path in PATHS {
            let post = answer(proxy.addr, &format!("POST {path} HTTP/1.1"), &headers).await;
            is_refused(post, "origin_not_allowed", "server.origins", origin);
            let line = format!("OPTIONS {path} HTTP/1.1");
            let options = answer(proxy.addr, &line, &preflight).await;
            is_refused(options, "origin_not_allowed", "server.origins", origin);
        }
        let read = answer(proxy.admin, "GET /metrics HTTP/1.1", &headers).await;
        is_refused(read, "origin_not_allowed", "server.origins", origin);
    }
    let twice = "host: localhost\r\norigin: http://localhost\r\norigin: https://evil.example\r\n";
    let twice = answer(proxy.addr, "GET /v1/models HTTP/1.1", twice).await;
    is_refused(twice, "origin_not_allowed", "server.origins", "twice");
    assert_eq!(count.load(Ordering::Relaxed), 0);

    for origin in [
        "http://localhost:3000",
        "https://127.0.0.1",
        "http://[::1]:5173",
    ] {
        let headers = format!("host: localhost\r\norigin: {origin}\r\n");
        for (addr, line) in [
            (proxy.addr, "OPTIONS /v1/responses HTTP/1.1"),
            (proxy.admin, "GET /metrics HTTP/1.1"),
        ] {
            let (status, answer) = answer(addr, line, &headers).await;
            assert_eq!(status, 200, "{origin}: {answer}");
        }
    }
}

/// A page of another site names no origin where it has an image, a script or a frame fetched. It gets
/// nothing of the console, and no answer may be framed or loaded by it. Links to the console work, and so
/// do programs, which say nothing of sites.
#[tokio::test]
async fn no_other_site_fetches_or_frames_what_the_admin_port_answers() {
    let (provider, _) = counting().await;
    let proxy = Proxy::before(provider).await;
    let own = "host: localhost\r\n";
    let of = |site: &str, mode: &str, dest: &str| {
        format!(
            "{own}sec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\nsec-fetch-dest: {dest}\r\n"
        )
    };
    let link = of("cross-site", "navigate", "document");
    let paths = [
        "/",
        "/main.js",
        "/api/overview",
        "/api/sessions",
        "/api/events",
        "/api/store",
        "/metrics",
        "/readyz",
    ];
    for path in paths {
        let line = format!("GET {path} HTTP/1.1");
        for (mode, dest) in [
            ("no-cors", "image"),
            ("cors", "empty"),
            ("navigate", "iframe"),
            ("navigate", "object"),
        ] {
            let refused = answer(proxy.admin, &line, &of("cross-site", mode, dest)).await;
            let what = format!("{path} as {dest}");
            is_refused(refused, "foreign_site", "a tab of its own", &what);
        }
        if path == "/api/events" {
            continue;
        }
        let opened = answer(proxy.admin, &line, &link).await.0;
        assert_eq!(
            opened,
            if path.starts_with("/api/") { 403 } else { 200 },
            "{path}"
        );
        for headers in [
            own.to_owned(),
            of("same-origin", "cors", "empty"),
            of("none", "navigate", "document"),
        ] {
            let (status, answer) = answer(proxy.admin, &line, &headers).await;
            assert_eq!(status, 200, "{path}: {answer}");
            for says in [
                "frame-ancestors 'none'",
                "cross-origin-resource-policy: same-origin",
                "nosniff",
            ] {
                assert_eq!(answer.matches(says).count(), 1, "{path}: {says}: {answer}");
            }
        }
    }
}

/// A refusal is an answer too, and whom the operator has named is judged by its origin alone.
#[tokio::test]
async fn refusals_of_the_admin_port_are_kept_apart_and_named_pages_are_not() {
    let (provider, _) = counting().await;
    let proxy = Proxy::before(provider).await;
    let link = "host: localhost\r\nsec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n";
    for line in [
        "GET /api/nothing HTTP/1.1",
        "GET /nothing.js HTTP/1.1",
        "POST /api/store/gc HTTP/1.1",
    ] {
        let (_, refused) = answer(proxy.admin, line, link).await;
        assert!(
            refused.contains("frame-ancestors 'none'"),
            "{line}: {refused}"
        );
    }
    let posted = answer(proxy.admin, "POST /api/store/gc HTTP/1.1", link).await;
    is_refused(posted, "foreign_site", "a tab of its own", "post");
    let named =
        "host: localhost\r\nsec-fetch-site: cross-site\r\norigin: http://localhost:3000\r\n";
    assert_eq!(
        answer(proxy.admin, "GET /api/overview HTTP/1.1", named)
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn refusals_are_in_the_callers_dialect() {
    let (provider, _) = counting().await;
    let proxy = Proxy::before(provider).await;
    let host = "host: evil.example\r\n";
    let (_, chat) = answer(proxy.addr, "POST /v1/chat/completions HTTP/1.1", host).await;
    assert!(chat.contains(r#""code":"host_not_allowed""#), "{chat}");
    let (_, messages) = answer(proxy.addr, "POST /v1/messages HTTP/1.1", host).await;
    assert!(
        messages.contains(r#""type":"permission_error""#),
        "{messages}"
    );
    assert!(!messages.contains("evil"), "{messages}");
}

#[tokio::test]
async fn the_compose_file_names_how_its_containers_ask() {
    let compose = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/compose.yaml");
    let compose = std::fs::read_to_string(compose).unwrap();
    let name = "PLIMSOLL__SERVER__HOSTS";
    let line = compose
        .lines()
        .find_map(|line| line.trim().strip_prefix(name));
    let hosts = line.unwrap().trim_matches([':', ' ', '\'']);
    let flags = Flags {
        config: Some("config/plimsoll.toml".into()),
        ..Flags::default()
    };
    let config = Config::load(&flags, [(name.to_owned(), hosts.to_owned())]).unwrap();
    let (provider, _) = counting().await;
    let proxy = Proxy::with(provider, |own| {
        own.server.hosts = config.server.hosts;
        own.server.listen = "0.0.0.0:0".parse().unwrap();
        own.server.admin = "0.0.0.0:0".parse().unwrap();
    });
    let proxy = proxy.await;
    let reached = |addr: SocketAddr| SocketAddr::from(([127, 0, 0, 1], addr.port()));
    for (host, wanted) in [
        ("plimsoll:9187", 200),
        ("localhost:8787", 200),
        ("evil.example:8787", 403),
    ] {
        let host = format!("host: {host}\r\n");
        for (addr, line) in [
            (proxy.addr, "GET /v1/models HTTP/1.1"),
            (proxy.admin, "GET /metrics HTTP/1.1"),
        ] {
            let (status, _) = answer(reached(addr), line, &host).await;
            assert_eq!(status, wanted, "{host}");
        }
    }
}

#[tokio::test]
async fn the_token_of_a_chatgpt_login_is_not_sent_to_the_api() {
    for base in [
        "http://api.openai.com:9/v1",
        "http://eu.api.openai.com:9/v1",
    ] {
        let nowhere = "127.0.0.1:9".parse().unwrap();
        let proxy = Proxy::with(nowhere, |config| {
            config.upstream.base_url = plimsoll_proxy::upstream::BaseUrl::parse(base).unwrap();
        })
        .await;
        for path in PATHS {
            let request = client()
                .post(proxy.url(path))
                .header("authorization", "Bearer ey-secret")
                .header("chatgpt-account-id", "a")
                .body(EMPTY);
            let answer = soon(request.send()).await.unwrap();
            assert_eq!(answer.status(), 400, "{path}");
            let body = answer.text().await.unwrap();
            assert!(
                body.contains("--upstream https://chatgpt.com/backend-api/codex"),
                "{path} {body}"
            );
            assert!(!body.contains("secret"), "{body}");
        }
    }
    // Any other upstream is the operator's choice.
    let upstream = upstream(|request| async move {
        let account = request.headers()["chatgpt-account-id"].clone();
        Response::new(Body::from(account.as_bytes().to_vec()))
    })
    .await;
    let proxy = Proxy::before(upstream).await;
    let request = client()
        .post(proxy.url("/v1/embeddings"))
        .header("chatgpt-account-id", "a")
        .body(EMPTY);
    let answer = soon(request.send()).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "a");
}
