//! Several policies over one view: each runs when it is due, over what those before it left, and
//! what one of them gets wrong does not undo the rest.

use plimsoll_model::{EditKind, Edits, Globs, ItemKind, ItemNo, Kept, Mark, Marks};

use super::say::{again, call, same, text};
use super::sim::Sim;
use crate::commit::{Floor, Trigger};
use crate::policy::{Move, Plan, PlanError, Policy, Protection, Rules};
use crate::session::index::ItemIndex;
use crate::session::marked::Marked;
use crate::turn::state::Prepared;
use crate::turn::{FilterRole, RungSettings};

/// A session of reads and commands under a ladder, which has to free 100 tokens.
fn session(ladder: &str) -> Sim {
    let mut sim = Sim::finer();
    sim.settings.budget.ladder = ladder.parse().unwrap();
    for _ in 0..4 {
        sim.turn([call("read", 300)]);
        sim.turn([call("bash", 300)]);
    }
    sim.turn([text(5)]);
    sim.user(5);
    sim
}

/// The next hop with a window of `window` times the size of what is to be sent.
fn next(sim: &Sim, window: Option<f64>) -> Prepared {
    let mut whole = sim.clone();
    whole.settings.budget.ladder = "none".parse().unwrap();
    let (_, all) = whole.look();
    let mut sim = sim.clone();
    sim.ceiling(all.estimate - 100);
    let mut state = sim.state(&sim.path, sim.path.marks.clone());
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small sizes"
    )]
    let tokens = |times: f64| (all.estimate as f64 * times) as u32;
    state.terms.window = window.map(tokens);
    state.prepare(&sim.tools(), None).unwrap()
}

#[test]
fn each_rung_runs_when_it_is_due() {
    for (ladder, window, runs) in [
        ("recency", None, true),
        ("recency@unmet", None, true),
        ("recency@cold", None, false),
        ("recency@yellow", None, false),
        ("recency@yellow", Some(2.0), false),
        ("recency@yellow", Some(1.3), true),
        ("recency@red", Some(1.3), false),
        ("recency@red", Some(1.1), true),
        // The first does all that there is to do.
        ("recency+tool-prune@unmet", None, true),
    ] {
        let prepared = next(&session(ladder), window);
        assert_eq!(prepared.pass.is_some(), runs, "{ladder} {window:?}");
        assert_eq!(prepared.pinned.is_none(), runs, "{ladder} {window:?}");
        let gone = prepared.pass.iter().flat_map(|(_, pass)| pass.gone.keys());
        let only = gone
            .filter(|(policy, _)| policy.name() != "recency")
            .count();
        assert_eq!(only, 0, "{ladder}");
    }
}

/// A session of three stretches of work, which a user message begins each, before the next of them.
fn stretches(ladder: &str) -> Sim {
    let mut sim = Sim::new();
    sim.settings.budget.ladder = ladder.parse().unwrap();
    sim.settings.budget.floor = Floor::Fraction(0.5);
    for _ in 0..3 {
        for _ in 0..4 {
            sim.turn([call("read", 300)]);
        }
        sim.turn([text(5)]);
        sim.user(5);
    }
    sim
}

/// What started a pass of the next hop, and one that was not made, under a budget of so many times the whole.
fn moments(sim: &Sim, times: f64) -> (Option<Trigger>, Option<Trigger>) {
    let (_, all) = sim.look();
    let mut sim = sim.clone();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small sizes"
    )]
    sim.ceiling((all.whole as f64 * times) as u64);
    let (_, prepared) = sim.look();
    let pass = prepared.pass.as_ref();
    if let Some((_, proposal)) = pass {
        assert_eq!(proposal.size, prepared.estimate);
    }
    (pass.map(|(trigger, _)| *trigger), prepared.declined)
}

