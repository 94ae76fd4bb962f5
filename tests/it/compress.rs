//! The engine for other gateways: the real binary, called as LiteLLM's guardrail calls it, and attacked as agents'
//! port is.

use std::path::Path;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::process::{Process, plimsoll};
use super::support::{client, nobody, soon, talk};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// A server whose listener for gateways is on a free port.
struct Gateway {
    process: Process,
    at: String,
}

/// The status of an answer and its body.
type Answer = (u16, Value);

impl Gateway {
    fn start(directory: &Path, more: &[(&str, &str)]) -> Self {
        let ours = [
            ("PLIMSOLL__COMPRESS__LISTEN", "127.0.0.1:0"),
            ("PLIMSOLL__COMPRESS__KEY", KEY),
            (
                "PLIMSOLL__COMPRESS__KEYS",
                "team=fedcba9876543210fedcba9876543210",
            ),
            ("PLIMSOLL__COMPRESS__TOKENS", "4000"),
        ];
        let env: Vec<(&str, &str)> = ours.iter().chain(more).copied().collect();
        let (_free, upstream) = nobody();
        let process = Process::start(directory, upstream, &[], &env);
        let (_, rest) = process.before().split_once("compress=").unwrap();
        let at = rest.split_whitespace().next().unwrap().to_owned();
        Self { process, at }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// A call with these headers.
    async fn call(&self, path: &str, body: Option<Vec<u8>>, headers: &[(&str, &str)]) -> Answer {
        let request = match body {
            Some(body) => client().post(self.url(path)).body(body),
            None => client().get(self.url(path)),
        };
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let response = soon(request.send()).await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}")),
        )
    }

    async fn compress(&self, rows: &[Value], headers: &[(&str, &str)]) -> Answer {
        let body = json!({"messages": rows, "model": "gpt-5", "config": {"mode": "ccr"}});
        self.call("/v1/compress", Some(body.to_string().into_bytes()), headers)
            .await
    }

    async fn retrieve(&self, id: &str, headers: &[(&str, &str)]) -> Answer {
        self.call(&format!("/v1/retrieve/{id}"), None, headers)
            .await
    }
}

const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef0123456789abcdef");
const A: [(&str, &str); 2] = [BEARER, ("x-plimsoll-tenant", "a")];
const B: [(&str, &str); 2] = [BEARER, ("x-plimsoll-tenant", "b")];
const TEAM: [(&str, &str); 1] = [("authorization", "Bearer fedcba9876543210fedcba9876543210")];

fn tool(place: usize) -> Value {
    let line = |line| format!("secret-{place}-{line} and some words that a tool said\n");
    let text: String = (0..60).map(line).collect();
    json!({"role": "tool", "tool_call_id": format!("c{place}"), "content": text})
}

/// What LiteLLM's guardrail sends of a session with one user: results alone, whose calls it holds back.
fn session(results: usize) -> Vec<Value> {
    (0..results).map(tool).collect()
}

fn hashes(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.0, 200, "{}", answer.1);
    let all = answer.1["ccr_hashes"].as_array().unwrap().iter();
    all.map(|hash| hash.as_str().unwrap().to_owned()).collect()
}

