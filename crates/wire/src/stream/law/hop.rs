//! Hops of all kinds for the law of joined hops, and how a provider of each dialect writes them, as a stream and as a
//! body. Never reads what it wrote.

use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::harness::{pieces, text};
use crate::Dialect;

/// One thing that a hop says, beside calls. A dialect's writer leaves out what the dialect does not have.
#[derive(Debug, Clone)]
enum Said {
    /// A text, and whether a citation names it.
    Text(String, bool),
    Image,
    Refusal(String),
}

/// What one hop says, and which tools it calls after that.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    said: Vec<Said>,
    calls: Vec<&'static str>,
    /// Whether the tokens of texts and refusals are told of.
    tokens: bool,
}

/// Hops that call hidden tools alone, and a last one that may call others.
pub(super) fn turn() -> impl Strategy<Value = Vec<Hop>> {
    let calls = prop::sample::select(vec![
        vec![],
        vec!["read"],
        vec!["delimiter", "read"],
        vec!["read", "recall", "read"],
    ]);
    let early = prop::collection::vec(hop(Just(vec!["delimiter"]).boxed()), 0..3);
    (early, hop(calls.boxed())).prop_map(|(mut hops, last)| {
        hops.push(last);
        hops
    })
}

fn hop(calls: BoxedStrategy<Vec<&'static str>>) -> impl Strategy<Value = Hop> {
    let said = prop_oneof![
        4 => (text(), any::<bool>()).prop_map(|(text, cited)| Said::Text(text, cited)),
        1 => Just(Said::Image),
        1 => text().prop_map(Said::Refusal),
    ];
    let said = prop::collection::vec(said, 0..4);
    (said, calls, any::<bool>()).prop_map(|(said, calls, tokens)| Hop {
        said,
        calls,
        tokens,
    })
}

impl Hop {
    /// Writes it as a stream; `number` makes its ids and the names of its citations its own.
    pub(super) fn stream(&self, dialect: Dialect, number: usize) -> Bytes {
        let stream = match dialect {
            Dialect::Chat => self.chat_stream(number),
            Dialect::Messages => self.messages_stream(number),
            Dialect::Responses => self.responses_stream(number),
        };
        Bytes::from(stream)
    }

    /// The hop as a body.
    pub(super) fn body(&self, dialect: Dialect, number: usize) -> Bytes {
        let body = match dialect {
            Dialect::Chat => self.chat_body(number),
            Dialect::Messages => message(number, self.blocks(number), self.reason()),
            Dialect::Responses => response(number, self.items(number), "completed"),
        };
        Bytes::from(body.to_string())
    }