#[test]
fn a_pass_at_a_user_message_is_made_where_it_pays_and_only_there() {
    let boundary = Some(Trigger::Boundary);
    let sim = stretches("cwl+cwl@user");
    assert_eq!(moments(&sim, 1.5), (boundary, None));
    // What is far below its budget stays, and so does what the budget forces anyway.
    assert_eq!(moments(&sim, 3.0), (None, None));
    assert_eq!(moments(&sim, 0.9).0, Some(Trigger::Ceiling));
    // Without a policy there it is only counted.
    assert_eq!(moments(&stretches("cwl"), 1.5), (None, boundary));
    // What is written to the cache anew costs more than is saved.
    let mut dear = sim.clone();
    (dear.family.prices.read, dear.family.prices.write) = (0.1, 1.25);
    assert_eq!(moments(&dear, 1.5), (None, None));
    // Within the work no user message is new.
    let mut within = sim;
    within.turn([call("read", 300)]);
    assert_eq!(moments(&within, 1.5), (None, None));
}

#[test]
fn a_pass_is_made_before_work_that_is_expected_to_reach_the_budget() {
    let forecast = Some(Trigger::Forecast);
    let mut sim = stretches("cwl+cwl@forecast");
    (sim.family.prices.read, sim.family.prices.write) = (0.1, 1.25);
    // A stretch is a third of the whole.
    assert_eq!(moments(&sim, 1.2), (forecast, None));
    assert_eq!(moments(&sim, 1.6), (None, None));
    sim.settings.budget.ladder = "cwl".parse().unwrap();
    assert_eq!(moments(&sim, 1.2), (None, None));
}

#[test]
fn a_rung_goes_on_where_the_one_before_it_had_to_stop() {
    // Clearing all results but three is not enough here.
    let mut sim = session("keep-recent+recency@unmet");
    for _ in 0..4 {
        sim.turn([text(400)]);
    }
    let mut low = sim.clone();
    low.ceiling(1_300);
    let (_, prepared) = low.look();
    let (_, pass) = prepared.pass.unwrap();
    let policies: Vec<&str> = pass.gone.keys().map(|(policy, _)| policy.name()).collect();
    assert_eq!(policies, ["recency", "keep-recent"]);
    assert_eq!(pass.size, prepared.estimate, "counted over both");
}

#[test]
fn a_bad_move_is_dropped_and_the_rest_stands() {
    let (_, prepared) = session("none").look();
    let (transcript, marks) = (prepared.view.shared(), Marks::default());
    let seen = Marked::new(&transcript, &marks);
    let protection = Protection::new(seen, 0).under(Rules::Off);
    let calls = transcript.items.indexed();
    let calls: Vec<ItemIndex> = calls
        .filter(|(_, item)| !item.name.is_empty() && item.pair.is_some())
        .map(|(at, _)| at)
        .collect();
    let good = [calls[0], calls[1]].map(|at| Move::whole(at, Mark::Removed));
    let absent = Move::whole(ItemIndex(9_999), Mark::Removed);
    let user = Move::whole(ItemIndex(1), Mark::Removed);
    let moves = vec![good[0].clone(), user, absent, good[1].clone()];
    let (plan, dropped) = Plan::judge(seen, &protection, moves);
    let kept = Plan::check(seen, &protection, &good).unwrap();
    assert_eq!(plan, kept);
    let fixed = PlanError::Fixed(ItemIndex(1));
    assert_eq!(dropped, [fixed, PlanError::Absent(ItemIndex(9_999))]);
}

#[test]
fn nothing_that_is_pointed_to_may_go_before_its_pointer() {
    let mut sim = session("repeat+cwl");
    sim.turn([again("odd", 0)]);
    sim.turn([text(5)]);
    let (_, prepared) = sim.look();
    let (view, transcript) = (&prepared.view, prepared.view.transcript());
    let pointers = view.marked().pointers();
    let (to, from) = pointers.iter().next().expect("a pointer");
    let protection = Protection::new(view.marked(), 0).under(Rules::Off);
    let gone = |at: ItemIndex| Move::whole(at, Mark::Removed);
    let alone = Plan::check(view.marked(), &protection, &[gone(*to)]);
    assert_eq!(alone, Err(PlanError::PointedTo(*to)));
    let both = [gone(*to), gone(from[0])];
    assert!(Plan::check(view.marked(), &protection, &both).is_ok());
    assert!(transcript.items[*to].no < transcript.items[from[0]].no);
}

