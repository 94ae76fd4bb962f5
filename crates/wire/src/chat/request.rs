//! The body of a chat request: where its messages, its tools and the few fields lie that decide
//! how it is served. Never judges what only the upstream can judge.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::{Edit, Object};

use super::hops::HOPS;
use crate::Dialect;
use crate::request_fields::{
    Limit, RequestError, RequestFields, Tools, Unmanaged, asks_for_json, tools, with_messages,
};
use crate::usage::UsageWish;

/// The members that may hold the token limit, the newer one first.
const LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Reads a body.
///
/// # Errors
/// [`RequestError`] if the body is no object with an array of messages.
pub fn decode(body: Bytes) -> Result<RequestFields, RequestError> {
    let (object, messages, messages_span) = with_messages(&body)?;
    let tools = declared(&object);
    let limit = |field| Limit::of(&object, field, &HOPS);
    // With guidance added, a request without any message would become a valid one.
    let unmanaged = match (object.number("n"), messages.spans.is_empty()) {
        (Some(2..), _) => Some(Unmanaged::N),
        (_, true) => Some(Unmanaged::Empty),
        (Some(0 | 1) | None, false) => None,
    };
    let fields = RequestFields::new(Dialect::Chat, &body, &object, messages.spans.iter());
    Ok(RequestFields {
        messages: messages.spans,
        objects: messages.objects,
        messages_span,
        tools,
        usage_wish: usage_wish(&object),
        limit: LIMITS.into_iter().find_map(limit),
        hint: object.text("prompt_cache_key").map(Cow::into_owned),
        unmanaged,
        structured: asks_for_json(object.present("response_format")),
        one_call: object.raw("parallel_tool_calls") == Some(b"false"),
        ..fields
    })
}

/// The client's tools. `functions` is the older form of `tools`: its calls have no ids, so it takes none
/// of ours.
fn declared(object: &Object<'_>) -> Tools {
    let mut all = tools(object, "tools", tool_name);
    let older = tools(object, "functions", tool_name);
    all.arrays.extend(older.arrays);
    all.names.extend(older.names);
    all
}

fn tool_name(tool: Object<'_>) -> String {
    let mut kinds = ["function", "custom"].into_iter();
    let inner = kinds.find_map(|kind| tool.child(kind));
    let name = inner.and_then(|inner| inner.text("name"));
    let name = name.or_else(|| tool.text("name"));
    name.unwrap_or_default().into_owned()
}

fn usage_wish(object: &Object<'_>) -> UsageWish {
    let Some(raw) = object.present("stream_options") else {
        return UsageWish::Added;
    };
    // Options that are no object are wrong and stay so: the upstream's error says it better.
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
pub fn ask_usage(object: &Object<'_>) -> Edit {
    object.set_within("stream_options", "include_usage", b"true")
}
