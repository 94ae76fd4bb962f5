//! Where originals come from: the client's own messages, else the records. Gives exact texts;
//! never decides what is brought back.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::dialect::chat::message::{self, Part};
use crate::model::ItemKind;
use crate::pipeline::hop::State;
use crate::session::transcript::{Entry, Handed, Item, Source, Transcript};

/// The originals of one transcript.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) state: &'a State,
    pub(super) transcript: &'a Transcript,
}

impl<'a> Content<'a> {
    /// The original of an item: a call's result, or what was said. `None` where there is none.
    pub(super) fn original(&self, item: &Item) -> Option<Cow<'a, str>> {
        match item.kind {
            ItemKind::Call => self.result(item),
            ItemKind::Text => self.text(item),
            ItemKind::Reasoning => {
                let bytes = self.message(self.entry(item)?)?;
                let parsed = message::parse(bytes).ok()?;
                Some(Cow::Owned(parsed.reasoning.concat()))
            }
            ItemKind::Result | ItemKind::User | ItemKind::System | ItemKind::Opaque => None,
        }
    }

    /// The name and the arguments of a call, as the model wrote them.
    pub(super) fn call(&self, item: &Item) -> Option<String> {
        let entry = self.entry(item)?;
        let calls = self.transcript.items.get(entry.items.clone())?.iter();
        let mut calls = calls.filter(|item| item.kind == ItemKind::Call);
        let place = calls.position(|call| call.no == item.no)?;
        let (hidden, place) = match entry.source {
            Source::Hop { step, hop } => {
                let hop = self.hop(step, hop)?;
                (hop.calls.get(place), place)
            }
            Source::LastHop { step, .. } => {
                let record = &self.state.path.entries.get(step)?.record;
                let hop = record.hops.last().filter(|hop| hop.message.is_none());
                let hidden = hop.map_or(&[][..], |hop| hop.calls.as_slice());
                let own = hidden.iter().find(|call| call.place as usize == place);
                let before = hidden.iter().filter(|call| (call.place as usize) < place);
                (own, place - before.count())
            }
            Source::Client(_) => (None, place),
            Source::HiddenResult { .. } => return None,
        };
        if let Some(hidden) = hidden {
            return Some(format!("{} {}", item.name, hidden.arguments));
        }
        let parsed = message::parse(self.message(entry)?).ok()?;
        let call = parsed.calls.get(place)?;
        Some(format!("{} {}", call.name, call.arguments))
    }

    /// Whether a result is one of the proxy's own.
    pub(super) fn is_hidden(&self, result: &Item) -> bool {
        let source = self.entry(result).map(|entry| entry.source);
        matches!(source, Some(Source::HiddenResult { .. }))
    }

    fn result(&self, call: &Item) -> Option<Cow<'a, str>> {
        let result = self.transcript.items.get(call.pair?)?;
        let entry = self.entry(result)?;
        match entry.source {
            Source::HiddenResult { step, hop, call } => {
                let call = self.hop(step, hop)?.calls.get(call)?;
                Some(Cow::Borrowed(call.result.as_str()))
            }
            Source::Client(_) => text_of(self.message(entry)?),
            Source::LastHop { .. } | Source::Hop { .. } => None,
        }
    }

    fn text(&self, item: &Item) -> Option<Cow<'a, str>> {
        let entry = self.entry(item)?;
        let text = text_of(self.message(entry)?)?;
        let (Source::LastHop { step, .. }, Handed::Front) = (entry.source, entry.handed) else {
            return Some(text);
        };
        // What earlier hops handed out is their own items' text.
        let handed = &self.state.path.entries.get(step)?.record.handed;
        let rest = text.strip_prefix(handed.as_str())?;
        Some(Cow::Owned(rest.to_owned()))
    }

    fn entry(&self, item: &Item) -> Option<&'a Entry> {
        self.transcript.entries.get(item.entry)
    }

    fn hop(&self, step: usize, hop: usize) -> Option<&'a crate::model::Hop> {
        self.state.path.hop(&self.state.pending, step, hop)
    }

    fn message(&self, entry: &Entry) -> Option<&'a [u8]> {
        match entry.source {
            Source::Client(message) | Source::LastHop { message, .. } => {
                Some(self.state.request.message(message))
            }
            Source::Hop { step, hop } => Some(self.hop(step, hop)?.message.as_deref()?.as_bytes()),
            Source::HiddenResult { .. } => None,
        }
    }
}

/// The text of a message. What is no text is named where it stood.
fn text_of(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let mut parts = message::parse(bytes).ok()?.parts.into_iter();
    let (first, second) = (parts.next(), parts.next());
    if let (Some(Part::Text(text)), None) = (&first, &second) {
        return Some(text.clone());
    }
    let mut text = String::new();
    for part in first.into_iter().chain(second).chain(parts) {
        let _ = match part {
            Part::Text(one) => write!(text, "{one}"),
            Part::Image { .. } => write!(text, "[an image]"),
            Part::Other(raw) => write!(text, "[an attachment of {} bytes]", raw.len()),
        };
    }
    Some(Cow::Owned(text))
}