#[test]
fn what_is_kept_goes_last_and_no_budget_is_missed_for_it() {
    let settings = |sim: &mut Sim, tools: &str, share: f64| {
        let keep = &mut sim.settings.budget.keep;
        keep.tools = plimsoll_model::Globs::new(&[tools.to_owned()]).unwrap();
        keep.share = share;
        keep.errors = crate::turn::KeepErrors::Off;
    };
    let mut sim = session("keep+recency");
    settings(&mut sim, "read", 0.5);
    let shown = |sim: &Sim, freed: u64| {
        let (_, all) = sim.look();
        let mut low = sim.clone();
        low.ceiling(all.estimate - freed);
        let (sent, prepared) = low.look();
        assert!(prepared.pinned.is_none());
        let labels = sent.gist.iter().filter(|label| label.starts_with('='));
        (
            labels.cloned().collect::<Vec<_>>().join(" "),
            prepared.loosened,
        )
    };
    let (first, loosened) = shown(&sim, 100);
    assert!(
        first.contains("=read2") && !first.contains("=bash1"),
        "{first}"
    );
    assert_eq!(loosened, 0);
    // Commands alone are not enough.
    let (low, loosened) = shown(&sim, 1_700);
    assert!(!low.contains("=read1 ") && !low.contains("=bash1"), "{low}");
    assert!(loosened > 0, "half of the budget holds fewer");
    // Without a share nothing is kept.
    settings(&mut sim, "read", 0.0);
    let (none, loosened) = shown(&sim, 100);
    assert!(
        none.contains("=bash1") && !none.contains("=read1"),
        "{none}"
    );
    assert_eq!(loosened, 4);
}

/// An upstream that refuses edited results sees new ones as they came, and no call is left out.
#[test]
fn where_results_may_not_be_edited_new_ones_go_up_as_they_came() {
    for ladder in ["repeat+cwl", "admit+cwl", "loop-guard+cwl"] {
        let mut sim = session(ladder);
        sim.settings.budget.admit.limits.tokens = 100;
        sim.turn([call("odd", 200)]);
        sim.turn([same()]);
        sim.turn([same()]);
        let edited = |without: bool| {
            let mut state = sim.state(&sim.path, sim.path.marks.clone());
            if without {
                let results: Edits = [EditKind::Results].into_iter().collect();
                state.terms.go_without(results);
            }
            let prepared = state.prepare(&sim.tools(), None).unwrap();
            let items = prepared.view.transcript().items.indexed();
            let hidden = items
                .filter(|(at, item)| item.kind == ItemKind::Call && !prepared.view.is_whole(*at));
            (hidden.count(), prepared.view.size())
        };
        let (shown_otherwise, size) = edited(false);
        assert!(shown_otherwise > 0, "{ladder}");
        let (none, whole) = edited(true);
        assert_eq!(none, 0, "{ladder}: each call is shown with its own result");
        assert!(whole > size || ladder.starts_with("loop"), "{ladder}");
    }
}

#[test]
fn a_line_about_a_loop_stays_with_its_result() {
    let mut sim = session("loop-guard+cwl");
    sim.turn([call("odd", 30)]);
    sim.turn([same()]);
    sim.turn([same()]);
    let (sent, prepared) = sim.look();
    assert_eq!(prepared.repetition.times, 3);
    assert!(prepared.repetition.begins());
    let line = "[this call has brought the same result 3 times running]";
    let told = |messages: &[String]| messages.iter().filter(|one| one.contains(line)).count();
    assert_eq!(told(&sent.messages), 1);
    sim.turn([text(5)]);
    sim.user(5);
    assert_eq!(told(&sim.look().0.messages), 1, "the prefix holds");
    let kept: Vec<(ItemNo, Option<u32>)> = sim
        .path
        .marks
        .iter_kept()
        .map(|(no, kept): (_, &std::sync::Arc<Kept>)| (no, kept.times))
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].1, Some(3));
}

