//! Edits of units: goldens of each, and what holds after any.

use plimsoll_model::StoredHop;
use proptest::prelude::*;

use super::*;
use crate::Dialect;
use crate::edit::{Cut, Insert};
use crate::responses::form::{hidden_result, system};

fn hidden(place: usize, block: Option<(u32, u32)>, bytes: &str) -> Insert<'_> {
    Insert {
        place,
        block,
        bytes,
        ..Insert::default()
    }
}

#[track_caller]
fn check(unit: &str, edit: &AssistantEdit<'_>, expect: &str) {
    let got = assistant(unit.as_bytes(), edit).unwrap();
    assert_eq!(std::str::from_utf8(&got).unwrap(), expect);
}

/// Reasoning, text, and two calls, each with an id.
const UNIT: &str = r#"{"type":"reasoning","id":"rs_1"} , {"type":"message","id":"msg_1","role":"assistant","content":"x"},{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"long\":1}"},
{"type":"reasoning","id":"rs_2"},{"id":"fc_2","type":"custom_tool_call","call_id":"b","name":"g","input":"1e3"}"#;

const RS1: &str = r#"{"type":"reasoning","id":"rs_1"}"#;
const MSG: &str = r#"{"type":"message","id":"msg_1","role":"assistant","content":"x"}"#;
const FC1: &str =
    r#"{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"long\":1}"}"#;
const RS2: &str = r#"{"type":"reasoning","id":"rs_2"}"#;
const FC2: &str =
    r#"{"id":"fc_2","type":"custom_tool_call","call_id":"b","name":"g","input":"1e3"}"#;
const HIDDEN: &str = r#"{"type":"function_call","call_id":"h"}"#;

#[test]
fn the_output_of_a_shell_keeps_its_form() {
    let unit = br#"{"type":"shell_call_output", "call_id":"c","max_output_length":9,"output":[{"stdout":"one","stderr":"","outcome":{"type":"exit","exit_code":0}},{"outcome":{"type":"timeout"},"stdout":"two","stderr":"bad"}]}"#;
    assert_eq!(Dialect::Responses.text(unit).unwrap(), "onetwobad");
    assert_eq!(
        result(unit, "a \"line\"").unwrap(),
        r#"{"type":"shell_call_output", "call_id":"c","max_output_length":9,"output":[{"outcome":{"type":"timeout"},"stdout":"a \"line\"","stderr":""}]}"#
    );
    let local = br#"{"type":"local_shell_call_output","id":"c","output":"big"}"#;
    assert_eq!(
        result(local, "small").unwrap(),
        r#"{"type":"local_shell_call_output","id":"c","output":"small"}"#
    );
}

#[test]
fn an_empty_edit_changes_no_byte() {
    check(UNIT, &AssistantEdit::default(), UNIT);
    let all = AssistantEdit {
        keep_calls: Some(vec![true, true]),
        ..AssistantEdit::default()
    };
    check(UNIT, &all, UNIT);
}

#[test]
fn reasoning_goes_with_the_last_of_what_it_led_to() {
    let keep = |calls: [bool; 2], drop_text| AssistantEdit {
        keep_calls: Some(calls.to_vec()),
        drop_text,
        ..AssistantEdit::default()
    };
    check(
        UNIT,
        &keep([true, false], false),
        &[RS1, MSG, FC1].join(","),
    );
    check(
        UNIT,
        &keep([false, true], false),
        &[RS1, MSG, RS2, FC2].join(","),
    );
    check(UNIT, &keep([false, true], true), &[RS2, FC2].join(","));
    check(
        UNIT,
        &keep([true, true], true),
        &[RS1, FC1, RS2, FC2].join(","),
    );
    check(UNIT, &keep([false, false], true), "");
}

