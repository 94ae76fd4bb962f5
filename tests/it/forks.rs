//! Turns that go on from where others did: rewinds, second attempts, sessions that another goes on from, and new beginnings.
//! Each turn counts once, whoever is asked: the provider, the metrics, the console's list, and what is exported.

use std::collections::{BTreeMap, HashSet};

use super::support::Proxy;
use plimsoll::config::{Backend, Config};
use plimsoll_console::inspect::{Archive, export};
use serde_json::{Value, json};

use super::console::got;
use super::dialects::{Agent, DIALECTS, Dialect};
use super::metered::{self, Counted, Metered, side};
use super::shared_store::{RedisServer, are_here, on};

/// Turns that all begin alike and go on otherwise. `next` gives the proxy that serves what follows.
async fn forked(agent: &mut Agent, next: &mut impl AsyncFnMut(&mut Agent)) {
    metered::play(agent, 10).await;
    let fork = agent.history.clone();
    metered::play(agent, 6).await;
    // A rewind, and then another to the same place.
    for said in ["b40", "b60"] {
        next(agent).await;
        agent.history.clone_from(&fork);
        agent.user(said);
        metered::play(agent, 5).await;
    }
    // A second attempt at the same request, whose first answer the client never read.
    next(agent).await;
    agent.user("b80");
    agent.ask().await;
    next(agent).await;
    metered::play(agent, 3).await;
    // Another session goes on from there, and then this one does.
    let here = agent.history.clone();
    agent.session = "another".to_owned();
    metered::play(agent, 3).await;
    next(agent).await;
    agent.session = "metered".to_owned();
    agent.history = here;
    metered::play(agent, 2).await;
    // It begins anew.
    next(agent).await;
    agent.history.clear();
    agent.user("b100");
    metered::play(agent, 3).await;
}

/// How many turns that is.
const TURNS: usize = 10 + 6 + 5 + 5 + 1 + 3 + 3 + 2 + 3;

/// The rows of a proxy's list.
async fn rows(proxy: &Proxy) -> Vec<Value> {
    let listed = got(proxy, "sessions?limit=100").await;
    listed["sessions"].as_array().unwrap().clone()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// What the console says of all sessions, row by row and in the overview.
async fn console(proxy: &Proxy) -> Counted {
    let rows = rows(proxy).await;
    let sum = |name: &str| rows.iter().map(|row| number(&row[name])).sum::<usize>();
    let turns = rows.iter().map(|row| number(&row["saved"]["turns"]));
    let overview = got(proxy, "overview").await;
    let requests = turns.sum::<usize>() + sum("hops");
    assert_eq!(number(&overview["prompt"]), sum("prompt"));
    assert_eq!(number(&overview["cached"]), sum("cached"));
    assert_eq!(overview["sessions"], 2);
    Counted {
        input: sum("prompt"),
        cached: sum("cached"),
        written: 0,
        output: 0,
        requests,
    }
}

/// What is exported: each record once, in whatever branches it stands.
fn exported(proxy: &Proxy) -> Counted {
    let mut seen = HashSet::new();
    let mut sum = Counted::default();
    let store = &proxy.app.store;
    for branch in Archive::read(store).unwrap().branches() {
        for line in export(store, &branch).unwrap().text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let turn = &line["_turn"];
            if turn.is_null() || !seen.insert(turn["record"].to_string()) {
                continue;
            }
            for hop in turn["hops"].as_array().unwrap() {
                sum.input += number(&hop["usage"]["prompt"]);
                sum.cached += number(&hop["usage"]["cached"]);
                sum.requests += 1;
            }
        }
    }
    sum
}