    fn finish(&self) -> &'static str {
        if self.calls.is_empty() {
            "stop"
        } else {
            "tool_calls"
        }
    }

    fn reason(&self) -> &'static str {
        if self.calls.is_empty() {
            "end_turn"
        } else {
            "tool_use"
        }
    }

    /// The tokens of a text as `logprobs` have them.
    fn told(&self, text: &str) -> Value {
        let tokens = pieces(text, 3).into_iter();
        let tokens = tokens.map(|token| json!({"token": token, "logprob": -0.5, "bytes": token.as_bytes(), "top_logprobs": []}));
        tokens.filter(|_| self.tokens).collect()
    }

    fn chat_stream(&self, number: usize) -> String {
        let mut stream = String::new();
        let mut chunk = |delta: Value, logprobs: Value, finish: Value| {
            let choice =
                json!({"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
            let chunk = json!({"id": format!("c{number}"), "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
            write!(stream, "data: {chunk}\n\n").unwrap();
        };
        chunk(json!({"role": "assistant"}), Value::Null, Value::Null);
        let mut before = 0;
        for (at, said) in self.said.iter().enumerate() {
            let name = format!("{number}.{at}");
            match said {
                Said::Text(text, cited) => {
                    for piece in pieces(text, 3) {
                        let tokens = json!({"content": self.told(&piece), "refusal": null});
                        let tokens = if self.tokens { tokens } else { Value::Null };
                        chunk(json!({"content": piece}), tokens, Value::Null);
                    }
                    let end = before + text.chars().count();
                    if *cited {
                        let annotation = citation(&name, before, end);
                        chunk(
                            json!({"annotations": [annotation]}),
                            Value::Null,
                            Value::Null,
                        );
                    }
                    before = end;
                }
                Said::Image => {
                    chunk(json!({"images": [image(&name)]}), Value::Null, Value::Null);
                }
                Said::Refusal(text) => {
                    for piece in pieces(text, 3) {
                        let tokens = json!({"content": null, "refusal": self.told(&piece)});
                        let tokens = if self.tokens { tokens } else { Value::Null };
                        chunk(json!({"refusal": piece}), tokens, Value::Null);
                    }
                }
            }
        }
        for (at, name) in self.calls.iter().enumerate() {
            let call = json!({"index": at, "id": id(number, at), "type": "function", "function": {"name": name, "arguments": "{}"}});
            chunk(json!({"tool_calls": [call]}), Value::Null, Value::Null);
        }
        chunk(json!({}), Value::Null, json!(self.finish()));
        stream + "data: [DONE]\n\n"
    }

    fn chat_body(&self, number: usize) -> Value {
        let (mut text, mut refusal) = (String::new(), String::new());
        let (mut annotations, mut images) = (Vec::new(), Vec::new());
        let (mut tokens, mut refused): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        for (at, said) in self.said.iter().enumerate() {
            let name = format!("{number}.{at}");
            match said {
                Said::Text(own, cited) => {
                    let before = text.chars().count();
                    text.push_str(own);
                    if *cited {
                        annotations.push(citation(&name, before, text.chars().count()));
                    }
                    tokens.extend(self.told(own).as_array().unwrap().iter().cloned());
                }
                Said::Image => images.push(image(&name)),
                Said::Refusal(own) => {
                    refusal.push_str(own);
                    refused.extend(self.told(own).as_array().unwrap().iter().cloned());
                }
            }
        }
        let calls = self.calls.iter().enumerate();
        let calls: Vec<Value> = calls
            .map(|(at, name)| json!({"id": id(number, at), "type": "function", "function": {"name": name, "arguments": "{}"}}))
            .collect();
        let or_null = |list: Vec<Value>| {
            if list.is_empty() {
                Value::Null
            } else {
                Value::from(list)
            }
        };
        let said = |text: String| {
            if text.is_empty() {
                Value::Null
            } else {
                Value::from(text)
            }
        };
        let mut message = json!({"role": "assistant", "content": said(text), "refusal": said(refusal), "annotations": annotations});
        for (key, list) in [("images", images), ("tool_calls", calls)] {
            if !list.is_empty() {
                message[key] = Value::from(list);
            }
        }
        let logprobs = json!({"content": or_null(tokens), "refusal": or_null(refused)});
        let logprobs = if self.tokens { logprobs } else { Value::Null };
        let choice = json!({"index": 0, "message": message, "logprobs": logprobs, "finish_reason": self.finish()});
        json!({"id": format!("c{number}"), "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
    }

    /// The blocks of Messages. Its citations name places in documents, and so stand beside their text.
    fn blocks(&self, number: usize) -> Vec<Value> {
        let mut blocks = Vec::new();
        for (at, said) in self.said.iter().enumerate() {
            let name = format!("{number}.{at}");
            match said {
                Said::Text(text, true) => {
                    blocks
                        .push(json!({"type": "text", "text": text, "citations": [passage(&name)]}));
                }
                Said::Text(text, false) => blocks.push(json!({"type": "text", "text": text})),
                Said::Image => blocks.push(json!({"type": "web_search_tool_result", "tool_use_id": format!("srvtoolu_{name}"), "content": [{"type": "web_search_result", "url": name, "title": "", "encrypted_content": "E", "page_age": null}]})),
                Said::Refusal(_) => {}
            }
        }
        let calls = self.calls.iter().enumerate();
        blocks.extend(calls.map(
            |(at, name)| json!({"type": "tool_use", "id": id(number, at), "name": name, "input": {}}),
        ));
        blocks
    }

    fn messages_stream(&self, number: usize) -> String {
        let mut stream =
            event(json!({"type": "message_start", "message": message(number, Vec::new(), "")}));
        for (at, block) in self.blocks(number).into_iter().enumerate() {
            let delta = |delta: Value| {
                event(json!({"type": "content_block_delta", "index": at, "delta": delta}))
            };
            let mut begun = block.clone();
            let mut deltas = String::new();
            if block["type"] == "text" {
                begun = json!({"type": "text", "text": ""});
                for citation in block["citations"].as_array().into_iter().flatten() {
                    deltas += &delta(json!({"type": "citations_delta", "citation": citation}));
                }
                for piece in pieces(block["text"].as_str().unwrap(), 3) {
                    deltas += &delta(json!({"type": "text_delta", "text": piece}));
                }
            } else if block["type"] == "tool_use" {
                deltas += &delta(json!({"type": "input_json_delta", "partial_json": "{}"}));
            }
            stream +=
                &event(json!({"type": "content_block_start", "index": at, "content_block": begun}));
            stream += &deltas;
            stream += &event(json!({"type": "content_block_stop", "index": at}));
        }
        let end = json!({"stop_reason": self.reason(), "stop_sequence": null});
        stream +=
            &event(json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}}));
        stream + &event(json!({"type": "message_stop"}))
    }

    /// The items of Responses. Every text and refusal is a message of its own.
    fn items(&self, number: usize) -> Vec<Value> {
        let said = self.said.iter().enumerate();
        let mut items: Vec<Value> = said
            .map(|(at, said)| {
                let name = format!("{number}.{at}");
                let part = match said {
                    Said::Text(text, cited) => {
                        let cited = cited.then(|| json!({"type": "url_citation", "url": name, "title": "", "start_index": 0, "end_index": text.chars().count()}));
                        let cited: Vec<Value> = cited.into_iter().collect();
                        json!({"type": "output_text", "text": text, "annotations": cited, "logprobs": self.told(text)})
                    }
                    Said::Refusal(text) => json!({"type": "refusal", "refusal": text}),
                    Said::Image => {
                        return json!({"type": "image_generation_call", "id": format!("ig_{name}"), "status": "completed", "result": name});
                    }
                };
                json!({"type": "message", "id": format!("msg_{name}"), "role": "assistant", "status": "completed", "content": [part]})
            })
            .collect();
        let calls = self.calls.iter().enumerate();
        items.extend(calls.map(|(at, name)| {
            let id = id(number, at);
            json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": "{}", "status": "completed"})
        }));
        items
    }

    fn responses_stream(&self, number: usize) -> String {
        let mut sequence = 0;
        let mut stream = String::new();
        let mut say = |mut data: Value| {
            data["sequence_number"] = json!(sequence);
            sequence += 1;
            stream += &event(data);
        };
        say(
            json!({"type": "response.created", "response": response(number, Vec::new(), "in_progress")}),
        );
        let items = self.items(number);
        for (at, item) in items.iter().enumerate() {
            let mut begun = item.clone();
            begun["status"] = json!("in_progress");
            let own = item["id"].clone();
            match item["type"].as_str().unwrap() {
                "message" => begun["content"] = json!([]),
                "function_call" => begun["arguments"] = json!(""),
                _ => begun["result"] = Value::Null,
            }
            say(json!({"type": "response.output_item.added", "output_index": at, "item": begun}));
            let mut within = |kind: &str, key: &str, value: &Value| {
                say(
                    json!({"type": kind, "item_id": own, "output_index": at, "content_index": 0, key: value}),
                );
            };
            let part = &item["content"][0];
            let kind = part["type"].as_str().unwrap_or_default();
            match kind {
                "output_text" => {
                    let empty =
                        json!({"type": kind, "text": "", "annotations": [], "logprobs": []});
                    within("response.content_part.added", "part", &empty);
                    for piece in pieces(part["text"].as_str().unwrap(), 3) {
                        within("response.output_text.delta", "delta", &json!(piece));
                    }
                    for annotation in part["annotations"].as_array().unwrap() {
                        within(
                            "response.output_text.annotation.added",
                            "annotation",
                            annotation,
                        );
                    }
                    within("response.output_text.done", "text", &part["text"]);
                    within("response.content_part.done", "part", part);
                }
                "refusal" => {
                    let empty = json!({"type": kind, "refusal": ""});
                    within("response.content_part.added", "part", &empty);
                    within("response.refusal.delta", "delta", &part["refusal"]);
                    within("response.refusal.done", "refusal", &part["refusal"]);
                    within("response.content_part.done", "part", part);
                }
                _ if item["type"] == "function_call" => {
                    within(
                        "response.function_call_arguments.delta",
                        "delta",
                        &json!("{}"),
                    );
                    within(
                        "response.function_call_arguments.done",
                        "arguments",
                        &json!("{}"),
                    );
                }
                _ => {}
            }
            say(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
        }
        say(
            json!({"type": "response.completed", "response": response(number, items, "completed")}),
        );
        stream
    }
}

fn id(hop: usize, call: usize) -> String {
    format!("call_{hop}_{call}")
}

/// A citation of these characters, as Chat has it.
fn citation(name: &str, start: usize, end: usize) -> Value {
    json!({"type": "url_citation", "url_citation": {"start_index": start, "end_index": end, "title": "", "url": name}})
}

/// A citation of a passage of a document, as Messages has it.
fn passage(name: &str) -> Value {
    json!({"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": name, "start_char_index": 3, "end_char_index": 4})
}

fn image(name: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": name}})
}

fn event(data: Value) -> String {
    format!(
        "event: {}\ndata: {data}\n\n",
        data["type"].as_str().unwrap()
    )
}

fn message(number: usize, blocks: Vec<Value>, reason: &str) -> Value {
    let reason = if reason.is_empty() {
        Value::Null
    } else {
        json!(reason)
    };
    json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}})
}

fn response(number: usize, items: Vec<Value>, status: &str) -> Value {
    json!({"id": format!("resp_{number}"), "object": "response", "created_at": 1, "model": "m", "status": status, "output": items})
}
