//! The console's API over HTTP: its answers have the form that `docs/console/openapi.json` gives, figures
//! are those of the ledger, sessions are shown live, after a restart and without content, and nothing is
//! shown or changed for a page of somebody else.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use plimsoll::config::{Backend, Config};
use plimsoll_core::turn::StoreContent;
use plimsoll_model::TurnRecord;
use plimsoll_proxy::pipeline::ShownContent;
use plimsoll_scripted::{Provider, Reply, Script};
use serde_json::{Value, json};

use super::agent::{Agent, bash, explore, last_key, learned, provider};
use super::metered;
use super::openapi::Description;
use super::recall::{CEILING, output};
use super::support::{Proxy, client, soon};

/// How many turns the session has.
pub const TURNS: u32 = 15;

/// A model that calls `bash` until `b14` was answered, and then says so. It marks two explorations.
pub fn working() -> Script {
    Script::ask(|view| {
        let key = last_key(view.messages());
        let number = key.strip_prefix('b').and_then(|n| n.parse::<u32>().ok());
        let marks = view.asks("delimiter");
        match number {
            Some(14) => Reply::text("done"),
            Some(1) if marks => Reply::calls(vec![explore("s1", "first-look"), bash("b2")]),
            Some(3) if marks => {
                Reply::calls(vec![learned("e1", "the values are multiples"), bash("b4")])
            }
            Some(5) if marks => Reply::calls(vec![explore("s2", "second-look"), bash("b6")]),
            Some(n) => Reply::calls(vec![bash(&format!("b{}", n + 1))]),
            None => Reply::calls(vec![bash("b1")]),
        }
    })
}

pub fn config(config: &mut Config) {
    config.budget.ceiling = CEILING;
}

/// A session that has gone through all its turns, and its name.
pub async fn played(proxy: &Proxy, stream: bool) -> String {
    let mut agent = Agent::new(proxy, stream)
        .field("model", json!("gpt-5"))
        .told("Find out what the values are");
    through(&mut agent, TURNS).await
}

/// Goes through so many turns, and returns the session's name.
pub async fn through(agent: &mut Agent, turns: u32) -> String {
    let mut session = String::new();
    for _ in 0..turns {
        let answer = agent.turn().await;
        answer.header("x-plimsoll-session").clone_into(&mut session);
        for call in &answer.heard.calls {
            agent.result(&call.id, &output(&call.id));
        }
    }
    session
}

pub async fn served(change: impl FnOnce(&mut Config)) -> (Provider, Proxy) {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, |own| {
        config(own);
        change(own);
    })
    .await;
    (provider, proxy)
}

async fn get(proxy: &Proxy, path: &str) -> (u16, Value) {
    let url = format!("http://{}/api/{path}", proxy.admin);
    let response = soon(client().get(url).send()).await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let value = serde_json::from_str(&text);
    (status, value.unwrap_or_else(|_| panic!("{path}: {text}")))
}

pub async fn got(proxy: &Proxy, path: &str) -> Value {
    let (status, value) = get(proxy, path).await;
    assert_eq!(status, 200, "{path}: {value}");
    value
}

pub async fn posted(proxy: &Proxy, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = posted_raw(proxy, path, body).await;
    (status, serde_json::from_str(&text).unwrap())
}

/// The answer as it came.
pub async fn posted_raw(proxy: &Proxy, path: &str, body: &Value) -> (u16, String) {
    let url = format!("http://{}/api/{path}", proxy.admin);
    let request = client().post(url).body(body.to_string());
    let response = soon(request.send()).await.unwrap();
    let status = response.status().as_u16();
    (status, response.text().await.unwrap())
}

fn sum(column: &Value, of: fn(&Value) -> f64) -> f64 {
    column.as_array().unwrap().iter().map(of).sum()
}

fn near(one: f64, other: f64) {
    assert!(
        (one - other).abs() < 1e-6 * one.abs().max(1.0),
        "{one} {other}"
    );
}

