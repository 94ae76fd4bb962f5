//! The published order, held to Algorithm 1 of paper 000 (§4.4): a test for each of its lines, which
//! fails where the line is another. What is ours beside it comes last.

use plimsoll_model::Mark;

use super::say::{Say, act, call, done, end, expl, text, think};
use super::sim::{Sim, check};
use crate::commit::Floor;
use crate::policy::{Order, Policy};
use crate::turn::settings::ProtectRecent;

/// A session that is played to its end under no budget, with tools and episodes of all kinds.
fn said(turns: impl IntoIterator<Item = Vec<Say>>) -> Sim {
    let mut sim = Sim::new();
    for turn in turns {
        sim.turn(turn);
    }
    sim
}

/// What the next request shows under a ceiling that nothing can meet, and whether that is said.
#[track_caller]
fn least(sim: &Sim) -> Vec<String> {
    let mut low = sim.clone();
    low.ceiling(10);
    let (sent, prepared) = low.look();
    assert!(prepared.pinned.is_some() && sent.exceeded);
    sent.gist
}

#[track_caller]
fn shows(gist: &[String], labels: &[&str]) {
    for label in labels {
        assert!(
            gist.iter().any(|shown| shown == label),
            "{label}: {gist:#?}"
        );
    }
}

#[track_caller]
fn hides(gist: &[String], labels: &[&str]) {
    for label in labels {
        assert!(
            gist.iter().all(|shown| shown != label),
            "{label}: {gist:#?}"
        );
    }
}

/// An expl, an act on it, an expl on which nothing stands, and newer work.
fn graph() -> Sim {
    said([
        vec![expl("a"), call("grep", 300)],
        vec![end("of a"), act("b", &["a"]), call("bash", 300)],
        vec![done(), expl("c"), call("read", 300)],
        vec![end("of c"), expl("d"), call("odd", 5)],
        vec![call("odd", 5)],
    ])
}

#[test]
fn line_1_nothing_goes_at_the_budget_and_something_above_it() {
    let mut sim = graph();
    let (_, all) = sim.look();
    sim.ceiling(all.estimate);
    assert!(sim.look().1.pass.is_none());
    sim.ceiling(all.estimate - 1);
    let (_, one) = sim.look();
    assert!(one.pass.is_some() && one.estimate < all.estimate);
}

#[test]
fn line_2_an_episode_that_is_open_is_no_candidate() {
    let sim = said([
        vec![expl("a"), call("read", 300)],
        vec![end("of a"), expl("b"), call("read", 300)],
        vec![text(30), call("grep", 300)],
        vec![think(30), call("bash", 300)],
        vec![call("edit", 1)],
    ]);
    check(&sim, &[&["read1", "=read1"]]);
    let all = [
        "read2", "=read2", "text1", "grep1", "=grep1", "think1", "bash1", "=bash1",
    ];
    shows(&least(&sim), &all);
}

#[test]
fn line_2_the_prologue_is_what_came_before_the_first_start() {
    let mut sim = said([
        vec![text(40), call("read", 300)],
        vec![call("grep", 300)],
        vec![expl("a"), call("read", 300)],
        vec![end("of a"), call("grep", 300)],
        vec![expl("b"), call("odd", 5)],
    ]);
    sim.prologue = true;
    check(&sim, &[&["read2", "=read2"], &["=grep2"]]);
    shows(
        &least(&sim),
        &["text1", "read1", "=read1", "grep1", "=grep1"],
    );
    // The model could not have said so before it was told: work like any other.
    sim.prologue = false;
    hides(&least(&sim), &["=read1", "grep1", "=grep1", "text1"]);
    // Where it never said anything, all is prologue.
    let mut sim = said([vec![call("read", 300)], vec![call("grep", 300)]]);
    sim.user(5);
    sim.turn([text(1)]);
    hides(&least(&sim), &["=read1"]);
    sim.prologue = true;
    shows(&least(&sim), &["read1", "=read1", "grep1", "=grep1"]);
}

#[test]
fn line_2_exploration_waits_until_each_act_on_it_is_gone() {
    let mut sim = said([
        vec![expl("a"), call("grep", 300)],
        vec![end("of a"), expl("b"), call("read", 300)],
        vec![end("of b"), act("c", &["a"]), call("bash", 300)],
        vec![done(), act("d", &["a"]), call("edit", 300)],
        vec![call("odd", 1)],
    ]);
    // One act goes, the other is open; exploration that none stands on is not held.
    check(&sim, &[&["bash1", "=bash1"], &["read1", "=read1"]]);
    shows(&least(&sim), &["grep1", "=grep1", "edit1", "=edit1"]);
    sim.turn([done(), text(1)]);
    sim.turn([text(1)]);
    hides(&least(&sim), &["edit1", "grep1", "=grep1"]);
}

