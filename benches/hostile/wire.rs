//! The wire formats: what a client sends, and what the provider answers it by the name of the model that it asks for.
//! Never measures anything.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

/// How many events of a stream are made before others are let in.
const EVENTS_AT_ONCE: usize = 64;

/// The wire formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Chat,
    Responses,
    Messages,
}

/// How many bytes the provider has sent.
pub static SENT: AtomicUsize = AtomicUsize::new(0);

/// Bytes of text in one event.
const PIECE: usize = 1 << 10;

impl Dialect {
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    fn of(path: &str) -> Self {
        let all = [Self::Chat, Self::Responses, Self::Messages];
        let found = all
            .into_iter()
            .find(|dialect| path.ends_with(&dialect.path()[3..]));
        found.unwrap()
    }
}

pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

pub fn tools(dialect: Dialect) -> Value {
    let schema = json!({"type": "object"});
    match dialect {
        Dialect::Chat => {
            json!([{"type": "function", "function": {"name": "bash", "parameters": schema}}])
        }
        Dialect::Responses => json!([{"type": "function", "name": "bash", "parameters": schema}]),
        Dialect::Messages => json!([{"name": "bash", "input_schema": schema}]),
    }
}

/// One message with these calls, and their results.
pub fn calls(dialect: Dialect, numbers: &[usize], equal: bool) -> Vec<Value> {
    let id = |number: &usize| format!("call_{number}");
    let what = |number: &usize| if equal { 0 } else { *number };
    let input = |number: &usize| json!({"command": format!("cat file{}.rs", what(number))});
    let result =
        |number: &usize| format!("the text of path/file{}.rs, some lines of it", what(number));
    match dialect {
        Dialect::Chat => {
            let call = |number: &usize| {
                json!({"id": id(number), "type": "function",
                    "function": {"name": "bash", "arguments": input(number).to_string()}})
            };
            let calls: Vec<Value> = numbers.iter().map(call).collect();
            let mut all = vec![json!({"role": "assistant", "content": null, "tool_calls": calls})];
            all.extend(numbers.iter().map(|number| {
                json!({"role": "tool", "tool_call_id": id(number), "content": result(number)})
            }));
            all
        }
        Dialect::Responses => {
            let call = |number: &usize| {
                json!({"type": "function_call", "call_id": id(number), "name": "bash",
                    "arguments": input(number).to_string()})
            };
            let output = |number: &usize| json!({"type": "function_call_output", "call_id": id(number), "output": result(number)});
            let calls = numbers.iter().map(call);
            calls.chain(numbers.iter().map(output)).collect()
        }
        Dialect::Messages => {
            let call = |number: &usize| json!({"type": "tool_use", "id": id(number), "name": "bash", "input": input(number)});
            let output = |number: &usize| json!({"type": "tool_result", "tool_use_id": id(number), "content": result(number)});
            let (calls, outputs): (Vec<Value>, Vec<Value>) = numbers
                .iter()
                .map(|number| (call(number), output(number)))
                .unzip();
            vec![
                json!({"role": "assistant", "content": calls}),
                json!({"role": "user", "content": outputs}),
            ]
        }
    }
}

