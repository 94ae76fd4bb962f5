//! What a person asks to have evicted, item by item, over HTTP: it leaves the view in the next pass, or in one
//! that is made for it, in each wire format; what may never go is refused in a sentence; and nothing else
//! goes with it.

use plimsoll::config::{Backend, Config};
use serde_json::{Value, json};

use super::agent::{Agent as ChatAgent, none_refused, total};
use super::console::{got, posted, served, through};
use super::dialects::{Agent, DIALECTS, Provider, Reply, Sent, call, says};
use super::openapi::Description;
use super::recall::output;
use super::support::Proxy;

/// What was evicted because somebody asked for it.
const ASKED: &str = "plimsoll_evicted_items_total{level=\"asked\"";

/// A provider whose model calls `bash` with a new id in each turn.
pub async fn working() -> Provider {
    Provider::start(|_, sent: &Sent| works(sent)).await
}

/// The answer of such a model.
pub fn works(sent: &Sent) -> Reply {
    let calls = sent.calls();
    let made = calls.iter().filter(|call| call.name == "bash").count();
    let next = made + 1;
    says(
        "",
        vec![call(&format!("b{next}"), "bash", json!({"c": next}))],
    )
}

/// One turn, whose call is answered at length. The name of the session.
pub async fn turn(agent: &mut Agent) -> String {
    let answer = agent.ask().await;
    assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
    agent.keep(&answer);
    for call in &answer.calls {
        agent.result(&call.id, &output(&call.id));
    }
    answer.header("x-plimsoll-session").to_owned()
}

/// Room for all results, and a short tail.
fn roomy(config: &mut Config) {
    config.budget.ceiling = 40_000;
    config.budget.protect_recent = plimsoll_core::turn::ProtectRecent::Tokens(1_500);
}

/// The id of the call that brought `b{number}`.
async fn id(proxy: &Proxy, session: &str, number: usize) -> String {
    let page = got(proxy, &format!("sessions/{session}/items")).await;
    let items = page["items"].as_array().unwrap().iter();
    let mut calls = items.filter(|item| item["tool"] == "bash");
    calls.nth(number - 1).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Which of the results a request shows whole.
fn whole(sent: &Sent) -> Vec<usize> {
    let shows = |n: &usize| {
        let text = sent.result(&format!("b{n}"));
        text.is_some_and(|text| text.contains(&format!("b{n} line 45:")))
    };
    (1..=20).filter(shows).collect()
}

/// Each call of a request has a result.
#[track_caller]
pub fn paired(sent: &Sent) {
    for call in sent.calls() {
        assert!(sent.result(&call.id).is_some(), "{}", sent.body);
    }
}

#[tokio::test]
async fn an_item_leaves_the_view_when_it_is_asked_for_and_nothing_goes_with_it() {
    let description = Description::read();
    for dialect in DIALECTS {
        for stream in [false, true] {
            let provider = working().await;
            let proxy = Proxy::with(provider.addr, roomy).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "evicting");
            agent.user("go");
            let mut session = String::new();
            for _ in 0..6 {
                session = turn(&mut agent).await;
            }
            let path = format!("sessions/{session}");
            let evict = format!("{path}/evict");
            let item = id(&proxy, &session, 2).await;
            let ask = json!({"items": [item.to_uppercase()], "now": false});
            let (status, told) = posted(&proxy, &evict, &ask).await;
            assert_eq!(status, 202, "{told}");
            let faults = description.faults("post", "/api/sessions/{session}/evict", "202", &told);
            assert_eq!(faults, Vec::<String>::new(), "{told}");
            assert!(
                told["from"].as_str().unwrap().starts_with("the next pass"),
                "{told}"
            );
            assert!(told["tokens"].as_u64() > Some(500), "{told}");
            // Four results stand behind it, and the provider would read those anew.
            assert!(told["cost"]["tokens"].as_u64() > Some(2_000), "{told}");
            turn(&mut agent).await;
            assert_eq!(
                whole(&provider.newest()),
                [1, 2, 3, 4, 5, 6],
                "{dialect:?}: no pass came"
            );
            let waiting = got(&proxy, &path).await["waiting"].clone();
            assert_eq!(waiting["evictions"], json!([item.to_uppercase()]));
            let ask = json!({"items": [item], "now": true});
            assert_eq!(posted(&proxy, &evict, &ask).await.0, 202);
            turn(&mut agent).await;
            let sent = provider.newest();
            assert_eq!(whole(&sent), [1, 3, 4, 5, 6, 7], "{dialect:?} {stream}");
            assert!(
                sent.result("b2").unwrap().contains("[evicted bash:"),
                "{}",
                sent.body
            );
            paired(&sent);
            let told = got(&proxy, &path).await;
            assert_eq!(told["waiting"]["evictions"], json!([]));
            let pass = &told["passes"][0];
            assert_eq!(
                (&pass["trigger"], &pass["items"]),
                (&json!("asked"), &json!(1)),
                "{told}"
            );
            let shown = got(&proxy, &format!("{path}/items/{item}")).await;
            assert_eq!(
                (&shown["mark"], &shown["why"]),
                (&json!("masked"), &json!("pass"))
            );
            // It stays so, and nothing before the tail changes again.
            turn(&mut agent).await;
            let (before, after) = (sent.texts(), provider.newest().texts());
            assert_eq!(before[..], after[..before.len()], "{dialect:?}");
            let (status, refused) = posted(&proxy, &evict, &ask).await;
            assert_eq!(
                (status, &refused["error"]["code"]),
                (409, &json!("not_evictable"))
            );
            let counted = total(&proxy, ASKED).await;
            assert!((counted - 1.0).abs() < f64::EPSILON, "{counted}");
        }
    }
}

