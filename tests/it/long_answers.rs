//! Answers that are longer than what is kept of one, and requests of more messages than there is memory for: they pass, are
//! not recorded, and cost no more memory than others.

use serde_json::json;

use super::agent::total;
use super::dialects::{Agent, DIALECTS, Provider, call, says};
use super::support::Proxy;

const CAP: usize = 16 << 10;

fn long() -> String {
    "a line of a very long answer\n".repeat(3 * CAP / 29)
}

async fn proxy(host: &Provider) -> Proxy {
    Proxy::with(host.addr, |config| config.store.answer_cap = CAP).await
}

#[tokio::test]
async fn a_long_answer_arrives_and_is_not_recorded() {
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let host = Provider::start(|number, _| match number {
            1 => says(&long(), vec![call("c1", "bash", r#"{"command":"ls"}"#)]),
            _ => says(&format!("short {number}"), vec![]),
        })
        .await;
        let proxy = proxy(&host).await;
        let mut agent = Agent::new(&proxy, dialect, stream, "long");
        // The turn that is not recorded is no turn of the session, which goes on behind it.
        for (turn, number) in [(0, "1"), (1, "2"), (2, "2"), (3, "3")] {
            agent.user(&format!("go {turn}"));
            let answer = agent.turn().await;
            let what = format!("{dialect:?} {stream} {turn}");
            assert!(
                answer.status == 200 && answer.whole,
                "{what}: {}",
                answer.bytes
            );
            assert_eq!(answer.header("x-plimsoll-fail-open"), "", "{what}");
            assert_eq!(answer.header("x-plimsoll-turn"), number, "{what}");
            if turn == 1 {
                assert_eq!(answer.text, long(), "{what}");
                assert_eq!(answer.calls.len(), 1, "{what}");
            } else {
                assert_eq!(answer.text, format!("short {turn}"), "{what}");
            }
        }
        assert_eq!(host.sent().len(), 4, "{dialect:?} {stream}");
        let unrecorded = total(&proxy, r#"plimsoll_unrecorded_total{why="long"}"#).await;
        assert_eq!(unrecorded, 1.0, "{dialect:?} {stream}");
    }
}

#[tokio::test]
async fn a_hidden_call_of_a_long_answer_ends_the_turn() {
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let host = Provider::start(|number, _| match number {
            0 => {
                let start = json!({"action": "start", "name": "look", "type": "expl"});
                says(&long(), vec![call("d0", "delimiter", start)])
            }
            _ => says("short", vec![]),
        })
        .await;
        let proxy = proxy(&host).await;
        let mut agent = Agent::new(&proxy, dialect, stream, "long");
        agent.user("go");
        let answer = agent.turn().await;
        let what = format!("{dialect:?} {stream}");
        assert!(
            answer.status == 200 && answer.whole,
            "{what}: {}",
            answer.bytes
        );
        assert_eq!(answer.text, long(), "{what}");
        assert!(answer.calls.is_empty(), "{what}");
        assert!(!answer.bytes.contains("delimiter"), "{what}");
        assert_eq!(
            host.sent().len(),
            1,
            "{what}: nobody can go on from what was forgotten"
        );
        agent.user("go on");
        let answer = agent.turn().await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (200, "short"),
            "{what}"
        );
    }
}

#[tokio::test]
async fn more_messages_than_there_is_memory_for_go_up_as_they_came() {
    let host = Provider::start(|_, _| says("short", vec![])).await;
    let proxy = Proxy::with(host.addr, |config| {
        config.server.body_cap = 1 << 20;
        config.server.body_budget = 0;
    })
    .await;
    for dialect in DIALECTS {
        let mut agent = Agent::new(&proxy, dialect, false, "many");
        for _ in 0..8_000 {
            agent.user("a");
        }
        let answer = agent.ask().await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (200, "short"),
            "{dialect:?}"
        );
        assert_eq!(
            answer.header("x-plimsoll-unmanaged"),
            "messages",
            "{dialect:?}"
        );
        let sent = String::from_utf8(host.newest().bytes).unwrap();
        assert_eq!(sent, agent.body(), "{dialect:?}");
        // All room is given back.
        agent.history.truncate(500);
        let answer = agent.ask().await;
        assert_eq!(answer.header("x-plimsoll-unmanaged"), "", "{dialect:?}");
        assert_eq!(answer.status, 200, "{dialect:?}");
    }
}

#[tokio::test]
async fn a_whole_answer_that_has_no_room_to_be_taken_apart_arrives() {
    let text = "a line of a very long answer\n".repeat((3 << 19) / 29);
    for dialect in DIALECTS {
        let said = text.clone();
        let host = Provider::start(move |_, _| says(&said, vec![])).await;
        let proxy = Proxy::with(host.addr, |config| {
            config.server.body_cap = 64 << 10;
            // Enough to hold the answer, and not for what would be made of it.
            config.server.body_budget = 2 << 20;
            config.store.answer_cap = CAP;
        })
        .await;
        for turn in 0..3 {
            let mut agent = Agent::new(&proxy, dialect, false, "whole");
            agent.user(&format!("go {turn}"));
            let answer = agent.turn().await;
            assert!(answer.text == text, "{dialect:?} {turn}");
            assert!(!answer.bytes.contains("delimiter"), "{dialect:?} {turn}");
        }
        assert_eq!(host.sent().len(), 3, "{dialect:?}");
        let unrecorded = total(&proxy, r#"plimsoll_unrecorded_total{why="long"}"#).await;
        assert_eq!(unrecorded, 3.0, "{dialect:?}");
    }
}
