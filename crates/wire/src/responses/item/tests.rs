//! Tests of `item`.

use super::*;

#[test]
fn items_are_told_apart_by_type() {
    let table = [
        (r#"{"role":"user"}"#, ItemType::Message(Role::User)),
        (
            r#"{"type":"message","role":"developer"}"#,
            ItemType::Message(Role::System),
        ),
        (r#"{"role":"critic"}"#, ItemType::Message(Role::Other)),
        (r#"{"type": "reasoning","id":"rs_1"}"#, ItemType::Reasoning),
        (
            r#"{"type":"item_reference","id":"rs_1"}"#,
            ItemType::Reasoning,
        ),
        (r#"{"type":"item_reference","id":"msg_1"}"#, ItemType::Fixed),
        (r#"{"type":"function_call"}"#, ItemType::Call),
        (r#"{"type":"custom_tool_call"}"#, ItemType::Call),
        (r#"{"type":"shell_call","call_id":"c"}"#, ItemType::Call),
        (
            r#"{"type":"tool_search_call","call_id":null}"#,
            ItemType::Fixed,
        ),
        (r#"{"type":"web_search_call","id":"ws_1"}"#, ItemType::Fixed),
        (r#"{"type":"function_call_output"}"#, ItemType::Result),
        (
            r#"{"type":"computer_call_output","call_id":"c"}"#,
            ItemType::Result,
        ),
        (r#"{"type":"tool_search_output"}"#, ItemType::Fixed),
        (r#"{"type":"mcp_list_tools"}"#, ItemType::Fixed),
        (r#"{"type":"mcp_approval_response"}"#, ItemType::Unknown),
        (r#"{"type":"compaction"}"#, ItemType::Unknown),
        (r#"{"type":"compaction_trigger"}"#, ItemType::Trigger),
        (r#"{"type":"additional_tools","tools":[]}"#, ItemType::Tools),
        (r#"{"tools":[],"type":"additional_tools"}"#, ItemType::Tools),
        (r#"{"type":7}"#, ItemType::Message(Role::Other)),
    ];
    for (json, kind) in table {
        assert_eq!(
            ResponsesItem::read(json.as_bytes()).unwrap().kind,
            kind,
            "{json}"
        );
        assert_eq!(ItemType::peek(json.as_bytes()).0, kind, "{json}");
    }
    assert_eq!(ItemType::peek(b"7"), (ItemType::Unknown, None));
}

#[test]
fn texts_outside_the_items_are_told_apart() {
    assert!(matches!(read(br#""a \" b""#), Ok(Unit::Input(text)) if text == "a \" b"));
    let unit = br#""instructions" : "be \"brief\"""#;
    match read(unit).unwrap() {
        Unit::Instructions(text, span) => {
            assert_eq!(text, "be \"brief\"");
            assert_eq!(&unit[span], br#""be \"brief\"""#);
        }
        other => panic!("{other:?}"),
    }
    for bad in [
        &br#""instructions":7"#[..],
        br#""else":"x""#,
        br#""\ud800""#,
    ] {
        assert!(read(bad).is_err());
    }
}

#[test]
fn only_the_items_of_an_answer_make_a_run() {
    let run = br#"{"type":"reasoning"} , {"type":"function_call"}"#;
    assert_eq!(items(run).unwrap().len(), 2);
    for bad in [
        &br#"{"type":"function_call"},{"type":"function_call_output"}"#[..],
        b"",
        b"7",
        br#"{"type":"a","type":"b"}"#,
    ] {
        assert!(items(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}
