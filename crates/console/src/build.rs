//! A session built from parts of another: whole turns, findings, single originals. Owns what may be
//! chosen and the forms of requests in which it is written. A call never goes without its result, nor a
//! result without its call. Never changes the session that it is built from.

mod agent_files;
mod handoff;

use std::collections::HashSet;

use plimsoll_core::session::index::ItemIndex;
use plimsoll_core::session::transcript::Item;
use plimsoll_core::turn::state::Look;
use plimsoll_model::{ItemKind, ItemNo, Role, TenantId};
use plimsoll_proxy::pipeline::App;
use plimsoll_wire::Dialect;
use serde::Deserialize;
use serde_json::{Value, json};

use agent_files::{AgentFile, AgentForm, SessionOrigin};

use super::content::{self, TextSource};
use super::error::ConsoleError;
use super::known::Known;
use super::story::{Story, StoryRole};

/// What to take.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildAsk {
    format: BuildFormat,
    /// Turns to take whole, from and to.
    #[serde(default)]
    turns: Vec<(u32, u32)>,
    /// Episodes whose findings to take.
    #[serde(default)]
    findings: Vec<String>,
    /// Single originals.
    #[serde(default)]
    items: Vec<String>,
    /// Whether to take the system text and the tools. Agents bring their own.
    #[serde(default = "yes")]
    system: bool,
}

fn yes() -> bool {
    true
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BuildFormat {
    Chat,
    Responses,
    Messages,
    Text,
    Claude,
    Codex,
    Pi,
    Opencode,
}

impl BuildFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Text => "text",
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Pi => "pi",
            Self::Opencode => "opencode",
        }
    }

    /// The agent that resumes from it.
    const fn agent(self) -> Option<AgentForm> {
        match self {
            Self::Claude => Some(AgentForm::Claude),
            Self::Codex => Some(AgentForm::Codex),
            Self::Pi => Some(AgentForm::Pi),
            Self::Opencode => Some(AgentForm::Opencode),
            Self::Chat | Self::Responses | Self::Messages | Self::Text => None,
        }
    }

    const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Chat => Some(Dialect::Chat),
            Self::Responses => Some(Dialect::Responses),
            Self::Messages => Some(Dialect::Messages),
            Self::Text | Self::Claude | Self::Codex | Self::Pi | Self::Opencode => None,
        }
    }
}

/// A call with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TakenCall {
    /// Its item.
    pub no: ItemNo,
    id: String,
    name: String,
    arguments: String,
    /// Its result.
    pub result: String,
}

/// A message of the new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// System text.
    System(String),
    /// User text.
    User(String),
    /// What the model said, and its calls.
    Assistant(String, Vec<TakenCall>),
    /// The name of an episode, and what the model says it learned in it.
    Finding(String, String),
    /// What neither the user nor the model said: an agent's reminder beside results, the result of a
    /// function in the old form, an item that only its provider understands.
    Other(String),
}

impl Taken {
    /// What neither the user nor the model said as an answer, for a form that knows no others: it is the model's,
    /// because the words of a user are obeyed.
    fn in_the_models_words(&self) -> Option<String> {
        match self {
            Self::Finding(name, finding) => Some(learned(name, finding)),
            Self::Other(text) => Some(format!("Recorded earlier beside the conversation: {text}")),
            Self::System(_) | Self::User(_) | Self::Assistant(..) => None,
        }
    }
}

/// A message with the turn that it is from.
#[derive(Debug)]
pub(super) struct TakenPart {
    /// The turn that it is from.
    pub turn: u32,
    /// The item of its text.
    pub text: Option<ItemNo>,
    /// The message.
    pub taken: Taken,
}

