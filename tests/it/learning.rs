//! Upstreams that refuse one kind of edit, in words that say so or in none: a session ends as it does
//! without the proxy, at the price of two refusals at most, and one that refuses at random teaches
//! nothing.

use std::ops::Range;
use std::path::Path;

use plimsoll::config::Backend;
use serde_json::{Value, json};

use super::agent::{tools, until_metric};
use super::support::{Lenient, Proxy, Seen, answered, client, soon};

const TURNS: usize = 48;
const BUDGET: u64 = 6_000;

/// Why a request is refused, if it is: its number among all, and its body.
type Rule = fn(usize, &Value) -> Option<&'static str>;

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

/// Whether a call by its id is a command, and none of a hidden tool.
fn is_command(id: &Value) -> bool {
    id.as_str().unwrap().starts_with("call_")
}

/// The number of a command by its id.
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

/// So many of 256, whatever is in them.
fn at_random(count: usize, share: u8) -> Option<&'static str> {
    (blake3::hash(&count.to_le_bytes()).as_bytes()[0] < share).then_some("try again")
}

fn one_in_seven(count: usize, _: &Value) -> Option<&'static str> {
    at_random(count, 37)
}

fn one_in_three(count: usize, _: &Value) -> Option<&'static str> {
    at_random(count, 85)
}

fn completion(message: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
}

/// The next command, by the last one that has a result.
fn next(body: &Value) -> usize {
    let results = messages(body)
        .iter()
        .filter(|message| message["role"] == "tool");
    let commands = results.filter(|message| is_command(&message["tool_call_id"]));
    let last = commands
        .map(|message| number(&message["tool_call_id"]))
        .max();
    last.map_or(0, |last| last + 1)
}

fn answer(body: &Value) -> Value {
    let next = next(body);
    let call = json!({"id": format!("call_{next}"), "type": "function",
        "function": {"name": "bash", "arguments": json!({"c": format!("run {next}")}).to_string()}});
    completion(&json!({"role": "assistant", "content": null,
        "reasoning_content": thought(next), "tool_calls": [call]}))
}

/// An upstream with a rule that says these things.
async fn ruled(rule: Rule, says: fn(&Value) -> Value) -> Lenient {
    Lenient::judging(move |before, request| {
        let body = request.value();
        match rule(before.len(), &body) {
            None => answered(200, says(&body)),
            Some(text) => {
                let error = json!({"message": text, "type": "invalid_request_error"});
                answered(400, json!({"error": error}))
            }
        }
    })
    .await
}

/// A client whose model runs one command after the other.
struct Session {
    model: &'static str,
    history: Vec<Value>,
}

impl Session {
    fn begin() -> Self {
        Self {
            model: "m",
            history: vec![json!({"role": "user", "content": "run them all"})],
        }
    }

    /// Plays these turns; each has to get the command that it would without a proxy.
    async fn play(&mut self, proxy: &Proxy, turns: Range<usize>) {
        for turn in turns {
            let answer = self.ask(proxy, turn).await;
            let said = answer["choices"][0]["message"].clone();
            let id = said["tool_calls"][0]["id"].clone();
            assert_eq!(id, format!("call_{turn}"), "{answer}");
            self.history.push(said);
            self.history
                .push(json!({"role": "tool", "tool_call_id": id, "content": output(turn)}));
        }
    }

    async fn ask(&self, proxy: &Proxy, turn: usize) -> Value {
        let body = json!({"model": self.model, "messages": self.history, "tools": tools()});
        let mut tries = 0;
        loop {
            let sent = client()
                .post(proxy.url("/v1/chat/completions"))
                .bearer_auth("k")
                .header("x-plimsoll-budget", BUDGET)
                .body(body.to_string());
            let response = soon(sent.send()).await.unwrap();
            if response.status() == 200 {
                return serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            }
            // A client tries again what is refused at random.
            tries += 1;
            assert!(tries < 9, "turn {turn}: {:?}", response.text().await);
        }
    }
}

