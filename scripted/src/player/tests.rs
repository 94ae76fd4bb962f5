//! Both sides of a session against each other, through a small proxy that does what one must, and
//! through the same proxy with one thing done wrong: the audits are quiet in the first case only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use super::*;
use crate::audit;
use crate::client::{Client, ClientOptions, ClientRequest, NoText};
use crate::received::{Progress, Received, Verdict};
use crate::rules::{Form, Judged};
use crate::script::Call;
use crate::size::{Sizer, quarter_of_bytes};
use crate::validate;
use crate::wire::{self, Envelope, Step};

/// What the proxy does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    Passive,
    DropsHiddenHops,
    ForgetsMixed,
    PutsHiddenResultsLast,
    EmptiesHiddenResults,
    RewritesHiddenCalls,
    DropsAUser,
    FlipsTools,
    LeaksACall,
    ChangesText,
    DropsACall,
    ForgetsOldNotes,
    StripsOpenEpisodes,
    OrphansResults,
}

struct Proxy<'a> {
    player: &'a Player,
    wrong: Wrong,
    /// What goes upstream before each of the client's assistant messages, by its place, and the
    /// hop behind it.
    known: BTreeMap<usize, (Vec<Value>, Hop)>,
    log: Vec<Received>,
    sizer: Sizer,
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn whole(hop: &Reply) -> Value {
    let calls: Vec<Value> = hop
        .calls
        .iter()
        .map(|call| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}))
        .collect();
    let content = if hop.text.is_empty() {
        Value::Null
    } else {
        hop.text.clone().into()
    };
    json!({"role": "assistant", "content": content, "tool_calls": calls})
}