fn told(answer: &Answer) -> &str {
    answer.1["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_session_is_compressed_and_brought_back_and_a_restart_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    let (mut before, mut gone, mut passes) = (Vec::new(), 0, 0);
    for results in 1..=20 {
        let rows = session(results);
        let answer = gateway.compress(&rows, &A).await;
        let now = answer.1["messages"].as_array().unwrap().clone();
        let ids = hashes(&answer);
        assert_eq!(now.len(), rows.len());
        if ids.len() == gone {
            assert!(
                now.starts_with(&before),
                "between passes only the tail grows"
            );
        } else {
            passes += 1;
        }
        for id in &ids {
            let (status, found) = gateway.retrieve(id, &A).await;
            let original = &found["original_content"];
            assert!(status == 200 && rows.iter().any(|row| row["content"] == *original));
        }
        (before, gone) = (now, ids.len());
    }
    assert!(passes > 1 && gone > 10, "{passes} passes, {gone} gone");
    let answer = gateway.compress(&session(20), &A).await;
    let id = hashes(&answer).remove(0);
    let (status, _) = gateway.retrieve(&format!("{id}?query=secret"), &A).await;
    assert_eq!(status, 200);
    drop(gateway);

    let gateway = Gateway::start(directory.path(), &[]);
    assert_eq!(
        gateway.retrieve(&id, &A).await.0,
        404,
        "originals are in memory alone"
    );
    assert_eq!(gateway.compress(&session(20), &A).await, answer);
    assert_eq!(gateway.retrieve(&id, &A).await.0, 200);
}

#[tokio::test]
async fn nobody_without_a_key_or_of_another_tenant_gets_anything() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    let rows = session(12);
    let ids = hashes(&gateway.compress(&rows, &A).await);
    let id = ids[0].as_str();
    let wrong = format!("Bearer {}", KEY.to_uppercase());
    let plain = [("authorization", KEY), A[1]];
    for headers in [
        &[A[1]][..],
        &[("authorization", wrong.as_str()), A[1]],
        &plain,
        &[("authorization", "Bearer "), A[1]],
    ] {
        for answer in [
            gateway.compress(&rows, headers).await,
            gateway.retrieve(id, headers).await,
        ] {
            assert_eq!(answer.0, 401);
            assert!(told(&answer).contains("compress.key"), "{}", answer.1);
        }
    }
    let unnamed = gateway.compress(&rows, &[BEARER]).await;
    assert!(unnamed.0 == 400 && told(&unnamed).contains("`x-plimsoll-tenant`"));
    assert_eq!(gateway.retrieve(id, &[BEARER]).await.0, 400);

    let theirs = hashes(&gateway.compress(&rows, &B).await);
    let teams = hashes(&gateway.compress(&rows, &TEAM).await);
    for id in &ids {
        assert!(!theirs.contains(id) && !teams.contains(id));
        for caller in [
            &B[..],
            &TEAM,
            &[TEAM[0], A[1]],
            &[BEARER, ("x-plimsoll-tenant", "team")],
        ] {
            assert_eq!(gateway.retrieve(id, caller).await.0, 404);
        }
    }
    let zeros = "0".repeat(24);
    let long = "a".repeat(5_000);
    let upper = id.to_uppercase();
    for forged in [zeros.as_str(), &long, &upper, "..%2f..", "%00", "read:12"] {
        let answer = gateway.retrieve(forged, &A).await;
        assert!(
            answer.0 == 404 && told(&answer).contains("server.cache_memory"),
            "{forged}"
        );
    }
    // The agents' port has none of it.
    let agents = client().get(gateway.process.url(&format!("/v1/retrieve/{id}")));
    let agents = soon(
        agents
            .header("x-plimsoll-tenant", "a")
            .header("authorization", A[0].1)
            .send(),
    );
    assert_ne!(agents.await.unwrap().status(), 200);
}

#[tokio::test]
async fn what_is_not_kept_cannot_be_brought_back_and_the_setting_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[("PLIMSOLL__COMPRESS__KEEP", "false")]);
    let answer = gateway.compress(&session(12), &A).await;
    assert_eq!(answer.1["ccr_hashes"], json!([]));
    let text = answer.1["messages"][0]["content"].as_str().unwrap();
    let id = text.split([' ', ',']).nth(1).unwrap();
    let answer = gateway.retrieve(id, &A).await;
    assert!(
        answer.0 == 404 && told(&answer).contains("compress.keep"),
        "{text}"
    );
}

