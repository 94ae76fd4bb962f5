//! The texts of a chunk: its content as a string or as a list of parts, and the parts that hold
//! reasoning. One chunk at a time; it decides nothing.

use plimsoll_model::raw::{self, Edit, Object, Span};

use super::chunk::Chunk;
use crate::chat::content_parts::{self, PartType};
use crate::json::Node;

impl<'a> Chunk<'a> {
    /// The span between the quotes of the text, if there is any: of a list of parts, of the first
    /// that says something.
    pub fn text(&self) -> Option<Span> {
        self.texts().next()
    }

    /// The spans between the quotes of all its texts.
    pub fn texts(&self) -> impl Iterator<Item = Span> {
        // A content that is a string has no parts.
        let texts = self.parts().filter_map(|part| {
            let span = part.span("text")?;
            let says = PartType::of(&part.object) == PartType::Text
                && matches!(part.bytes(&span), [b'"', _, .., b'"']);
            says.then(|| span.start + 1..span.end - 1)
        });
        self.hole("content").into_iter().chain(texts)
    }

    /// The edit that gives the text this value.
    pub fn content_edit(&self, text: &str) -> Option<Edit> {
        let delta = self.delta.as_ref()?;
        let list = delta.object.raw("content");
        Some(match list.filter(|raw| raw.starts_with(b"[")) {
            Some(list) => delta.set("content", &content_parts::saying(list, text)),
            None => delta.set("content", raw::quote(text).as_bytes()),
        })
    }

    /// Its parts that hold reasoning.
    pub fn thinking(&self) -> impl Iterator<Item = Object<'a>> {
        let parts = self.parts().map(|part| part.object);
        parts.filter(|part| PartType::of(part) == PartType::Thinking)
    }

    /// The parts of its content, if that is a list.
    fn parts(&self) -> impl Iterator<Item = Node<'a>> {
        let delta = self.delta.as_ref();
        let spans = delta.and_then(|delta| delta.elements("content"));
        let data = self.data;
        let spans = spans.unwrap_or_default().into_iter();
        spans.filter_map(move |span| Node::at(data, &span))
    }
}
