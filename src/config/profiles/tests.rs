//! Profiles over every section: what they may set, what they start from, and what is refused.

use plimsoll_core::policy::{Ladder, Order, Policy};
use plimsoll_core::turn::{Guidance, KeepErrors, Mode, Offer, SetBreakpoints};
use plimsoll_wire::stream::UsageMode;

use super::*;
use crate::config::settings::TurnSections;
use crate::config::tests::{good, problems};

fn profile<'a>(config: &'a Config, name: &str) -> &'a TurnSections {
    &config.profiles[name].turns
}

#[test]
fn profiles_are_laid_over_the_budget() {
    let config = good(
        "[budget]\ntokens = 50000\nmin_floor = 0.4\n[delimiter]\nguide_at = 0.5\n\
         [profiles.small]\ntokens = 4000\nmode = \"off\"\noffer = \"line\"\nguide_at = 0.0",
    );
    let small = &profile(&config, "small").budget;
    assert_eq!(
        (small.ceiling, small.min_floor, small.mode),
        (4_000, 0.4, Mode::Off)
    );
    assert_eq!((small.offer, small.guide_at), (Offer::Line, 0.0));
    assert_eq!(
        (config.budget.ceiling, config.budget.guide_at),
        (50_000, 0.5)
    );
    assert_eq!(config.profiles["small"].when, None);
}

#[test]
fn a_profile_without_keys_changes_nothing() {
    let base = "[budget]\ntokens = 50000\n[keep]\nshare = 0.3\n[admit]\nlines = 20\n[recall]\nenabled = false\n\
                [delimiter]\nhops = 3\noffer = \"line\"\nheartbeat = \"3s\"\n[cache]\nbreakpoints = \"off\"\n\
                [tools]\nread = [\"look\"]\ntext_results = [\"^Saw:\"]\n";
    for empty in [
        "[profiles.same]",
        "[profiles.same.keep]\n[profiles.same.tools]",
    ] {
        let config = good(&format!("{base}{empty}"));
        assert_eq!(config.profiles["same"].turns, config.turns(), "{empty}");
        let mut without = good(base);
        without.profiles = config.profiles.clone();
        assert_eq!(config, without, "and nothing outside of it");
    }
}

#[test]
fn every_section_of_turns_can_be_set() {
    let config = good(
        "[keep]\nshare = 0.3\nerrors = \"off\"\n[delimiter]\nhops = 3\nusage = \"sum\"\n[profiles.all.keep]\n\
         errors = \"all\"\nnewest = 4\n[profiles.all.admit]\ntokens = 900\nexcept = [\"x*\"]\n\
         [profiles.all.delimiter]\nenabled = false\noffer = \"line\"\nguide_at = 0.25\nguidance = false\n\
         nudge = false\nauto_close = true\n[profiles.all.recall]\nenabled = false\n[profiles.all.cache]\n\
         breakpoints = \"off\"\n[profiles.all.tools]\nbulk = [\"web*\"]\nprofile = \"dspy\"\n\
         [profiles.all.when]\nmodels = [\"gpt-*\"]\nagents = [\"codex*\"]\nchild = true\n[profiles.all.partitions]\n\
         messages = 0.5\nreserve = 0.2\n[profiles.all.rungs.cwl]\ntools = [\"bash\"]\nfloor = 0.4",
    );
    let all = profile(&config, "all");
    assert!(all.partitions.is_on() && !config.partitions.is_on());
    assert_eq!(all.budget.rungs[&Policy::Cwl].floor, Some(0.4));
    assert!(config.budget.rungs.is_empty());
    let (keep, admit) = (&all.budget.keep, &all.budget.admit);
    assert_eq!((keep.errors, keep.newest), (KeepErrors::All, 4));
    assert!((keep.share - 0.3).abs() < 1e-9, "as in the base");
    assert_eq!(admit.limits.tokens, 900);
    assert!(admit.except.match_name("xy"));
    assert_eq!((all.budget.offer, all.budget.guide_at), (Offer::Line, 0.25));
    let delimiter = &all.delimiter;
    assert!(!delimiter.enabled && !delimiter.nudge && delimiter.auto_close);
    assert_eq!((delimiter.hops, &delimiter.guidance), (3, &Guidance::Off));
    assert!(!all.recall.enabled);
    assert_eq!(all.cache.breakpoints, SetBreakpoints::Off);
    assert_eq!(all.tools.bulk, ["web*"]);
    assert_eq!(all.tools.read, config.tools.read);
    assert_eq!(all.texts.profile.map(|agent| agent.name()), Some("dspy"));
    let when = config.profiles["all"].when.as_ref().unwrap();
    assert!(when.models.match_name("gpt-5") && when.agents.match_name("codex/1"));
    assert!(when.paths.is_empty() && when.child == Some(true));
    // None of it reaches what is served without the profile.
    assert_eq!(config.budget.keep.errors, KeepErrors::Off);
    assert!(config.delimiter.enabled && config.recall.enabled);
    assert_eq!(config.streams.usage, UsageMode::Sum);
}

