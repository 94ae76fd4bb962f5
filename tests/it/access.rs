//! Who may use the admin listener: on an address that others reach only who has its token, and on any
//! address where one is set. Probes and Prometheus need none. A browser proves itself by a cookie, under
//! the rules that hold for its requests anyway.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Output;
use std::time::Duration;

use http::Method;
use http::header::{AUTHORIZATION, COOKIE, LOCATION, ORIGIN, SET_COOKIE, WWW_AUTHENTICATE};
use plimsoll::config::Config;
use plimsoll_ingress::AdminToken;
use plimsoll_scripted::Provider;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::console::{played, served};
use super::openapi::Description;
use super::process::{Process, plimsoll};
use super::support::{Proxy, answered, client, soon, upstream};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const FREE: [&str; 3] = ["/livez", "/readyz", "/metrics"];

fn everywhere(config: &mut Config) {
    config.server.admin.set_ip(Ipv4Addr::UNSPECIFIED.into());
}

fn guarded(config: &mut Config) {
    config.server.admin_token = Some(AdminToken::new(TOKEN));
}

/// A request to the listener, which this machine reaches on loopback whatever address it has.
fn asking(proxy: &Proxy, method: Method, path: &str) -> RequestBuilder {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.admin.port()));
    client().request(method, format!("http://{at}{path}"))
}

async fn sent(request: RequestBuilder) -> Response {
    soon(request.send()).await.unwrap()
}

/// The status and the error of an answer.
async fn refusal(request: RequestBuilder) -> (u16, String, String) {
    let response = sent(request).await;
    let status = response.status().as_u16();
    let value: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let text = |name: &str| value["error"][name].as_str().unwrap().to_owned();
    (status, text("code"), text("message"))
}

/// Every path that shows or changes something, and some that do not exist.
fn paths() -> Vec<(Method, String)> {
    let described = Description::read().routes();
    let named = described.into_iter().map(|(path, method)| {
        let path = path.replace("{session}", "0011223344556677");
        let path = path.replace("{item}", "1").replace("{turn}", "1");
        (method.to_uppercase().parse().unwrap(), path)
    });
    let more = [
        "/main.js",
        "/index.html",
        "/nothing",
        "//livez",
        "/livez/",
        "/login",
    ];
    named
        .chain(more.map(|path| (Method::GET, path.to_owned())))
        .collect()
}

async fn stored(proxy: &Proxy) -> usize {
    proxy.app.store.sessions(None, 10).unwrap().len()
}

async fn probes_answer(proxy: &Proxy) {
    for path in FREE {
        assert_eq!(
            sent(asking(proxy, Method::GET, path)).await.status(),
            200,
            "{path}"
        );
    }
}

#[tokio::test]
async fn where_others_reach_it_nobody_gets_in_without_a_token_being_set() {
    let (_provider, proxy): (Provider, Proxy) = served(everywhere).await;
    let session = played(&proxy, false).await;
    for (method, path) in paths() {
        let plain = asking(&proxy, method.clone(), &path);
        let forged = asking(&proxy, method, &path).bearer_auth("");
        for request in [plain, forged] {
            let (status, code, message) = refusal(request.body("{}")).await;
            assert_eq!((status, &*code), (403, "admin_token_unset"), "{path}");
            assert!(message.contains("PLIMSOLL__ADMIN__TOKEN"), "{message}");
        }
    }
    let erase = asking(&proxy, Method::POST, "/api/store/erase");
    let erase = erase.body(json!({"session": session}).to_string());
    assert_eq!(sent(erase).await.status(), 403);
    assert_eq!(stored(&proxy).await, 1);
    let page = sent(asking(&proxy, Method::GET, "/")).await;
    assert_eq!(page.status(), 403);
    let page = page.text().await.unwrap();
    assert!(page.contains("PLIMSOLL__ADMIN__TOKEN"), "{page}");
    probes_answer(&proxy).await;
}

