//! What a chunk says beside plain strings: content in parts, and what signs calls in it. One chunk at
//! a time; it decides nothing.

use bytes::Bytes;

use super::{Chunk, Node, Plan};
use crate::dialect::chat::content;
use crate::dialect::chat::signature::{DETAILS, Detailed};
use crate::model::raw::{self, Edit, Object, Span};

/// One part of a content that is a list.
struct Part<'a> {
    node: Node<'a>,
}

impl Part<'_> {
    /// What stands between the quotes of a member of such a part, if there is any.
    fn hole(&self, key: &str, kind: content::Kind) -> Option<Span> {
        let span = self.node.object.get(key)?;
        let raw = self.node.object.bytes().get(span.clone())?;
        let says = content::Kind::of(&self.node.object) == kind;
        let at = self.node.at + span.start;
        (says && matches!(raw, [b'"', _, .., b'"'])).then(|| at + 1..at + raw.len() - 1)
    }
}

impl<'a> Chunk<'a> {
    /// What stands between the quotes of the text, if there is any: of a list of parts, the first
    /// one's that says something.
    pub(in crate::dialect::chat::stream) fn text(&self) -> Option<Span> {
        self.texts().next()
    }

    /// The same for all of its texts.
    pub(in crate::dialect::chat::stream) fn texts(&self) -> impl Iterator<Item = Span> {
        // What is a string has no parts.
        let parts = self.parts().into_iter();
        let texts = parts.filter_map(|part| part.hole("text", content::Kind::Text));
        self.hole("content").into_iter().chain(texts)
    }

    /// The edit that gives the text this value.
    pub(in crate::dialect::chat::stream) fn content_edit(&self, text: &str) -> Option<Edit> {
        let said = self.said.as_ref()?;
        let parts = said
            .object
            .raw("content")
            .filter(|raw| raw.starts_with(b"["));
        let new = match parts {
            Some(parts) => content::saying(parts, text),
            None => Bytes::from(raw::quote(text)),
        };
        Some(said.shifted(said.object.set("content", &new)))
    }

    /// The parts of its content, where that is a list.
    fn parts(&self) -> Vec<Part<'a>> {
        let said = self.said.as_ref();
        let spans = said.and_then(|said| said.elements("content"));
        let spans = spans.unwrap_or_default().into_iter();
        spans
            .filter_map(|span| Node::at(self.data, &span))
            .map(|node| Part { node })
            .collect()
    }

    /// Its parts that hold reasoning.
    pub(in crate::dialect::chat::stream) fn thinking(&self) -> impl Iterator<Item = Object<'a>> {
        let parts = self.parts().into_iter().map(|part| part.node.object);
        parts.filter(|part| content::Kind::of(part) == content::Kind::Thinking)
    }

    /// A member of what it says, as raw JSON.
    pub(in crate::dialect::chat::stream) fn said_raw(&self, key: &str) -> Option<&'a [u8]> {
        self.said.as_ref()?.object.present(key)
    }

    /// The edit that puts `reasoning_details` in the place of all else that is said, where that goes.
    pub(super) fn details_alone(
        &self,
        plan: &Plan<'_>,
        goes: impl Fn(usize) -> bool,
    ) -> Option<Edit> {
        let said = self.said.as_ref()?;
        let Some(Detailed::These(array)) = &plan.signs?.details else {
            return None;
        };
        let members = said.object.members();
        let all = members.first()?.span.start..members.last()?.span.end;
        let alone = [raw::quote(DETAILS).as_bytes(), b":", array].concat();
        let gone = (0..members.len()).all(goes);
        gone.then(|| said.shifted((all, Bytes::from(alone))))
    }

    /// The edits that put in what it gets of calls that the client does not see.
    pub(super) fn sign_edits(&self, plan: &Plan<'_>) -> Vec<Edit> {
        let (Some(said), Some(signs)) = (&self.said, plan.signs) else {
            return Vec::new();
        };
        let signed = signs.calls.iter().filter_map(|(place, own)| {
            let call = Node::at(self.data, self.call_spans.get(*place)?)?;
            Some(call.shifted(call.object.set(&own.key, &own.raw)))
        });
        let mut edits: Vec<Edit> = signed.collect();
        if let Some(Detailed::These(array)) = &signs.details {
            let array: &Bytes = array;
            edits.push(said.shifted(said.object.set(DETAILS, array)));
        }
        edits
    }
}
