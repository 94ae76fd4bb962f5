//! Results that have lines of an earlier one: what is new of them is shown, and the original
//! follows from that and the earlier one. That this holds in every hop is judged in `sim/pointed.rs`.

use plimsoll_model::{ItemKind, Mark};
use plimsoll_wire::Dialect;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::properties::config;
use super::say::{bring, bring_by, call, text};
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

/// The session after its client has edited the content of a result, counted from the first.
fn edited(sim: &Sim, nth: usize, content: &Value) -> Sim {
    let mut edited = sim.clone();
    let tool = |message: &&mut String| message.contains(r#""role":"tool""#);
    let message = edited.messages.iter_mut().filter(tool).nth(nth).unwrap();
    let mut value: Value = serde_json::from_str(message).unwrap();
    value["content"] = content.clone();
    *message = value.to_string();
    edited.align();
    edited
}

/// How many calls a session has.
fn calls(sim: &Sim) -> usize {
    let (_, prepared) = sim.look();
    let items = prepared.view.transcript().items.iter();
    items.filter(|item| item.kind == ItemKind::Call).count()
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
fn what_saves_little_stays_whole() {
    let (old, few) = (log(0, 40), log(35, 60));
    for next in [&few, &log(41, 80)] {
        assert_eq!(results(&brought(&[&old, next]))[1], *next);
    }
    // It would hold a long one in view for a small part of it.
    let (long, next) = (log(0, 230), log(0, 20));
    assert_eq!(results(&brought(&[&long, &next]))[1], next);
    assert_ne!(results(&brought(&[&log(0, 60), &next]))[1], next);
    let mut sim = brought(&[&old]);
    sim.turn([bring("odd", &log(0, 45))]);
    assert_eq!(
        rest(&results(&sim)[1]),
        log(40, 45),
        "whatever tool brings it"
    );
    sim.turn([bring("odd", &old)]);
    assert!(
        results(&sim)[2].starts_with("[unchanged since bash:"),
        "the same text comes first"
    );
}

#[test]
fn lines_that_an_earlier_result_shows_are_named_wherever_they_stand() {
    let old = log(0, 60);
    let edited = format!("{}log20 was edited\n{}", log(0, 20), log(21, 60));
    let headed = format!("exit code 0\n{}", log(0, 50));
    let moved = format!("{}first\n{}last", log(30, 60), log(0, 30));
    // (what the next result is) -> what is shown of it
    for (next, shown) in [
        (
            edited,
            "[lines 1 to 20 of ID]\nlog20 was edited\n[lines 22 to 60 of ID]\n",
        ),
        (headed, "exit code 0\n[lines 1 to 50 of ID]\n"),
        (
            moved,
            "[lines 31 to 60 of ID]\nfirst\n[lines 1 to 30 of ID]\nlast",
        ),
        (log(10, 60), "[lines 11 to 60 of ID]\n"),
        // It does not go on where the earlier one ended.
        (
            format!("{}last\n", log(0, 40)),
            "[lines 1 to 40 of ID]\nlast\n",
        ),
        // One run follows another with nothing between them.
        (
            format!("{0}{0}$ ", log(5, 60)),
            "[lines 6 to 60 of ID]\n[lines 6 to 60 of ID]\n$ ",
        ),
        (
            format!("x\n{}{}", log(30, 60), log(0, 30)),
            "x\n[lines 31 to 60 of ID]\n[lines 1 to 30 of ID]\n",
        ),
    ] {
        for dialect in DIALECTS {
            let mut sim = session();
            sim.dialect = dialect;
            sim.turn([bring("bash", &old)]);
            sim.turn([bring("read", &next)]);
            let all = results(&sim);
            assert_eq!(all[0], old);
            let (head, lines) = all[1].split_once('\n').unwrap();
            let id = head.strip_prefix("[repeats ").unwrap();
            let (id, _) = id.split_once(" in part, ").unwrap();
            assert_eq!(lines, shown.replace("ID", id));
            let first = lines
                .lines()
                .find(|line| line.starts_with("[line"))
                .unwrap();
            let like = format!(
                " tokens: a line like \"{first}\" stands for those of the 60 lines that the result of bash {{"
            );
            assert!(head.contains(&like), "{head}");
        }
    }
    // A line that looks like one of ours could not be told apart.
    let next = |own: &str| format!("{own}\n{old}");
    let own = next("[lines 1 to 20 of bash:4]");
    assert_eq!(results(&brought(&[&old, &own]))[1], own);
    let linter = next("[line 12] error of x");
    assert_ne!(results(&brought(&[&old, &linter]))[1], linter);
}

#[test]
fn a_result_that_could_be_mistaken_for_another_is_not_pointed_to() {
    let line = |line: usize| format!("log{line} is done ünd took {line} ms\r\n");
    let lines = |range: std::ops::Range<usize>| range.map(line).collect::<String>();
    let [first, other, third] = [0..60, 100..160, 0..50].map(lines);
    let third = format!("{third}third\n");
    let calls = |names: [&str; 3]| {
        let mut sim = session();
        for (name, text) in names.iter().zip([&first, &other, &third]) {
            sim.turn([bring_by("read", name, text)]);
        }
        results(&sim)
    };
    let shown = calls(["a", "a", "a"]);
    assert_eq!(shown[2], third, "the newest of this call shows other lines");
    let shown = calls(["a", "b", "a"]);
    assert!(shown[2].contains("of the 60 lines that the result of the same call above shows]"));
    assert!(
        shown[2].ends_with("[lines 1 to 50 of read:4]\nthird\n"),
        "{}",
        shown[2]
    );
    // The same text is mistaken as easily.
    let mut sim = session();
    for text in [&first, &other, &first] {
        sim.turn([bring_by("read", "a", text)]);
    }
    assert_eq!(results(&sim)[2], first);
    // Nothing but how a call begins is named.
    let long = "x".repeat(100);
    let [one, two] = [1, 2].map(|n| format!("{long}{n}"));
    assert_eq!(calls([&one, &two, "a"])[2], third);
}

#[test]
fn all_that_come_at_once_point_to_the_first() {
    let text = log(0, 20);
    let mut sim = brought(&[&text]);
    sim.turn((0..150).map(|_| bring("bash", &text)));
    let shown = results(&sim);
    assert_eq!(shown.len(), 151);
    let points = |shown: &String| shown.starts_with("[unchanged since bash:4,");
    assert!(shown[1..].iter().all(points));
}

#[test]
fn what_a_long_call_has_brought_is_not_held_for_its_lines() {
    let text = log(0, 60);
    let next = format!("{text}last\n{text}");
    let mut sim = session();
    sim.turn([bring_by("read", &"word ".repeat(5_000), &text)]);
    sim.turn([bring("bash", &next)]);
    assert_eq!(results(&sim)[1], next);
}

#[test]
fn lines_of_several_texts_are_not_counted() {
    let whole = log(0, 60);
    let (front, rest) = whole.split_at(100);
    let next = format!("{}last\n", log(0, 50));
    let mut sim = brought(&[&whole, &next]);
    sim.turn([text(5)]);
    sim.user(5);
    assert_ne!(results(&sim)[1], next);
    let parts = |kind: &str| [front, rest].map(|text| json!({"type": kind, "text": text}));
    let (sent, _) = edited(&sim, 0, &json!(parts("text"))).look();
    assert!(sent.messages.iter().all(|raw| !raw.contains("[repeats ")));
    // The others tell two texts from one, too.
    let messages = json!({"type": "tool_result", "tool_use_id": "a", "content": parts("text")});
    let responses =
        json!({"type": "function_call_output", "call_id": "a", "output": parts("input_text")});
    for (dialect, unit) in [
        (Dialect::Messages, messages),
        (Dialect::Responses, responses),
    ] {
        let unit = unit.to_string();
        assert_eq!(dialect.text(unit.as_bytes()).as_deref(), Some(&*whole));
        assert_eq!(dialect.texts(unit.as_bytes()).len(), 2, "{dialect:?}");
    }
}

#[test]
fn what_points_to_one_result_stays_small() {
    // Each adds some 900 tokens to the 2,600 of the first, and a pass takes all of them or none.
    let next = |from| format!("{}{}", log(0, 100), log(from, from + 60));
    let [old, second, third] = [log(0, 180), next(200), next(300)];
    let shown = results(&brought(&[&old, &second, &third]));
    assert_ne!(shown[1], second);
    assert_eq!(shown[2], third);
    // In one request as well.
    let mut sim = brought(&[&old]);
    sim.turn([bring("bash", &second), bring("bash", &third)]);
    let shown = results(&sim);
    assert_ne!(shown[1], second);
    assert_eq!(shown[2], third);
    // A result that is large by itself holds others in view no more than it stays for them.
    let (large, part) = (log(0, 330), log(0, 300));
    assert_eq!(results(&brought(&[&large, &part]))[1], part);
    // Nothing is added by those that say the same.
    let shown = results(&brought(&[&large, &large]));
    assert!(shown[1].starts_with("[unchanged since "), "{}", shown[1]);
}

#[test]
fn a_result_goes_on_from_one_that_is_whole() {
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
    let edited = |nth, text: &str| edited(&sim, nth, &json!(text));
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
fn an_edit_of_the_client_that_keeps_the_length_shows_a_result_whole() {
    let old = log(0, 60);
    let next = format!("first, which is new\n{}last\n{}", log(0, 30), log(30, 60));
    let mut sim = brought(&[&old, &next]);
    sim.turn([text(5)]);
    sim.user(5);
    assert!(results(&sim)[1].starts_with("[repeats "));
    // A line break moves, and what would be shown ends in the midst of a line.
    for edited in [
        next.replacen("new\n", "ne\nw", 1),
        next.replacen("last\n", "las\nt", 1),
        next.replacen("log0 ", "log9 ", 1),
    ] {
        assert_eq!(edited.len(), next.len());
        assert_eq!(
            results(&self::edited(&sim, 1, &json!(edited))),
            [old.clone(), edited]
        );
    }
    // An edit of the earlier one shows both as well, but where it leaves the lines.
    for (edited, points) in [
        (old.replacen("log7 ", "log9 ", 1), false),
        ("cleared".to_owned(), false),
        (format!("edited\n{old}"), true),
    ] {
        let shown = results(&self::edited(&sim, 0, &json!(edited)));
        assert_eq!(shown[0], edited);
        assert_eq!(shown[1] != next, points);
        assert!(
            !points || shown[1].contains("[lines 2 to 31 of "),
            "{}",
            shown[1]
        );
    }
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
fn a_skeleton_has_none_of_the_lines_that_another_result_shows() {
    let mut sim = session();
    let line =
        |line: usize| format!("found ünïque_{line} in src/part_{line}.rs, the same everywhere\n");
    let lines = |range: std::ops::Range<usize>| range.map(line).collect::<String>();
    sim.turn([bring("read", &lines(0..40))]);
    let next = [
        lines(0..20),
        lines(100..110),
        lines(20..40),
        lines(200..230),
    ]
    .concat();
    sim.turn([bring("read", &next)]);
    sim.turn([call("odd", 5)]);
    sim.turn([text(5)]);
    sim.user(5);
    assert!(results(&sim)[1].starts_with("[repeats "));
    let (_, whole) = sim.look();
    sim.ceiling(whole.estimate - 1);
    let shown = results(&sim);
    assert_eq!(shown[0], lines(0..40));
    assert!(shown[1].starts_with("[clipped read:"), "{}", shown[1]);
    let kept = shown[1].lines().filter(|line| line.starts_with("found"));
    let kept: Vec<&str> = kept.collect();
    let new = [lines(100..110), lines(200..230)];
    for new in &new {
        assert!(kept.iter().any(|line| new.contains(line)), "{kept:?}");
    }
    let is_new = |line: &&str| new.iter().any(|new| new.contains(line));
    assert!(kept.iter().all(is_new), "{kept:?}");
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
        prop_assert_eq!(calls(&sim), screens.len());
    }

    /// Whatever of a file is read again after edits, each hop holds its laws.
    #[test]
    fn files_are_read_again_without_a_loss(
        dialect in prop::sample::select(&DIALECTS[..]),
        ceiling in 1_500_u64..9_000,
        edits in prop::collection::vec((0_usize..5, 0_usize..80, 1_usize..40), 2..16),
    ) {
        let mut sim = session();
        sim.dialect = dialect;
        sim.ceiling(ceiling);
        let mut file: Vec<String> = log(0, 60).split_inclusive('\n').map(str::to_owned).collect();
        for (number, (edit, at, count)) in edits.iter().enumerate() {
            let at = at % file.len();
            let past = (at + count).min(file.len());
            let part = file[at..past].to_vec();
            match edit {
                0 => file[at] = format!("edit {number}\n"),
                1 => file.rotate_left(at),
                2 => file.extend(part.iter().cloned()),
                3 => file.splice(at..past, [format!("edit {number}\r\n")]).for_each(drop),
                _ => {}
            }
            let mut text = if *edit == 4 { part.concat() } else { file.concat() };
            if count % 3 == 0 {
                text.push_str("$ ");
            }
            sim.turn([bring(["bash", "read"][number % 2], &text)]);
        }
        prop_assert_eq!(calls(&sim), edits.len());
    }
}
