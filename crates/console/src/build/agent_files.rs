//! A session as a file that an agent resumes from: Claude Code, codex, pi, opencode. Owns what each of them
//! has to find in its file. It has no system text, no tools and no working directory, because the agent
//! brings its own. Never writes into a directory of an agent's.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use plimsoll_model::Digest;
use serde_json::{Value, json};

use super::{Taken, TakenCall, TakenPart};
use crate::inspect::date;

/// What a session begins with if the first thing chosen is an answer: providers want a user's text there.
const BEFORE_AN_ANSWER: &str =
    "Go on from the work below, which was taken from an earlier session.";
/// The provider that answers are attributed to: the session does not say what the agent called its own.
const PROVIDER: &str = "plimsoll";
/// The version of Plimsoll, where an agent wants one.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An agent that resumes from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentForm {
    /// Claude Code: `~/.claude/projects/PROJECT/UUID.jsonl`.
    Claude,
    /// codex: `~/.codex/sessions/rollout-TIME-UUID.jsonl`.
    Codex,
    /// pi: any file.
    Pi,
    /// opencode: what `opencode import` takes.
    Opencode,
}

/// A file, and how somebody goes on from it.
pub(super) struct AgentFile {
    /// Its name.
    pub name: String,
    /// Its content type.
    pub kind: &'static str,
    /// What it says.
    pub text: String,
    /// The directory in which the agent looks for it. None if that is not told, or if any will do.
    pub put: Option<&'static str>,
    /// The command that resumes from it. None for a form of no agent's.
    pub run: Option<String>,
}

/// What is told of the session that a file was built from.
pub(super) struct SessionOrigin<'a> {
    /// The beginning of its name.
    pub short: &'a str,
    /// The model that was asked.
    pub model: &'a str,
    /// When its newest turn ended, in milliseconds since 1970.
    pub ended: u64,
}

/// Has a user's text come first. Providers of Messages want that, and so do agents.
pub(super) fn opened(mut parts: Vec<TakenPart>) -> Vec<TakenPart> {
    let first = parts
        .iter()
        .position(|part| !matches!(part.taken, Taken::System(_)));
    let at = first.unwrap_or(parts.len());
    if let Some(part) = parts.get(at)
        && !matches!(part.taken, Taken::User(_))
    {
        let opening = TakenPart {
            turn: part.turn,
            text: None,
            taken: Taken::User(BEFORE_AN_ANSWER.to_owned()),
        };
        parts.insert(at, opening);
    }
    parts
}

/// Has no answer follow an answer, as the same providers want it. A turn with hidden hops said its text in
/// several, and what was learned is told as an answer.
pub(super) fn alternate(parts: Vec<TakenPart>) -> Vec<TakenPart> {
    let mut all: Vec<TakenPart> = Vec::with_capacity(parts.len());
    for mut part in parts {
        if let Some(text) = part.taken.in_the_models_words() {
            part.taken = Taken::Assistant(text, Vec::new());
        }
        if let Taken::Assistant(text, calls) = &part.taken
            && let Some(Taken::Assistant(before, none)) = all.last_mut().map(|last| &mut last.taken)
            && none.is_empty()
        {
            let border = if text.is_empty() { "" } else { "\n\n" };
            before.push_str(border);
            before.push_str(text);
            none.clone_from(calls);
            continue;
        }
        all.push(part);
    }
    all
}

