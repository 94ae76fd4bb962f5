//! Edits of single units: what is cut, put back and replaced, and that all else keeps its bytes.

use plimsoll_model::{Handed, StoredHop, TurnRecord};

use crate::edit::{AssistantEdit, Cut, Insert, bare};
use crate::messages::edit::{append_text, assistant, handed, result};
use crate::messages::form::{hidden_result, system};

const HIDDEN: &str = r#"{"type":"tool_use","id":"h","name":"delimiter","input":{}}"#;
const THOUGHT: &str = r#"{"type":"thinking","thinking":"","signature":"s1"}"#;
const TEXT: &str = r#"{"type":"text", "text":"x"}"#;
const A: &str = r#"{"type":"tool_use","id":"a","name":"r","input":{"p":1}}"#;
const B: &str = r#"{"type":"tool_use","id":"b","name":"w","input":{"q": 2},"cache_control":{}}"#;

/// An assistant's message of these blocks.
fn answer(blocks: &[&str]) -> String {
    format!(r#"{{"role":"assistant","content":[{}]}}"#, blocks.join(","))
}

fn edited(unit: &str, edit: &AssistantEdit<'_>) -> String {
    String::from_utf8(assistant(unit.as_bytes(), edit).unwrap().to_vec()).unwrap()
}

fn keep(calls: &[bool]) -> AssistantEdit<'static> {
    AssistantEdit {
        keep_calls: Some(calls.to_vec()),
        ..AssistantEdit::default()
    }
}

fn put_back(place: usize, block: Option<(u32, u32)>) -> AssistantEdit<'static> {
    AssistantEdit {
        insert: vec![Insert {
            place,
            block,
            bytes: HIDDEN,
            ..Insert::default()
        }],
        ..AssistantEdit::default()
    }
}

