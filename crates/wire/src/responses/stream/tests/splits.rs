//! Every cut, and every pair of cuts, in short turns of each kind. Whole turns of this dialect are
//! too long for pairs: here each kind is written with as little as servers leave of it.

use bytes::Bytes;

use super::{Case, corpus};
use crate::answer::Verdict;

fn event(kind: &str, members: &str) -> String {
    format!("data: {{\"type\":\"response.{kind}\",{members}}}\n\n")
}

fn call(name: &str, id: u8) -> String {
    let item = format!(r#""item":{{"type":"function_call","call_id":"{id}","name":"{name}"}}"#);
    event("output_item.done", &item)
}

fn message(text: &str) -> String {
    let part = format!(r#"{{"type":"output_text","text":"{text}"}}"#);
    let item = format!(r#""item":{{"type":"message","content":[{part}]}}"#);
    event("output_text.delta", &format!(r#""delta":"{text}""#)) + &event("output_item.done", &item)
}

fn thought() -> String {
    event(
        "output_item.done",
        r#""item":{"type":"reasoning","id":"r"}"#,
    )
}

/// The turns: what each is, its hops and what comes of it.
fn turns() -> Vec<(&'static str, Vec<String>, Verdict)> {
    vec![
        ("text", vec![message("\u{e4}")], Verdict::Done),
        (
            "reasoning",
            vec![thought() + &call("read", 1)],
            Verdict::Done,
        ),
        (
            "parallel",
            vec![call("read", 1) + &call("x", 2)],
            Verdict::Done,
        ),
        (
            "mixed",
            vec![call("recall", 1) + &call("x", 2)],
            Verdict::Mixed,
        ),
        (
            "hidden only",
            vec![thought() + &call("recall", 1), message("b")],
            Verdict::Done,
        ),
    ]
}

#[test]
fn all_pairs_of_cuts_change_nothing() {
    for (name, hops, verdict) in turns() {
        let end = event("completed", r#""response":{"id":"r"}"#);
        let hops = hops.iter().map(|hop| Bytes::from(format!("{hop}{end}")));
        let case = Case {
            hops: hops.collect(),
            ..corpus::cases().swap_remove(0)
        };
        let want = case.turn().play();
        assert_eq!(want.answers.len(), case.hops.len(), "{name}");
        assert_eq!(want.answers.last().unwrap().verdict(), verdict, "{name}");
        let shown = String::from_utf8_lossy(&want.client);
        assert!(!shown.contains("recall"), "{name}: {shown}");
        let short = case.hops.iter().all(|hop| hop.len() < 350);
        assert!(short, "{name}: too long for pairs");
        case.turn().holds_cut_twice(|length| 0..=length);
    }
}
