//! What a session asks beside its work, such as a title: its answer's usage is read and counted as the provider
//! reports it, in every dialect, streamed and whole, however the request is handled.

use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};

use super::dialects::{Agent, DIALECTS, Provider, Told, says};
use super::metered::{Counted, side, value};
use super::support::{Lenient, Proxy, client, soon};

const TOLD: Told = Told {
    input: 1_000,
    cached: 0,
    written: 0,
    output: 10,
    asked: false,
    said: None,
};

#[tokio::test]
async fn usage_is_read_however_a_request_is_handled() {
    let titled: &[(&'static str, Value)] = &[];
    let chosen: &[(&'static str, Value)] = &[("n", json!(1))];
    let cases = [
        ("a title", titled, "manage"),
        ("a title", chosen, "manage"),
        ("unmanaged", titled, "off"),
        ("watched", titled, "observe"),
    ];
    for dialect in DIALECTS {
        for stream in [false, true] {
            for (what, fields, mode) in cases {
                let provider = Provider::telling(|_, _| (says("A title", Vec::new()), TOLD)).await;
                let proxy = Proxy::before(provider.addr).await;
                let mut agent = Agent::new(&proxy, dialect, stream, "aside");
                agent.tools.clear();
                agent.fields.push(("model", json!("gpt-5")));
                agent.fields.extend_from_slice(fields);
                agent.headers.push(("x-plimsoll-mode", mode.to_owned()));
                agent.user("Write a title for this conversation.");
                let answer = agent.ask().await;
                assert!(answer.whole, "{}", answer.bytes);
                let shown = proxy.app.metrics_text();
                let expect = Counted {
                    input: 1_000,
                    cached: 0,
                    written: 0,
                    output: 10,
                    requests: 1,
                };
                let aside = value(&shown, "plimsoll_ledger_role_units_total{role=\"aside\"}");
                let main = value(&shown, "plimsoll_ledger_role_units_total{role=\"main\"}");
                // What is not managed is not decoded, so nobody knows what it offers.
                let (paid, other) = if mode == "off" {
                    (main, aside)
                } else {
                    (aside, main)
                };
                assert!(paid > 1_000.0 && other == 0.0, "{mode}: {aside} {main}");
                for name in ["sent", "client"] {
                    assert_eq!(
                        side(&shown, name, 1),
                        expect,
                        "{dialect:?} {stream} {what} {mode} {name}"
                    );
                }
            }
        }
    }
}

/// An answer in a coding that is not read passes as it came, and is counted as such.
#[tokio::test]
async fn what_is_not_read_is_counted() {
    let upstream = Lenient::start(|_, _| {
        let response = Response::builder().header("content-type", "application/json");
        let response = response.header("content-encoding", "br");
        response.body(Body::from("not read")).unwrap()
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    let mut agent = Agent::new(&proxy, DIALECTS[0], false, "aside");
    agent.tools.clear();
    agent.user("Write a title for this conversation.");
    let sending = client().post(&agent.url).body(agent.body());
    let answer = soon(sending.send()).await.unwrap();
    assert_eq!(soon(answer.bytes()).await.unwrap(), "not read");
    let shown = proxy.app.metrics_text();
    assert_eq!(value(&shown, "plimsoll_unread_answers_total"), 1.0);
}
