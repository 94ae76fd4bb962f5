//! Models that think much: whatever their providers demand of their thoughts, a view keeps its ceiling, a pass takes
//! no more than it has to, and what is counted is what is sent. Every hop is judged by the laws that hold always.

use plimsoll_model::{ReasoningBack, ReasoningRead};
use plimsoll_wire::Dialect;

use super::say::{Say, act, call, done, end, expl, text, think};
use super::sim::Sim;
use crate::commit::Floor;

const CEILING: u64 = 8_000;

/// A session under the usual terms, scaled down to a tenth.
fn session(dialect: Dialect, back: ReasoningBack) -> Sim {
    let mut sim = Sim::finer();
    sim.dialect = dialect;
    sim.family.reasoning_back = back;
    sim.settings.budget.floor = Floor::Fraction(0.7);
    sim.settings.budget.implicit_tokens = 800;
    sim.ceiling(CEILING);
    sim
}

/// Turns of one kind: nothing marked, or episodes of five messages each.
fn play(sim: &mut Sim, turns: usize, thought: u32, marked: bool, users: bool) {
    for n in 0..turns {
        let mut said: Vec<Say> = match thought {
            0 => Vec::new(),
            tokens => vec![think(tokens)],
        };
        let name = format!("e{}", n / 5);
        match (marked, n % 5, n / 5 % 2) {
            (true, 0, 0) => said.push(expl(&name)),
            (true, 0, _) => said.push(act(&name, &[])),
            _ => {}
        }
        let tools = ["read", "grep", "bash", "edit"];
        said.push(call(tools[n % 4], 60));
        match (marked, n % 5, n / 5 % 2) {
            (true, 4, 0) => said.push(end(&format!("learned-{n}"))),
            (true, 4, _) => said.push(done()),
            _ => {}
        }
        sim.turn(said);
        if users && n % 9 == 8 {
            sim.turn([think(thought.max(1)), text(10)]);
            sim.user(5);
        }
    }
}

fn passes(sim: &Sim) -> usize {
    sim.sent.iter().filter(|sent| sent.passed).count()
}

const RULES: [ReasoningBack; 4] = [
    ReasoningBack::None,
    ReasoningBack::Newest,
    ReasoningBack::Turn,
    ReasoningBack::Calls,
];

#[test]
fn no_view_of_a_thinker_is_above_its_ceiling() {
    for back in RULES {
        for thought in [25, 250] {
            for (marked, users) in [(false, true), (true, false)] {
                // Each dialect has its share of the cases.
                for (turns, dialect) in [
                    (90, Dialect::Chat),
                    (40, Dialect::Messages),
                    (40, Dialect::Responses),
                ] {
                    let mut sim = session(dialect, back);
                    play(&mut sim, turns, thought, marked, users);
                    let over = sim.sent.iter().filter(|sent| sent.exceeded).count();
                    let case = format!("{dialect:?} {back:?} {thought} {marked} {users}");
                    assert_eq!(over, 0, "{case}");
                    assert!(passes(&sim) > 0 || turns < 90 && thought < 100, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_thinker_takes_no_more_passes_than_it_brings_tokens() {
    for back in RULES {
        for marked in [false, true] {
            for thought in [0, 250] {
                let mut sim = session(Dialect::Chat, back);
                play(&mut sim, 160, thought, marked, false);
                let came: u64 = 160 * (u64::from(thought) + 100);
                // Each pass makes room for what comes between the floor and the ceiling.
                let room = CEILING * 3 / 10;
                let most = came.saturating_sub(CEILING) * 13 / 10 / room + 1;
                let passes = passes(&sim);
                assert!(
                    passes as u64 <= most,
                    "{back:?} {marked} {thought}: {passes} passes of at most {most}"
                );
            }
        }
    }
}

#[test]
fn what_a_provider_drops_is_not_counted() {
    for (read, drops) in [
        (ReasoningRead::All, false),
        (ReasoningRead::Turn, true),
        (ReasoningRead::Calls, false),
    ] {
        let mut sim = session(Dialect::Messages, ReasoningBack::Newest);
        sim.family.reasoning_read = read;
        sim.turn([think(200), call("read", 10)]);
        sim.turn([think(200), text(10)]);
        let (_, before) = sim.look();
        sim.user(5);
        let (_, prepared) = sim.look();
        let body: u64 = prepared
            .view
            .transcript()
            .entries
            .iter()
            .map(|entry| u64::from(prepared.view.body_size(entry)))
            .sum();
        let unread = body - prepared.view.size();
        assert_eq!(unread >= 400, drops, "{read:?}: {unread}");
        assert!(drops == (prepared.estimate < before.estimate), "{read:?}");
    }
}

#[test]
fn thoughts_of_turns_without_calls_are_not_read_where_the_rule_says_so() {
    let mut sim = session(Dialect::Chat, ReasoningBack::Calls);
    sim.family.reasoning_read = ReasoningRead::Calls;
    for _ in 0..30 {
        sim.turn([think(600), text(10)]);
        sim.user(5);
    }
    assert_eq!(passes(&sim), 0, "nothing of it counts");
    let (_, prepared) = sim.look();
    assert!(prepared.estimate < 2_000, "{}", prepared.estimate);
}
