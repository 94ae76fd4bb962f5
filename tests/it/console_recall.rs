//! What a person asks to have back in view, over HTTP: an exchange stands at the tail as if the model had called
//! `recall`, in each wire format; no client sees it; it stays as it is and goes like anything else; and where a
//! provider would refuse it, it is refused at once.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use http::HeaderMap;
use plimsoll::config::{Backend, Config};
use plimsoll_scripted::{Form, Reply as ChatReply, Rule, Rules};
use serde_json::{Value, json};

use super::agent::{Agent as ChatAgent, bash, completion, newest, none_refused, provider};
use super::console::{got, posted, through};
use super::console_evict::{paired, turn, working, works};
use super::dialects::{Agent, DIALECTS, Dialect, Provider, Sent, call, says};
use super::openapi::Description;
use super::recall::{CEILING, output, working as worked};
use super::support::{Lenient, Proxy, answered};

fn tight(config: &mut Config) {
    config.budget.ceiling = CEILING;
    // `recall` is offered, and nobody is asked to mark anything.
    config.budget.guide_at = 0.0;
}

/// The ids of calls of a session that are not whole in view.
async fn evicted(proxy: &Proxy, session: &str) -> Vec<String> {
    let page = got(proxy, &format!("sessions/{session}/items")).await;
    let items = page["items"].as_array().unwrap().iter();
    let gone = items.filter(|item| {
        item["tool"] == "bash"
            && item["marks"]
                .as_array()
                .is_some_and(|marks| !marks.is_empty())
    });
    gone.map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Plays until something is evicted.
async fn played(proxy: &Proxy, agent: &mut Agent) -> (String, String) {
    agent.user("go");
    loop {
        let session = turn(agent).await;
        if let Some(first) = evicted(proxy, &session).await.first() {
            return (session, first.clone());
        }
    }
}

/// The results of hidden recalls in a request.
fn recalled(sent: &Sent) -> Vec<String> {
    let calls = sent.calls().into_iter();
    let recalls = calls.filter(|call| call.name == "recall");
    recalls
        .map(|call| sent.result(&call.id).unwrap_or_default())
        .collect()
}

/// A request is one that a strict provider takes.
#[track_caller]
fn valid(sent: &Sent) {
    paired(sent);
    let form = match sent.dialect() {
        Dialect::Chat => Form::Chat,
        Dialect::Responses => Form::Responses,
        Dialect::Messages => Form::Messages,
    };
    let mut rules = vec![Rule::StrictNames];
    rules.extend((form == Form::Messages).then_some(Rule::InputObjects));
    let rules = Rules::new(rules);
    let judged = rules.judge(form, &HeaderMap::new(), &sent.body);
    assert_eq!(judged.refusal, None, "{}", sent.body);
    if form == Form::Messages {
        let roles: Vec<&Value> = sent.body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["role"])
            .collect();
        assert!(roles.windows(2).all(|two| two[0] != two[1]), "{roles:?}");
    }
}

#[tokio::test]
async fn what_waits_is_taken_back() {
    let description = Description::read();
    let provider = working().await;
    let proxy = Proxy::with(provider.addr, tight).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, false, "withdrawing");
    let (session, item) = played(&proxy, &mut agent).await;
    let path = format!("sessions/{session}");
    let ask = json!({"items": [item], "now": true});
    assert_eq!(posted(&proxy, &format!("{path}/recall"), &ask).await.0, 202);
    let withdraw = format!("{path}/withdraw");
    // As for a recall, letters may be large or small; what nothing waits for is passed over.
    let back = json!({"items": [item.to_uppercase(), "none:1"]});
    let (status, told) = posted(&proxy, &withdraw, &back).await;
    assert_eq!(status, 202, "{told}");
    let faults = description.faults("post", "/api/sessions/{session}/withdraw", "202", &told);
    assert_eq!(faults, Vec::<String>::new(), "{told}");
    assert_eq!(told["recalls"], json!([]));
    turn(&mut agent).await;
    assert_eq!(recalled(&provider.newest()), Vec::<String>::new());
    let (status, told) = posted(&proxy, &withdraw, &json!({"item": item})).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!("bad_body")));
}

