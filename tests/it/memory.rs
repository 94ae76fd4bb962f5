//! Memory comes to rest: what the proxy remembers between requests is bounded by its bytes,
//! whatever these are the bytes of, and can be read off its gauges.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::Response;
use plimsoll_model::CacheName;
use serde_json::{Value, json};

use crate::process::Process;
use crate::support::{Proxy, at_rest, client, soon, upstream};

/// Characters of what an episode taught: as long as a model may write it.
const LEARNED: usize = 12_000;
/// Episodes in one answer.
const EPISODES: usize = 8;

fn call(id: usize, arguments: &Value) -> Value {
    let function = json!({"name": "delimiter", "arguments": arguments.to_string()});
    json!({"id": format!("call_{id}"), "type": "function", "function": function})
}

/// A model that opens and closes episodes, each with a long description, and then says its word.
async fn talkative() -> SocketAddr {
    upstream(|request| async move {
        let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let last = body["messages"].as_array().unwrap().last().unwrap();
        let message = if last["role"] == "tool" {
            json!({"role": "assistant", "content": "done"})
        } else {
            let calls = (0..EPISODES).flat_map(|at| {
                let start = json!({"action": "start", "name": format!("e{at}"), "type": "expl"});
                let learned = format!("{at}{}", "-".repeat(LEARNED));
                let end = json!({"action": "end", "description": learned});
                [call(at * 2, &start), call(at * 2 + 1, &end)]
            });
            let calls: Vec<Value> = calls.collect();
            json!({"role": "assistant", "content": null, "tool_calls": calls})
        };
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        });
        Response::builder()
            .header("content-type", "application/json")
            .body(Body::from(answer.to_string()))
            .unwrap()
    })
    .await
}

/// The first turn of a session of its own.
fn first_turn(session: usize) -> String {
    let ask = format!("{session}: {}", "look around ".repeat(20));
    let tool = json!({"type": "function", "function": {"name": "bash", "parameters": {}}});
    let messages = json!([{"role": "user", "content": ask}]);
    json!({"model": "gpt-5", "messages": messages, "tools": [tool]}).to_string()
}

/// Serves so many sessions, a few at a time.
async fn serve(process: &Process, sessions: std::ops::Range<usize>) {
    let client = client();
    let ids: Vec<usize> = sessions.collect();
    for some in ids.chunks(8) {
        let asked = some.iter().map(|session| {
            let request = client.post(process.url("/v1/chat/completions"));
            let request = request.header("authorization", "Bearer key");
            request.body(first_turn(*session)).send()
        });
        for response in soon(futures_util::future::join_all(asked)).await {
            let response = response.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()["x-plimsoll-turn"], "1", "it was managed");
        }
    }
}

/// Bytes by cache, of a family of gauges.
async fn gauges(process: &Process, family: &str) -> BTreeMap<String, u64> {
    let text = client().get(process.admin_url("/metrics")).send();
    let text = soon(text).await.unwrap().text().await.unwrap();
    let prefix = format!("plimsoll_{family}{{cache=\"");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let gauges = lines.map(|line| line.split_once("\"} ").unwrap());
    gauges
        .map(|(cache, bytes)| (cache.to_owned(), bytes.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn sessions_with_large_hidden_calls_come_to_rest_within_the_setting() {
    const SETTING: u64 = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let upstream = talkative().await;
    let setting = SETTING.to_string();
    let env = [
        ("PLIMSOLL__SERVER__CACHE_MEMORY", setting.as_str()),
        ("PLIMSOLL__STORE__CACHE_MB", "8"),
    ];
    let process = Process::start(
        directory.path(),
        upstream,
        &["--log", "error,plimsoll::cli=info"],
        &env,
    );
    serve(&process, 0..24).await;
    let before = process.resident();
    serve(&process, 24..128).await;
    // Each of them keeps some 400 KB of calls and results: some 40 MB if none were let go. The allocator gives freed
    // memory back after a second.
    at_rest(before + (20 << 20) - 1, || process.resident()).await;

    let limits = gauges(&process, "cache_limit_bytes").await;
    let held = gauges(&process, "cache_bytes").await;
    assert!(limits.values().sum::<u64>() <= SETTING, "{limits:?}");
    assert!(
        limits.values().sum::<u64>() > SETTING * 9 / 10,
        "{limits:?}"
    );
    assert!(held["paths"] > 0 && held["shapes"] > 0, "{held:?}");
    for (cache, bytes) in &held {
        assert!(bytes <= &limits[cache], "{cache}: {held:?} of {limits:?}");
    }
}

/// Of how many look-ups in the store the metrics tell.
async fn look_ups(proxy: &Proxy) -> u64 {
    let url = format!("http://{}/metrics", proxy.admin);
    let text = soon(client().get(url).send()).await.unwrap();
    let text = soon(text.text()).await.unwrap();
    let prefix = "plimsoll_store_op_seconds_count{op=\"links\"} ";
    let line = text.lines().find_map(|line| line.strip_prefix(prefix));
    line.unwrap().parse().unwrap()
}

/// Bytes of a history that the proxy has never seen, each turn with a call and its result.
fn unknown(turns: usize) -> String {
    let turns = (0..turns).flat_map(|turn| {
        let id = format!("c{turn}");
        let function = json!({"name": "bash", "arguments": "{}"});
        let call = json!({"id": id, "type": "function", "function": function});
        [
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": id, "content": format!("out {turn}")}),
        ]
    });
    let user = json!({"role": "user", "content": "go"});
    let messages: Vec<Value> = [user].into_iter().chain(turns).collect();
    json!({"model": "gpt-5", "messages": messages}).to_string()
}

#[tokio::test]
async fn a_long_history_that_is_not_known_costs_few_look_ups() {
    let proxy = Proxy::before(talkative().await).await;
    let ask = client().post(proxy.url("/v1/chat/completions"));
    let answer = soon(ask.body(unknown(4_000)).send()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let read = look_ups(&proxy).await;
    assert!(read < 250, "{read} look-ups");
}

#[tokio::test]
async fn the_reading_of_a_long_body_stops_when_its_client_leaves() {
    const MESSAGES: u64 = 60_000;
    let proxy = Proxy::before(talkative().await).await;
    let shapes = || proxy.app.memo.weight(CacheName::Shapes);
    let body = unknown(usize::try_from(MESSAGES / 2).unwrap());
    let ask = client().post(proxy.url("/v1/chat/completions")).body(body);
    let asking = tokio::spawn(ask.send());
    soon(async {
        while shapes() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    asking.abort();
    let left = async || {
        let url = format!("http://{}/metrics", proxy.admin);
        let text = client().get(url).send().await.unwrap().text().await;
        text.unwrap().contains("status=\"none\"")
    };
    soon(async { while !left().await {} }).await;
    // Each message weighs some 200 bytes at the least.
    let read = shapes();
    assert!(read < MESSAGES * 200 / 2, "{read} bytes are known");
}
