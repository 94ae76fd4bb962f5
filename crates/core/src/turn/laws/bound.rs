//! Laws of models that bind each thought to everything before it: whatever is said, edited by the client or
//! evicted, no request has a thought behind anything other than it was made behind, and none that left returns.

use plimsoll_model::EditKind;
use plimsoll_model::ReasoningBack;
use plimsoll_wire::Dialect;
use proptest::prelude::*;
use serde_json::Value;

use super::properties::{event, fewer, play_on, session, terms};
use super::say::{act, call, done, end, expl, hop, text, think};
use super::sim::{Binder, Sim};
use crate::commit::Floor;
use crate::turn::settings::{Guidance, Thoughts};
use crate::turn::state::{Prepared, TurnState};

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
        among in any::<bool>(),
        events in prop::collection::vec(event(true), 1..60),
    ) {
        // The messages that are edited are those of chat.
        let edits = dialect == Dialect::Chat;
        let events: Vec<_> = events.into_iter().filter(|event| edits || !event.is_edit()).collect();
        let terms = if edits { terms } else { terms.without_recall() };
        let mut sim = bound(session(&terms), dialect);
        (sim.sealed, sim.family.system_among) = (sealed, among);
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

/// A session that is asked for marks at a twentieth of its budget, by a system message among the others.
fn asked_among() -> Sim {
    let mut sim = bound(Sim::finer(), Dialect::Messages);
    sim.family.system_among = true;
    sim.settings.budget.ceiling = 40_000;
    sim.settings.budget.guide_at = 0.05;
    sim.settings.delimiter.guidance = Guidance::Standard;
    sim
}

/// The next request, its guidance, and the roles of the messages around that.
fn next(sim: &Sim) -> (TurnState, Prepared, Vec<Value>) {
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    let prepared = state.prepare(&sim.tools(), None).unwrap();
    let body: Value = serde_json::from_slice(&prepared.body.to_bytes()).unwrap();
    let messages = body["messages"].as_array().unwrap().clone();
    (state, prepared, messages)
}

/// Where the system messages of a list stand.
fn guides(messages: &[Value]) -> Vec<usize> {
    let system = |at: &usize| messages[*at]["role"] == "system";
    (0..messages.len()).filter(system).collect()
}

#[test]
fn guidance_at_the_end_ends_no_thought_and_stays_where_it_is() {
    let mut sim = asked_among();
    thinking_alone(&mut sim, 30);
    assert!(sim.path.guide.is_some_and(|guide| guide.among));
    assert_eq!(sim.binder.as_ref().unwrap().shown().len(), 29);
    let (_, prepared, messages) = next(&sim);
    let before = prepared.estimate;
    let [at] = guides(&messages)[..] else {
        panic!("{messages:#?}")
    };
    assert!(at > 6 && at + 40 < messages.len(), "{at}");
    assert_eq!(messages[at - 1]["role"], "user");
    assert_eq!(messages[at + 1]["role"], "assistant");
    // What the client brings in behind it moves nothing, and what is counted is what is sent.
    sim.user(10);
    assert_eq!(guides(&next(&sim).2), [at]);
    // A pass takes what stood around it, and never the guidance.
    sim.ceiling(3_000);
    thinking_alone(&mut sim, 20);
    let (_, prepared, messages) = next(&sim);
    assert!(prepared.estimate < before);
    assert_eq!(guides(&messages).len(), 1, "{messages:#?}");
}

#[test]
fn a_fork_from_before_the_guidance_gets_its_own() {
    let mut sim = asked_among();
    thinking_alone(&mut sim, 4);
    let (mut fork, waits) = (sim.clone(), next(&sim).2);
    assert_eq!(guides(&waits), [] as [usize; 0]);
    thinking_alone(&mut sim, 20);
    thinking_alone(&mut fork, 20);
    assert_eq!(guides(&next(&sim).2), guides(&next(&fork).2));
}

#[test]
fn guidance_whose_turn_the_client_drops_comes_once_more() {
    let mut sim = asked_among();
    thinking_alone(&mut sim, 12);
    let [at] = guides(&next(&sim).2)[..] else {
        panic!("no guidance")
    };
    // The client has the system text in its list, and not the guidance: this is the answer behind that.
    sim.messages.drain(at + 1..at + 3);
    sim.align();
    assert_eq!(guides(&next(&sim).2).len(), 1);
    thinking_alone(&mut sim, 4);
    assert_eq!(guides(&next(&sim).2).len(), 1);
}

#[test]
fn guidance_that_is_refused_at_the_end_comes_in_front_with_a_pass() {
    let mut sim = asked_among();
    thinking_alone(&mut sim, 12);
    let (mut state, prepared, _) = next(&sim);
    assert!(prepared.edits.has(EditKind::GuidanceAmong));
    assert!(!prepared.edits.has(EditKind::Guidance));
    let refused = [EditKind::GuidanceAmong].into_iter().collect();
    let tools = state.tools.clone();
    state.go_without(refused, &sim.tools()).unwrap();
    let again = state.prepare(&sim.tools(), None).unwrap();
    let kinds = [EditKind::Guidance, EditKind::GuidanceAmong];
    assert!(kinds.iter().all(|kind| !again.edits.has(*kind)));
    assert!(state.guide.is_waiting() && state.tools == tools);
    assert!(again.estimate < prepared.estimate);
    // A pass ends thoughts anyway.
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    (state.terms.ceiling, state.known) = (2_000, refused);
    state.go_without(refused, &sim.tools()).unwrap();
    let passed = state.prepare(&sim.tools(), None).unwrap();
    assert!(passed.pass.is_some() && passed.edits.has(EditKind::Guidance));
    assert!(!state.guide.among && !state.guide.is_waiting());
}

#[test]
fn another_model_has_the_guidance_in_front() {
    let mut sim = asked_among();
    thinking_alone(&mut sim, 12);
    sim.family.system_among = false;
    sim.family.reasoning_back = ReasoningBack::Newest;
    let (state, prepared, messages) = next(&sim);
    assert!(prepared.edits.has(EditKind::Guidance) && !state.guide.among);
    assert_eq!(guides(&messages), [] as [usize; 0]);
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