#[tokio::test]
async fn a_token_that_is_set_is_demanded_on_every_address() {
    for address in [|_: &mut Config| {}, everywhere] {
        let (_provider, proxy): (Provider, Proxy) = served(|config| {
            guarded(config);
            address(config);
        })
        .await;
        let session = played(&proxy, false).await;
        for (method, path) in paths() {
            let ask = || asking(&proxy, method.clone(), &path).body("{}");
            let (status, code, message) = refusal(ask()).await;
            assert_eq!((status, &*code), (401, "admin_token_wanted"), "{path}");
            assert!(message.contains("PLIMSOLL__ADMIN__TOKEN"), "{message}");
            for wrong in ["", "0123456789abcdef0123456789abcdeF", &TOKEN[1..]] {
                let response = sent(ask().bearer_auth(wrong)).await;
                assert_eq!(response.status(), 401, "{path} {wrong}");
                assert!(response.headers().contains_key(WWW_AUTHENTICATE));
            }
            let basic = sent(ask().header(AUTHORIZATION, format!("Basic {TOKEN}"))).await;
            assert_eq!(basic.status(), 401, "{path}");
        }
        assert_eq!(stored(&proxy).await, 1);
        probes_answer(&proxy).await;
        let held = sent(asking(&proxy, Method::GET, "/api/overview").bearer_auth(TOKEN)).await;
        assert_eq!(held.status(), 200);
        let erase = asking(&proxy, Method::POST, "/api/store/erase").bearer_auth(TOKEN);
        let erase = sent(erase.body(json!({"session": session}).to_string())).await;
        assert_eq!(erase.status(), 200);
        assert_eq!(stored(&proxy).await, 0);
    }
}

/// Sends the form of the page, as a browser does.
async fn log_in(proxy: &Proxy, token: &str) -> Response {
    let origin = format!("http://127.0.0.1:{}", proxy.admin.port());
    let form = asking(proxy, Method::POST, "/login")
        .header(ORIGIN, origin)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "text/plain");
    sent(form.body(format!("token={token}\r\n"))).await
}

#[tokio::test]
async fn a_browser_logs_in_once_and_proves_itself_by_a_cookie() {
    let (_provider, proxy): (Provider, Proxy) = served(|config| {
        guarded(config);
        everywhere(config);
    })
    .await;
    let page = sent(asking(&proxy, Method::GET, "/")).await;
    assert_eq!(page.status(), 401);
    assert_eq!(page.headers()["cache-control"], "no-store");
    let page = page.text().await.unwrap();
    assert!(
        page.contains("action=\"/login\"") && !page.contains("plimsoll-token"),
        "{page}"
    );

    for wrong in ["", "0123456789abcdef0123456789abcdeF", &"x".repeat(100_000)] {
        let refused = log_in(&proxy, wrong).await;
        assert_eq!(refused.status(), 401);
        assert!(!refused.headers().contains_key(SET_COOKIE));
        let page = refused.text().await.unwrap();
        assert!(
            page.contains("not the token") && page.contains("<form"),
            "{page}"
        );
    }
    // A page of another site sends no form here, whatever it knows.
    let foreign = asking(&proxy, Method::POST, "/login").header(ORIGIN, "https://evil.example");
    assert_eq!(
        sent(foreign.body(format!("token={TOKEN}"))).await.status(),
        403
    );

    let done = log_in(&proxy, TOKEN).await;
    assert_eq!(
        (done.status().as_u16(), &done.headers()[LOCATION]),
        (303, &"/".parse().unwrap())
    );
    let set = done.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(
        set.contains("; HttpOnly") && set.contains("; SameSite=Strict"),
        "{set}"
    );
    assert!(!set.contains(TOKEN), "{set}");
    let cookie = set.split(';').next().unwrap().to_owned();
    let ask = |method, path: &str| {
        let others = format!("theme=dark; {cookie}");
        asking(&proxy, method, path).header(COOKIE, others)
    };
    for path in [
        "/",
        "/main.js",
        "/api/overview",
        "/api/store",
        "/api/events",
    ] {
        assert_eq!(sent(ask(Method::GET, path)).await.status(), 200, "{path}");
    }
    for wrong in ["0".repeat(64), TOKEN.to_owned(), String::new()] {
        let name = cookie.split('=').next().unwrap();
        let wrong =
            asking(&proxy, Method::GET, "/api/store").header(COOKIE, format!("{name}={wrong}"));
        assert_eq!(sent(wrong).await.status(), 401);
    }
    // The cookie says who asks, and not which page: a change needs the token of the page, too.
    let gc = ask(Method::POST, "/api/store/gc");
    let own = gc.header(ORIGIN, format!("http://localhost:{}", proxy.admin.port()));
    let bare = refusal(own.try_clone().unwrap()).await;
    assert_eq!((bare.0, &*bare.1), (403, "no_token"));
    let console = sent(ask(Method::GET, "/")).await.text().await.unwrap();
    let (_, rest) = console
        .split_once("name=\"plimsoll-token\" content=\"")
        .unwrap();
    let token = rest.split('"').next().unwrap();
    let proven = own.header("x-plimsoll-console", token);
    assert_eq!(sent(proven.try_clone().unwrap()).await.status(), 200);
    let foreign = ask(Method::POST, "/api/store/gc").header("x-plimsoll-console", token);
    assert_eq!(
        sent(foreign.header(ORIGIN, "https://evil.example"))
            .await
            .status(),
        403
    );
}

