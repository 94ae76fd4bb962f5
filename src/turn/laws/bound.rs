//! Laws of models that bind each thought to everything before it: whatever is said, edited by the client or
//! evicted, no request has a thought behind anything other than it was made behind, and none that left returns.

use proptest::prelude::*;

use super::properties::{event, fewer, play_on, session, terms};
use super::say::{act, call, done, end, expl, hop, text, think};
use super::sim::{Binder, Sim};
use crate::commit::Floor;
use crate::model::ReasoningBack;
use crate::model::{Dialect, EditKind};
use crate::turn::settings::{Guidance, Thoughts};

/// A session whose upstream binds thoughts, and of which the operator has thoughts left out that lost their place.
fn bound(mut sim: Sim, dialect: Dialect) -> Sim {
    sim.dialect = dialect;
    sim.family.reasoning_back = ReasoningBack::Bound;
    sim.settings.budget.thoughts = Thoughts::Strip;
    sim.binder = Some(Binder::default());
    sim
}

proptest! {
    #![proptest_config(fewer())]

    #[test]
    fn no_thought_stands_where_it_was_not_made(
        dialect in prop::sample::select(&[Dialect::Chat, Dialect::Messages][..]),
        terms in terms(),
        sealed in any::<bool>(),
        events in prop::collection::vec(event(true), 1..60),
    ) {
        // The messages that are edited are those of chat.
        let edits = dialect == Dialect::Chat;
        let events: Vec<_> = events.into_iter().filter(|event| edits || !event.is_edit()).collect();
        let terms = if edits { terms } else { terms.without_recall() };
        let mut sim = bound(session(&terms), dialect);
        sim.sealed = sealed;
        play_on(sim, &terms, &events);
    }
}

/// Turns of a model that thinks before each call.
fn thinking(sim: &mut Sim, turns: std::ops::Range<u32>) {
    for turn in turns {
        match turn % 7 {
            0 => sim.turn([think(20), expl(&format!("look{turn}")), call("read", 200)]),
            3 => sim.turn([think(20), end("seen"), hop(), think(15), call("grep", 150)]),
            4 => sim.turn([think(30), act(&format!("do{turn}"), &[]), call("edit", 90)]),
            6 => sim.turn([think(25), done(), call("bash", 120)]),
            _ => sim.turn([think(25), text(5), call("read", 260)]),
        }
    }
}

/// A budget that takes many passes.
fn tight(dialect: Dialect) -> Sim {
    let mut sim = bound(Sim::finer(), dialect);
    sim.settings.budget.ceiling = 4_000;
    sim.settings.budget.floor = Floor::Fraction(0.6);
    sim
}

#[test]
fn a_pass_ends_the_thoughts_behind_its_first_cut_and_no_others() {
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let mut sim = tight(dialect);
        thinking(&mut sim, 0..60);
        let binder = sim.binder.as_ref().unwrap();
        // Most requests are between passes, and have the thoughts since the newest one.
        assert!(binder.thoughtful > 40, "{dialect:?}: {}", binder.thoughtful);
    }
}

#[test]
fn guidance_that_comes_late_comes_with_a_pass_alone() {
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let mut sim = tight(dialect);
        sim.settings.budget.guide_at = 0.3;
        sim.settings.delimiter.guidance = Guidance::Standard;
        for _ in 0..40 {
            sim.turn([think(20), call("read", 200)]);
        }
        assert!(
            sim.path.guide.is_some_and(|guide| !guide.is_waiting()),
            "{dialect:?}"
        );
    }
}

#[test]
fn hidden_tools_come_into_a_conversation_with_thoughts_only_with_a_pass() {
    let mut before = bound(Sim::finer(), Dialect::Messages);
    before.settings.delimiter.guidance = Guidance::Standard;
    before.tools = true;
    // Served without the proxy so far: nothing is recorded.
    before.direct = true;
    thinking_alone(&mut before, 5);
    before.direct = false;
    before.turn([think(20), call("read", 20)]);
    let state = before.state(&before.path, before.path.marks.clone());
    assert!(!state.injected.any());
    assert_eq!(before.binder.as_ref().unwrap().shown().len(), 5);
    before.ceiling(1_000);
    before.turn([think(20), call("read", 20)]);
    let state = before.state(&before.path, before.path.marks.clone());
    assert!(state.injected.any());
}

fn thinking_alone(sim: &mut Sim, turns: usize) {
    for _ in 0..turns {
        sim.turn([think(20), call("read", 200)]);
    }
}

#[test]
fn accounts_that_do_not_check_keep_their_thoughts() {
    let mut sim = tight(Dialect::Messages);
    (sim.binder, sim.settings.budget.thoughts) = (None, Thoughts::KeepUntilRefused);
    thinking(&mut sim, 0..60);
    let (_, prepared) = sim.look();
    assert!(prepared.edits.has(EditKind::Thoughts));
    // The first refusal ends them.
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    state.know([EditKind::Thoughts].into_iter().collect());
    let stripped = state.prepare(&sim.tools(), None).unwrap();
    assert!(!stripped.edits.has(EditKind::Thoughts));
    assert!(stripped.estimate < prepared.estimate);
}
