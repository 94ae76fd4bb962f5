//! The original texts behind a transcript's items, read from the client's request and from records
//! when a policy or a view asks for them. Never keeps a text beyond the request but in the memo.

use std::borrow::Cow;
use std::sync::Arc;

use super::known::Reader;
use crate::dialect::chat::original;
use crate::dialect::chat::request::Request;
use crate::model::{Digest, Hop, ItemKind, Kept, Mark, Shape};
use crate::session::path::Path;
use crate::session::stub;
use crate::session::transcript::{Item, Source, Transcript};
use crate::session::view::{Left, Note};

/// What a transcript was built from.
#[derive(Clone, Copy)]
pub(super) struct Originals<'a> {
    pub request: &'a Request,
    pub shapes: &'a [Arc<Shape>],
    pub path: &'a Path,
    pub pending: &'a [Hop],
    pub transcript: &'a Transcript,
}

impl<'a> Originals<'a> {
    /// The original text of an item: a result's or a message's text, a call's arguments. `None`
    /// where it has none or where it could not be put back in its form.
    pub fn text(&self, index: usize) -> Option<Cow<'a, str>> {
        let item = self.transcript.items.get(index)?;
        let entry = self.transcript.entries.get(item.entry)?;
        let message = match entry.source {
            Source::Client(message) | Source::LastHop { message, .. } => {
                self.request.message(message)
            }
            Source::Hop { step, hop } => self.hop(step, hop)?.message.as_deref()?.as_bytes(),
            Source::HiddenResult { step, hop, call } => {
                let call = self.hop(step, hop)?.calls.get(call)?;
                return Some(Cow::Borrowed(&call.result));
            }
        };
        match item.kind {
            ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Opaque => original::text(message),
            ItemKind::Call => {
                let items = self.transcript.items.get(entry.items.start..index)?;
                let visible = |item: &&Item| is_visible(item);
                let place = items.iter().filter(visible).count();
                original::arguments(message, place).filter(|_| is_visible(item))
            }
            ItemKind::Reasoning => None,
        }
    }

    fn hop(&self, step: usize, hop: usize) -> Option<&'a Hop> {
        match self.path.entries.get(step) {
            Some(entry) => entry.record.hops.get(hop),
            None => self.pending.get(hop),
        }
    }

    /// What is left of a call of which a pass kept a part.
    pub fn left(&self, reader: Reader<'_>, call: usize, mark: Mark, kept: &Kept) -> Left {
        let Some(item) = self.transcript.items.get(call) else {
            return Left::default();
        };
        let name = (item.no, &*item.name, mark as u8);
        let originals = (self.digest(call), item.pair.and_then(|at| self.digest(at)));
        reader.left(&(name, originals, call, kept), || Left {
            result: self.result(reader, item, mark, kept),
            arguments: self.arguments(reader, item, call, kept),
        })
    }

    /// The digest of the client's message that an item stands in.
    fn digest(&self, index: usize) -> Option<Digest> {
        let item = self.transcript.items.get(index)?;
        match self.transcript.entries.get(item.entry)?.source {
            Source::Client(message) | Source::LastHop { message, .. } => {
                self.shapes.get(message).map(|shape| shape.canonical)
            }
            Source::Hop { .. } => None,
            Source::HiddenResult { step, hop, call } => {
                let call = self.hop(step, hop)?.calls.get(call)?;
                Some(Digest::of(&[call.result.as_bytes()]))
            }
        }
    }

    fn result(&self, reader: Reader<'_>, item: &Item, mark: Mark, kept: &Kept) -> Option<Note> {
        kept.of?;
        let result = item.pair?;
        let tokens = self.transcript.items.get(result)?.tokens;
        let original = self.text(result).unwrap_or_default();
        let id = format!("{}:{}", item.name, item.no);
        let text = stub::result(&id, tokens, mark, kept, &original);
        Some(Note {
            tokens: reader.count(&text),
            text: text.into(),
        })
    }

    fn arguments(&self, reader: Reader<'_>, item: &Item, call: usize, kept: &Kept) -> Option<Note> {
        let index = kept.trimmed.as_ref()?;
        let text = stub::trimmed(&self.text(call)?, index)?;
        Some(Note {
            tokens: reader.call(&item.name, &text),
            text: text.into(),
        })
    }
}

/// A call that the client sees, too.
fn is_visible(item: &Item) -> bool {
    item.kind == ItemKind::Call && item.delimiter.is_none()
}
