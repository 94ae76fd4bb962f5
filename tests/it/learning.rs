//! Upstreams that refuse one kind of edit, in words that say so or in none: a session ends as it does
//! without the proxy, at the price of two refusals at most, and one that refuses at random teaches
//! nothing.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use serde_json::{Value, json};

use super::agent::{tools, until_metric};
use super::support::{Proxy, client, soon, upstream};

const TURNS: usize = 48;
const BUDGET: u64 = 6_000;

/// Why a request is refused, if it is: its number among all, and its messages.
type Rule = fn(usize, &Value) -> Option<&'static str>;

/// What an upstream was sent, and whether it refused it.
type Seen = Arc<Mutex<Vec<(Value, bool)>>>;

fn messages(body: &Value) -> &Vec<Value> {
    body["messages"].as_array().unwrap()
}

/// The result of a command as the client has it.
fn output(number: usize) -> String {
    let lines = (0..40).map(|line| format!("{number}.{line}: {}", number * 7_919 + line));
    lines.collect::<Vec<_>>().join("\n")
}

fn thought(number: usize) -> String {
    format!("this is why number {number} must be run now and not later")
}

/// The number of a call by its id.
fn number(id: &Value) -> usize {
    id.as_str().unwrap()[5..].parse().unwrap()
}

fn thoughtless(body: &Value) -> bool {
    let said = |message: &&Value| message["tool_calls"].is_array();
    let calls = messages(body).iter().filter(said);
    calls.into_iter().any(|message| {
        let first = number(&message["tool_calls"][0]["id"]);
        message["reasoning_content"] != json!(thought(first))
    })
}

fn wants_reasoning(_: usize, body: &Value) -> Option<&'static str> {
    thoughtless(body).then_some("Missing `reasoning_content` field in the assistant message")
}

fn wants_reasoning_in_silence(_: usize, body: &Value) -> Option<&'static str> {
    thoughtless(body).then_some("Invalid request")
}

fn wants_results_in_silence(_: usize, body: &Value) -> Option<&'static str> {
    let mut results = messages(body)
        .iter()
        .filter(|message| message["role"] == "tool");
    let edited = results
        .any(|message| message["content"] != json!(output(number(&message["tool_call_id"]))));
    edited.then_some("Invalid request")
}

fn wants_no_tool_of_ours(_: usize, body: &Value) -> Option<&'static str> {
    (body["tools"].as_array().unwrap().len() > 1).then_some("Invalid request")
}

/// One in seven, whatever is in it.
fn at_random(count: usize, _: &Value) -> Option<&'static str> {
    (blake3::hash(&count.to_le_bytes()).as_bytes()[0] < 37).then_some("try again")
}

fn refusal(text: &str) -> (u16, String) {
    let error = json!({"error": {"message": text, "type": "invalid_request_error"}});
    (400, error.to_string())
}

fn answer(body: &Value) -> (u16, String) {
    let results = messages(body)
        .iter()
        .filter(|message| message["role"] == "tool");
    let last = results
        .map(|message| number(&message["tool_call_id"]))
        .max();
    let next = last.map_or(0, |last| last + 1);
    let call = json!({"id": format!("call_{next}"), "type": "function",
        "function": {"name": "bash", "arguments": json!({"c": format!("run {next}")}).to_string()}});
    let message = json!({"role": "assistant", "content": null,
        "reasoning_content": thought(next), "tool_calls": [call]});
    let whole = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    (200, whole.to_string())
}