/// Builds the session.
pub fn build(
    app: &App,
    known: &Known,
    story: &Story,
    ask: &BuildAsk,
) -> Result<Value, ConsoleError> {
    let source = TextSource::of(app, known);
    // These want a user's text first, and no answer behind an answer.
    let alternates = ask.format == BuildFormat::Messages || ask.format.agent().is_some();
    let read = content::look(app, known, None, |look| {
        let mut missing = Vec::new();
        let mut parts = taken(look, story, ask, &mut missing);
        if alternates {
            parts = agent_files::opened(parts);
        }
        let tools = look.tools().filter(|_| ask.system);
        let tools = tools.filter(|(dialect, _)| Some(*dialect) == ask.format.dialect());
        (parts, missing, tools.map(|(_, tools)| tools))
    })?;
    let Some((mut parts, missing, tools)) = read else {
        return Err(content::absent(source));
    };
    let family = app.models.family(&known.row.model);
    let reader = app.reader(family, TenantId(known.row.tenant), Dialect::Chat);
    let count = |text: &str| u64::from(reader.count(text));
    let told: Vec<Value> = parts.iter().map(|part| shown(part, &count)).collect();
    let tokens: u64 = told.iter().filter_map(|part| part["tokens"].as_u64()).sum();
    let tools_tokens = tools.as_deref().map_or(0, count);
    if alternates {
        parts = agent_files::alternate(parts);
    }
    let file = written(known, ask.format, &parts, tools);
    Ok(json!({
        "format": ask.format.name(),
        "name": file.name,
        "type": file.kind,
        "text": file.text,
        "put": file.put,
        "run": file.run,
        "tokens": tokens + tools_tokens,
        "messages": parts.len(),
        "parts": told,
        "missing": missing,
    }))
}

/// The file in a form.
fn written(
    known: &Known,
    format: BuildFormat,
    parts: &[TakenPart],
    tools: Option<String>,
) -> AgentFile {
    let short = known.row.session.get(..8).unwrap_or_default();
    if let Some(agent) = format.agent() {
        let origin = SessionOrigin {
            short,
            model: &known.row.model,
            ended: known.row.ended,
        };
        return agent_files::write(agent, parts, &origin);
    }
    let system = (format == BuildFormat::Messages).then(|| system(parts));
    let text = match format {
        BuildFormat::Responses => body(responses(parts), "input", known, tools, None),
        BuildFormat::Messages => body(messages(parts), "messages", known, tools, system),
        BuildFormat::Chat => body(chat(parts), "messages", known, tools, None),
        BuildFormat::Text
        | BuildFormat::Claude
        | BuildFormat::Codex
        | BuildFormat::Pi
        | BuildFormat::Opencode => handoff::write(parts),
    };
    let (extension, kind) = match format.dialect() {
        Some(_) => ("json", "application/json"),
        None => ("md", "text/markdown; charset=utf-8"),
    };
    AgentFile {
        name: format!("{short}-{}.{extension}", format.name()),
        kind,
        text,
        put: None,
        run: None,
    }
}

/// All that was said, in order.
pub(super) fn all(look: &Look<'_>, story: &Story) -> Vec<TakenPart> {
    let ask = BuildAsk {
        format: BuildFormat::Chat,
        turns: vec![(0, u32::MAX)],
        findings: Vec::new(),
        items: Vec::new(),
        system: true,
    };
    let mut parts = taken(look, story, &ask, &mut Vec::new());
    for part in &mut parts {
        // The lab plays a message in the role that it had, because passes go by it.
        if let Taken::Other(text) = &mut part.taken {
            part.taken = Taken::User(std::mem::take(text));
        }
    }
    parts
}

/// What was chosen, in the order in which it was said.
fn taken(
    look: &Look<'_>,
    story: &Story,
    ask: &BuildAsk,
    missing: &mut Vec<String>,
) -> Vec<TakenPart> {
    let in_turns = |turn: u32| {
        ask.turns
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&turn))
    };
    let system = ask.system && ask.format.agent().is_none();
    let single = singles(story, ask, missing);
    let findings = findings(story, ask, &in_turns, missing);
    let mut findings = findings.into_iter().peekable();
    let mut parts = Vec::new();
    for entry in look.transcript().entries.iter() {
        let items = look.transcript().indexed_items_of(entry);
        let own: Vec<_> = items
            .filter(|(_, item)| !item.hidden && item.delimiter.is_none())
            .collect();
        let turn = own
            .iter()
            .find_map(|(_, item)| Some(story.numbered(item.no)?.turn));
        let Some(turn) = turn else { continue };
        while let Some((end, name, finding)) = findings.next_if(|(end, ..)| *end < turn) {
            parts.push(TakenPart {
                turn: end,
                text: None,
                taken: Taken::Finding(name, finding),
            });
        }
        let wants = |no: ItemNo| in_turns(turn) || single.contains(&no);
        let taken = said(look, entry.role, &own, system, &wants);
        let text = own
            .iter()
            .find(|(_, item)| item.kind != ItemKind::Call && item.kind != ItemKind::Reasoning);
        let text = text.map(|(_, item)| item.no);
        parts.extend(taken.map(|taken| TakenPart { turn, text, taken }));
    }
    parts.extend(findings.map(|(turn, name, finding)| TakenPart {
        turn,
        text: None,
        taken: Taken::Finding(name, finding),
    }));
    parts
}

