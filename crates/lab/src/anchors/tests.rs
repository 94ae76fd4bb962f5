//! Tests of `anchors`.

use crate::message_text::TextPart;
use serde_json::{Value, json};

use super::super::trace;
use super::*;

fn session() -> Trace {
    let call = |id: &str, arguments: Value| {
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": id,
            "function": {"name": "Run", "arguments": arguments.to_string()}}]})
    };
    let result =
        |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let lines = [
        json!({"role": "user", "content": "look at src/lib.rs please"}),
        call("a", json!({"file_path": "src/lib.rs"})),
        result("a", "  12→    let distinctive = 1234567;\nshort\n"),
        call(
            "b",
            json!({"file_path": "src/lib.rs", "new": "let distinctive = 1234567;\nlet other_identifier = 2;"}),
        ),
        result("b", "ok"),
        call("c", json!({"file_path": "src/lib.rs"})),
    ];
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    trace::parse("t", &text.join("\n")).unwrap()
}

#[test]
fn only_what_was_said_before_is_asked_for() {
    let needs = Needs::of(&session());
    let named = |at: usize| {
        let mut names: Vec<&str> = needs.asks[at]
            .strings
            .iter()
            .map(|s| needs.string(*s))
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(named(1), ["src/lib.rs"]);
    assert_eq!(named(3), ["1234567", "distinctive", "src/lib.rs"]);
    assert_eq!(needs.asks[3].lines.len(), 1, "the line behind its number");
    assert_eq!(needs.asks[5].again, [2], "answered by the third message");
    assert!(needs.asks[3].again.is_empty());
}

#[test]
fn passages_are_runs_of_words_and_the_rare_ones_weigh_more() {
    let needs = Needs::of(&session());
    // `src / lib .` and `/ lib . rs`, said by the user alone.
    let weights = |at: usize| {
        let passages = needs.asks[at].passages.iter();
        passages.map(|(_, weight)| *weight).collect::<Vec<u32>>()
    };
    assert_eq!(weights(1), [693, 693], "ln 2: one message of one");
    // Of three messages two hold the path, and one the line.
    let mut found = weights(3);
    found.sort_unstable();
    assert_eq!(found, [916, 916, 1386, 1386]);
    let index =
        json!({"role": "tool", "tool_call_id": "a", "content": "[src/lib.rs distinctive 1234567]"});
    let held = needs.held(index.to_string().as_bytes()).unwrap();
    assert_eq!((held.strings().len(), held.passages.len()), (3, 2));
}

#[test]
fn holders_are_told_with_their_parts() {
    let needs = Needs::of(&session());
    let path = (0..9).find(|n| needs.string(*n) == "src/lib.rs").unwrap();
    let holders: Vec<_> = needs.holders(path, 5).collect();
    assert_eq!(
        holders,
        [
            (3, TextPart::Call(0)),
            (1, TextPart::Call(0)),
            (0, TextPart::Text)
        ]
    );
}