#[test]
fn line_2_an_act_that_is_gone_in_part_holds_what_it_stands_on() {
    let sim = said([
        vec![expl("a"), call("grep", 300)],
        vec![end("of a"), act("b", &["a"]), call("bash", 300)],
        // Its end stands in the newest message, so it can't be removed yet.
        vec![done(), call("odd", 1)],
    ]);
    check(&sim, &[&["bash1", "=bash1"]]);
    shows(&least(&sim), &["grep1", "=grep1"]);
}

#[test]
fn lines_3_to_5_without_a_candidate_nothing_goes_and_the_budget_is_surfaced() {
    let mut sim = said([
        vec![expl("a"), call("grep", 300)],
        vec![end("of a"), act("b", &["a"]), call("edit", 300)],
        vec![call("bash", 300)],
        vec![call("odd", 1)],
    ]);
    sim.ceiling(10);
    let (sent, prepared) = sim.look();
    assert!(sent.exceeded && prepared.pass.is_none() && prepared.declined.is_none());
    shows(
        &sent.gist,
        &["grep1", "=grep1", "edit1", "=edit1", "bash1", "=bash1"],
    );
}

#[test]
fn line_6_the_oldest_act_goes_first_and_then_the_oldest_expl() {
    let sim = said([
        vec![expl("a"), call("grep", 300)],
        vec![end("of a"), expl("b"), call("read", 300)],
        vec![end("of b"), act("c", &["b"]), call("bash", 300)],
        vec![done(), act("d", &[]), call("bash", 300)],
        vec![done(), expl("e"), call("odd", 5)],
        vec![call("odd", 5)],
    ]);
    check(
        &sim,
        &[
            &["bash1", "=bash1"],
            &["bash2", "=bash2"],
            &["grep1", "=grep1"],
            &["read1", "=read1"],
        ],
    );
}

/// An episode of each kind of work, and an open one behind it.
fn kinds(first: Say, last: Say) -> Sim {
    said([
        vec![
            think(30),
            text(30),
            first,
            call("edit", 300),
            call("grep", 300),
        ],
        vec![call("read", 200), call("bash", 200)],
        vec![call("odd", 2500), call("odd", 200)],
        vec![last, expl("z"), call("read", 5)],
        vec![call("read", 5)],
    ])
}

#[test]
fn lines_7_to_9_the_levels_go_in_order_and_each_covers_what_it_says() {
    check(
        &kinds(expl("a"), end("of a")),
        &[
            &["think1"],
            &["grep1", "=grep1", "odd1", "=odd1"],
            // Reads and commands: no edit, no write.
            &["read1", "bash1", "=read1", "=bash1", "odd2", "=odd2"],
            &["text1", "edit1", "=edit1"],
        ],
    );
    let gist = least(&kinds(expl("a"), end("of a")));
    let tombstone = |shown: &&String| shown.starts_with("~expl \"a\": of a\n");
    assert!(gist.iter().any(|shown| tombstone(&shown)), "{gist:#?}");
}

#[test]
fn line_8_reasoning_is_no_level_of_an_act() {
    let sim = kinds(act("a", &[]), done());
    check(
        &sim,
        &[
            &["grep1", "=grep1", "odd1", "=odd1"],
            &["read1", "bash1", "=read1", "=bash1", "odd2", "=odd2"],
            &["text1", "think1", "edit1", "=edit1"],
        ],
    );
    // It is gone in its entirety.
    assert!(
        least(&sim)
            .iter()
            .all(|shown| !shown.contains("\"a\"") && shown != "+a")
    );
}

#[test]
fn lines_10_to_12_the_pass_ends_with_the_level_that_meets_the_budget() {
    let mut sim = kinds(expl("a"), end("of a"));
    let (_, all) = sim.look();
    // Reasoning alone is not enough, bulk output is: the whole level, and nothing behind it.
    sim.ceiling(all.estimate - 100);
    let (sent, prepared) = sim.look();
    assert!(prepared.pinned.is_none());
    hides(&sent.gist, &["think1", "grep1", "odd1"]);
    shows(&sent.gist, &["read1", "bash1", "odd2", "edit1", "text1"]);
}

#[test]
fn lines_14_and_15_the_next_target_follows_when_all_levels_were_not_enough() {
    let mut sim = graph();
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 650);
    let (sent, prepared) = sim.look();
    assert!(prepared.pinned.is_none());
    // The act, all of it, then the exploration that it stood on.
    hides(&sent.gist, &["+b", "bash1", "=bash1", "grep1", "=grep1"]);
    shows(&sent.gist, &["read1", "=read1"]);
}