/// Answers a request by the name of its model: `plain`, or a kind of answer with its size behind it.
pub async fn answer(request: axum::extract::Request) -> Response {
    if request.method() != "POST" {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    let dialect = Dialect::of(request.uri().path());
    let body = axum::body::to_bytes(request.into_body(), usize::MAX)
        .await
        .unwrap();
    let asked: Asked = serde_json::from_slice(&body).unwrap();
    let (kind, size) = asked.model.split_once('-').unwrap_or(("plain", "0"));
    let size: usize = size.parse().unwrap();
    if !asked.stream {
        return answer_whole(dialect, kind, size).await;
    }
    let events: Box<dyn Iterator<Item = String> + Send> = match kind {
        "stream" => {
            let piece = "a".repeat(PIECE);
            Box::new(streamed(
                dialect,
                (0..(size << 10) / PIECE).map(move |_| Said::Text(piece.clone())),
            ))
        }
        "calls" => Box::new(streamed(
            dialect,
            (0..size).map(|at| Said::Call(at, "bash")),
        )),
        "texts" => Box::new(streamed(dialect, (0..size).map(Said::Own))),
        "members" => {
            let each = 100;
            let begin = [Said::Call(0, "bash")].into_iter();
            let members = (0..size / each).map(move |at| Said::Members(at * each, each));
            Box::new(streamed(dialect, begin.chain(members)))
        }
        "signs" => {
            let calls = (0..size).map(|at| Said::Call(at, "recall"));
            let signs = (0..size).map(Said::Sign);
            let shown = [Said::Call(size, "bash")].into_iter();
            let pieces = (0..size).map(move |_| Said::Piece(size));
            Box::new(streamed(
                dialect,
                calls.chain(signs).chain(shown).chain(pieces),
            ))
        }
        "hidden" => {
            let calls = (0..size).map(|at| Said::Call(at, "recall"));
            Box::new(streamed(
                dialect,
                [Said::Text("ok".to_owned())].into_iter().chain(calls),
            ))
        }
        _ => Box::new(streamed(dialect, [Said::Text("ok".to_owned())].into_iter())),
    };
    let events = events.map(|event| {
        SENT.fetch_add(event.len(), Ordering::Relaxed);
        Ok::<_, std::io::Error>(Bytes::from(event))
    });
    // Other answers get their turn between the events.
    let events = futures_util::stream::iter(events.enumerate()).then(async |(at, event)| {
        if at % EVENTS_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        event
    });
    let kind = [("content-type", "text/event-stream")];
    (kind, Body::from_stream(events)).into_response()
}

/// A whole answer of a kind and size.
async fn answer_whole(dialect: Dialect, kind: &str, size: usize) -> Response {
    // A long answer is made on a thread of its own. The ordinary tenant is answered by the same provider, and would
    // otherwise wait for it.
    let long = move || whole(dialect, &"a".repeat(size << 10)).to_string();
    let body = match kind {
        "whole" => tokio::task::spawn_blocking(long).await.unwrap(),
        _ => whole(dialect, "ok").to_string(),
    };
    SENT.fetch_add(body.len(), Ordering::Relaxed);
    ([("content-type", "application/json")], body).into_response()
}

#[derive(serde::Deserialize)]
struct Asked {
    model: String,
    #[serde(default)]
    stream: bool,
}

fn whole(dialect: Dialect, text: &str) -> Value {
    match dialect {
        Dialect::Chat => json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": assistant(text), "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}),
        Dialect::Responses => response(text, "completed"),
        Dialect::Messages => {
            json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "output_tokens": 2}})
        }
    }
}

fn response(text: &str, status: &str) -> Value {
    json!({"id": "r", "object": "response", "created_at": 1, "status": status, "model": "m",
        "output": [message(text)], "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

/// What a streamed answer says.
enum Said {
    Text(String),
    Call(usize, &'static str),
    /// A text in a block or an item of its own.
    Own(usize),
    /// So many members that nobody knows, from this number on, of the first call.
    Members(usize, usize),
    /// What signs a call.
    Sign(usize),
    /// A piece of a call's arguments.
    Piece(usize),
}

/// Members that nobody knows, behind those of an object.
fn with_members(mut object: Value, from: usize, count: usize) -> Value {
    for at in from..from + count {
        object[format!("x{at}")] = "".into();
    }
    object
}

/// The events of a stream that says this.
fn streamed(
    dialect: Dialect,
    said: impl Iterator<Item = Said> + Send + 'static,
) -> impl Iterator<Item = String> + Send {
    let (begin, end) = ends(dialect);
    let said = said.map(move |said| match dialect {
        Dialect::Chat => chat_event(&said),
        Dialect::Responses => responses_event(&said),
        Dialect::Messages => messages_event(&said),
    });
    [begin].into_iter().chain(said).chain([end])
}

fn event(value: &Value) -> String {
    match value["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {value}\n\n"),
        None => format!("data: {value}\n\n"),
    }
}

fn ends(dialect: Dialect) -> (String, String) {
    let events = |events: &[Value]| events.iter().map(event).collect::<String>();
    match dialect {
        Dialect::Chat => {
            let end = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}});
            (String::new(), event(&end) + "data: [DONE]\n\n")
        }
        Dialect::Responses => (
            events(&[
                json!({"type": "response.created", "sequence_number": 0, "response": response("", "in_progress")}),
                json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": message("")}),
            ]),
            // What the real end repeats is left out: it would be the shape of one large event.
            events(&[
                json!({"type": "response.output_item.done", "sequence_number": 3, "output_index": 0, "item": message("")}),
                json!({"type": "response.completed", "sequence_number": 4, "response": response("", "completed")}),
            ]),
        ),
        Dialect::Messages => (
            events(&[
                json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
                "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 5, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ]),
            events(&[
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                    "usage": {"output_tokens": 2}}),
                json!({"type": "message_stop"}),
            ]),
        ),
    }
}

