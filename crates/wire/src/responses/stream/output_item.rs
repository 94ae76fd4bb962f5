//! One item of a response's output: what it is and what it says. Never decides what is shown.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};

use crate::answer::{Answer, Block, BlockKind, Call, Reasoning};
use crate::blocks::Piece;
use crate::blocks::events::Visibility;
use crate::json::{self, lossy};
use crate::names::Names;

/// The members that hold the arguments of a call, in the order in which they are tried.
const ARGUMENTS: [&str; 5] = ["arguments", "input", "action", "actions", "operation"];
/// The members of an item that have fields of their own in a [`Call`].
const KNOWN: [&str; 3] = ["type", "call_id", "name"];

/// The members of an item that hold readable reasoning, and the type of their parts.
const REASONING: [(&str, &str); 2] = [("summary", "summary_text"), ("content", "reasoning_text")];

/// An item taken apart.
#[derive(Debug)]
pub struct OutputItem<'a> {
    object: Object<'a>,
    kind: Cow<'a, str>,
}

impl<'a> OutputItem<'a> {
    /// Takes an item apart; `None` if the bytes are no JSON object.
    pub fn read(raw: &'a [u8]) -> Option<Self> {
        let object = Object::parse(raw).ok()?;
        let kind = object.text("type").unwrap_or_default();
        Some(Self { object, kind })
    }

    /// Whether the client sees it. Reasoning must never stand without what it led to.
    pub fn visibility(&self, hidden: &Names) -> Visibility {
        if self.names(hidden) {
            return Visibility::Hidden;
        }
        match self.kind() {
            Piece::Reasoning => Visibility::Follows,
            Piece::Text | Piece::Call | Piece::Other => Visibility::Shown,
        }
    }

    /// What it is. Only calls that the server leaves to others have a `call_id`.
    pub fn kind(&self) -> Piece {
        match self.kind.as_ref() {
            "reasoning" => Piece::Reasoning,
            "message" => Piece::Text,
            kind if kind.ends_with("_call") && !self.call_id().is_empty() => Piece::Call,
            "function_call" | "custom_tool_call" => Piece::Call,
            _ => Piece::Other,
        }
    }

    /// The item's own id.
    pub fn id(&self) -> Option<Cow<'a, str>> {
        self.object.text("id")
    }

    /// Whether it calls, or describes, one of these functions. A function in a namespace is never
    /// one of the proxy's.
    pub fn names(&self, functions: &Names) -> bool {
        self.meant(functions).is_some()
    }

    /// The name of the function among these that it calls or describes. Only models misspell names.
    fn meant<'n>(&self, functions: &'n Names) -> Option<&'n str> {
        let name = self.name().filter(|_| {
            let kind = self.kind.as_ref();
            let exact = || self.name().is_some_and(|name| functions.contains(&name));
            kind == "function_call" || kind == "function" && exact()
        })?;
        let own = self.object.present("namespace").is_none();
        functions.meant(&name).filter(|_| own)
    }

    /// Whether it calls a function that it does not name.
    pub fn is_nameless(&self) -> bool {
        self.kind == "function_call" && self.name().is_none()
    }

    fn name(&self) -> Option<Cow<'a, str>> {
        self.object.text("name").filter(|name| !name.is_empty())
    }

    fn call_id(&self) -> Cow<'a, str> {
        self.object.text("call_id").unwrap_or_default()
    }

    /// The id of the call whose result it is; empty if it is no result.
    fn answers(&self) -> Cow<'a, str> {
        if self.kind.ends_with("_output") {
            self.call_id()
        } else {
            Cow::Borrowed("")
        }
    }

    fn call(&self, hidden: bool, cut: bool) -> Call {
        let (holder, arguments) = ARGUMENTS
            .iter()
            .find_map(|key| Some((*key, self.object.present(key)?)))
            .unwrap_or_default();
        let arguments = match arguments.first() {
            Some(b'"') => lossy(arguments),
            Some(_) | None => String::from_utf8_lossy(arguments).into_owned(),
        };
        let status = self.object.text("status");
        let complete = match status.as_deref() {
            Some(status) => status == "completed",
            None => !cut || raw::is_json(arguments.as_bytes()),
        };
        let own = |key: &str| KNOWN.contains(&key) || key == holder;
        Call {
            id: self.call_id().into_owned(),
            name: self.name().unwrap_or(self.kind.clone()).into_owned(),
            arguments,
            kind: self.kind.clone().into_owned(),
            extra: json::members(&self.object, |key| !own(key)),
            hidden,
            complete,
        }
    }

    /// The strings under a key of the parts of this type in an array. A content that is a string is
    /// its own text.
    fn texts(&self, array: &str, kind: &str, key: &str) -> String {
        let whole = self.object.raw(array).unwrap_or_default();
        if !whole.starts_with(b"[") && kind == "output_text" {
            return lossy(whole);
        }
        let parts = json::objects(whole);
        let parts = parts.filter(|part| part.text("type").is_some_and(|own| own == kind));
        parts
            .map(|part| lossy(part.raw(key).unwrap_or_default()))
            .collect()
    }
}

/// Puts what the items of a hop say into its answer, in their order. Of a hop that was cut,
/// incomplete hidden calls are left out.
pub fn add_to(answer: &mut Answer, items: &[Bytes], hidden: &Names, cut: bool) {
    let read: Vec<Option<OutputItem<'_>>> = items.iter().map(|raw| OutputItem::read(raw)).collect();
    // A server that runs a call itself says so by its result.
    let answered: HashSet<Cow<'_, str>> = read.iter().flatten().map(OutputItem::answers).collect();
    let served = |item: &OutputItem<'_>| answered.contains(&item.call_id());
    for (raw, item) in items.iter().zip(&read) {
        let Some(item) = item else { continue };
        let mut raw = raw.clone();
        let kind = match item.kind() {
            Piece::Reasoning => {
                for (field, part_type) in REASONING {
                    add_reasoning(answer, field, item.texts(field, part_type, "text"));
                }
                BlockKind::Reasoning
            }
            Piece::Text => {
                let text = item.texts("content", "output_text", "text");
                answer.text.push_str(&text);
                let refusal = item.texts("content", "refusal", "refusal");
                answer.refusal.push_str(&refusal);
                BlockKind::Text
            }
            Piece::Call if served(item) && !item.names(hidden) => BlockKind::Other,
            Piece::Call => {
                let mut call = item.call(item.names(hidden), cut);
                if let Some(own) = item.meant(hidden).filter(|own| *own != call.name) {
                    // A provider that checks names takes back what it was offered.
                    own.clone_into(&mut call.name);
                    let name = item.object.set("name", raw::quote(own).as_bytes());
                    raw = raw::splice(&raw, &[name]);
                }
                if cut && call.hidden && !call.complete {
                    continue;
                }
                answer.calls.push(call);
                BlockKind::Call(answer.calls.len() - 1)
            }
            Piece::Other => BlockKind::Other,
        };
        answer.blocks.push(Block { kind, raw });
    }
}

fn add_reasoning(answer: &mut Answer, field: &str, text: String) {
    if text.is_empty() {
        return;
    }
    let known = answer.reasoning.iter_mut().find(|(own, _)| own == field);
    match known {
        Some((_, Reasoning::Text(before))) => before.push_str(&text),
        Some((_, Reasoning::Items(_) | Reasoning::Part(_))) | None => {
            let text = Reasoning::Text(text);
            answer.reasoning.push((field.to_owned(), text));
        }
    }
}
