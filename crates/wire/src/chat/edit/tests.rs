//! Tests of `edit`.

use super::*;
use crate::edit::Cut;

fn hidden(place: usize, bytes: &str) -> Insert<'_> {
    Insert {
        place,
        bytes,
        ..Insert::default()
    }
}

const MESSAGE: &str = r#"{"role": "assistant","content":"one\n\ntwo", "reasoning_content":"hm" ,"tool_calls":[{"id":"a"}, {"id":"b"}],"x":1e3}"#;

#[track_caller]
fn check(edit: &AssistantEdit<'_>, expect: &str) {
    let got = assistant(MESSAGE.as_bytes(), edit).unwrap();
    assert_eq!(std::str::from_utf8(&got).unwrap(), expect);
}

#[test]
fn an_empty_edit_changes_no_byte() {
    check(&AssistantEdit::default(), MESSAGE);
}

#[test]
fn edits_touch_what_they_name_and_nothing_else() {
    check(
        &AssistantEdit {
            cut: Cut {
                text: "one\n\n",
                hops: Vec::new(),
            },
            insert: vec![hidden(1, r#"{"id":"h"}"#)],
            ..Default::default()
        },
        r#"{"role": "assistant","content":"two", "reasoning_content":"hm" ,"tool_calls":[{"id":"a"},{"id":"h"},{"id":"b"}],"x":1e3}"#,
    );
    check(
        &AssistantEdit {
            drop_text: true,
            drop_reasoning: true,
            keep_calls: Some(vec![false, true]),
            ..Default::default()
        },
        r#"{"role": "assistant","content":null, "tool_calls":[{"id":"b"}],"x":1e3}"#,
    );
    check(
        &AssistantEdit {
            text: Some("[a \"line\"]"),
            ..Default::default()
        },
        r#"{"role": "assistant","content":"[a \"line\"]", "reasoning_content":"hm" ,"tool_calls":[{"id":"a"}, {"id":"b"}],"x":1e3}"#,
    );
    check(
        &AssistantEdit {
            keep_calls: Some(vec![false, false]),
            ..Default::default()
        },
        r#"{"role": "assistant","content":"one\n\ntwo", "reasoning_content":"hm" ,"x":1e3}"#,
    );
    check(
        &AssistantEdit {
            keep_calls: Some(vec![false, false]),
            insert: vec![hidden(0, r#"{"id":"h"}"#), hidden(3, r#"{"id":"i"}"#)],
            ..Default::default()
        },
        r#"{"role": "assistant","content":"one\n\ntwo", "reasoning_content":"hm" ,"tool_calls":[{"id":"h"},{"id":"i"}],"x":1e3}"#,
    );
}

#[test]
fn arguments_are_replaced_in_place() {
    let message = r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b","function": {"name":"w", "arguments":"{\"long\":1}"},"x":1}]}"#;
    let edit = AssistantEdit {
        arguments: vec![(1, r#"{"l":"…"}"#)],
        ..Default::default()
    };
    assert_eq!(
        assistant(message.as_bytes(), &edit).unwrap(),
        r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b","function": {"name":"w", "arguments":"{\"l\":\"…\"}"},"x":1}]}"#
    );
}