impl Proxy<'_> {
    /// The client's messages with what was hidden from it put back.
    fn rendered(&self, messages: &[Value]) -> Vec<Value> {
        let mut view = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let Some((hidden, hop)) = self.known.get(&at) else {
                view.push(message.clone());
                continue;
            };
            let old = at + 12 < messages.len();
            if !(self.wrong == Wrong::ForgetsOldNotes && old) {
                view.extend(hidden.clone());
            }
            let mut message = message.clone();
            let notes = hop.hidden_ids();
            let forgets =
                self.wrong == Wrong::ForgetsMixed || (self.wrong == Wrong::ForgetsOldNotes && old);
            if notes.is_empty() || forgets {
                view.push(message);
                continue;
            }
            let reply = Reply::calls(hop.all());
            message["tool_calls"] = whole(&reply)["tool_calls"].clone();
            view.push(message);
            view.extend(notes.iter().map(|id| result(id, "noted")));
        }
        match self.wrong {
            Wrong::PutsHiddenResultsLast => last_first(&mut view),
            Wrong::DropsAUser => {
                let users = view
                    .iter()
                    .filter(|message| message["role"] == "user")
                    .count();
                if let Some(at) = view.iter().rposition(|message| message["role"] == "user")
                    && users > 2
                {
                    view.remove(at);
                }
            }
            Wrong::StripsOpenEpisodes => {
                let results = view.iter_mut().filter(|message| message["role"] == "tool");
                for message in results
                    .rev()
                    .take(6)
                    .filter(|message| message["content"] != "noted")
                {
                    message["content"] = "evicted".into();
                }
            }
            Wrong::OrphansResults if view.len() > 30 => {
                let at = view
                    .iter()
                    .position(|message| message.get("tool_calls").is_some());
                view.remove(at.unwrap());
            }
            _ => {}
        }
        view
    }

    fn turn(&mut self, request: &ClientRequest, streamed: bool) -> (u16, Vec<u8>) {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let mut view = self.rendered(messages);
        let mut hidden = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        for _ in 0..8 {
            let Some(reply) = self.hop(request, &body, &view) else {
                return (400, b"{\"error\":{\"message\":\"refused\"}}".to_vec());
            };
            texts.extend((!reply.text.is_empty()).then(|| reply.text.clone()));
            let (notes, visible): (Vec<Call>, Vec<Call>) = reply
                .calls
                .iter()
                .cloned()
                .partition(|call| call.name == TOOL);
            if !visible.is_empty() || notes.is_empty() {
                let planned = |call: &Call| crate::plan::PlannedCall {
                    call: call.clone(),
                    hidden: call.name == TOOL,
                };
                let hop = Hop {
                    text: String::new(),
                    reasoning: String::new(),
                    calls: reply.calls.iter().map(planned).collect(),
                };
                self.known.insert(messages.len(), (hidden, hop));
                return (200, self.said(&reply, &texts, visible, &notes, streamed));
            }
            let mut message = whole(&reply);
            if self.wrong == Wrong::RewritesHiddenCalls {
                message["tool_calls"][0]["function"]["arguments"] = "{}".into();
            }
            let text = if self.wrong == Wrong::EmptiesHiddenResults {
                ""
            } else {
                "noted"
            };
            let mut exchange = vec![message];
            exchange.extend(notes.iter().map(|call| result(&call.id, text)));
            if self.wrong == Wrong::DropsHiddenHops {
                exchange.push(json!({"role": "system", "content": "go on"}));
            }
            hidden.extend(exchange.clone());
            view.extend(exchange);
        }
        // A proxy that loses hops is asked for the same one for ever.
        (500, b"{\"error\":{\"message\":\"too many hops\"}}".to_vec())
    }

    /// One hop, judged and kept as the server would.
    fn hop(&mut self, request: &ClientRequest, client: &Value, view: &[Value]) -> Option<Reply> {
        let mut body = client.clone();
        body["messages"] = view.into();
        if self.wrong != Wrong::Passive {
            let note = json!({"type": "function", "function": {"name": TOOL}});
            let at = if self.wrong == Wrong::FlipsTools {
                self.log.len() % 2
            } else {
                0
            };
            body["tools"].as_array_mut().unwrap().insert(at, note);
        }
        let raw = Bytes::from(body.to_string());
        let judged = validate::request(&raw);
        let headers: HeaderMap = request
            .headers
            .iter()
            .map(|(name, value)| {
                (
                    name.parse::<http::HeaderName>().unwrap(),
                    value.parse().unwrap(),
                )
            })
            .collect();
        let size = self.sizer.request(&raw);
        self.log.push(Received {
            index: self.log.len(),
            at: Instant::now(),
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            headers: headers.clone(),
            body: raw.clone(),
            verdict: judged
                .clone()
                .map_or_else(Verdict::Refused, |_| Verdict::Accepted),
            judged: Judged::default(),
            size,
            cached: 0,
            progress: Progress::default(),
        });
        judged.ok()?;
        Some(self.player.reply(&RequestView {
            index: 0,
            headers: &headers,
            raw: &raw,
            body: &body,
            size,
        }))
    }

    fn said(
        &self,
        reply: &Reply,
        texts: &[String],
        mut visible: Vec<Call>,
        notes: &[Call],
        streamed: bool,
    ) -> Vec<u8> {
        match self.wrong {
            Wrong::LeaksACall => visible.extend(notes.first().cloned()),
            Wrong::DropsACall => visible.truncate(1),
            _ => {}
        }
        let mut text = texts.join("\n\n");
        if self.wrong == Wrong::ChangesText {
            text.push('!');
        }
        let said = Reply {
            text,
            calls: visible,
            fault: None,
            ..reply.clone()
        };
        let envelope = Envelope {
            form: Form::Chat,
            id: "c".into(),
            created: 1,
            model: "m".into(),
            prompt: 1,
            cached: 0,
            completion: 1,
            include_usage: true,
        };
        let steps = if streamed {
            wire::stream_steps(&said, &envelope)
        } else {
            wire::body_steps(&said, &envelope)
        };
        let bytes = steps.into_iter().filter_map(|step| match step {
            Step::Send(bytes) => Some(bytes.to_vec()),
            Step::Wait(_) | Step::Break | Step::Stall => None,
        });
        bytes.flatten().collect()
    }
}

/// Moves each group's hidden results behind the client's.
fn last_first(view: &mut [Value]) {
    let mut from = 0;
    while from < view.len() {
        let tools = view[from..]
            .iter()
            .take_while(|message| message["role"] == "tool")
            .count();
        view[from..from + tools].sort_by_key(|message| message["content"] == "noted");
        from += tools.max(1);
    }
}

/// An agent that reads much, edits some, and asks its user now and then.
fn recording(turns: usize) -> Recording {
    let mut lines = vec![
        json!({"_meta": {"id": "play"}}),
        json!({"role": "user", "content": "begin with the delimiter"}),
    ];
    for turn in 0..turns {
        let names: &[&str] = match turn % 10 {
            0..5 => &["read", "grep", "ls"],
            5..8 => &["edit", "bash"],
            8 => &["read"],
            _ => &[],
        };
        let call = |(place, name): (usize, &&str)| json!({"id": format!("v{turn}-{place}"), "type": "function", "function": {"name": name, "arguments": "{\"path\": \"a\"}"}});
        let calls: Vec<Value> = names.iter().enumerate().map(call).collect();
        let text = if turn % 3 == 0 {
            format!("turn {turn}: the delimiter is a comma")
        } else {
            String::new()
        };
        let mut message = json!({"role": "assistant", "content": text, "reasoning_content": "hm"});
        if !calls.is_empty() {
            message["tool_calls"] = calls.clone().into();
        }
        lines.push(message);
        lines.extend(
            calls
                .iter()
                .map(|call| result(call["id"].as_str().unwrap(), &"line of a file\n".repeat(30))),
        );
        if names.is_empty() {
            lines.push(json!({"role": "user", "content": format!("and now {turn}")}));
        }
    }
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    Recording::parse(&text.join("\n")).unwrap()
}

