//! Pins from outside: what a header, an operator or the user's own words pin stays in view while all
//! around it goes, as far as the share allows; a pin that names nothing fails no turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::config::{Backend, Config};
use plimsoll_scripted::{Provider, Reply, Script};
use serde_json::{Value, json};

use super::agent::{Agent, bash, last_key, metric, newest, none_refused, provider};
use super::dialects::{self, DIALECTS, Dialect};
use super::recall::{CEILING, output};
use super::support::{Proxy, client, soon};

/// A model that calls `bash` until `b14` was answered, and then says so. The items are numbered by
/// place: `b1` is `bash:4`, `b2` is `bash:7`, and so on.
fn working() -> Script {
    Script::ask(|view| {
        let key = last_key(view.messages());
        let number = key.strip_prefix('b').and_then(|n| n.parse::<u32>().ok());
        match number {
            Some(14) => Reply::text("done"),
            Some(n) => Reply::calls(vec![bash(&format!("b{}", n + 1))]),
            None => Reply::calls(vec![bash("b1")]),
        }
    })
}

fn config(share: f64) -> impl Fn(&mut Config) {
    move |config| {
        config.budget.ceiling = CEILING;
        config.budget.keep.share = share;
    }
}

async fn served(share: f64) -> (Provider, Proxy, Agent) {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, config(share)).await;
    let agent = Agent::new(&proxy, false).told("go");
    (provider, proxy, agent)
}

/// Goes on until `id` is answered, but not sent yet.
async fn until(agent: &mut Agent, id: &str) {
    loop {
        let answer = agent.turn().await;
        let call = answer.heard.calls.first().expect("a call").id.clone();
        agent.result(&call, &output(&call));
        if call == id {
            return;
        }
    }
}

/// One turn with a header of its own, and what is said of the pins.
async fn pinning(agent: &mut Agent, value: &str) -> String {
    let plain = agent.headers.clone();
    *agent = agent.clone().with("x-plimsoll-pin", value);
    let answer = agent.turn().await;
    agent.headers = plain;
    for call in &answer.heard.calls {
        agent.result(&call.id, &output(&call.id));
    }
    answer.header("x-plimsoll-pin").to_owned()
}

/// Which of the fourteen results the provider was last shown whole.
fn shown(provider: &Provider) -> Vec<u32> {
    let last = newest(provider).value().to_string();
    let whole = |n: &u32| last.contains(&format!("b{n} line 45:"));
    (1..=14).filter(whole).collect()
}

#[tokio::test]
async fn the_newest_result_of_a_request_is_pinned_by_a_header() {
    let (provider, proxy, mut agent) = served(0.3).await;
    until(&mut agent, "b2").await;
    assert_eq!(pinning(&mut agent, "newest").await, "pinned=1");
    until(&mut agent, "b14").await;
    let last = agent.turn().await;
    assert_eq!(
        last.header("x-plimsoll-pin"),
        "pinned=1",
        "said in each turn"
    );
    assert_eq!(last.header("x-plimsoll-budget"), "met");
    let whole = shown(&provider);
    assert!(
        whole.contains(&2) && !whole.contains(&1) && !whole.contains(&3),
        "{whole:?}"
    );
    let counted = metric(&proxy, "plimsoll_pins_total{outcome=\"set\"}").await;
    assert!(counted.unwrap().ends_with(" 1"));
    none_refused(&provider);
}

#[tokio::test]
async fn pins_are_set_and_lifted_by_id() {
    let (provider, _proxy, mut agent) = served(0.5).await;
    until(&mut agent, "b4").await;
    assert_eq!(pinning(&mut agent, "bash:7 bash:10").await, "pinned=2");
    until(&mut agent, "b8").await;
    assert_eq!(pinning(&mut agent, "-bash:7").await, "pinned=1");
    until(&mut agent, "b14").await;
    agent.turn().await;
    let whole = shown(&provider);
    assert!(whole.contains(&3) && !whole.contains(&2), "{whole:?}");
    // An edit of the client's drops a turn, and no pin.
    agent.history.drain(10..12);
    agent.user("go on");
    assert_eq!(agent.ask().await.header("x-plimsoll-pin"), "pinned=1");
    assert_eq!(pinning(&mut agent, "none").await, "pinned=0");
}

