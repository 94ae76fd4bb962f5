//! The original texts of one unit of a Responses conversation, which a pass may replace by shorter
//! ones: a result, a call's arguments, the text. Gives nothing if the text could not be put back in
//! its form.

use std::borrow::Cow;

use plimsoll_model::raw;

use super::item::{self, ItemType, ResponsesItem};
use super::message;
use crate::json;
use crate::message::{ParsedCall, Part};

/// The text of a unit: its string, or its parts of text one after the other. `None` if there is
/// none, or if a part is something else.
pub fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let parts = message::parse(bytes).ok()?.parts;
    let mut whole = Cow::Borrowed("");
    for part in parts {
        let Part::Text(text) = part else { return None };
        if whole.is_empty() {
            whole = text;
        } else {
            whole.to_mut().push_str(&text);
        }
    }
    (!whole.is_empty()).then_some(whole)
}

/// The parts of a function's output that are no text; none of any other unit.
pub fn pictures(bytes: &[u8]) -> Vec<&[u8]> {
    let item = ResponsesItem::read(bytes).ok();
    let result = item.filter(|item| item.kind == ItemType::Result && item.takes_text());
    let output = result.and_then(|item| item.object.present("output"));
    let parts = json::objects(output.unwrap_or_default());
    let is_text = |kind: Option<Cow<'_, str>>| {
        matches!(kind.as_deref(), Some("input_text" | "output_text" | "text"))
    };
    let pictures = parts.filter(|part| part.get("type").is_some() && !is_text(part.text("type")));
    pictures.map(|part| part.bytes()).collect()
}

/// The calls of a unit, in order.
pub fn calls(bytes: &[u8]) -> Vec<&[u8]> {
    let items = item::items(bytes).unwrap_or_default().into_iter();
    let calls = items.filter(|item| item.kind == ItemType::Call);
    calls.map(|call| call.object.bytes()).collect()
}

/// A call, taken apart.
pub fn call(call: &[u8]) -> Option<ParsedCall<'_>> {
    Some(ResponsesItem::read(call).ok()?.call())
}

/// The arguments of a call, if they are a function's string.
pub fn arguments(call: &[u8]) -> Option<Cow<'_, str>> {
    raw::string(ResponsesItem::read(call).ok()?.object.raw("arguments")?)
}

/// The text of an assistant's unit, without refusals.
pub fn assistant_text(bytes: &[u8]) -> Option<String> {
    let items = item::items(bytes).ok()?;
    let said =
        |item: &ResponsesItem<'_>| matches!(item.kind, ItemType::Message(_)).then(|| item.said());
    Some(items.iter().filter_map(said).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn texts_are_read_from_strings_and_from_parts() {
        for (unit, expect) in [
            (
                r#"{"type":"function_call_output","call_id":"c","output":"a\nb"}"#,
                Some("a\nb"),
            ),
            (
                r#"{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}"#,
                Some("ab"),
            ),
            (
                r#"{"type":"reasoning"},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},{"type":"function_call"}"#,
                Some("ab"),
            ),
            (
                r#"{"role":"user","content":[{"type":"input_image","image_url":"data:,"}]}"#,
                None,
            ),
            (r#"{"type":"function_call","call_id":"c"}"#, None),
            (r#""instructions":"be brief""#, Some("be brief")),
            (r#""hi""#, Some("hi")),
        ] {
            assert_eq!(text(unit.as_bytes()).as_deref(), expect, "{unit}");
        }
    }

    #[test]
    fn what_is_no_text_is_named_where_it_stood() {
        let unit = br#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:,"},{"type":"file"}]}"#;
        let want = "a[an image][an attachment of 15 bytes]";
        assert_eq!(Dialect::Responses.parts(unit).as_deref(), Some(want));
    }

    const RUN: &[u8] = br#"{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"content":[{"type":"reasoning_text","text":"!"}]},{"role":"assistant","content":[{"type":"output_text","text":"x"},{"type":"refusal","refusal":"no"}]},{"type":"function_call","name":"f","arguments":"{\"k\":1}"},{"type":"custom_tool_call","name":"y","input":"free"},{"type":"shell_call","call_id":"c","action":{}}"#;

    #[test]
    fn calls_are_read_whatever_their_form() {
        let of = |call| Dialect::Responses.written(call).unwrap();
        let calls: Vec<String> = calls(RUN).into_iter().map(of).collect();
        assert_eq!(calls, ["f {\"k\":1}", "y free", "shell_call {}"]);
        assert_eq!(Dialect::Responses.reasoning(RUN).as_deref(), Some("hm!"));
        assert_eq!(assistant_text(RUN).as_deref(), Some("x"));
    }

    #[test]
    fn arguments_are_read_where_they_are_a_string() {
        let of: Vec<_> = calls(RUN).into_iter().map(arguments).collect();
        assert_eq!(of, [Some(r#"{"k":1}"#.into()), None, None]);
    }
}