#[tokio::test]
async fn every_form_of_call_is_answered_with_what_to_send() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[("PLIMSOLL__SERVER__BODY_CAP", "1MiB")]);
    let same = json!({"messages": session(3)}).to_string().into_bytes();
    let compact = gateway.call("/compact", Some(same.clone()), &A).await;
    assert_eq!(
        compact,
        gateway.call("/v1/compress", Some(same.clone()), &A).await
    );
    assert_eq!(compact.1["messages"], json!(session(3)));

    let coded = [A[0], A[1], ("content-encoding", "gzip")];
    assert_eq!(
        gateway
            .call("/v1/compress", Some(same.clone()), &coded)
            .await
            .0,
        415
    );
    let many = format!("{{\"messages\":[{}{{}}]}}", "{},".repeat(20_000)).into_bytes();
    let deep = format!("{{\"messages\":{}", "[".repeat(400_000)).into_bytes();
    for (body, status, told_of) in [
        (b"".to_vec(), 400, "valid JSON"),
        (b"{\"messages\":".to_vec(), 400, "valid JSON"),
        (vec![0xff, 0xfe], 400, "valid JSON"),
        (b"{\"input\":[]}".to_vec(), 400, "`messages`"),
        (b"{\"messages\":[7]}".to_vec(), 400, "messages[0]"),
        (many, 400, "at most 20000 rows"),
        (deep, 400, "valid JSON"),
        (vec![b' '; 2 << 20], 413, "server.body_cap"),
    ] {
        let answer = gateway.call("/v1/compress", Some(body), &A).await;
        assert!(
            answer.0 == status && told(&answer).contains(told_of),
            "{}",
            answer.1
        );
        assert_eq!(answer.1["detail"], answer.1["error"]["message"]);
    }
    for path in [
        "/",
        "/v1/compress",
        "/compact",
        "/v1/retrieve",
        "/v1/retrieve/a/b",
        "/metrics",
        "/v1/chat/completions",
    ] {
        let answer = gateway.call(path, None, &A).await;
        assert!(
            answer.0 == 404 && told(&answer).contains("POST /v1/compress"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_flood_is_refused_or_answered_and_the_log_says_nothing_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(
        directory.path(),
        &[
            ("PLIMSOLL__SERVER__BODY_CAP", "1MiB"),
            ("PLIMSOLL__LOG__LEVEL", "debug"),
        ],
    );
    let small = r#"{"role":"tool","tool_call_id":"c","content":"x"},"#;
    let rows = format!("{{\"messages\":[{}{}]}}", small.repeat(18_000), tool(0)).into_bytes();
    let calls = (0..100).map(|_| gateway.call("/v1/compress", Some(rows.clone()), &A));
    let answers = join_all(calls).await;
    let of = |status: u16| answers.iter().filter(|answer| answer.0 == status).count();
    assert!(
        of(200) > 0 && of(200) + of(503) == 100,
        "{} and {}",
        of(200),
        of(503)
    );
    let calm = gateway.compress(&session(12), &B).await;
    assert!(!hashes(&calm).is_empty());

    // Who has no key gets the answer although it wrote much before it read.
    let head = format!(
        "POST /v1/compress HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        900 << 10
    );
    let request = [head.into_bytes(), vec![b'x'; 900 << 10]].concat();
    let answer = talk(gateway.at.parse().unwrap(), &request).await;
    assert!(answer.starts_with(b"HTTP/1.1 401"));
    gateway.process.signal("-TERM");
    let (_, log) = gateway.process.end().await;
    for said in ["secret-", KEY, OTHER] {
        assert!(!log.contains(said), "{log}");
    }
}

#[test]
fn a_listener_without_a_key_or_on_a_taken_address_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.toml");
    for (text, told) in [
        (
            "listen = 8899",
            "`compress.key`: must be given where compress.listen is set",
        ),
        (
            "listen = 8899\nkey = \"short\"",
            "`compress.key`: must have at least 32 characters",
        ),
        (
            "listen = 8899\nkeys = \"team\"",
            "pairs of a tenant and its key",
        ),
        (
            "keys = \"team=short\"",
            "each key must have at least 32 characters",
        ),
        (
            "listen = 8787\nkey = \"0123456789abcdef0123456789abcdef\"",
            "must not be the address of `server.listen`",
        ),
        (
            "listen = 9187\nkey = \"0123456789abcdef0123456789abcdef\"",
            "or `server.admin`",
        ),
        (
            "key = \"0123456789abcdef0123456789abcdef\"\nkeys = \"a=0123456789abcdef0123456789abcdef\"",
            "holds a key twice",
        ),
        ("tenant_header = \"a b\"", "the name of a header"),
        ("tokens = 10", "at least 1000"),
        ("floor = 0", "fraction"),
    ] {
        std::fs::write(&file, format!("[compress]\n{text}\n")).unwrap();
        let done = plimsoll(directory.path())
            .arg("check")
            .arg(&file)
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            !done.status.success() && said.contains(told),
            "{text}: {said}"
        );
        assert!(!said.contains(KEY), "{said}");
    }
}