/// What a message said, if any of it is wanted.
fn said(
    look: &Look<'_>,
    role: Role,
    own: &[(ItemIndex, &Item)],
    system: bool,
    wants: &dyn Fn(ItemNo) -> bool,
) -> Option<Taken> {
    let text = || {
        let mut texts = own.iter().filter(|(_, item)| {
            let said = matches!(
                item.kind,
                ItemKind::Text | ItemKind::User | ItemKind::System | ItemKind::Opaque
            );
            said && (item.kind == ItemKind::System || wants(item.no))
        });
        texts.find_map(|(at, _)| look.original(*at))
    };
    match role {
        Role::System if system => text().map(Taken::System),
        Role::User => text().map(Taken::User),
        Role::Other => text().map(Taken::Other),
        Role::Assistant => {
            let calls = own.iter().filter(|(_, item)| wants(item.no));
            let calls: Vec<TakenCall> = calls.filter_map(|(at, _)| call(look, *at)).collect();
            let said = text().unwrap_or_default();
            (!said.is_empty() || !calls.is_empty()).then_some(Taken::Assistant(said, calls))
        }
        Role::System | Role::Tool => None,
    }
}

/// The single originals that are asked for. What is unknown is named.
fn singles(story: &Story, ask: &BuildAsk, missing: &mut Vec<String>) -> HashSet<ItemNo> {
    let mut single: HashSet<ItemNo> = HashSet::new();
    for name in &ask.items {
        match story
            .find(name)
            .filter(|item| item.role != StoryRole::Hidden)
        {
            Some(item) => {
                single.insert(item.no);
            }
            None => missing.push(format!("{name}: no item of this session has this name")),
        }
    }
    single
}

/// The findings that are asked for, each with the turn in which it was made. What can't be taken is named.
fn findings(
    story: &Story,
    ask: &BuildAsk,
    in_turns: &dyn Fn(u32) -> bool,
    missing: &mut Vec<String>,
) -> Vec<(u32, String, String)> {
    let mut findings: Vec<(u32, String, String)> = Vec::new();
    for name in &ask.findings {
        let episode = story.episodes.iter().find(|one| one.name == *name);
        let found = episode.and_then(|one| Some((one, one.finding.clone()?, one.end?)));
        match found {
            None => missing.push(format!("{name}: no finished exploration has this name")),
            // The exchange says what the finding says, and more.
            Some((one, _, end)) if (one.start..=end).all(in_turns) => {
                missing.push(format!("{name}: its turns are taken whole"));
            }
            Some((_, finding, end)) => findings.push((end, name.clone(), finding)),
        }
    }
    findings.sort();
    findings
}

/// A call with its result. None for a call that has none: it could not be sent again.
fn call(look: &Look<'_>, at: ItemIndex) -> Option<TakenCall> {
    let item = look.transcript().items.get(at)?;
    item.pair.filter(|_| item.kind == ItemKind::Call)?;
    let said = look.call(at)?;
    let (name, arguments) = said.split_once(' ').unwrap_or((&said, "{}"));
    Some(TakenCall {
        no: item.no,
        id: format!("call_{}", item.no),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        result: look.original(at).unwrap_or_default(),
    })
}

/// A finding as the model's own words. A user's message would be obeyed, and no user said it: a model
/// wrote it down after reading what anybody may have written.
fn learned(name: &str, finding: &str) -> String {
    format!("Learned earlier in {name}: {finding}")
}

/// The messages as Chat Completions has them.
pub(super) fn chat(parts: &[TakenPart]) -> Vec<Value> {
    let mut list = Vec::new();
    for part in parts {
        match &part.taken {
            Taken::System(text) => list.push(json!({"role": "system", "content": text})),
            Taken::User(text) => list.push(json!({"role": "user", "content": text})),
            Taken::Finding(..) | Taken::Other(_) => {
                let told = part.taken.in_the_models_words();
                list.extend(told.map(|text| json!({"role": "assistant", "content": text})));
            }
            Taken::Assistant(text, calls) => {
                let content = (!text.is_empty()).then_some(text);
                let mut message = json!({"role": "assistant", "content": content});
                let called = calls.iter().map(|call| {
                    let function = json!({"name": call.name, "arguments": call.arguments});
                    json!({"id": call.id, "type": "function", "function": function})
                });
                if let (false, Value::Object(fields)) = (calls.is_empty(), &mut message) {
                    fields.insert("tool_calls".to_owned(), called.collect());
                }
                list.push(message);
                list.extend(calls.iter().map(
                    |call| json!({"role": "tool", "tool_call_id": call.id, "content": call.result}),
                ));
            }
        }
    }
    list
}

