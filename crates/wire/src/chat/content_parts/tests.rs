//! Tests of `content_parts`.

use super::*;
use crate::edit::Cut as Front;

const MESSAGE: &str = r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}, {"type":"text","text":"one\n\ntwo"}],"x":1}"#;

#[track_caller]
fn check(message: &str, edit: &AssistantEdit<'_>, want: &str) {
    let object = Object::parse(message.as_bytes()).unwrap();
    let mut edits = edits(&object, edit);
    edits.sort_by_key(|(span, _)| span.start);
    let got = raw::splice(message.as_bytes(), &edits);
    let object = Object::parse(&got).unwrap();
    let content = String::from_utf8_lossy(object.raw("content").unwrap());
    assert_eq!(content, want, "{message}");
}

#[test]
fn reasoning_in_parts_goes_and_stays_as_reasoning_does() {
    let thinking = r#"{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}"#;
    let text = r#"{"type":"text","text":"one\n\ntwo"}"#;
    let edit = |drop_text, drop_reasoning| AssistantEdit {
        drop_text,
        drop_reasoning,
        ..AssistantEdit::default()
    };
    check(
        MESSAGE,
        &edit(false, false),
        &format!("[{thinking}, {text}]"),
    );
    check(MESSAGE, &edit(false, true), &format!("[{text}]"));
    check(MESSAGE, &edit(true, false), &format!("[{thinking}]"));
    check(MESSAGE, &edit(true, true), "null");
    let foreign = AssistantEdit {
        foreign: true,
        ..AssistantEdit::default()
    };
    check(MESSAGE, &foreign, &format!("[{text}]"));
    let front = |text| AssistantEdit {
        cut: Front {
            text,
            hops: Vec::new(),
        },
        ..AssistantEdit::default()
    };
    let two = r#"{"type":"text","text":"two"}"#;
    check(MESSAGE, &front("one\n\n"), &format!("[{thinking}, {two}]"));
    check(MESSAGE, &front("one\n\ntwo"), &format!("[{thinking}]"));
    let alone = r#"{"content":[{"type":"text","text":"a"}]}"#;
    check(alone, &front("a"), "null");
}

#[test]
fn pieces_of_thinking_make_one_part() {
    let mut thinking = Thinking::default();
    for piece in [
        r#"{"type":"thinking","thinking":[{"type":"text","text":"a\n"}]}"#,
        r#"{"type":"thinking","thinking":[{"type":"text","text":"b"},{"type":"reference","ids":[1]}],"closed":false}"#,
        r#"{"type":"thinking","thinking":[{"type":"text","text":""}],"closed":true}"#,
    ] {
        thinking.absorb(&Object::parse(piece.as_bytes()).unwrap());
    }
    assert_eq!(
        thinking.part(),
        r#"{"type":"thinking","thinking":[{"type":"text","text":"a\nb"},{"type":"reference","ids":[1]}],"closed":true}"#
    );
    let mut plain = Thinking::default();
    plain.absorb(&Object::parse(br#"{"type":"thinking","thinking":"a"}"#).unwrap());
    assert_eq!(plain.part(), r#"{"type":"thinking","thinking":"a"}"#);
}

#[test]
fn a_list_says_another_text() {
    let content = br#"[{"type":"thinking","thinking":"a"},{"type":"text","text":"b"},{"type":"x"},{"type":"text","text":"c"}]"#;
    assert_eq!(
        saying(content, "d"),
        r#"[{"type":"thinking","thinking":"a"},{"type":"x"},{"type":"text","text":"d"}]"#
    );
}