/// Writes the file of an agent. The same parts make the same file until the session goes on.
pub(super) fn write(form: AgentForm, parts: &[TakenPart], origin: &SessionOrigin<'_>) -> AgentFile {
    let said = said(parts);
    let id = Digest::of(&[
        origin.short.as_bytes(),
        &origin.ended.to_le_bytes(),
        json!(said.iter().map(Said::key).collect::<Vec<Value>>())
            .to_string()
            .as_bytes(),
    ]);
    let writer = Writer {
        model: origin.model,
        ended: origin.ended,
        time: date(origin.ended),
        uuid: uuid(&id),
        hex: id.hex(),
    };
    let short = origin.short;
    match form {
        AgentForm::Claude => AgentFile {
            name: format!("{}.jsonl", writer.uuid),
            kind: LINES,
            text: lines(&writer.claude(&said)),
            put: Some("~/.claude/projects, in the folder of your project"),
            run: Some(format!("claude --resume {}", writer.uuid)),
        },
        AgentForm::Codex => {
            let time = writer.time.get(..19).unwrap_or_default().replace(':', "-");
            AgentFile {
                name: format!("rollout-{time}-{}.jsonl", writer.uuid),
                kind: LINES,
                text: lines(&writer.codex(&said)),
                put: Some("~/.codex/sessions"),
                run: Some(format!("codex resume {}", writer.uuid)),
            }
        }
        AgentForm::Pi => {
            let name = format!("{short}-pi.jsonl");
            AgentFile {
                kind: LINES,
                text: lines(&writer.pi(&said)),
                put: None,
                run: Some(format!("pi --session {name}")),
                name,
            }
        }
        AgentForm::Opencode => {
            let name = format!("{short}-opencode.json");
            let session = writer.opencode_session();
            AgentFile {
                kind: "application/json",
                text: writer.opencode(&said, short).to_string(),
                put: None,
                run: Some(format!(
                    "opencode import {name} && opencode -s {session} -m PROVIDER/MODEL"
                )),
                name,
            }
        }
    }
}

/// The content type of one JSON object a line.
const LINES: &str = "application/x-ndjson";

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// A digest in the form of a UUID.
fn uuid(digest: &Digest) -> String {
    let hex = digest.hex();
    let digits = hex.chars().take(32).enumerate();
    let digits = digits.flat_map(|(at, digit)| {
        let dash = matches!(at, 8 | 12 | 16 | 20).then_some('-');
        // The version of random ones, and its variant.
        let digit = match at {
            12 => '4',
            16 => '8',
            _ => digit,
        };
        dash.into_iter().chain([digit])
    });
    digits.collect()
}

/// A message as agents know them.
enum Said<'a> {
    User(&'a str),
    Answer(Cow<'a, str>, &'a [TakenCall]),
}

impl Said<'_> {
    /// What tells it from another message.
    fn key(&self) -> Value {
        match self {
            Self::User(text) => json!(text),
            Self::Answer(text, calls) => {
                let calls = calls
                    .iter()
                    .map(|call| json!([call.id, call.name, call.arguments, call.result]));
                json!([text, calls.collect::<Value>()])
            }
        }
    }
}

fn said(parts: &[TakenPart]) -> Vec<Said<'_>> {
    let said = parts.iter().filter_map(|part| match &part.taken {
        Taken::System(_) => None,
        Taken::User(text) => Some(Said::User(text)),
        Taken::Finding(..) | Taken::Other(_) => {
            let told = part.taken.in_the_models_words();
            told.map(|text| Said::Answer(text.into(), &[]))
        }
        Taken::Assistant(text, calls) => Some(Said::Answer(text.into(), calls)),
    });
    said.collect()
}

/// The arguments of a call as an object. Those of some tools are a text of their own form.
pub(super) fn input(call: &TakenCall) -> Value {
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        Ok(_) | Err(_) => json!({"input": call.arguments}),
    }
}

struct Writer<'a> {
    model: &'a str,
    /// In milliseconds since 1970.
    ended: u64,
    /// When that was, in ISO 8601.
    time: String,
    uuid: String,
    hex: String,
}

