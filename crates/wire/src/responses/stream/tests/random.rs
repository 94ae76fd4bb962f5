//! The laws over random turns.

use proptest::prelude::*;

use super::corpus::{self, Case};
use super::say::Hop;
use super::{client, unstreamed};

/// What is called; the hidden ones last.
const NAMES: [&str; 5] = ["read", "{read}", "delimiter", "recall", "{recall}"];
/// How a hop ends.
const ENDS: [&str; 5] = ["completed", "completed", "completed", "length", "failed"];

/// What a hop says next.
#[derive(Debug, Clone, Copy)]
enum Said {
    Text,
    Reasoning,
    Search,
    Custom,
    Alive,
    Call(&'static str),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        Just(Said::Text),
        Just(Said::Reasoning),
        Just(Said::Search),
        Just(Said::Custom),
        Just(Said::Alive),
        proptest::sample::select(&NAMES[..]).prop_map(Said::Call),
        proptest::sample::select(&NAMES[2..]).prop_map(Said::Call),
    ]
}

/// A hop that says this and ends in this way.
fn hop(number: usize, said: &[Said], end: &str) -> Hop {
    let id = if number == 0 { "resp_0a1b" } else { "resp_x" };
    let hop = Hop::new(id).limit(500 - number as u64).begin();
    let hop = said.iter().enumerate().fold(hop, |hop, (at, said)| {
        let id = format!("{number}_{at}");
        match said {
            Said::Text => hop.text(&format!("msg_{id}"), &["a\u{e4}", "\"b\n"]),
            Said::Reasoning => hop.reasoning(&format!("rs_{id}"), &["Why."]),
            Said::Search => hop.search(&format!("ws_{id}")),
            Said::Custom => hop.custom(&id, "apply_patch", &["*", "*"]),
            Said::Alive => hop.event("keepalive", r#""z":0"#),
            Said::Call(name) => hop.call(&id, name, &["{", "}"]),
        }
    });
    // What failed is not counted.
    let used = [80 + number as u64, 40, 7, 2];
    hop.end(end, if end == "failed" { [0; 4] } else { used })
}

fn turn() -> impl Strategy<Value = Case> {
    let end = proptest::sample::select(&ENDS[..]);
    let hops = (proptest::collection::vec(said(), 0..6), end);
    proptest::collection::vec(hops, 1..4).prop_map(|hops| {
        let hops = hops.iter().enumerate();
        Case {
            name: "random",
            hops: hops
                .map(|(number, (said, end))| hop(number, said, end).bytes())
                .collect(),
            ..corpus::cases().swap_remove(0)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_random_turn_is_one_sound_response(case in turn(), at in 0.0..1.0_f64) {
        let seen = case.turn().play();
        let view = client::read(&seen.client);
        client::sound(&case, &seen.client, &view);
        unstreamed(&case, &seen);
        let last = seen.answers.len() - 1;
        let length = case.hops[last].len() as f64;
        let again = case.turn().play_cut(last, &[(length * at) as usize]);
        prop_assert_eq!(again, seen);
    }
}
