//! What stands where something went: the line of what is gone, tombstones, the ledger (design
//! §5). Exact texts, because a model reads them.

use super::properties::{self, SessionTerms};
use super::say::{Say, act, call, done, end, expl, recall, text, think};
use super::sim::{Sent, Sim, count};

/// The proxy's own texts in the next request.
fn notes(sim: &Sim) -> Vec<String> {
    let (sent, _) = sim.look();
    let notes = sent.gist.iter().filter_map(|shown| shown.strip_prefix('~'));
    let evicted = notes.filter(|note| !note.contains("· context"));
    evicted.map(str::to_owned).collect()
}

#[test]
fn a_tombstone_has_the_name_the_whole_description_and_what_went() {
    let long = "the session cookie is read in src/auth.rs:40-95 and never refreshed; ".repeat(5);
    let mut sim = Sim::new();
    sim.turn([
        text(9),
        expl("auth-flow"),
        call("grep", 300),
        call("read", 200),
    ]);
    sim.turn([call("read", 200)]);
    sim.turn([call("read", 200), end(&long)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 1);
    // The result of the `end` says what went for as long as the episode stands.
    assert_eq!(
        notes(&sim),
        ["closed expl \"auth-flow\" · evicted 1 items, 321 tokens: grep:5"]
    );
    sim.ceiling(all.estimate - 600);
    assert_eq!(
        notes(&sim),
        ["closed expl \"auth-flow\" · evicted 4 items, 984 tokens: grep:5 read:6,9,12"]
    );
    sim.ceiling(sim.least());
    let want = format!(
        "expl \"auth-flow\": {}\nevicted 5 items, 995 tokens: grep:5 read:6,9,12",
        long.trim()
    );
    assert_eq!(notes(&sim), [want]);
}

#[test]
fn a_tombstone_replaces_the_line_at_an_end_that_stays() {
    // One pass writes the line of `e5` at its end, then its tombstone at its start, and the end stays.
    let mut sim = properties::session(&SessionTerms::tight(1192));
    sim.turn([expl("e1"), end("learned-1 much ")]);
    sim.turn([expl("e2"), end("learned-2 much much ")]);
    sim.user(32);
    sim.turn([
        call("grep", 1),
        act("e3", &["e2"]),
        text(1),
        think(1),
        done(),
    ]);
    sim.turn([text(1), think(42), call("odd", 39)]);
    sim.turn([
        expl("e4"),
        Say::Same,
        end("learned-4 much much much much "),
        expl("e5"),
        text(47),
        call("grep", 80),
    ]);
    sim.turn([
        end("learned-5 much much much much much "),
        act("e6", &["e5", "e4"]),
    ]);
    sim.turn([
        done(),
        recall("delimiter:4"),
        call("grep", 40),
        text(10),
        Say::Same,
    ]);
    // The judge of every hop compares what the pass counted with what is sent.
    sim.turn([call("grep", 39)]);
    let last = sim.sent.last().unwrap();
    let e5 = last.gist.iter().filter(|shown| shown.contains("\"e5\""));
    let e5: Vec<&String> = e5.collect();
    assert_eq!(e5, ["~closed expl \"e5\" · context 1.0k/1.1k"]);
}

#[test]
fn an_implicit_tombstone_is_named_by_its_first_item() {
    let mut sim = Sim::new();
    for _ in 0..3 {
        sim.turn([call("grep", 200)]);
    }
    sim.user(3);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 1);
    assert_eq!(
        notes(&sim),
        ["auto-4: evicted 3 items, 663 tokens: grep:4,7,10"]
    );
}

#[test]
fn an_act_says_what_went_while_it_stands_and_leaves_nothing() {
    let mut sim = Sim::new();
    sim.turn([act("fix", &[]), call("edit", 200), call("grep", 200)]);
    sim.turn([done(), text(40)]);
    sim.turn([text(1)]);
    let (_, all) = sim.look();
    sim.ceiling(all.estimate - 1);
    assert_eq!(
        notes(&sim),
        ["closed act \"fix\" · evicted 1 items, 221 tokens: grep:6"]
    );
    sim.ceiling(sim.least());
    assert!(notes(&sim).is_empty());
}

/// A session of many episodes with descriptions of some 60 tokens each.
fn many(episodes: usize, ceiling: u64) -> Sim {
    let mut sim = Sim::finer();
    sim.ceiling(ceiling);
    for n in 0..episodes {
        let what = format!("what-{n} was {}", "found in a file ".repeat(14));
        sim.turn([expl(&format!("e{n}")), call("grep", 400)]);
        if n % 3 == 0 {
            sim.turn([end(&what), act(&format!("a{n}"), &[]), call("edit", 50)]);
            sim.turn([done(), text(2)]);
        } else {
            sim.turn([end(&what), text(2)]);
        }
    }
    sim
}