#[tokio::test]
async fn an_original_comes_back_at_the_tail_and_the_client_sees_nothing_of_it() {
    let description = Description::read();
    for dialect in DIALECTS {
        for stream in [false, true] {
            let provider = working().await;
            let proxy = Proxy::with(provider.addr, tight).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "recalling");
            let (session, item) = played(&proxy, &mut agent).await;
            let path = format!("sessions/{session}");
            let ask = json!({"items": [item], "now": true});
            let (status, told) = posted(&proxy, &format!("{path}/recall"), &ask).await;
            assert_eq!(status, 202, "{told}");
            let faults = description.faults("post", "/api/sessions/{session}/recall", "202", &told);
            assert_eq!(faults, Vec::<String>::new(), "{told}");
            assert!(told["tokens"].as_u64() > Some(500), "{told}");
            assert_eq!(
                got(&proxy, &path).await["waiting"]["recalls"],
                json!([item])
            );
            let before = provider.sent().len();
            let answer = agent.ask().await;
            assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
            assert!(!answer.bytes.contains("recall"), "{}", answer.bytes);
            assert_eq!(
                provider.sent().len(),
                before + 1,
                "nothing is asked of the model for it"
            );
            agent.keep(&answer);
            for call in &answer.calls {
                agent.result(&call.id, &output(&call.id));
            }
            let sent = provider.newest();
            valid(&sent);
            let results = recalled(&sent);
            assert_eq!(results.len(), 1, "{dialect:?} {stream}: {}", sent.body);
            assert!(results[0].contains("b1 line 45:"), "{}", results[0]);
            assert_eq!(sent.calls().last().unwrap().name, "recall");
            let told = got(&proxy, &path).await;
            assert_eq!(told["waiting"]["recalls"], json!([]));
            let page = got(&proxy, &format!("{path}/items")).await;
            let hidden = page["items"].as_array().unwrap().iter();
            let hidden = hidden.filter(|one| one["tool"] == "recall").count();
            assert_eq!(hidden, 1, "{page}");
            // It is shown the same ever after, until it goes like any other content.
            turn(&mut agent).await;
            let next = provider.newest();
            valid(&next);
            assert!(
                recalled(&next) == results
                    || got(&proxy, &path).await["passes"].as_array().unwrap().len() > 1
            );
            for _ in 0..14 {
                turn(&mut agent).await;
                valid(&provider.newest());
            }
            let last = recalled(&provider.newest());
            assert!(
                !last.iter().any(|result| result.contains("b1 line 45:")),
                "{last:?}"
            );
        }
    }
}

/// The bound on hops is for those of the model. An exchange that it did not have takes none of them.
#[tokio::test]
async fn what_comes_back_takes_no_hop_of_the_models() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let (notes, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (annotates, noted) = (left.clone(), notes.clone());
            let provider = Provider::start(move |_, sent: &Sent| {
                let may = |left: usize| left.checked_sub(1);
                if annotates.fetch_update(SeqCst, SeqCst, may).is_ok() {
                    let note = noted.fetch_add(1, SeqCst);
                    let start =
                        json!({"action": "start", "name": format!("e{note}"), "type": "expl"});
                    return says("", vec![call(&format!("d{note}"), "delimiter", start)]);
                }
                works(sent)
            })
            .await;
            let proxy = Proxy::with(provider.addr, |config| {
                tight(config);
                config.delimiter.hops = 2;
            })
            .await;
            let mut agent = Agent::new(&proxy, dialect, stream, "hopping");
            let (session, item) = played(&proxy, &mut agent).await;
            let ask = json!({"items": [item], "now": true});
            let path = format!("sessions/{session}/recall");
            assert_eq!(posted(&proxy, &path, &ask).await.0, 202);
            // The first of its two hops only annotates, and the second goes on with the work.
            left.store(1, SeqCst);
            let before = provider.sent().len();
            let answer = agent.ask().await;
            assert_eq!(provider.sent().len(), before + 2, "{dialect:?} {stream}");
            assert_eq!(
                answer.calls.len(),
                1,
                "{dialect:?} {stream}: {}",
                answer.bytes
            );
            agent.keep(&answer);
            for call in &answer.calls {
                agent.result(&call.id, &output(&call.id));
            }
            assert_eq!(recalled(&provider.newest()).len(), 1);
            // And no more than two.
            left.store(9, SeqCst);
            let before = provider.sent().len();
            agent.ask().await;
            assert_eq!(provider.sent().len(), before + 2, "{dialect:?} {stream}");
        }
    }
}