#[test]
fn a_wrong_setting_is_told_with_its_place() {
    let table = [
        (
            "[profiles.a.keep]\nshare = 2.0",
            "2: `profiles.a.keep.share`: must be a share of the budget",
        ),
        (
            "[profiles.a.keep]\nshar = 0.1",
            "2: unknown key `profiles.a.keep.shar`; did you mean `profiles.a.keep.share`?",
        ),
        (
            "[profiles.a.kep]\nshare = 0.1",
            "2: unknown key `profiles.a.kep.share`; did you mean `profiles.a.keep`?",
        ),
        (
            "[profiles.a.budget]\ntokens = 5000",
            "2: `profiles.a.budget.tokens`: the keys of [budget] stand in the profile itself",
        ),
        (
            "[profiles.a]\nkeep = 3",
            "2: `profiles.a.keep`: must be a section, not 3",
        ),
        (
            "[profiles.a]\ntoken = 3",
            "2: unknown key `profiles.a.token`; did you mean `profiles.a.tokens`?",
        ),
        (
            "[profiles.a]\nceiling = 5000",
            "2: `profiles.a.ceiling`: is called `tokens` now",
        ),
        (
            "[profiles.a.repeat]\nunchanged = [\"same\"]",
            "2: `profiles.a.repeat.unchanged`: a text must have at least 8 characters, or ordinary results would have it",
        ),
        (
            "[profiles.a.admit]\nlines = 3",
            "2: `profiles.a.admit.lines`: must be 0 or at least 10",
        ),
        (
            "[profiles.a.tools]\nread = [\"[\"]",
            "2: `profiles.a.tools.read`: `[` is not a glob",
        ),
        (
            "[profiles.a]\ntokens = 1",
            "2: `profiles.a.tokens`: must be a whole number of tokens, at least 4000, such as 80000, 80_000, 80k or 0.1M",
        ),
        (
            "[profiles.a]\nprotect_recent = \"90k\"",
            "2: `profiles.a.protect_recent`: must be below the budget",
        ),
        (
            "[profiles.a]\npolicies = [\"repeat\", \"lru\"]",
            "2: `profiles.a.policies`: `lru` is not one of \"repeat\"",
        ),
        (
            "[profiles.a.rungs.lru]\nfloor = 0.5",
            "2: `profiles.a.rungs.lru`: `lru` is not one of \"repeat\"",
        ),
        (
            "[profiles.a.partitions]\nreserve = 0.5",
            "defaults: `profiles.a.partitions.messages`: must be above 0",
        ),
        (
            "[profiles.a]\npolicies = \"cwl+compaction\"",
            "2: `profiles.a.policies`: `compaction` is for replays only",
        ),
        (
            "[profiles.a.delimiter]\nheartbeat = \"1s\"",
            "2: `profiles.a.delimiter.heartbeat`: is decided for the whole process and not per turn; set it in \
             [delimiter]",
        ),
        (
            "[profiles.a.delimiter]\nusage = \"sum\"",
            "2: `profiles.a.delimiter.usage`: is decided for the whole process",
        ),
        (
            "[profiles.a.delimiter]\nfinish_cancelled = true",
            "2: `profiles.a.delimiter.finish_cancelled`: is decided for the whole process",
        ),
        (
            "[profiles.a]\noffer = \"line\"\n[profiles.a.delimiter]\noffer = \"start\"",
            "2: `profiles.a.offer`: is set in the profile's `delimiter` as well",
        ),
        (
            "[profiles.a.when]\nmodels = [\"[\"]",
            "2: `profiles.a.when.models`: write \"[\" as a glob",
        ),
        (
            "[profiles.a.when]\npaths = []",
            "2: `profiles.a.when.paths`: must have at least one glob",
        ),
        (
            "[profiles.a.when]\nmodel = [\"x\"]",
            "2: unknown key `profiles.a.when.model`; did you mean `profiles.a.when.models`?",
        ),
        (
            "[profiles.a]\nmode = \"off\"\n[profiles.a.when]\nmodels = [\"x\"]",
            "2: `profiles.a.mode`: can't be set where `when` has `models`: the mode is decided before the body",
        ),
    ];
    for (text, wanted) in table {
        let found = problems(text, &[]);
        let fits = found.len() == 1 && found[0].starts_with(wanted);
        assert!(fits, "{text:?}: {found:?}");
    }
    let bare = problems("[profiles.a.when]", &[]);
    assert!(
        bare[0].contains("must have `models`, `paths`, `agents` or `child`"),
        "{bare:?}"
    );
    let variable = problems("", &[("PLIMSOLL__PROFILES__A__KEEP__SHARE", "2.0")]);
    let place = "PLIMSOLL__PROFILES__A__KEEP__SHARE";
    let fits = variable[0].starts_with(place) && variable[0].contains("`profiles.a.keep.share`");
    assert!(fits, "{variable:?}");
}

