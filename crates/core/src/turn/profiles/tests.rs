//! Tests of `profiles`.

use std::sync::Arc;

use plimsoll_model::{Digest, ItemNo, Marks, RecordId, SplitPlace, TurnRecord};

use super::*;
use crate::policy::{Ladder, Policy};

const CHAT: &str = "/v1/chat/completions";
const RECORD: RecordId = RecordId(Digest([7; 32]));

fn globs(list: &[&str]) -> Globs {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    Globs::new(&list).unwrap()
}

fn when(models: &[&str], paths: &[&str], agents: &[&str]) -> Option<Occasion> {
    Some(Occasion {
        models: globs(models),
        paths: globs(paths),
        agents: globs(agents),
        child: None,
    })
}

/// Profiles by name; the ceiling of each is its place from 10,001.
fn profiles(all: &[(&str, Option<Occasion>)]) -> Profiles {
    let profile = |(at, (name, when)): (u32, &(&str, Option<Occasion>))| {
        let mut settings = Settings::default();
        settings.budget.ceiling = 10_001 + at;
        let when = when.clone();
        ((*name).to_owned(), Profile { when, settings })
    };
    Profiles {
        base: Settings::default(),
        named: (0..).zip(all).map(profile).collect(),
        split: None,
    }
}

fn named(name: &str) -> Overrides {
    Overrides {
        profile: Some(name.to_owned()),
        ..Overrides::default()
    }
}

fn from<'a>(path: &'a str, agent: &'a str) -> Envelope<'a> {
    Envelope {
        path,
        agent,
        child: false,
    }
}

fn choice(profile: Option<&str>, split: Option<SplitPlace>) -> Choice {
    Choice {
        profile: profile.map(str::to_owned),
        split,
    }
}

/// A path whose conversation began under a profile.
fn begun(profile: Option<&str>) -> Path {
    begun_in(profile, None)
}

/// The same in a split.
fn begun_in(profile: Option<&str>, split: Option<SplitPlace>) -> Path {
    let record = TurnRecord {
        profile: profile.map(str::to_owned),
        split,
        ..TurnRecord::default()
    };
    let mut path = Path::default();
    path.push(RECORD, Arc::new(record));
    path
}

#[test]
fn a_profile_may_be_for_sub_agents_or_for_all_others() {
    let when = |child, agents: &[&str]| {
        Some(Occasion {
            agents: globs(agents),
            child: Some(child),
            ..Occasion::default()
        })
    };
    let all = profiles(&[
        ("a", when(true, &["codex*"])),
        ("b", when(true, &[])),
        ("c", when(false, &[])),
    ]);
    for (agent, child, wanted) in [
        ("codex/1", true, "a"),
        ("x", true, "b"),
        ("codex/1", false, "c"),
    ] {
        let envelope = Envelope {
            child,
            ..from(CHAT, agent)
        };
        let overrides = Overrides::default();
        let chosen = all.chosen(&overrides, envelope, None);
        assert_eq!(chosen, Some(wanted), "{agent} {child}");
    }
}

#[test]
fn all_lists_that_are_given_have_to_match() {
    let all = profiles(&[
        ("a", when(&["gpt-4*", "o3"], &[], &[])),
        ("b", when(&[], &["*/responses"], &[])),
        ("c", when(&[], &[], &["claude-cli/*"])),
        ("d", when(&["gpt-5"], &["*/chat/*"], &["codex*"])),
        ("e", None),
    ]);
    for (path, agent, model, wanted) in [
        (CHAT, "", "gpt-4o", Some("a")),
        (CHAT, "", "GPT-4o", Some("a")),
        (CHAT, "", "openai/gpt-4o", None),
        ("/v1/responses", "", "x", Some("b")),
        (CHAT, "claude-cli/1.0 (external)", "x", Some("c")),
        (CHAT, "my claude-cli/1.0", "x", None),
        (CHAT, "Codex_CLI/2", "gpt-5", Some("d")),
        ("/v1/messages", "codex/2", "gpt-5", None),
        (CHAT, "", "gpt-5", None),
        // Of several, the first by name.
        ("/v1/responses", "claude-cli/1", "o3", Some("a")),
        ("/v1/responses", "claude-cli/1", "x", Some("b")),
    ] {
        let none = Overrides::default();
        let found = all.chosen(&none, from(path, agent), Some(model));
        assert_eq!(found, wanted, "{path} {agent} {model}");
        let header = named("e");
        let found = all.chosen(&header, from(path, agent), Some(model));
        assert_eq!(found, Some("e"), "the header comes first");
    }
}

#[test]
fn the_mode_is_known_without_a_model() {
    let mut all = profiles(&[
        ("a", when(&["gpt-4*"], &[], &[])),
        ("b", when(&[], &["*/responses"], &[])),
        ("c", None),
    ]);
    for (name, mode) in [("b", Mode::Observe), ("c", Mode::Off)] {
        all.named.get_mut(name).unwrap().settings.budget.mode = mode;
    }
    let none = Overrides::default();
    assert_eq!(all.mode(&none, from(CHAT, "")), Mode::Manage);
    assert_eq!(all.mode(&none, from("/v1/responses", "")), Mode::Observe);
    assert_eq!(all.mode(&named("c"), from("/v1/responses", "")), Mode::Off);
    let asked = Overrides {
        mode: Some(Mode::Manage),
        ..named("c")
    };
    assert_eq!(all.mode(&asked, from("/v1/responses", "")), Mode::Manage);
}

