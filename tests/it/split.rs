//! A split over real HTTP: a share of the sessions is served under the profile that is tried, for life, with their
//! sub-agents; whoever names a profile is in no arm; metrics and `plimsoll split` tell the arms apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::config::{Backend, Config, Secret, TenantKey};
use plimsoll_proxy::pipeline::App;
use plimsoll_scripted::{Provider, Reply};
use plimsoll_store::Store;
use plimsoll_store::faults::Faults;
use plimsoll_store::memory::Memory;
use serde_json::{Value, json};

use super::agent::{Agent, bash, none_refused, plan, provider};
use super::console::got;
use super::openapi::Description;
use super::process::run;
use super::support::Proxy;

/// The profile that is tried clips large results.
const TRIED: &str =
    "[profiles.tried]\npolicies = [\"admit\", \"cwl\"]\n[profiles.tried.admit]\ntokens = 500\n";
/// Another profile.
const PLAIN: &str = "[profiles.plain]\n";

fn split(share: f64) -> String {
    format!("{TRIED}{PLAIN}[split]\nprofile = \"tried\"\nshare = {share}\n")
}

/// A proxy with these settings, which keeps its records in a directory if one is named.
async fn proxy(provider: &Provider, text: &str, directory: Option<&Path>) -> Proxy {
    wired(provider, text, directory, |_| {}).await
}

/// The same with other parts.
async fn wired(
    provider: &Provider,
    text: &str,
    directory: Option<&Path>,
    rewire: impl FnOnce(&mut App),
) -> Proxy {
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("p.toml");
    let base =
        "[budget]\npolicies = [\"cwl\"]\n[delimiter]\nenabled = false\n[recall]\nenabled = false\n";
    std::fs::write(&path, format!("{base}{text}")).unwrap();
    let read = Config::check(&path).unwrap();
    let change = |config: &mut Config| {
        config.budget = read.budget;
        config.delimiter = read.delimiter;
        config.recall = read.recall;
        config.profiles = read.profiles;
        config.split = read.split;
        // The draws are the same each time.
        config.tenant = TenantKey::Given(Secret::new("0123456789abcdef0123456789abcdef"));
        if let Some(directory) = directory {
            config.store.backend = Backend::Sled;
            config.store.path = directory.to_owned();
        }
    };
    Proxy::wired(provider.address, change, rewire).await
}

/// A provider whose model runs three commands, one after the other.
async fn commands() -> Provider {
    let keys = ["go", "b1", "b2", "b3"];
    let call = |next: &str| vec![Reply::calls(vec![bash(next)])];
    let turns = keys.windows(2).map(|pair| (pair[0], call(pair[1])));
    provider(plan(turns.chain([("b3", vec![Reply::text("done")])]))).await
}

fn long() -> String {
    let line = |line: usize| format!("step {line} of the build has come to its end\n");
    (0..120).map(line).collect()
}

/// An agent of a session.
fn agent(proxy: &Proxy, session: usize, stream: bool) -> Agent {
    Agent::new(proxy, stream)
        .told("go")
        .with("x-plimsoll-session", &format!("session-{session}"))
}

/// Has the agent work for a turn, and answers its call with a long result.
async fn turn(agent: &mut Agent) -> String {
    let answer = agent.work(&long()).await;
    answer.header("x-plimsoll-session").to_owned()
}

/// Whether the newest request's last result is clipped.
fn is_clipped(provider: &Provider) -> bool {
    let newest = provider.chats().last().unwrap().value();
    let last = newest["messages"].as_array().unwrap().last().unwrap();
    last["content"].as_str().unwrap().starts_with("[clipped")
}

/// The arms of all sessions, by their names.
async fn arms(proxy: &Proxy) -> BTreeMap<String, Option<String>> {
    let list = got(proxy, "sessions?limit=1000").await;
    let faults = Description::read().faults_of("SessionList", &list);
    assert_eq!(faults, Vec::<String>::new());
    let rows = list["sessions"].as_array().unwrap().iter();
    let arm = |row: &Value| row["split"]["arm"].as_str().map(str::to_owned);
    rows.map(|row| (row["session"].as_str().unwrap().to_owned(), arm(row)))
        .collect()
}

fn arm(tried: bool) -> Option<String> {
    Some(if tried { "tried" } else { "base" }.to_owned())
}

