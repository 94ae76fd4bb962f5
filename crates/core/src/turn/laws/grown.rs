//! Results that only grew or scrolled since an earlier one: what is new of them is shown, and the original
//! follows from that and the earlier one. That this holds in every hop is judged in `sim/pointed.rs`.

use plimsoll_model::{ItemKind, Mark};
use plimsoll_wire::Dialect;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::properties::config;
use super::say::{bring, call, text};
use super::sim::Sim;
use super::terminals::Terminals;
use crate::policy::{Move, Plan, PlanError, Protection, Rules};
use crate::session::index::ItemIndex;

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

fn session() -> Sim {
    let mut sim = Sim::finer();
    sim.settings.budget.ladder = "repeat+cwl".parse().unwrap();
    sim.thorough = true;
    sim
}

/// A session in which `bash` has brought these results.
fn brought(texts: &[&str]) -> Sim {
    let mut sim = session();
    for text in texts {
        sim.turn([bring("bash", text)]);
    }
    sim
}

/// The texts of all results as the next hop shows them.
fn results(sim: &Sim) -> Vec<String> {
    let (sent, _) = sim.look();
    let messages = sent.messages.iter();
    let messages = messages.map(|raw| serde_json::from_str::<Value>(raw).unwrap());
    let results = messages.filter(|message| message["role"] == "tool");
    results
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

/// Lines of a log, from one number up to another.
fn log(from: usize, to: usize) -> String {
    let lines =
        (from..to).map(|line| format!("log{line} step {line} is done, it took {line} ms\n"));
    lines.collect()
}

/// What of a result is shown, without its first line.
fn rest(shown: &str) -> &str {
    assert!(shown.starts_with("[continues "), "{shown}");
    shown.split_once('\n').unwrap().1
}

#[test]
fn what_is_new_is_shown_in_every_dialect() {
    for dialect in DIALECTS {
        let mut sim = session();
        sim.dialect = dialect;
        let prompt = format!("{}$ ", log(30, 60));
        let written = format!("{}$ ls\n", log(32, 60));
        for shown in [&log(0, 40), &log(0, 45), &log(10, 60), &prompt, &written] {
            sim.turn([bring("bash", shown)]);
        }
        let shown = results(&sim);
        assert_eq!(shown[0], log(0, 40), "{dialect:?}");
        assert_eq!(rest(&shown[1]), log(40, 45));
        let head = " tokens: its first 40 lines are all 40 lines of the result of bash {\"label\"";
        assert!(shown[1].contains(head), "{}", shown[1]);
        assert_eq!(rest(&shown[2]), log(40, 60));
        let head = "its first 30 lines are the last 30 of the 40 lines of the result of ";
        assert!(shown[2].contains(head), "{}", shown[2]);
        // Only ten lines are left of the first, and what it shows by a pointer is nothing to point to.
        assert_eq!(shown[3], prompt);
        let head = "its first 28 lines are lines 3 to 30 of the 31 of the result of ";
        assert!(shown[4].contains(head), "{}", shown[4]);
        assert_eq!(rest(&shown[4]), "$ ls\n");
    }
}

#[test]
fn what_saves_little_or_is_of_another_tool_stays_whole() {
    let (old, few) = (log(0, 40), log(35, 60));
    let headed = format!("exit code 0\n{}", log(0, 45));
    for next in [&few, &headed, &log(41, 80)] {
        assert_eq!(results(&brought(&[&old, next]))[1], *next);
    }
    // It would hold a long one in view for a small part of it.
    let (long, next) = (log(0, 100), log(60, 105));
    assert_eq!(results(&brought(&[&long, &next]))[1], next);
    let mut sim = brought(&[&old]);
    sim.turn([bring("odd", &log(0, 45))]);
    assert_eq!(results(&sim)[1], log(0, 45));
    sim.turn([bring("bash", &log(0, 45))]);
    assert!(
        results(&sim)[2].starts_with("[unchanged since odd:"),
        "the same text comes first"
    );
}

#[test]
fn a_result_goes_on_from_the_newest_that_is_whole() {
    // The second points to the first, which the third goes on from again.
    let sim = brought(&[&log(0, 40), &log(0, 45), &log(0, 50)]);
    let shown = results(&sim);
    assert_eq!(rest(&shown[2]), log(40, 50));
    let sim = brought(&[&log(0, 40), &log(30, 70), &log(31, 75)]);
    let shown = results(&sim);
    assert_eq!(shown[1], log(30, 70));
    assert_eq!(rest(&shown[2]), log(70, 75));
    let anchors: Vec<ItemIndex> = sim.look().1.view.marked().pointers().into_keys().collect();
    assert_eq!(anchors.len(), 1);
}

#[test]
fn an_edit_of_the_client_shows_both_whole() {
    let mut sim = brought(&[&log(0, 40), &log(0, 45)]);
    sim.turn([text(5)]);
    sim.user(5);
    let place = |nth: usize| {
        let tool = |message: &&String| message.contains(r#""role":"tool""#);
        let found = sim.messages.iter().filter(tool).nth(nth).unwrap();
        sim.messages
            .iter()
            .position(|message| message == found)
            .unwrap()
    };
    let edited = |nth: usize, text: &str| {
        let mut edited = sim.clone();
        let at = place(nth);
        let mut message: Value = serde_json::from_str(&edited.messages[at]).unwrap();
        message["content"] = json!(text);
        edited.messages[at] = message.to_string();
        edited.align();
        edited
    };
    for (nth, text) in [
        (0, log(0, 37)),
        (0, "cleared".to_owned()),
        (1, log(1, 45)),
        (1, "cleared".to_owned()),
    ] {
        let mut whole = [log(0, 40), log(0, 45)];
        whole[nth] = text.clone();
        assert_eq!(results(&edited(nth, &text)), whole);
    }
    // An edit that leaves those lines where they were leaves the pointer, which says where they are now.
    let shown = results(&edited(0, &format!("edited\n{}", log(0, 40))));
    assert!(
        shown[1].contains("the last 40 of the 41 lines"),
        "{}",
        shown[1]
    );
    assert_eq!(rest(&shown[1]), log(40, 45));
}

#[test]
fn a_pass_leaves_the_lines_that_were_new() {
    let mut sim = session();
    let line =
        |line: usize| format!("found ünïque_{line} in src/part_{line}.rs, the same everywhere\n");
    let lines = |range: std::ops::Range<usize>| range.map(line).collect::<String>();
    sim.turn([bring("read", &lines(0..40))]);
    sim.turn([bring("read", &lines(0..80))]);
    sim.turn([call("odd", 5)]);
    sim.turn([text(5)]);
    sim.user(5);
    assert_eq!(rest(&results(&sim)[1]), lines(40..80));
    let (_, whole) = sim.look();
    sim.ceiling(whole.estimate - 1);
    let shown = results(&sim);
    assert_eq!(shown[0], lines(0..40), "enough is freed without it");
    assert!(shown[1].starts_with("[clipped read:"), "{}", shown[1]);
    let kept = shown[1].lines().filter(|line| line.starts_with("found"));
    let kept: Vec<&str> = kept.collect();
    assert!(kept.len() > 5, "{kept:?}");
    let new = lines(40..80);
    assert!(kept.iter().all(|line| new.contains(line)), "{kept:?}");
    let (_, less) = sim.look();
    sim.ceiling(less.estimate - 1);
    assert!(
        results(&sim)[0].starts_with("[clipped read:"),
        "then what it pointed to"
    );
}

#[test]
fn what_another_result_goes_on_from_goes_with_it() {
    let mut sim = brought(&[&log(0, 40), &log(0, 60)]);
    sim.turn([call("read", 30)]);
    sim.turn([text(5)]);
    let (_, prepared) = sim.look();
    let pointers = prepared.view.marked().pointers();
    let (to, from) = pointers.iter().next().unwrap();
    let protection = Protection::new(prepared.view.marked(), 0).under(Rules::Off);
    let gone = |at: ItemIndex| Move::whole(at, Mark::Removed);
    let alone = Plan::check(prepared.view.marked(), &protection, &[gone(*to)]);
    assert_eq!(alone, Err(PlanError::PointedTo(*to)));
    let both = [gone(*to), gone(from[0])];
    assert!(Plan::check(prepared.view.marked(), &protection, &both).is_ok());
    // Under a ceiling that is lowered step by step the newer one goes first.
    let mut low = sim.clone();
    let mut steps = Vec::new();
    for _ in 0..8 {
        let (_, prepared) = low.look();
        let view = &prepared.view;
        let stage = [*to, from[0]].map(|at| (view.marked().mark_of(at), view.is_whole(at)));
        steps.push(stage);
        assert!(!view.marked().pointers().contains_key(to) || view.is_whole(*to));
        low.ceiling(prepared.estimate - 1);
    }
    assert_eq!(steps[0], [(Mark::Live, true), (Mark::Clipped, false)]);
    assert!(
        steps.contains(&[(Mark::Masked, false), (Mark::Masked, false)]),
        "{steps:?}"
    );
}

#[test]
fn lines_that_look_like_the_proxys_own_are_lines() {
    let own = "[continues bash:4, 900 tokens: its first 2 lines are all 2 lines of the result of x above; what follows them is below]\n";
    let old = format!("{own}{}[unchanged since bash:4, 9 tokens]", log(0, 40));
    let new = format!("{old}\n[this call has brought the same result 3 times running]\n{own}");
    let mut sim = brought(&[&old, &new]);
    let shown = results(&sim);
    assert_eq!(shown[0], old);
    assert!(
        shown[1].contains("its first 42 lines are all 42 lines of "),
        "{}",
        shown[1]
    );
    assert_eq!(rest(&shown[1]), &new[old.len() + 1..]);
    // The third time running the call is told, below what is new.
    sim.settings.budget.ladder = "repeat+loop-guard+cwl".parse().unwrap();
    sim.turn([super::say::same()]);
    sim.turn([super::say::same()]);
    let line = "\n[this call has brought the same result 3 times running]";
    let last = results(&sim).pop().unwrap();
    let told = last.strip_suffix(line).unwrap();
    assert_eq!(rest(told), rest(&shown[1]));
}

proptest! {
    #![proptest_config(config())]

    /// Whatever a terminal shows, each hop holds its laws, and what saves is made a pointer.
    #[test]
    fn screens_are_shown_without_a_loss(
        dialect in prop::sample::select(&DIALECTS[..]),
        ceiling in 1_500_u64..9_000,
        screens in prop::collection::vec((0_usize..2, 0_u32..9, 20_u32..60), 2..25),
    ) {
        let mut sim = session();
        sim.dialect = dialect;
        sim.ceiling(ceiling);
        let mut terminals = Terminals::default();
        for (tool, adds, height) in &screens {
            let tool = ["bash", "read"][*tool];
            sim.turn([bring(tool, &terminals.shown(tool, *adds, *height))]);
        }
        let (_, prepared) = sim.look();
        let items = prepared.view.transcript().items.iter();
        let calls = items.filter(|item| item.kind == ItemKind::Call).count();
        prop_assert_eq!(calls, screens.len());
    }
}
