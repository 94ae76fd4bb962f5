//! Budgets that can't be met: surfaced or refused, before the first hop and behind it, in each
//! dialect.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use plimsoll::config::Config;
use plimsoll_core::policy::Partition;
use plimsoll_core::turn::Unmet;
use plimsoll_scripted::Reply;
use serde_json::{Value, json};

use super::agent::{Agent, Answer, bash, completion, metric, total, until_metric};
use super::support::{Lenient, Proxy, client, error_of, soon};

#[tokio::test]
async fn a_budget_that_is_refused_is_told_in_the_callers_dialect() {
    let long = "user words ".repeat(3_000);
    let user = json!([{"role": "user", "content": long}]);
    let table = [
        ("/v1/chat/completions", "messages", "function"),
        ("/v1/responses", "input", "function"),
        ("/v1/messages", "messages", "custom"),
    ];
    for (path, member, kind) in table {
        let upstream = Lenient::saying(Reply::text("done")).await;
        let refuse = |config: &mut Config| config.budget.unmet = Unmet::Refuse;
        let proxy = Proxy::with(upstream.addr, refuse).await;
        let mut body = json!({
            "model": "m", "max_tokens": 9,
            "tools": [{"type": kind, "name": "bash", "function": {"name": "bash"}}],
        });
        body[member] = user.clone();
        let sent = client().post(proxy.url(path)).body(body.to_string());
        let answer = soon(sent.header("x-plimsoll-budget", "4000").send()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 400, "{path}");
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        let error = &answer["error"];
        assert_eq!(error["type"], "invalid_request_error");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("user text"), "{message}");
        if path == "/v1/messages" {
            assert_eq!(answer["type"], "error");
            assert!(message.ends_with("(context_budget_exceeded)"), "{message}");
        } else {
            assert_eq!(error["code"], "context_budget_exceeded");
            assert_eq!(error["param"], member);
        }
        assert!(upstream.seen().is_empty(), "nothing is sent");
    }
}

/// A stream of three hidden calls that are too long for their budget, behind this text.
fn swollen(path: &str, text: &str) -> String {
    let long = "a word or two ".repeat(1_000);
    let arguments = json!({"action": "end", "description": long}).to_string();
    let ids = ["d1", "d2", "d3"];
    let events = match path {
        "/v1/chat/completions" => {
            let chunk = |delta: Value, finish: Value| {
                let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
                json!({"id": "c", "created": 1, "choices": [choice]})
            };
            let call = |index: usize| {
                json!({"index": index, "id": ids[index], "type": "function",
                    "function": {"name": "delimiter", "arguments": arguments}})
            };
            let said = (!text.is_empty()).then(|| chunk(json!({"content": text}), json!(null)));
            let calls = json!({"tool_calls": [call(0), call(1), call(2)]});
            said.into_iter()
                .chain([chunk(calls, json!("tool_calls"))])
                .collect()
        }
        "/v1/responses" => {
            let items = ids.map(|id| {
                json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id,
                    "name": "delimiter", "arguments": arguments, "status": "completed"})
            });
            let response = |status: &str, output: &Value| {
                json!({"id": "r", "object": "response", "created_at": 1, "status": status,
                    "output": output})
            };
            let begun = response("in_progress", &json!([]));
            let mut events = vec![json!({"type": "response.created", "response": begun})];
            for (at, item) in items.iter().enumerate() {
                for kind in ["added", "done"] {
                    let kind = format!("response.output_item.{kind}");
                    events.push(json!({"type": kind, "output_index": at, "item": item}));
                }
            }
            let whole = response("completed", &json!(items));
            events.push(json!({"type": "response.completed", "response": whole}));
            events
        }
        _ => {
            let mut events = vec![json!({"type": "message_start", "message": {"id": "m",
                "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "usage": {"input_tokens": 9, "output_tokens": 1}}})];
            for (at, id) in ids.iter().enumerate() {
                events.push(
                    json!({"type": "content_block_start", "index": at, "content_block":
                    {"type": "tool_use", "id": id, "name": "delimiter", "input": {}}}),
                );
                events.push(json!({"type": "content_block_delta", "index": at, "delta":
                    {"type": "input_json_delta", "partial_json": arguments}}));
                events.push(json!({"type": "content_block_stop", "index": at}));
            }
            events.push(
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 9}}),
            );
            events.push(json!({"type": "message_stop"}));
            events
        }
    };
    let frames = events.iter().map(|event| match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    });
    frames.collect()
}

