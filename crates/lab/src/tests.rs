//! Laws of the lab on a real session: the bundled one, in whole or in part.

use std::sync::LazyLock;

use super::explain::explain;
use super::outcome::Report;
use super::passes::{Passed, shallow};
use super::*;

static BUNDLED: &[u8] = include_bytes!("../../../assets/demo/session.jsonl.zst");

static SESSION: LazyLock<String> =
    LazyLock::new(|| String::from_utf8(zstd::decode_all(BUNDLED).unwrap()).unwrap());

fn options(policies: &[Policy], ceiling: u32) -> Options {
    Options {
        policies: policies.iter().copied().map(Ladder::from).collect(),
        ceilings: vec![ceiling],
        threads: 1,
        ..Options::default()
    }
}

fn play(options: Options) -> SessionOutcome {
    let trace = trace::parse("bundled", &SESSION).unwrap();
    Lab::new(options).unwrap().session(&trace).unwrap()
}

fn outcomes(options: Options) -> Vec<Outcome> {
    let played = play(options);
    played.policies.iter().map(Played::outcome).collect()
}

#[test]
fn sending_everything_loses_nothing_and_breaks_nothing() {
    let played = play(options(&[Policy::None], 40_000));
    let run = &played.policies[0].runs[0];
    let none = &run.outcome;
    assert_eq!((none.passes, none.breaks, none.refetches), (0, 0, 0));
    for share in [none.visible, none.recoverable, none.lines, none.passages] {
        assert!(share.whole > 100 && share.part == share.whole, "{share:?}");
    }
    assert_eq!(none.prune_rate(), 0.0);
    assert!(none.prunable > 0 && none.over == none.prunable);
    assert_eq!(run.series.len() as u64, none.requests);
    assert!(run.series.iter().all(|point| point.sent == point.client));
    // In the ideal cache all but what is new was there before.
    let new = run.series.last().unwrap().sent;
    assert_eq!(none.sent - none.cached, new);
    let cost = 0.1 * none.cached as f64 + 1.25 * new as f64;
    assert!((none.cost - cost).abs() < 1e-6 * cost);
}

/// What no change of the order may lose unseen: strings, lines and passages of the bundled session.
#[test]
fn the_default_keeps_what_it_kept() {
    let kept = outcomes(options(&[Policy::Cwl], 40_000))[0];
    for (measure, share, least) in [
        ("K", kept.visible, 0.96),
        ("L", kept.lines, 0.92),
        ("P", kept.passages, 0.855),
    ] {
        assert!(
            share.kept() >= least,
            "{measure}: {} of {least}",
            share.kept()
        );
    }
    assert!(kept.over == 0 && kept.prune_rate() > 0.7, "{kept:?}");
}

#[test]
fn only_passes_break_a_prefix_and_most_policies_hold_the_ceiling() {
    let check = |policies: &[Policy], annotate| {
        let all = outcomes(Options {
            annotate,
            ..options(policies, 40_000)
        });
        for (policy, outcome) in policies.iter().zip(all) {
            let name = (policy.name(), annotate.name());
            assert_eq!(outcome.breaks, outcome.passes, "{name:?}");
            assert!(outcome.visible.part <= outcome.recoverable.part);
            assert!(
                outcome.passes > 0 && outcome.visible.kept() < 1.0,
                "{name:?}"
            );
            // Those that take results alone can't free enough where those are small.
            let partial = [
                Policy::ToolPrune,
                Policy::ToolMaskPrune,
                Policy::ThreeTier,
                Policy::KeepRecent,
            ];
            let held = outcome.peak <= 40_000 && outcome.over == 0;
            // The published order surfaces what open work holds above it.
            let open = *policy == Policy::CwlPaper && annotate != Annotate::None;
            assert!(
                held || open || partial.contains(policy),
                "{name:?} {outcome:?}"
            );
            assert!(
                !open || outcome.over * 10 < outcome.prunable,
                "{name:?} {outcome:?}"
            );
        }
    };
    let all: Vec<Policy> = evicting()
        .filter(|policy| *policy != Policy::None)
        .collect();
    check(&all, Annotate::None);
    check(&[Policy::CwlPaper, Policy::Cwl], Annotate::Inferred);
    check(&[Policy::Cwl], Annotate::Scripted);
}

#[test]
fn a_session_without_tools_is_held_under_its_ceiling() {
    for ceiling in [20_000, 40_000] {
        let mut trace = trace::parse("bundled", &SESSION).unwrap();
        (trace.tools, trace.tools_from) = (None, trace::Tools::None);
        let lab = Lab::new(options(&[Policy::Cwl], ceiling)).unwrap();
        let held = lab.session(&trace).unwrap().policies[0].outcome();
        assert_eq!((held.over, held.extra), (0, 0), "{held:?}");
        assert!(held.passes > 1 && held.breaks == held.passes, "{held:?}");
        assert!(held.prunable > 0 && held.peak <= u64::from(ceiling));
    }
}