#[tokio::test]
async fn what_waits_is_taken_first_in_the_pass_that_comes_by_itself() {
    let (provider, proxy) = served(|own| {
        own.budget.protect_recent = plimsoll_core::turn::ProtectRecent::Tokens(500);
    })
    .await;
    let mut agent = ChatAgent::new(&proxy, false).told("go");
    let session = through(&mut agent, 5).await;
    let path = format!("sessions/{session}");
    let items = got(&proxy, &format!("{path}/items")).await;
    let items = items["items"].as_array().unwrap().iter();
    let ids: Vec<&str> = items
        .filter(|item| item["tool"] == "bash")
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    let ask = json!({"items": [ids[2]], "now": false});
    let (status, told) = posted(&proxy, &format!("{path}/evict"), &ask).await;
    assert_eq!(status, 202, "{told}");
    let mut passes = json!([]);
    while passes.as_array().unwrap().is_empty() {
        through(&mut agent, 1).await;
        passes = got(&proxy, &path).await["passes"].clone();
    }
    assert_eq!(passes[0]["trigger"], "budget");
    let pass = got(&proxy, &format!("{path}/passes/{}", passes[0]["turn"])).await;
    let moved = |id: &str| {
        let moves = pass["moves"].as_array().unwrap();
        moves.iter().any(|one| one["id"] == *id)
    };
    assert!(moved(ids[2]), "{pass}");
    assert_eq!(got(&proxy, &path).await["waiting"]["evictions"], json!([]));
    assert!(total(&proxy, ASKED).await > 0.0);
    none_refused(&provider);
}