/// Every answer of a session, checked against the description.
async fn all_of(proxy: &Proxy, session: &str) -> Value {
    let description = Description::read();
    let of = |rest: &str| format!("sessions/{session}{rest}");
    let mut answers = json!({});
    let mut paths = vec![
        ("/api/overview", "overview".to_owned()),
        ("/api/sessions", "sessions".to_owned()),
        (
            "/api/sessions",
            "sessions?spark=1&sort=-saved&limit=3".to_owned(),
        ),
        ("/api/sessions/{session}", of("")),
        ("/api/sessions/{session}/turns", of("/turns")),
        ("/api/sessions/{session}/turns", of("/turns?from=3&to=5")),
        ("/api/sessions/{session}/items", of("/items?limit=20")),
        ("/api/sessions/{session}/items", of("/items")),
        ("/api/sessions/{session}/items/{item}", of("/items/bash:4")),
        (
            "/api/sessions/{session}/items/{item}",
            of("/items/bash:4?turn=3"),
        ),
        ("/api/failures", "failures".to_owned()),
        ("/api/store", "store".to_owned()),
    ];
    let whole = got(proxy, &of("")).await;
    for pass in whole["passes"].as_array().unwrap() {
        let path = of(&format!("/passes/{}", pass["turn"]));
        paths.push(("/api/sessions/{session}/passes/{turn}", path));
    }
    for (route, path) in paths {
        let answer = got(proxy, &path).await;
        let faults = description.faults("get", route, "200", &answer);
        assert_eq!(faults, Vec::<String>::new(), "{path}: {answer}");
        let path = path.replace(session, "ID");
        answers[path] = answer;
    }
    answers
}

#[tokio::test]
async fn a_live_session_is_shown_as_the_description_says() {
    let (_provider, proxy) = served(|_| {}).await;
    let session = played(&proxy, true).await;
    let all = all_of(&proxy, &session).await;
    let whole = &all["sessions/ID"];
    let row = &whole["row"];
    assert_eq!(row["title"], "Find out what the values are", "{row}");
    assert_eq!(row["finding"]["episode"], "first-look");
    assert_eq!(
        (row["turn"].as_u64(), row["live"].as_bool()),
        (Some(u64::from(TURNS)), Some(true))
    );
    assert_eq!(row["mode"], "manage");
    assert_eq!(row["budget"], CEILING);
    assert_eq!(row["spark"].as_array().unwrap().len(), TURNS as usize);
    let names: Vec<&str> = whole["episodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first-look", "second-look"]);
    assert_eq!(whole["episodes"][0]["start"], 2);
    assert_eq!(whole["episodes"][0]["end"], 4);
    assert!(whole["episodes"][1]["end"].is_null());
    // The first result went, and stands as it came beside what is left of it.
    let item = &all["sessions/ID/items/bash:4"];
    assert_eq!(
        (&item["content"], &item["why"]),
        (&json!("live"), &json!("pass")),
        "{item}"
    );
    assert_eq!(item["original"], output("b1"));
    assert!(item["arguments"].as_str().unwrap().contains("run b1"));
    let early = &all["sessions/ID/items/bash:4?turn=3"];
    assert_eq!(
        (&early["mark"], &early["why"]),
        (&json!("live"), &json!("same")),
        "{early}"
    );
    // Each pass says what moved, from which mark to which, and what is left.
    let passes = whole["passes"].as_array().unwrap();
    assert!(!passes.is_empty());
    for pass in passes {
        let path = format!("sessions/ID/passes/{}", pass["turn"]);
        let moves = all[&path]["moves"].as_array().unwrap();
        assert_eq!(moves.len() as u64, pass["items"].as_u64().unwrap());
        for one in moves {
            // The line of an episode may be longer than the few words that stood there.
            if one["from"] == "live" && one["id"].as_str().unwrap().starts_with("bash") {
                assert!(one["after"].as_u64() < one["before"].as_u64(), "{one}");
            }
            assert_ne!(one["from"], one["to"], "{one}");
        }
        assert!(pass["after"].as_u64() < pass["before"].as_u64());
    }
    let held = &all[&format!("sessions/ID/passes/{}", passes[0]["turn"])]["held"];
    assert!(!held.as_array().unwrap().is_empty(), "{held}");
}

