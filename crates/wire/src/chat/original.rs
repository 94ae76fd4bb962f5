//! The original texts of one chat message, which a pass may replace by shorter ones: a result, a
//! call's arguments, the text. Gives nothing if the text could not be put back in its form.

use std::borrow::Cow;

use plimsoll_model::raw::{self, Object};

use super::message;
use crate::json;
use crate::message::{ParsedCall, Part};

/// The text of a message: its string, or its parts of text one after the other. `None` if there is
/// none, or if a part is something else.
#[must_use]
pub fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let object = Object::parse(bytes).ok()?;
    let content = object.raw("content")?;
    if content.first() == Some(&b'"') {
        return raw::string(content);
    }
    let mut whole = String::new();
    for part in json::array(content)? {
        whole.push_str(&Object::parse(part).ok()?.text("text")?);
    }
    Some(Cow::Owned(whole))
}

/// The parts of a result that are no text; none of any other message.
#[must_use]
pub fn pictures(bytes: &[u8]) -> Vec<&[u8]> {
    let object = Object::parse(bytes).ok();
    let result = object.filter(|object| object.text("role").as_deref() == Some("tool"));
    let content = result.and_then(|object| object.present("content"));
    let parts = json::objects(content.unwrap_or_default());
    let pictures = parts.filter(|part| part.text("type").as_deref() != Some("text"));
    pictures.map(|part| part.bytes()).collect()
}

/// The calls of a message, in order.
#[must_use]
pub fn calls(bytes: &[u8]) -> Vec<&[u8]> {
    let object = Object::parse(bytes).ok();
    let calls = object.and_then(|object| object.present("tool_calls"));
    json::elements(calls.unwrap_or_default()).collect()
}

/// A call, taken apart.
#[must_use]
pub fn call(call: &[u8]) -> Option<ParsedCall<'_>> {
    message::call(call).ok()
}

/// The arguments of a call, if they are a function's string.
#[must_use]
pub fn arguments(call: &[u8]) -> Option<Cow<'_, str>> {
    let function = Object::parse(call).ok()?.child("function")?;
    raw::string(function.raw("arguments")?)
}

/// The text of an assistant message, without all else in it.
#[must_use]
pub fn assistant_text(bytes: &[u8]) -> Option<String> {
    let parsed = message::parse(bytes).ok()?;
    let texts = parsed.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_ref()),
        Part::Quoted(_) | Part::Image { .. } | Part::Picture(_) | Part::Other(_) => None,
    });
    Some(texts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn texts_are_read_from_strings_and_from_parts() {
        for (message, expect) in [
            (r#"{"role":"tool","content":"a\nb"}"#, Some("a\nb")),
            (
                r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
                Some("ab"),
            ),
            (r#"{"content":[{"type":"image_url","image_url":{}}]}"#, None),
            (r#"{"content":null}"#, None),
            (r#"{"role":"tool"}"#, None),
        ] {
            assert_eq!(text(message.as_bytes()).as_deref(), expect, "{message}");
        }
    }

    #[test]
    fn what_is_no_text_is_named_where_it_stood() {
        let message = br#"{"role":"tool","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}},{"type":"file"}]}"#;
        let want = "a[an image][an attachment of 15 bytes]";
        assert_eq!(Dialect::Chat.parts(message).as_deref(), Some(want));
    }

    #[test]
    fn calls_are_read_whatever_their_form() {
        let message = br#"{"role":"assistant","reasoning_content":"hm","tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"k\":1}"}},{"id":"b","custom":{"name":"y","input":"free"}}]}"#;
        let of = |call| Dialect::Chat.written(call).unwrap();
        let calls: Vec<String> = calls(message).into_iter().map(of).collect();
        assert_eq!(calls, ["x {\"k\":1}", "y free"]);
        assert_eq!(Dialect::Chat.reasoning(message).as_deref(), Some("hm"));
    }

    #[test]
    fn arguments_are_read_where_they_are_a_string() {
        let message = br#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"k\":1}"}},{"id":"b","custom":{}},{"id":"c","function":{"arguments":{}}}]}"#;
        let calls = calls(message);
        let of: Vec<_> = calls.into_iter().map(arguments).collect();
        assert_eq!(of, [Some(r#"{"k":1}"#.into()), None, None]);
    }
}