fn signed(id: &str, signature: &str) -> String {
    let call = format!(r#"{{"id":"{id}","function":{{"name":"f","arguments":"{{}}"}}"#);
    match signature {
        "" => format!("{call}}}"),
        own => {
            format!(r#"{call},"extra_content":{{"google":{{"thought_signature":"{own}"}}}}}}"#)
        }
    }
}

fn message(calls: &[String]) -> String {
    let calls = calls.join(",");
    format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#)
}

#[track_caller]
fn edited(calls: &[String], edit: &AssistantEdit<'_>, want: &[String]) {
    let got = assistant(message(calls).as_bytes(), edit).unwrap();
    assert_eq!(std::str::from_utf8(&got).unwrap(), message(want));
}

#[test]
fn a_signature_goes_on_to_the_next_call_that_stays() {
    let keep = |keep: &[bool]| AssistantEdit {
        keep_calls: Some(keep.to_vec()),
        ..AssistantEdit::default()
    };
    let three = [signed("a", "S"), signed("b", ""), signed("c", "")];
    edited(
        &three,
        &keep(&[false, true, true]),
        &[signed("b", "S"), signed("c", "")],
    );
    edited(&three, &keep(&[false, false, true]), &[signed("c", "S")]);
    edited(
        &three,
        &keep(&[true, false, true]),
        &[signed("a", "S"), signed("c", "")],
    );
    let own = [signed("a", "S"), signed("b", "T"), signed("c", "")];
    edited(&own, &keep(&[false, true, true]), &own[1..]);
    edited(&own, &keep(&[false, false, true]), &[signed("c", "S")]);
    let bare = AssistantEdit {
        foreign: true,
        ..keep(&[false, true, true])
    };
    edited(&own, &bare, &[signed("b", ""), signed("c", "")]);
}

#[test]
fn a_hidden_call_takes_its_signature_back() {
    let hidden_call = signed("h", "S");
    let back = |foreign| AssistantEdit {
        insert: vec![Insert {
            foreign,
            ..hidden(0, &hidden_call)
        }],
        ..AssistantEdit::default()
    };
    // As the client has it, and as one has it that drops what it doesn't know.
    let want = [signed("h", "S"), signed("v", ""), signed("w", "")];
    edited(&[signed("v", "S"), signed("w", "")], &back(false), &want);
    edited(&[signed("v", ""), signed("w", "")], &back(false), &want);
    // What another provider's model signed goes only where the client sends it itself.
    edited(
        &[signed("v", "S")],
        &back(true),
        &[signed("h", "S"), signed("v", "")],
    );
    edited(
        &[signed("v", "")],
        &back(true),
        &[signed("h", ""), signed("v", "")],
    );
    // One that stays out leaves its signature.
    let out = |foreign| AssistantEdit {
        left_out: vec![Insert {
            foreign,
            ..hidden(0, &hidden_call)
        }],
        keep_calls: Some(vec![true, true]),
        ..AssistantEdit::default()
    };
    let two = [signed("v", ""), signed("w", "")];
    edited(&two, &out(false), &[signed("v", "S"), signed("w", "")]);
    edited(&two, &out(true), &two);
    // Both in one.
    let one_of_two = AssistantEdit {
        keep_calls: Some(vec![false, true]),
        ..back(false)
    };
    edited(
        &[signed("v", "S"), signed("w", "")],
        &one_of_two,
        &[signed("h", "S"), signed("w", "")],
    );
}

#[test]
fn empty_reasoning_is_nothing_to_evict() {
    let message = r#"{"role":"assistant","content":"x","reasoning_content":"","reasoning":""}"#;
    let edit = AssistantEdit {
        drop_reasoning: true,
        ..AssistantEdit::default()
    };
    assert_eq!(assistant(message.as_bytes(), &edit).unwrap(), message);
    let foreign = AssistantEdit {
        foreign: true,
        ..AssistantEdit::default()
    };
    let got = assistant(message.as_bytes(), &foreign).unwrap();
    assert_eq!(got, r#"{"role":"assistant","content":"x"}"#);
}

/// A message with these thinking blocks.
fn thinking(blocks: &str) -> String {
    format!(r#"{{"role":"assistant","content":"x","thinking_blocks":[{blocks}]}}"#)
}

const FIRST: &str = r#"{"type":"thinking","thinking":"hm","signature":"A"}"#;
const SEALED: &str = r#"{"type":"redacted_thinking","data":"B"}"#;
const LAST: &str = r#"{"type":"thinking", "thinking":"hm","signature":"C"}"#;

#[test]
fn thinking_blocks_go_with_the_thoughts() {
    let message = thinking(FIRST);
    for (drop_reasoning, foreign) in [(true, false), (false, true)] {
        let edit = AssistantEdit {
            drop_reasoning,
            foreign,
            ..AssistantEdit::default()
        };
        let got = assistant(message.as_bytes(), &edit).unwrap();
        assert_eq!(got, r#"{"role":"assistant","content":"x"}"#);
    }
}

#[test]
fn thinking_blocks_of_earlier_hops_go_with_these() {
    let earlier = thinking(&format!("{FIRST},{SEALED}"));
    let edit = AssistantEdit {
        joined: vec![&earlier],
        ..AssistantEdit::default()
    };
    let check = |blocks: &str, left: &str| {
        let got = assistant(thinking(blocks).as_bytes(), &edit).unwrap();
        assert_eq!(got, thinking(left), "{blocks}");
    };
    check(&format!("{FIRST},{SEALED},{LAST}"), LAST);
    check(LAST, LAST);
    let got = assistant(thinking(FIRST).as_bytes(), &edit).unwrap();
    assert_eq!(got, r#"{"role":"assistant","content":"x"}"#);
}

#[test]
fn text_in_parts_is_cut_in_its_first_part() {
    let parts = r#"{"role":"assistant","content":[{"type":"text","text":"ab"}]}"#;
    let edit = AssistantEdit {
        cut: Cut {
            text: "a",
            hops: Vec::new(),
        },
        ..Default::default()
    };
    assert_eq!(text_handed(parts.as_bytes(), "a"), Handed::Front);
    assert_eq!(
        assistant(parts.as_bytes(), &edit).unwrap(),
        r#"{"role":"assistant","content":[{"type":"text","text":"b"}]}"#
    );
}

#[test]
fn guidance_goes_behind_a_blank_line_or_as_a_part() {
    for (from, to) in [
        (
            r#"{"role":"system","content":"be\"brief"}"#,
            r#"{"role":"system","content":"be\"brief\n\nG"}"#,
        ),
        (
            r#"{"role":"system","content":[]}"#,
            r#"{"role":"system","content":[{"type":"text","text":"G"}]}"#,
        ),
        (
            r#"{"role":"developer","content":[{"type":"text","text":"x"} ]}"#,
            r#"{"role":"developer","content":[{"type":"text","text":"x"},{"type":"text","text":"G"} ]}"#,
        ),
    ] {
        assert_eq!(append_text(from.as_bytes(), "G").unwrap(), to);
    }
}

#[test]
fn a_result_is_replaced_in_place() {
    let bytes = br#"{"role":"tool","content":[{"type":"text","text":"big"}],"tool_call_id":"a"}"#;
    assert_eq!(
        result(bytes, "stub").unwrap(),
        r#"{"role":"tool","content":"stub","tool_call_id":"a"}"#
    );
}
