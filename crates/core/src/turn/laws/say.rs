//! What a scripted model says and a scripted client sends, from a few words each. Every text is
//! labelled, so that a rendered body can be read back as the labels that it shows. Never knows
//! what the proxy makes of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use plimsoll_wire::answer::{Answer, Call, Reasoning};
use serde_json::{Value, json};

/// One piece of what a model says in a turn, with sizes in tokens, roughly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Text of so many tokens.
    Text(u32),
    /// Text of so many tokens with a call as smolagents writes it.
    Step(u32),
    /// Reasoning of so many tokens.
    Think(u32),
    /// A call of the client's tool, and the size of its result.
    Call(String, u32),
    /// A call of the client's tool whose result is that of an earlier one, counted back from the
    /// newest.
    Again(String, usize),
    /// The newest call once more, with the same result.
    Same,
    /// A call of the client's tool whose result is this text, and with what label; by itself it has one of its own.
    Bring(String, String, Option<String>),
    /// A call of `delimiter` with these arguments.
    Delimit(Value),
    /// A call of `recall` with these arguments.
    Recall(Value),
    /// The hop ends here, and another follows.
    Hop,
}

impl Say {
    /// Whether it is a call of the client's tool.
    pub fn is_call(&self) -> bool {
        matches!(
            self,
            Say::Call(..) | Say::Again(..) | Say::Same | Say::Bring(..)
        )
    }
}

pub fn text(tokens: u32) -> Say {
    Say::Text(tokens)
}

pub fn step(tokens: u32) -> Say {
    Say::Step(tokens)
}

pub fn think(tokens: u32) -> Say {
    Say::Think(tokens)
}

pub fn call(tool: &str, result: u32) -> Say {
    Say::Call(tool.to_owned(), result)
}

pub fn again(tool: &str, back: usize) -> Say {
    Say::Again(tool.to_owned(), back)
}

pub fn same() -> Say {
    Say::Same
}

pub fn bring(tool: &str, result: &str) -> Say {
    Say::Bring(tool.to_owned(), result.to_owned(), None)
}

/// The same of a call with this label.
pub fn bring_by(tool: &str, label: &str, result: &str) -> Say {
    Say::Bring(tool.to_owned(), result.to_owned(), Some(label.to_owned()))
}

pub fn expl(name: &str) -> Say {
    Say::Delimit(json!({"action": "start", "name": name, "type": "expl"}))
}

pub fn act(name: &str, dependencies: &[&str]) -> Say {
    Say::Delimit(
        json!({"action": "start", "name": name, "type": "act", "dependencies": dependencies}),
    )
}

/// Ends an expl.
pub fn end(description: &str) -> Say {
    Say::Delimit(json!({"action": "end", "description": description}))
}

/// Ends an act.
pub fn done() -> Say {
    Say::Delimit(json!({"action": "end"}))
}

/// Brings something back.
pub fn recall(id: &str) -> Say {
    Say::Recall(json!({"id": id}))
}

pub fn hop() -> Say {
    Say::Hop
}

/// What a model says that is offered no hidden tools but may have had some before.
pub fn unhidden(said: &mut Vec<Say>) {
    said.retain(|say| !matches!(say, Say::Delimit(_) | Say::Recall(_) | Say::Hop));
    let mut thought = false;
    said.retain(|say| match say {
        Say::Think(_) => !std::mem::replace(&mut thought, true),
        Say::Text(_)
        | Say::Step(_)
        | Say::Call(..)
        | Say::Again(..)
        | Say::Same
        | Say::Bring(..)
        | Say::Delimit(_)
        | Say::Recall(_)
        | Say::Hop => true,
    });
    if said.iter().all(|say| matches!(say, Say::Think(_))) {
        said.push(text(1));
    }
}

/// The hops of a turn. One that only annotates is followed by another, as a real model's is.
pub fn hops(said: &[Say]) -> Vec<Vec<Say>> {
    let mut hops: Vec<Vec<Say>> = said
        .split(|say| *say == Say::Hop)
        .filter(|hop| !hop.is_empty())
        .map(<[Say]>::to_vec)
        .collect();
    let last = hops.last().map(Vec::as_slice).unwrap_or_default();
    let has = |wanted: fn(&Say) -> bool| last.iter().any(wanted);
    let hidden = has(|say| matches!(say, Say::Delimit(_) | Say::Recall(_)));
    let call = has(Say::is_call);
    let text = has(|say| matches!(say, Say::Text(_) | Say::Step(_)));
    if !call && (hidden || !text) {
        hops.push(vec![Say::Text(3)]);
    }
    // A hop that neither calls nor speaks is no hop of a real model's.
    hops.retain(|hop| hop.iter().any(|say| !matches!(say, Say::Think(_))));
    hops
}

/// Gives out labels (`grep1`, `text2`) and the ids of calls.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    given: BTreeMap<String, u32>,
    /// All results so far.
    results: Vec<String>,
    /// The newest call: its tool and its arguments.
    newest: Option<(String, String)>,
    /// Whether results and arguments hold lines with names of their own.
    pub rich: bool,
}

impl Labels {
    pub fn next(&mut self, of: &str) -> String {
        let number = self.given.entry(of.to_owned()).or_default();
        *number += 1;
        format!("{of}{number}")
    }