/// The rows say which of them are branches, and of what.
async fn placed(proxy: &Proxy, case: &str) {
    let rows = rows(proxy).await;
    let is_branch = |row: &&Value| row["branch"] == true;
    let branches: Vec<&Value> = rows.iter().filter(is_branch).collect();
    let firsts: Vec<&Value> = rows.iter().filter(|row| !is_branch(row)).collect();
    // Two rewinds, the second attempt, and the new beginning. Another session that goes on takes nothing from this one.
    assert_eq!((firsts.len(), branches.len()), (2, 4), "{case}");
    let names: HashSet<&str> = rows
        .iter()
        .filter_map(|row| row["session"].as_str())
        .collect();
    assert_eq!(names.len(), rows.len(), "{case}");
    for branch in branches {
        let session = firsts.iter().find(|row| row["session"] == branch["parent"]);
        assert!(session.is_some(), "{case}: {branch}");
        let name = branch["session"].as_str().unwrap();
        let detail = got(proxy, &format!("sessions/{name}")).await;
        assert_eq!(detail["row"]["turn"], branch["turn"], "{case}");
        let turns = got(proxy, &format!("sessions/{name}/turns")).await;
        let last = turns["columns"]["turn"].as_array().unwrap().last().cloned();
        assert_eq!(last, Some(branch["turn"].clone()), "{case}");
    }
    let mut children = BTreeMap::new();
    for first in firsts {
        let name = first["session"].as_str().unwrap();
        let detail = got(proxy, &format!("sessions/{name}")).await;
        children.insert(name, detail["children"].as_array().unwrap().len());
    }
    assert_eq!(children.into_values().sum::<usize>(), 4, "{case}");
}

/// What exports and rows tell: they have no sum of outputs.
fn prompts(counted: Counted) -> Counted {
    Counted {
        output: 0,
        ..counted
    }
}

fn agent(proxy: &Proxy, dialect: Dialect, stream: bool) -> Agent {
    let mut agent = metered::agent(proxy, dialect, stream);
    agent.fields.push(("model", json!("gpt-5")));
    agent
}

fn budget(config: &mut Config) {
    config.budget.ceiling = metered::CEILING;
}

#[tokio::test]
async fn each_turn_counts_once_wherever_it_goes_on_from() {
    for (dialect, stream) in DIALECTS.into_iter().zip([true, false, true]) {
        for marks in [false, true] {
            let case = format!("{dialect:?} {stream} {marks}");
            let metered = Metered::start(marks).await;
            let proxy = Proxy::with(metered.host.addr, budget).await;
            let mut agent = agent(&proxy, dialect, stream);
            forked(&mut agent, &mut async |_| ()).await;
            let told = prompts(metered.counted());
            let shown = proxy.app.metrics_text();
            assert_eq!(prompts(side(&shown, "sent", told.requests)), told, "{case}");
            assert_eq!(console(&proxy).await, told, "{case}");
            assert_eq!(exported(&proxy), told, "{case}");
            placed(&proxy, &case).await;
            if !marks {
                assert_eq!(told.requests, TURNS, "{case}");
            }
        }
    }
}

/// A process that ends between them, and one that others write beside, know of a turn by the store alone.
#[tokio::test]
async fn each_turn_counts_once_whoever_serves_it() {
    for dialect in DIALECTS {
        let metered = Metered::start(false).await;
        let directory = tempfile::tempdir().unwrap();
        let on_disk = |config: &mut Config| {
            budget(config);
            config.store.backend = Backend::Sled;
            config.store.path = directory.path().to_owned();
        };
        let mut proxy = Some(Proxy::with(metered.host.addr, on_disk).await);
        let mut agent = agent(proxy.as_ref().unwrap(), dialect, true);
        forked(&mut agent, &mut async |agent| {
            proxy.take().unwrap().end().await;
            let next = Proxy::with(metered.host.addr, on_disk).await;
            agent.at(&next);
            proxy = Some(next);
        })
        .await;
        let (proxy, case) = (proxy.unwrap(), format!("{dialect:?} again and again"));
        let told = prompts(metered.counted());
        assert_eq!(console(&proxy).await, told, "{case}");
        assert_eq!(exported(&proxy), told, "{case}");
        placed(&proxy, &case).await;
    }
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    let metered = Metered::start(false).await;
    let on_server = on(&server);
    let shared = |config: &mut Config| {
        budget(config);
        on_server(config);
    };
    let proxies = [
        Proxy::with(metered.host.addr, shared).await,
        Proxy::with(metered.host.addr, shared).await,
    ];
    let mut agent = agent(&proxies[0], Dialect::Chat, true);
    let mut served = 0;
    forked(&mut agent, &mut async |agent| {
        served += 1;
        agent.at(&proxies[served % 2]);
    })
    .await;
    let told = prompts(metered.counted());
    let shown = proxies.each_ref().map(|proxy| {
        let shown = proxy.app.metrics_text();
        prompts(side(&shown, "sent", 0))
    });
    assert_eq!(shown[0].input + shown[1].input, told.input);
    for proxy in &proxies {
        assert_eq!(console(proxy).await, told);
        assert_eq!(exported(proxy), told);
        placed(proxy, "replicas").await;
    }
}
