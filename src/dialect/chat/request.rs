//! The body of a chat request: where its messages, its tools and the few fields lie that decide
//! how it is served. Never judges what only the upstream can judge.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::dialect::request::{
    Layout, Limit, Refers, Request, RequestError, Unmanaged, asks_for_json,
};
use crate::dialect::stream::{Echo, UsageWish};
use crate::model::Dialect;
use crate::model::raw::{self, Edit, Object};

/// Reads a body.
///
/// # Errors
/// [`RequestError`] where the body is no object with an array of messages.
pub fn decode(body: Bytes) -> Result<Request, RequestError> {
    const MISSING: RequestError = RequestError::Missing {
        field: "messages",
        form: "an array of message objects",
    };
    let (object, messages) = Object::parse_with_array(&body, "messages")?;
    let messages = messages.ok_or(MISSING)?;
    if object.has_duplicates() {
        return Err(RequestError::DuplicateKey);
    }
    let messages_span = object.get("messages").ok_or(MISSING)?;
    let (tools, tool_names) = tools(&object);
    let limit = ["max_completion_tokens", "max_tokens"]
        .into_iter()
        .find_map(|field| {
            object.number(field).map(|tokens| Limit {
                field,
                tokens,
                least: 1,
            })
        });
    // Guidance on top of no message at all would make a request of what is none.
    let unmanaged = match (object.number("n"), messages.is_empty()) {
        (Some(2..), _) => Some(Unmanaged::N),
        (_, true) => Some(Unmanaged::Empty),
        (Some(0 | 1) | None, false) => None,
    };
    Ok(Request {
        dialect: Dialect::Chat,
        model: object.text("model").unwrap_or_default().into_owned(),
        messages,
        messages_span,
        tools,
        tool_names,
        stream: object.raw("stream") == Some(b"true"),
        usage_wish: usage_wish(&object),
        limit,
        hint: object.text("prompt_cache_key").map(Cow::into_owned),
        unmanaged,
        refers: Refers::default(),
        structured: asks_for_json(object.present("response_format")),
        one_call: object.raw("parallel_tool_calls") == Some(b"false"),
        stored: false,
        layout: Layout::Flat,
        echo: Echo::default(),
        body: body.clone(),
    })
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

fn usage_wish(object: &Object<'_>) -> UsageWish {
    let Some(raw) = object.present("stream_options") else {
        return UsageWish::Added;
    };
    // What is no object is wrong, and stays so: the upstream says it better.
    let Ok(options) = Object::parse(raw) else {
        return UsageWish::Refused;
    };
    match options.present("include_usage") {
        Some(b"true") => UsageWish::Asked,
        Some(_) => UsageWish::Refused,
        None => UsageWish::Added,
    }
}

/// The edit that asks for the usage chunk and leaves the client's other stream options alone.
#[must_use]
pub fn ask_usage(object: &Object<'_>) -> Edit {
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