/// Plays a session against an upstream with a rule: what that was sent, and the proxy.
async fn play(rule: Rule, turns: usize) -> (Vec<Seen>, Proxy) {
    let upstream = ruled(rule, answer).await;
    let proxy = Proxy::before(upstream.addr).await;
    Session::begin().play(&proxy, 0..turns).await;
    (upstream.seen(), proxy)
}

/// A proxy that keeps its records in a directory.
async fn at(directory: &Path, upstream: &Lenient) -> Proxy {
    Proxy::with(upstream.addr, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = directory.to_owned();
    })
    .await
}

fn refusals(seen: &[Seen]) -> usize {
    seen.iter().filter(|one| one.is_refused()).count()
}

/// How many tools a request offers.
fn offered(one: &Seen) -> usize {
    one.value()["tools"].as_array().unwrap().len()
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
    let (seen, proxy) = play(rule, TURNS).await;
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
    let long = seen.iter().filter(|one| !is_held(&one.value())).count();
    assert!(long <= 1, "{long} requests went up as the client made them");
}

#[tokio::test]
async fn reasoning_that_a_refusal_asks_for_stays_from_then_on() {
    holds(wants_reasoning, 1, 1).await;
}

#[tokio::test]
async fn a_rule_that_nothing_names_is_found_out() {
    // One pass takes thoughts and edits results, and nothing tells which of the two was refused.
    holds(wants_reasoning_in_silence, 2, 2).await;
}

#[tokio::test]
async fn results_that_may_not_be_edited_go_with_their_calls() {
    holds(wants_results_in_silence, 2, 2).await;
}

#[tokio::test]
async fn tools_that_the_upstream_refuses_are_offered_no_more() {
    let (seen, proxy) = play(wants_no_tool_of_ours, TURNS).await;
    // Nothing tells the tools from the guidance, which comes with them.
    assert_eq!((refusals(&seen), learned(&proxy)), (2, 2));
    assert_eq!(seen.last().map(offered), Some(1));
}

#[tokio::test]
async fn an_upstream_that_refuses_at_random_teaches_nothing() {
    for (rule, turns, least) in [(one_in_seven as Rule, TURNS, 3), (one_in_three, 60, 15)] {
        let (seen, proxy) = play(rule, turns).await;
        assert!(refusals(&seen) >= least, "{}", refusals(&seen));
        assert_eq!(learned(&proxy), 0);
        // The client's own requests go up in place of some, without them.
        let offers = seen.iter().rev().take(8).map(offered).max();
        assert!(offers > Some(1), "the hidden tools are gone");
        until_metric(&proxy, "plimsoll_rules_learned_total{kind=\"reasoning\"} 0").await;
    }
}

/// The same session with episodes: each third command is led by an answer of hidden calls alone, which
/// is thought of in words, while commands are not.
fn marked(body: &Value) -> Value {
    let next = next(body);
    let hidden = format!("hide_{next}");
    let last = messages(body).last().unwrap();
    let offered = body["tools"].as_array().unwrap().len() > 1;
    if !offered || !next.is_multiple_of(3) || last["tool_call_id"] == hidden {
        let mut said = answer(body);
        let message = said["choices"][0]["message"].as_object_mut().unwrap();
        message.remove("reasoning_content");
        return said;
    }
    let mark = match next.is_multiple_of(6) {
        true => json!({"action": "start", "name": format!("e{next}"), "type": "expl"}),
        false => json!({"action": "end", "description": format!("what {next} was about")}),
    };
    let call = json!({"id": hidden, "type": "function",
        "function": {"name": "delimiter", "arguments": mark.to_string()}});
    completion(&json!({"role": "assistant", "content": null,
        "reasoning_content": thought(next), "tool_calls": [call]}))
}

