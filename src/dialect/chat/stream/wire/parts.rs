//! The parts of a chunk that hold what is said: the choice that is looked at, what stands in it, and
//! the calls. It looks at one chunk at a time and decides nothing about calls.

use std::borrow::Cow;

use super::{Body, Node};
use crate::model::raw::Span;

/// One element of `tool_calls`.
pub(in crate::dialect::chat::stream) struct CallPart<'a> {
    /// Its place in the array.
    pub(in crate::dialect::chat::stream) place: usize,
    pub(in crate::dialect::chat::stream) index: Option<u64>,
    pub(super) index_span: Option<Span>,
    /// Empty if absent or null.
    pub(in crate::dialect::chat::stream) id: Cow<'a, str>,
    pub(in crate::dialect::chat::stream) kind: Option<Cow<'a, str>>,
    /// Empty if absent or null.
    pub(in crate::dialect::chat::stream) name: Cow<'a, str>,
    /// Where the name begins.
    pub(super) name_at: Option<usize>,
    /// Whether a name may stand where none is looked for.
    pub(super) odd: bool,
    pub(in crate::dialect::chat::stream) arguments: Arguments,
    /// Unknown fields as raw JSON.
    pub(in crate::dialect::chat::stream) extra: Vec<(String, &'a [u8])>,
}

/// The arguments that one element brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dialect::chat::stream) enum Arguments {
    /// None, null, or an empty string.
    Nothing,
    /// What stands between the quotes of a string.
    Text(Span),
    /// A value that is no string, which some servers send.
    Value(Span),
}

impl<'a> CallPart<'a> {
    pub(super) fn read(data: &'a [u8], place: usize, span: &Span) -> Option<Self> {
        let node = Node::at(data, span)?;
        let function = ["function", "custom"]
            .iter()
            .find_map(|key| node.child(data, key));
        let index = node.object.number("index");
        let mut part = Self {
            place,
            index,
            index_span: index.and_then(|_| node.span("index")),
            id: node.object.text("id").unwrap_or_default(),
            kind: node.object.text("type").filter(|kind| !kind.is_empty()),
            name: Cow::default(),
            name_at: None,
            odd: node.is_cased(),
            arguments: Arguments::Nothing,
            extra: Vec::new(),
        };
        if let Some(function) = function {
            part.name = function.object.text("name").unwrap_or_default();
            part.name_at = function.span("name").map(|span| span.start);
            part.odd |= function.is_cased();
            let value = function
                .span("arguments")
                .or_else(|| function.span("input"));
            part.arguments = value.map_or(Arguments::Nothing, |span| arguments(data, span));
        }
        let known = ["index", "id", "type", "function", "custom"];
        let unknown = node
            .object
            .members()
            .iter()
            .filter(|m| !known.contains(&m.key.as_ref()));
        part.extra = unknown
            .filter_map(|m| Some((m.key.to_string(), node.object.bytes().get(m.value.clone())?)))
            .collect();
        part.odd |= part.name_at.is_none() && part.extra.iter().any(|(key, _)| key == "name");
        Some(part)
    }
}

fn arguments(data: &[u8], span: Span) -> Arguments {
    match data.get(span.clone()).unwrap_or_default() {
        b"" | b"null" | b"\"\"" => Arguments::Nothing,
        [b'"', ..] => Arguments::Text(span.start + 1..span.end - 1),
        _ => Arguments::Value(span),
    }
}

/// The choice that is looked at: the one that was before, else the first one, else any.
pub(super) fn choice_of<'a>(
    data: &'a [u8],
    spans: &[Span],
    known: Option<u64>,
) -> Option<Node<'a>> {
    let wanted = known.unwrap_or(0);
    let mut any = None;
    for choice in spans.iter().filter_map(|span| Node::at(data, span)) {
        if index_of(&choice) == wanted {
            return Some(choice);
        }
        any = any.or_else(|| known.is_none().then_some(choice));
    }
    any
}

pub(super) fn index_of(choice: &Node<'_>) -> u64 {
    choice.object.number("index").unwrap_or(0)
}

/// What a choice says, and whether it says something else under the other key besides.
pub(super) fn said_of<'a>(
    data: &'a [u8],
    choice: &Node<'a>,
    body: Body,
) -> (Option<Node<'a>>, bool) {
    let own = choice.child(data, body.key());
    let other = choice.child(data, body.other());
    let says = |node: &Option<Node<'a>>| {
        let members = node.as_ref().map(|node| node.object.members());
        members.is_some_and(|members| !members.is_empty())
    };
    match (says(&own), says(&other)) {
        (false, true) => (other, false),
        (both, also) => (own, both && also),
    }
}