#[tokio::test]
async fn a_share_of_sessions_is_drawn_and_metrics_tell_the_arms_apart() {
    let provider = commands().await;
    let proxy = proxy(&provider, &split(0.4), None).await;
    let (mut drawn, mut wanted) = (0, BTreeMap::new());
    for session in 0..30 {
        let mut agent = agent(&proxy, session, session % 2 == 0);
        turn(&mut agent).await;
        let name = turn(&mut agent).await;
        let tried = is_clipped(&provider);
        drawn += usize::from(tried);
        wanted.insert(name, arm(tried));
    }
    // Whoever names a profile is in no arm, even where it is the one that is tried.
    for (session, profile) in [(100, "tried"), (101, "plain")] {
        let mut agent = agent(&proxy, session, false).with("x-plimsoll-profile", profile);
        turn(&mut agent).await;
        wanted.insert(turn(&mut agent).await, None);
        assert_eq!(is_clipped(&provider), profile == "tried");
    }
    none_refused(&provider);
    assert!((6..=18).contains(&drawn), "{drawn} of 30");
    assert_eq!(arms(&proxy).await, wanted);
    let metrics = proxy.app.metrics_text();
    for (arm, turns) in [("tried", 2 * drawn), ("base", 60 - 2 * drawn), ("none", 4)] {
        let line = format!("plimsoll_hidden_hops_count{{arm=\"{arm}\"}} {turns}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
        for metric in [
            "cost_usd_total",
            "saved_usd",
            "passes_total",
            "needed_total",
            "recall_total",
        ] {
            let series = format!("plimsoll_{metric}{{arm=\"{arm}\",");
            assert!(metrics.contains(&series), "{series}");
        }
        for metric in ["refetch_total", "budget_unmet_total"] {
            let series = format!("plimsoll_{metric}{{arm=\"{arm}\"}} 0\n");
            assert!(metrics.contains(&series), "{series}");
        }
    }
    let tried = got(&proxy, "sessions?limit=1000&split=tried").await;
    assert_eq!(tried["sessions"].as_array().unwrap().len(), 30);
    let other = got(&proxy, "sessions?split=plain").await;
    assert_eq!(other["sessions"], json!([]));
}

#[tokio::test]
async fn without_a_split_no_metric_has_an_arm() {
    let provider = commands().await;
    let proxy = proxy(&provider, TRIED, None).await;
    turn(&mut agent(&proxy, 0, false)).await;
    let metrics = proxy.app.metrics_text();
    assert!(
        metrics.contains("plimsoll_hidden_hops_count 1\n"),
        "{metrics}"
    );
    assert!(!metrics.contains("arm="), "{metrics}");
}

#[tokio::test]
async fn a_session_stays_in_its_arm_for_life() {
    let provider = commands().await;
    let directory = tempfile::tempdir().unwrap();
    let place = Some(directory.path());
    // One session began before anything was split, and the others while half of them were drawn.
    let first = proxy(&provider, TRIED, place).await;
    let mut agents = vec![agent(&first, 0, false)];
    turn(&mut agents[0]).await;
    first.end().await;
    let second = proxy(&provider, &split(0.5), place).await;
    for session in 1..9 {
        let mut agent = agent(&second, session, false);
        turn(&mut agent).await;
        agents.push(agent);
    }
    let began = arms(&second).await;
    let count = |tried| began.values().filter(|one| **one == arm(tried)).count();
    assert!(count(true) > 0 && count(false) > 0, "{began:?}");
    second.end().await;
    // Whatever is drawn now, they go on, begin anew, and are forked as they were.
    let other = format!("{TRIED}{PLAIN}[split]\nprofile = \"plain\"\nshare = 0.9\n");
    let mut seen: BTreeSet<String> = began.keys().cloned().collect();
    for text in [&split(0.001), &split(0.999), &other, &TRIED.to_owned()] {
        let proxy = proxy(&provider, text, place).await;
        for agent in &agents {
            let mut agent = agent.clone();
            agent.url = proxy.url("/v1/chat/completions");
            let name = turn(&mut agent).await;
            assert_eq!(is_clipped(&provider), began[&name] == arm(true), "{text}");
            // A compaction, as agents do it: other words under the same name.
            agent.history.truncate(1);
            agent.user("go");
            agent.user("on with what there was");
            agent.user("go");
            turn(&mut agent).await;
            turn(&mut agent).await;
            // What begins anew while nothing is split is served as without a split.
            let splits = text.contains("[split]");
            let tried = splits && began[&name] == arm(true);
            assert_eq!(is_clipped(&provider), tried, "{text}");
            // It has a row of its own, and so does what went on from where another turn had.
            let wanted = [&began[&name], if splits { &began[&name] } else { &None }];
            let now = arms(&proxy).await;
            let new = now.iter().filter(|(row, _)| !seen.contains(*row));
            let new: Vec<_> = new.map(|(_, arm)| arm).collect();
            assert!(!new.is_empty() && new.iter().all(|arm| wanted.contains(arm)));
            seen.extend(now.into_keys());
        }
        let now = arms(&proxy).await;
        for (name, arm) in &began {
            assert_eq!(&now[name], arm, "{text}");
        }
        proxy.end().await;
    }
    none_refused(&provider);
}

#[tokio::test]
async fn sub_agents_follow_their_parents() {
    let provider = commands().await;
    let proxy = proxy(&provider, &split(0.5), None).await;
    let mut seen = [0, 0];
    for session in 0..8 {
        let mut parent = agent(&proxy, session, false);
        turn(&mut parent).await;
        let own = turn(&mut parent).await;
        let tried = is_clipped(&provider);
        seen[usize::from(tried)] += 1;
        // A child, and a child of that.
        for (child, parent) in [
            ("a", format!("session-{session}")),
            ("b", format!("a-{session}")),
        ] {
            let mut child = agent(&proxy, session, true)
                .with("x-plimsoll-session", &format!("{child}-{session}"))
                .with("x-plimsoll-parent", &parent);
            turn(&mut child).await;
            let name = turn(&mut child).await;
            assert_eq!(is_clipped(&provider), tried, "{own} {name}");
            assert_eq!(arms(&proxy).await[&name], arm(tried));
        }
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
    // A child that names a profile has it, and counts in the arm of its parent.
    let parent = turn(&mut agent(&proxy, 0, false)).await;
    let mut child = agent(&proxy, 40, false)
        .with("x-plimsoll-parent", "session-0")
        .with("x-plimsoll-profile", "plain");
    turn(&mut child).await;
    let name = turn(&mut child).await;
    assert!(!is_clipped(&provider));
    let now = arms(&proxy).await;
    assert!(now[&name].is_some() && now[&name] == now[&parent]);
    // The child of a parent that is in no arm is in none.
    let mut parent = agent(&proxy, 50, false).with("x-plimsoll-profile", "plain");
    turn(&mut parent).await;
    let mut child = agent(&proxy, 51, false).with("x-plimsoll-parent", "session-50");
    let name = turn(&mut child).await;
    assert_eq!(arms(&proxy).await[&name], None);
    // A child that speaks first is drawn as its parent will be.
    for session in 60..66 {
        let mut child = agent(&proxy, session + 100, false)
            .with("x-plimsoll-parent", &format!("session-{session}"));
        let (mut parent, child) = (agent(&proxy, session, false), turn(&mut child).await);
        let parent = turn(&mut parent).await;
        let arms = arms(&proxy).await;
        assert!(arms[&child].is_some() && arms[&child] == arms[&parent]);
    }
    none_refused(&provider);
}

#[tokio::test]
async fn a_sub_agent_that_does_not_fit_is_served_as_ever_and_counts_with_its_parent() {
    let provider = commands().await;
    let text = format!(
        "{}[profiles.tried.when]\nmodels = [\"gpt-4*\"]\n",
        split(0.999)
    );
    let proxy = proxy(&provider, &text, None).await;
    let mut parent = agent(&proxy, 0, false);
    turn(&mut parent).await;
    let own = turn(&mut parent).await;
    assert!(is_clipped(&provider));
    let mut child = agent(&proxy, 1, false)
        .with("x-plimsoll-parent", "session-0")
        .field("model", json!("o3"));
    turn(&mut child).await;
    let below = turn(&mut child).await;
    assert!(!is_clipped(&provider));
    // Alone, it is not drawn.
    let mut other = agent(&proxy, 2, false).field("model", json!("o3"));
    turn(&mut other).await;
    let alone = turn(&mut other).await;
    assert!(!is_clipped(&provider));
    let arms = arms(&proxy).await;
    assert_eq!(
        [&arms[&own], &arms[&below], &arms[&alone]],
        [&arm(true), &arm(true), &None]
    );
    none_refused(&provider);
}

/// Conversations without tools are found by their answers, and a title that comes first is asked once.
#[tokio::test]
async fn conversations_without_tools_are_drawn_too() {
    let provider = provider(plan(
        ["go", "on"].map(|key| (key, vec![Reply::text("done")])),
    ))
    .await;
    let proxy = proxy(&provider, &split(0.5), None).await;
    let mut seen = BTreeSet::new();
    for session in 0..12 {
        let mut plain = agent(&proxy, session, false).field("tools", Value::Null);
        let name = plain.turn().await.header("x-plimsoll-session").to_owned();
        plain.user("on");
        plain.turn().await;
        let own = arms(&proxy).await[&name].clone();
        assert!(own.is_some());
        // The same session works with tools now.
        let mut other = agent(&proxy, session, false);
        other.user("go");
        other.turn().await;
        let now = arms(&proxy).await;
        assert!(now.values().all(Option::is_some), "{now:?}");
        seen.insert(own);
    }
    assert_eq!(seen.len(), 2);
    none_refused(&provider);
}

#[tokio::test]
async fn what_is_only_watched_is_in_no_arm() {
    let provider = commands().await;
    let proxy = proxy(&provider, &split(0.999), None).await;
    let mut watched = agent(&proxy, 0, false).with("x-plimsoll-mode", "observe");
    turn(&mut watched).await;
    turn(&mut watched).await;
    assert!(!is_clipped(&provider));
    assert!(arms(&proxy).await.values().eq([&None]));
}

/// A store that fails or is stuck puts sessions that begin in no arm, and they are managed as ever.
#[tokio::test]
async fn a_store_that_does_not_answer_costs_a_session_its_arm_alone() {
    for stuck in [false, true] {
        let provider = commands().await;
        let faults = Faults::default();
        let store = Arc::new(Store::Memory(Memory::with_faults(faults.clone())));
        let proxy = wired(&provider, &split(0.999), None, |app| app.store = store).await;
        let held = stuck.then(|| faults.hold_reads(Duration::from_secs(60)));
        faults.fail_reads(!stuck);
        let mut late = agent(&proxy, 0, false);
        let answer = late.work(&long()).await;
        assert_eq!(answer.header("x-plimsoll-fail-open"), "", "{stuck}");
        let name = answer.header("x-plimsoll-session").to_owned();
        drop(held);
        faults.fail_reads(false);
        turn(&mut late).await;
        assert!(!is_clipped(&provider));
        let mut next = agent(&proxy, 1, false);
        turn(&mut next).await;
        let next = turn(&mut next).await;
        let arms = arms(&proxy).await;
        assert_eq!((&arms[&name], &arms[&next]), (&None, &arm(true)), "{stuck}");
        none_refused(&provider);
    }
}

#[tokio::test]
async fn the_command_compares_the_arms() {
    let provider = commands().await;
    let proxy = proxy(&provider, &split(0.5), None).await;
    let compared = async |profile: &str| {
        let directory = tempfile::tempdir().unwrap();
        let (admin, profile) = (proxy.admin.to_string(), profile.to_owned());
        let asked = move || {
            run(
                directory.path(),
                &["split", &profile, "--admin", &admin],
                &[],
            )
        };
        let (code, out, err) = tokio::task::spawn_blocking(asked).await.unwrap();
        assert_eq!(code, Some(0), "{err}");
        out
    };
    for session in 0..70 {
        let mut agent = agent(&proxy, session, false);
        // Sessions differ, but not from arm to arm.
        for _ in 0..2 + session % 3 {
            turn(&mut agent).await;
        }
        if session == 9 {
            let out = compared("tried").await;
            assert!(
                out.contains("\ncan't tell yet: 20 sessions in each arm are the least\n"),
                "{out}"
            );
        }
    }
    let out = compared("tried").await;
    let line = |name: &str| {
        let found = out.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{name} in {out}"))
    };
    for name in [
        "turns a session",
        "passes in 100 turns",
        "missed of 100 strings needed",
    ] {
        assert!(line(name).ends_with("can't tell yet"), "{out}");
    }
    // A clipped result, and nothing else, differs: the tried arm pays what its requests have of the whole ones.
    for name in ["cost a session", "paid over what was sent whole"] {
        assert!(line(name).ends_with(": lower"), "{out}");
    }
    let mut words = line("paid over what was sent whole").split_whitespace();
    assert_eq!(words.nth(6), Some("1.000"), "{out}");
    let tried: f64 = words.nth(3).unwrap().parse().unwrap();
    assert!((0.2..0.4).contains(&tried), "{out}");
    assert!(
        line("tried is tried in 3").contains("sub-agents count"),
        "{out}"
    );
    let out = compared("plain").await;
    assert!(
        out.contains(
            "plain is tried in 0 sessions (0 turns), and the base arm has 0 sessions (0 turns)"
        ),
        "{out}"
    );
}

#[test]
fn a_split_that_can_not_be_is_told() {
    let directory = tempfile::tempdir().unwrap();
    for (text, wanted) in [
        (
            "[split]\nprofile = \"gone\"\n",
            "p.toml:2: `split.profile`: is none of the profiles",
        ),
        (
            "[split]\nprofile = \"coding\"\nshare = 1.0\n",
            "p.toml:3: `split.share`: must be a share above 0 and below 1",
        ),
        (
            "[split]\nprofile = \"a\"\n[profiles.a]\nmode = \"off\"\n",
            "has another `mode` than `budget.mode`",
        ),
        (
            "[split]\nprofile = \"a\"\n[profiles.a.when]\nchild = true\n",
            "asks for `child` in its `when`",
        ),
        (
            "[split]\nprofil = \"a\"\n",
            "p.toml:2: unknown key `split.profil`; did you mean `split.profile`?",
        ),
    ] {
        std::fs::write(directory.path().join("p.toml"), text).unwrap();
        let (code, out, err) = run(directory.path(), &["check", "p.toml"], &[]);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            format!("{out}{err}").contains(wanted),
            "{wanted}: {out}{err}"
        );
    }
}
