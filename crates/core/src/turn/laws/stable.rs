//! What stays the same whatever comes after: text of several hops, a client that changes its
//! history, a pass that follows a refused one, a turn cut at the hop cap (design §3, §4).

use std::sync::Arc;

use plimsoll_model::ReasoningBack;
use plimsoll_model::{ItemNo, Marks, Usage};
use plimsoll_wire::Dialect;
use serde_json::Value;

use super::say::{Say, act, call, done, end, expl, hop, same, text, think};
use super::sim::Sim;

/// Changes the client's newest message of a role.
fn change(sim: &mut Sim, role: &str, field: &str, value: &str) {
    let role = format!(r#""role":"{role}""#);
    let message = sim
        .messages
        .iter_mut()
        .rfind(|message| message.contains(&role))
        .unwrap();
    let mut new: Value = serde_json::from_str(message).unwrap();
    new[field] = Value::from(value);
    *message = new.to_string();
}

#[test]
fn text_of_earlier_hops_is_shown_where_it_was_said() {
    let mut sim = Sim::new();
    sim.turn([text(2), expl("a"), hop(), text(2), call("grep", 20)]);
    let (sent, _) = sim.look();
    assert_eq!(sent.gist[2..4], ["text1", "+a"]);
    assert_eq!(sent.gist[5..8], ["text2", "grep1", "=grep1"]);
    // An answer whose last hop said nothing of its own.
    sim.turn([text(2), end("of a"), hop(), call("read", 20)]);
    sim.turn([text(1)]);
    let (sent, prepared) = sim.look();
    assert!(!prepared.view.transcript().changed);
    assert_eq!(
        sent.gist.iter().filter(|shown| *shown == "text3").count(),
        1
    );
}

#[test]
fn a_description_in_the_ledger_stays_there_when_the_client_edits_its_episode() {
    let mut sim = Sim::finer();
    sim.ceiling(1380);
    for n in 0..12 {
        sim.turn([expl(&format!("e{n}")), call("grep", 200)]);
        sim.turn([text(3)]);
        sim.turn([end(&format!("learned-{n}")), call("read", 3)]);
    }
    let (sent, _) = sim.look();
    let named = |gist: &[String]| {
        gist.iter()
            .any(|s| s.starts_with("~ledger") && s.contains("learned-2"))
    };
    assert!(named(&sent.gist), "{:#?}", sent.gist);
    // Its text is a message of the client's own now, in the midst of what is gone.
    let at = sim
        .messages
        .iter()
        .position(|message| message.contains("text3 go"))
        .unwrap();
    sim.messages[at] = sim.messages[at].replace("text3 go", "text99 went");
    sim.align();
    let (sent, _) = sim.look();
    assert!(sent.gist.contains(&"text99".to_owned()) && named(&sent.gist));
}

#[test]
fn text_of_an_earlier_hop_stays_when_its_calls_go() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 300)]);
    // The text belongs to the episode that its message opens, and the last hop has none.
    sim.turn([text(30), end("of a"), expl("b"), hop(), call("read", 20)]);
    sim.turn([call("bash", 20)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 320);
    let (sent, _) = sim.look();
    assert!(!sent.gist.contains(&"+end".to_owned()), "{:#?}", sent.gist);
    assert!(sent.gist.contains(&"text1".to_owned()));
    // Dropped from the path, the start takes its `end` along and leaves the text of that hop.
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([text(30), end("of a"), hop(), call("read", 20)]);
    sim.messages.drain(2..4);
    sim.align();
    let (sent, _) = sim.look();
    assert_eq!(sent.gist[2..], ["text1", "read1", "=read1"]);
}