fn responses(parts: &[TakenPart]) -> Vec<Value> {
    let mut list = Vec::new();
    for part in parts {
        match &part.taken {
            Taken::System(text) => list.push(json!({"role": "developer", "content": text})),
            Taken::User(text) => list.push(json!({"role": "user", "content": text})),
            Taken::Finding(..) | Taken::Other(_) => {
                let told = part.taken.in_the_models_words();
                list.extend(told.map(|text| json!({"role": "assistant", "content": text})));
            }
            Taken::Assistant(text, calls) => {
                if !text.is_empty() {
                    list.push(json!({"role": "assistant", "content": text}));
                }
                list.extend(calls.iter().map(|call| {
                    json!({"type": "function_call", "call_id": call.id, "name": call.name,
                        "arguments": call.arguments})
                }));
                list.extend(calls.iter().map(|call| {
                    json!({"type": "function_call_output", "call_id": call.id, "output": call.result})
                }));
            }
        }
    }
    list
}

fn messages(parts: &[TakenPart]) -> Vec<Value> {
    let mut list = Vec::new();
    for part in parts {
        match &part.taken {
            // It has a field of its own.
            Taken::System(_) => {}
            Taken::User(text) => list.push(json!({"role": "user", "content": text})),
            Taken::Finding(..) | Taken::Other(_) => {
                let told = part.taken.in_the_models_words();
                list.extend(told.map(|text| json!({"role": "assistant", "content": text})));
            }
            Taken::Assistant(text, calls) => {
                let said = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
                let used = calls.iter().map(|call| {
                    let input = agent_files::input(call);
                    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
                });
                let blocks: Vec<Value> = said.into_iter().chain(used).collect();
                list.push(json!({"role": "assistant", "content": blocks}));
                let results = calls.iter().map(|call| {
                    json!({"type": "tool_result", "tool_use_id": call.id, "content": call.result})
                });
                let results: Vec<Value> = results.collect();
                if !results.is_empty() {
                    list.push(json!({"role": "user", "content": results}));
                }
            }
        }
    }
    list
}

/// The system texts, for a form that has them apart.
fn system(parts: &[TakenPart]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.taken {
        Taken::System(text) => Some(text.as_str()),
        Taken::User(_) | Taken::Assistant(..) | Taken::Finding(..) | Taken::Other(_) => None,
    });
    texts.collect::<Vec<&str>>().join("\n\n")
}

/// A request body with these messages.
fn body(
    list: Vec<Value>,
    name: &str,
    known: &Known,
    tools: Option<String>,
    system: Option<String>,
) -> String {
    let mut body = json!({"model": known.row.model, name: list});
    if let Value::Object(fields) = &mut body {
        if let Some(system) = system {
            fields.insert("max_tokens".to_owned(), 8192.into());
            if !system.is_empty() {
                fields.insert("system".to_owned(), system.into());
            }
        }
        let tools = tools.and_then(|tools| serde_json::from_str::<Value>(&tools).ok());
        if let Some(tools) = tools {
            fields.insert("tools".to_owned(), tools);
        }
    }
    serde_json::to_string_pretty(&body).unwrap_or_default()
}

/// What is told of a part beside the file.
fn shown(part: &TakenPart, count: &dyn Fn(&str) -> u64) -> Value {
    let line = |text: &str| content::line(text, 120);
    let (kind, items, tokens, label) = match &part.taken {
        Taken::System(text) => ("system", 1, count(text), line(text)),
        Taken::User(text) => ("user", 1, count(text), line(text)),
        Taken::Finding(name, finding) => {
            let text = learned(name, finding);
            ("finding", 1, count(&text), line(&text))
        }
        Taken::Other(text) => ("other", 1, count(text), line(text)),
        Taken::Assistant(text, calls) => {
            let of = |call: &TakenCall| count(&call.arguments) + count(&call.result);
            let tokens = count(text) + calls.iter().map(of).sum::<u64>();
            let called = calls.iter().map(|call| call.name.as_str());
            let called = called.collect::<Vec<&str>>().join(", ");
            let kind = if text.is_empty() { "call" } else { "assistant" };
            let label = if text.is_empty() { called } else { line(text) };
            (
                kind,
                calls.len() + usize::from(!text.is_empty()),
                tokens,
                label,
            )
        }
    };
    json!({"kind": kind, "items": items, "tokens": tokens, "turn": part.turn, "label": label})
}