#[test]
fn a_conversation_goes_on_as_it_began() {
    let all = profiles(&[("a", None), ("b", None)]);
    let none = Overrides::default();
    let served = |asked: &Overrides, path: &Path, chosen| {
        let chosen = choice(chosen, None);
        all.choice(asked, path, chosen).profile
    };
    for (before, chosen, wanted) in [
        (Some("a"), Some("b"), Some("a")),
        (Some("a"), None, Some("a")),
        (Some("a"), Some("a"), Some("a")),
        (None, Some("a"), None),
        (None, None, None),
        (Some("gone"), Some("a"), None),
        (Some("gone"), None, None),
        (Some("smolagents"), None, Some("smolagents")),
    ] {
        let path = begun(before);
        let found = served(&none, &path, chosen);
        assert_eq!(found.as_deref(), wanted, "{before:?} {chosen:?}");
        assert_eq!(served(&named("b"), &path, Some("b")).as_deref(), Some("b"));
    }
    let path = Path::default();
    assert_eq!(served(&none, &path, Some("a")).as_deref(), Some("a"));
}

#[test]
fn who_is_drawn_is_served_under_what_is_tried() {
    let all = profiles(&[("a", None), ("b", None)]);
    let none = Overrides::default();
    let drawn = |tried| {
        Some(SplitPlace {
            profile: "b".to_owned(),
            tried,
        })
    };
    let begins = |begins: Choice| all.choice(&none, &Path::default(), begins);
    for one in [
        choice(Some("b"), drawn(true)),
        choice(Some("a"), drawn(false)),
        choice(None, None),
    ] {
        assert_eq!(begins(one.clone()), one);
    }
    let named_by = all.choice(
        &named("a"),
        &Path::default(),
        choice(Some("b"), drawn(true)),
    );
    assert_eq!(named_by, choice(Some("a"), drawn(true)));
    // It stays so, whatever would be drawn now; what a request names holds for it alone, and its session stays where it is.
    let path = begun_in(Some("b"), drawn(true));
    let goes_on = |asked: &Overrides| all.choice(asked, &path, choice(Some("a"), drawn(false)));
    assert_eq!(goes_on(&none), choice(Some("b"), drawn(true)));
    assert_eq!(goes_on(&named("a")), choice(Some("a"), drawn(true)));
}

#[test]
fn what_is_tried_serves_nobody_else_and_may_be_for_some_alone() {
    let mut all = profiles(&[
        ("b", when(&["gpt-*"], &[], &[])),
        ("c", when(&[], &[], &[])),
    ]);
    let (none, here) = (Overrides::default(), from(CHAT, ""));
    assert_eq!(all.chosen(&none, here, Some("gpt-5")), Some("b"));
    let joins =
        |all: &Profiles, asked: &Overrides, model| all.joins(asked, here, model, Mode::Manage);
    assert_eq!(joins(&all, &none, "gpt-5"), Joins::Not);
    all.split = Some(Split {
        profile: "b".to_owned(),
        share: 0.5,
    });
    assert_eq!(all.chosen(&none, here, Some("gpt-5")), Some("c"));
    assert_eq!(joins(&all, &none, "gpt-5"), Joins::Drawn);
    assert_eq!(joins(&all, &none, "o3"), Joins::Known);
    assert_eq!(all.joins(&none, here, "gpt-5", Mode::Observe), Joins::Not);
    // Whoever names a profile is not drawn, and may name the one that is tried.
    let asked = named("b");
    assert_eq!(joins(&all, &asked, "gpt-5"), Joins::Known);
    assert_eq!(all.chosen(&asked, here, Some("gpt-5")), Some("b"));
}

#[test]
fn what_a_conversation_began_with_outlives_its_records() {
    let drawn = SplitPlace {
        profile: "a".to_owned(),
        tried: true,
    };
    let path = begun_in(Some("a"), Some(drawn));
    let twice = |mut path: Path| {
        let record = TurnRecord {
            profile: Some("a".to_owned()),
            ..TurnRecord::default()
        };
        path.push(RECORD, Arc::new(record));
        path
    };
    for path in [
        path.clone(),
        twice(path.clone()),
        path.extend(RECORD, Arc::new(TurnRecord::default())),
        Path::from_snapshot(&path.snapshot(), vec![path.entries[0].record.clone()]),
        // No message is left that any record could be tied to.
        crate::session::align::align(&path, &[]),
    ] {
        assert!(path.has_begun());
        assert_eq!(path.choice.profile.as_deref(), Some("a"));
        assert!(path.choice.split.as_ref().is_some_and(|split| split.tried));
    }
    let none = Path::new(Vec::new(), Marks::default(), ItemNo(0));
    assert!(!none.has_begun() && none.choice == Choice::default());
}

#[test]
fn terms_are_those_of_the_profile() {
    let mut all = profiles(&[("a", None)]);
    all.base.budget.ladder = Ladder::from(Policy::None);
    let ceiling = |profile| {
        let terms = all.terms(profile, &Overrides::default(), None, "m");
        let terms = terms.unwrap();
        let none = terms.ladder.has(Policy::None);
        (terms.ceiling, none, terms.choice.profile)
    };
    let own = |name: &str| Some(name.to_owned());
    assert_eq!(ceiling(Some("a")), (10_001, false, own("a")));
    assert_eq!(ceiling(None), (80_000, true, None));
    // An agent whose results come as text has no settings of its own.
    assert_eq!(ceiling(Some("dspy")), (80_000, true, own("dspy")));
}

#[test]
fn a_request_may_name_what_there_is() {
    let all = profiles(&[("a", None), ("dspy", None)]);
    let names: Vec<&str> = all.names().collect();
    assert_eq!(names, ["a", "dspy", "smolagents", "mini-swe-agent"]);
    assert!(names.iter().all(|name| all.has(name)));
    assert!(!all.has("b"));
}
