//! What no pass touches, what is freed last, and what is said where a budget can't be met
//! (design §5).

use plimsoll_model::Mark;
use plimsoll_model::ReasoningBack;
use plimsoll_wire::Dialect;
use serde_json::json;

use super::say::{act, call, done, end, expl, filled, text, think};
use super::sim::{Sim, check};
use crate::commit::Floor;
use crate::policy::Order;
use crate::session::index::ItemIndex;
use crate::session::marked::Marked;
use crate::turn::settings::ProtectRecent;

#[test]
fn what_users_and_operators_said_is_never_evicted() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 500)]);
    sim.turn([end("of a"), text(5)]);
    sim.user(400);
    sim.push(&json!({"role": "developer", "content": "system2 again"}));
    sim.turn([text(50)]);
    sim.user(5);
    sim.push(&json!({"role": "user", "content": [{"type": "text", "text": "user4 in parts"}]}));
    sim.turn([text(5)]);
    sim.turn([text(5)]);
    sim.ceiling(10);
    let (sent, prepared) = sim.look();
    assert!(prepared.pinned.is_some());
    for kept in ["system1", "user1", "user2", "system2", "user3"] {
        assert!(
            sent.gist.contains(&kept.to_owned()),
            "{kept}: {:#?}",
            sent.gist
        );
    }
    assert!(
        sent.messages
            .iter()
            .any(|message| message.contains("user4"))
    );
    assert!(!sent.gist.contains(&"=grep1".to_owned()));
}

#[test]
fn what_must_not_be_edited_is_never_evicted() {
    let mut sim = Sim::new();
    sim.push(&json!({"role": "assistant", "content": "spoken", "audio": {"id": "audio"}}));
    sim.user(1);
    sim.turn([expl("a"), call("grep", 500)]);
    sim.turn([end("of a"), text(5)]);
    sim.turn([text(5)]);
    sim.ceiling(10);
    let (sent, _) = sim.look();
    assert!(sent.messages[2].contains("audio"));
}

#[test]
fn results_of_calls_beside_what_must_not_be_edited_shrink_in_their_places() {
    let mut sim = Sim::new();
    sim.dialect = Dialect::Responses;
    sim.settings.budget.order = Order::Levels;
    sim.ceiling(3000);
    for turn in 0..30 {
        let id = format!("id-{turn}");
        sim.push(
            &json!({"type": "web_search_call", "id": format!("ws_{turn}"), "status": "completed"}),
        );
        sim.push(&json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{\"label\":1}"}));
        let output = filled("seen1", 300);
        sim.push(&json!({"type": "function_call_output", "call_id": id, "output": output}));
    }
    let (_, prepared) = sim.changed();
    assert_eq!(prepared.pinned, None);
    let body = String::from_utf8(prepared.body.to_bytes().to_vec()).unwrap();
    for turn in 0..30 {
        assert!(
            body.contains(&format!("\"ws_{turn}\"")) && body.contains(&format!("\"id-{turn}\""))
        );
    }
    assert!(body.contains("[evicted read:"));

    // Where even that is not enough, the report says what it is that stays.
    sim.ceiling(100);
    let pinned = sim.changed().1.pinned.unwrap();
    assert!(pinned.opaque > 300, "{pinned:?}");
}

#[test]
fn the_newest_message_and_its_results_stay_and_so_do_unanswered_ones() {
    let mut sim = Sim::finer();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([text(20), think(20), call("read", 300), call("bash", 300)]);
    sim.user(5);
    sim.ceiling(10);
    let (sent, prepared) = sim.look();
    for kept in ["text1", "think1", "read1", "=read1", "bash1", "=bash1"] {
        assert!(sent.gist.contains(&kept.to_owned()), "{kept}");
    }
    assert!(!sent.gist.contains(&"grep1".to_owned()));
    let pinned = prepared.pinned.unwrap();
    let sum =
        pinned.fixed + pinned.system + pinned.user + pinned.newest + pinned.opaque + pinned.rest;
    assert_eq!(sum, prepared.estimate);
    assert!(pinned.newest > 640 && pinned.user > 15 && pinned.system > 20);
}