impl Writer<'_> {
    /// A line for each message, which hang below each other.
    fn claude(&self, said: &[Said<'_>]) -> Vec<Value> {
        let mut messages: Vec<(&str, Value)> = Vec::new();
        for (at, one) in said.iter().enumerate() {
            match one {
                Said::User(text) => {
                    messages.push(("user", json!({"role": "user", "content": text})))
                }
                Said::Answer(text, calls) => {
                    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
                    let used = calls.iter().map(|call| {
                        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input(call)})
                    });
                    let blocks: Value = text.into_iter().chain(used).collect();
                    let stop = if calls.is_empty() {
                        "end_turn"
                    } else {
                        "tool_use"
                    };
                    messages.push(("assistant", json!({"id": format!("msg_{at}"), "type": "message",
                        "role": "assistant", "model": self.model, "content": blocks, "stop_reason": stop,
                        "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0}})));
                    let results = calls.iter().map(|call| {
                        json!({"type": "tool_result", "tool_use_id": call.id, "content": call.result})
                    });
                    let results: Vec<Value> = results.collect();
                    if !results.is_empty() {
                        messages.push(("user", json!({"role": "user", "content": results})));
                    }
                }
            }
        }
        let mut parent = None;
        let lines = messages.into_iter().enumerate().map(|(at, (kind, message))| {
            let id = uuid(&Digest::of(&[self.hex.as_bytes(), &at.to_le_bytes()]));
            let above = parent.replace(id.clone());
            json!({"type": kind, "uuid": id, "parentUuid": above, "isSidechain": false, "cwd": "",
                "sessionId": self.uuid, "timestamp": self.time, "message": message})
        });
        lines.collect()
    }

    /// The items of Responses, and the events by which codex lists and shows a session.
    fn codex(&self, said: &[Said<'_>]) -> Vec<Value> {
        let line = |kind: &str, payload: Value| json!({"timestamp": self.time, "type": kind, "payload": payload});
        let message = |role: &str, part: &str, text: &str| {
            let content = json!([{"type": part, "text": text}]);
            line(
                "response_item",
                json!({"type": "message", "role": role, "content": content}),
            )
        };
        let mut list = vec![line(
            "session_meta",
            json!({"id": self.uuid, "timestamp": self.time, "cwd": "",
            "originator": PROVIDER, "cli_version": VERSION, "source": "cli"}),
        )];
        for one in said {
            match one {
                Said::User(text) => {
                    list.push(message("user", "input_text", text));
                    list.push(line(
                        "event_msg",
                        json!({"type": "user_message", "message": text}),
                    ));
                }
                Said::Answer(text, calls) => {
                    if !text.is_empty() {
                        list.push(message("assistant", "output_text", text));
                        list.push(line(
                            "event_msg",
                            json!({"type": "agent_message", "message": text}),
                        ));
                    }
                    list.extend(calls.iter().map(|call| {
                        line(
                            "response_item",
                            json!({"type": "function_call", "call_id": call.id,
                            "name": call.name, "arguments": call.arguments}),
                        )
                    }));
                    list.extend(calls.iter().map(|call| {
                        line(
                            "response_item",
                            json!({"type": "function_call_output", "call_id": call.id,
                            "output": call.result}),
                        )
                    }));
                }
            }
        }
        list
    }

    /// A header, and an entry for each message, which hang below each other.
    fn pi(&self, said: &[Said<'_>]) -> Vec<Value> {
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let usage = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}});
        let mut messages = Vec::new();
        for one in said {
            match one {
                Said::User(said) => messages
                    .push(json!({"role": "user", "content": text(said), "timestamp": self.ended})),
                Said::Answer(said, calls) => {
                    let said = (!said.is_empty()).then(|| json!({"type": "text", "text": said}));
                    let called = calls.iter().map(|call| {
                        json!({"type": "toolCall", "id": call.id, "name": call.name, "arguments": input(call)})
                    });
                    let blocks: Value = said.into_iter().chain(called).collect();
                    let stop = if calls.is_empty() { "stop" } else { "toolUse" };
                    messages.push(json!({"role": "assistant", "content": blocks, "api": "openai-completions",
                        "provider": PROVIDER, "model": self.model, "usage": usage, "stopReason": stop,
                        "timestamp": self.ended}));
                    messages.extend(calls.iter().map(|call| {
                        json!({"role": "toolResult", "toolCallId": call.id, "toolName": call.name,
                            "content": text(&call.result), "isError": false, "timestamp": self.ended})
                    }));
                }
            }
        }
        let header = json!({"type": "session", "version": 3, "id": self.uuid, "timestamp": self.time, "cwd": ""});
        let mut parent = None;
        let entries = messages.into_iter().enumerate().map(|(at, message)| {
            let id = format!("{at:08x}");
            let above = parent.replace(id.clone());
            json!({"type": "message", "id": id, "parentId": above, "timestamp": self.time, "message": message})
        });
        std::iter::once(header).chain(entries).collect()
    }

    fn opencode_session(&self) -> String {
        format!("ses_{}", self.hex.get(..26).unwrap_or_default())
    }

    /// What `opencode export` writes. Its ids grow from message to message, and are no other session's.
    fn opencode(&self, said: &[Said<'_>], short: &str) -> Value {
        let session = self.opencode_session();
        let id = |kind: &str, at: usize, part: usize| {
            let own = self.hex.get(..14).unwrap_or_default();
            format!("{kind}_{at:08x}{part:04x}{own}")
        };
        let time = json!({"created": self.ended, "completed": self.ended});
        let tokens =
            json!({"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}});
        let mut asked = String::new();
        let mut messages = Vec::new();
        for (at, one) in said.iter().enumerate() {
            let message = id("msg", at, 0);
            let (info, parts) = match one {
                Said::User(text) => {
                    asked.clone_from(&message);
                    let model = json!({"providerID": PROVIDER, "modelID": self.model});
                    let info = json!({"id": message, "sessionID": session, "role": "user",
                        "time": {"created": self.ended}, "agent": "build", "model": model});
                    (info, vec![json!({"type": "text", "text": text})])
                }
                Said::Answer(text, calls) => {
                    let finish = if calls.is_empty() {
                        "stop"
                    } else {
                        "tool-calls"
                    };
                    let info = json!({"id": message, "sessionID": session, "role": "assistant", "time": time,
                        "parentID": asked, "providerID": PROVIDER, "modelID": self.model, "mode": "build",
                        "agent": "build", "path": {"cwd": "", "root": ""}, "cost": 0, "tokens": tokens,
                        "finish": finish});
                    let mut parts = vec![json!({"type": "step-start"})];
                    parts.extend((!text.is_empty()).then(|| json!({"type": "text", "text": text})));
                    parts.extend(calls.iter().map(|call| self.opencode_call(call)));
                    parts.push(json!({"type": "step-finish", "reason": finish, "cost": 0, "tokens": tokens}));
                    (info, parts)
                }
            };
            let parts = parts.into_iter().enumerate().map(|(part, mut value)| {
                if let Value::Object(fields) = &mut value {
                    fields.insert("id".to_owned(), id("prt", at, part).into());
                    fields.insert("sessionID".to_owned(), session.clone().into());
                    fields.insert("messageID".to_owned(), message.clone().into());
                }
                value
            });
            messages.push(json!({"info": info, "parts": parts.collect::<Value>()}));
        }
        json!({"info": {"id": session, "slug": format!("plimsoll-{short}"), "projectID": "global",
            "directory": "", "title": format!("From session {short}"), "version": VERSION,
            "time": {"created": self.ended, "updated": self.ended}}, "messages": messages})
    }

    fn opencode_call(&self, call: &TakenCall) -> Value {
        let state = json!({"status": "completed", "input": input(call), "output": call.result,
            "title": call.name, "metadata": {}, "time": {"start": self.ended, "end": self.ended}});
        json!({"type": "tool", "callID": call.id, "tool": call.name, "state": state})
    }
}