/// What the turns say that they cost is what the list, the overview and the metrics say.
#[tokio::test]
async fn what_is_saved_is_what_the_ledger_says() {
    for stream in [false, true] {
        let (_provider, proxy) = served(|_| {}).await;
        let session = played(&proxy, stream).await;
        let turns = got(&proxy, &format!("sessions/{session}/turns")).await;
        let columns = &turns["columns"];
        let whole = got(&proxy, &format!("sessions/{session}")).await;
        let overview = got(&proxy, "overview").await;
        let metrics = format!("http://{}/metrics", proxy.admin);
        let metrics = soon(client().get(metrics).send()).await.unwrap();
        let metrics = metrics.text().await.unwrap();
        for (field, part) in [
            ("net", "net"),
            ("not_sent", "evicted"),
            ("rewrites", "rewritten"),
            ("hidden", "hidden"),
            ("breakpoints", "breakpoints"),
            ("unexplained", "unexplained"),
        ] {
            let mut of_turns = 0.0;
            for account in columns["account"].as_array().unwrap() {
                of_turns += account["usd"][field].as_f64().unwrap();
            }
            near(
                of_turns,
                whole["row"]["saved"]["usd"][field].as_f64().unwrap(),
            );
            near(of_turns, overview["saved"]["usd"][field].as_f64().unwrap());
            let name = format!("plimsoll_saved_usd{{part=\"{part}\"}}");
            near(of_turns, metered::value(&metrics, &name));
        }
        let paid = sum(&columns["account"], |one| {
            one["usd"]["paid"].as_f64().unwrap()
        });
        let client = sum(&columns["account"], |one| {
            one["usd"]["whole"].as_f64().unwrap()
        });
        near(
            client - paid,
            whole["row"]["saved"]["usd"]["net"].as_f64().unwrap(),
        );
        // Prompts and cached tokens are those that the provider reported.
        let mut prompt = 0;
        for hop in columns["hops"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|hops| hops.as_array().unwrap())
        {
            prompt += hop[1].as_u64().unwrap();
        }
        assert_eq!(whole["row"]["prompt"].as_u64(), Some(prompt));
        assert_eq!(whole["row"]["saved"]["turns"], TURNS);
    }
}

/// What a stored session shows after a restart is what it showed live, without what was in memory.
#[tokio::test]
async fn a_session_is_shown_after_a_restart_as_far_as_it_is_stored() {
    let provider = provider(working()).await;
    for content in [StoreContent::All, StoreContent::Off] {
        let scratch = tempfile::tempdir().unwrap();
        let settings = |own: &mut Config| {
            config(own);
            own.store.backend = Backend::Sled;
            own.store.path = scratch.path().to_owned();
            own.store.content = content;
        };
        let proxy = Proxy::with(provider.address, settings).await;
        let session = played(&proxy, true).await;
        let before = all_of(&proxy, &session).await;
        proxy.end().await;
        let proxy = Proxy::with(provider.address, settings).await;
        let after = all_of(&proxy, &session).await;
        let stored = content == StoreContent::All;
        let (live, now) = (&before["sessions/ID"], &after["sessions/ID"]);
        for same in ["parts", "pins"] {
            assert_eq!(live[same], now[same], "{same}");
        }
        // Without texts nobody knows what was needed later.
        let mut passes = live["passes"].clone();
        for pass in passes
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .filter(|_| !stored)
        {
            pass["needed"] = Value::Null;
        }
        assert_eq!(passes, now["passes"]);
        assert_eq!(live["row"]["saved"], now["row"]["saved"]);
        assert_eq!(before["sessions/ID/turns"], after["sessions/ID/turns"]);
        assert_eq!(now["row"]["live"], false);
        let from = if stored { "stored" } else { "none" };
        assert_eq!(now["content"], from);
        let item = &after["sessions/ID/items/bash:4"];
        assert_eq!(item["content"], from);
        if stored {
            assert_eq!(item["original"], output("b1"));
            assert_eq!(item["shown"], before["sessions/ID/items/bash:4"]["shown"]);
            assert_eq!(now["row"]["title"], live["row"]["title"]);
        } else {
            assert_eq!(
                (&item["original"], &now["row"]["title"]),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(
                item["item"]["marks"],
                before["sessions/ID/items/bash:4"]["item"]["marks"]
            );
        }
        proxy.end().await;
    }
}

#[tokio::test]
async fn withheld_content_is_nowhere() {
    let (_provider, proxy) = served(|own| own.console.content = Some(ShownContent::Off)).await;
    let session = played(&proxy, false).await;
    let all = all_of(&proxy, &session).await;
    let text = all.to_string();
    for content in ["Find out what", "multiples", "b1 line", "run b1"] {
        assert!(!text.contains(content), "{content}");
    }
    assert_eq!(all["sessions/ID"]["content"], "withheld");
    // Names, tools, marks and sizes stay.
    assert!(text.contains("first-look") && text.contains("bash:4"));
    let ask = json!({"format": "chat", "turns": [[1, 3]]});
    let (status, refused) = posted(&proxy, &format!("sessions/{session}/build"), &ask).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (409, &json!("content_withheld"))
    );
}