#[test]
fn blocks_go_and_others_keep_their_bytes() {
    let unit = answer(&[TEXT, A, B]);
    assert_eq!(edited(&unit, &keep(&[true, true])), unit);
    assert_eq!(edited(&unit, &keep(&[false, true])), answer(&[TEXT, B]));
    let without_text = AssistantEdit {
        drop_text: true,
        ..keep(&[true, false])
    };
    assert_eq!(edited(&unit, &without_text), answer(&[A]));
    let trimmed = AssistantEdit {
        arguments: vec![(1, r#"{"q":"…"}"#), (0, "no object")],
        ..AssistantEdit::default()
    };
    let shorter = B.replace(r#"{"q": 2}"#, r#"{"q":"…"}"#);
    assert_eq!(edited(&unit, &trimmed), answer(&[TEXT, A, &shorter]));
}

#[test]
fn reasoning_goes_where_the_edit_says_so() {
    let unit = answer(&[THOUGHT, TEXT, A, B]);
    let without = AssistantEdit {
        drop_reasoning: true,
        ..AssistantEdit::default()
    };
    assert_eq!(edited(&unit, &without), answer(&[TEXT, A, B]));
    assert_eq!(
        edited(&unit, &keep(&[true, false])),
        answer(&[THOUGHT, TEXT, A])
    );
    let trimmed = AssistantEdit {
        arguments: vec![(0, "{}")],
        ..keep(&[true, true])
    };
    let shorter = A.replace(r#"{"p":1}"#, "{}");
    assert_eq!(
        edited(&unit, &trimmed),
        answer(&[THOUGHT, TEXT, &shorter, B])
    );
}

#[test]
fn what_is_not_worth_a_message_has_no_bytes() {
    assert_eq!(edited(&answer(&[THOUGHT, A]), &keep(&[false])), "");
    let without_text = AssistantEdit {
        drop_text: true,
        ..AssistantEdit::default()
    };
    assert_eq!(
        edited(r#"{"role":"assistant","content":"x"}"#, &without_text),
        ""
    );
}

#[test]
fn types_of_tomorrow_pass() {
    let unknown = r#"{"type":"of_tomorrow","x":[1.50]}"#;
    let unit = answer(&[unknown, A, TEXT]);
    assert_eq!(edited(&unit, &keep(&[false])), answer(&[unknown, TEXT]));
}

/// Blocks of the client's may be missing; hidden calls then go to their places among the calls.
#[test]
fn reasoning_stays_where_it_is_beside_hidden_calls() {
    let unit = answer(&[THOUGHT, A, THOUGHT, B]);
    let second = HIDDEN.replace("\"h\"", "\"h2\"");
    let first = answer(&[THOUGHT, HIDDEN, A, THOUGHT, &second, B]);
    for total in [6, 9] {
        let hidden = |place, block, bytes| Insert {
            place,
            block: Some((block, total)),
            bytes,
            ..Insert::default()
        };
        let (one, two) = (hidden(0, 1, HIDDEN), hidden(2, 4, second.as_str()));
        let shown = |insert: &[Insert<'_>], left_out: &[Insert<'_>]| {
            edited(
                &unit,
                &AssistantEdit {
                    insert: insert.to_vec(),
                    left_out: left_out.to_vec(),
                    keep_calls: Some(vec![true, true]),
                    ..AssistantEdit::default()
                },
            )
        };
        assert_eq!(shown(&[one, two], &[]), first, "{total}");
        let last = answer(&[THOUGHT, A, THOUGHT, B]);
        let behind = Insert { place: 1, ..two };
        let between = first.replace(&format!("{HIDDEN},"), "");
        assert_eq!(shown(&[behind], &[one]), between, "{total}");
        assert_eq!(shown(&[], &[one, behind]), last, "{total}");
    }
}

#[test]
fn hidden_calls_go_back_to_their_block() {
    let unit = answer(&[THOUGHT, A, THOUGHT, B]);
    assert_eq!(
        edited(&unit, &put_back(1, Some((2, 5)))),
        answer(&[THOUGHT, A, HIDDEN, THOUGHT, B])
    );
    // The client left its reasoning out: the place among the calls is what is left.
    let unit = answer(&[TEXT, A, B]);
    for (place, want) in [
        (0, [TEXT, HIDDEN, A, B]),
        (1, [TEXT, A, HIDDEN, B]),
        (2, [TEXT, A, B, HIDDEN]),
    ] {
        assert_eq!(edited(&unit, &put_back(place, Some((1, 9)))), answer(&want));
        assert_eq!(edited(&unit, &put_back(place, None)), answer(&want));
    }
    let string = r#"{"role":"assistant","content":"x\n"}"#;
    assert_eq!(
        edited(string, &put_back(0, None)),
        answer(&[r#"{"type":"text","text":"x\n"}"#, HIDDEN])
    );
}

#[test]
fn several_hidden_calls_keep_their_order() {
    let other = HIDDEN.replace("\"h\"", "\"g\"");
    let insert = |place, at, bytes| Insert {
        place,
        block: Some((at, 4)),
        bytes,
        ..Insert::default()
    };
    let edit = AssistantEdit {
        insert: vec![insert(0, 1, HIDDEN), insert(2, 3, other.as_str())],
        ..AssistantEdit::default()
    };
    assert_eq!(
        edited(&answer(&[TEXT, A]), &edit),
        answer(&[TEXT, HIDDEN, A, &other])
    );
}

/// A record whose earlier hops have these messages.
pub(super) fn record(earlier: &[&str], capped: bool, handed: &str) -> TurnRecord {
    let hop = |message: Option<&str>| StoredHop {
        message: message.map(str::to_owned),
        ..StoredHop::default()
    };
    let mut hops: Vec<StoredHop> = earlier.iter().map(|message| hop(Some(message))).collect();
    hops.push(hop(capped.then_some("{}")));
    TurnRecord {
        turn: 1,
        position: 1,
        hops,
        handed: handed.to_owned(),
        tooled: true,
        ..TurnRecord::default()
    }
}

#[test]
fn blocks_of_earlier_hops_are_cut_from_the_front() {
    let second = THOUGHT.replace("s1", "s2");
    let silent = answer(&[HIDDEN]);
    let thinking = answer(&[THOUGHT, HIDDEN]);
    let telling = answer(&[THOUGHT, TEXT, HIDDEN]);
    let marked = TEXT.replace('}', r#","cache_control":{}}"#);
    let own = answer(&[&second, A]);
    for (hops, unit, want, left) in [
        (vec![&silent], answer(&[&second, A]), Handed::Nothing, &own),
        (
            vec![&thinking],
            answer(&[THOUGHT, &second, A]),
            Handed::Split,
            &own,
        ),
        (
            vec![&thinking],
            answer(&[&second, A]),
            Handed::Nothing,
            &own,
        ),
        (
            vec![&telling],
            answer(&[THOUGHT, TEXT, &second, A]),
            Handed::Split,
            &own,
        ),
        (
            vec![&telling],
            answer(&[&marked, &second, A]),
            Handed::Split,
            &own,
        ),
        (
            vec![&telling, &silent, &telling],
            answer(&[THOUGHT, TEXT, THOUGHT, TEXT, &second, A]),
            Handed::Split,
            &own,
        ),
    ] {
        let hops: Vec<&str> = hops.into_iter().map(String::as_str).collect();
        assert_eq!(
            handed(unit.as_bytes(), &record(&hops, false, "")),
            want,
            "{unit}"
        );
        let edit = AssistantEdit {
            cut: Cut { text: "", hops },
            ..AssistantEdit::default()
        };
        assert_eq!(&edited(&unit, &edit), left);
    }
    let other = answer(&[r#"{"type":"text","text":"y"}"#]);
    let hops = [telling.as_str()];
    assert_eq!(
        handed(other.as_bytes(), &record(&hops, false, "x")),
        Handed::Changed
    );
}

#[test]
fn a_turn_that_was_cut_short_is_all_or_changed() {
    let telling = answer(&[TEXT, HIDDEN]);
    let record = record(&[&telling], true, "xgo on");
    let line = r#"{"type":"text","text":"go on"}"#;
    for (unit, want) in [
        (answer(&[TEXT, line]), Handed::All),
        (
            r#"{"role":"assistant","content":"xgo on"}"#.to_owned(),
            Handed::All,
        ),
        (
            r#"{"role":"assistant","content":"x\n\ngo on"}"#.to_owned(),
            Handed::All,
        ),
        (answer(&[TEXT]), Handed::Changed),
        (answer(&[TEXT, line, A]), Handed::Changed),
    ] {
        assert_eq!(handed(unit.as_bytes(), &record), want, "{unit}");
    }
}

#[test]
fn a_result_keeps_what_is_said_of_it() {
    let unit = r#"{"tool_use_id":"a","content":[{"type":"image"}],"is_error":true,"type":"tool_result","cache_control":{"type":"ephemeral"}}"#;
    assert_eq!(
        result(unit.as_bytes(), "stub\n").unwrap(),
        r#"{"tool_use_id":"a","content":"stub\n","is_error":true,"type":"tool_result","cache_control":{"type":"ephemeral"}}"#
    );
    // A breakpoint inside the content stays, on the text that replaces it.
    let unit = r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}"#;
    assert_eq!(
        result(unit.as_bytes(), "stub").unwrap(),
        r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"stub","cache_control":{"type":"ephemeral"}}]}"#
    );
    assert_eq!(
        result(br#"{"type":"tool_result","tool_use_id":"a"}"#, "s").unwrap(),
        r#"{"type":"tool_result","tool_use_id":"a","content":"s"}"#
    );
    assert_eq!(
        hidden_result("h\"", "ok", &[]),
        r#"{"type":"tool_result","tool_use_id":"h\"","content":"ok"}"#
    );
}

#[test]
fn guidance_goes_behind_a_blank_line_or_as_the_last_block() {
    for (from, to) in [
        (r#""be\"brief""#, r#""be\"brief\n\nG""#),
        (
            r#"[{"type":"text","text":"x","cache_control":{}} ]"#,
            r#"[{"type":"text","text":"x","cache_control":{}},{"type":"text","text":"G"} ]"#,
        ),
        (
            r#"{"role":"system","content":"x"}"#,
            r#"{"role":"system","content":"x\n\nG"}"#,
        ),
        (
            r#"{"role":"system","content":[]}"#,
            r#"{"role":"system","content":[{"type":"text","text":"G"}]}"#,
        ),
    ] {
        assert_eq!(append_text(from.as_bytes(), "G").unwrap(), to);
    }
    assert_eq!(append_text(br#"{"role":"system"}"#, "G"), None);
    assert_eq!(system("a\nb"), r#""a\nb""#);
}

#[test]
fn text_that_a_client_joined_is_cut_behind_what_earlier_hops_showed() {
    let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    let second = THOUGHT.replace("s1", "s2");
    let telling = answer(&[THOUGHT, &text("it is."), HIDDEN]);
    let more = answer(&[&text("and it"), HIDDEN]);
    let own = answer(&[&second, &text("done"), A]);
    let one = format!(
        r#"{{"type":"text","cache_control":{{}},"text":"{}"}}"#,
        "it is.\\nand itdone"
    );
    let marked = answer(&[
        &second,
        r#"{"type":"text","cache_control":{},"text":"done"}"#,
        A,
    ]);
    for (unit, left) in [
        (
            answer(&[THOUGHT, &second, &text("it is.and itdone"), A]),
            &own,
        ),
        (
            answer(&[THOUGHT, &second, &text(" it is. and it\\n\\ndone"), A]),
            &own,
        ),
        (
            answer(&[THOUGHT, &text("it is."), &second, &text("and itdone"), A]),
            &own,
        ),
        (answer(&[THOUGHT, &second, &one, A]), &marked),
        // Where the last hop said nothing, nothing is left of it.
        (answer(&[THOUGHT, &text("it is.and it"), A]), &answer(&[A])),
    ] {
        let hops = [telling.as_str(), more.as_str()];
        let mut record = record(&hops, false, "it is.and it");
        // What only begins alike may be another text.
        assert_eq!(handed(unit.as_bytes(), &record), Handed::Changed, "{unit}");
        let last = if left.contains("done") { "done" } else { "" };
        record.bare = bare(&format!("it is.and it{last}"));
        assert_eq!(handed(unit.as_bytes(), &record), Handed::Split, "{unit}");
        let edit = AssistantEdit {
            cut: Cut {
                text: "",
                hops: hops.to_vec(),
            },
            ..AssistantEdit::default()
        };
        assert_eq!(&edited(&unit, &edit), left, "{unit}");
    }
    let joined = r#"{"role":"assistant","content":"it is.\n\ndone"}"#;
    let hops = vec![telling.as_str()];
    let mut record = record(&hops, false, "it is.");
    record.bare = bare("it is.done");
    assert_eq!(handed(joined.as_bytes(), &record), Handed::Split);
    let edit = AssistantEdit {
        cut: Cut { text: "", hops },
        ..AssistantEdit::default()
    };
    assert_eq!(edited(joined, &edit), answer(&[&text("done")]));
}