#[test]
fn a_budget_that_user_text_alone_exceeds_is_reported_with_what_is_pinned() {
    let mut sim = Sim::new();
    sim.user(3000);
    sim.turn([call("grep", 300)]);
    sim.turn([text(1)]);
    sim.user(1);
    sim.turn([text(1)]);
    sim.ceiling(3000);
    let (sent, prepared) = sim.look();
    assert!(sent.exceeded);
    assert!(prepared.pinned.unwrap().user > 3000);
    // What could be freed was freed.
    assert!(!sent.gist.contains(&"=grep1".to_owned()));
}

#[test]
fn a_forced_pass_that_frees_next_to_nothing_and_meets_nothing_is_not_taken() {
    let mut sim = Sim::new();
    sim.user(3000);
    sim.turn([call("grep", 60)]);
    sim.turn([text(1)]);
    sim.user(1);
    sim.turn([text(1)]);
    sim.ceiling(3000);
    let (sent, prepared) = sim.look();
    assert!(sent.exceeded && prepared.pass.is_none());
    assert!(sent.gist.contains(&"=grep1".to_owned()));
}

#[test]
fn the_last_tokens_are_freed_last() {
    let mut sim = Sim::finer();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), expl("b"), call("grep", 300)]);
    sim.turn([end("of b"), expl("c"), call("read", 200)]);
    sim.turn([call("read", 200)]);
    sim.turn([text(1)]);
    // The tail covers the open episode's last call and not its first.
    sim.settings.budget.protect_recent = ProtectRecent::Tokens(300);
    check(
        &sim,
        &[
            &["=grep1"],
            &["=grep2"],
            &["grep1"],
            &["grep2"],
            &["=read1"],
            &["read1"],
            &["=read2"],
            &["read2"],
        ],
    );
    // A tail that covers the closed episode too: the open one's turn comes after it all the same.
    sim.settings.budget.protect_recent = ProtectRecent::Tokens(900);
    check(
        &sim,
        &[
            &["=grep1"],
            &["grep1"],
            &["=grep2"],
            &["grep2"],
            &["=read1"],
            &["=read2"],
            &["read1"],
            &["read2"],
        ],
    );
}

#[test]
fn evicted_tokens_do_not_count_as_recent() {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 300)]);
    sim.turn([end("of a"), expl("b"), call("grep", 500)]);
    sim.turn([end("of b"), text(1)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 400);
    sim.turn([text(1)]);
    sim.ceiling(1_000_000);
    sim.turn([expl("c"), call("read", 100)]);
    sim.turn([end("of c"), text(1)]);
    sim.turn([text(1)]);
    // Both greps are gone, so 400 tokens reach back behind them to everything that still stands.
    sim.settings.budget.protect_recent = ProtectRecent::Tokens(400);
    let (sent, prepared) = sim.look();
    assert!(!sent.gist.contains(&"=grep1".to_owned()));
    sim.ceiling(prepared.estimate - 1);
    let (_, prepared) = sim.look();
    let transcript = prepared.view.transcript();
    let protection = crate::policy::Protection::new(Marked::new(transcript, &sim.path.marks), 400);
    let first = transcript
        .items
        .iter()
        .position(|item| &*item.name == "grep");
    assert!(protection.covers(transcript, ItemIndex(first.unwrap())));
}

/// An open episode behind a closed one.
fn open() -> Sim {
    let mut sim = Sim::finer();
    sim.turn([expl("a"), call("read", 300)]);
    sim.turn([end("of a"), expl("b"), call("read", 300)]);
    sim.turn([text(30), call("grep", 300)]);
    sim.turn([think(30), call("bash", 300)]);
    sim.turn([call("grep", 300)]);
    sim.turn([call("edit", 1)]);
    sim
}

#[test]
fn an_open_episode_is_stripped_last_oldest_first_and_never_whole() {
    let sim = open();
    check(
        &sim,
        &[
            // No work is in a thought.
            &["think1"],
            &["=read1"],
            &["read1"],
            // What commands did lasts without their results.
            &["=bash1"],
            &["=read2"],
            &["=grep1"],
            &["=grep2"],
            &["grep1"],
            &["grep2"],
            &["read2"],
            &["bash1"],
            &["text1"],
        ],
    );
}

/// Exploration, and an open act that depends on it.
fn held() -> Sim {
    let mut sim = Sim::finer();
    sim.settings.budget.floor = Floor::Fraction(0.5);
    sim.turn([expl("a"), call("read", 600)]);
    sim.turn([call("read", 600)]);
    sim.turn([end("of a"), act("b", &["a"]), call("edit", 1)]);
    sim
}

