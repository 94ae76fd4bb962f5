//! Tests of `guard`.

use super::*;

fn guard(dialect: Dialect) -> Guard {
    let hidden = ["delimiter", "recall"].into_iter().collect();
    let mut guard = Guard::new(dialect, &hidden);
    guard.note(br#"{"id":"call_hidden","call_id":"c1"}"#);
    guard
}

#[test]
fn calls_are_found_wherever_they_stand() {
    let guard = guard(Dialect::Responses);
    for json in [
        r#"{"name":"delimiter"}"#,
        r#" [ { "x" : [ { "Name" :  "recall" } ] } ] "#,
        r#"{"\u006eame":"\u0064elimiter"}"#,
        r#"{"name":"delimiter","name":"x"}"#,
        r#"{"name":"Delimiter"}"#,
        r#"{"name":" functions.delimiter"}"#,
        r#"{"name":"delimiter","server_label":null}"#,
        r#"{"server_label":"s","x":{"name":"delimiter"}}"#,
        r#"{"arguments":{},"name":"recall"}"#,
    ] {
        assert!(guard.stops_json(json.as_bytes()), "{json}");
    }
}

#[test]
fn what_is_no_call_is_let_through() {
    let guard = guard(Dialect::Responses);
    for json in [
        r#"{"text":"\"name\":\"delimiter\"","x":"delimiter"}"#,
        r#"{"name":"delimiters"}"#,
        r#"{"name":"ls","arguments":{"name":"delimiter"},"input":{"a":[{"name":"recall"}]}}"#,
        r#"{"name":"delimiter","server_label":"s"}"#,
        r#"{"type":"mcp_list_tools","tools":[{"name":"delimiter"}]}"#,
        r#"{"name":["delimiter"],"x":{"name":null}}"#,
        "",
    ] {
        assert!(!guard.stops_json(json.as_bytes()), "{json}");
        assert!(!guard.stops_unread(json.as_bytes()), "{json}");
    }
    let chat = super::tests::guard(Dialect::Chat);
    assert!(chat.stops_json(br#"{"name":"delimiter","server_label":"s"}"#));
}

#[test]
fn of_what_cannot_be_read_any_call_is_stopped() {
    let guard = guard(Dialect::Chat);
    for (bytes, stopped) in [
        ("{\"x\":NaN,\"name\":\"ls\"}", true),
        ("{\"x\":NaN,\"tool_calls\":[{", true),
        (
            "{\"x\":NaN,\"tool_calls\":[],\"function_call\": null}",
            false,
        ),
        (
            "{\"x\":NaN,\"content\":\"a \\\"name\\\":\\\"delimiter\\\"\"}",
            false,
        ),
        ("{\"x\":\"delimiter", true),
        ("delimiter", false),
        ("<p>call_hidden</p>", true),
        ("<p>c1</p>", false),
        ("\"unended \\", false),
    ] {
        assert_eq!(guard.stops_unread(bytes.as_bytes()), stopped, "{bytes}");
    }
}

#[test]
fn a_name_may_only_have_begun() {
    let guard = guard(Dialect::Chat);
    for (json, begins, goes_on) in [
        (r#"{"name":"deli"}"#, true, true),
        (r#"{"name":"miter"}"#, false, true),
        (r#"{"name":""}"#, false, false),
        (r#"{"name":"read"}"#, false, true),
    ] {
        let stops = |behind| guard.stops_piece(json.as_bytes(), &[], behind);
        assert_eq!((stops(false), stops(true)), (begins, goes_on), "{json}");
    }
    let seen_to = guard.stops_piece(br#"{"name":"deli"}"#, &[8], true);
    assert!(!seen_to);
}

#[test]
fn nothing_is_stopped_where_nothing_is_hidden() {
    let guard = Guard::new(Dialect::Chat, &Names::default());
    let call = br#"{"name":"delimiter"}"#;
    assert!(!guard.stops_json(call) && !guard.stops_unread(b"\"name\":\"x"));
    assert!(!guard.stops_piece(call, &[], true));
}