#[test]
fn tombstones_are_merged_when_they_pass_a_tenth_of_the_ceiling() {
    let standing = |sim: &Sim| notes(sim).iter().filter(|n| n.starts_with("expl")).count();
    let ledger = |sim: &Sim| notes(sim).into_iter().find(|n| n.starts_with("ledger"));
    let few = |episodes: usize| {
        let sim = many(episodes, 4380);
        standing(&sim) > 0 && ledger(&sim).is_none()
    };
    assert!((16..40).step_by(2).any(few));
    let sim = many(60, 4380);
    let text = ledger(&sim).unwrap();
    // One host, at most a twentieth, newest first, and a count of what does not fit.
    assert_eq!(
        notes(&sim)
            .iter()
            .filter(|n| n.starts_with("ledger"))
            .count(),
        1
    );
    assert!(count(&text) <= 4500 / 20, "{}: {text}", count(&text));
    let named: Vec<usize> = text
        .lines()
        .filter_map(|line| line.strip_prefix("- e")?.split(':').next()?.parse().ok())
        .collect();
    assert!(
        named.len() > 2 && named.is_sorted_by(|a, b| a > b),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("- a") && line.ends_with(" (act)"))
    );
    assert!(text.lines().last().unwrap().ends_with(" earlier"), "{text}");
    let line = text.lines().find(|line| line.starts_with("- e")).unwrap();
    let kept = line.split_once(": ").unwrap().1;
    assert_eq!(kept.chars().count(), 80);
    // The newest descriptions stay whole, as many as fit, and a pass merges no more than it has to.
    let whole = |sent: &Sent| {
        let own = sent.gist.iter().filter(|s| s.starts_with("~expl"));
        own.count()
    };
    let least = sim.sent.iter().skip_while(|sent| whole(sent) < 4);
    assert!(least.map(whole).all(|standing| standing >= 4));
}

#[test]
fn the_tombstone_of_an_expl_that_an_act_stands_on_is_not_merged() {
    let mut sim = many(6, 4500);
    sim.turn([act("late", &["e1"]), call("edit", 20)]);
    for n in 100..140 {
        sim.turn([call("read", 300), call("grep", 300)]);
        let (sent, _) = sim.look();
        let stands = sent
            .gist
            .iter()
            .any(|shown| shown.starts_with("~expl \"e1\": what-1 "));
        let evicted = !sent.gist.contains(&"grep2".to_owned());
        assert!(stands || !evicted, "{n}: {:#?}", sent.gist);
    }
    sim.turn([done(), text(1)]);
    for n in 200..280 {
        sim.turn([expl(&format!("f{n}")), call("grep", 400)]);
        sim.turn([end(&"found it ".repeat(20)), text(2)]);
    }
    let (sent, _) = sim.look();
    assert!(
        !sent
            .gist
            .iter()
            .any(|shown| shown.starts_with("~expl \"e1\""))
    );
}

#[test]
fn a_view_is_not_above_its_ceiling_for_tombstones_that_could_be_merged() {
    // All tombstones together are less than a tenth of it.
    let ceiling = 9000;
    let sim = many(6, ceiling);
    let (mut merged, mut unmet) = (0, 0);
    for tokens in (8000..9200).step_by(40) {
        let mut sim = sim.clone();
        sim.user(tokens);
        let (sent, prepared) = sim.look();
        let is_own = |text: &&String| text.starts_with("~expl") || text.starts_with("~ledger");
        let own: Vec<u32> = sent
            .gist
            .iter()
            .filter(is_own)
            .map(|text| count(text))
            .collect();
        merged += usize::from(sent.gist.iter().any(|text| text.starts_with("~ledger")));
        if sent.exceeded {
            unmet += 1;
            // The newest stays, with the ledger.
            let rest = prepared.estimate - u64::from(own.iter().sum::<u32>());
            assert!(
                own.len() <= 1 || rest > ceiling,
                "{tokens}: {:#?}",
                sent.gist
            );
        }
    }
    assert!(merged > 0 && unmet > 0, "{merged} {unmet}");
}

#[test]
fn the_ledger_changes_at_passes_only() {
    // Judged at every hop by the prefix law; here it is only made sure that there is one.
    let sim = many(60, 4500);
    let passes = sim.sent.iter().filter(|sent| sent.passed).count();
    let ledgers: std::collections::BTreeSet<&String> = sim
        .sent
        .iter()
        .filter_map(|sent| sent.gist.iter().find(|shown| shown.starts_with("~ledger")))
        .collect();
    assert!(ledgers.len() > 2 && ledgers.len() <= passes);
}
