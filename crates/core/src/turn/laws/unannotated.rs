//! What the agent left unmarked: cut into implicit episodes at user messages and by length,
//! looking backwards only (design §5).

use std::sync::Arc;

use plimsoll_wire::Dialect;

use super::say::{act, call, done, end, expl, step, text};
use super::sim::{Sim, check};
use crate::commit::Floor;
use crate::policy::Order;
use crate::session::graph::EpisodeKind;
use crate::turn::text_results::{TextProfile, TextResults};

/// The implicit episodes of the next request: the labels of their calls and texts, and whether
/// each is closed.
fn segments(sim: &Sim) -> Vec<(Vec<String>, bool)> {
    let (_, prepared) = sim.look();
    let transcript = prepared.view.transcript();
    let implicit = transcript
        .graph
        .episodes
        .iter()
        .filter(|episode| episode.kind == EpisodeKind::Implicit);
    implicit
        .map(|episode| {
            let items = episode.items.iter().map(|at| &transcript.items[*at]);
            let names = items.map(|item| match &*item.name {
                "" => "text".to_owned(),
                name => name.to_owned(),
            });
            (names.collect(), episode.closed)
        })
        .collect()
}

#[track_caller]
fn cut(sim: &Sim, expect: &[(&[&str], bool)]) {
    let expect: Vec<(Vec<String>, bool)> = expect
        .iter()
        .map(|(names, closed)| (names.iter().map(ToString::to_string).collect(), *closed))
        .collect();
    assert_eq!(segments(sim), expect);
}

#[test]
fn spans_are_cut_at_user_messages_at_starts_and_by_length() {
    let mut sim = Sim::new();
    sim.settings.budget.implicit_tokens = 500;
    sim.turn([call("grep", 200)]);
    sim.turn([call("read", 200)]);
    cut(&sim, &[(&["grep", "read"], false)]);
    sim.turn([call("bash", 200)]);
    // Over 500 now, but a cut is made before the next answer and never inside one.
    cut(&sim, &[(&["grep", "read", "bash"], false)]);
    sim.turn([call("odd", 10)]);
    cut(
        &sim,
        &[(&["grep", "read", "bash"], true), (&["odd"], false)],
    );
    sim.turn([text(5)]);
    sim.user(5);
    sim.turn([call("edit", 10)]);
    let marked: [(&[&str], bool); 3] = [
        (&["grep", "read", "bash"], true),
        (&["odd", "text"], true),
        (&["edit"], true),
    ];
    sim.turn([expl("a"), call("grep", 10)]);
    cut(&sim, &marked);
    // A user message inside an episode cuts nothing.
    sim.user(5);
    sim.turn([end("of a"), call("grep", 1)]);
    let [first, second, third] = marked;
    cut(&sim, &[first, second, third, (&["grep"], false)]);
}

#[test]
fn cuts_go_by_raw_counts_without_reasoning() {
    let segments_of = |drops: bool| {
        let mut sim = Sim::new();
        sim.drops_reasoning = drops;
        sim.settings.budget.implicit_tokens = 150;
        for _ in 0..6 {
            sim.turn([super::say::think(100), call("grep", 60)]);
        }
        segments(&sim).iter().filter(|(_, closed)| *closed).count()
    };
    assert_eq!(segments_of(true), segments_of(false));
}

#[test]
fn a_span_keeps_its_first_call_and_its_text_until_all_of_it_goes() {
    let mut sim = Sim::new();
    sim.turn([text(60), call("read", 300)]);
    sim.turn([call("grep", 300)]);
    sim.turn([text(60)]);
    sim.user(5);
    sim.turn([text(1)]);
    check(
        &sim,
        &[
            // Its first call carries the line of what is gone from the first strip on.
            &["=read1", "grep1", "=grep1"],
            &["text1", "text2"],
        ],
    );
    sim.ceiling(sim.least());
    let (sent, _) = sim.look();
    assert!(sent.gist.contains(&"read1".to_owned()));
}

#[test]
fn marked_and_unmarked_exploration_go_in_one_order_by_place_and_acts_before_both() {
    let mut sim = Sim::new();
    sim.turn([call("grep", 300)]);
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), call("grep", 300)]);
    sim.turn([expl("b"), call("grep", 300)]);
    sim.turn([end("of b"), act("c", &[]), call("edit", 300)]);
    sim.turn([done(), call("bash", 10)]);
    sim.turn([text(1)]);
    check(
        &sim,
        &[
            &["edit1", "=edit1"],
            &["=grep1"],
            &["grep2", "=grep2"],
            &["=grep3"],
            &["grep4", "=grep4"],
        ],
    );
}

#[test]
fn a_run_with_one_user_message_is_evicted_all_the_same() {
    let mut sim = Sim::new();
    sim.settings.budget.implicit_tokens = 1000;
    sim.ceiling(6000);
    for _ in 0..60 {
        sim.turn([call("grep", 400)]);
    }
    assert!(sim.sent.iter().all(|sent| !sent.exceeded));
    assert!(sim.sent.iter().any(|sent| sent.passed));
}

/// An agent that calls by text is asked for one thing, and later for another.
fn by_text(sim: &mut Sim, turns: usize, again: bool) {
    sim.settings.budget.implicit_tokens = 900;
    for turn in 0..turns {
        sim.turn([step(30)]);
        let label = sim.labels.next("seen");
        let result = format!(
            "Observation:\nExecution logs:\n{}\nLast output from code snippet:\nNone",
            super::say::filled(&label, 300)
        );
        sim.push(&serde_json::json!({"role": "user", "content": result}));
        if again && turn == turns / 2 {
            sim.turn([text(30)]);
            sim.user(20);
        }
    }
}

