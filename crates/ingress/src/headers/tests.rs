//! Tests of `headers`.

use std::collections::BTreeMap;

use plimsoll_core::turn::{AskedBudget, Profile, Settings};

use super::*;

fn map(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(
            name.parse::<http::HeaderName>().unwrap(),
            value.parse().unwrap(),
        );
    }
    map
}

fn parse(pairs: &[(&str, &str)]) -> Result<Overrides, ProxyError> {
    let small = Profile {
        when: None,
        settings: Settings::default(),
    };
    let profiles = Profiles {
        named: BTreeMap::from([("small".to_owned(), small)]),
        ..Profiles::default()
    };
    overrides(&map(pairs), &profiles)
}

#[test]
fn good_values_are_read() {
    let read = parse(&[
        (MODE, "observe"),
        (BUDGET, " 40000 "),
        (PROFILE, "small"),
        (POLICY, "repeat + cwl"),
        (RECALL, "off"),
        (GUIDE, "now"),
        (PIN, "newest read:3,5 -bash:4 none"),
    ]);
    let wanted = Overrides {
        mode: Some(Mode::Observe),
        budget: Some(AskedBudget::Tokens(40_000)),
        profile: Some("small".to_owned()),
        ladder: Some("repeat+cwl".parse().unwrap()),
        recall: Some(false),
        guide: true,
        pins: vec![
            PinAsk::Newest,
            PinAsk::Set("read:3,5".to_owned()),
            PinAsk::Lift("bash:4".to_owned()),
            PinAsk::LiftAll,
        ],
    };
    assert_eq!(read.unwrap(), wanted);
    assert_eq!(parse(&[]).unwrap(), Overrides::default());
    for (text, share) in [("40%", 0.4), ("100%", 1.0), ("12.5%", 0.125)] {
        let read = parse(&[(BUDGET, text)]).unwrap();
        assert_eq!(read.budget, Some(AskedBudget::WindowShare(share)), "{text}");
    }
    for (text, tokens) in [
        ("4000", 4_000),
        ("4k", 4_000),
        ("40K", 40_000),
        ("4.5k", 4_500),
    ] {
        let read = parse(&[(BUDGET, text)]).unwrap();
        assert_eq!(read.budget, Some(AskedBudget::Tokens(tokens)), "{text}");
    }
}

#[test]
fn bad_values_name_the_header_and_say_what_is_allowed() {
    let table = [
        (MODE, "on", "manage, observe, off"),
        (MODE, "", "manage, observe, off"),
        (BUDGET, "3999", "at least 4000"),
        (BUDGET, "-1", "at least 4000"),
        (BUDGET, "4e4", "such as 40%"),
        (BUDGET, "3k", "at least 4000"),
        (BUDGET, "40kk", "80k"),
        (BUDGET, "k", "80k"),
        (BUDGET, "0%", "such as 40%"),
        (BUDGET, "101%", "such as 40%"),
        (BUDGET, "%", "such as 40%"),
        (BUDGET, "inf%", "such as 40%"),
        (BUDGET, "NaN%", "such as 40%"),
        (BUDGET, "99999999999999", "at least 4000"),
        (PROFILE, "huge", "small, smolagents, mini-swe-agent, dspy"),
        (PROFILE, "Small", "small"),
        (PROFILE, "", "small"),
        (POLICY, "lru", "cwl"),
        (RECALL, "no", "on, off"),
        (GUIDE, "soon", "now"),
        (PIN, "", "newest"),
        (PIN, "all", "ids like read:12"),
        (PIN, "read:x", "ids like read:12"),
        (PIN, "-newest", "ids like read:12"),
        (PIN, &"read:1 ".repeat(33), "at most 32"),
    ];
    for (name, value, hint) in table {
        match parse(&[(name, value)]) {
            Err(ProxyError::Header {
                name: named,
                allowed,
            }) => {
                assert_eq!(named, name);
                assert!(allowed.contains(hint), "{name}: {value}: {allowed}");
            }
            other => panic!("{name}: {value}: {other:?}"),
        }
    }
    assert!(parse(&[(MODE, "off"), (MODE, "off")]).is_err());
    assert!(session(&map(&[(SESSION, "a b")])).is_err());
    assert!(session(&map(&[(SESSION, &"x".repeat(257))])).is_err());
    assert!(session(&map(&[(PARENT, "")])).is_err());
}

