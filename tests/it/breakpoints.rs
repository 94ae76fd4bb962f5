//! Breakpoints in requests of the Messages dialect, by what a provider that caches at breakpoints
//! alone would read again of each request.

use std::collections::HashSet;

use plimsoll::config::Config;
use plimsoll_core::turn::SetBreakpoints;
use serde_json::{Value, json};

use super::agent::until_metric;
use super::support::{Lenient, Proxy, answered, client, frames, soon};

const TURNS: usize = 40;

/// What an upstream says: (number among those that it took, body) -> content, or a refusal.
type Says = fn(usize, &Value) -> Result<Value, Value>;

/// One more command to run each time.
#[expect(clippy::unnecessary_wraps, reason = "one of several")]
fn works(number: usize, _: &Value) -> Result<Value, Value> {
    Ok(json!({
        "type": "tool_use", "id": format!("toolu_{number}"), "name": "bash",
        "input": {"command": "make"},
    }))
}

/// The same from a gateway that knows no markers.
fn knows_none(number: usize, body: &Value) -> Result<Value, Value> {
    match markers(body) {
        0 => works(number, body),
        _ => Err(
            json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "messages.0.content.0.text.cache_control: Extra inputs are not permitted"}}),
        ),
    }
}

/// An upstream that says these things.
async fn provider(says: Says) -> Lenient {
    Lenient::judging(move |before, request| {
        let body = request.value();
        let taken = before.iter().filter(|one| !one.is_refused()).count();
        match says(taken, &body) {
            Err(error) => answered(400, error),
            Ok(_) if request.path.ends_with("count_tokens") => {
                answered(200, json!({"input_tokens": 1}))
            }
            Ok(block) if body["stream"] == true => answered(200, events(block)),
            Ok(block) => answered(200, message(json!([block]))),
        }
    })
    .await
}

/// Paths and bodies, as an upstream got them.
fn asked(provider: &Lenient) -> Vec<(String, Value)> {
    let seen = provider.seen().into_iter();
    seen.map(|one| (one.path.clone(), one.value())).collect()
}

fn message(content: Value) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": content, "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 9, "output_tokens": 9},
    })
}

/// A message of one call as a stream.
fn events(mut block: Value) -> String {
    let input = std::mem::replace(&mut block["input"], json!({})).to_string();
    let events = [
        json!({"type": "message_start", "message": message(json!([]))}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": input}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    frames(&events)
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

fn tight(config: &mut Config) {
    config.budget.ceiling = 6_000;
    config.budget.implicit_tokens = 500;
}

/// A session of many passes; what the upstream got of it.
async fn session(own: Own, breakpoints: SetBreakpoints, says: Says) -> Vec<(String, Value)> {
    let provider = provider(says).await;
    let proxy = Proxy::with(provider.addr, |config| {
        tight(config);
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
    asked(&provider)
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
        let with = session(own, SetBreakpoints::Auto, works).await;
        let without = session(own, SetBreakpoints::Off, works).await;
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

#[tokio::test]
async fn an_upstream_that_knows_no_breakpoints_gets_them_once() {
    let refused = session(Own::Nothing, SetBreakpoints::Auto, knows_none).await;
    let plain = session(Own::Nothing, SetBreakpoints::Off, works).await;
    assert!(markers(&refused[0].1) > 0);
    for (path, body) in &refused[1..] {
        assert_eq!(markers(body), 0, "{path}: {body}");
    }
    assert_eq!(bare(&refused[1..]), bare(&plain), "managed as ever");
}

/// A conversation with enough in it to be evicted, so that the proxy sets a breakpoint beside the
/// client's own three.
fn worked() -> Vec<Value> {
    let user = |block: Value| json!({"role": "user", "content": [block]});
    let mut history = vec![user(json!({"type": "text", "text": "go"}))];
    for turn in 0..8 {
        let id = format!("t{turn}");
        let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
        let result =
            json!({"type": "tool_result", "tool_use_id": id, "content": "ok ".repeat(300)});
        history.extend([
            json!({"role": "assistant", "content": [call]}),
            user(result),
        ]);
    }
    history
}

async fn ask(proxy: &Proxy, body: &Value) -> (u16, String, String) {
    let sent = client().post(proxy.url("/v1/messages"));
    let sent = sent.header("x-api-key", "k").body(body.to_string());
    let answer = soon(sent.send()).await.unwrap();
    let stage = answer.headers().get("x-plimsoll-fail-open");
    let stage = stage.map_or("", |stage| stage.to_str().unwrap()).to_owned();
    (
        answer.status().as_u16(),
        stage,
        soon(answer.text()).await.unwrap(),
    )
}

#[tokio::test]
async fn markers_of_the_clients_own_that_are_refused_say_nothing_of_ours() {
    let provider = provider(knows_none).await;
    let proxy = Proxy::with(provider.addr, tight).await;
    let body = request(&worked(), Own::Three);
    for turn in 0..2 {
        let (status, stage, text) = ask(&proxy, &body).await;
        assert_eq!((status, stage.as_str()), (400, "refused_twice"), "{text}");
        let seen = asked(&provider).split_off(3 * turn);
        let counts: Vec<usize> = seen.iter().map(|(_, body)| markers(body)).collect();
        assert_eq!(
            counts,
            [4, 3, 3],
            "with ours, without, as the client has it"
        );
        assert_eq!(seen[2].1, body);
    }
}

#[tokio::test]
async fn a_later_hop_that_is_refused_for_its_breakpoints_goes_on_without() {
    // One upstream of several behind one address knows none.
    let says: Says = |number, body| match body["messages"].as_array().unwrap().len() {
        1 => Ok(json!({
            "type": "tool_use", "id": "toolu_d", "name": "delimiter",
            "input": {"action": "start", "name": "a", "type": "expl"},
        })),
        _ => knows_none(number, body),
    };
    for stream in [false, true] {
        let provider = provider(says).await;
        let proxy = Proxy::before(provider.addr).await;
        let mut body = request(&worked()[..1], Own::Nothing);
        body["stream"] = json!(stream);
        let (status, stage, text) = ask(&proxy, &body).await;
        assert_eq!((status, stage.as_str()), (200, ""), "{text}");
        assert!(
            text.contains("toolu_1") && !text.contains("delimiter"),
            "{text}"
        );
        let marked: Vec<bool> = asked(&provider)
            .iter()
            .map(|(_, body)| markers(body) > 0)
            .collect();
        assert_eq!(marked, [true, true, false], "{stream}");
        until_metric(&proxy, r#"plimsoll_retries_total{reason="breakpoints"} 1"#).await;
    }
}
