//! Whose a request is: keys in any place tell tenants apart, and what a token says of itself counts
//! only once the upstream has taken it. What was said under one is put into nobody else's prompt.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::{Value, json};

use super::process::Process;
use super::references::answer;
use super::support::{Proxy, client, soon, upstream};

/// A provider that keeps nothing, and answers whom it takes.
struct Provider {
    addr: SocketAddr,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Provider {
    async fn taking(takes: fn(&HeaderMap) -> bool) -> Self {
        let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = Arc::clone(&bodies);
        let addr = upstream(move |request| {
            let log = Arc::clone(&log);
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let mut log = log.lock().unwrap();
                log.push(body.clone());
                let named = body["previous_response_id"].is_string()
                    || body["input"].to_string().contains("item_reference");
                let (status, answer) = match (takes(&parts.headers), named) {
                    (false, _) => (401, json!({"error": {"message": "who?"}})),
                    (true, true) => (404, json!({"error": {"message": "not found"}})),
                    (true, false) => (200, answer(log.len() - 1, &body)),
                };
                let built = Response::builder().status(status);
                let built = built.header("content-type", "application/json");
                built.body(Body::from(answer.to_string())).unwrap()
            }
        });
        let addr = addr.await;
        Self { addr, bodies }
    }

    fn newest(&self) -> Value {
        self.bodies.lock().unwrap().last().unwrap().clone()
    }
}