#[test]
fn an_agent_is_known_by_what_it_calls_itself() {
    let claude = ("User-Agent", " claude-cli/2.0.1 (external, cli) ");
    assert_eq!(agent(&map(&[claude])), "claude-cli/2.0.1 (external, cli)");
    assert_eq!(agent(&map(&[])), "");
    let mut odd = HeaderMap::new();
    odd.insert(USER_AGENT, http::HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(agent(&odd), "", "what is no text has no name");
}

/// (headers, scope, parent)
type Row = (
    &'static [(&'static str, &'static str)],
    Option<&'static str>,
    Option<&'static str>,
);

#[track_caller]
fn finds(table: &[Row]) {
    let scope = |text: &str| Scope(text.to_owned());
    for (pairs, place, parent) in table {
        let read = session(&map(pairs)).unwrap();
        assert_eq!(read.explicit, place.map(scope), "{pairs:?}");
        assert_eq!(read.parent, parent.map(scope), "{pairs:?}");
    }
}

const CLAUDE: (&str, &str) = ("X-Claude-Code-Session-Id", "s");
const AGENT: (&str, &str) = ("x-claude-code-agent-id", "a");
const CODEX: (&str, &str) = ("session-id", "s");
const THREAD: (&str, &str) = ("thread-id", "t");
const PARENT_THREAD: (&str, &str) = ("x-codex-parent-thread-id", "p");
const OPENCODE: (&str, &str) = ("x-session-id", "c");
const PARENT_SESSION: (&str, &str) = ("x-parent-session-id", "s");

#[test]
fn agents_sessions_are_found() {
    finds(&[
        (&[], None, None),
        (&[OPENCODE, ("x-session-affinity", "c")], Some("c"), None),
        (&[("x-session-affinity", "s")], Some("s"), None),
        (&[OPENCODE, PARENT_SESSION], Some("c"), Some("s")),
        (&[CODEX, THREAD], Some("s\u{1f}t"), None),
        (
            &[CODEX, THREAD, PARENT_THREAD],
            Some("s\u{1f}t"),
            Some("s\u{1f}p"),
        ),
        (&[CLAUDE], Some("s"), None),
        (&[CLAUDE, AGENT], Some("s\u{1f}a"), Some("s")),
        (&[("session_id", "s")], Some("s"), None),
        (&[THREAD, (PARENT, "p")], None, Some("p")),
    ]);
}

#[test]
fn a_session_of_ours_holds_an_agents_threads_apart() {
    const OURS: (&str, &str) = (SESSION, "mine");
    finds(&[
        (&[OURS], Some("mine"), None),
        (&[OURS, CLAUDE], Some("mine"), None),
        (&[OURS, CLAUDE, AGENT], Some("mine\u{1f}a"), Some("mine")),
        (&[OURS, CODEX, THREAD], Some("mine\u{1f}t"), None),
        (
            &[OURS, CODEX, THREAD, PARENT_THREAD],
            Some("mine\u{1f}t"),
            Some("mine\u{1f}p"),
        ),
        (&[OURS, OPENCODE], Some("mine\u{1f}c"), None),
        (
            &[OURS, OPENCODE, PARENT_SESSION],
            Some("mine\u{1f}c"),
            Some("mine\u{1f}s"),
        ),
        (
            &[OURS, OPENCODE, PARENT_SESSION, (PARENT, "p")],
            Some("mine\u{1f}c"),
            Some("p"),
        ),
    ]);
}

#[test]
fn the_cache_key_is_the_last_resort() {
    let named = session(&map(&[("x-session-id", "s")])).unwrap();
    assert_eq!(named.scope(Some("key")), Scope("s".to_owned()));
    assert_eq!(
        SessionHeaders::default().scope(Some("key")),
        Scope("key".to_owned())
    );
    assert_eq!(SessionHeaders::default().scope(None), Scope::default());
}
