//! One item of a response's output: what it is and what it says. Never decides what is shown.

use std::borrow::Cow;

use bytes::Bytes;

use super::node::lossy;
use crate::dialect::answer::{Answer, Block, BlockKind, Call, Reasoning};
use crate::dialect::names::Names;
use crate::model::raw::{self, Object};

/// Under which member an item holds what it calls with, in the order in which they are tried.
const ARGUMENTS: [&str; 5] = ["arguments", "input", "action", "actions", "operation"];
/// What of an item stands in a field of [`Call`] of its own.
const KNOWN: [&str; 3] = ["type", "call_id", "name"];

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reasoning, in whatever form.
    Reasoning,
    /// A message of the assistant.
    Text,
    /// A call that somebody outside the server answers.
    Call,
    /// Anything else, such as what a server's own tool did.
    Other,
}

/// An item taken apart.
#[derive(Debug)]
pub(super) struct Item<'a> {
    object: Object<'a>,
    kind: Cow<'a, str>,
}

impl<'a> Item<'a> {
    /// Takes an item apart; `None` if the bytes are no JSON object.
    pub(super) fn read(raw: &'a [u8]) -> Option<Self> {
        let object = Object::parse(raw).ok()?;
        let kind = object.text("type").unwrap_or_default();
        Some(Self { object, kind })
    }

    /// What it is. Only calls that the server leaves to others have a `call_id`.
    pub(super) fn kind(&self) -> Kind {
        match self.kind.as_ref() {
            "reasoning" => Kind::Reasoning,
            "message" => Kind::Text,
            kind if kind.ends_with("_call") && !self.call_id().is_empty() => Kind::Call,
            "function_call" | "custom_tool_call" => Kind::Call,
            _ => Kind::Other,
        }
    }

    /// The item's own id.
    pub(super) fn id(&self) -> Option<Cow<'a, str>> {
        self.object.text("id")
    }

    /// Whether it calls, or describes, one of these functions. One of a namespace is never one of
    /// the proxy's.
    pub(super) fn names(&self, functions: &Names) -> bool {
        self.meant(functions).is_some()
    }

    /// The name of the function of these that it is, or calls. Only models misspell names.
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
    pub(super) fn is_nameless(&self) -> bool {
        self.kind == "function_call" && self.name().is_none()
    }

    fn name(&self) -> Option<Cow<'a, str>> {
        self.object.text("name").filter(|name| !name.is_empty())
    }

    fn call_id(&self) -> Cow<'a, str> {
        self.object.text("call_id").unwrap_or_default()
    }

    /// The call whose result it is; empty where it is none.
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
        let members = self.object.members().iter();
        let extra = members.filter(|member| !own(&member.key)).map(|member| {
            let value = self.object.bytes().get(member.value.clone());
            let value = Bytes::copy_from_slice(value.unwrap_or_default());
            (member.key.clone().into_owned(), value)
        });
        Call {
            id: self.call_id().into_owned(),
            name: self.name().unwrap_or(self.kind.clone()).into_owned(),
            arguments,
            kind: self.kind.clone().into_owned(),
            extra: extra.collect(),
            hidden,
            complete,
        }
    }

    /// The strings under a key of the elements of an array that are of a type; a content that is a
    /// string is its own text.
    fn texts(&self, array: &str, kind: &str, key: &str) -> String {
        let whole = self.object.raw(array).unwrap_or_default();
        let Ok(parts) = raw::array(whole) else {
            return if kind == "output_text" {
                lossy(whole)
            } else {
                String::new()
            };
        };
        let mut text = String::new();
        for part in parts {
            let part = Object::parse(whole.get(part).unwrap_or_default());
            if let Ok(part) = part
                && part.text("type").is_some_and(|own| own == kind)
            {
                text.push_str(&lossy(part.raw(key).unwrap_or_default()));
            }
        }
        text
    }
}

/// Puts what the items of a hop say into its answer, in their order. Of a hop that was cut, hidden
/// calls that are not complete are left out.
pub(super) fn tell(answer: &mut Answer, items: &[Bytes], hidden: &Names, cut: bool) {
    let read: Vec<Option<Item<'_>>> = items.iter().map(|raw| Item::read(raw)).collect();
    // A server that runs a call itself says so by its result.
    let answered: Vec<Cow<'_, str>> = read.iter().flatten().map(Item::answers).collect();
    let served = |item: &Item<'_>| answered.contains(&item.call_id());
    for (raw, item) in items.iter().zip(&read) {
        let Some(item) = item else { continue };
        let mut raw = raw.clone();
        let kind = match item.kind() {
            Kind::Reasoning => {
                reason(
                    answer,
                    "summary",
                    item.texts("summary", "summary_text", "text"),
                );
                reason(
                    answer,
                    "content",
                    item.texts("content", "reasoning_text", "text"),
                );
                BlockKind::Reasoning
            }
            Kind::Text => {
                let text = item.texts("content", "output_text", "text");
                answer.text.push_str(&text);
                let refusal = item.texts("content", "refusal", "refusal");
                answer.refusal.push_str(&refusal);
                BlockKind::Text
            }
            Kind::Call if served(item) && !item.names(hidden) => BlockKind::Other,
            Kind::Call => {
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
            Kind::Other => BlockKind::Other,
        };
        answer.blocks.push(Block { kind, raw });
    }
}

fn reason(answer: &mut Answer, field: &str, text: String) {
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
