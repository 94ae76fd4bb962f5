//! The original texts of one unit of a Messages conversation, which a pass may replace by shorter
//! ones. Gives nothing if the text could not be put back in its form.

use std::borrow::Cow;

use plimsoll_model::raw::Object;

use super::block::{Block, BlockType, Unit, UnitForm};
use crate::message::ParsedCall;

/// The text of a unit: its blocks of text one after the other. `None` if there is none, or if a
/// block is something else; an answer's reasoning and calls are texts of their own.
pub fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let unit = Unit::read(bytes).ok()?;
    let answer = matches!(&unit.form, UnitForm::Message { role, .. } if role == "assistant");
    let mut texts = Vec::with_capacity(unit.blocks.len());
    for block in &unit.blocks {
        let apart = block.is_reasoning() || block.kind == BlockType::Call;
        if !(answer && apart) {
            texts.push(block.text()?);
        }
    }
    match texts.len() {
        // A result that is an empty string has a text: the empty one.
        0 if answer => None,
        1 => texts.pop(),
        _ => Some(Cow::Owned(texts.concat())),
    }
}

/// The blocks of a result that are pictures or documents; none of any other unit.
pub fn pictures(bytes: &[u8]) -> Vec<&[u8]> {
    let unit = Unit::read(bytes).ok();
    let result = unit.filter(|unit| matches!(unit.form, UnitForm::Result(_)));
    let blocks = result.into_iter().flat_map(|unit| unit.blocks);
    let pictures = blocks.filter(|block| {
        matches!(
            block.kind,
            BlockType::Image | BlockType::Document | BlockType::SearchResult
        )
    });
    pictures.map(|block| block.raw).collect()
}

/// The calls of a unit, in order.
pub fn calls(bytes: &[u8]) -> Vec<&[u8]> {
    let unit = Unit::read(bytes).ok();
    let calls = unit.iter().flat_map(Unit::calls);
    calls.map(|call| call.raw).collect()
}

/// A call, taken apart.
pub fn call(call: &[u8]) -> Option<ParsedCall<'_>> {
    Some(Block::read(call).ok()?.call())
}

/// The arguments of a call, if they are an object.
pub fn arguments(call: &[u8]) -> Option<Cow<'_, str>> {
    let input = Block::read(call).ok()?.member("input")?;
    Object::parse(input).ok()?;
    std::str::from_utf8(input).ok().map(Cow::Borrowed)
}

/// The text of an assistant's unit, without all else in it.
pub fn assistant_text(bytes: &[u8]) -> Option<String> {
    Some(Unit::read(bytes).ok()?.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn texts_are_read_from_strings_and_from_blocks() {
        for (unit, expect) in [
            (
                r#"{"type":"tool_result","tool_use_id":"a","content":"a\nb"}"#,
                Some("a\nb"),
            ),
            (
                r#"{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
                Some("ab"),
            ),
            (r#"{"type":"tool_result","tool_use_id":"a"}"#, Some("")),
            (
                r#"{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"image"}]}"#,
                None,
            ),
            (
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"x"},{"type":"tool_use"},{"type":"text","text":"y"}]}"#,
                Some("xy"),
            ),
            (
                r#"{"role":"assistant","content":[{"type":"tool_use"}]}"#,
                None,
            ),
            (
                r#"{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"server_tool_use"}]}"#,
                None,
            ),
            (r#"{"role":"user","content":"hi"}"#, Some("hi")),
            (r#""be brief""#, Some("be brief")),
            (
                r#"{"type":"text","text":"a"}, {"type":"text","text":"b"}"#,
                Some("ab"),
            ),
            ("7", None),
        ] {
            assert_eq!(text(unit.as_bytes()).as_deref(), expect, "{unit}");
        }
    }

    #[test]
    fn what_is_no_text_is_named_where_it_stood() {
        let unit = br#"{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","data":"AA"}},{"type":"tool_reference","tool_name":"x"}]}"#;
        let want = "a[an image][an attachment of 41 bytes]";
        assert_eq!(Dialect::Messages.parts(unit).as_deref(), Some(want));
    }

    #[test]
    fn calls_and_reasoning_are_read_in_their_order() {
        let unit = br#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"a","name":"x","input":{"k": 1}},{"type":"tool_use","id":"b","name":"y"}]}"#;
        let of = |call: &&[u8]| Dialect::Messages.written(call).unwrap();
        let calls = calls(unit);
        let written: Vec<String> = calls.iter().map(of).collect();
        assert_eq!(written, [r#"x {"k": 1}"#, "y {}"]);
        let of: Vec<_> = calls.into_iter().map(arguments).collect();
        assert_eq!(of, [Some(r#"{"k": 1}"#.into()), None]);
        assert_eq!(Dialect::Messages.reasoning(unit).as_deref(), Some("hm"));
        assert_eq!(assistant_text(unit).as_deref(), Some(""));
    }
}
