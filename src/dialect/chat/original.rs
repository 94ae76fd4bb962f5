//! The original texts of one chat message, which a pass may replace by shorter ones: a result, a
//! call's arguments, the text. Gives nothing if the text could not be put back in its form.

use std::borrow::Cow;

use super::message;
use crate::dialect::json;
use crate::dialect::message::Part;
use crate::model::raw::{self, Object};

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

/// The arguments of the call at this index, if they are a function's string.
#[must_use]
pub fn arguments(bytes: &[u8], call: usize) -> Option<Cow<'_, str>> {
    let object = Object::parse(bytes).ok()?;
    let call = json::elements(object.raw("tool_calls")?).nth(call)?;
    let call = Object::parse(call).ok()?;
    let function = Object::parse(call.raw("function")?).ok()?;
    raw::string(function.raw("arguments")?)
}

/// The text of an assistant message, without all else in it.
#[must_use]
pub fn assistant_text(bytes: &[u8]) -> Option<String> {
    let parsed = message::parse(bytes).ok()?;
    let texts = parsed.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_ref()),
        Part::Image { .. } | Part::Picture(_) | Part::Other(_) => None,
    });
    Some(texts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Dialect;

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
        let of = |place| Dialect::Chat.call(message, place);
        assert_eq!(of(0).as_deref(), Some("x {\"k\":1}"));
        assert_eq!(of(1).as_deref(), Some("y free"));
        assert_eq!(of(2), None);
        assert_eq!(Dialect::Chat.reasoning(message).as_deref(), Some("hm"));
    }

    #[test]
    fn arguments_are_read_where_they_are_a_string() {
        let message = br#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"k\":1}"}},{"id":"b","custom":{}},{"id":"c","function":{"arguments":{}}}]}"#;
        let of = |call| arguments(message, call);
        assert_eq!(of(0).as_deref(), Some(r#"{"k":1}"#));
        assert_eq!([of(1), of(2), of(3)], [None, None, None]);
    }
}
