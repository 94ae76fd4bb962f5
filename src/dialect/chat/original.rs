//! The original texts of one chat message, read for what a pass leaves of them: a result, a call's
//! arguments, what was said. Gives nothing where the text could not be put back in its form.

use std::borrow::Cow;

use crate::model::raw::{self, Object};

/// The text of a message: its string, or its parts of text one after the other. `None` where there
/// is none, or where a part is something else.
#[must_use]
pub fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let object = Object::parse(bytes).ok()?;
    let content = object.raw("content")?;
    if content.first() == Some(&b'"') {
        return raw::string(content);
    }
    let mut whole = String::new();
    for span in raw::array(content).ok()? {
        let part = Object::parse(content.get(span)?).ok()?;
        whole.push_str(&part.text("text")?);
    }
    Some(Cow::Owned(whole))
}

/// The arguments of the call at this index, where they are a string of a function's.
#[must_use]
pub fn arguments(bytes: &[u8], call: usize) -> Option<Cow<'_, str>> {
    let object = Object::parse(bytes).ok()?;
    let calls = object.raw("tool_calls")?;
    let span = raw::array(calls).ok()?.into_iter().nth(call)?;
    let call = Object::parse(calls.get(span)?).ok()?;
    let function = Object::parse(call.raw("function")?).ok()?;
    raw::string(function.raw("arguments")?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn arguments_are_read_where_they_are_a_string() {
        let message = br#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"k\":1}"}},{"id":"b","custom":{}},{"id":"c","function":{"arguments":{}}}]}"#;
        let of = |call| arguments(message, call);
        assert_eq!(of(0).as_deref(), Some(r#"{"k":1}"#));
        assert_eq!([of(1), of(2), of(3)], [None, None, None]);
    }
}
