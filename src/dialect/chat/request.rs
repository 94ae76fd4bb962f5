//! The body of a chat request: where its messages, its tools and the few fields lie that decide
//! how it is served. Keeps the client's bytes; never judges what only the upstream can judge.

use std::ops::Range;

use bytes::Bytes;

use crate::model::Rope;
use crate::model::raw::{self, Edit, Object, RawError};

/// Why a body could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    /// The body is no JSON object.
    #[error("the request body could not be read: {0}")]
    Body(#[from] RawError),
    /// There is no array of messages.
    #[error("send `messages` as an array of message objects")]
    Messages,
    /// A key twice: parsers disagree on which one counts, so nothing may be edited.
    #[error("each key may stand once in a request")]
    DuplicateKey,
}

/// What the client wants to hear of usage in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeUsage {
    /// It asked for the usage chunk.
    Asked,
    /// It said nothing.
    Open,
    /// It said no.
    Refused,
}

/// A chat request: its bytes and where things lie in them.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client's bytes.
    pub body: Bytes,
    /// The model that is asked; empty where the field is missing.
    pub model: String,
    /// Where each message lies.
    pub messages: Vec<Range<usize>>,
    /// Where the array of messages lies, brackets included.
    pub messages_span: Range<usize>,
    /// Where the array of tools lies, if there is one with at least one tool.
    pub tools: Option<Range<usize>>,
    /// The names of the client's tools.
    pub tool_names: Vec<String>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// How many answers are asked for.
    pub n: u64,
    /// What the client wants to hear of usage.
    pub include_usage: IncludeUsage,
    /// The token limit of the answer with the name of its field.
    pub limit: Option<(&'static str, u64)>,
    /// The client's `prompt_cache_key`.
    pub cache_key: Option<String>,
}

impl Request {
    /// Reads a body.
    ///
    /// # Errors
    /// [`RequestError`] where the body is no object with an array of messages.
    pub fn decode(body: Bytes) -> Result<Self, RequestError> {
        let (object, messages) = Object::parse_with_array(&body, "messages")?;
        let messages = messages.ok_or(RequestError::Messages)?;
        if object.has_duplicates() {
            return Err(RequestError::DuplicateKey);
        }
        let messages_span = object.get("messages").ok_or(RequestError::Messages)?;
        let (tools, tool_names) = tools(&object);
        let limit = ["max_completion_tokens", "max_tokens"]
            .into_iter()
            .find_map(|field| object.number(field).map(|limit| (field, limit)));
        Ok(Self {
            model: object.text("model").unwrap_or_default().into_owned(),
            messages,
            messages_span,
            tools,
            tool_names,
            stream: object.raw("stream") == Some(b"true"),
            n: object.number("n").unwrap_or(1),
            include_usage: include_usage(&object),
            limit,
            cache_key: object
                .text("prompt_cache_key")
                .map(std::borrow::Cow::into_owned),
            body: body.clone(),
        })
    }

    /// The bytes of one message.
    #[must_use]
    pub fn message(&self, index: usize) -> &[u8] {
        self.messages
            .get(index)
            .and_then(|span| self.body.get(span.clone()))
            .unwrap_or_default()
    }

    /// The bytes of the tools array.
    #[must_use]
    pub fn tools_bytes(&self) -> Option<&[u8]> {
        self.tools.clone().and_then(|span| self.body.get(span))
    }

    /// The body with other messages, other tools and what the upstream must be told besides.
    /// Everything else keeps its bytes, and is shared with the client's body.
    #[must_use]
    pub fn with(&self, parts: Rewrite<'_>) -> Rope {
        let mut edits: Vec<Edit> = Vec::new();
        if let (Some(span), Some(tools)) = (self.tools.clone(), parts.tools) {
            edits.push((span, Bytes::copy_from_slice(tools)));
        }
        // The walk was made once already; only requests that need more edits pay for another.
        if (parts.ask_usage || parts.limit.is_some())
            && let Ok(object) = Object::parse(&self.body)
        {
            if parts.ask_usage {
                edits.push(ask_usage(&object));
            }
            if let (Some((field, _)), Some(limit)) = (self.limit, parts.limit) {
                edits.push(object.set(field, limit.to_string().as_bytes()));
            }
        }
        edits.sort_by_key(|(span, _)| span.start);
        let span = &self.messages_span;
        let (before, after): (Vec<Edit>, Vec<Edit>) = edits
            .into_iter()
            .partition(|(edit, _)| edit.end <= span.start);
        let mut rope = Rope::default();
        self.share(&mut rope, 0..span.start, before);
        rope.append(parts.messages);
        self.share(&mut rope, span.end..self.body.len(), after);
        rope
    }

    /// Appends a part of the body with edits in order.
    fn share(&self, rope: &mut Rope, part: Range<usize>, edits: Vec<Edit>) {
        let mut done = part.start;
        for (span, new) in edits {
            rope.share(self.body.slice(done.min(span.start)..span.start));
            rope.share(new);
            done = span.end;
        }
        rope.share(self.body.slice(done.min(part.end)..part.end));
    }
}

/// What replaces parts of a body.
#[derive(Debug)]
pub struct Rewrite<'a> {
    /// The messages array, brackets included.
    pub messages: Rope,
    /// The tools array, where it differs from the client's.
    pub tools: Option<&'a [u8]>,
    /// Whether to ask for the usage chunk of a stream.
    pub ask_usage: bool,
    /// A new token limit of the answer.
    pub limit: Option<u64>,
}

fn tools(object: &Object<'_>) -> (Option<Range<usize>>, Vec<String>) {
    let Some(span) = object.get("tools") else {
        return (None, Vec::new());
    };
    let Some(raw) = object.present("tools") else {
        return (None, Vec::new());
    };
    let Ok(elements) = raw::array(raw) else {
        return (None, Vec::new());
    };
    if elements.is_empty() {
        return (None, Vec::new());
    }
    let names = elements
        .into_iter()
        .filter_map(|element| raw.get(element))
        .map(tool_name);
    (Some(span), names.collect())
}

fn tool_name(raw: &[u8]) -> String {
    let name = |object: &Object<'_>| object.text("name").map(std::borrow::Cow::into_owned);
    let Ok(tool) = Object::parse(raw) else {
        return String::new();
    };
    ["function", "custom"]
        .into_iter()
        .find_map(|kind| tool.raw(kind).and_then(|inner| Object::parse(inner).ok()))
        .and_then(|inner| name(&inner))
        .or_else(|| name(&tool))
        .unwrap_or_default()
}

fn include_usage(object: &Object<'_>) -> IncludeUsage {
    let Some(raw) = object.present("stream_options") else {
        return IncludeUsage::Open;
    };
    // What is no object is wrong, and stays so: the upstream says it better.
    let Ok(options) = Object::parse(raw) else {
        return IncludeUsage::Refused;
    };
    match options.present("include_usage") {
        Some(b"true") => IncludeUsage::Asked,
        Some(_) => IncludeUsage::Refused,
        None => IncludeUsage::Open,
    }
}

/// The edit that asks for the usage chunk and leaves the client's other stream options alone.
fn ask_usage(object: &Object<'_>) -> Edit {
    let options = object
        .present("stream_options")
        .and_then(|raw| Object::parse(raw).ok());
    match (options, object.get("stream_options")) {
        (Some(options), Some(span)) => {
            let (at, new) = options.set("include_usage", b"true");
            (raw::shift(&at, span.start), new)
        }
        _ => object.set("stream_options", br#"{"include_usage":true}"#),
    }
}
