//! Tests of `blocks`.

use serde_json::json;

use super::*;

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn share(found: &[(String, Weighed)], name: &str) -> (f64, f64) {
    let one = found.iter().find(|(own, _)| own == name).unwrap().1;
    (one.part, one.whole)
}

#[test]
fn an_index_of_names_holds_words_but_no_runs() {
    let read = "fn alpha(one: u32) -> u32 {\n    beta(one) + gamma(one)\n}\n";
    let history = bytes(&json!({"role": "tool", "tool_call_id": "a", "content": read}));
    let index = bytes(&json!({"role": "tool", "tool_call_id": "a",
        "content": "[held: fn alpha one u32 beta gamma ( ) { } : - > +]"}));
    let answer = bytes(
        &json!({"role": "assistant", "content": null, "tool_calls": [{"id": "b", "type": "function",
        "function": {"name": "Edit", "arguments": json!({"old_string": "    beta(one) + gamma(one)",
            "new_string": "    gamma(one)"}).to_string()}}]}),
    );
    let history = Texts::of([history.as_slice()].into_iter());
    let needed = Needed::of(&answer, &history);
    let whole = needed.in_view(&history);
    let named = needed.in_view(&Texts::of([index.as_slice()].into_iter()));
    for measure in ["runs1", "runs4", "edits"] {
        let (part, all) = share(&whole, measure);
        assert!(part == all && all > 0.0, "{measure}: {part} of {all}");
    }
    let (part, all) = share(&named, "runs1");
    assert_eq!(part, all);
    assert_eq!(share(&named, "runs4").0, 0.0);
    assert_eq!(
        share(&named, "edits"),
        (0.0, 3.0),
        "the line and both neighbours"
    );
}

#[test]
fn what_was_never_said_is_not_needed() {
    let history = bytes(&json!({"role": "user", "content": "fix the parser please"}));
    let answer = bytes(&json!({"role": "assistant", "content": "something else entirely"}));
    let history = Texts::of([history.as_slice()].into_iter());
    let found = Needed::of(&answer, &history).in_view(&history);
    assert!(found.iter().all(|(_, one)| one.whole == 0.0), "{found:?}");
}
