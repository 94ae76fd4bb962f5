//! Breakpoints in requests of the Messages dialect, by what a provider that caches at breakpoints
//! alone would read again of each request.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use plimsoll::pipeline::SetBreakpoints;
use serde_json::{Value, json};

use super::support::{Proxy, client, soon, upstream};

const TURNS: usize = 40;

/// Bodies by path, as the upstream got them.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// An upstream that has one more command to run each time.
async fn provider(seen: Seen) -> SocketAddr {
    upstream(move |request| {
        let seen = seen.clone();
        async move {
            let path = request.uri().path().to_owned();
            let bytes = to_bytes(request.into_body(), usize::MAX).await.unwrap();
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            let mut seen = seen.lock().unwrap();
            seen.push((path.clone(), body));
            let answer = match path.ends_with("count_tokens") {
                true => json!({"input_tokens": 1}),
                false => json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                    "content": [{
                        "type": "tool_use", "id": format!("toolu_{}", seen.len()),
                        "name": "bash", "input": {"command": "make"},
                    }],
                    "stop_reason": "tool_use", "stop_sequence": null,
                    "usage": {"input_tokens": 9, "output_tokens": 9},
                }),
            };
            Response::builder()
                .header("content-type", "application/json")
                .body(Body::from(answer.to_string()))
                .unwrap()
        }
    })
    .await
}

/// How a client sets its own markers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Own {
    Nothing,
    /// Two in the system text and one at the tail, as Claude Code does.
    Three,
}

fn request(history: &[Value], own: Own) -> Value {
    let mut messages = history.to_vec();
    let mut system = json!([{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]);
    if own == Own::Three {
        let marker = json!({"type": "ephemeral"});
        system[0]["cache_control"] = marker.clone();
        system[1]["cache_control"] = marker.clone();
        let tail = messages.last_mut().unwrap();
        tail["content"][0]["cache_control"] = marker;
    }
    json!({
        "model": "claude-opus-4-6", "max_tokens": 500, "system": system, "messages": messages,
        "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
    })
}

/// A session of many passes; what the upstream got of it.
async fn session(own: Own, breakpoints: SetBreakpoints) -> Vec<(String, Value)> {
    let seen = Seen::default();
    let proxy = Proxy::with(provider(seen.clone()).await, |config| {
        config.budget.ceiling = 6_000;
        config.budget.implicit_tokens = 500;
        config.cache.breakpoints = breakpoints;
    })
    .await;
    let mut history = vec![json!({"role": "user", "content": [{"type": "text", "text": "go"}]})];
    let post = async |path: &str, body: &Value| {
        let sent = client().post(proxy.url(path)).header("x-api-key", "k");
        let sent = sent.body(body.to_string()).send();
        let answer = soon(sent).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("x-plimsoll-fail-open"));
        serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap()
    };
    for turn in 0..TURNS {
        let body = request(&history, own);
        if turn % 10 == 9 {
            post("/v1/messages/count_tokens", &body).await;
        }
        let answer = post("/v1/messages", &body).await;
        let lines: Vec<String> = (0..60).map(|at| format!("{turn}.{at} ok")).collect();
        let result = json!({
            "type": "tool_result", "tool_use_id": answer["content"][0]["id"],
            "content": lines.join("\n"),
        });
        history.push(json!({"role": "assistant", "content": answer["content"]}));
        history.push(json!({"role": "user", "content": [result]}));
    }
    let mut seen = seen.lock().unwrap();
    std::mem::take(&mut *seen)
}

/// The blocks of a request in the order in which a provider reads them, each with its marker.
fn blocks(body: &Value) -> Vec<(Value, bool)> {
    let mut blocks: Vec<Value> = vec![body["tools"].clone()];
    blocks.extend(body["system"].as_array().unwrap().iter().cloned());
    for message in body["messages"].as_array().unwrap() {
        match &message["content"] {
            Value::Array(content) => blocks.extend(content.iter().cloned()),
            text => blocks.push(json!({"type": "text", "text": text})),
        }
    }
    let apart = |mut block: Value| {
        let object = block.as_object_mut();
        let marker = object.and_then(|object| object.remove("cache_control"));
        (block, marker.is_some())
    };
    blocks.into_iter().map(apart).collect()
}

/// The share of all bytes that a cache reads which is written at breakpoints, and read at most
/// twenty blocks before one.
fn share(seen: &[(String, Value)]) -> f64 {
    let (mut held, mut read, mut all) = (HashSet::new(), 0, 0);
    for (_, body) in seen {
        let mut prefixes = vec![String::new()];
        let blocks = blocks(body);
        for (block, _) in &blocks {
            prefixes.push(format!("{}{block}", prefixes.last().unwrap()));
        }
        let marked = || (1..).zip(&blocks).filter(|(_, (_, marked))| *marked);
        let found = marked().flat_map(|(at, _)| (at.max(21) - 20..=at).rev());
        let found = found.filter(|at| held.contains(&prefixes[*at]));
        read += found.map(|at| prefixes[at].len()).max().unwrap_or(0);
        all += prefixes.last().unwrap().len();
        held.extend(marked().map(|(at, _)| prefixes[at].clone()));
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes of a test")]
    let share = read as f64 / all as f64;
    share
}

fn markers(body: &Value) -> usize {
    body.to_string().matches("\"cache_control\"").count()
}

/// Everything but the markers.
fn bare(seen: &[(String, Value)]) -> Vec<Vec<Value>> {
    let bare = |(_, body): &(String, Value)| blocks(body).into_iter().map(|(block, _)| block);
    seen.iter().map(|one| bare(one).collect()).collect()
}

#[tokio::test]
async fn breakpoints_save_what_a_pass_leaves_alone() {
    for (own, least) in [(Own::Nothing, 0), (Own::Three, 3)] {
        let with = session(own, SetBreakpoints::Auto).await;
        let without = session(own, SetBreakpoints::Off).await;
        assert_eq!(bare(&with), bare(&without), "nothing but markers differs");
        for (path, body) in &without {
            assert_eq!(markers(body), least, "{path}: the client's own alone");
        }
        for (path, body) in &with {
            let count = markers(body);
            if path.ends_with("count_tokens") {
                assert_eq!(count, least, "what is counted is not kept");
                continue;
            }
            assert!((least + 1..=4).contains(&count) || body["messages"][1].is_null());
            assert!(blocks(body).last().unwrap().1, "the tail is marked: {body}");
        }
        let turns = |seen: Vec<(String, Value)>| -> Vec<(String, Value)> {
            let asked = seen.into_iter();
            asked.filter(|(path, _)| path == "/v1/messages").collect()
        };
        let (with, without) = (share(&turns(with)), share(&turns(without)));
        println!("{own:?}: {with:.3} of the input is read again, {without:.3} without");
        assert!(with > without + 0.005, "{own:?}: {with} and {without}");
    }
}