#[test]
fn results_that_come_as_text_go_where_a_profile_says_so() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        // Nobody said that these are no user's words.
        let mut sim = chat(dialect);
        by_text(&mut sim, 12, true);
        assert!(sim.look().0.exceeded);
        assert!(sim.messages.len() == sim.look().0.messages.len());

        let mut sim = chat(dialect);
        sim.settings.texts = Arc::new(TextResults {
            profile: Some(TextProfile::Smolagents),
            ..TextResults::default()
        });
        by_text(&mut sim, 60, true);
        assert!(sim.sent.iter().all(|sent| !sent.exceeded));
        assert!(sim.sent.iter().any(|sent| sent.passed));
        let (sent, _) = sim.look();
        let all = sent.messages.join("\n");
        assert!(all.contains(r"Observation:\n[evicted step:"), "{all}");
        for label in ["user1", "user2"] {
            assert!(sent.gist.contains(&label.to_owned()), "{label}");
        }
        let role = |message: &String| -> serde_json::Value {
            let message: serde_json::Value = serde_json::from_str(message).unwrap();
            message["role"].clone()
        };
        // What is left of one task, and of one after another, is in turns.
        for again in [false, true] {
            let mut sim = chat(dialect);
            sim.settings.texts = Arc::new(TextResults {
                profile: Some(TextProfile::Smolagents),
                ..TextResults::default()
            });
            by_text(&mut sim, 60, again);
            let sent = sim.look().0;
            let roles: Vec<_> = sent.messages.iter().map(role).collect();
            let apart = roles.windows(2).all(|pair| pair[0] != pair[1]);
            assert!(apart, "{dialect:?} {again}: {roles:?}");
            let answer = sent
                .messages
                .iter()
                .any(|one| one.contains("[evicted text:"));
            assert_eq!(answer, again, "{dialect:?}");
        }
    }
}

#[test]
fn an_agent_that_calls_by_text_is_known_by_its_own_sentence_and_first_result() {
    let sentence = "You are an expert assistant who can solve any task using code blobs. \
                    You will be given a task to solve as best you can.";
    for (system, known) in [(sentence, true), ("You are an expert assistant.", false)] {
        let mut sim = chat(Dialect::Chat);
        let system = serde_json::json!({"role": "system", "content": format!("{system}\nMore.")});
        sim.messages[0] = system.to_string();
        by_text(&mut sim, 20, true);
        assert_eq!(!sim.look().0.exceeded, known);
        // A user who answers first is one, whatever else is fixed.
        let mut sim = chat(Dialect::Chat);
        sim.messages[0] = system.to_string();
        sim.turn([text(30)]);
        sim.user(20);
        by_text(&mut sim, 20, true);
        assert!(sim.look().0.exceeded);
    }
}

/// A chat: no tools, no calls, nothing but texts.
fn chat(dialect: Dialect) -> Sim {
    let mut sim = Sim::new();
    (sim.dialect, sim.tools, sim.thorough) = (dialect, false, true);
    sim.settings.budget.order = Order::Levels;
    sim.settings.budget.floor = Floor::Fraction(0.7);
    sim.ceiling(3000);
    sim
}

#[test]
fn the_answers_of_a_chat_become_lines_in_their_own_places() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let mut sim = chat(dialect);
        for _ in 0..40 {
            sim.turn([super::say::think(40), text(300)]);
            sim.user(20);
        }
        assert!(sim.sent.iter().all(|sent| !sent.exceeded));
        let passes = sim.sent.iter().filter(|sent| sent.passed).count();
        assert!((3..20).contains(&passes), "{passes}");
        let (sent, _) = sim.look();
        let line = "[evicted text:3, ";
        let all = sent.messages.join("\n");
        assert!(all.contains(line), "{all}");
        assert!(sent.gist.contains(&"user1".to_owned()));
        assert!(!sent.gist.contains(&"text1".to_owned()));
        assert!(sent.gist.contains(&"text40".to_owned()));
    }
}

#[test]
fn a_history_of_calls_is_held_without_tools_too() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let mut sim = chat(dialect);
        for turn in 0..40 {
            sim.turn([text(60), call("grep", 300)]);
            if turn % 7 == 6 {
                sim.turn([text(20)]);
                sim.user(20);
            }
        }
        assert!(sim.sent.iter().all(|sent| !sent.exceeded));
        assert!(sim.sent.iter().any(|sent| sent.passed));
    }
}

#[test]
fn a_span_without_calls_keeps_its_text_until_the_ledger_takes_it() {
    let mut sim = Sim::finer();
    for _ in 0..4 {
        sim.turn([text(100)]);
        sim.user(3);
    }
    // There is no call that could carry a word of it: a line stands in its place.
    check(&sim, &[&["text1"], &["text2"], &["text3"]]);
    sim.turn([expl("a"), call("grep", 200)]);
    sim.turn([end("of a"), text(1)]);
    sim.user(3);
    sim.turn([text(1)]);
    check(
        &sim,
        &[
            &["=grep1"],
            &["grep1"],
            &["text5"],
            &["text1"],
            &["text2"],
            &["text3"],
            &["text4"],
            &["text6"],
        ],
    );
    // The ledger names it, until nothing but the newest exchange is left.
    let least = sim.least();
    let named = |gist: &[String]| {
        let mut ledgers = gist.iter().filter(|shown| shown.starts_with("~ledger"));
        ledgers.any(|ledger| ledger.contains("- auto-"))
    };
    let mut any = false;
    loop {
        let (sent, prepared) = sim.look();
        any |= named(&sent.gist);
        if any || prepared.estimate <= least {
            break;
        }
        sim.ceiling(prepared.estimate - 1);
    }
    assert!(any);
}