/// Asks from the thread that serves agents, which is busy with just that.
#[tokio::test]
async fn probes_are_answered_while_the_workers_are_busy() {
    use std::io::Write as _;
    let (_provider, proxy): (Provider, Proxy) = served(|_| {}).await;
    probes_answer(&proxy).await;
    for path in FREE {
        let mut stream = std::net::TcpStream::connect(proxy.admin).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

fn run(directory: &std::path::Path, arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = plimsoll(directory);
    command.args(arguments).envs(env.iter().copied());
    command.output().unwrap()
}

#[tokio::test]
async fn commands_send_the_token_of_the_environment_or_of_a_file() {
    let provider = upstream(|_| async { answered(200, "{}") }).await;
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = elsewhere.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let process = Process::start(
        home.path(),
        provider,
        &[],
        &[("PLIMSOLL__ADMIN__TOKEN_FILE", &file)],
    );
    let url = process.admin("");
    let admin = url.strip_prefix("http://").unwrap().to_owned();
    let ended = tokio::task::spawn_blocking(move || {
        for arguments in [
            &["store", "stats", "--admin", &admin][..],
            &["store", "gc", "--admin", &admin],
            &["sessions", "--admin", &admin],
        ] {
            let refused = run(elsewhere.path(), arguments, &[]);
            let told = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success());
            assert!(
                told.contains("PLIMSOLL__ADMIN__TOKEN"),
                "{arguments:?}: {told}"
            );
            for env in [
                ("PLIMSOLL__ADMIN__TOKEN", TOKEN),
                ("PLIMSOLL__ADMIN__TOKEN_FILE", &file),
            ] {
                let done = run(elsewhere.path(), arguments, &[env]);
                assert!(done.status.success(), "{arguments:?} {done:?}");
            }
        }
        // What needs no token says so without one.
        let health = run(elsewhere.path(), &["health", "--admin", &admin], &[]);
        assert!(health.status.success(), "{health:?}");
        run(
            elsewhere.path(),
            &["store", "stats", "--admin", &admin],
            &[("PLIMSOLL__ADMIN__TOKEN", &"f".repeat(32))],
        )
    });
    let wrong = soon(ended).await.unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("not the admin token"));
    process.signal("-TERM");
    let (_, log) = process.end().await;
    assert!(
        log.contains("wrong token") && !log.contains(TOKEN) && !log.contains("ffffffff"),
        "{log}"
    );
}

/// What goes to another machine is plain HTTP. The address is one of those that stand in examples and are nowhere.
#[test]
fn commands_send_no_token_to_another_machine() {
    let home = tempfile::tempdir().unwrap();
    let admin = "192.0.2.1:9187";
    for arguments in [&["store", "stats"][..], &["store", "gc"], &["sessions"]] {
        let mut child = plimsoll(home.path())
            .args(arguments)
            .args(["--admin", admin])
            .env("PLIMSOLL__ADMIN__TOKEN", TOKEN)
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while child.try_wait().unwrap().is_none() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ended = child.kill();
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{arguments:?}");
        assert!(told.contains("another machine"), "{arguments:?}: {told}");
        assert!(told.contains("ssh -L 9187:192.0.2.1:9187"), "{told}");
        assert!(!told.contains(TOKEN), "{told}");
    }
}

#[test]
fn a_start_that_lets_nobody_in_says_what_to_set() {
    let home = tempfile::tempdir().unwrap();
    let mut child = plimsoll(home.path())
        .args(["serve", "--listen=127.0.0.1:0", "--admin=0.0.0.0:0"])
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("serving") {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    log.read_to_string(&mut said).unwrap();
    let line = said
        .lines()
        .find(|line| line.contains("PLIMSOLL__ADMIN__TOKEN"));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{said}");
}
