//! [`Plan::check`] refuses what would break a rule, and whatever it lets through renders validly.

use std::sync::Arc;

use plimsoll_model::{ItemKind, Mark, Marks};
use proptest::prelude::*;

use super::properties::{self, SessionTerms};
use super::say::{Say, act, call, done, end, expl, text};
use super::sim::Sim;
use crate::policy::{Move, Plan, PlanError, Protection};
use crate::session::graph::DelimiterRole;
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::marked::Marked;
use crate::session::transcript::Transcript;

/// An expl, an act on it, an open expl, and the newest message.
fn session() -> (Sim, Arc<Transcript>) {
    let mut sim = Sim::new();
    sim.turn([expl("a"), call("grep", 9)]);
    sim.turn([end("of a"), act("b", &["a"]), text(9), call("edit", 9)]);
    sim.turn([done(), expl("c"), call("bash", 9)]);
    sim.turn([text(9), call("odd", 9)]);
    sim.turn([call("read", 9)]);
    let (_, prepared) = sim.look();
    (sim, prepared.view.shared())
}

/// An item by the name of its tool or the number of its kind: `text` is the first text.
fn find(transcript: &Transcript, what: &str) -> ItemIndex {
    let start = |at: EpisodeIndex| transcript.graph.episodes[at].name.clone();
    let found = transcript
        .items
        .indexed()
        .find(|(_, item)| match item.delimiter {
            Some(DelimiterRole::Start(at)) => format!("+{}", start(at)) == what,
            Some(DelimiterRole::End(at)) => format!("-{}", start(at)) == what,
            Some(DelimiterRole::Stray) => false,
            None => match item.kind {
                ItemKind::User => what == "user",
                ItemKind::System => what == "system",
                ItemKind::Text => {
                    let episode = item.episode.map(start).unwrap_or_default();
                    what == format!("text of {episode}")
                }
                ItemKind::Result => {
                    let call = &transcript.items[item.pair.unwrap()];
                    *what == format!("={}", call.name)
                }
                ItemKind::Call => *item.name == *what,
                ItemKind::Reasoning | ItemKind::Opaque => false,
            },
        });
    let (at, _) = found.unwrap_or_else(|| panic!("no {what}"));
    at
}

#[test]
fn each_rule_has_its_refusal() {
    use Mark::{Clipped, Live, Masked, Removed, Tombstone};
    let (_, transcript) = session();
    let protection = Protection::new(Marked::new(&transcript, &Marks::default()), 0);
    let at = |what: &str| find(&transcript, what);
    let whole_b = [
        ("+b", Removed),
        ("-b", Removed),
        ("text of b", Removed),
        ("edit", Removed),
    ];
    let folded_a = [("+a", Tombstone), ("-a", Removed), ("grep", Removed)];
    let merged_a = [("+a", Removed), ("-a", Removed), ("grep", Removed)];
    type Case<'a> = (
        &'a [(&'a str, Mark)],
        Option<fn(ItemIndex) -> PlanError>,
        &'a str,
    );
    let cases: &[Case<'_>] = &[
        (&[("user", Removed)], Some(PlanError::Fixed), "user"),
        (&[("system", Removed)], Some(PlanError::Fixed), "system"),
        (&[("=edit", Removed)], Some(PlanError::Fixed), "=edit"),
        (&[("edit", Tombstone)], Some(PlanError::Unshowable), "edit"),
        (&[("edit", Masked)], Some(PlanError::Unshowable), "edit"),
        (&[("edit", Clipped)], Some(PlanError::Unshowable), "edit"),
        (&[("edit", Live)], Some(PlanError::Unshowable), "edit"),
        (&[("+b", Tombstone)], Some(PlanError::Unshowable), "+b"),
        (&[("read", Removed)], Some(PlanError::Protected), "read"),
        (&[("grep", Removed)], Some(PlanError::Depended), "grep"),
        (&folded_a, Some(PlanError::Depended), "+a"),
        (
            &[("text of c", Removed)],
            Some(PlanError::Open),
            "text of c",
        ),
        (&[("+c", Removed)], Some(PlanError::Open), "+c"),
        (&[("+c", Tombstone)], Some(PlanError::Open), "+c"),
        (
            &[("text of b", Removed)],
            Some(PlanError::Part),
            "text of b",
        ),
        (
            &[("-b", Removed), ("edit", Removed)],
            Some(PlanError::Part),
            "-b",
        ),
        (&[("edit", Removed), ("-b", Masked)], None, ""),
        (&[("bash", Removed), ("+c", Masked)], None, ""),
        (&whole_b, None, ""),
    ];
    let moves = |named: &[(&str, Mark)]| -> Vec<Move> {
        let one = |(what, mark): &(&str, Mark)| Move::whole(at(what), *mark);
        named.iter().map(one).collect()
    };
    for (named, refusal, of) in cases {
        let got = Plan::check(
            Marked::new(&transcript, &Marks::default()),
            &protection,
            &moves(named),
        );
        let want = refusal.map(|refusal| refusal(at(of)));
        assert_eq!(got.err(), want, "{named:?}");
    }
    let check = |named: &[(&str, Mark)]| {
        Plan::check(
            Marked::new(&transcript, &Marks::default()),
            &protection,
            &moves(named),
        )
        .err()
    };
    assert_eq!(check(&[&whole_b[..], &folded_a].concat()), None);
    let lost = Some(PlanError::Lost(at("+a")));
    assert_eq!(check(&[&whole_b[..], &merged_a].concat()), lost);
    let absent = Move::whole(transcript.items.end(), Removed);
    assert_eq!(
        Plan::check(
            Marked::new(&transcript, &Marks::default()),
            &protection,
            &[absent]
        )
        .err(),
        Some(PlanError::Absent(transcript.items.end()))
    );
}