#[test]
fn what_stays_without_its_reasoning_stays_without_its_id() {
    let edit = AssistantEdit {
        drop_text: true,
        drop_reasoning: true,
        keep_calls: Some(vec![false, true]),
        ..AssistantEdit::default()
    };
    check(
        UNIT,
        &edit,
        r#"{"type":"custom_tool_call","call_id":"b","name":"g","input":"1e3"}"#,
    );
    let server = r#"{"type":"reasoning","id":"rs_1"},{"type":"web_search_call","id":"ws_1"}"#;
    check(server, &edit, server);
}

#[test]
fn arguments_are_replaced_in_place() {
    let edit = AssistantEdit {
        arguments: vec![(0, r#"{"l":"…"}"#)],
        ..AssistantEdit::default()
    };
    let new = FC1.replace(r#"{\"long\":1}"#, r#"{\"l\":\"…\"}"#);
    check(UNIT, &edit, &[RS1, MSG, &new, RS2, FC2].join(","));
}

#[test]
fn hidden_calls_go_back_to_their_places() {
    let put = |inserts: Vec<Insert<'static>>| AssistantEdit {
        insert: inserts,
        ..AssistantEdit::default()
    };
    // Where all is there, among all items.
    let edit = put(vec![hidden(1, Some((3, 6)), HIDDEN)]);
    check(UNIT, &edit, &[RS1, MSG, FC1, HIDDEN, RS2, FC2].join(","));
    let edit = put(vec![
        hidden(0, Some((1, 7)), HIDDEN),
        hidden(3, Some((6, 7)), HIDDEN),
    ]);
    check(
        UNIT,
        &edit,
        &[RS1, HIDDEN, MSG, FC1, RS2, FC2, HIDDEN].join(","),
    );
    // Where the client dropped something, among the calls.
    let edit = put(vec![hidden(1, Some((3, 7)), HIDDEN)]);
    check(UNIT, &edit, &[RS1, MSG, FC1, RS2, HIDDEN, FC2].join(","));
    let edit = put(vec![hidden(0, None, HIDDEN), hidden(3, None, HIDDEN)]);
    check(
        UNIT,
        &edit,
        &[RS1, MSG, HIDDEN, FC1, RS2, FC2, HIDDEN].join(","),
    );
    // Whichever of the client's own calls are left out.
    let edit = AssistantEdit {
        keep_calls: Some(vec![false, false]),
        ..put(vec![hidden(1, Some((3, 6)), HIDDEN)])
    };
    check(UNIT, &edit, &[RS1, MSG, HIDDEN].join(","));
}

fn record(hops: &[Option<&str>], handed: &str) -> TurnRecord {
    let hop = |message: &Option<&str>| StoredHop {
        message: message.map(str::to_owned),
        ..StoredHop::default()
    };
    TurnRecord {
        turn: 1,
        position: 1,
        hops: hops.iter().map(hop).collect(),
        handed: handed.to_owned(),
        tooled: true,
        ..TurnRecord::default()
    }
}

const FIRST: &str = r#"{"type":"reasoning","id":"rs_a","encrypted_content":"A"},{"type":"message","id":"msg_a","role":"assistant","content":[{"type":"output_text","text":"one"}]},{"type":"reasoning","id":"rs_b","encrypted_content":"B"},{"type":"function_call","id":"fc_h","call_id":"h"}"#;
const SILENT: &str =
    r#"{"type":"reasoning","id":"rs_c"},{"type":"function_call","id":"fc_i","call_id":"i"}"#;

#[test]
fn a_hidden_call_has_its_id_back_only_behind_reasoning_that_has_one() {
    let call = r#"{"type":"function_call","call_id":"h","name":"d","arguments":"{}","id":"fc_h"}"#;
    let bare = r#"{"type":"function_call","call_id":"h","name":"d","arguments":"{}"}"#;
    let edit = AssistantEdit {
        insert: vec![hidden(0, None, call)],
        ..AssistantEdit::default()
    };
    let thought = r#"{"type":"reasoning","id":"rs_1","summary":[]}"#;
    let nameless = r#"{"type":"reasoning","summary":[],"encrypted_content":"A"}"#;
    for (front, put) in [(thought, call), (nameless, bare)] {
        check(&[front, FC1].join(","), &edit, &[front, put, FC1].join(","));
    }
    check(FC1, &edit, &[bare, FC1].join(","));
}

#[test]
fn what_earlier_hops_showed_is_cut_from_the_front() {
    let whole = r#"{"type":"reasoning","id":"rs_a","encrypted_content":"A"},{"type":"message","id":"msg_a","status":"completed","role":"assistant","content":[{"type":"output_text","text":"one","annotations":[]}]}"#;
    let bare = r#"{"role":"assistant","content":"one"}"#;
    let sealed = r#"{"type":"reasoning","encrypted_content":"A","summary":[]},{"role":"assistant","content":"one"}"#;
    let referred =
        r#"{"type":"item_reference","id":"rs_a"},{"type":"item_reference","id":"msg_a"}"#;
    let last = [r#"{"type":"reasoning","id":"rs_d"}"#, FC1].join(",");
    let record = record(&[Some(FIRST), Some(SILENT), None], "one");
    for front in [whole, bare, sealed, referred] {
        let unit = [front, last.as_str()].join(",");
        assert_eq!(handed(unit.as_bytes(), &record), Handed::Split, "{front}");
        let edit = AssistantEdit {
            cut: Cut {
                text: "",
                hops: vec![FIRST, SILENT],
            },
            insert: vec![hidden(0, Some((1, 3)), HIDDEN)],
            ..AssistantEdit::default()
        };
        let rest = [r#"{"type":"reasoning","id":"rs_d"}"#, HIDDEN, FC1].join(",");
        check(&unit, &edit, &rest);
    }
    let changed = [r#"{"role":"assistant","content":"two"}"#, last.as_str()].join(",");
    assert_eq!(handed(changed.as_bytes(), &record), Handed::Changed);
}

#[test]
fn text_that_a_client_joined_is_cut_behind_what_earlier_hops_showed() {
    let hop = r#"{"type":"reasoning","id":"rs_1"},{"id":"m","role":"assistant","content":"one."},{"type":"function_call","call_id":"i"}"#;
    let silent = r#"{"type":"reasoning","id":"rs_2"},{"type":"function_call","call_id":"j"}"#;
    let thought = |id: &str| format!(r#"{{"type":"reasoning","id":"{id}"}}"#);
    let [first, second, last] = ["rs_1", "rs_2", "rs_3"].map(thought);
    let part = |text: &str, noted: &str| {
        format!(r#"{{"type":"output_text","text":"{text}","annotations":[{noted}]}}"#)
    };
    let message = |id: &str, parts: &[String]| {
        let parts = parts.join(",");
        format!(r#"{{{id}"role":"assistant","content":[{parts}]}}"#)
    };
    let string = |text: &str| format!(r#"{{"role":"assistant","content":"{text}"}}"#);
    let cited = r#"{"type":"url_citation","start_index":4,"end_index":6}"#;
    let id = r#""id":"m","#;
    for (joined, left) in [
        (string("one.two"), string("two")),
        (string("one.\\n\\ntwo"), string("two")),
        (
            message(id, &[part("one.two", cited)]),
            message("", &[part("two", "")]),
        ),
        (
            message(id, &[part("one.", ""), part("two", cited)]),
            message("", &[part("two", cited)]),
        ),
        (
            message(id, &[part("on", ""), part("e. t", ""), part("wo", "")]),
            message("", &[part("t", ""), part("wo", "")]),
        ),
    ] {
        let mut record = record(&[Some(hop), Some(silent), None], "one.");
        for unit in [
            [&joined, FC1].join(","),
            [&first, &second, &last, &joined, FC1].join(","),
            [&first, &joined, &second, &last, FC1].join(","),
        ] {
            // What only begins alike may be another text.
            record.bare = bare("one.");
            assert_eq!(handed(unit.as_bytes(), &record), Handed::Changed, "{unit}");
            record.bare = bare("one. two");
            assert_eq!(handed(unit.as_bytes(), &record), Handed::Split, "{unit}");
            let edit = AssistantEdit {
                cut: Cut {
                    text: "",
                    hops: vec![hop, silent],
                },
                ..AssistantEdit::default()
            };
            let rest = match unit.find("rs_") {
                None => [left.as_str(), FC1].join(","),
                Some(_) if unit.find("rs_3") < unit.find("role") => {
                    [&last, left.as_str(), FC1].join(",")
                }
                Some(_) => [left.as_str(), &last, FC1].join(","),
            };
            check(&unit, &edit, &rest);
        }
    }
}

#[test]
fn what_was_handed_out_is_told_by_the_records_hops() {
    let of = |unit: &str, hops: &[Option<&str>], text| handed(unit.as_bytes(), &record(hops, text));
    assert_eq!(of(FC1, &[None], ""), Handed::Nothing);
    assert_eq!(of(FC1, &[Some(SILENT), None], ""), Handed::Nothing);
    assert_eq!(of(FC1, &[Some(FIRST), None], "one"), Handed::Changed);
    // Cut at the hop cap: the proxy's own line is the last of it.
    let line = r#"{"role":"assistant","content":"one"},{"role":"assistant","content":"more"}"#;
    let hops = [Some(FIRST), Some(SILENT)];
    assert_eq!(of(line, &hops, "onemore"), Handed::All);
    assert_eq!(of(line, &hops, "onemor"), Handed::Changed);
    let called = [line, FC1].join(",");
    assert_eq!(of(&called, &hops, "onemore"), Handed::Changed);
    assert_eq!(of(line, &hops, ""), Handed::Nothing);
}

#[test]
fn guidance_goes_behind_a_blank_line_or_as_a_part() {
    for (from, to) in [
        (
            r#""instructions" : "be\"brief""#,
            r#""instructions" : "be\"brief\n\nG""#,
        ),
        (
            r#"{"role":"developer","content":"x"}"#,
            r#"{"role":"developer","content":"x\n\nG"}"#,
        ),
        (
            r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"x"} ]}"#,
            r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"x"},{"type":"input_text","text":"G"} ]}"#,
        ),
        (
            r#"{"role":"system","content":[]}"#,
            r#"{"role":"system","content":[{"type":"input_text","text":"G"}]}"#,
        ),
    ] {
        assert_eq!(append_text(from.as_bytes(), "G").unwrap(), to);
    }
    assert_eq!(append_text(br#"{"role":"system"}"#, "G"), None);
    assert_eq!(system("G\""), r#"{"role":"system","content":"G\""}"#);
}

#[test]
fn a_result_is_replaced_in_place() {
    let bytes = br#"{"type":"function_call_output","output":[{"type":"input_text","text":"big"}],"call_id":"a"}"#;
    assert_eq!(
        result(bytes, "stub").unwrap(),
        r#"{"type":"function_call_output","output":"stub","call_id":"a"}"#
    );
    assert_eq!(
        hidden_result("h", "ok", &[]),
        r#"{"type":"function_call_output","call_id":"h","output":"ok"}"#
    );
}

/// An item of a random answer.
#[derive(Clone, Copy, Debug)]
enum Made {
    Thought,
    Text,
    Call,
    Server,
}

fn made(at: usize, made: Made) -> String {
    match made {
        Made::Thought => {
            format!(r#"{{"type":"reasoning","id":"rs_{at}","encrypted_content":"e"}}"#)
        }
        Made::Text => format!(
            r#"{{"type":"message","id":"msg_{at}","role":"assistant","content":[{{"type":"output_text","text":"t{at}"}}]}}"#
        ),
        Made::Call => format!(
            r#"{{"type":"function_call","id":"fc_{at}","call_id":"c{at}","name":"f","arguments":"{{}}"}}"#
        ),
        Made::Server => format!(r#"{{"type":"web_search_call","id":"ws_{at}","n": 1.10}}"#),
    }
}

/// What the API would refuse: an item with an id whose reasoning is gone, or reasoning that nothing
/// follows any longer.
fn refused(before: &[Made], after: &[ResponsesItem<'_>]) -> Option<usize> {
    let place =
        |item: &ResponsesItem<'_>| -> Option<usize> { item.id()?.rsplit('_').next()?.parse().ok() };
    let left: Vec<usize> = after.iter().filter_map(place).collect();
    let mut thoughts = Vec::new();
    let mut led = false;
    for (at, made) in before.iter().enumerate() {
        match made {
            Made::Thought => {
                if led {
                    thoughts.clear();
                }
                thoughts.push(at);
                led = false;
            }
            Made::Text | Made::Call | Made::Server => {
                led = true;
                if left.contains(&at) && thoughts.iter().any(|thought| !left.contains(thought)) {
                    return Some(at);
                }
            }
        }
    }
    let led = |at: usize| {
        let next = before.get(at + 1);
        matches!(next, Some(Made::Text | Made::Call | Made::Server))
    };
    let alone = |(at, thought): (usize, &ResponsesItem<'_>)| {
        let made = place(thought).filter(|_| thought.kind == ItemType::Reasoning)?;
        let next = after.get(at + 1).map(|next| next.kind);
        (led(made) && matches!(next, None | Some(ItemType::Reasoning))).then_some(made)
    };
    after.iter().enumerate().find_map(alone)
}

proptest! {
    #[test]
    fn any_edit_leaves_what_the_api_takes(
        run in prop::collection::vec(
            prop_oneof![Just(Made::Thought), Just(Made::Text), Just(Made::Call), Just(Made::Server)],
            1..9,
        ),
        keep in prop::option::of(prop::collection::vec(any::<bool>(), 9)),
        (drop_text, drop_reasoning) in any::<(bool, bool)>(),
        inserts in prop::collection::vec((0_usize..9, prop::option::of((0_u32..9, 1_u32..12))), 0..3),
        trimmed in prop::option::of(0_usize..4),
    ) {
        let items: Vec<String> = run.iter().enumerate().map(|(at, kind)| made(at, *kind)).collect();
        let unit = items.join(" ,");
        let edit = AssistantEdit {
            drop_text,
            drop_reasoning,
            keep_calls: keep,
            insert: inserts.iter().map(|(place, block)| hidden(*place, *block, HIDDEN)).collect(),
            arguments: trimmed.into_iter().map(|at| (at, "{\"s\":1}")).collect(),
            ..AssistantEdit::default()
        };
        let after = assistant(unit.as_bytes(), &edit).unwrap();
        if after.is_empty() {
            prop_assert!(edit.insert.is_empty());
            prop_assert!(!run.iter().any(|kind| matches!(kind, Made::Server)));
            return Ok(());
        }
        let left = item::items(&after).unwrap();
        prop_assert_eq!(refused(&run, &left), None);
        let hidden = left.iter().filter(|item| item.call_id().as_deref() == Some("h")).count();
        prop_assert_eq!(hidden, edit.insert.len());
        // What no edit names is there, in its order and byte for byte.
        let server = |kind: &Made| matches!(kind, Made::Server);
        let before: Vec<&str> = items.iter().zip(&run).filter(|(_, kind)| server(kind)).map(|(raw, _)| raw.as_str()).collect();
        let fixed = left.iter().filter(|item| item.kind == ItemType::Fixed);
        let fixed: Vec<&str> = fixed.map(|item| std::str::from_utf8(item.raw()).unwrap()).collect();
        prop_assert_eq!(fixed, before);
    }
}
