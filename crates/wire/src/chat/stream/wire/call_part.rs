//! The parts of a chunk: the choice that is read, the object that holds what it says, and the calls
//! in that. It reads one chunk at a time and decides nothing about calls.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::Span;

use crate::json::{self, Node};

/// The members of a call that are the API's own.
const OWN_MEMBERS: [&str; 5] = ["index", "id", "type", "function", "custom"];

/// Under which key a choice says what it says. If it says nothing there, the other key is read.
#[derive(Clone, Copy)]
pub enum Body {
    /// A stream's chunk: `delta`.
    Delta,
    /// An unstreamed body: `message`.
    Message,
}

/// One element of `tool_calls`.
pub struct CallPart<'a> {
    /// Its place in the array.
    pub place: usize,
    pub index: Option<u64>,
    pub index_span: Option<Span>,
    /// Empty if absent or null.
    pub id: Cow<'a, str>,
    pub kind: Option<Cow<'a, str>>,
    /// Empty if absent or null.
    pub name: Cow<'a, str>,
    /// The place where the name begins.
    pub name_at: Option<usize>,
    /// Whether a name may stand where no reader looks for one.
    pub odd: bool,
    pub arguments: Arguments,
    /// Unknown fields as raw JSON.
    pub extra: Vec<(String, Bytes)>,
}

/// The arguments that one element brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// None, null, or an empty string.
    Nothing,
    /// The span between the quotes of a string.
    Text(Span),
    /// A value that is no string, which some servers send.
    Value(Span),
}

impl<'a> CallPart<'a> {
    pub fn read(data: &'a [u8], place: usize, span: &Span) -> Option<Self> {
        let node = Node::at(data, span)?;
        let index = node.object.number("index");
        let mut part = Self {
            place,
            index,
            index_span: index.and_then(|_| node.span("index")),
            id: node.object.text("id").unwrap_or_default(),
            kind: node.object.text("type").filter(|kind| !kind.is_empty()),
            name: Cow::default(),
            name_at: None,
            odd: is_cased(&node),
            arguments: Arguments::Nothing,
            extra: json::members(&node.object, |key| !OWN_MEMBERS.contains(&key)),
        };
        let mut holders = ["function", "custom"].into_iter();
        if let Some(function) = holders.find_map(|key| node.child(key)) {
            part.name = function.object.text("name").unwrap_or_default();
            part.name_at = function.span("name").map(|span| span.start);
            part.odd |= is_cased(&function);
            let value = function.span("arguments");
            let value = value.or_else(|| function.span("input"));
            part.arguments = value.map_or(Arguments::Nothing, |span| {
                match data.get(span.clone()).unwrap_or_default() {
                    b"" | b"null" | b"\"\"" => Arguments::Nothing,
                    [b'"', ..] => Arguments::Text(span.start + 1..span.end - 1),
                    _ => Arguments::Value(span),
                }
            });
        }
        part.odd |= part.name_at.is_none() && part.extra.iter().any(|(key, _)| key == "name");
        Some(part)
    }
}

/// Whether a key of the object has capital letters, which some clients overlook.
pub fn is_cased(node: &Node<'_>) -> bool {
    let cased = |key: &str| key.bytes().any(|byte| byte.is_ascii_uppercase());
    let mut members = node.object.members().iter();
    members.any(|member| cased(&member.key))
}

/// The choice that is read: the one that was read before, else the first, else any.
pub fn choice_of<'a>(data: &'a [u8], spans: &[Span], known: Option<u64>) -> Option<Node<'a>> {
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

pub fn index_of(choice: &Node<'_>) -> u64 {
    choice.object.number("index").unwrap_or(0)
}

/// The object that holds what a choice says, and whether the choice says something else under the
/// other key besides.
pub fn delta_of<'a>(choice: &Node<'a>, body: Body) -> (Option<Node<'a>>, bool) {
    let (key, other) = match body {
        Body::Delta => ("delta", "message"),
        Body::Message => ("message", "delta"),
    };
    let (own, other) = (choice.child(key), choice.child(other));
    let says = |node: &Option<Node<'a>>| {
        let members = node.as_ref().map(|node| node.object.members());
        members.is_some_and(|members| !members.is_empty())
    };
    match (says(&own), says(&other)) {
        (false, true) => (other, false),
        (both, also) => (own, both && also),
    }
}