#[tokio::test]
async fn a_strict_provider_takes_it() {
    for stream in [false, true] {
        let provider = provider(worked()).await;
        let proxy = Proxy::with(provider.address, tight).await;
        let mut agent = ChatAgent::new(&proxy, stream).told("go");
        let session = through(&mut agent, 9).await;
        let item = evicted(&proxy, &session).await[0].clone();
        let path = format!("sessions/{session}");
        let ask = json!({"items": [item, "first"], "now": true});
        let (status, told) = posted(&proxy, &format!("{path}/recall"), &ask).await;
        assert_eq!(status, 202, "{told}");
        for words in ["more", "bash b9", "more", "bash b10", "more"] {
            agent.user(words);
            through(&mut agent, 1).await;
        }
        let last = newest(&provider).value().to_string();
        assert!(last.contains("recalled bash:"), "{last}");
        assert_eq!(got(&proxy, &path).await["waiting"]["recalls"], json!([]));
        none_refused(&provider);
    }
}

#[tokio::test]
async fn what_came_back_stands_where_it_stood_after_a_restart() {
    let provider = working().await;
    let directory = tempfile::tempdir().unwrap();
    let start = async || {
        Proxy::with(provider.addr, |own| {
            tight(own);
            own.store.backend = Backend::Sled;
            own.store.path = directory.path().to_owned();
        })
        .await
    };
    let first = start().await;
    let mut agent = Agent::new(&first, Dialect::Chat, true, "restarted");
    let (session, item) = played(&first, &mut agent).await;
    let path = format!("sessions/{session}/recall");
    let ask = json!({"items": [item], "now": true});
    assert_eq!(posted(&first, &path, &ask).await.0, 202);
    first.end().await;
    // What waited is forgotten.
    let second = start().await;
    agent.at(&second);
    turn(&mut agent).await;
    assert_eq!(recalled(&provider.newest()), Vec::<String>::new());
    assert_eq!(posted(&second, &path, &ask).await.0, 202);
    turn(&mut agent).await;
    let before = provider.newest();
    assert_eq!(recalled(&before).len(), 1, "{}", before.body);
    second.end().await;
    // What stands is not.
    let third = start().await;
    agent.at(&third);
    turn(&mut agent).await;
    let after = provider.newest();
    valid(&after);
    assert_eq!(recalled(&after).len(), 1, "{}", after.body);
}

#[tokio::test]
async fn without_a_word_of_now_it_waits_for_a_turn_with_a_pass() {
    let provider = working().await;
    let proxy = Proxy::with(provider.addr, tight).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, false, "waiting");
    let (session, item) = played(&proxy, &mut agent).await;
    let path = format!("sessions/{session}");
    let (status, _) = posted(&proxy, &format!("{path}/recall"), &json!({"items": [item]})).await;
    assert_eq!(status, 202);
    let passes = got(&proxy, &path).await["passes"].as_array().unwrap().len();
    loop {
        turn(&mut agent).await;
        let told = got(&proxy, &path).await;
        let brought = recalled(&provider.newest()).len();
        if told["passes"].as_array().unwrap().len() > passes {
            assert_eq!(
                (brought, &told["waiting"]["recalls"]),
                (1, &json!([])),
                "{told}"
            );
            return;
        }
        assert_eq!((brought, &told["waiting"]["recalls"]), (0, &json!([item])));
    }
}