/// Plays a session against an upstream with a rule: what that was sent, and the proxy.
async fn play(rule: Rule) -> (Vec<(Value, bool)>, Proxy) {
    let seen = Seen::default();
    let noted = seen.clone();
    let addr = upstream(move |request| {
        let seen = noted.clone();
        async move {
            let bytes = to_bytes(request.into_body(), usize::MAX).await.unwrap();
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            let mut seen = seen.lock().unwrap();
            let refused = rule(seen.len(), &body);
            let (status, said) = refused.map_or_else(|| answer(&body), refusal);
            seen.push((body, refused.is_some()));
            let built = Response::builder().status(status);
            let built = built.header("content-type", "application/json");
            built.body(Body::from(said)).unwrap()
        }
    })
    .await;
    let proxy = Proxy::before(addr).await;
    let mut history = vec![json!({"role": "user", "content": "run them all"})];
    for turn in 0..TURNS {
        let body = json!({"model": "m", "messages": history, "tools": tools()});
        let mut tries = 0;
        let answer = loop {
            let sent = client()
                .post(proxy.url("/v1/chat/completions"))
                .bearer_auth("k")
                .header("x-plimsoll-budget", BUDGET)
                .body(body.to_string());
            let response = soon(sent.send()).await.unwrap();
            if response.status() == 200 {
                break serde_json::from_slice::<Value>(&response.bytes().await.unwrap()).unwrap();
            }
            // A client tries again what is refused at random.
            tries += 1;
            assert!(tries < 5, "turn {turn}: {:?}", response.text().await);
        };
        let said = answer["choices"][0]["message"].clone();
        let call = number(&said["tool_calls"][0]["id"]);
        assert_eq!(call, turn, "the session is another");
        let id = said["tool_calls"][0]["id"].clone();
        history.push(said);
        history.push(json!({"role": "tool", "tool_call_id": id, "content": output(call)}));
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, proxy)
}

fn refusals(seen: &[(Value, bool)]) -> usize {
    seen.iter().filter(|(_, refused)| *refused).count()
}

/// A counter, summed over its labels.
fn counted(proxy: &Proxy, name: &str) -> u64 {
    let metrics = proxy.app.metrics_text();
    let named = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let lines = metrics.lines().filter(named);
    let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

fn learned(proxy: &Proxy) -> u64 {
    counted(proxy, "plimsoll_rules_learned_total")
}

/// Bytes of a body's messages that are no more than a view under the budget can have.
fn is_held(body: &Value) -> bool {
    // These lines are numbers, which are short tokens.
    let bytes: usize = messages(body)
        .iter()
        .map(|message| message.to_string().len())
        .sum();
    bytes < 4 * usize::try_from(BUDGET).unwrap()
}

async fn holds(rule: Rule, most: usize, kinds: u64) {
    let (seen, proxy) = play(rule).await;
    let refused = refusals(&seen);
    assert!(refused <= most, "{refused} refusals");
    assert!(refused > 0, "the rule was never met");
    let late = refusals(&seen[seen.len() * 3 / 4..]);
    assert_eq!(late, 0, "refused behind all that could be learned");
    assert_eq!(learned(&proxy), kinds);
    let breaks = counted(&proxy, "plimsoll_prefix_breaks_total");
    let passes = counted(&proxy, "plimsoll_passes_total");
    assert!(
        breaks > passes,
        "{breaks} breaks, {passes} of them by passes"
    );
    let long = seen.iter().filter(|(body, _)| !is_held(body)).count();
    assert!(long <= 1, "{long} requests went up as the client made them");
}

#[tokio::test]
async fn reasoning_that_a_refusal_asks_for_stays_from_then_on() {
    holds(wants_reasoning, 1, 1).await;
}

#[tokio::test]
async fn a_rule_that_nothing_names_is_found_out() {
    holds(wants_reasoning_in_silence, 2, 1).await;
}

#[tokio::test]
async fn results_that_may_not_be_edited_go_with_their_calls() {
    holds(wants_results_in_silence, 2, 1).await;
}

#[tokio::test]
async fn tools_that_the_upstream_refuses_are_offered_no_more() {
    let (seen, proxy) = play(wants_no_tool_of_ours).await;
    assert_eq!((refusals(&seen), learned(&proxy)), (2, 1));
    let last = seen.last();
    let last = last.map(|(body, _)| body["tools"].as_array().unwrap().len());
    assert_eq!(last, Some(1));
}

#[tokio::test]
async fn an_upstream_that_refuses_at_random_teaches_nothing() {
    let (seen, proxy) = play(at_random).await;
    assert!(refusals(&seen) > 2);
    assert_eq!(learned(&proxy), 0);
    let last = seen.last();
    let last = last.map(|(body, _)| body["tools"].as_array().unwrap().len());
    assert!(last > Some(1), "the hidden tools are gone");
    until_metric(&proxy, "plimsoll_rules_learned_total{kind=\"reasoning\"} 0").await;
}