#[tokio::test]
async fn what_may_never_be_evicted_is_refused_in_a_sentence() {
    let (_provider, proxy) = served(|own| {
        own.budget.ceiling = 40_000;
        own.budget.protect_recent = plimsoll_core::turn::ProtectRecent::Tokens(3_000);
    })
    .await;
    let mut agent = ChatAgent::new(&proxy, false).told("go");
    let session = through(&mut agent, 8).await;
    let path = format!("sessions/{session}");
    let evict = format!("{path}/evict");
    let page = got(&proxy, &format!("{path}/items")).await;
    let items = page["items"].as_array().unwrap();
    let of = |tool: &str, at: usize| {
        let mut all = items.iter().filter(|item| item["tool"] == *tool);
        all.nth(at).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let user = items.iter().find(|item| item["role"] == "user").unwrap();
    let user = user["id"].as_str().unwrap().to_owned();
    let bash = |at: usize| of("bash", at);
    let pinned = bash(1);
    let (status, _) = posted(&proxy, &format!("{path}/pin"), &json!({"ids": [pinned]})).await;
    assert_eq!(status, 202);
    for (name, status, code, says) in [
        (user, 409, "not_evictable", "what a user says always stays"),
        (
            of("delimiter", 0),
            409,
            "not_evictable",
            "with the whole of its episode",
        ),
        (
            bash(7),
            409,
            "not_evictable",
            "no answer has followed it yet",
        ),
        (bash(6), 409, "not_evictable", "newest 3000 tokens"),
        (pinned.clone(), 409, "not_evictable", "unpin it first"),
        ("second-look".to_owned(), 409, "not_evictable", "it is open"),
        (
            "bash:999".to_owned(),
            404,
            "unknown_item",
            "no item or episode",
        ),
        (
            "nothing".to_owned(),
            404,
            "unknown_item",
            "no item or episode",
        ),
    ] {
        for now in [false, true] {
            let ask = json!({"items": [bash(0), name], "now": now});
            let (got, refused) = posted(&proxy, &evict, &ask).await;
            let message = refused["error"]["message"].as_str().unwrap();
            assert_eq!(
                (got, &refused["error"]["code"]),
                (status, &json!(code)),
                "{refused}"
            );
            assert!(
                message.contains(says) && message.contains(&name),
                "{name}: {message}"
            );
        }
    }
    for body in [
        json!({"items": [], "now": true}),
        json!({"items": ["bash:4"]}),
    ] {
        let (status, refused) = posted(&proxy, &evict, &body).await;
        assert_eq!(
            (status, &refused["error"]["code"]),
            (400, &json!("bad_body"))
        );
    }
    // Nothing of it was noted. Unpinned, the item goes, and so does a closed episode.
    assert_eq!(got(&proxy, &path).await["waiting"]["evictions"], json!([]));
    posted(&proxy, &format!("{path}/unpin"), &json!({"ids": [pinned]})).await;
    through(&mut agent, 1).await;
    let ask = json!({"items": [pinned, "first-look"], "now": true});
    let (status, told) = posted(&proxy, &evict, &ask).await;
    assert_eq!(status, 202, "{told}");
    through(&mut agent, 1).await;
    let told = got(&proxy, &path).await;
    assert!(!told["episodes"][0]["gone"].is_null(), "{told}");
    let item = got(&proxy, &format!("{path}/items/{pinned}")).await;
    assert_ne!(item["mark"], "live");
    let (_, refused) = posted(
        &proxy,
        &evict,
        &json!({"items": ["first-look"], "now": true}),
    )
    .await;
    assert!(refused["error"]["message"].is_string(), "{refused}");
}

#[tokio::test]
async fn what_is_pinned_after_it_was_asked_stays_and_the_ask_waits_no_longer() {
    let provider = working().await;
    let proxy = Proxy::with(provider.addr, roomy).await;
    let mut agent = Agent::new(&proxy, DIALECTS[0], true, "pinned");
    agent.user("go");
    let mut session = String::new();
    for _ in 0..6 {
        session = turn(&mut agent).await;
    }
    let path = format!("sessions/{session}");
    let item = id(&proxy, &session, 2).await;
    let ask = json!({"items": [item], "now": true});
    assert_eq!(posted(&proxy, &format!("{path}/evict"), &ask).await.0, 202);
    agent.headers = vec![("x-plimsoll-pin", item)];
    turn(&mut agent).await;
    assert!(whole(&provider.newest()).contains(&2));
    let told = got(&proxy, &path).await;
    assert_eq!(
        (&told["passes"], &told["waiting"]["evictions"]),
        (&json!([]), &json!([]))
    );
}

#[tokio::test]
async fn what_waited_is_forgotten_by_a_restart_and_what_was_taken_is_not() {
    let provider = working().await;
    let directory = tempfile::tempdir().unwrap();
    let start = async || {
        Proxy::with(provider.addr, |own| {
            roomy(own);
            own.store.backend = Backend::Sled;
            own.store.path = directory.path().to_owned();
        })
        .await
    };
    let first = start().await;
    let mut agent = Agent::new(&first, DIALECTS[0], false, "restarted");
    agent.user("go");
    let mut session = String::new();
    for _ in 0..6 {
        session = turn(&mut agent).await;
    }
    let path = format!("sessions/{session}");
    let item = id(&first, &session, 2).await;
    let ask = json!({"items": [item], "now": true});
    assert_eq!(posted(&first, &format!("{path}/evict"), &ask).await.0, 202);
    first.end().await;
    let second = start().await;
    agent.at(&second);
    turn(&mut agent).await;
    assert_eq!(whole(&provider.newest()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(got(&second, &path).await["waiting"]["evictions"], json!([]));
    // The page judges by records alone, so that it asks again without the texts.
    let (status, told): (u16, Value) = posted(&second, &format!("{path}/evict"), &ask).await;
    assert_eq!(status, 202, "{told}");
    turn(&mut agent).await;
    let before = provider.newest();
    assert_eq!(whole(&before), [1, 3, 4, 5, 6, 7]);
    second.end().await;
    let third = start().await;
    agent.at(&third);
    turn(&mut agent).await;
    let (before, after) = (before.texts(), provider.newest().texts());
    assert_eq!(before[..], after[..before.len()]);
}

/// Somebody looks at a branch of a session and asks something of that: the session's other turns hear nothing of it.
#[tokio::test]
async fn what_is_asked_of_one_branch_is_done_in_no_other() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let provider = working().await;
            let proxy = Proxy::with(provider.addr, roomy).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "branching");
            agent.user("go");
            for _ in 0..4 {
                turn(&mut agent).await;
            }
            let mut other = agent.history.clone();
            for _ in 0..2 {
                turn(&mut agent).await;
            }
            let session = turn(&mut agent).await;
            let first = format!("sessions/{session}");
            let (second_item, fourth) =
                (id(&proxy, &session, 2).await, id(&proxy, &session, 4).await);
            let ask = json!({"items": [second_item], "now": true});
            let (status, _) = posted(&proxy, &format!("{first}/evict"), &ask).await;
            assert_eq!(status, 202);
            let pin = json!({"ids": [fourth]});
            assert_eq!(posted(&proxy, &format!("{first}/pin"), &pin).await.0, 202);
            // The agent goes back, and on from there otherwise.
            std::mem::swap(&mut agent.history, &mut other);
            agent.user("otherwise");
            for _ in 0..2 {
                assert_eq!(turn(&mut agent).await, session);
            }
            let case = format!("{dialect:?} {stream}");
            assert_eq!(whole(&provider.newest()), [1, 2, 3, 4, 5], "{case}");
            let waiting = got(&proxy, &first).await["waiting"].clone();
            let told = (&waiting["evictions"], &waiting["pins"]);
            assert_eq!(told, (&json!([second_item]), &json!(1)), "{case}");
            let rows = got(&proxy, "sessions").await["sessions"].clone();
            let rows = rows.as_array().unwrap();
            let branch = rows.iter().find(|row| row["branch"] == true).unwrap();
            let branch = format!("sessions/{}", branch["session"].as_str().unwrap());
            let told = got(&proxy, &branch).await;
            assert_eq!(told["pins"], json!([]), "{case}: {told}");
            assert_eq!(told["waiting"]["evictions"], json!([]), "{case}: {told}");
            // And the other way round.
            let name = branch.strip_prefix("sessions/").unwrap();
            let third = id(&proxy, name, 3).await;
            let ask = json!({"items": [third], "now": true});
            let (status, _) = posted(&proxy, &format!("{branch}/evict"), &ask).await;
            assert_eq!(status, 202);
            std::mem::swap(&mut agent.history, &mut other);
            turn(&mut agent).await;
            assert_eq!(whole(&provider.newest()), [1, 3, 4, 5, 6, 7], "{case}");
            let told = got(&proxy, &first).await;
            assert_eq!(told["pins"], json!([fourth]), "{case}: {told}");
            assert_eq!(told["waiting"]["evictions"], json!([]), "{case}: {told}");
            std::mem::swap(&mut agent.history, &mut other);
            turn(&mut agent).await;
            assert_eq!(whole(&provider.newest()), [1, 2, 4, 5, 6], "{case}");
        }
    }
}
