//! Profiles over real HTTP: chosen by header, model, path and agent; kept as first decided, through
//! changes of model, restarts and other configurations.

use std::path::Path;

use plimsoll::config::{Backend, Config};
use plimsoll_scripted::{Call, Provider, Reply};
use serde_json::{Value, json};

use super::agent::{Agent, bash, none_refused, plan, provider};
use super::process::run;
use super::support::Proxy;

/// Without a profile nothing is offered and nothing is clipped.
const BASE: &str =
    "[budget]\npolicies = [\"cwl\"]\n[delimiter]\nenabled = false\n[recall]\nenabled = false\n";

/// A profile by which large results are clipped.
const CLIPS: &str =
    "[profiles.clips]\npolicies = [\"admit\", \"cwl\"]\n[profiles.clips.admit]\ntokens = 500\n";

/// A profile that changes nothing.
const PLAIN: &str = "[profiles.plain]\n";

/// Reads a configuration as `serve` does.
fn read(text: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    std::fs::write(&path, text).unwrap();
    Config::check(&path).unwrap()
}

/// A proxy with these settings of turns, which keeps its records in a directory if one is named.
async fn proxy(provider: &Provider, text: &str, directory: Option<&Path>) -> Proxy {
    let read = read(&format!("{BASE}{text}"));
    Proxy::with(provider.address, |config| {
        config.budget = read.budget;
        config.delimiter = read.delimiter;
        config.recall = read.recall;
        config.profiles = read.profiles;
        if let Some(directory) = directory {
            config.store.backend = Backend::Sled;
            config.store.path = directory.to_owned();
        }
    })
    .await
}

/// A provider whose model runs one command after the other.
async fn commands() -> Provider {
    let id = |turn: usize| format!("b{turn}");
    let keys: Vec<String> = std::iter::once("go".to_owned())
        .chain((1..20).map(id))
        .collect();
    let call = |turn: usize| bash(&id(turn + 1));
    let turns = keys.iter().enumerate();
    let turns = turns.map(|(turn, key)| (key.as_str(), vec![Reply::calls(vec![call(turn)])]));
    provider(plan(turns)).await
}

/// A result over the limit of [`CLIPS`].
fn long(turn: usize) -> String {
    let line = |line: usize| format!("step {turn}.{line} of the build has come to its end\n");
    (0..120).map(line).collect()
}

/// Asks once, answers the call with a long result, and returns what the answer's headers were.
async fn turn(agent: &mut Agent) -> http::HeaderMap {
    let results = agent.history.iter().filter(|one| one["role"] == "tool");
    let next = results.count();
    agent.work(&long(next)).await.headers
}

/// Which results are clipped in the newest request. A result is clipped by the request that brings
/// it or never, so each tells under which profile that one was served.
fn clipped(provider: &Provider) -> Vec<bool> {
    let newest = provider.chats().last().unwrap().value();
    let messages = newest["messages"].as_array().unwrap().iter();
    let results = messages.filter(|one| one["role"] == "tool");
    let texts = results.map(|one| one["content"].as_str().unwrap().to_owned());
    let clip = |(at, text): (usize, String)| {
        let clip = text.starts_with("[clipped bash:");
        assert!(clip || text == long(at), "whole or clipped: {text}");
        clip
    };
    texts.enumerate().map(clip).collect()
}

