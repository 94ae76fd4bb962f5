//! The forms of real sessions, and what fills them.

use std::path::Path;

use plimsoll_core::policy::Ladder;

use super::fill::fitted;
use super::*;
use crate::{Annotate, Options, source};

/// The views of a session, by turn and by form.
fn views() -> Vec<BTreeMap<String, Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/sessions/entire-cli-c3910213cc.jsonl.zst");
    let sources = source::find(&[path]).unwrap().found;
    let lab = Lab::new(Options {
        policies: vec![
            Ladder::from(Policy::None),
            "repeat+keep+cwl".parse().unwrap(),
        ],
        ceilings: vec![8_000],
        annotate: Annotate::None,
        ..Options::default()
    })
    .unwrap();
    let choice = Choice {
        turns: 4,
        run: 1,
        seed: 1,
        longest: 30_000,
        like: None,
    };
    let found = write(&lab, &sources, &choice, &()).unwrap();
    let lines = found.lines.iter();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let turn = |lines: &[Value]| {
        let named = lines
            .iter()
            .map(|line| (line["policy"].as_str().unwrap().to_owned(), line.clone()));
        named.collect()
    };
    lines.chunks(Form::WORDS.len()).map(turn).collect()
}

/// The texts of all results, by call.
fn results(view: &Value) -> BTreeMap<String, String> {
    let messages = view["messages"].as_array().unwrap().iter();
    let text = |one: &Value, field: &str| one[field].as_str().map(str::to_owned);
    let all = messages.filter_map(|one| Some((text(one, "tool_call_id")?, text(one, "content")?)));
    all.collect()
}

#[test]
fn views_differ_in_what_stands_for_one_exploration() {
    let all = views();
    assert_eq!(all.len(), 4);
    for forms in &all {
        let share = |form: &str, measure: &str| {
            let found = &forms[form]["measures"][measure];
            (found[0].as_u64().unwrap(), found[1].as_u64().unwrap())
        };
        let shown = |form: &str| share(form, "K").0 + share(form, "L").0;
        assert!(
            shown("whole") > shown("nothing"),
            "an answer needs some of it"
        );
        assert!(shown("foreseen") >= shown("scripted"));
        let tombstone = |form: &str| results(&forms[form])["call_delimiter"].clone();
        for form in ["scripted", "finding", "foreseen"] {
            let text = tombstone(form);
            assert!(text.starts_with("expl \"look-"), "{text}");
            assert!(text.contains("\nevicted "), "{text}");
        }
        assert!(tombstone("stubs+finding").starts_with("closed expl \"look-"));
        assert!(!results(&forms["stubs"]).contains_key("call_delimiter"));
        // Whatever stands for it, calls and results belong together.
        for (form, view) in forms {
            let mut open: Vec<String> = Vec::new();
            for message in view["messages"].as_array().unwrap() {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                let ids = calls.map(|call| call["id"].as_str().unwrap().to_owned());
                open.extend(ids);
                if let Some(id) = message["tool_call_id"].as_str() {
                    let place = open.iter().position(|one| one == id);
                    open.remove(place.unwrap_or_else(|| panic!("{form}: {id}")));
                }
            }
            assert!(open.is_empty(), "{form}: {open:?}");
        }
    }
}

#[test]
fn what_room_is_left_goes_to_other_results() {
    let mut level = 0;
    for forms in views() {
        let size = |form: &str| forms[form]["tokens"].as_u64().unwrap();
        let equal = Form::WORDS.iter().filter(|(_, form)| *form != Form::Whole);
        let sizes: Vec<u64> = equal.map(|(word, _)| size(word)).collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        level += usize::from(*most <= least + least / 50);
    }
    // Where little else was evicted there is nothing to fill with.
    assert!(level >= 3, "{level} of 4");
}

#[test]
fn a_result_is_filled_with_its_first_lines_and_keeps_those_it_shows() {
    let lab = Lab::new(Options::default()).unwrap();
    let original: String = (0..40)
        .map(|at| format!("line {at} of the result\n"))
        .collect();
    let message = |text: &str| json!({"role": "tool", "tool_call_id": "a", "content": text});
    let filled = |stub: &str, room: u64| {
        let message = message(stub).to_string();
        let found = fitted(&lab, message.as_bytes(), stub, &original, room);
        read(&found).unwrap().text.unwrap()
    };
    let stub = "[evicted bash:7, 240 tokens]";
    assert_eq!(filled(stub, 0), stub);
    assert_eq!(filled(stub, 100_000), original);
    let some = filled(stub, 40);
    assert!(
        some.starts_with("[clipped bash:7, 240 tokens; lines left out: …]\nline 0 of"),
        "{some}"
    );
    assert!(some.ends_with("\n…"), "{some}");
    let skeleton = "[clipped bash:7, 240 tokens; lines left out: …]\n…\nline 30 of the result\n…";
    let some = filled(skeleton, 20);
    assert!(some.contains("left out: …]\nline 0 of"), "{some}");
    assert!(some.ends_with("\n…\nline 30 of the result\n…"), "{some}");
}