#[tokio::test]
async fn what_can_not_be_answered_is_refused_with_a_word_and_a_sentence() {
    let (_provider, proxy) = served(|_| {}).await;
    let session = played(&proxy, false).await;
    let of = |rest: &str| format!("sessions/{session}{rest}");
    for (path, status, code) in [
        (
            "sessions/0011223344556677".to_owned(),
            404,
            "unknown_session",
        ),
        ("sessions/nothing".to_owned(), 400, "bad_parameter"),
        (of("?tenant=00ff00ff"), 400, "bad_parameter"),
        (of("/items/bash:999"), 404, "unknown_item"),
        (of("/items/nothing"), 404, "unknown_item"),
        (of("/items/bash:4?turn=999"), 404, "unknown_turn"),
        (of("/items?cursor=x"), 400, "bad_cursor"),
        (of("/items?limit=0"), 400, "bad_parameter"),
        (of("/passes/1"), 404, "unknown_pass"),
        (of("/passes/x"), 400, "bad_parameter"),
        (of("/turns?from=0"), 400, "bad_parameter"),
        (of("/turns?from=5&to=2"), 400, "bad_parameter"),
        ("sessions?cursor=yesterday".to_owned(), 400, "bad_cursor"),
        ("failures?cursor=x".to_owned(), 400, "bad_cursor"),
        ("failures?session=x".to_owned(), 400, "bad_parameter"),
        ("sessions?sort=age".to_owned(), 400, "bad_parameter"),
        ("sessions?zone=blue".to_owned(), 400, "bad_parameter"),
    ] {
        let (found, answer) = get(&proxy, &path).await;
        assert_eq!(
            (found, &answer["error"]["code"]),
            (status, &json!(code)),
            "{path}: {answer}"
        );
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn the_list_is_filtered_sorted_and_paged() {
    let (_provider, proxy) = served(|_| {}).await;
    for task in 0..5 {
        let mut agent = Agent::new(&proxy, false).told(&format!("task {task}"));
        for _ in 0..=task {
            let answer = agent.turn().await;
            for call in &answer.heard.calls {
                agent.result(&call.id, "short");
            }
        }
    }
    let turns = |page: &Value| -> Vec<u64> {
        let rows = page["sessions"].as_array().unwrap().iter();
        rows.map(|row| row["turn"].as_u64().unwrap()).collect()
    };
    let page = got(&proxy, "sessions?sort=turn").await;
    assert_eq!(
        (turns(&page), &page["total"]),
        (vec![5, 4, 3, 2, 1], &json!(5))
    );
    let mut paged = Vec::new();
    let mut query = "sessions?sort=-turn&limit=2".to_owned();
    loop {
        let page = got(&proxy, &query).await;
        paged.extend(turns(&page));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        query = format!("sessions?sort=-turn&limit=2&cursor={next}");
    }
    assert_eq!(paged, [1, 2, 3, 4, 5]);
    let found = got(&proxy, "sessions?q=TASK+3&spark=1").await;
    assert_eq!(turns(&found), [4]);
    assert_eq!(found["sessions"][0]["title"], "task 3");
    assert_eq!(
        turns(&got(&proxy, "sessions?model=other").await),
        [0_u64; 0]
    );
    assert_eq!(
        turns(&got(&proxy, "sessions?zone=green&parent=none").await).len(),
        5
    );
}

/// Reads frames of a stream until one has this name, and returns its data and id.
pub async fn until(
    frames: &mut (impl futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Unpin),
    read: &mut String,
    name: &str,
) -> (Value, String) {
    loop {
        while let Some((frame, rest)) = read.clone().split_once("\n\n") {
            rest.clone_into(read);
            let field = |field: &str| {
                let lines = frame.lines();
                lines
                    .filter_map(|line| line.strip_prefix(field))
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            };
            if field("event: ") == name {
                return (
                    serde_json::from_str(&field("data: ")).unwrap(),
                    field("id: "),
                );
            }
        }
        let more = soon(frames.next()).await.expect("a frame").unwrap();
        read.push_str(&String::from_utf8_lossy(&more));
    }
}

#[tokio::test]
async fn events_come_as_they_happen_and_a_gap_is_told() {
    let (_provider, proxy) = served(|_| {}).await;
    let url = format!("http://{}/api/events", proxy.admin);
    let description = Description::read();
    let open = |last: Option<String>| {
        let request = client().get(&url);
        last.into_iter()
            .fold(request, |request, id| request.header("last-event-id", id))
    };
    let response = soon(open(None).send()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut frames, mut read) = (response.bytes_stream(), String::new());
    let mut agent = Agent::new(&proxy, true).told("go");
    let answer = agent.turn().await;
    let session = answer.header("x-plimsoll-session").to_owned();
    let (begun, _) = until(&mut frames, &mut read, "session").await;
    assert_eq!(begun["session"], session);
    assert_eq!(
        description.faults_of("SessionEvent", &begun),
        Vec::<String>::new()
    );
    let (turn, first) = until(&mut frames, &mut read, "turn").await;
    assert_eq!(
        description.faults_of("TurnEvent", &turn),
        Vec::<String>::new(),
        "{turn}"
    );
    assert_eq!(
        (&turn["turn"]["turn"], &turn["row"]["turn"]),
        (&json!(1), &json!(1))
    );
    // What happened since an id is sent to whoever comes back with it.
    for call in &answer.heard.calls {
        agent.result(&call.id, "short");
    }
    agent.turn().await;
    let response = soon(open(Some(first.clone())).send()).await.unwrap();
    let (mut again, mut reread) = (response.bytes_stream(), String::new());
    let (second, id) = until(&mut again, &mut reread, "turn").await;
    assert_eq!((&second["turn"]["turn"], id == first), (&json!(2), false));
    // Of another process, or after nobody listened, what is missing is not known.
    for stale in ["ffff-1".to_owned(), "x".to_owned()] {
        let response = soon(open(Some(stale)).send()).await.unwrap();
        let (mut frames, mut read) = (response.bytes_stream(), String::new());
        let (missed, _) = until(&mut frames, &mut read, "resync").await;
        assert_eq!(missed, json!({"missed": null}));
    }
}

/// Readers that take nothing hold no turn up, and are told that something is missing.
#[tokio::test]
async fn readers_that_do_not_read_hold_nothing_up() {
    let (_provider, proxy) = served(|_| {}).await;
    let url = format!("http://{}/api/events", proxy.admin);
    let mut idle = Vec::new();
    for _ in 0..64 {
        idle.push(soon(client().get(&url).send()).await.unwrap());
    }
    let further = soon(client().get(&url).send()).await.unwrap();
    assert_eq!(further.status(), 429);
    played(&proxy, false).await;
    drop(idle);
}

/// The description has each path and method that is served, and no other.
#[test]
fn the_description_names_what_is_served() {
    let description = Description::read();
    let mut served = BTreeSet::new();
    for file in [
        "crates/ingress/src/admin.rs",
        "crates/ingress/src/console.rs",
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(path).unwrap();
        // As the formatter leaves it, a route may stand on several lines.
        for (_, rest) in text
            .match_indices(".route(")
            .map(|(at, found)| text.split_at(at + found.len()))
        {
            let mut words = rest.split('"');
            let (path, then) = (words.nth(1).unwrap(), words.next().unwrap());
            let method = then
                .trim_start_matches([',', ' ', '\n'])
                .split('(')
                .next()
                .unwrap();
            if path.starts_with("/api/") {
                served.insert((path.to_owned(), method.to_owned()));
            }
        }
    }
    assert_eq!(served, description.routes());
}

/// What records say for those who look costs little: a few hundred bytes a turn.
#[tokio::test]
async fn what_is_recorded_for_the_console_is_small() {
    let (_provider, proxy) = served(|_| {}).await;
    played(&proxy, true).await;
    let (mut turns, mut with, mut without) = (0, 0, 0);
    for bytes in proxy.linked() {
        let Ok(mut record) = rmp_serde::from_slice::<TurnRecord>(&bytes) else {
            continue;
        };
        turns += 1;
        with += bytes.len();
        let facts = rmp_serde::to_vec_named(&record.facts).unwrap().len();
        for hop in &mut record.hops {
            (hop.left, hop.pass) = (Vec::new(), None);
        }
        without += rmp_serde::to_vec_named(&record).unwrap().len() - facts;
    }
    println!("{turns} turns: {without} bytes without, {with} with");
    assert_eq!(turns, TURNS as usize);
    assert!((with - without) / turns < 500, "{without} {with}");
}