    /// What a hop says as the upstream's answer, with the results of its visible calls by id.
    pub fn answer(&mut self, hop: &[Say]) -> (Answer, Vec<(String, String)>) {
        let mut answer = Answer {
            complete: true,
            ..Answer::default()
        };
        let mut results = Vec::new();
        for say in hop {
            match say {
                Say::Text(tokens) => answer.text.push_str(&filled(&self.next("text"), *tokens)),
                Say::Step(tokens) => {
                    let said = filled(&self.next("text"), *tokens);
                    answer
                        .text
                        .push_str(&format!("{said}\n<code>\nrun()\n</code>"));
                }
                Say::Think(tokens) => answer.reasoning.push((
                    "reasoning_content".to_owned(),
                    Reasoning::Text(filled(&self.next("think"), *tokens)),
                )),
                Say::Call(tool, tokens) => {
                    let label = self.next(tool);
                    let id = self.next("id-");
                    let mut result = filled(&label, *tokens);
                    let mut arguments = json!({"label": label});
                    if self.rich {
                        result.push_str(&listing(&label, *tokens / 8));
                        // What is written stands in the call, long enough to be trimmed.
                        let lines = if *tool == "edit" {
                            *tokens / 2
                        } else {
                            *tokens / 16
                        };
                        arguments["text"] = listing(&label, lines).into();
                    }
                    self.results.push(result.clone());
                    results.push((id.clone(), result));
                    let arguments = arguments.to_string();
                    self.newest = Some((tool.clone(), arguments.clone()));
                    answer.calls.push(one(id, tool, arguments, false));
                }
                Say::Same => {
                    let id = self.next("id-");
                    let newest = self.newest.clone();
                    let (tool, arguments) = newest.unwrap_or(("odd".to_owned(), "{}".to_owned()));
                    results.push((id.clone(), self.results.last().cloned().unwrap_or_default()));
                    answer.calls.push(one(id, &tool, arguments, false));
                }
                Say::Again(tool, back) => {
                    let id = self.next("id-");
                    let arguments = json!({"label": self.next(tool)}).to_string();
                    let earlier = self.results.iter().rev().cycle().nth(*back);
                    let result = earlier.cloned().unwrap_or_default();
                    results.push((id.clone(), result));
                    answer.calls.push(one(id, tool, arguments, false));
                }
                Say::Bring(tool, result, label) => {
                    let id = self.next("id-");
                    self.results.push(result.clone());
                    results.push((id.clone(), result.clone()));
                    let label = label.clone().unwrap_or_else(|| self.next(tool));
                    let arguments = json!({"label": label}).to_string();
                    self.newest = Some((tool.clone(), arguments.clone()));
                    answer.calls.push(one(id, tool, arguments, false));
                }
                Say::Delimit(arguments) => {
                    let id = self.next("id-");
                    let call = one(id, "delimiter", arguments.to_string(), true);
                    answer.calls.push(call);
                }
                Say::Recall(arguments) => {
                    let id = self.next("id-");
                    let call = one(id, "recall", arguments.to_string(), true);
                    answer.calls.push(call);
                }
                Say::Hop => {}
            }
        }
        (answer, results)
    }
}

fn one(id: String, name: &str, arguments: String, hidden: bool) -> Call {
    Call {
        id,
        name: name.to_owned(),
        arguments,
        kind: "function".to_owned(),
        extra: vec![],
        hidden,
        complete: true,
    }
}

/// Lines of which some hold strings that stand nowhere else.
fn listing(label: &str, lines: u32) -> String {
    let line = |line: u32| match line % 3 {
        0 => format!("\n  \"src/{label}/part_{line}.rs\": {line}"),
        1 => "\nthe same everywhere".to_owned(),
        _ => format!("\nlet ünïque_{label}_{line} = \\{line};"),
    };
    (0..lines).map(line).collect()
}

/// A text that begins with its label and has so many tokens more.
pub fn filled(label: &str, tokens: u32) -> String {
    format!("{label}{}", " go".repeat(tokens as usize))
}

/// The messages of a body, each as its exact bytes.
pub fn raw_messages(body: &Bytes) -> Vec<String> {
    let outline = plimsoll_scripted::size::Outline::read(body);
    outline.messages.into_iter().map(str::to_owned).collect()
}

/// What a body shows: labels of texts, reasoning, calls (`grep1`) and results (`=grep1`), in
/// order; the proxy's own texts after a `~`.
pub fn gist(messages: &[String]) -> Vec<String> {
    let mut shown = Vec::new();
    let mut recalls = Vec::new();
    for raw in messages {
        let message: Value = serde_json::from_str(raw).unwrap();
        let content = message["content"].as_str().unwrap_or_default();
        match message["role"].as_str().unwrap() {
            "tool" => match label(content) {
                Some(label) if !recalls.contains(&message["tool_call_id"]) => {
                    shown.push(format!("={label}"))
                }
                _ => shown.push(format!("~{content}")),
            },
            _ => shown.extend(label(content)),
        }
        let reasoning = match &message["reasoning_content"] {
            Value::Array(all) => all.as_slice(),
            one => std::slice::from_ref(one),
        };
        shown.extend(reasoning.iter().filter_map(|text| label(text.as_str()?)));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            let recall = call["function"]["name"] == "recall";
            recalls.extend(recall.then(|| call["id"].clone()));
            shown.push(match arguments["label"].as_str() {
                Some(label) => label.to_owned(),
                None if recall => format!("+recall {}", arguments["id"].as_str().unwrap_or("?")),
                None => format!("+{}", arguments["name"].as_str().unwrap_or("end")),
            });
        }
    }
    shown
}

/// The label that a text begins with.
fn label(text: &str) -> Option<String> {
    let first = text.split_whitespace().next()?;
    let labelled = first.ends_with(|last: char| last.is_ascii_digit())
        && first.starts_with(|first: char| first.is_ascii_lowercase())
        && !first.contains(['-', ':']);
    labelled.then(|| first.to_owned())
}