/// What is shown of a session whose only rung is set like this and has to free `freed` tokens.
fn shown(policy: &str, set: RungSettings, freed: u64) -> (String, Prepared) {
    let mut sim = session(policy);
    let (_, all) = sim.look();
    let of = sim.settings.budget.ladder.main();
    sim.settings.budget.rungs.insert(of, set);
    sim.ceiling(all.estimate - freed);
    let (sent, prepared) = sim.look();
    let labels = sent.gist.iter().filter(|label| label.starts_with('='));
    let labels: Vec<String> = labels.cloned().collect();
    (format!("{} ", labels.join(" ")), prepared)
}

#[test]
fn a_rung_touches_only_what_its_filter_names() {
    let tools = |glob: &str| RungSettings {
        tools: Globs::new(&[glob.to_owned()]).unwrap(),
        ..RungSettings::default()
    };
    for policy in ["recency", "tool-prune", "oldest-turn", "cwl", "cwl-paper"] {
        // Even where the ceiling is missed for it.
        let (left, prepared) = shown(policy, tools("bash"), 2_000);
        assert_eq!(left.matches("=read").count(), 4, "{policy}: {left}");
        assert!(prepared.pinned.is_some(), "{policy}");
        let (none, _) = shown(policy, tools("none"), 2_000);
        assert_eq!(none.matches('=').count(), 8, "{policy}: {none}");
    }
    let (left, prepared) = shown("recency", tools("ba*"), 500);
    assert!(
        !left.contains("=bash1") && !left.contains("=bash2"),
        "{left}"
    );
    assert!(prepared.pinned.is_none());
    let one = RungSettings {
        files: vec!["bash2".to_owned()],
        ..RungSettings::default()
    };
    let (left, _) = shown("recency", one, 2_000);
    assert_eq!(left.matches('=').count(), 7, "{left}");
    assert!(!left.contains("=bash2"), "{left}");
    let assistant = RungSettings {
        roles: vec![FilterRole::Assistant],
        ..RungSettings::default()
    };
    let (left, _) = shown("recency", assistant, 2_000);
    assert_eq!(left.matches('=').count(), 8, "calls are the tools': {left}");
}

#[test]
fn a_rung_for_new_results_heeds_its_filter() {
    let shortened = |glob: &str| {
        let mut sim = session("admit+cwl");
        sim.settings.budget.admit.limits.tokens = 100;
        let of = RungSettings {
            tools: Globs::new(&[glob.to_owned()]).unwrap(),
            ..RungSettings::default()
        };
        sim.settings.budget.rungs.insert(Policy::Admit, of);
        sim.turn([call("odd", 400)]);
        sim.look().1.entered.is_some()
    };
    assert!(shortened("odd") && !shortened("even"));
}

#[test]
fn a_rung_evicts_down_to_a_floor_of_its_own() {
    let (_, ceiling) = shown("recency", RungSettings::default(), 100);
    let deep = RungSettings {
        floor: Some(0.5),
        ..RungSettings::default()
    };
    let (_, half) = shown("recency", deep, 100);
    assert!(
        half.estimate * 2 <= half.ceiling + 1,
        "{} of {}",
        half.estimate,
        half.ceiling
    );
    assert!(ceiling.estimate * 2 > ceiling.ceiling);
}

#[test]
fn parallel_calls_that_are_all_alike_begin_one_loop() {
    let mut sim = session("loop-guard+cwl");
    sim.turn([call("odd", 30), same(), same(), same()]);
    let begun = sim.look().1.repetition;
    assert_eq!((begun.times, begun.new), (4, 4));
    assert!(begun.begins());
    sim.turn([same()]);
    let on = sim.look().1.repetition;
    assert_eq!((on.times, on.new), (5, 1));
    assert!(on.is_loop() && !on.begins(), "it is counted once");
}
