//! Thoughts have the size that was asked for, are the same in every run, and hold nothing that is measured.

use super::*;
use crate::{Contender, Lab, Options, drive, trace};

const SESSION: &str = concat!(
    r#"{"role":"system","content":"You mend programs and write what you have done in short words."}"#,
    "\n",
    r#"{"role":"user","content":"Find out why the test of the parser fails and mend src/parser.rs"}"#,
    "\n",
    r#"{"role":"assistant","content":null,"reasoning_content":"The user asks for src/parser.rs, so read it.","tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{\"path\":\"src/parser.rs\"}"}}]}"#,
    "\n",
    r#"{"role":"tool","tool_call_id":"a","content":"fn parse() -> Option<Node> { None } // this always fails, so the test of it must fail too"}"#,
    "\n",
    r#"{"role":"assistant","content":"The parser never returns a node.","reasoning":"Say it."}"#,
    "\n",
    r#"{"role":"user","content":"Go on"}"#,
    "\n",
    r#"{"role":"assistant","content":"It is done."}"#,
    "\n",
);

fn given(think: Think) -> (Trace, Vec<u32>) {
    let counter = Counter::load();
    let trace = trace::parse("short", SESSION).unwrap();
    let trace = think.thought(trace, &counter, Encoding::O200k);
    let lab = Lab::new(Options::default()).unwrap();
    let shapes = drive::shapes(&lab, &trace).unwrap();
    let answers = shapes.iter().filter(|shape| shape.role == Role::Assistant);
    let sizes = answers.map(|shape| shape.reasoning).collect();
    (trace, sizes)
}

fn think(text: &str) -> Think {
    Think::parse(text).unwrap()
}

#[test]
fn every_answer_thinks_as_much_as_was_asked_for() {
    for tokens in [1, 3, 50, 250, 800, 2_500, 20_000] {
        let (trace, sizes) = given(Think { tokens, spread: 0 });
        assert_eq!(sizes.len(), 3);
        for size in sizes {
            let off = size.abs_diff(tokens);
            assert!(off <= 3.max(tokens / 50), "{size} of {tokens}");
        }
        let planned = trace
            .recording
            .turns
            .iter()
            .map(|turn| &turn.answer.reasoning);
        let answers = trace
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant);
        for (planned, message) in planned.zip(answers) {
            let sent: serde_json::Value = serde_json::from_slice(&message.raw).unwrap();
            assert_eq!(sent["reasoning_content"], planned.as_str());
            assert_eq!(sent.get("reasoning"), None, "what was recorded is gone");
        }
        // Calls and texts stay as they are.
        let recorded = trace::parse("short", SESSION).unwrap();
        let said = |trace: &Trace| -> Vec<(String, usize)> {
            let turns = trace.recording.turns.iter().map(|turn| &turn.answer);
            turns
                .map(|answer| (answer.text.clone(), answer.calls.len()))
                .collect()
        };
        assert_eq!(said(&trace), said(&recorded));
    }
}

#[test]
fn a_spread_varies_sizes_and_stops_at_nothing() {
    let counter = Counter::load();
    let long = "{\"role\":\"user\",\"content\":\"go on with it\"}\n{\"role\":\"assistant\",\"content\":\"done so far\"}\n";
    let trace = trace::parse("long", &long.repeat(200)).unwrap();
    let sizes = |text| -> Vec<u32> {
        let trace = think(text).thought(trace.clone(), &counter, Encoding::O200k);
        let turns = trace.recording.turns.iter();
        turns
            .map(|turn| counter.count(Encoding::O200k, &turn.answer.reasoning))
            .collect()
    };
    let even = sizes("300,200");
    assert!(
        even.iter().all(|size| (97..=503).contains(size)),
        "{even:?}"
    );
    let mean = even.iter().sum::<u32>() / 200;
    assert!((270..=330).contains(&mean), "{mean}");
    assert!(even.iter().any(|size| *size < 150) && even.iter().any(|size| *size > 450));
    assert_eq!(even, sizes("300,200"), "every run is equal");
    let low = sizes("20,100");
    assert!(
        low.contains(&0) && low.iter().all(|size| *size <= 123),
        "{low:?}"
    );
}

#[test]
fn without_tokens_a_session_is_as_it_was_recorded() {
    let recorded = trace::parse("short", SESSION).unwrap();
    let (trace, _) = given(think("0"));
    assert_eq!(trace.messages, recorded.messages);
    assert!(!trace.made_up);
}

#[test]
fn nothing_is_looked_for_in_thoughts() {
    let (options, many) = (Options::default(), think("2500"));
    let contender = Contender::new(
        plimsoll_core::policy::Policy::None.into(),
        4_000_000,
        options.floor,
        &options,
    );
    let lab = Lab::new(options.clone()).unwrap();
    let contenders = [contender.unwrap()];
    let outcome = |trace: &Trace| {
        drive::play(&lab, trace, &contenders, None).unwrap().players[0]
            .run
            .outcome
    };
    let bare = SESSION
        .replace("The user asks for src/parser.rs, so read it.", "")
        .replace("Say it.", "");
    let (without, with) = (
        outcome(&trace::parse("short", &bare).unwrap()),
        outcome(&given(many).0),
    );
    assert_eq!(
        (with.visible, with.lines, with.passages),
        (without.visible, without.lines, without.passages)
    );
    assert!(without.visible.whole > 0);
    // Three thoughts are written, and the first two are sent: the first with two requests.
    let sent = with.sent - without.sent;
    assert!(sent.abs_diff(3 * 2_500) < 100, "{sent}");
    assert!(
        (with.thinking / 5.0 - 7_500.0).abs() < 60.0,
        "{}",
        with.thinking
    );
    assert!(with.cost - without.cost > with.thinking && without.thinking == 0.0);
}

#[test]
fn sizes_are_read_as_people_write_them() {
    for (text, tokens, spread) in [("800", 800, 0), ("0", 0, 0), ("2.5k,500", 2_500, 500)] {
        assert_eq!(Think::parse(text), Ok(Think { tokens, spread }), "{text}");
    }
    for wrong in ["", "-1", "800,", ",3", "many", "1,2,3", "100001", "99k,2k"] {
        assert!(
            Think::parse(wrong).unwrap_err().contains("N,SPREAD"),
            "{wrong}"
        );
    }
}
