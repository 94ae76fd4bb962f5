//! The policies to measure against, each held to what its source says of it (papers 001 and 003).

use super::say::{call, text};
use super::sim::{Sim, count};
use crate::policy::Policy;
use crate::turn::settings::ProtectRecent;

/// A session under a policy, with nothing protected but what always is.
fn under(policy: Policy) -> Sim {
    let mut sim = Sim::new();
    sim.settings.budget.ladder = policy.into();
    sim.settings.budget.protect_recent = ProtectRecent::Tokens(0);
    sim
}

/// What the next request shows once a pass has freed so many tokens.
fn after(sim: &Sim, freed: u64) -> Vec<String> {
    let (_, all) = sim.look();
    let mut low = sim.clone();
    low.ceiling(all.estimate - freed);
    let (sent, prepared) = low.look();
    assert!(prepared.pass.is_some() && prepared.pinned.is_none());
    sent.gist
}

fn notes(gist: &[String]) -> Vec<&str> {
    let notes = gist.iter().filter_map(|shown| shown.strip_prefix('~'));
    notes.collect()
}

fn has(gist: &[String], label: &str) -> bool {
    gist.iter().any(|shown| shown == label)
}

/// Two spans of turns, a user message between them, and a newer one.
fn spans(policy: Policy) -> Sim {
    let mut sim = under(policy);
    sim.turn([text(40), call("read", 300)]);
    sim.turn([call("grep", 300)]);
    sim.turn([text(40)]);
    sim.user(20);
    sim.turn([call("read", 300)]);
    sim.turn([call("bash", 600)]);
    sim.turn([text(5)]);
    sim.user(20);
    sim.turn([text(5)]);
    sim
}

#[test]
fn oldest_turn_folds_spans_of_turns_into_a_line_that_names_them() {
    let sim = spans(Policy::OldestTurn);
    let gist = after(&sim, 1);
    assert_eq!(
        notes(&gist),
        ["auto-3: evicted 2 items, 363 tokens: read:4"]
    );
    assert!(!has(&gist, "text1") && has(&gist, "=grep1"), "{gist:#?}");
    // The turns behind it go into the same line, as far as is asked for, and then the next span.
    let gist = after(&sim, 500);
    let first = "auto-3: evicted 3 items, 684 tokens: grep:7 read:4";
    assert_eq!(notes(&gist), [first]);
    assert!(has(&gist, "text2") && has(&gist, "=read2"), "{gist:#?}");
    let gist = after(&sim, 800);
    assert_eq!(notes(&gist).len(), 2);
    assert!(!has(&gist, "text2") && has(&gist, "=bash1"), "{gist:#?}");
    // What users said stands, and so does the newest answer.
    for label in ["user1", "user2", "user3", "text4"] {
        assert!(has(&gist, label), "{label}");
    }
}

#[test]
fn hybrid_prunes_outputs_and_folds_spans_of_turns() {
    let sim = spans(Policy::Hybrid);
    let gist = after(&sim, 1000);
    let notes = notes(&gist);
    let folded = notes
        .iter()
        .filter(|note| note.starts_with("auto-3: evicted "));
    let pruned = notes.iter().filter(|note| note.starts_with("[evicted "));
    assert_eq!((folded.count(), pruned.count()), (1, 1), "{gist:#?}");
}

#[test]
fn a_span_of_texts_leaves_a_line_for_each() {
    for policy in [Policy::OldestTurn, Policy::Hybrid] {
        let mut sim = under(policy);
        for _ in 0..4 {
            sim.turn([text(100)]);
            sim.user(3);
        }
        let (_, all) = sim.look();
        sim.ceiling(all.estimate - 150);
        let all = sim.look().0.messages.join("\n");
        assert_eq!(all.matches("[evicted text:").count(), 2, "{all}");
    }
}

#[test]
fn tool_mask_prune_masks_before_it_prunes() {
    let mut sim = under(Policy::ToolMaskPrune);
    sim.labels.rich = true;
    sim.turn([call("read", 600)]);
    sim.turn([call("bash", 600)]);
    sim.turn([call("grep", 600)]);
    sim.turn([text(5)]);
    // Of low-signal results the ends are left, the oldest first, and no output is gone.
    let gist = after(&sim, 1);
    let own = notes(&gist);
    assert!(
        own.len() == 1 && own[0].starts_with("[clipped bash:"),
        "{gist:#?}"
    );
    assert!(
        own[0].contains("bash1 go") && own[0].contains("ünïque_bash1_74"),
        "{}",
        own[0]
    );
    assert!(!own[0].contains("part_45"), "{}", own[0]);
    assert!(count(own[0]) < 300);
    // All of them are masked before any output goes, and what goes is the oldest.
    let mut seen = Vec::new();
    let mut freed = 1;
    while seen.last() != Some(&(0, 3)) {
        let gist = after(&sim, freed);
        let of = |what: &str| {
            notes(&gist)
                .iter()
                .filter(|note| note.starts_with(what))
                .count()
        };
        let now = (of("[clipped "), of("[evicted "));
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        freed += 40;
    }
    assert_eq!(seen, [(1, 0), (2, 0), (2, 1), (1, 2), (0, 3)]);
}

/// A session of user turns, each with one result of so many tokens.
fn turns(policy: Policy, sizes: &[u32]) -> Sim {
    let mut sim = under(policy);
    for (at, size) in sizes.iter().enumerate() {
        if at > 0 {
            sim.user(2);
        }
        sim.turn([call("read", *size)]);
        sim.turn([text(2)]);
    }
    sim.ceiling(4_000);
    sim
}

#[test]
fn three_tier_protects_two_turns_and_does_not_count_them() {
    let gone = |sizes: &[u32]| notes(&turns(Policy::ThreeTier, sizes).look().0.gist).len();
    // What the protected turns hold is none of the 40,000 that stay before them.
    assert_eq!(gone(&[15_000, 20_000, 30_000, 30_000]), 0);
    // Nor do those go that pass them by less than 20,000.
    assert_eq!(gone(&[19_000, 30_000, 5_000, 30_000, 30_000]), 0);
    assert_eq!(gone(&[21_000, 30_000, 5_000, 30_000, 30_000]), 1);
    // All that may go does, whatever the budget.
    let mut sim = turns(Policy::ThreeTier, &[15_000, 15_000, 41_000, 100, 100]);
    let (_, all) = sim.look();
    sim.ceiling(1_000_000);
    let whole = sim.look().1.estimate;
    assert!(whole - all.estimate > 70_000, "{} of {whole}", all.estimate);
}

#[test]
fn three_tier_does_nothing_in_a_session_of_one_user_turn() {
    let mut sim = under(Policy::ThreeTier);
    for _ in 0..4 {
        sim.turn([call("read", 30_000)]);
    }
    sim.turn([text(2)]);
    sim.ceiling(4_000);
    let (sent, prepared) = sim.look();
    assert!(prepared.pass.is_none() && sent.exceeded);
    assert!(notes(&sent.gist).is_empty());
}