struct Played {
    rules: BTreeSet<&'static str>,
    all: Vec<Violation>,
    growth: audit::Growth,
    requests: usize,
}

fn play(wrong: Wrong, options: ClientOptions, turns: usize) -> Played {
    let session = Session::new(recording(turns), 5);
    let player = Player::new([Arc::clone(&session)]).any_style(9);
    let sizer = Sizer::new(quarter_of_bytes());
    let mut proxy = Proxy {
        player: &player,
        wrong,
        known: BTreeMap::new(),
        log: Vec::new(),
        sizer,
    };
    let streamed = options.streamed;
    let mut client = Client::new(Arc::clone(&session), options);
    let mut all = Vec::new();
    while let Some(request) = client.request() {
        assert_eq!(
            client.request().as_ref(),
            Some(&request),
            "asking twice changes nothing"
        );
        let (status, body) = proxy.turn(&request, streamed);
        let outcome = client.hear(status, &body);
        all.extend(outcome.violations);
        if !outcome.advanced {
            break;
        }
    }
    let requests: Vec<&Received> = proxy.log.iter().collect();
    all.extend(player.violations());
    all.extend(audit::always(&requests, &session));
    if wrong != Wrong::Passive {
        all.extend(audit::descriptions(&requests, &session));
        all.extend(audit::open_episode(&requests, &session, &|_| false));
    }
    let growth = audit::growth(&requests, &Sizer::new(quarter_of_bytes()));
    let rules = all.iter().map(|violation| violation.rule).collect();
    Played {
        rules,
        all,
        growth,
        requests: requests.len(),
    }
}

#[test]
fn a_right_proxy_is_found_right() {
    for streamed in [true, false] {
        for (no_text, echo_reasoning) in [
            (NoText::Null, false),
            (NoText::Empty, true),
            (NoText::Omitted, false),
        ] {
            let options = ClientOptions {
                streamed,
                no_text,
                echo_reasoning,
                ..ClientOptions::default()
            };
            let played = play(Wrong::Nothing, options, 60);
            assert_eq!(played.all, [], "{streamed} {no_text:?}");
            assert!(
                played.requests > 63,
                "some turns have hidden hops: {}",
                played.requests
            );
            assert_eq!(played.growth.breaks, []);
            assert!(played.growth.share() > 0.9, "{}", played.growth.share());
        }
    }
}

#[test]
fn without_the_tool_the_recording_is_answered() {
    let options = ClientOptions {
        annotated: false,
        ..ClientOptions::default()
    };
    let played = play(Wrong::Passive, options, 60);
    assert_eq!((played.all, played.requests), (Vec::new(), 60));
}

#[test]
fn a_wrong_proxy_is_found_out() {
    let table = [
        (Wrong::DropsHiddenHops, "hidden-exchange"),
        (Wrong::ForgetsMixed, "mixed-exchange"),
        (Wrong::PutsHiddenResultsLast, "mixed-exchange"),
        (Wrong::EmptiesHiddenResults, "hidden-exchange"),
        (Wrong::RewritesHiddenCalls, "hidden-exchange"),
        (Wrong::DropsAUser, "user"),
        (Wrong::FlipsTools, "tools"),
        (Wrong::LeaksACall, "leak"),
        (Wrong::ChangesText, "visible"),
        (Wrong::DropsACall, "visible"),
        (Wrong::ForgetsOldNotes, "description"),
        (Wrong::StripsOpenEpisodes, "open-episode"),
        (Wrong::OrphansResults, "refused"),
    ];
    for (wrong, rule) in table {
        let played = play(wrong, ClientOptions::default(), 50);
        assert!(played.rules.contains(rule), "{wrong:?}: {:?}", played.rules);
    }
    let broken = play(Wrong::ForgetsOldNotes, ClientOptions::default(), 50);
    let right = play(Wrong::Nothing, ClientOptions::default(), 50);
    assert!(
        broken.growth.breaks.len() > 10,
        "{:?}",
        broken.growth.breaks
    );
    assert!(broken.growth.share() < right.growth.share());
}