#[test]
fn unannotated_work_is_exploration_and_goes_when_no_act_is_left() {
    let mut sim = said([
        vec![expl("a"), call("grep", 5)],
        vec![end("of a"), call("read", 300)],
        vec![call("bash", 300)],
        vec![act("b", &["a"]), call("bash", 300)],
        vec![done(), expl("c"), call("odd", 5)],
        vec![call("odd", 5)],
    ]);
    sim.prologue = true;
    check(
        &sim,
        &[
            &["bash2", "=bash2"],
            &["grep1", "=grep1"],
            &["=read1", "bash1", "=bash1"],
        ],
    );
}

#[test]
fn the_newest_message_and_its_results_stay_though_their_episode_is_closed() {
    let sim = said([
        vec![expl("a"), call("read", 300)],
        vec![call("grep", 300), end("of a"), call("bash", 300)],
    ]);
    check(&sim, &[&["read1", "=read1"]]);
    shows(&least(&sim), &["grep1", "=grep1", "bash1", "=bash1"]);
}

#[test]
fn an_emergency_pass_is_the_same_algorithm() {
    let sim = graph();
    let (_, all) = sim.look();
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    let prepared = state.prepare(&sim.tools(), Some(all.estimate)).unwrap();
    let mut low = sim.clone();
    low.ceiling(all.estimate * 4 / 5);
    assert_eq!(prepared.body.to_bytes(), low.changed().1.body.to_bytes());
    // Without a candidate it frees nothing, so that the upstream's refusal stands.
    let sim = said([vec![expl("a"), call("read", 600)], vec![call("odd", 1)]]);
    let (_, all) = sim.look();
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    let prepared = state.prepare(&sim.tools(), Some(all.estimate)).unwrap();
    assert_eq!(prepared.estimate, all.estimate);
    assert!(prepared.pass.is_none() && prepared.pinned.is_some());
}

#[test]
fn texts_without_calls_leave_a_line_in_their_places() {
    let mut sim = said([
        vec![expl("a"), call("grep", 5)],
        vec![end("of a"), text(300)],
    ]);
    for _ in 0..3 {
        sim.user(5);
        sim.turn([think(30), text(300)]);
    }
    sim.user(5);
    let gist = least(&sim);
    // What is shorter than such a line stays as it is, and so does the newest answer.
    hides(&gist, &["text1", "text3", "text4", "think1", "think2"]);
    shows(
        &gist,
        &["user2", "user3", "text2", "text5", "user4", "user5"],
    );
    let mut low = sim.clone();
    low.ceiling(10);
    let all = low.look().0.messages.join("\n");
    assert_eq!(all.matches("[evicted text:").count(), 2, "{all}");
}

#[test]
fn nothing_is_merged_and_no_stub_is_left() {
    let mut sim = Sim::new();
    let what = "found in a file ".repeat(14);
    for n in 0..12 {
        sim.turn([expl(&format!("e{n}")), call("grep", 300)]);
        sim.turn([end(&what), text(1)]);
    }
    sim.turn([text(1)]);
    let gist = least(&sim);
    let whole = |shown: &&String| shown.starts_with("~expl") && shown.contains(what.trim());
    assert_eq!(gist.iter().filter(whole).count(), 12, "{gist:#?}");
    assert!(
        gist.iter()
            .all(|shown| !shown.contains("ledger") && !shown.contains("[evicted"))
    );
    let mut low = sim.clone();
    low.ceiling(10);
    let (state, _) = low.changed();
    assert!(state.marks.iter().all(|(_, mark)| mark != Mark::Clipped));
}

#[test]
fn the_policy_of_the_paper_is_its_order_under_its_terms() {
    let view = |policy: Policy, order: Order, floor: Floor, recent: u32| {
        let mut sim = said([
            vec![expl("a"), call("grep", 300)],
            vec![end("of a"), act("b", &[]), call("bash", 300)],
            vec![done(), expl("c"), call("odd", 5)],
            vec![call("odd", 5)],
        ]);
        let (_, all) = sim.look();
        let budget = &mut sim.settings.budget;
        (budget.ladder, budget.order, budget.floor) = (policy.into(), order, floor);
        budget.protect_recent = ProtectRecent::Tokens(recent);
        sim.ceiling(all.estimate - 100);
        sim.look().0.messages
    };
    let (order, floor) = (Order::Paper, Floor::Ceiling);
    let (levels, low) = (Order::Levels, Floor::Fraction(0.3));
    let paper = view(Policy::Cwl, order, floor, 0);
    assert_eq!(view(Policy::CwlPaper, levels, low, 500), paper);
    // Each of the three is part of it.
    for (order, floor, recent) in [(levels, floor, 0), (order, low, 0), (order, floor, 500)] {
        let other = view(Policy::Cwl, order, floor, recent);
        assert_ne!(other, paper, "{order:?} {floor:?} {recent}");
    }
}