fn chat_event(said: &Said) -> String {
    let delta = match said {
        Said::Text(text) => json!({"content": text}),
        Said::Call(at, name) => {
            json!({"tool_calls": [{"index": at, "id": format!("call_{at}_of_many"),
            "type": "function", "function": {"name": name, "arguments": "{\"id\": \"1\"}"}}]})
        }
        Said::Members(from, count) => {
            json!({"tool_calls": [with_members(json!({"index": 0}), *from, *count)]})
        }
        Said::Sign(at) => {
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "id": format!("call_{at}_of_many"), "data": "x"}]})
        }
        Said::Piece(at) => {
            json!({"tool_calls": [{"index": at, "function": {"arguments": " "}}]})
        }
        Said::Own(_) => json!({"content": "a"}),
    };
    event(
        &json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
    )
}

fn responses_event(said: &Said) -> String {
    match said {
        Said::Text(text) => event(
            &json!({"type": "response.output_text.delta", "sequence_number": 2,
            "output_index": 0, "item_id": "msg", "content_index": 0, "delta": text}),
        ),
        Said::Call(at, name) => {
            let item = json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": format!("call_{at}"),
                "name": name, "arguments": "{\"id\": \"1\"}", "status": "completed"});
            let added = json!({"type": "response.output_item.added", "sequence_number": 2,
                "output_index": at + 1, "item": item});
            let done = json!({"type": "response.output_item.done", "sequence_number": 2,
                "output_index": at + 1, "item": item});
            event(&added) + &event(&done)
        }
        Said::Own(at) => {
            let mut item = message("a");
            item["id"] = format!("msg_{at}").into();
            let added = json!({"type": "response.output_item.added", "sequence_number": 2,
                "output_index": at + 1, "item": item});
            let done = json!({"type": "response.output_item.done", "sequence_number": 2,
                "output_index": at + 1, "item": item});
            event(&added) + &event(&done)
        }
        Said::Members(..) | Said::Sign(_) | Said::Piece(_) => String::new(),
    }
}

fn messages_event(said: &Said) -> String {
    match said {
        Said::Text(text) => event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}})),
        Said::Call(at, name) => {
            let index = at + 1;
            let start = json!({"type": "content_block_start", "index": index,
                "content_block": {"type": "tool_use", "id": format!("toolu_{at}"), "name": name, "input": {}}});
            let delta = json!({"type": "content_block_delta", "index": index,
                "delta": {"type": "input_json_delta", "partial_json": "{\"id\": \"1\"}"}});
            let stop = json!({"type": "content_block_stop", "index": index});
            [start, delta, stop].iter().map(event).collect()
        }
        Said::Own(at) => {
            let index = at + 1;
            let start = json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}});
            let delta = json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "a"}});
            let stop = json!({"type": "content_block_stop", "index": index});
            [start, delta, stop].iter().map(event).collect()
        }
        Said::Members(from, count) => {
            let delta = with_members(json!({"type": "text_delta", "text": ""}), *from, *count);
            event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
        }
        Said::Sign(_) | Said::Piece(_) => String::new(),
    }
}
