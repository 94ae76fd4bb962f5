//! Units taken apart: who speaks, what is counted, and what is canonical.

use std::borrow::Cow;

use plimsoll_model::{Digest, Role};

use crate::message::{MessageError, Part};
use crate::messages::message::{canonical_of_answer, parse};

fn digest(unit: &str) -> Digest {
    parse(unit.as_bytes()).unwrap().canonical
}

#[test]
fn a_unit_tells_who_speaks() {
    let reminder = r#"{"type":"text","text":"<system-reminder>\nx"}"#;
    let mixed = format!(r#"{reminder} , {{"type":"text","text":"x"}}"#);
    for (unit, role) in [
        (r#""s""#, Role::System),
        (r#"[{"type":"text","text":"s"}]"#, Role::System),
        (r#"{"role":"system","content":[]}"#, Role::System),
        (
            r#"{"role":"user","content":"<system-reminder>x"}"#,
            Role::User,
        ),
        (r#"{"role":"assistant","content":[]}"#, Role::Assistant),
        (r#"{"role":"tutor","content":"x"}"#, Role::Other),
        (r#"{"type":"tool_result","tool_use_id":"a"}"#, Role::Tool),
        (r#"{"type":"text","text":"x"}"#, Role::User),
        (reminder, Role::Other),
        (mixed.as_str(), Role::User),
        (r#"{"type":"image"}"#, Role::User),
        (r#"{"type":"of_tomorrow","role_of":1}"#, Role::User),
    ] {
        assert_eq!(parse(unit.as_bytes()).unwrap().role, role, "{unit}");
    }
}

#[test]
fn what_clients_change_between_turns_is_not_canonical() {
    for (left, right) in [
        (
            r#"{"role":"user","content":"hi"}"#,
            r#"{"content":[{"cache_control":{"type":"ephemeral"},"text":"hi","type":"text"}],"role":"user"}"#,
        ),
        (
            r#"{"role":"system","content":"x"}"#,
            r#"{"role":"system","content":[{"type":"text","text":"x"}],"output_config":{"effort":"low"}}"#,
        ),
        (
            r#"{"type":"tool_result","tool_use_id":"a","content":"x"}"#,
            r#"{"tool_use_id":"a","is_error":false,"type":"tool_result","content":[{"type":"text","text":"x"}],"cache_control":{}}"#,
        ),
        (
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"tool_use","id":"i","name":"n","input":{"b":1.0,"a":[1e3]}}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"ab"},{"type":"tool_use","id":"i","name":"n","input":{ "a":[1000],"b":1},"cache_control":{}}]}"#,
        ),
        (
            r#"{"role":"assistant","content":"x"}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"text","text":""}]}"#,
        ),
        (
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n","input":{}}]}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n"}]}"#,
        ),
    ] {
        assert_eq!(digest(left), digest(right), "{left} / {right}");
    }
}

#[test]
fn what_was_said_is_canonical() {
    let answer = r#"{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"i","name":"n","input":{}}]}"#;
    let result = r#"{"type":"tool_result","tool_use_id":"i","content":"x","is_error":false}"#;
    for (base, from, to) in [
        (answer, "\"x\"", "\"y\""),
        (answer, "\"i\"", "\"j\""),
        (answer, "\"n\"", "\"m\""),
        (answer, "{}", "{\"k\":1}"),
        (result, "\"x\"", "\"y\""),
        (result, "\"i\"", "\"j\""),
        (result, "false", "true"),
    ] {
        assert_ne!(
            digest(base),
            digest(&base.replacen(from, to, 1)),
            "{from} -> {to}"
        );
    }
    let handed = canonical_of_answer("x", &parse(answer.as_bytes()).unwrap().calls);
    assert_eq!(handed, digest(answer));
    let chat = crate::chat::message::canonical_of_answer("x", &[]);
    assert_ne!(chat, canonical_of_answer("x", &[]));
}

#[test]
fn a_call_without_arguments_comes_back_with_an_empty_object() {
    let back = parse(
        br#"{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n","input":{}}]}"#,
    )
    .unwrap();
    let mut calls =
        parse(br#"{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n"}]}"#)
            .unwrap()
            .calls;
    for streamed in ["", "{}", " {} ", "{\"cut"] {
        calls[0].arguments = Cow::Borrowed(streamed);
        assert_eq!(
            canonical_of_answer("", &calls),
            back.canonical,
            "{streamed}"
        );
    }
}

#[test]
fn reasoning_is_counted_by_its_text_or_by_what_seals_it() {
    let unit = br#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"ssss"},{"type":"thinking","thinking":"","signature":"12345678"},{"type":"redacted_thinking","data":"1234"},{"type":"text","text":"x"}]}"#;
    let parsed = parse(unit).unwrap();
    assert_eq!(parsed.reasoning, ["hm"]);
    // With the quotes around it.
    assert_eq!(parsed.sealed, 10 + 6);
    assert_eq!(parsed.parts, [Part::Text("x".into())]);
    assert!(!parsed.opaque);
}

#[test]
fn what_may_not_be_edited_is_opaque() {
    let answer = |block: &str| format!(r#"{{"role":"assistant","content":[{block}]}}"#);
    let result =
        |block: &str| format!(r#"{{"type":"tool_result","tool_use_id":"a","content":[{block}]}}"#);
    for (unit, opaque) in [
        (answer(r#"{"type":"text","text":"x"}"#), false),
        (answer(r#"{"type":"server_tool_use","id":"a"}"#), true),
        (
            answer(r#"{"type":"web_search_tool_result","tool_use_id":"a"}"#),
            true,
        ),
        (answer(r#"{"type":"of_tomorrow"}"#), true),
        (
            answer(r#"{"type":"tool_use","id":"a","caller":{"type":"direct"}}"#),
            false,
        ),
        (
            answer(r#"{"type":"tool_use","id":"a","caller":{"type":"code_execution_20250825"}}"#),
            true,
        ),
        (result(r#"{"type":"text","text":"x"}"#), false),
        (result(r#"{"type":"image","source":{}}"#), false),
        (result(r#"{"type":"tool_reference","tool_name":"x"}"#), true),
    ] {
        assert_eq!(parse(unit.as_bytes()).unwrap().opaque, opaque, "{unit}");
    }
}

#[test]
fn contents_are_counted_as_what_they_are() {
    let picture =
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}"#;
    let elsewhere = r#"{"type":"image","source":{"type":"url","url":"https://x.test/a.png"}}"#;
    let text =
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain"}}"#;
    let inner = r#"{"type":"document","source":{"type":"content","content":[{"type":"text","text":"in"}]}}"#;
    let pdf = r#"{"type":"document","source":{"type":"base64","data":"JVBE"}}"#;
    let found = r#"{"type":"search_result","source":"src","title":"t","content":[{"type":"text","text":"c"}]}"#;
    let quoted = |text: &'static str| Part::Quoted(Cow::Borrowed(text));
    for (block, want) in [
        (picture, vec![Part::Picture("QUJD".into())]),
        (elsewhere, vec![Part::Picture("".into())]),
        (text, vec![quoted("plain")]),
        (inner, vec![quoted("in")]),
        (pdf, vec![Part::Other(pdf.as_bytes())]),
        (found, vec![quoted("t"), quoted("src"), quoted("c")]),
    ] {
        let unit = format!(r#"{{"type":"tool_result","tool_use_id":"a","content":[{block}]}}"#);
        assert_eq!(parse(unit.as_bytes()).unwrap().parts, want, "{block}");
    }
}

#[test]
fn unreadable_units_are_errors_not_panics() {
    for (bad, error) in [
        (r#"{"content":"x"}"#, MessageError::Field("role")),
        (
            r#"{"role":"user","role":"user"}"#,
            MessageError::DuplicateKey,
        ),
        (
            r#"{"role":"user","content":7}"#,
            MessageError::Field("content"),
        ),
        (
            r#"{"role":"user","content":["x"]}"#,
            MessageError::Field("content"),
        ),
        (
            r#"{"role":"user","content":"\ud800"}"#,
            MessageError::Field("text"),
        ),
        (
            r#"{"role":"user","content":[{"type":"text"}]}"#,
            MessageError::Field("text"),
        ),
        (
            r#"{"role":"assistant","content":[{"type":"text","text":"a","text":"b"}]}"#,
            MessageError::DuplicateKey,
        ),
        (
            r#"{"type":"tool_result","content":"x"}"#,
            MessageError::Field("tool_use_id"),
        ),
    ] {
        assert_eq!(parse(bad.as_bytes()).unwrap_err(), error, "{bad}");
    }
    for bad in ["", "3", "{", r#"{"type":"text"},"#, "{},7"] {
        assert!(parse(bad.as_bytes()).is_err(), "{bad}");
    }
}