#[tokio::test]
async fn a_later_hop_over_a_budget_that_is_refused_says_so() {
    // (path, text before the call) -> whether the client has heard anything by then
    for (path, text, heard) in [
        ("/v1/chat/completions", "", false),
        ("/v1/chat/completions", "First.", true),
        ("/v1/responses", "", true),
        ("/v1/messages", "", true),
    ] {
        let upstream = Lenient::start(move |_, _| {
            let built = Response::builder().header("content-type", "text/event-stream");
            built.body(Body::from(swollen(path, text))).unwrap()
        })
        .await;
        let refuse = |config: &mut Config| config.budget.unmet = Unmet::Refuse;
        let proxy = Proxy::with(upstream.addr, refuse).await;
        let (member, kind) = match path {
            "/v1/responses" => ("input", "function"),
            "/v1/messages" => ("messages", "custom"),
            _ => ("messages", "function"),
        };
        let mut body = json!({"model": "m", "max_tokens": 9, "stream": true,
            "tools": [{"type": kind, "name": "bash", "function": {"name": "bash"}}]});
        body[member] = json!([{"role": "user", "content": "go"}]);
        let sent = client().post(proxy.url(path)).body(body.to_string());
        let sent = sent.header("x-plimsoll-budget", "4000").send();
        let answer = soon(sent).await.unwrap();
        if heard {
            assert_eq!(answer.status(), 200, "{path}");
            let text = soon(answer.text()).await.unwrap();
            let last = text.trim_end().rsplit("data: ").next().unwrap();
            assert!(last.contains("context_budget_exceeded"), "{path} {text}");
            assert!(
                last.contains("nothing more can be evicted"),
                "{path} {text}"
            );
            assert!(
                !text.contains("[DONE]") && !text.contains("delimiter"),
                "{text}"
            );
        } else {
            let (status, kind, param, code, message) = error_of(answer).await;
            assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
            assert_eq!(param, "messages");
            assert_eq!(code, "context_budget_exceeded");
            assert!(message.contains("nothing more can be evicted"), "{message}");
            let counted = r#"plimsoll_http_requests_total{method="POST",route="chat_completions",status="400"} 1"#;
            until_metric(&proxy, counted).await;
            let aborts = total(&proxy, "plimsoll_stream_aborts_total").await;
            assert_eq!(aborts, 0.0, "nothing broke");
        }
        assert_eq!(upstream.seen().len(), 1, "nothing more is sent");
    }
}

#[tokio::test]
async fn a_budget_that_cannot_be_met_is_surfaced_or_refused() {
    let long = "user words ".repeat(3_000);
    for stream in [false, true] {
        for unmet in [Unmet::Surface, Unmet::Refuse] {
            let upstream = Lenient::saying(Reply::text("done")).await;
            let proxy = Proxy::with(upstream.addr, |config| config.budget.unmet = unmet).await;
            let agent = Agent::new(&proxy, stream).told(&long);
            let narrow = agent.clone().with("x-plimsoll-budget", "4000");
            let answer = narrow.ask().await;
            match unmet {
                Unmet::Surface => {
                    assert_eq!(answer.header("x-plimsoll-budget"), "exceeded");
                    assert_eq!(answer.header("x-plimsoll-zone"), "red");
                    answer.whole();
                    assert_eq!(upstream.newest()["messages"][1]["content"], long);
                }
                Unmet::Refuse => {
                    let (status, kind, param, code) = answer.error();
                    assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
                    assert_eq!(
                        (param.as_str(), code.as_str()),
                        ("messages", "context_budget_exceeded")
                    );
                    assert!(answer.text().contains("user text"), "{}", answer.text());
                    assert!(upstream.seen().is_empty(), "nothing is sent");
                }
            }
            assert!(
                metric(&proxy, "plimsoll_budget_unmet_total")
                    .await
                    .is_some()
            );
            // The budget is not remembered.
            assert_eq!(agent.ask().await.whole().header("x-plimsoll-budget"), "met");
        }
    }
}