fn wants_no_reasoning(_: usize, body: &Value) -> Option<&'static str> {
    let thinks = |message: &Value| !message["reasoning_content"].is_null();
    messages(body)
        .iter()
        .any(thinks)
        .then_some("for 'role:assistant' property 'reasoning_content' is unsupported")
}

fn wants_no_reasoning_in_silence(at: usize, body: &Value) -> Option<&'static str> {
    wants_no_reasoning(at, body).map(|_| "Invalid request")
}

/// The client of such a session never sees what is refused, so that only the hop behind a hidden one
/// meets the rule, and the client's own request is no way out.
#[tokio::test]
async fn a_rule_that_a_later_hop_meets_first_is_learned_there() {
    for rule in [wants_no_reasoning as Rule, wants_no_reasoning_in_silence] {
        let upstream = ruled(rule, marked).await;
        let proxy = Proxy::before(upstream.addr).await;
        Session::begin().play(&proxy, 0..TURNS).await;
        let seen = upstream.seen();
        let first = seen.iter().position(Seen::is_refused).unwrap();
        let body = seen[first].value();
        let last = messages(&body).last().unwrap();
        assert!(
            !is_command(&last["tool_call_id"]),
            "not behind a hidden hop"
        );
        assert!((1..=2).contains(&refusals(&seen)), "{}", refusals(&seen));
        assert!(learned(&proxy) > 0);
        assert_eq!(counted(&proxy, "plimsoll_fail_open_total"), 0);
    }
}

fn wants_reasoning_of_a(_: usize, body: &Value) -> Option<&'static str> {
    (body["model"] == "a" && thoughtless(body)).then_some("Invalid request")
}

#[tokio::test]
async fn what_a_session_knows_of_a_model_outlives_another_model_and_a_restart() {
    let upstream = ruled(wants_reasoning_of_a, answer).await;
    let directory = tempfile::tempdir().unwrap();
    let mut session = Session::begin();
    let proxy = at(directory.path(), &upstream).await;
    session.model = "a";
    session.play(&proxy, 0..48).await;
    assert_eq!((refusals(&upstream.seen()), learned(&proxy)), (2, 2));
    session.model = "b";
    session.play(&proxy, 48..84).await;
    proxy.end().await;

    let proxy = at(directory.path(), &upstream).await;
    let before = upstream.seen().len();
    session.model = "a";
    session.play(&proxy, 84..96).await;
    let seen = upstream.seen().split_off(before);
    assert_eq!((refusals(&seen), learned(&proxy)), (0, 0));
    assert!(seen.iter().all(|one| is_held(&one.value())));
    // What was told of one model says nothing of the other.
    session.model = "b";
    session.play(&proxy, 96..97).await;
    let last = upstream.newest();
    assert!(thoughtless(&last), "{last}");
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = entry
            .map(|entry| (entry.path(), to.join(entry.file_name())))
            .unwrap();
        if from.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

#[tokio::test]
async fn all_processes_that_have_a_sessions_records_show_it_alike() {
    let upstream = ruled(wants_reasoning_in_silence, answer).await;
    let (own, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut session = Session::begin();
    let proxy = at(own.path(), &upstream).await;
    session.play(&proxy, 0..TURNS).await;
    assert_eq!(learned(&proxy), 2);
    // The one that learned it, one after it on its directory, and one on a copy of that.
    session.ask(&proxy, TURNS).await;
    let shown = upstream.seen().pop().unwrap().body;
    proxy.end().await;
    copy(own.path(), copied.path());
    for directory in [&own, &copied] {
        let proxy = at(directory.path(), &upstream).await;
        session.ask(&proxy, TURNS).await;
        assert_eq!(upstream.seen().pop().unwrap().body, shown);
        proxy.end().await;
    }
    assert_eq!(refusals(&upstream.seen()), 2);
    // A session that knows nothing of it is another matter: that process learns it anew.
    assert!(!thoughtless(&serde_json::from_slice(&shown).unwrap()));
}