#[test]
fn a_pointer_that_carried_a_tombstone_shows_nothing_again_once_the_client_moves_its_episode() {
    let mut sim = Sim::new();
    sim.settings.budget.ladder = "repeat+cwl".parse().unwrap();
    sim.turn([call("grep", 40)]);
    sim.turn([act("b", &[]), call("read", 200)]);
    // The pointer is the first call of a span of its own.
    sim.turn([done(), same()]);
    sim.turn([expl("c"), call("bash", 60)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 360);
    sim.turn([text(1)]);
    // Without the act, that span is the end of the one before.
    let at = sim
        .messages
        .iter()
        .position(|one| one.contains("\"read\""))
        .unwrap();
    sim.messages.drain(at..at + 2);
    sim.align();
    sim.ceiling(1_000_000);
    let (sent, _) = sim.look();
    assert!(
        !sent.gist.contains(&"=read1".to_owned()),
        "{:#?}",
        sent.gist
    );
}

#[test]
fn text_that_the_client_changed_goes_whole_and_the_hops_own_is_left_out() {
    let mut sim = Sim::new();
    sim.turn([text(2), expl("a"), hop(), text(2), call("grep", 20)]);
    change(&mut sim, "assistant", "content", "text9 of the client's");
    sim.align();
    let (sent, prepared) = sim.look();
    assert!(prepared.view.transcript().changed);
    assert_eq!(
        sent.gist
            .iter()
            .filter(|s| s.starts_with("text"))
            .collect::<Vec<_>>(),
        ["text9"]
    );
    // The call ties the turn, so the hidden exchange is there still.
    assert!(sent.gist.contains(&"+a".to_owned()));
}

#[test]
fn a_turn_cut_at_the_cap_shows_its_hops_and_not_the_proxys_line() {
    let mut sim = Sim::new();
    sim.capped(
        [expl("a"), hop(), end("of a")],
        Some("line9 only annotated"),
    );
    sim.user(3);
    let (sent, _) = sim.look();
    assert!(sent.gist.contains(&"+a".to_owned()) && sent.gist.contains(&"+end".to_owned()));
    assert!(!sent.gist.contains(&"line9".to_owned()));
    sim.turn([text(1)]);
    // Where text was said, the hops say it themselves.
    sim.capped([text(3), expl("b"), hop(), text(3), end("of b")], None);
    sim.user(3);
    let (sent, _) = sim.look();
    for label in ["text2", "text3"] {
        assert_eq!(
            sent.gist.iter().filter(|shown| *shown == label).count(),
            1,
            "{label}"
        );
    }
}

#[test]
fn a_changed_line_of_a_cut_turn_stands_behind_its_hops_with_numbers_of_its_own() {
    let mut sim = Sim::new();
    sim.turn([call("grep", 10)]);
    sim.capped([text(3), expl("a"), hop(), think(3), end("of a")], None);
    let at = sim.messages.len() - 1;
    sim.messages[at] = sim.messages[at].replace("text1 go", "text8 went");
    let (mut state, prepared) = sim.changed();
    let numbers: Vec<ItemNo> = prepared
        .view
        .transcript()
        .items
        .iter()
        .filter(|item| item.kind != plimsoll_model::ItemKind::Result)
        .map(|item| item.no)
        .collect();
    let mut unique = numbers.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), numbers.len(), "{numbers:?}");
    let shown = super::say::gist(&super::say::raw_messages(&prepared.body.to_bytes()));
    assert_eq!(shown[shown.len() - 2..], ["text8", "think1"]);
    assert!(!shown.contains(&"text1".to_owned()));
    // Nothing that comes after takes a number that was given.
    let next = prepared.view.transcript().first_item;
    assert!(numbers.iter().all(|number| *number < next));
    state.pending.clear();
}

#[test]
fn marks_of_two_passes_before_one_hop_are_all_recorded() {
    let mut sim = Sim::new();
    for n in 0..4 {
        sim.turn([expl(&format!("e{n}")), call("grep", 400)]);
        sim.turn([end("found"), text(2)]);
    }
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 100);
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    let first = state.prepare(&sim.tools(), None).unwrap();
    // The upstream refuses it as too long: a second pass goes before the same hop.
    let second = state.prepare(&sim.tools(), Some(first.estimate)).unwrap();
    assert!(first.pass.is_some() && second.pass.is_some());
    let mut recorded = sim.path.marks.clone();
    let (moved, kept) = state.moved();
    recorded.apply(&moved, &kept);
    assert_eq!(recorded, *state.marks);
}