#[tokio::test]
async fn what_can_not_come_back_is_refused_in_a_sentence() {
    let provider = working().await;
    let proxy = Proxy::with(provider.addr, tight).await;
    let mut agent = Agent::new(&proxy, Dialect::Messages, false, "refused");
    let (session, item) = played(&proxy, &mut agent).await;
    let path = format!("sessions/{session}/recall");
    let page = got(&proxy, &format!("sessions/{session}/items")).await;
    let items = page["items"].as_array().unwrap();
    let live = items.iter().rfind(|one| one["tool"] == "bash").unwrap()["id"].clone();
    let user = items.iter().find(|one| one["role"] == "user").unwrap()["id"].clone();
    for (name, status, code, says) in [
        (user, 409, "not_recallable", "always stands in view"),
        (live, 409, "not_recallable", "as it came"),
        (json!("bash:999"), 404, "unknown_item", "no item or episode"),
    ] {
        let (got, refused) =
            posted(&proxy, &path, &json!({"items": [item, name], "now": true})).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert_eq!(
            (got, &refused["error"]["code"]),
            (status, &json!(code)),
            "{refused}"
        );
        assert!(message.contains(says), "{message}");
    }
    let (status, _) = posted(&proxy, &path, &json!({"items": [], "now": true})).await;
    assert_eq!(status, 400);
    // A session whose provider would refuse the exchange.
    let ask = json!({"items": [item], "now": true});
    agent.fields = vec![("thinking", json!({"type": "enabled", "budget_tokens": 500}))];
    turn(&mut agent).await;
    let (status, refused) = posted(&proxy, &path, &ask).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert_eq!(status, 409, "{refused}");
    assert!(
        message.contains("runs with thinking") && message.contains("Copy the line"),
        "{message}"
    );
    agent.fields = vec![("thinking", json!({"type": "disabled"}))];
    turn(&mut agent).await;
    assert_eq!(posted(&proxy, &path, &ask).await.0, 202);
    // It thinks again before the ask was heard: nothing is put into its mouth.
    agent.fields = vec![("thinking", json!({"type": "adaptive"}))];
    turn(&mut agent).await;
    assert_eq!(recalled(&provider.newest()), Vec::<String>::new());
}

#[tokio::test]
async fn models_that_want_their_reasoning_back_are_told_nothing_that_they_did_not_say() {
    let provider = working().await;
    let proxy = Proxy::with(provider.addr, tight).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, false, "deepseek");
    agent.fields = vec![("model", json!("deepseek-v4-pro"))];
    let (session, item) = played(&proxy, &mut agent).await;
    let ask = json!({"items": [item], "now": true});
    let (status, refused) = posted(&proxy, &format!("sessions/{session}/recall"), &ask).await;
    assert_eq!(status, 409, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("reasoning back"), "{message}");
    // And where nothing is recalled, nothing is.
    let plain = Proxy::with(provider.addr, |own| {
        tight(own);
        own.recall.enabled = false;
    })
    .await;
    let mut agent = Agent::new(&plain, Dialect::Chat, false, "plain");
    let (session, item) = played(&plain, &mut agent).await;
    let ask = json!({"items": [item], "now": true});
    let (status, refused) = posted(&plain, &format!("sessions/{session}/recall"), &ask).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert_eq!(status, 409, "{refused}");
    assert!(message.contains("not offered"), "{message}");
}

/// An upstream that refuses the exchange is sent the view without it, in the same turn, and nothing is
/// learned from that.
#[tokio::test]
async fn an_upstream_that_refuses_the_exchange_is_not_asked_again() {
    let upstream = Lenient::start(|_, body| {
        let text = String::from_utf8_lossy(body).into_owned();
        if text.contains("recalled bash:") {
            let error = json!({"error": {"message": "a call that nobody made", "type": "invalid_request_error"}});
            return answered(400, error);
        }
        let sent = Sent::of(body);
        let next = sent.calls().iter().filter(|call| call.name == "bash").count() + 1;
        completion(&ChatReply::calls(vec![bash(&format!("b{next}"))]), body)
    })
    .await;
    let proxy = Proxy::with(upstream.addr, tight).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, false, "unheard");
    let (session, item) = played(&proxy, &mut agent).await;
    let path = format!("sessions/{session}");
    let ask = json!({"items": [item], "now": true});
    assert_eq!(posted(&proxy, &format!("{path}/recall"), &ask).await.0, 202);
    let before = upstream.bodies().len();
    turn(&mut agent).await;
    assert_eq!(upstream.bodies().len(), before + 2);
    let last = Sent::of(upstream.bodies().last().unwrap());
    assert!(
        last.tools().contains(&"recall".to_owned()),
        "the tools are offered as before"
    );
    assert_eq!(got(&proxy, &path).await["waiting"]["recalls"], json!([]));
    let before = upstream.bodies().len();
    turn(&mut agent).await;
    assert_eq!(upstream.bodies().len(), before + 1);
}
