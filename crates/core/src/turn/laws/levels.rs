//! The finer levels (design §5): results of all eligible episodes before any call, text or episode,
//! and what each leaves behind.

use plimsoll_wire::Dialect;
use serde_json::Value;

use super::properties::{self, Event, Piece, SessionTerms, play_in};
use super::say::{act, call, done, end, expl, text};
use super::sim::{Sim, check};
use crate::policy::Order;

/// A session in the finer order, whose results have lines of their own.
fn session() -> Sim {
    let mut sim = Sim::new();
    sim.settings.budget.order = Order::Levels;
    sim.labels.rich = true;
    sim
}

#[test]
fn results_of_all_episodes_go_before_any_call_and_acts_go_first() {
    let mut sim = session();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), act("b", &[]), call("edit", 300)]);
    sim.turn([done(), expl("c"), call("read", 300)]);
    sim.turn([end("of c"), call("bash", 5)]);
    sim.turn([text(1)]);
    check(
        &sim,
        &[
            &["=edit1"],
            &["=grep1"],
            &["=read1"],
            &["edit1"],
            &["grep1"],
            &["read1"],
            &["=bash1"],
            &["bash1"],
        ],
    );
}

#[test]
fn a_result_leaves_its_own_lines_and_then_a_stub() {
    let mut sim = session();
    sim.turn([expl("a"), call("read", 600)]);
    sim.turn([end("of a"), call("bash", 5)]);
    sim.turn([text(1)]);
    let (_, whole) = sim.look();
    sim.ceiling(whole.estimate - 1);
    let (sent, _) = sim.look();
    let clipped = sent
        .gist
        .iter()
        .find(|one| one.starts_with("~[clipped read:"));
    let clipped = clipped.expect("a skeleton");
    // The first lines stand in the call's own arguments, too.
    assert!(clipped.contains("src/read1/part_45.rs"), "{clipped}");
    assert!(!clipped.contains("src/read1/part_0.rs"), "{clipped}");
    assert!(!clipped.contains("the same everywhere"), "{clipped}");
    // With less room the lines go, too.
    let (_, prepared) = sim.look();
    sim.ceiling(prepared.estimate - 1);
    let (sent, _) = sim.look();
    let stub = |one: &&String| one.starts_with("~[evicted read:") && one.ends_with(" tokens]");
    assert_eq!(sent.gist.iter().filter(stub).count(), 1, "{:?}", sent.gist);
}

#[test]
fn long_arguments_keep_their_ends() {
    let mut sim = session();
    sim.turn([act("a", &[]), call("edit", 300)]);
    sim.turn([done(), call("bash", 5)]);
    sim.turn([text(1)]);
    let arguments = |sim: &Sim| {
        let (sent, _) = sim.look();
        let messages = sent.messages.iter().map(|one| serde_json::from_str(one));
        let messages: Vec<Value> = messages.map(Result::unwrap).collect();
        let calls = messages.iter().flat_map(|one| one["tool_calls"].as_array());
        let edit = calls
            .flatten()
            .find(|one| one["function"]["name"] == "edit");
        let arguments = edit.expect("the call")["function"]["arguments"].as_str();
        let arguments: Value = serde_json::from_str(arguments.unwrap()).unwrap();
        arguments["text"].as_str().unwrap().to_owned()
    };
    let whole = arguments(&sim);
    // First its result goes, which is worth less than what it was called with.
    for _ in 0..2 {
        let (_, prepared) = sim.look();
        assert_eq!(arguments(&sim), whole);
        sim.ceiling(prepared.estimate - 1);
    }
    let trimmed = arguments(&sim);
    let (front, rest) = trimmed.split_once(" …[").expect("what is cut is said");
    let (between, back) = rest.rsplit_once("]… ").unwrap();
    assert!(
        whole.starts_with(front) && whole.ends_with(back),
        "{trimmed}"
    );
    assert_eq!((front.chars().count(), back.chars().count()), (1000, 300));
    let gone = whole.chars().count() - 1300;
    assert_eq!(between, format!("{gone} characters cut"));
}

/// A fold of what open work depends on may leave the newest tombstone, and the ledger goes to that.
#[test]
fn the_ledger_is_counted_where_the_last_fold_leaves_it() {
    use Event::{Capped, Turn, User};
    use Piece::{Call, Mark, Same, Screen, Text, Think, Wrong};
    let events = [
        Turn(vec![Mark, Mark]),
        User(23),
        Turn(vec![Call(0, 1), Mark]),
        Turn(vec![Call(0, 1), Mark]),
        User(1),
        Turn(vec![Wrong(0), Screen(0, 5, 5)]),
        User(54),
        User(2),
        Turn(vec![Call(0, 16), Mark]),
        Turn(vec![Mark, Mark]),
        Turn(vec![Call(2, 272)]),
        Turn(vec![Think(3), Mark]),
        Capped(1, false),
        Turn(vec![Mark, Same, Mark, Mark, Mark, Call(1, 315)]),
        Turn(vec![Text(1)]),
    ];
    play_in(
        Dialect::Responses,
        &SessionTerms::short_spans(2_130),
        &events,
    );
}

#[test]
fn an_open_span_has_its_tombstone_with_the_first_call_that_goes() {
    let terms = SessionTerms::tight(897).without_recall();
    let mut sim = properties::session(&terms);
    sim.settings.budget.order = Order::Levels;
    sim.labels.rich = true;
    sim.settings.budget.implicit_tokens = 569;
    sim.settings.budget.ladder = "keep+cwl".parse().unwrap();
    // The lightest call carries the tombstone, and it is not the oldest.
    let events = [
        Event::Turn(vec![Piece::Call(0, 32), Piece::Text(1)]),
        Event::Turn(vec![Piece::Same, Piece::Screen(0, 0, 5)]),
        Event::Turn(vec![Piece::Screen(0, 8, 8), Piece::Call(3, 38)]),
        Event::Turn(vec![Piece::Text(1)]),
    ];
    properties::play_on(sim, &terms, &events);
}