#[test]
fn annotations_are_charged_where_they_are_said_to_be() {
    let with = |annotate| {
        outcomes(Options {
            annotate,
            guide_at: 0.0,
            ..options(&[Policy::Cwl, Policy::None], 4_000_000)
        })
    };
    let (none, inferred) = (with(Annotate::None), with(Annotate::Inferred));
    let scripted = with(Annotate::Scripted);
    // Nothing is evicted at this ceiling, so that all there is to pay for is the annotation.
    assert!(scripted[0].sent > inferred[0].sent + inferred[0].sent / 20);
    assert!(scripted[0].extra > 0 && inferred[0].extra == 0);
    // An inferred exchange leaves the four tokens of its result's message.
    assert!((inferred[0].sent - none[0].sent) * 50 < none[0].sent);
    // Whoever needs none pays for none.
    let free = |outcome: &Outcome| Outcome {
        nanos: 0,
        ..*outcome
    };
    assert_eq!(free(&scripted[1]), free(&none[1]));
}

#[test]
fn ceilings_add_up() {
    let sum = |ceilings: &[u32]| {
        let all = outcomes(Options {
            ceilings: ceilings.to_vec(),
            ..options(&[Policy::Cwl], 0)
        });
        Outcome { nanos: 0, ..all[0] }
    };
    let mut apart = sum(&[40_000]);
    apart.add(&sum(&[60_000]));
    assert_eq!(sum(&[40_000, 60_000]), apart);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let lines: Vec<&str> = SESSION.lines().collect();
    for (name, count) in [("a", 60), ("b", 90), ("c", 30), ("d", 5)] {
        let path = directory.path().join(format!("{name}.jsonl"));
        std::fs::write(path, lines[1..=count].join("\n")).unwrap();
    }
    let files = source::find(&[directory.path().to_owned()]).unwrap().found;
    let run = |threads| -> Report {
        let options = Options {
            threads,
            min_tokens: 2_000,
            ..options(&[Policy::Cwl, Policy::None], 8_000)
        };
        let mut report = Lab::new(options).unwrap().run(&files, &()).unwrap();
        let sessions = report.sessions.iter_mut();
        let runs = sessions
            .flat_map(|s| &mut s.policies)
            .flat_map(|p| &mut p.runs);
        runs.for_each(|run| run.outcome.nanos = 0);
        report
    };
    let one = run(1);
    let names: Vec<&str> = one.sessions.iter().map(|s| s.name.as_str()).collect();
    assert_eq!((names, one.short), (vec!["a", "b", "c"], 1));
    assert!(one.policies()[0].1.passes > 0);
    assert_eq!(one, run(2));
    assert_eq!(one, run(7));
}

#[test]
fn an_item_is_explained_from_its_pass_to_its_later_need() {
    let trace = trace::parse("bundled", &SESSION).unwrap();
    let lab = |policies: &[Policy]| Lab::new(options(policies, 40_000)).unwrap();
    let one = lab(&[Policy::Cwl]);
    let played = drive::play(&one, &trace, &one.contenders, None).unwrap();
    let player = &played.players[0];
    let miss = player.misses.iter().find(|miss| miss.named).unwrap();
    let (message, part) = played.needs.holders(miss.string, miss.at).next().unwrap();
    let view = shown::SentView {
        pool: &sent::Pool::default(),
        ids: &[],
        transcript: &player.transcript,
    };
    let item = view.item(message, part).unwrap();
    let name = format!("{}:{}", item.name, item.no);
    let text = explain(&one, &trace, &name).unwrap();
    for words in [
        "pass ",
        "(budget)",
        "needed later",
        played.needs.string(miss.string),
    ] {
        assert!(text.contains(words), "{words} not in {text}");
    }
    for (asked, words) in [
        ("read", "no item"),
        ("read:x", "no item"),
        ("read:999999", "has no item read:999999"),
        (&format!("other:{}", item.no), name.as_str()),
    ] {
        let error = explain(&one, &trace, asked).unwrap_err().to_string();
        assert!(error.contains(words), "{asked}: {error}");
    }
    let two = lab(&[Policy::Cwl, Policy::None]);
    let error = explain(&two, &trace, &name).unwrap_err().to_string();
    assert!(error.contains("one policy"), "{error}");
}

#[test]
fn three_passes_above_the_floor_within_ten_turns_are_a_run() {
    let pass = |request, after, unmet| Passed {
        request,
        trigger: plimsoll_core::commit::Trigger::Ceiling,
        before: 100,
        after,
        floor: 50,
        last: 10,
        unmet,
        moves: Vec::new(),
        gone: Vec::new(),
    };
    let check = |passes: &[Passed], expect| assert_eq!(shallow(passes), expect, "{passes:?}");
    let above = |request| pass(request, 60, false);
    check(&[], (0, 0));
    check(&[above(1), above(2)], (2, 0));
    check(&[above(1), above(5), above(10)], (3, 1));
    check(&[above(1), above(5), above(11)], (3, 0));
    check(&[above(1), above(2), above(3), above(4)], (4, 2));
    // One that reached its floor is no part of it, and neither is what could not be met.
    check(&[above(1), pass(2, 50, false), above(3)], (2, 0));
    check(&[above(1), pass(2, 120, true), above(3)], (3, 0));
}