/// The headers and the query that a caller proves itself with.
#[derive(Clone, Debug)]
struct Caller {
    headers: Vec<(&'static str, String)>,
    query: &'static str,
}

fn by(headers: &[(&'static str, &str)], query: &'static str) -> Caller {
    let own = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
    let headers = headers.iter().map(own).collect();
    Caller { headers, query }
}

/// A token of this account, as far as it says itself.
fn token(account: &str, rest: &str, signature: &str) -> String {
    let claims = format!(r#"{{"iss":"https://i.example","sub":"{account}"{rest}}}"#);
    let (head, claims) = (
        URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#),
        URL_SAFE_NO_PAD.encode(claims),
    );
    format!("Bearer {head}.{claims}.{signature}")
}

/// Where a proxy is, and a client that keeps its connections there.
struct Door {
    base: String,
    http: reqwest::Client,
}

impl Door {
    fn at(base: String) -> Self {
        let http = client();
        Self { base, http }
    }
}

impl Caller {
    async fn ask(&self, door: &Door, more: Value) -> (u16, Option<String>, Value) {
        let mut body = json!({"model": "gpt-4o",
            "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}]});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        let mut request = door
            .http
            .post(format!("{}/v1/responses{}", door.base, self.query));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.header("content-type", "application/json");
        let response = soon(request.body(body.to_string()).send()).await.unwrap();
        let status = response.status().as_u16();
        let why = response.headers().get("x-plimsoll-unmanaged").cloned();
        let body = soon(response.text()).await.unwrap();
        let body = serde_json::from_str(&body).unwrap();
        (
            status,
            why.map(|why| why.to_str().unwrap().to_owned()),
            body,
        )
    }

    /// Goes on from a response.
    async fn after(&self, door: &Door, first: &Value, input: &str) -> (u16, Option<String>, Value) {
        let next = json!({"previous_response_id": first["id"], "input": input});
        self.ask(door, next).await
    }
}

const SECRET: &str = "the secret of one";

/// Whether a second caller is given what the first one was served.
async fn shares(provider: &Provider, door: &Door, first: &Caller, second: &Caller) -> bool {
    let (status, _, said) = first.ask(door, json!({"input": SECRET})).await;
    assert_eq!(status, 200, "{first:?}");
    let (status, why, _) = second.after(door, &said, "what was said?").await;
    let sent = provider.newest().to_string();
    assert_eq!(sent.contains(SECRET), status == 200, "{second:?}: {sent}");
    let wanted = (status != 200).then_some("previous_response_id");
    assert_eq!(why.as_deref(), wanted, "{second:?}");
    // Nor by the name of an item.
    let named = json!([{"type": "item_reference", "id": said["output"][0]["id"]}]);
    let (named, _, _) = second.ask(door, json!({"input": named})).await;
    assert_eq!(named == 200, status == 200, "{second:?}");
    status == 200
}

#[tokio::test]
async fn keys_in_any_place_tell_tenants_apart() {
    let provider = Provider::taking(|_| true).await;
    let proxy = Proxy::before(provider.addr).await;
    let door = Door::at(proxy.url(""));
    let table = [
        (
            by(&[("x-goog-api-key", "a")], ""),
            by(&[("x-goog-api-key", "b")], ""),
        ),
        (
            by(&[("ocp-apim-subscription-key", "a")], ""),
            by(&[("ocp-apim-subscription-key", "b")], ""),
        ),
        (by(&[], "?key=a"), by(&[], "?key=b")),
        (by(&[], "?alt=sse&key=a"), by(&[], "?alt=sse&key=b")),
        (by(&[], "?key=a%2Fb"), by(&[], "?key=a%2Fc")),
        (by(&[], "?key=a"), by(&[], "?key=a&key=b")),
        (by(&[], "?%6Bey=a"), by(&[], "?%6Bey=b")),
        (by(&[], "?key=a"), by(&[], "")),
        (by(&[], "?api-key=a"), by(&[], "?api-key=b")),
        (
            by(&[("authorization", "Basic YTph")], ""),
            by(&[("authorization", "Basic YTpi")], ""),
        ),
        (
            by(&[("authorization", "Bearer same"), ("x-api-key", "a")], ""),
            by(&[("authorization", "Bearer same"), ("x-api-key", "b")], ""),
        ),
        (
            by(
                &[("authorization", "Bearer same"), ("x-goog-api-key", "a")],
                "",
            ),
            by(&[("authorization", "Bearer same")], ""),
        ),
        (
            by(&[("authorization", "Bearer same")], "?key=a"),
            by(&[("authorization", "Bearer same")], "?key=b"),
        ),
        (
            by(
                &[
                    ("authorization", "Bearer same"),
                    ("authorization", "Bearer a"),
                ],
                "",
            ),
            by(
                &[
                    ("authorization", "Bearer same"),
                    ("authorization", "Bearer b"),
                ],
                "",
            ),
        ),
        (
            by(&[("api-key", "a"), ("x-api-key", "b")], ""),
            by(&[("api-key", "b"), ("x-api-key", "a")], ""),
        ),
        (
            by(&[("api-key", "ab"), ("x-api-key", "c")], ""),
            by(&[("api-key", "a"), ("x-api-key", "bc")], ""),
        ),
    ];
    for (one, other) in &table {
        assert!(
            !shares(&provider, &door, one, other).await,
            "{one:?} {other:?}"
        );
        assert!(shares(&provider, &door, one, one).await, "{one:?}");
    }
}

#[tokio::test]
async fn the_same_credentials_are_the_same_tenant_however_they_are_sent() {
    let provider = Provider::taking(|_| true).await;
    let proxy = Proxy::before(provider.addr).await;
    let door = Door::at(proxy.url(""));
    let alone = [
        by(&[("authorization", "Bearer k")], ""),
        by(&[("Authorization", "bearer  k ")], ""),
        by(&[("api-key", "k")], ""),
        by(&[("x-api-key", "k"), ("api-key", "")], ""),
        by(&[("x-goog-api-key", "k")], "?key="),
        by(&[], "?key=k&alt=sse"),
        by(&[], "?KEY=%6b"),
    ];
    let several = [
        by(
            &[("authorization", "Bearer k"), ("x-goog-api-key", "g")],
            "?key=q",
        ),
        by(
            &[("x-goog-api-key", "g"), ("authorization", "Bearer k")],
            "?a=b&key=q",
        ),
    ];
    for same in [&alone[..], &several[..]] {
        for other in same {
            assert!(shares(&provider, &door, &same[0], other).await, "{other:?}");
        }
    }
}

#[tokio::test]
async fn claims_beside_another_credential_choose_nothing() {
    let provider = Provider::taking(|_| true).await;
    let proxy = Proxy::before(provider.addr).await;
    let door = Door::at(proxy.url(""));
    let (own, forged) = (token("a", "", "good"), token("a", "", "rubbish"));
    for name in [
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "ocp-apim-subscription-key",
        // Not listed, and still not to be told from one that authenticates.
        "x-my-auth",
        "x-access-token",
        "x-shared-secret",
    ] {
        let one = by(&[("authorization", &own), (name, "a")], "");
        let other = by(&[("authorization", &forged), (name, "b")], "");
        // Not even once the upstream has taken it.
        other.ask(&door, json!({"input": "hello"})).await;
        assert!(!shares(&provider, &door, &one, &other).await, "{name}");
        assert!(shares(&provider, &door, &one, &one).await, "{name}");
        let alone = by(&[("authorization", &own)], "");
        alone.ask(&door, json!({"input": "hello"})).await;
        assert!(!shares(&provider, &door, &alone, &other).await, "{name}");
    }
    let one = by(&[("authorization", &own)], "?key=a");
    let other = by(&[("authorization", &forged)], "?key=b");
    assert!(!shares(&provider, &door, &one, &other).await);
    // What is not sent on is nothing that the upstream could take.
    let kept_back = by(
        &[("authorization", &forged), ("connection", "authorization")],
        "",
    );
    kept_back.ask(&door, json!({"input": "hello"})).await;
    let alone = by(&[("authorization", &own)], "");
    assert!(!shares(&provider, &door, &alone, &kept_back).await);
}

/// The history of a conversation in which a hidden call was made, and the next words.
async fn history(door: &Door, caller: &Caller) -> Value {
    let (_, _, said) = caller
        .ask(door, json!({"input": "mark", "store": false}))
        .await;
    let mut history = vec![json!({"role": "user", "content": "mark"})];
    history.extend(said["output"].as_array().unwrap().iter().cloned());
    history.push(json!({"role": "user", "content": "and now?"}));
    json!({"input": history, "store": false})
}

#[tokio::test]
async fn a_token_that_was_never_taken_is_given_nothing() {
    let provider = Provider::taking(|headers| {
        let token = headers
            .get("authorization")
            .map(|value| value.to_str().unwrap());
        token.is_some_and(|token| !token.ends_with("rubbish"))
    });
    let provider = provider.await;
    let proxy = Proxy::before(provider.addr).await;
    let door = Door::at(proxy.url(""));
    let one = by(&[("authorization", &token("a", "", "good"))], "");
    let (_, _, said) = one.ask(&door, json!({"input": SECRET})).await;
    let history = history(&door, &one).await;
    let forged = by(&[("authorization", &token("a", "", "rubbish"))], "");
    for _ in 0..3 {
        let (status, _, _) = forged.after(&door, &said, "what was said?").await;
        assert_eq!(status, 401);
        assert!(!provider.newest().to_string().contains(SECRET));
        let (status, _, _) = forged.ask(&door, history.clone()).await;
        let sent = provider.newest()["input"].to_string();
        assert_eq!(status, 401);
        assert!(!sent.contains("call_"), "{sent}");
    }
    // The owner has lost nothing.
    let (status, _, _) = one.after(&door, &said, "what was said?").await;
    assert_eq!(status, 200);
    one.ask(&door, history).await;
    assert!(provider.newest()["input"].to_string().contains("call_"));
}

#[tokio::test]
async fn a_renewed_token_goes_on_once_it_was_taken() {
    let provider = Provider::taking(|_| true).await;
    let directory = tempfile::tempdir().unwrap();
    let start = || Process::start(directory.path(), provider.addr, &[], &[]);
    let process = start();
    let door = Door::at(process.url(""));
    let old = by(&[("authorization", &token("a", r#","exp":1"#, "x"))], "");
    let history = history(&door, &old).await;
    let renewed = by(&[("authorization", &token("a", r#","exp":2"#, "y"))], "");
    let hidden = || provider.newest()["input"].to_string().contains("call_");
    old.ask(&door, history.clone()).await;
    assert!(hidden());
    // It has not been taken yet, and is served as one that has no past.
    let (status, _, _) = renewed.ask(&door, history.clone()).await;
    assert_eq!((status, hidden()), (200, false));
    renewed.ask(&door, history.clone()).await;
    assert!(hidden());

    process.signal("-TERM");
    process.end().await;
    let process = start();
    let door = Door::at(process.url(""));
    for caller in [&renewed, &old] {
        caller.ask(&door, history.clone()).await;
        assert!(hidden(), "{caller:?}");
    }
    let later = by(&[("authorization", &token("a", r#","exp":3"#, "z"))], "");
    later.ask(&door, history.clone()).await;
    assert!(!hidden());
    // What begins with a token that is new has no past to wait for.
    let next = by(&[("authorization", &token("a", r#","exp":4"#, "z"))], "");
    let (_, _, said) = next.ask(&door, json!({"input": SECRET})).await;
    let (status, _, _) = next.after(&door, &said, "what was said?").await;
    assert_eq!(status, 200);
    let (status, _, _) = old.after(&door, &said, "what was said?").await;
    assert_eq!(status, 200);
}

/// An address of this machine that is not loopback, where it has one.
fn outside() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the system only says which address it would send from.
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

#[tokio::test]
async fn callers_without_a_credential_refer_to_nothing_from_elsewhere() {
    let provider = Provider::taking(|_| true).await;
    let proxy = Proxy::with(provider.addr, |config| {
        config.server.listen = "0.0.0.0:0".parse().unwrap();
    });
    let proxy = proxy.await;
    let nobody = by(&[], "");
    let local = Door::at(format!("http://127.0.0.1:{}", proxy.addr.port()));
    assert!(shares(&provider, &local, &nobody, &nobody).await);
    let Some(outside) = outside() else {
        return;
    };
    let door = Door::at(format!("http://{outside}:{}", proxy.addr.port()));
    assert!(!shares(&provider, &door, &nobody, &nobody).await);
    // Nothing of ours is in what the provider keeps and may be asked to go on from.
    nobody.ask(&door, json!({"input": "hello"})).await;
    assert!(!provider.newest().to_string().contains("delimiter"));
    let (_, _, said) = nobody.ask(&local, json!({"input": SECRET})).await;
    let (status, _, _) = nobody.after(&door, &said, "what was said?").await;
    assert_eq!(status, 404);
    let keyed = by(&[("x-api-key", "k")], "");
    assert!(shares(&provider, &door, &keyed, &keyed).await);
}