#[test]
fn a_blanked_result_breaks_the_prefix_and_nothing_else() {
    let session = Session::new(recording(10), 5);
    let mut client = Client::new(Arc::clone(&session), ClientOptions::default());
    assert_eq!(client.blank_result(), None, "nothing was called yet");
    let player = Player::new([Arc::clone(&session)]);
    let sizer = Sizer::new(quarter_of_bytes());
    let mut proxy = Proxy {
        player: &player,
        wrong: Wrong::Nothing,
        known: BTreeMap::new(),
        log: Vec::new(),
        sizer,
    };
    while let Some(request) = client.request() {
        let (status, body) = proxy.turn(&request, true);
        assert_eq!(client.hear(status, &body).violations, []);
        if client.turn() == 5 {
            let id = client.blank_result().unwrap();
            assert!(
                client
                    .history()
                    .iter()
                    .any(|raw| raw.contains("[cleared]") && raw.contains(&id))
            );
        }
    }
    let requests: Vec<&Received> = proxy.log.iter().collect();
    assert_eq!(audit::growth(&requests, &proxy.sizer).breaks.len(), 1);
    assert_eq!(audit::always(&requests, &session), []);
    assert_eq!(audit::open_episode(&requests, &session, &|_| false), []);
}

#[test]
fn retries_get_the_same_answer_and_errors_do_not_advance() {
    let session = Session::new(recording(10), 5);
    let player = Player::new([Arc::clone(&session)])
        .fault(|place| (place.attempt == 0 && place.turn == 2).then_some(Fault::NeverAnswer));
    let sizer = Sizer::new(quarter_of_bytes());
    let mut proxy = Proxy {
        player: &player,
        wrong: Wrong::Nothing,
        known: BTreeMap::new(),
        log: Vec::new(),
        sizer,
    };
    let mut client = Client::new(session, ClientOptions::default());
    for _ in 0..2 {
        let request = client.request().unwrap();
        let first = proxy.turn(&request, true);
        assert_eq!(
            first,
            proxy.turn(&request, true),
            "the second time as the first"
        );
        assert!(client.hear(first.0, &first.1).advanced);
    }
    let request = client.request().unwrap();
    let failed = client.hear(503, b"{\"error\":{\"message\":\"busy\"}}");
    assert!(!failed.advanced && failed.violations[0].rule == "refused");
    assert_eq!(client.request(), Some(request));
    assert_eq!(player.violations(), []);
}

#[test]
fn unknown_places_are_told() {
    let player = Player::new([Session::new(recording(3), 1)]);
    for header in ["", "play", "play:x", "play:99", "other:0"] {
        let mut headers = HeaderMap::new();
        headers.insert(TURN_HEADER, header.parse().unwrap());
        let body = json!({"messages": []});
        let view = RequestView {
            index: 0,
            headers: &headers,
            raw: &Bytes::new(),
            body: &body,
            size: 0,
        };
        assert_eq!(player.reply(&view).error.unwrap().status, 404, "{header}");
    }
}

#[test]
fn sizes_are_audited() {
    let session = Session::new(recording(12), 1);
    let player = Player::new([Arc::clone(&session)]);
    let sizer = Sizer::new(quarter_of_bytes());
    let mut proxy = Proxy {
        player: &player,
        wrong: Wrong::Nothing,
        known: BTreeMap::new(),
        log: Vec::new(),
        sizer,
    };
    let mut client = Client::new(session, ClientOptions::default());
    while let Some(request) = client.request() {
        let (status, body) = proxy.turn(&request, true);
        client.hear(status, &body);
    }
    let requests: Vec<&Received> = proxy.log.iter().collect();
    let largest = requests.iter().map(|request| request.size).max().unwrap();
    assert_eq!(audit::over(&requests, largest), []);
    assert!(!audit::over(&requests, largest - 1).is_empty());
    let first = audit::pinned(requests[0], &proxy.sizer);
    assert_eq!(
        first, requests[0].size,
        "nothing of the first request can go"
    );
    let last = requests.last().unwrap();
    assert!(audit::pinned(last, &proxy.sizer) < last.size / 2);
    let grouped = audit::by_session(&proxy.log);
    assert_eq!(grouped["play"].len(), requests.len());
    assert!((audit::cached_share(&requests)).abs() < f64::EPSILON);
}