#[tokio::test]
async fn a_pin_that_names_nothing_is_said_and_fails_no_turn() {
    let (_provider, proxy, mut agent) = served(0.3).await;
    until(&mut agent, "b2").await;
    let said = pinning(&mut agent, "bash:999 read:4 bash:4").await;
    assert_eq!(said, "pinned=1, unknown=2");
    let counted = metric(&proxy, "plimsoll_pins_total{outcome=\"unknown\"}").await;
    assert!(counted.unwrap().ends_with(" 2"));
    let wrong = agent
        .clone()
        .with("x-plimsoll-pin", "everything")
        .ask()
        .await;
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.text().contains("ids like read:12"),
        "{}",
        wrong.text()
    );
}

#[tokio::test]
async fn the_oldest_pins_loosen_where_they_are_more_than_the_share() {
    // Room for one result, not for two.
    let (provider, _proxy, mut agent) = served(0.4).await;
    until(&mut agent, "b2").await;
    assert_eq!(
        pinning(&mut agent, "bash:4 bash:7").await,
        "pinned=2, loosened=1"
    );
    until(&mut agent, "b14").await;
    let last = agent.turn().await;
    assert_eq!(last.header("x-plimsoll-pin"), "pinned=2, loosened=1");
    assert_eq!(last.header("x-plimsoll-budget"), "met");
    let whole = shown(&provider);
    assert!(whole.contains(&2) && !whole.contains(&1), "{whole:?}");
}

#[tokio::test]
async fn a_users_own_words_pin_and_a_results_do_not() {
    let (provider, _proxy, mut agent) = served(0.3).await;
    until(&mut agent, "b2").await;
    let fake = "all of it\nplimsoll:pin bash:4\n";
    let call = agent.turn().await.heard.calls.first().unwrap().id.clone();
    agent.result(&call, &format!("{fake}{}", output(&call)));
    agent.user(
        "Look at this again.\n  plimsoll:pin bash:7\nplimsoll:pinned is no marker\nplimsoll:pin\n",
    );
    let answer = agent.turn().await;
    assert_eq!(answer.header("x-plimsoll-pin"), "pinned=2, loosened=1");
    agent.result("b1", &output("b1"));
    until(&mut agent, "b14").await;
    agent.turn().await;
    let whole = shown(&provider);
    assert!(
        whole.contains(&3),
        "the newest before the user's words: {whole:?}"
    );
}

/// Claude Code and codex send what they add and what the user says as parts of one message.
#[tokio::test]
async fn a_marker_is_found_in_each_part_of_a_message_beside_an_image() {
    let (_provider, _proxy, mut agent) = served(0.5).await;
    until(&mut agent, "b2").await;
    let call = agent.turn().await.heard.calls.first().unwrap().id.clone();
    agent.result(&call, &output(&call));
    agent.history.push(json!({"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
        {"type": "text", "text": "plimsoll:pin bash:7"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]}));
    let answer = agent.turn().await;
    assert_eq!(answer.header("x-plimsoll-pin"), "pinned=1");
}

/// A file that stands in a message, in every form that the dialect has.
fn files(dialect: Dialect, text: &str) -> Vec<Value> {
    let blocks = json!([{"type": "text", "text": text}]);
    match dialect {
        Dialect::Chat => {
            vec![json!({"type": "file", "file": {"filename": "a", "file_data": text}})]
        }
        Dialect::Responses => {
            vec![json!({"type": "input_file", "filename": "a", "file_data": text})]
        }
        Dialect::Messages => vec![
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}),
            json!({"type": "document", "source": {"type": "content", "content": blocks}}),
            json!({"type": "document", "source": {"type": "content", "content": text}}),
            json!({"type": "search_result", "source": "s", "title": text, "content": blocks}),
        ],
    }
}

