//! Turns whose later hop fails, and clients that leave: who is told what, what is tried again, and
//! what of it is remembered.

use std::cell::Cell;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use plimsoll_proxy::pipeline::App;
use plimsoll_scripted::{Fault, Reply, Sent, Style, UsagePlace};
use serde_json::json;

use super::agent::{
    Agent, bash, brief, completion, delimiter, explore, learned, message, metric, newest,
    none_refused, outline, plan, provider, total, until_metric,
};
use super::support::{Lenient, Proxy, soon};

/// A hop that only annotates, saying something.
fn first(text: &str) -> Reply {
    Reply::calls(vec![explore("d1", "a")]).saying(text)
}

/// Faults that a later hop meets before it says anything.
fn refusals() -> Vec<(Fault, u16)> {
    let status = |status| Fault::Status {
        status,
        retry_after: Some(7),
        retry_after_ms: Some(1),
    };
    vec![
        (status(429), 429),
        (status(500), 500),
        (status(503), 503),
        (status(529), 529),
        (status(400), 400),
        (Fault::CloseBeforeHeaders, 502),
    ]
}

/// A stream that shows the client nothing: no role, and a hidden call.
const QUIET: &str = concat!(
    r#"data: {"id":"c","created":1,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"#,
    r#""id":"d1","type":"function","function":{"name":"delimiter","#,
    r#""arguments":"{\"action\":\"end\"}"}}]},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","created":1,"choices":[{"index":0,"delta":{},"#,
    r#""finish_reason":"tool_calls"}]}"#,
    "\n\ndata: [DONE]\n\n"
);