#[test]
fn a_client_that_drops_reasoning_later_moves_no_number_and_no_tombstone() {
    let mut sim = Sim::new();
    sim.settings.budget.implicit_tokens = 300;
    for _ in 0..6 {
        sim.turn([think(40), call("grep", 200)]);
    }
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 400);
    sim.turn([text(1)]);
    sim.ceiling(1_000_000);
    let notes = |sim: &Sim| -> Vec<String> {
        let (sent, _) = sim.look();
        sent.gist
            .iter()
            .filter(|s| s.starts_with("~auto"))
            .cloned()
            .collect()
    };
    let before = notes(&sim);
    assert!(!before.is_empty());
    sim.forget_reasoning();
    let tools = |notes: &[String]| -> Vec<String> {
        notes
            .iter()
            .map(|note| note.rsplit(": ").next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(tools(&notes(&sim)), tools(&before));
}

#[test]
fn what_anchors_tie_is_kept_and_all_else_is_dropped() {
    let turns = |sim: &Sim| -> Vec<u32> {
        sim.path
            .entries
            .iter()
            .map(|entry| entry.record.turn)
            .collect()
    };
    let mut sim = Sim::new();
    for _ in 0..5 {
        sim.turn([call("grep", 10)]);
    }
    let whole = sim.clone();
    // A cleared result ties everything.
    change(&mut sim, "tool", "content", "cleared");
    sim.align();
    assert_eq!(turns(&sim), [1, 2, 3, 4, 5]);
    assert_eq!(sim.path.snapshot().steps, whole.path.snapshot().steps);
    // A dropped message drops its turn and no other.
    let mut sim = whole.clone();
    sim.messages.drain(4..6);
    sim.align();
    assert_eq!(turns(&sim), [1, 3, 4, 5]);
    // Compaction: only the tail is still there.
    let mut sim = whole.clone();
    sim.messages.drain(2..8);
    sim.user(20);
    sim.align();
    assert_eq!(turns(&sim), [4, 5]);
    // An id that stands twice is no anchor; the same text behind what was tied still is.
    let mut sim = whole.clone();
    let twice = sim.messages[2..4].to_vec();
    sim.messages.extend(twice);
    sim.align();
    assert_eq!(turns(&sim), [1, 2, 3, 4, 5]);
    // Another conversation ties nothing.
    let mut sim = whole;
    sim.messages.truncate(2);
    sim.align();
    assert!(turns(&sim).is_empty());
}

#[test]
fn an_episode_whose_start_left_the_path_does_not_exist() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 100)]);
    sim.turn([call("read", 100)]);
    sim.turn([end("of a"), call("bash", 100)]);
    sim.turn([text(1)]);
    sim.messages.drain(2..4);
    sim.align();
    let (sent, prepared) = sim.look();
    assert!(prepared.view.transcript().graph.named("a").is_none());
    assert!(!sent.gist.contains(&"+end".to_owned()), "{:#?}", sent.gist);
    sim.turn([expl("a"), call("grep", 5)]);
    let (_, prepared) = sim.look();
    assert!(prepared.view.transcript().graph.named("a").is_some());
}

#[test]
fn a_hop_that_broke_off_leaves_the_ratio_of_the_one_before() {
    let mut sim = Sim::new();
    sim.turn([text(2), call("grep", 20)]);
    sim.turn([text(2), expl("a"), hop(), text(2)]);
    let ratio = |reports: [[f64; 2]; 2]| {
        let mut path = (*sim.path).clone();
        for (entry, reports) in path.entries.iter_mut().zip(reports) {
            let record = Arc::make_mut(&mut entry.record);
            for (hop, times) in record.hops.iter_mut().zip(reports) {
                let prompt = (hop.estimate as f64 * times) as u64;
                let usage = Usage {
                    prompt,
                    ..Usage::default()
                };
                hop.usage = (times > 0.0).then_some(usage);
            }
        }
        sim.state(&Arc::new(path), Marks::default()).ratio()
    };
    for (reports, want) in [
        ([[1.2, 0.0], [1.3, 1.4]], 1.4),
        ([[1.2, 0.0], [1.3, 0.0]], 1.3),
        ([[1.2, 0.0], [1e-9, 0.0]], 1.2),
        ([[1.2, 0.0], [0.0, 0.0]], 1.2),
        ([[0.0, 0.0], [0.0, 0.0]], 1.0),
    ] {
        let ratio = ratio(reports);
        assert!((ratio - want).abs() < 0.01, "{reports:?}: {ratio}");
    }
}

#[test]
fn reasoning_that_went_with_one_hidden_call_stays_gone_with_the_last() {
    let mut sim = Sim::new();
    sim.dialect = Dialect::Messages;
    sim.family.reasoning_back = ReasoningBack::Calls;
    let wrong = Say::Delimit(serde_json::json!({"action": "begin"}));
    // The refused call and the visible one are unmarked work, what was thought is the act's.
    sim.turn([wrong, think(30), call("grep", 300), act("b", &[])]);
    sim.turn([call("bash", 5)]);
    sim.ceiling(sim.least());
    sim.turn([call("bash", 5)]);
    sim.ceiling(1_000_000);
    sim.turn([done(), text(1)]);
    sim.turn([text(1)]);
    let (sent, _) = sim.look();
    let thought = |gist: &[String]| gist.contains(&"think1".to_owned());
    let before = thought(&sent.gist);
    sim.ceiling(sim.least());
    let (sent, _) = sim.look();
    // What is left of the message is the call that carries the line of the unmarked work.
    let carries = |line: &String| line.starts_with("~auto");
    assert!(sent.gist.iter().any(carries) && !sent.gist.contains(&"+b".to_owned()));
    assert!(before || !thought(&sent.gist), "{:#?}", sent.gist);
}
