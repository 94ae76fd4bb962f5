//! What `recall` does to a conversation: what comes back, where it stands, when it goes again, and
//! which texts name it.

use plimsoll_model::{Effect, ItemKind, Mark};
use proptest::prelude::*;
use serde_json::json;

use super::properties::{self, SessionTerms};
use super::say::{Say, act, call, done, end, expl, hop, recall, text};
use super::sim::{Sim, count};
use crate::policy::Order;
use crate::session::ids;

/// A session with `recall`, whose first episode is evicted down to its tombstone.
fn evicted() -> Sim {
    let mut sim = Sim::new();
    sim.settings.recall.enabled = true;
    sim.turn([expl("a"), call("grep", 300), call("read", 300)]);
    sim.turn([end("of a"), text(5)]);
    sim.turn([expl("b"), call("bash", 50)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 500);
    sim.turn([call("bash", 5)]);
    sim.ceiling(1_000_000);
    let (sent, _) = sim.look();
    assert!(
        !sent.gist.contains(&"=grep1".to_owned()),
        "{:#?}",
        sent.gist
    );
    sim
}

/// The results of the recalls of the newest turn.
fn results(sim: &Sim) -> Vec<String> {
    let record = sim.path.newest().unwrap();
    let calls = record.hops.iter().flat_map(|hop| &hop.calls);
    let recalls = calls.filter(|call| call.bytes.contains(r#""name":"recall""#));
    recalls.map(|call| call.result.clone()).collect()
}

#[test]
fn a_recall_brings_back_the_call_and_its_result() {
    let mut sim = evicted();
    sim.turn([recall("grep:5")]);
    let original = format!("grep1{}", " go".repeat(300));
    let head = "recalled grep:5: 1 line\ngrep {\"label\":\"grep1\"}\n";
    assert_eq!(results(&sim), [format!("{head}{original}")]);
    sim.turn([recall("grep:5"), hop(), recall("grep:5")]);
    assert_eq!(
        results(&sim),
        [
            "grep:5 was recalled in recall:21, which is still in view",
            "already done; go on with the work"
        ]
    );
    sim.turn([recall("a")]);
    let got = results(&sim).remove(0);
    let want = "recalled expl \"a\", 2 items: 3 lines\nof a\n[grep:5] grep:5 was recalled in recall:21, which is still in view\n[read:6] read {\"label\":\"read1\"}\nread1 go";
    assert!(got.starts_with(want), "{got}");
}

#[test]
fn a_path_or_a_search_alone_finds_what_is_gone() {
    let mut sim = evicted();
    // The client's tools here name what they read in `label`.
    sim.turn([recall("src/read1")]);
    let got = results(&sim).remove(0);
    assert!(
        got.starts_with("recalled read:6: 1 line\nread {\"label\":\"read1\"}\nread1 go"),
        "{got}"
    );
    sim.turn([Say::Recall(json!({"search": "GREP1"}))]);
    let got = results(&sim).remove(0);
    assert!(
        got.starts_with("recalled from all that is evicted: 2 of 2 lines with \"GREP1\", of 2"),
        "{got}"
    );
    assert!(
        got.contains("1: grep:5: grep {\"label\":\"grep1\"}"),
        "{got}"
    );
    sim.turn([
        recall("src/nobody.rs"),
        Say::Recall(json!({"search": "no such text"})),
    ]);
    let offered = "evicted are read:6 (read {\"label\":\"read1\"}), grep:5 (grep {\"label\":\"grep1\"}); episodes: a";
    assert_eq!(
        results(&sim),
        [
            format!("nothing is known as \"src/nobody.rs\"; {offered}"),
            format!("nothing that is evicted has \"no such text\"; {offered}"),
        ]
    );
}

#[test]
fn what_was_recalled_goes_like_any_other_content() {
    // Alone in its hop, beside a mark, beside a visible call: each is cut out of its message.
    for said in [
        vec![recall("grep:5"), hop(), text(3)],
        vec![text(4), recall("grep:5"), end("of b"), hop(), text(3)],
        vec![recall("grep:5"), call("odd", 5), end("of b"), text(2)],
    ] {
        let mut sim = evicted();
        sim.settings.budget.order = Order::Levels;
        sim.thorough = true;
        sim.turn(said.clone());
        sim.turn([text(3)]);
        sim.turn([call("odd", 5)]);
        let shown = |sim: &Sim| {
            let (sent, _) = sim.look();
            sent.gist
                .iter()
                .any(|shown| shown.starts_with("~recalled grep:5"))
        };
        assert!(shown(&sim), "{said:?}");
        // With still less room nothing is left but what the user said and the newest exchange.
        while shown(&sim) {
            let (_, prepared) = sim.look();
            sim.ceiling(prepared.estimate - 1);
        }
        let (sent, _) = sim.look();
        let names = |shown: &String| {
            let words = ["recall:", "auto-", " earlier"];
            words.iter().any(|word| shown.contains(word))
        };
        assert!(sent.gist.iter().any(names), "{said:?}: {:#?}", sent.gist);
    }
}

#[test]
fn a_third_recall_stays_until_its_episode_ends() {
    let mut sim = evicted();
    sim.settings.budget.order = Order::Levels;
    let shown = |sim: &Sim| {
        let (sent, _) = sim.look();
        sent.gist
            .iter()
            .any(|shown| shown.starts_with("~recalled grep:5"))
    };
    for time in 1..=3 {
        sim.turn([recall("grep:5")]);
        assert_eq!(
            results(&sim)[0].contains("it stays in view until"),
            time == 3
        );
        // What stands behind it goes in its place where it is pinned.
        let behind = if time == 3 { 400 } else { 5 };
        sim.turn([call("read", behind)]);
        sim.turn([call("bash", 5)]);
        let (_, all) = sim.look();
        sim.ceiling(all.estimate - 250);
        sim.turn([text(1)]);
        assert_eq!(shown(&sim), time == 3);
        sim.lift();
    }
    // It is freed before a budget is reported unmet.
    let mut low = sim.clone();
    low.ceiling(sim.least());
    let (_, prepared) = low.look();
    assert!(prepared.pinned.is_none() && !shown(&low));
    sim.turn([end("of b"), text(1)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 250);
    sim.turn([text(1)]);
    assert!(!shown(&sim));
}

#[test]
fn ids_count_as_asked_for_within_ten_turns_only() {
    let mut sim = evicted();
    sim.settings.recall.enabled = true;
    for time in 1..=3 {
        sim.turn([recall("grep:5")]);
        assert!(!results(&sim)[0].contains("it stays"), "{time}");
        for _ in 0..5 {
            sim.turn([call("bash", 5)]);
        }
        let (_, all) = sim.look();
        sim.ceiling(all.estimate - 100);
        sim.turn([text(1)]);
        sim.ceiling(1_000_000);
    }
}

#[test]
fn a_text_of_which_a_line_is_left_comes_back() {
    for mut sim in [Sim::new(), Sim::finer()] {
        sim.settings.recall.enabled = true;
        for _ in 0..3 {
            sim.turn([text(200)]);
            sim.user(5);
        }
        let (_, all) = sim.look();
        sim.ceiling(all.estimate - 100);
        sim.turn([call("bash", 5)]);
        sim.ceiling(1_000_000);
        let (sent, _) = sim.look();
        assert!(!sent.gist.contains(&"text1".to_owned()), "{:#?}", sent.gist);
        sim.turn([recall("text:3")]);
        let got = results(&sim).remove(0);
        assert!(
            got.ends_with(&format!("text1{}", " go".repeat(200))),
            "{got}"
        );
    }
}

#[test]
fn an_act_on_evicted_exploration_is_told_how_to_get_it_back() {
    let told = |sim: &Sim| sim.path.newest().unwrap().hops[0].calls[1].result.clone();
    let mut sim = evicted();
    sim.turn([end("of b"), expl("c"), call("bash", 5)]);
    sim.turn([end("of c"), act("d", &["a", "c"]), call("bash", 5)]);
    let of_both = told(&sim);
    assert!(
        of_both.ends_with("\nevicted originals: recall(\"a\")"),
        "{of_both}"
    );
    sim.turn([done(), act("e", &["c"]), call("bash", 5)]);
    let of_live = told(&sim);
    assert!(!of_live.contains("evicted"), "{of_live}");
}

/// An act holds what it stands on, its text too, from the message on that begins it.
#[test]
fn a_recall_has_room_only_beside_what_an_act_of_its_message_holds() {
    let mut sim = Sim::new();
    sim.settings.recall.enabled = true;
    sim.turn([expl("a"), call("grep", 600)]);
    sim.turn([end("of a"), text(5)]);
    sim.turn([expl("b"), text(900), call("bash", 5)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 500);
    sim.turn([end("of b"), text(5)]);
    sim.turn([call("bash", 5)]);
    let (_, left) = sim.look();
    for more in (0..700).step_by(20) {
        let mut sim = sim.clone();
        sim.ceiling(left.estimate + more);
        // The hop behind the recall is held to its budget.
        sim.turn([act("d", &["b"]), recall("a"), hop(), text(1)]);
        sim.turn([done(), text(1)]);
    }
}

#[test]
fn the_ledger_names_recall_and_goes_on_in_it() {
    let mut sim = Sim::finer();
    sim.settings.recall.enabled = true;
    sim.ceiling(5000);
    let what = |n: usize| format!("what-{n} was {}", "found in a file ".repeat(14));
    for n in 0..80 {
        sim.turn([expl(&format!("e{n}")), call("grep", 400)]);
        sim.turn([end(&what(n)), text(2)]);
    }
    let (sent, _) = sim.look();
    let ledger = |shown: &&String| shown.starts_with("~ledger");
    let ledger = sent.gist.iter().find(ledger).unwrap().clone();
    let last = ledger.lines().last().unwrap();
    let left: usize = last
        .strip_suffix(" earlier, recall(\"ledger:1\")")
        .unwrap_or_else(|| panic!("{last}"))
        .parse()
        .unwrap();
    assert!(count(&ledger) <= 5000 / 20 + 1, "{}", count(&ledger));
    sim.turn([recall("ledger:1"), hop(), recall("ledger:2")]);
    let results = results(&sim);
    let head = format!("recalled ledger:1 of 1: {left} lines\n- e");
    assert!(results[0].starts_with(&head), "{}", results[0]);
    assert_eq!(results[1], "the ledger goes on to ledger:1 only");
    let listed = results[0].lines().skip(1);
    let shown = ledger.lines().filter(|line| line.starts_with("- "));
    let all: Vec<&str> = shown.chain(listed).collect();
    let newest = all.iter().map(|line| line.split(':').next().unwrap());
    let numbers: Vec<usize> = newest
        .map(|name| name["- e".len()..].parse().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one > next), "{numbers:?}");
    let lost = |n: &usize| !numbers.contains(n) && !sent.gist.contains(&format!("+e{n}"));
    assert_eq!((0..40).find(lost), None, "nothing is lost");
    // Each of them comes back by the name that it has there.
    sim.turn([recall("e0")]);
    let got = self::results(&sim).remove(0);
    assert!(
        got.starts_with(&format!(
            "recalled expl \"e0\", 2 items: 4 lines\n{}\n[",
            what(0).trim()
        )),
        "{got}"
    );
}

#[test]
fn a_copy_that_the_client_edits_is_recalled_as_it_was() {
    let mut sim = evicted();
    sim.settings.budget.order = Order::Levels;
    sim.turn([recall("grep:5")]);
    sim.turn([call("bash", 200)]);
    sim.turn([call("bash", 5)]);
    sim.ceiling(sim.least() + 40);
    sim.turn([text(1)]);
    sim.ceiling(1_000_000);
    for message in &mut sim.messages {
        if message.contains("=grep1") || message.contains("\"grep1 go") {
            let mut new: serde_json::Value = serde_json::from_str(message).unwrap();
            new["content"] = "cleared".into();
            *message = new.to_string();
        }
    }
    sim.align();
    sim.turn([recall("grep:5")]);
    assert!(results(&sim)[0].ends_with(&" go".repeat(300)));
}

proptest! {
    #![proptest_config(properties::config())]

    #[test]
    fn any_evicted_item_comes_back_byte_for_byte(
        events in prop::collection::vec(properties::turn(), 4..24),
        ceiling in 900_u32..2500,
    ) {
        let mut sim = properties::play(&SessionTerms::tight(ceiling), &events);
        sim.lift();
        // What a person asked for last still waits, and would be said before what the model says.
        sim.recalls.clear();
        sim.evictions.clear();
        let (_, prepared) = sim.look();
        let marks = sim.path.marks.clone();
        let view = &prepared.view;
        let items = view.transcript().items.indexed();
        // A mark that holds the ledger alone takes nothing.
        let gone = items.filter(|(at, item)| {
            item.kind != ItemKind::Result && marks.get(item.no) > Mark::Live && !view.is_whole(*at)
        });
        let gone: Vec<String> = gone.map(|(_, item)| ids::id(item)).collect();
        for id in gone {
            // Its bytes are judged as each turn is; here it is made sure that there are any.
            let mut one = sim.clone();
            one.turn([recall(&id)]);
            let record = one.path.newest().unwrap();
            let call = record.hops.iter().flat_map(|hop| &hop.calls).next().unwrap();
            match &call.effect {
                Effect::Recalled { originals, .. } => prop_assert_eq!(originals.len(), 1, "{}", id),
                _ => prop_assert!(call.result.contains("was recalled in"), "{}: {}", id, call.result),
            }
        }
    }
}