#[tokio::test]
async fn a_later_hop_that_fails_before_the_client_saw_a_byte_is_its_answer() {
    for stream in [false, true] {
        for status in [400, 429, 500, 503, 529] {
            // What is refused for how it is made is tried once more as another view, and as the client's
            // own request if that is another.
            let refused = match (status, stream) {
                (400, true) => 3,
                (400, false) => 2,
                _ => 1,
            };
            let upstream = Lenient::start(move |number, body| match number {
                0 if stream => Response::builder()
                    .header("content-type", "text/event-stream")
                    .body(Body::from(QUIET))
                    .unwrap(),
                0 => completion(&first(""), body),
                _ if number <= refused => Response::builder()
                    .status(status)
                    .header("content-type", "text/plain; odd")
                    .header("retry-after", "7")
                    .body(Body::from("no \u{1F6D1} {"))
                    .unwrap(),
                _ => completion(&Reply::text("Then."), body),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            let answer = agent.ask().await.hides();
            assert_eq!(answer.status, status, "{stream} {}", answer.text());
            assert_eq!(answer.text(), "no \u{1F6D1} {", "byte for byte");
            assert_eq!(answer.header("content-type"), "text/plain; odd");
            assert_eq!(answer.header("retry-after"), "7");
            assert_eq!(
                upstream.seen().len(),
                refused + 1,
                "the client retries, not the proxy"
            );
            // The client does so, and nothing of the first try is in its way.
            assert_eq!(agent.turn().await.heard.text, "Then.");
            let last = upstream.newest()["messages"].clone();
            assert_eq!(brief(last.as_array().unwrap()), ["system", "user"]);
        }
    }
}

/// The clock is read before each hop is prepared: every second time it fails.
fn fails_in_later_hops(app: &mut App) {
    thread_local! {
        static READ: Cell<usize> = const { Cell::new(0) };
    }
    READ.set(0);
    app.clock = || {
        READ.set(READ.get() + 1);
        assert_ne!(READ.get() % 2, 0, "injected");
        1_000
    };
}

#[tokio::test]
async fn a_mistake_behind_the_first_byte_breaks_the_connection() {
    let provider = provider(plan([("go", vec![first("First.")])])).await;
    let proxy = Proxy::wired(provider.address, |_| {}, fails_in_later_hops).await;
    let agent = Agent::new(&proxy, true).told("go");
    for _ in 0..2 {
        let answer = agent.ask().await.hides();
        assert_eq!((answer.status, answer.heard.text.as_str()), (200, "First."));
        assert!(answer.broken, "an end that is none: {}", answer.text());
    }
    until_metric(&proxy, r#"plimsoll_fail_open_total{stage="panic"} 2"#).await;
    let blamed = total(&proxy, "plimsoll_stream_aborts_total").await;
    assert_eq!(blamed, 0.0, "no client left");
}

#[tokio::test]
async fn a_later_hop_that_cannot_be_had_is_an_error_of_ours() {
    for stream in [false, true] {
        let upstream = Lenient::start(move |_, body| {
            if stream {
                Response::builder()
                    .header("content-type", "text/event-stream")
                    .body(Body::from(QUIET))
                    .unwrap()
            } else {
                completion(&first(""), body)
            }
        })
        .await;
        let proxy = Proxy::wired(upstream.addr, |_| {}, fails_in_later_hops).await;
        let agent = Agent::new(&proxy, stream).told("go");
        let answer = agent.ask().await.hides();
        assert_eq!(
            answer.error(),
            (
                502,
                "server_error".to_owned(),
                "null".to_owned(),
                "turn_interrupted".to_owned()
            )
        );
        let counted = r#"plimsoll_http_requests_total{method="POST",route="chat_completions",status="502"} 1"#;
        until_metric(&proxy, counted).await;
    }
}

#[tokio::test]
async fn a_later_hop_that_fails_after_the_client_saw_a_byte_is_tried_again() {
    for (fault, status) in refusals() {
        // The connection of the first hop may be kept. If it closes, that costs no try of the hop's own.
        let kept = usize::from(status == 502);
        for fails in [1, 4, 5 + kept] {
            let mut replies = vec![Reply::text("x").fault(fault); fails];
            replies.push(Reply::text("Then."));
            let provider = provider(plan([("go", vec![first("First.")]), ("d1", replies)])).await;
            let proxy = Proxy::with(provider.address, |config| config.upstream.retries = 0).await;
            let agent = Agent::new(&proxy, true).told("go");
            let answer = agent.ask().await.hides();
            assert_eq!(answer.status, 200);
            let what = format!("{fault:?} {fails} {}", answer.text());
            if status == 400 {
                // Another view, without the hidden exchange, is answered as if that had not been.
                let answer = answer.whole();
                assert_eq!(answer.heard.text, "First.\n\ndone", "{what}");
                assert_eq!(provider.chats().len(), 3, "{what}");
            } else if fails <= 4 {
                let answer = answer.whole();
                assert_eq!(answer.heard.text, "First.\n\nThen.", "{what}");
                assert_eq!(provider.chats().len(), 2 + fails, "{what}");
            } else {
                assert_eq!(answer.heard.text, "First.", "{what}");
                // Agents ask again behind a cut, and some behind nothing else.
                assert_eq!(answer.heard.error, None, "{what}");
                assert!(answer.broken, "{what}");
                assert!(!answer.text().contains("[DONE]"), "{what}");
                let made = provider.chats().len();
                assert!((6..=6 + kept).contains(&made), "{made} {what}");
            }
        }
    }
}

#[tokio::test]
async fn a_later_hop_that_is_cut_is_a_cut_for_the_client() {
    for fault in [
        Fault::CloseAt { event: 1 },
        Fault::EndAt { event: 1 },
        Fault::HalfUtf8At { event: 1 },
        Fault::ErrorEventAt { event: 1 },
        Fault::StallAt { event: 1 },
        Fault::NeverAnswer,
    ] {
        for stream in [false, true] {
            let provider = provider(plan([
                ("go", vec![first("First.")]),
                ("d1", vec![Reply::text("Then.").fault(fault)]),
            ]))
            .await;
            let proxy = Proxy::with(provider.address, |config| {
                config.upstream.retries = 0;
                config.upstream.idle_timeout = Duration::from_millis(500);
                config.upstream.first_byte_timeout = Duration::from_millis(500);
            })
            .await;
            let answer = Agent::new(&proxy, stream).told("go").ask().await.hides();
            let what = format!("{fault:?} {stream}: {} {}", answer.status, answer.text());
            if stream {
                assert_eq!(answer.status, 200, "{what}");
                assert!(answer.text().contains("First."), "{what}");
                // The upstream's own error event is the client's; nothing is told in its place.
                let told = matches!(fault, Fault::ErrorEventAt { .. });
                assert_eq!(answer.heard.error.is_some(), told, "{what}");
                assert_eq!(answer.broken, !told, "{what}");
                assert!(!answer.text().contains("[DONE]"), "{what}");
            } else {
                assert!(answer.heard.finish.is_none(), "{what}");
                let bad = answer.status >= 500 || answer.broken || answer.heard.error.is_some();
                let half = matches!(fault, Fault::EndAt { .. } | Fault::HalfUtf8At { .. });
                assert!(bad || half, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_hidden_hop_that_was_cut_behind_its_finish_reason_goes_on() {
    // Event 4 of `d1`'s hop is [DONE]: role, name, arguments, finish, [DONE] or usage.
    let call = delimiter("d1", &json!({"action": "end"}));
    let style = Style {
        arguments: None,
        usage: UsagePlace::Never,
        ..Style::default()
    };
    for fault in [Fault::CloseAt { event: 3 }, Fault::EndAt { event: 3 }] {
        let reply = Reply::calls(vec![call.clone()]).style(style.clone());
        let provider = provider(plan([
            ("go", vec![reply.fault(fault)]),
            ("d1", vec![Reply::text("Then.")]),
        ]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let answer = Agent::new(&proxy, true).told("go").ask().await.whole();
        assert_eq!(answer.heard.text, "Then.", "{fault:?}");
    }
}

#[tokio::test]
async fn a_comment_keeps_the_client_while_a_hidden_hop_is_silent() {
    let slow = Style {
        last_delay: Duration::from_millis(200),
        ..Style::default()
    };
    let overloaded = Fault::Status {
        status: 503,
        retry_after: None,
        retry_after_ms: Some(300),
    };
    let text = || Reply::text("Then.");
    // (what the later hop gets) -> whether it comes to something
    let table = [
        (vec![text().style(slow)], true),
        (vec![text().fault(overloaded), text()], true),
        (vec![text().fault(Fault::NeverAnswer)], false),
    ];
    for (later, whole) in table {
        let hidden = Reply::calls(vec![explore("d1", "a")]);
        let provider = provider(plan([("go", vec![hidden]), ("d1", later)])).await;
        let proxy = Proxy::with(provider.address, |config| {
            config.streams.heartbeat = Duration::from_millis(10);
            config.upstream.first_byte_timeout = Duration::from_secs(1);
            config.upstream.retries = 0;
        })
        .await;
        let answer = Agent::new(&proxy, true).told("go").ask().await.hides();
        assert_eq!(answer.status, 200, "a heartbeat settles the status");
        assert!(answer.text().contains(": plimsoll\n"), "{}", answer.text());
        if whole {
            assert_eq!(answer.whole().heard.text, "Then.");
        } else {
            // A dead upstream is noticed behind the heartbeats.
            assert!(answer.broken, "{}", answer.text());
            assert!(!answer.text().contains("[DONE]"), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_context_that_is_too_long_for_a_later_hop_gets_its_emergency_pass() {
    for stream in [false, true] {
        for said in ["First.", ""] {
            let provider = provider(plan([
                ("go", vec![Reply::calls(vec![bash("b1")])]),
                ("b1", vec![Reply::calls(vec![bash("b2")])]),
                ("b2", vec![first(said)]),
                (
                    "d1",
                    vec![
                        Reply::text("x").fault(Fault::ContextLength { window: 5_000 }),
                        Reply::text("Then."),
                    ],
                ),
            ]))
            .await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            agent.work(&"lorem ipsum ".repeat(2_000)).await;
            agent.work("small").await;
            let answer = agent.turn().await;
            assert!(answer.heard.text.ends_with("Then."), "{}", answer.text());
            let sizes: Vec<usize> = provider.chats().iter().map(|r| r.size).collect();
            assert_eq!(sizes.len(), 5, "{sizes:?}");
            assert!(sizes[4] < sizes[3] && sizes[4] < 4_000, "{sizes:?}");
            none_refused(&provider);
        }
    }
}

/// Reads the head and as many bytes of the body as hold a text, then leaves.
async fn leave_after(agent: &Agent, text: &str) {
    let mut response = soon(agent.request().body(agent.body()).send())
        .await
        .unwrap();
    let mut got = String::new();
    while !got.contains(text) {
        let chunk = soon(response.chunk()).await.unwrap();
        got.push_str(&String::from_utf8_lossy(&chunk.expect("an early end")));
    }
}

#[tokio::test]
async fn a_client_that_leaves_keeps_what_it_was_handed() {
    // A client leaves once it holds the first call, and carries on with it.
    let calls = vec![
        learned("d0", "nothing"),
        bash("b1"),
        explore("d1", "a"),
        bash("b2"),
    ];
    let slow = Style {
        last_delay: Duration::from_secs(60),
        ..Style::default()
    };
    let cut = Reply::calls(calls).style(slow);
    let provider = provider(plan([("go", vec![cut])])).await;
    let proxy = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&proxy, true).told("go");
    leave_after(&agent, "run b2").await;
    until_metric(
        &proxy,
        r#"plimsoll_stream_aborts_total{phase="body",side="client"} 1"#,
    )
    .await;
    assert_eq!(
        provider.chats()[0].sent(),
        Sent::Abandoned,
        "the upstream is cancelled"
    );
    agent
        .history
        .push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "b1", "type": "function",
            "function": {"name": "bash", "arguments": bash("b1").arguments}}]}));
    agent.result("b1", "out");
    agent.turn().await;
    none_refused(&provider);
    assert_eq!(
        outline(&newest(&provider)),
        [
            "system",
            "user",
            "assistant d0 b1 d1",
            "tool d0",
            "tool d1",
            "tool b1"
        ]
    );
}

#[tokio::test]
async fn a_client_that_leaves_between_hops_keeps_what_it_was_handed() {
    for fault in [Fault::NeverAnswer, Fault::StallAt { event: 0 }] {
        let provider = provider(plan([
            ("go", vec![first("First.")]),
            ("d1", vec![Reply::text("Then.").fault(fault)]),
        ]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, true).told("go");
        leave_after(&agent, "First.").await;
        until_metric(
            &proxy,
            r#"plimsoll_stream_aborts_total{phase="between_hops",side="client"} 1"#,
        )
        .await;
        agent
            .history
            .push(json!({"role": "assistant", "content": "First."}));
        agent.user("go on");
        agent.turn().await;
        none_refused(&provider);
        let last = newest(&provider);
        assert_eq!(
            outline(&last),
            ["system", "user", "assistant d1", "tool d1", "user"],
            "{fault:?}"
        );
        assert_eq!(message(&last, 2)["content"], "First.");
    }
}

#[tokio::test]
async fn an_upstream_is_read_to_its_end_where_config_says_so() {
    let slow = Style {
        last_delay: Duration::from_millis(100),
        ..Style::default()
    };
    let reply = Reply::calls(vec![explore("d1", "a"), bash("b1")]).style(slow);
    let provider = provider(plan([("go", vec![reply])])).await;
    let proxy = Proxy::with(provider.address, |config| {
        config.streams.finish_cancelled = true;
    })
    .await;
    let agent = Agent::new(&proxy, true).told("go");
    leave_after(&agent, "run b1").await;
    until_metric(
        &proxy,
        r#"plimsoll_stream_aborts_total{phase="body",side="client"} 1"#,
    )
    .await;
    assert_eq!(provider.chats()[0].sent(), Sent::Finished);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_cancels_the_turn() {
    for (stream, fault) in [
        (true, Fault::NeverAnswer),
        (true, Fault::StallAt { event: 0 }),
        (false, Fault::NeverAnswer),
        (false, Fault::StallAt { event: 0 }),
    ] {
        let provider = provider(plan([(
            "go",
            vec![Reply::text("x").fault(fault), Reply::text("y")],
        )]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let agent = Agent::new(&proxy, stream).told("go");
        let sending = tokio::spawn(agent.request().body(agent.body()).send());
        soon(async {
            while provider.chats().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        sending.abort();
        soon(async {
            while provider.chats()[0].sent() == Sent::Open {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(provider.chats()[0].sent(), Sent::Abandoned);
        for line in [
            r#"plimsoll_stream_aborts_total{phase="first_byte",side="client"} 1"#,
            r#"plimsoll_http_requests_total{method="POST",route="chat_completions",status="none"} 1"#,
        ] {
            until_metric(&proxy, line).await;
        }
        assert_eq!(
            agent.ask().await.whole().heard.text,
            "y",
            "the process lives"
        );
    }
}

#[tokio::test]
async fn an_error_instead_of_a_stream_is_counted_as_one() {
    let upstream = Lenient::start(|number, _| match number {
        0 => Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from(QUIET))
            .unwrap(),
        _ => panic!("the upstream breaks off, injected"),
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    let answer = Agent::new(&proxy, true).told("go").ask().await.hides();
    assert_eq!(answer.status, 502, "{}", answer.text());
    let line =
        r#"plimsoll_http_requests_total{method="POST",route="chat_completions",status="502"} 1"#;
    until_metric(&proxy, line).await;
}

#[tokio::test]
async fn a_client_that_leaves_an_unstreamed_turn_cancels_it_and_has_been_handed_nothing() {
    // In the first hop, and in one behind a hidden hop; whatever is set for streams.
    for (finish_cancelled, hidden) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let stalls = Reply::text("x").fault(Fault::StallAt { event: 0 });
        let last = vec![stalls, Reply::text("y")];
        let provider = provider(match hidden {
            0 => plan([("go", last)]),
            _ => plan([("go", vec![first("First.")]), ("d1", last)]),
        })
        .await;
        let proxy = Proxy::with(provider.address, |config| {
            config.streams.finish_cancelled = finish_cancelled;
        })
        .await;
        let agent = Agent::new(&proxy, false).told("go");
        let sending = tokio::spawn(agent.request().body(agent.body()).send());
        soon(async {
            while provider.chats().len() <= hidden {
                tokio::task::yield_now().await;
            }
        })
        .await;
        sending.abort();
        until_metric(
            &proxy,
            r#"plimsoll_stream_aborts_total{phase="first_byte",side="client"} 1"#,
        )
        .await;
        soon(async {
            while provider.chats()[hidden].sent() == Sent::Open {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(provider.chats()[hidden].sent(), Sent::Abandoned);
        // The hops that were paid for are in the account; a record there is none.
        let answered = metric(&proxy, r#"plimsoll_token_estimate_ratio_count"#).await;
        let expect = format!("plimsoll_token_estimate_ratio_count {hidden}");
        assert_eq!(answered, Some(expect));
        let recorded = r#"plimsoll_store_op_seconds_count{op="commit"} 0"#;
        assert!(metric(&proxy, recorded).await.is_some());
        let again = agent.ask().await.whole().heard.text;
        assert_eq!(
            again,
            ["y", "First.\n\ny"][hidden],
            "asked again, all is new"
        );
        none_refused(&provider);
    }
}

#[tokio::test]
async fn a_later_hop_that_is_no_stream_is_a_cut() {
    let upstream = Lenient::start(|number, body| {
        if number == 0 {
            completion(&first("First."), body)
        } else {
            Response::new(Body::from("<html>maintenance</html>"))
        }
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    let answer = Agent::new(&proxy, true).told("go").ask().await.hides();
    assert_eq!(answer.heard.text, "First.");
    assert!(answer.broken, "{}", answer.text());
    assert!(!answer.text().contains("[DONE]"), "{}", answer.text());
}