#[test]
fn a_pass_that_has_to_touch_what_is_held_goes_to_the_floor() {
    let mut sim = held();
    sim.turn([call("bash", 100)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 1);
    let (sent, prepared) = sim.look();
    assert!(prepared.pass.is_some() && prepared.pinned.is_none());
    assert!(
        prepared.estimate <= prepared.floor,
        "{} above {}",
        prepared.estimate,
        prepared.floor
    );
    // What it depends on is shortened before any of its own calls goes.
    assert!(sent.gist.contains(&"edit1".to_owned()), "{:#?}", sent.gist);
    assert!(sent.gist.contains(&"bash1".to_owned()), "{:#?}", sent.gist);
}

#[test]
fn what_is_held_stays_while_all_else_frees_enough() {
    let mut sim = Sim::finer();
    sim.settings.budget.floor = Floor::Fraction(0.5);
    sim.turn([expl("z"), call("grep", 1200)]);
    sim.turn([end("of z"), expl("a"), call("read", 200)]);
    sim.turn([end("of a"), act("b", &["a"]), call("edit", 1)]);
    sim.turn([call("bash", 100)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 1);
    let (sent, prepared) = sim.look();
    assert!(prepared.estimate <= prepared.floor);
    for stays in ["=read1", "=edit1", "=bash1"] {
        assert!(
            sent.gist.contains(&stays.to_owned()),
            "{stays}: {:#?}",
            sent.gist
        );
    }
}

#[test]
fn work_that_is_held_brings_no_run_of_passes() {
    let mut sim = held();
    let (_, all) = sim.look();
    sim.ceiling(all.estimate);
    for _ in 0..60 {
        sim.turn([call("bash", 20)]);
    }
    let sent = sim.sent.iter().enumerate();
    let passes: Vec<usize> = sent
        .filter(|(_, one)| one.passed)
        .map(|(at, _)| at)
        .collect();
    assert!(passes.len() > 2, "{passes:?}");
    assert!(
        passes.windows(3).all(|three| three[2] - three[0] >= 10),
        "{passes:?}"
    );
    assert!(sim.sent.iter().all(|sent| !sent.exceeded));
}

#[test]
fn strict_active_holds_what_is_open_in_the_finer_order_too() {
    let mut sim = open();
    sim.settings.budget.strict_active = true;
    check(&sim, &[&["=read1"], &["read1"]]);
}

#[test]
fn the_line_of_an_open_episode_stays_where_it_was_put() {
    let mut sim = open();
    // Down to where the first of its calls goes.
    let (_, mut prepared) = sim.look();
    let is_told = |shown: &String| shown.contains("expl \"b\" · evicted");
    while !sim.look().0.gist.iter().any(is_told) {
        sim.ceiling(prepared.estimate - 1);
        prepared = sim.look().1;
    }
    sim.turn([call("edit", 1)]);
    sim.ceiling(1_000_000);
    let line = |sim: &Sim| {
        let gist = &sim.sent.last().unwrap().gist;
        let lines = gist
            .iter()
            .filter(|shown| shown.contains("expl \"b\" · evicted"));
        lines.cloned().collect::<Vec<_>>()
    };
    let opened = line(&sim);
    assert!(
        opened[0].starts_with("~opened expl \"b\" · evicted "),
        "{opened:?}"
    );
    // No byte of it changes when the episode ends, because no pass was taken.
    sim.turn([end("of b"), text(1)]);
    sim.turn([text(1)]);
    assert_eq!(line(&sim), opened);
    assert!(sim.path.marks.iter().any(|(_, mark)| mark == Mark::Masked));
}

#[test]
fn reasoning_stays_with_its_calls_where_the_family_demands_it_back() {
    let mut sim = Sim::new();
    sim.turn([
        think(40),
        expl("a"),
        call("grep", 200),
        end("of a"),
        call("odd", 5),
    ]);
    sim.turn([think(40), act("b", &["a"]), call("edit", 200)]);
    sim.turn([done(), call("bash", 5)]);
    sim.turn([text(1)]);
    sim.family.reasoning_back = ReasoningBack::Calls;
    check(
        &sim,
        &[
            // Nothing is left of the act's message, so its reasoning goes with it.
            &["think2", "edit1", "=edit1"],
            // The start stays in that message as its tombstone, and so does the reasoning.
            &["grep1", "=grep1"],
            &["=odd1"],
        ],
    );
}
