//! A model that loops over calls. Of hidden ones, some of each answer are kept, and all others are refused once and
//! forgotten. By some of those that the client runs the record is found.

use super::dialects::{Agent, Call, DIALECTS, Provider, Reply, call, says};
use super::support::Proxy;

const MANY: usize = 300;
/// The most hidden calls that are kept of one answer.
const KEPT: usize = 32;

/// Hidden calls of a hop, in front of a call of the client's if there is one.
fn calls(number: usize, bash: bool) -> Vec<Call> {
    let hidden = |at: usize| {
        let (id, name) = (format!("h{number}x{at}"), format!("look {at}"));
        let arguments = format!(r#"{{"action":"start","name":"{name}","type":"expl"}}"#);
        call(&id, "delimiter", arguments)
    };
    let mut calls: Vec<Call> = (0..MANY).map(hidden).collect();
    if bash {
        calls.insert(MANY / 2, call(&format!("b{number}"), "bash", "{}"));
    }
    calls
}

#[tokio::test]
async fn of_thousands_of_hidden_calls_some_are_kept() {
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let host = Provider::start(move |number, _| -> Reply {
            match number {
                0 => says("", calls(number, false)),
                1 => says("so far", calls(number, true)),
                _ => says("done", Vec::new()),
            }
        })
        .await;
        let proxy = Proxy::with(host.addr, |_| ()).await;
        let mut agent = Agent::new(&proxy, dialect, stream, "many");
        agent.user("look");
        let answer = agent.turn().await;
        let names: Vec<&str> = answer.calls.iter().map(|call| &*call.name).collect();
        assert_eq!(names, ["bash"], "{dialect:?} {stream}");
        assert_eq!(agent.turn().await.text, "done");
        let sent = host.newest();
        let calls = sent.calls();
        assert_eq!(calls.len(), 2 * KEPT + 1, "{dialect:?} {stream}");
        let told = |call: &Call| sent.result(&call.id).unwrap_or_default();
        let refused = calls
            .iter()
            .filter(|call| told(call).contains("further calls"));
        let refused: Vec<String> = refused.map(|call| call.id.clone()).collect();
        assert_eq!(refused, ["h0x31", "h1x31"], "{dialect:?} {stream}");
        assert!(calls.iter().all(|call| !told(call).is_empty()));
        assert!(sent.bytes.len() < 30_000, "{}", sent.bytes.len());
    }
}

#[tokio::test]
async fn what_was_refused_leaves_like_anything_else() {
    const REFUSED: usize = 8;
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let host = Provider::start(move |number, _| -> Reply {
            let refused = |at: usize| {
                let name = format!("part {number} of {at}: {}", "a long name ".repeat(60));
                let arguments = format!(r#"{{"action":"begin","name":"{name}","type":"expl"}}"#);
                call(&format!("h{number}x{at}"), "delimiter", arguments)
            };
            let mut calls: Vec<Call> = (0..REFUSED).map(refused).collect();
            calls.push(call(&format!("b{number}"), "bash", "{}"));
            says("so far", calls)
        })
        .await;
        let proxy = Proxy::with(host.addr, |config| config.budget.ceiling = 8_000).await;
        let mut agent = Agent::new(&proxy, dialect, stream, "refused");
        agent.user("look");
        for turn in 0..12 {
            let answer = agent.turn().await;
            let met = answer.header("x-plimsoll-budget");
            assert_eq!(met, "met", "{dialect:?} {stream} turn {turn}");
        }
    }
}

#[tokio::test]
async fn an_answer_of_many_calls_is_found_by_the_first_of_them() {
    const CALLS: usize = 2_000;
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let host = Provider::start(move |number, _| -> Reply {
            match number {
                0 => {
                    let run = |at: usize| call(&format!("b{at}"), "bash", "{}");
                    says("so far", (0..CALLS).map(run).collect())
                }
                _ => says("done", Vec::new()),
            }
        })
        .await;
        let proxy = Proxy::with(host.addr, |_| ()).await;
        let mut agent = Agent::new(&proxy, dialect, stream, "many");
        agent.user("look");
        agent.turn().await;
        let mut links = 0;
        let stored = proxy.app.store.each(&mut |batch| {
            links += batch.links.len();
            Ok(())
        });
        stored.unwrap();
        assert!(links < 100, "{dialect:?} {stream}: {links}");
        // Nothing but the ids of the calls leads there once the client has changed what stands before.
        agent.history[0]["content"] = "look, again".into();
        let answer = agent.turn().await;
        assert_eq!(
            answer.header("x-plimsoll-turn"),
            "2",
            "{dialect:?} {stream}"
        );
    }
}