#[test]
fn a_mode_may_be_set_by_path_or_agent() {
    let config = good(
        "[profiles.a]\nmode = \"observe\"\n[profiles.a.when]\npaths = [\"*/responses\"]\nagents = [\"x\"]",
    );
    assert_eq!(profile(&config, "a").budget.mode, Mode::Observe);
}

#[test]
fn a_problem_of_the_base_is_told_once() {
    let found = problems("[budget]\nprotect_recent = 80000", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn the_shipped_profiles_are_read_and_differ_from_the_base_as_they_say() {
    assert_eq!(shipped().len(), 5);
    let config = good("");
    let names: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "coding",
            "debugging",
            "paper",
            "research",
            "review",
            "unmarked"
        ]
    );
    let differs = |name: &str| {
        let own = profile(&config, name);
        assert_eq!(config.profiles[name].when, None, "{name} is chosen by name");
        assert_ne!(own, &config.turns(), "{name}");
        own
    };
    let coding = differs("coding");
    assert_eq!(
        coding.budget.keep.files,
        ["AGENTS.md", "CLAUDE.md", "SKILL.md"]
    );
    assert_eq!(coding.budget.keep.errors, KeepErrors::Last);
    let review = differs("review");
    assert!(review.budget.keep.tools.match_name("Read"));
    assert!(review.budget.keep.share > config.budget.keep.share);
    let debugging = differs("debugging");
    assert_eq!(debugging.budget.keep.errors, KeepErrors::All);
    assert_eq!(debugging.budget.keep.newest, 3);
    assert!(debugging.budget.ladder.has(Policy::LoopGuard));
    let research = differs("research");
    assert!(research.budget.ladder.has(Policy::Admit));
    let before = &config.tools.bulk;
    assert!(before.iter().all(|glob| research.tools.bulk.contains(glob)));
    let unmarked = differs("unmarked");
    assert!(!unmarked.delimiter.enabled && unmarked.recall.enabled);
    assert_eq!(unmarked.budget, config.budget);
    let paper = &differs("paper").budget;
    assert_eq!((paper.order, paper.guide_at), (Order::Paper, 0.0));
    assert_eq!(paper.ladder, Ladder::from(Policy::Cwl));
}

#[test]
fn an_operators_profile_starts_from_the_shipped_one_of_its_name() {
    let config = good(
        "[budget]\ntokens = 50000\n[profiles.coding]\nmin_floor = 0.3\n[profiles.coding.keep]\nshare = 0.2\n\
         [profiles.coding.when]\nagents = [\"claude-cli/*\"]\n[profiles.paper]\nfloor = 0.6",
    );
    let coding = &profile(&config, "coding").budget;
    assert_eq!((coding.ceiling, coding.min_floor), (50_000, 0.3));
    assert_eq!(coding.keep.files.len(), 3, "as shipped");
    assert!((coding.keep.share - 0.2).abs() < 1e-9);
    assert!(config.profiles["coding"].when.is_some());
    let paper = &profile(&config, "paper").budget;
    assert_eq!((paper.order, paper.ceiling), (Order::Paper, 50_000));
    assert_eq!(paper.floor, plimsoll_core::commit::Floor::Fraction(0.6));
}