/// How often what went up did not go on from what went up before.
fn breaks(bodies: &[Bytes]) -> usize {
    let lists: Vec<Vec<Value>> = bodies
        .iter()
        .map(|body| {
            let body: Value = serde_json::from_slice(body).unwrap();
            body["messages"].as_array().unwrap().clone()
        })
        .collect();
    let broken = |pair: &&[Vec<Value>]| !pair[1].starts_with(&pair[0]);
    lists.windows(2).filter(broken).count()
}

#[tokio::test]
async fn a_budget_out_of_reach_is_passed_for_only_where_it_pays() {
    const TURNS: usize = 50;
    // Words of a result -> how often the prefix breaks: each pass frees 400 tokens, and waits for
    // no more.
    for (words, range) in [(5, 0..=2), (60, 8..=14), (150, 16..=26)] {
        let upstream = Lenient::start(|number, body| {
            completion(&Reply::calls(vec![bash(&format!("b{number}"))]), body)
        })
        .await;
        let proxy = Proxy::with(upstream.addr, |config| config.budget.ceiling = 8_000).await;
        // All results are the same, and nothing is to point at them.
        let mut agent = Agent::new(&proxy, false)
            .told(&"user words ".repeat(12_000))
            .with("x-plimsoll-policy", "cwl");
        for turn in 0..TURNS {
            let answer = agent.work(&"ten more ".repeat(words)).await;
            assert_eq!(answer.header("x-plimsoll-budget"), "exceeded", "{turn}");
        }
        let broken = breaks(&upstream.bodies());
        assert!(range.contains(&broken), "{words}: {broken}");
        // What is not taken is counted. The series is there from the start, so its value counts.
        let of_ceiling = "plimsoll_passes_declined_total{trigger=\"budget\"}";
        let declined = total(&proxy, of_ceiling).await;
        assert!(declined >= 10.0, "{words}: {declined}");
    }
}

#[tokio::test]
async fn a_parted_window_says_what_each_part_takes_and_lends_no_reserve() {
    let upstream = Lenient::saying(Reply::text("done")).await;
    let proxy = Proxy::with(upstream.addr, |config| {
        let parts = [(0.02, Partition::Messages), (0.01, Partition::Auxiliary)];
        for (share, partition) in parts {
            *config.partitions.share(partition) = share;
        }
        *config.partitions.share(Partition::Tools) = 0.01;
        *config.partitions.share(Partition::System) = 0.01;
        config.partitions.reserve = 0.5;
    })
    .await;
    let mut agent = Agent::new(&proxy, false).told("go");
    let parts = |answer: &Answer| -> Vec<(String, u64, u64)> {
        let said = answer.header("x-plimsoll-partitions");
        let part = |part: &str| {
            let (name, sizes) = part.split_once('=').unwrap();
            let (used, allowed) = sizes.split_once('/').unwrap();
            (
                name.to_owned(),
                used.parse().unwrap(),
                allowed.parse().unwrap(),
            )
        };
        said.split(", ").map(part).collect()
    };
    let small = parts(&agent.turn().await);
    let names: Vec<&str> = small.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["messages", "auxiliary", "tools", "system"]);
    let room: u64 = small.iter().map(|(.., allowed)| allowed).sum();
    assert!(
        small.iter().all(|(_, used, allowed)| used <= allowed),
        "{small:?}"
    );
    // More than the share of messages and less than all shares: it is lent.
    agent.user(&"user words ".repeat(usize::try_from(small[0].2).unwrap()));
    let answer = agent.turn().await;
    let large = parts(&answer);
    assert!(large[0].1 > small[0].2, "{large:?}");
    assert_eq!(answer.header("x-plimsoll-budget"), "met");
    assert_eq!(large.iter().map(|(.., allowed)| allowed).sum::<u64>(), room);
    // More than all of them: what is reserved is not lent.
    agent.user(&"user words ".repeat(usize::try_from(room).unwrap()));
    let answer = agent.turn().await;
    assert_eq!(answer.header("x-plimsoll-budget"), "exceeded");
    let over = parts(&answer);
    assert!(over[0].1 > over[0].2 && over[0].2 <= room, "{over:?}");
}