/// Asks with these parts behind a result that looks like a marker, in a message of their own or beside the result,
/// and returns what is said of the pins.
async fn pins_of(proxy: &Proxy, dialect: Dialect, parts: &[Value], beside: bool) -> String {
    static SESSIONS: AtomicUsize = AtomicUsize::new(0);
    let session = SESSIONS.fetch_add(1, Ordering::Relaxed).to_string();
    let mut agent = dialects::Agent::new(proxy, dialect, beside, &session);
    agent.user("go");
    let answer = agent.ask().await;
    agent.keep(&answer);
    agent.result("b1", "it says\nplimsoll:pin\n");
    let content = agent.history.last_mut().unwrap().get_mut("content");
    match content.and_then(Value::as_array_mut) {
        Some(content) if beside => content.extend_from_slice(parts),
        _ => agent
            .history
            .push(json!({"role": "user", "content": parts})),
    }
    let answer = agent.ask().await;
    assert_eq!(answer.status, 200, "{}", answer.bytes);
    answer.header("x-plimsoll-pin").to_owned()
}

#[tokio::test]
async fn what_a_user_quotes_pins_nothing_in_any_dialect() {
    let reply =
        |_, _: &dialects::Sent| dialects::says("", vec![dialects::call("b1", "bash", json!({}))]);
    let provider = dialects::Provider::start(reply).await;
    for dialect in DIALECTS {
        let proxy = Proxy::before(provider.addr).await;
        let kind = match dialect {
            Dialect::Responses => "input_text",
            Dialect::Chat | Dialect::Messages => "text",
        };
        let part = |text: &&str| json!({"type": kind, "text": text});
        for (texts, pinned) in [
            (&["plimsoll:pin"][..], true),
            (&["> plimsoll:pin"], false),
            (&["```\nplimsoll:pin\n```"], false),
            (&["````md\n```\nplimsoll:pin\n````"], false),
            (&["```\nls\n```\nplimsoll:pin"], true),
            (&["What is this?\n~~~log", "plimsoll:pin", "~~~"], false),
            (&["It was\n```", "plimsoll:pin\n```", "plimsoll:pin"], true),
            (
                &["The agent's own\n```\nwithout an end", "plimsoll:pin"],
                true,
            ),
            (&["```not``` a fence\nplimsoll:pin"], true),
        ] {
            let parts: Vec<Value> = texts.iter().map(part).collect();
            let wanted = if pinned { "pinned=1" } else { "" };
            for beside in [false, true] {
                let said = pins_of(&proxy, dialect, &parts, beside).await;
                assert_eq!(said, wanted, "{dialect:?} beside {beside}: {texts:?}");
            }
        }
        for file in files(dialect, "plimsoll:pin") {
            for (said, wanted) in [("Read this.", ""), ("plimsoll:pin", "pinned=1")] {
                let parts = [file.clone(), part(&said)];
                for beside in [false, true] {
                    let said = pins_of(&proxy, dialect, &parts, beside).await;
                    assert_eq!(said, wanted, "{dialect:?} beside {beside}: {parts:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_flood_of_markers_is_bounded() {
    let (_provider, _proxy, mut agent) = served(0.5).await;
    until(&mut agent, "b2").await;
    let call = agent.turn().await.heard.calls.first().unwrap().id.clone();
    agent.result(&call, &output(&call));
    let line = "plimsoll:pin nobody:1-200 bash:1-200 bash:1-200 none bash:4\n";
    agent.user(&line.repeat(3_000));
    let answer = agent.turn().await;
    let said = answer.header("x-plimsoll-pin");
    // Six lines and two words of the seventh are taken: one pin is left of them, and then three are set.
    assert!(
        said.starts_with("pinned=3") && said.ends_with("unknown=10"),
        "{said}"
    );
}

#[tokio::test]
async fn what_is_counted_or_asked_once_pins_nothing() {
    let (_provider, proxy, mut agent) = served(0.5).await;
    let lone = Agent::new(&proxy, false)
        .field("tools", Value::Null)
        .told("a title for this: plimsoll:pin\nplimsoll:pin read:1")
        .with("x-plimsoll-pin", "read:1");
    assert_eq!(lone.ask().await.header("x-plimsoll-pin"), "");
    until(&mut agent, "b1").await;
    // Hidden results are the proxy's own, and a user's text is never evicted.
    agent.user("thank you");
    assert_eq!(
        pinning(&mut agent, "newest user:1").await,
        "pinned=1, unknown=1"
    );
    assert_eq!(pinning(&mut agent, "bash:4 none").await, "pinned=0");
}

#[tokio::test]
async fn an_operators_pin_holds_from_the_next_turn_and_over_a_restart() {
    let provider = provider(working()).await;
    let directory = tempfile::tempdir().unwrap();
    let start = async || {
        Proxy::with(provider.address, |to| {
            config(0.3)(to);
            to.store.backend = Backend::Sled;
            to.store.path = directory.path().to_owned();
        })
        .await
    };
    let first = start().await;
    let mut agent = Agent::new(&first, false).told("go");
    let answer = agent.turn().await;
    let session = answer.header("x-plimsoll-session").to_owned();
    agent.result("b1", &output("b1"));
    until(&mut agent, "b2").await;
    let ask = async |proxy: &Proxy, session: &str, verb: &str, body: &str| {
        let url = format!("http://{}/api/sessions/{session}/{verb}", proxy.admin);
        let answer = soon(client().post(url).body(body.to_owned()).send()).await;
        let answer = answer.unwrap();
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_slice(&soon(answer.bytes()).await.unwrap()).unwrap();
        (status, body)
    };
    let pin = json!({"ids": ["bash:7"]}).to_string();
    let (status, told) = ask(&first, &session, "pin", &pin).await;
    assert_eq!((status, &told["session"]), (202, &json!(session)));
    for (session, body, status, says) in [
        ("nobody", &*pin, 400, "16 hexadecimal digits"),
        (&*session.to_uppercase(), "{}", 400, "send a body like"),
        (&*session, "bash:7", 400, "send a body like"),
        (
            &session,
            "{\"ids\":[\"all of it\"]}",
            400,
            "ids like read:12",
        ),
        (&session, "{\"ids\":[]}", 400, "ids like read:12"),
        (&session, &"x".repeat(300_000), 413, "at most 256 KiB"),
        ("0123456789abcdef", &pin, 404, "no session"),
    ] {
        let (refused, told) = ask(&first, session, "pin", body).await;
        let message = told["error"]["message"].as_str().unwrap();
        assert_eq!(refused, status, "{message}");
        assert!(message.contains(says), "{message}");
    }
    let answer = agent.turn().await;
    assert_eq!(answer.header("x-plimsoll-pin"), "pinned=1");
    agent.result("b3", &output("b3"));
    first.end().await;
    let second = start().await;
    agent.url = second.url("/v1/chat/completions");
    until(&mut agent, "b14").await;
    let last = agent.turn().await;
    assert_eq!(last.header("x-plimsoll-pin"), "pinned=1");
    assert!(shown(&provider).contains(&2), "{:?}", shown(&provider));
    let name = last.header("x-plimsoll-session").to_uppercase();
    let wrong = ask(
        &second,
        &name,
        "unpin",
        &json!({"ids": ["-bash:7"]}).to_string(),
    )
    .await;
    assert_eq!(wrong.0, 400);
    let lifted = ask(&second, &name, "unpin", &pin).await;
    assert_eq!(lifted.0, 202);
    agent.user("go on");
    assert_eq!(agent.turn().await.header("x-plimsoll-pin"), "pinned=0");
}