#[test]
fn marks_never_move_left() {
    let (_, transcript) = session();
    let protection = Protection::new(Marked::new(&transcript, &Marks::default()), 0);
    let item = find(&transcript, "edit");
    let moves = [Move::whole(item, Mark::Removed)];
    let mut marks = Marks::default();
    let plan = Plan::check(Marked::new(&transcript, &marks), &protection, &moves).unwrap();
    marks.apply(plan.moves(), plan.kept());
    assert_eq!(
        Plan::check(Marked::new(&transcript, &marks), &protection, &moves).err(),
        Some(PlanError::Left(item))
    );
    marks.raise(transcript.items[item].no, Mark::Masked);
    assert_eq!(marks.get(transcript.items[item].no), Mark::Removed);
}

#[test]
fn a_result_goes_with_its_call_whatever_the_plan() {
    let (sim, transcript) = session();
    let mut marks = Marks::default();
    marks.raise(
        transcript.items[find(&transcript, "edit")].no,
        Mark::Removed,
    );
    let sent = sim.shown(&marks);
    assert!(!sent.gist.contains(&"edit1".to_owned()));
    assert!(!sent.gist.contains(&"=edit1".to_owned()));
}

/// What a careless policy might ask for.
#[derive(Clone, Debug)]
enum Ask {
    /// All calls of an episode.
    Calls(prop::sample::Index),
    /// All of it, its carrier folded or removed.
    Whole(prop::sample::Index, bool),
    /// One item.
    One(prop::sample::Index, Mark),
}

fn ask() -> impl Strategy<Value = Ask> {
    let mark = prop::sample::select(vec![Mark::Masked, Mark::Tombstone, Mark::Removed]);
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Ask::Calls),
        (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, fold)| Ask::Whole(at, fold)),
        (any::<prop::sample::Index>(), mark).prop_map(|(at, mark)| Ask::One(at, mark)),
    ]
}

fn moves(transcript: &Transcript, ask: &Ask) -> Vec<Move> {
    let episodes = &transcript.graph.episodes;
    let removed = |item: &ItemIndex| Move::whole(*item, Mark::Removed);
    match ask {
        Ask::One(at, mark) => vec![Move::whole(
            ItemIndex(at.index(transcript.items.len())),
            *mark,
        )],
        Ask::Calls(_) | Ask::Whole(..) if episodes.is_empty() => vec![],
        Ask::Calls(at) => {
            let items = episodes[EpisodeIndex(at.index(episodes.len()))]
                .items
                .iter();
            let calls = items.filter(|item| {
                let item = &transcript.items[**item];
                item.kind == ItemKind::Call && item.delimiter.is_none()
            });
            calls.map(removed).collect()
        }
        Ask::Whole(at, fold) => {
            let episode = &episodes[EpisodeIndex(at.index(episodes.len()))];
            let fold = |item: &ItemIndex| *fold && episode.carrier == Some(*item);
            let one = |item: &ItemIndex| {
                Move::whole(
                    *item,
                    if fold(item) {
                        Mark::Tombstone
                    } else {
                        Mark::Removed
                    },
                )
            };
            episode.items.iter().map(one).collect()
        }
    }
}