/// The tools that the newest request offers.
fn offered(provider: &Provider) -> Vec<Value> {
    let newest = provider.chats().last().unwrap().value();
    let tools = newest["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["function"]["name"].clone())
        .collect()
}

#[tokio::test]
async fn a_profile_is_chosen_by_header_model_path_and_agent() {
    let when = |when: &str| format!("{CLIPS}{PLAIN}[profiles.clips.when]\n{when}\n");
    let model = when("models = [\"o3*\", \"gpt-4*\"]");
    let other = when("models = [\"o3*\"]");
    let path = when("paths = [\"*/chat/completions\"]");
    let elsewhere = when("paths = [\"*/responses\", \"*/messages\"]");
    let agent = when("agents = [\"my-agent/*\"]");
    let both = when("agents = [\"my-agent/*\"]\nmodels = [\"o3*\"]");
    let alone = format!("{CLIPS}{PLAIN}");
    for (text, header, clips) in [
        (&alone, None, false),
        (&alone, Some("clips"), true),
        (&model, None, true),
        (&other, None, false),
        (&path, None, true),
        (&elsewhere, None, false),
        (&agent, None, true),
        (&both, None, false),
        // The header comes before a match.
        (&model, Some("plain"), false),
        (&both, Some("clips"), true),
        // An agent whose results come as text is named by the same header.
        (&model, Some("smolagents"), false),
        (&model, Some("coding"), false),
    ] {
        let provider = commands().await;
        let proxy = proxy(&provider, text, None).await;
        let mut agent = Agent::new(&proxy, false)
            .told("go")
            .with("user-agent", "my-agent/1.2");
        if let Some(name) = header {
            agent = agent.with("x-plimsoll-profile", name);
        }
        turn(&mut agent).await;
        turn(&mut agent).await;
        assert_eq!(clipped(&provider), [clips], "{header:?} {text}");
        none_refused(&provider);
    }
}

#[tokio::test]
async fn a_profile_may_be_for_sub_agents_alone() {
    let text = format!("{CLIPS}{PLAIN}[profiles.clips.when]\nchild = true\n");
    for (headers, clips) in [
        (&[("x-plimsoll-session", "s")][..], false),
        (
            &[("x-plimsoll-session", "s"), ("x-plimsoll-parent", "p")],
            true,
        ),
        (&[("x-session-id", "s"), ("x-parent-session-id", "p")], true),
    ] {
        let provider = commands().await;
        let proxy = proxy(&provider, &text, None).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        for (name, value) in headers {
            agent = agent.with(name, value);
        }
        turn(&mut agent).await;
        turn(&mut agent).await;
        assert_eq!(clipped(&provider), [clips], "{headers:?}");
        none_refused(&provider);
    }
}

#[tokio::test]
async fn of_several_that_match_the_first_by_name_serves() {
    let text = format!(
        "{CLIPS}[profiles.clips.when]\nagents = [\"*\"]\n[profiles.beside.when]\npaths = [\"*\"]\n\
         [profiles.beside.delimiter]\nenabled = true\n"
    );
    let provider = commands().await;
    let proxy = proxy(&provider, &text, None).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    turn(&mut agent).await;
    turn(&mut agent).await;
    assert_eq!(clipped(&provider), [false]);
    assert!(offered(&provider).contains(&json!("delimiter")));
}

#[tokio::test]
async fn a_conversation_keeps_what_it_began_with() {
    let text = format!("{CLIPS}{PLAIN}[profiles.clips.when]\nmodels = [\"gpt-4*\"]\n");
    for stream in [false, true] {
        let provider = commands().await;
        let proxy = proxy(&provider, &text, None).await;
        // The model matches, and no longer does afterwards.
        let mut agent = Agent::new(&proxy, stream).told("go");
        turn(&mut agent).await;
        agent = agent.field("model", json!("o3"));
        turn(&mut agent).await;
        assert_eq!(clipped(&provider), [true]);
        // A header holds for its request alone.
        agent = agent.with("x-plimsoll-profile", "plain");
        turn(&mut agent).await;
        agent
            .headers
            .retain(|(name, _)| *name != "x-plimsoll-profile");
        turn(&mut agent).await;
        turn(&mut agent).await;
        assert_eq!(clipped(&provider), [true, false, true, true]);
        none_refused(&provider);

        // None matches, and one would afterwards. The words are the same, so it has a name.
        let mut agent = Agent::new(&proxy, stream)
            .told("go")
            .with("x-plimsoll-session", "second")
            .field("model", json!("o3"));
        turn(&mut agent).await;
        agent = agent.field("model", json!("gpt-4o"));
        turn(&mut agent).await;
        turn(&mut agent).await;
        assert_eq!(clipped(&provider), [false, false]);
    }
}

#[tokio::test]
async fn a_header_of_the_first_request_is_kept_when_the_client_drops_that_turn() {
    let provider = commands().await;
    let text = format!("{CLIPS}{PLAIN}");
    let proxy = proxy(&provider, &text, None).await;
    let mut agent = Agent::new(&proxy, false)
        .told("go")
        .with("x-plimsoll-profile", "clips");
    turn(&mut agent).await;
    agent
        .headers
        .retain(|(name, _)| *name != "x-plimsoll-profile");
    turn(&mut agent).await;
    turn(&mut agent).await;
    assert_eq!(clipped(&provider), [true, true]);
    // The first call and its result.
    agent.history.drain(2..4);
    let newest = agent.ask().await.whole();
    assert_eq!(newest.status, 200);
    let value = provider.chats().last().unwrap().value();
    let results = value["messages"].as_array().unwrap().iter();
    let results: Vec<&str> = results
        .filter(|one| one["role"] == "tool")
        .map(|one| one["content"].as_str().unwrap())
        .collect();
    let clip = |text: &&str| text.starts_with("[clipped bash:");
    assert!(
        results.len() == 2 && results.iter().all(clip),
        "{results:?}"
    );
}

#[tokio::test]
async fn what_was_decided_outlives_a_restart_and_the_profile_itself() {
    let provider = commands().await;
    let directory = tempfile::tempdir().unwrap();
    let place = Some(directory.path());
    let text = format!("{CLIPS}{PLAIN}[profiles.clips.when]\nagents = [\"my-agent/*\"]\n");
    let first = proxy(&provider, &text, place).await;
    let mut agent = Agent::new(&first, false)
        .told("go")
        .with("user-agent", "my-agent/1");
    turn(&mut agent).await;
    first.end().await;

    // Another agent goes on, and another profile would match it now.
    let other = format!("{text}[profiles.plain.when]\nagents = [\"other/*\"]\n");
    agent = agent.with("user-agent", "other/1");
    let without = format!("{PLAIN}[profiles.plain.when]\nagents = [\"other/*\"]\n");
    for text in [&other, &without, &other] {
        let proxy = proxy(&provider, text, place).await;
        agent.url = proxy.url("/v1/chat/completions");
        let headers = turn(&mut agent).await;
        assert!(headers.contains_key("x-plimsoll-turn"), "{headers:?}");
        assert!(!headers.contains_key("x-plimsoll-fail-open"));
        proxy.end().await;
    }
    // A profile that the configuration no longer has counts as none, as long as it has it not.
    assert_eq!(clipped(&provider), [true, false, true]);
    none_refused(&provider);
}

#[tokio::test]
async fn a_mode_is_decided_by_path_or_agent_for_each_request() {
    let text = "[profiles.away]\nmode = \"off\"\n[profiles.away.when]\nagents = [\"bench/*\"]\n";
    let provider = commands().await;
    let proxy = proxy(&provider, text, None).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    for (name, managed) in [("bench/1", false), ("other/1", true), ("bench/2", false)] {
        agent = agent.with("user-agent", name);
        let headers = turn(&mut agent).await;
        assert_eq!(headers.contains_key("x-plimsoll-turn"), managed, "{name}");
    }
}

#[tokio::test]
async fn shipped_profiles_serve_by_name() {
    let call = |id: &str| Call::new(id, "bash", r#"{"c":"cargo test"}"#);
    let keys = ["go", "b1", "b2", "b3"];
    let turns = keys.iter().zip(1..);
    let turns =
        turns.map(|(key, next)| (*key, vec![Reply::calls(vec![call(&format!("b{next}"))])]));
    let provider = provider(plan(turns)).await;
    let proxy = proxy(&provider, "", None).await;
    for (name, told) in [("coding", false), ("debugging", true)] {
        let mut agent = Agent::new(&proxy, false)
            .told("go")
            .with("x-plimsoll-profile", name);
        for _ in 0..4 {
            agent.work("1 failed").await;
        }
        let newest = provider.chats().last().unwrap().value();
        let last = newest["messages"].as_array().unwrap().last().unwrap();
        let text = last["content"].as_str().unwrap();
        assert_eq!(text.contains("3 times running"), told, "{name}: {text}");
    }
    let names =
        "coding, debugging, paper, research, review, unmarked, smolagents, mini-swe-agent, dspy";
    let wrong = Agent::new(&proxy, false)
        .told("go")
        .with("x-plimsoll-profile", "coder");
    let refused = wrong.ask().await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains(names), "{}", refused.text());
}

#[tokio::test]
async fn without_marks_nothing_is_asked_of_the_model_and_originals_still_come_back() {
    let provider = commands().await;
    let shipped = read("").profiles;
    let proxy = Proxy::with(provider.address, |config| config.profiles = shipped).await;
    for (profile, expect) in [
        ("coding", ["delimiter", "recall"].as_slice()),
        ("unmarked", &["recall"]),
    ] {
        let mut agent = Agent::new(&proxy, false)
            .told("go")
            .with("x-plimsoll-profile", profile);
        turn(&mut agent).await;
        let sent = provider.chats().last().unwrap().value();
        let tools = sent["tools"].as_array().unwrap().iter();
        let ours = tools.filter_map(|tool| tool["function"]["name"].as_str());
        let ours: Vec<&str> = ours
            .filter(|name| ["delimiter", "recall"].contains(name))
            .collect();
        assert_eq!(ours, expect, "{profile}");
    }
}

#[test]
fn a_profile_that_names_an_unknown_rung_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[profiles.mine]\npolicies = [\"repeat\", \"evict-all\"]\n[profiles.mine.keep]\nshare = 3.0\n";
    std::fs::write(directory.path().join("p.toml"), text).unwrap();
    let rung = "p.toml:2: `profiles.mine.policies`: `evict-all` is not one of";
    let share = "p.toml:4: `profiles.mine.keep.share`: must be a share of the budget";
    let (code, _, err) = run(directory.path(), &["serve", "--config", "p.toml"], &[]);
    assert_eq!(code, Some(1));
    for wanted in [rung, "\"loop-guard\"", share] {
        assert!(err.contains(wanted), "{err}");
    }
    let (code, out, _) = run(directory.path(), &["check", "p.toml"], &[]);
    assert_eq!(code, Some(1));
    assert!(out.contains(rung) && out.contains(share), "{out}");
}