#[test]
fn many_wrong_moves_are_dropped_as_quickly_as_one() {
    let (_, transcript) = session();
    let marks = Marks::default();
    let seen = Marked::new(&transcript, &marks);
    let protection = Protection::new(seen, 0);
    let end = transcript.items.end().0;
    let absent = (end..end + 40_000).map(|at| Move::whole(ItemIndex(at), Mark::Removed));
    let good = Move::whole(find(&transcript, "edit"), Mark::Removed);
    let moves = std::iter::once(good.clone()).chain(absent).collect();
    let began = std::time::Instant::now();
    let (plan, dropped) = Plan::judge(seen, &protection, moves);
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    assert_eq!(Ok(plan), Plan::check(seen, &protection, &[good]));
    assert_eq!(dropped.len(), 40_000);
}

proptest! {
    #![proptest_config(properties::config())]

    #[test]
    fn what_is_left_of_wrong_moves_is_a_plan(
        turns in prop::collection::vec(properties::turn(), 1..12),
        asks in prop::collection::vec(ask(), 1..12),
    ) {
        let sim = properties::play(&SessionTerms::endless(), &turns);
        let (_, prepared) = sim.look();
        let seen = prepared.view.marked();
        let protection = Protection::new(seen, 0);
        let mut all: Vec<Move> = Vec::new();
        for one in asks.iter().flat_map(|ask| moves(seen.transcript, ask)) {
            all.retain(|before| before.item != one.item);
            all.push(one);
        }
        let (plan, dropped) = Plan::judge(seen, &protection, all.clone());
        let wrong = |one: &Move| dropped.iter().any(|error| error.item() == one.item);
        let (gone, left): (Vec<Move>, Vec<Move>) = all.into_iter().partition(wrong);
        prop_assert_eq!(gone.len(), dropped.len());
        prop_assert_eq!(Plan::check(seen, &protection, &left), Ok(plan));
    }

    #[test]
    fn whatever_passes_the_check_renders_validly(
        turns in prop::collection::vec(properties::turn(), 1..12),
        asks in prop::collection::vec(ask(), 1..12),
    ) {
        let sim = properties::play(&SessionTerms::endless(), &turns);
        let (_, prepared) = sim.look();
        let transcript = prepared.view.transcript();
        // An eviction that a person asked for may have left marks.
        let protection = Protection::new(prepared.view.marked(), 0);
        let mut marks = prepared.view.marks().clone();
        for ask in &asks {
            // Each is judged on its own, on what the ones before have left.
            let moves = moves(transcript, ask);
            if let Ok(plan) = Plan::check(Marked::new(transcript, &marks), &protection, &moves) {
                marks.apply(plan.moves(), plan.kept());
                sim.shown(&marks);
            }
        }
    }
}

#[test]
fn the_check_is_not_too_strict_for_the_policy() {
    // Every move that a pass makes is checked, and a refusal would fail the request: a session in
    // which everything goes, acts and expls, merged and open, with parallel calls in shared
    // messages.
    let mut sim = Sim::new();
    sim.ceiling(1500);
    let wrong = || Say::Delimit(serde_json::json!({"action": "start"}));
    for n in 0..30 {
        let (a, b) = (format!("a{n}"), format!("b{n}"));
        sim.turn([text(9), call("odd", 9), wrong(), expl(&a), call("grep", 90)]);
        sim.turn([
            call("read", 90),
            end("learned"),
            act(&b, &[&a]),
            call("edit", 9),
        ]);
        sim.turn([call("bash", 30), done(), call("grep", 30)]);
    }
    assert!(sim.sent.iter().filter(|sent| sent.passed).count() > 10);
}
