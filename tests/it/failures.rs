//! An upstream that refuses, breaks off, stalls or lies within a managed turn: its own refusals
//! arrive untouched, a cut never looks like an end, and what was handed out can be gone on with.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::future::join_all;
use plimsoll::config::Config;
use plimsoll_core::commit::Floor;
use plimsoll_core::policy::Order;
use plimsoll_core::turn::Guidance;
use plimsoll_scripted::{Fault, IndexStyle, Options, Provider, Reply, Script, Style, Verdict};
use serde_json::{Value, json};

use super::agent::{
    Agent, Answer, bash, completion, explore, extends, last_key, learned, metric, newest,
    none_refused, outline, plan, provider,
};
use super::support::{Lenient, Proxy, nobody};

#[tokio::test]
async fn a_refusal_arrives_as_it_is() {
    for stream in [false, true] {
        for status in [401, 403, 409, 429, 500, 502, 503, 529] {
            let upstream = Lenient::start(move |_, _| {
                Response::builder()
                    .status(status)
                    .header("content-type", "application/problem+json")
                    .header("retry-after", "17")
                    .header("x-request-id", "req_1")
                    .body(Body::from("{ \"odd\" : 1e3 }\n"))
                    .unwrap()
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let answer = Agent::new(&proxy, stream).told("go").ask().await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.text(), "{ \"odd\" : 1e3 }\n");
            for (name, value) in [
                ("content-type", "application/problem+json"),
                ("retry-after", "17"),
                ("x-request-id", "req_1"),
                ("x-plimsoll-fail-open", ""),
            ] {
                assert_eq!(answer.header(name), value, "{status} {name}");
            }
            assert_eq!(upstream.seen().len(), 1, "{status}: the client retries");
        }
    }
}

/// What an agent that goes on with what it was handed does after a stream was cut: it keeps the
/// calls whose arguments are whole.
async fn carry_on(mut agent: Agent, mut answer: Answer) {
    let whole = |arguments: &str| serde_json::from_str::<Value>(arguments).is_ok();
    answer
        .heard
        .calls
        .retain(|call| !call.id.is_empty() && whole(&call.arguments));
    if !answer.heard.text.is_empty() || !answer.heard.calls.is_empty() {
        agent.keep(&answer.heard);
    }
    for call in &answer.heard.calls {
        agent.result(&call.id, "out");
    }
    if answer.heard.calls.is_empty() {
        agent.user("go on");
    }
    let next = agent.turn().await;
    assert_eq!(next.heard.text, "done");
}

/// Faults at one event, by name.
fn fault(name: &str, event: usize) -> Fault {
    match name {
        "close" => Fault::CloseAt { event },
        "end" => Fault::EndAt { event },
        "error" => Fault::ErrorEventAt { event },
        "half" => Fault::HalfUtf8At { event },
        "stall" => Fault::StallAt { event },
        _ => Fault::GarbageAt { event },
    }
}

fn styles() -> Vec<Style> {
    vec![
        Style::default(),
        Style {
            index: IndexStyle::Omitted,
            arguments: None,
            role_frame: false,
            crlf: true,
            ..Style::default()
        },
        Style {
            cut: Some(11),
            name: Some(3),
            text: 9,
            ..Style::default()
        },
    ]
}

/// The answer that is cut: text, hidden calls around visible ones.
fn mixed(said: &str, style: usize) -> Reply {
    let calls = vec![
        learned("d1", "nothing yet"),
        bash("b1"),
        explore("d2", said),
        bash("b2"),
    ];
    Reply::calls(calls)
        .saying("I look around.")
        .style(styles()[style].clone())
}

/// A provider that is told by the user's words which fault to meet where.
async fn cutting() -> Provider {
    provider(Script::ask(|view| {
        let key = last_key(view.messages());
        let words: Vec<&str> = key.split(' ').collect();
        match words[..] {
            ["cut", name, event, style] => {
                mixed(&key, style.parse().unwrap()).fault(fault(name, event.parse().unwrap()))
            }
            _ => Reply::text("done"),
        }
    }))
    .await
}

#[tokio::test]
async fn a_stream_that_is_cut_anywhere_never_looks_whole_and_can_be_gone_on_with() {
    let provider = cutting().await;
    let proxy = Proxy::with(provider.address, |config| {
        config.upstream.idle_timeout = Duration::from_secs(3);
        // Long enough for the heads of all these turns at once.
        config.upstream.first_byte_timeout = Duration::from_secs(20);
    })
    .await;
    let mut cases = Vec::new();
    for name in ["close", "end", "error", "half", "stall", "garbage"] {
        for style in 0..styles().len() {
            for event in 0..24 {
                cases.push((name, style, event));
            }
        }
    }
    let struck = join_all(cases.into_iter().map(|(name, style, event)| {
        let agent = Agent::new(&proxy, true).told(&format!("cut {name} {event} {style}"));
        async move {
            let answer = agent.ask().await.hides();
            let what = format!("{name} {event} {style}: {}", answer.text());
            let told = answer.broken || answer.heard.error.is_some() || answer.status == 502;
            let faulty = told || !answer.heard.faults.is_empty();
            if name != "garbage" {
                let ended = answer.heard.finish.is_some();
                assert!(told || ended, "a cut looks like an end: {what}");
                assert!(!(told && answer.text().contains("[DONE]")), "{what}");
            }
            if name != "error" {
                // The upstream said no such thing, and a client that heard something can't be
                // answered any more.
                let silent = answer.heard.text.is_empty() && answer.heard.calls.is_empty();
                assert!(answer.status == 200 || silent, "{what}");
                assert_eq!(answer.heard.error.is_some(), answer.status == 502, "{what}");
            }
            carry_on(agent, answer).await;
            faulty
        }
    }))
    .await;
    let struck = struck.into_iter().filter(|faulty| *faulty).count();
    assert!(struck > 150, "only {struck} faults were met");
    none_refused(&provider);
    for request in provider.chats() {
        let messages = outline(&request);
        let hidden = messages.iter().filter(|line| line.contains("b1")).count();
        assert_ne!(hidden, 1, "a call without its result: {messages:?}");
        // Whatever hidden call was complete when its visible neighbour was is still there.
        if messages.iter().any(|line| line == "tool b1") {
            assert!(
                messages.iter().any(|line| line == "tool d1"),
                "{messages:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_unstreamed_answer_that_breaks_off_is_an_error() {
    // What is whole HTTP but no completion is the upstream's own word.
    for (name, code) in [
        ("close", "upstream_broken"),
        ("stall", "upstream_broken"),
        ("end", ""),
        ("half", ""),
        ("garbage", ""),
    ] {
        let provider = cutting().await;
        let proxy = Proxy::with(provider.address, |config| {
            config.upstream.idle_timeout = Duration::from_millis(500);
            config.upstream.first_byte_timeout = Duration::from_millis(500);
        })
        .await;
        let agent = Agent::new(&proxy, false).told(&format!("cut {name} 0 0"));
        let answer = agent.ask().await;
        if code.is_empty() {
            assert_eq!(answer.status, 200, "{name}");
            assert!(answer.heard.calls.is_empty() && answer.heard.finish.is_none());
        } else {
            let error = answer.error();
            assert_eq!((error.0, error.3.as_str()), (502, code), "{name}");
        }
        let counted = format!(
            "plimsoll_http_requests_total{{method=\"POST\",route=\"chat_completions\",status=\"{}\"}} 1",
            answer.status
        );
        assert!(
            metric(&proxy, &counted).await.is_some(),
            "{name}: not counted"
        );
        carry_on(agent, answer).await;
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_told_in_our_words() {
    for stream in [false, true] {
        let (_held, upstream) = nobody();
        let proxy = Proxy::with(upstream, |config| config.upstream.retries = 0).await;
        let answer = Agent::new(&proxy, stream).told("go").ask().await;
        let (status, kind, _, code) = answer.error();
        assert_eq!((status, kind.as_str()), (502, "server_error"));
        assert_eq!(code, "upstream_unreachable");
    }
}

#[tokio::test]
async fn silence_before_the_first_byte_is_told_in_our_words() {
    for stream in [false, true] {
        let provider = provider(plan([(
            "go",
            vec![Reply::text("x").fault(Fault::NeverAnswer), Reply::text("y")],
        )]))
        .await;
        let proxy = Proxy::with(provider.address, |config| {
            config.upstream.first_byte_timeout = Duration::from_secs(1);
        })
        .await;
        let agent = Agent::new(&proxy, stream).told("go");
        let (status, kind, _, code) = agent.ask().await.error();
        assert_eq!((status, kind.as_str()), (504, "server_error"));
        assert_eq!(code, "upstream_timeout");
        assert_eq!(agent.ask().await.whole().heard.text, "y");
    }
}

#[tokio::test]
async fn an_answer_in_another_form_than_asked_for_is_still_read() {
    for asked in [false, true] {
        let upstream = Lenient::start(move |number, body| {
            let reply = match number {
                0 => Reply::calls(vec![explore("d1", "a"), bash("b1")]),
                _ => Reply::text("done"),
            };
            // The client wants one form; the upstream answers the other.
            let other = json!({"stream": !asked}).to_string();
            let _ = body;
            completion(&reply, other.as_bytes())
        })
        .await;
        let proxy = Proxy::before(upstream.addr).await;
        let mut agent = Agent::new(&proxy, !asked).told("go");
        agent.fields.insert("stream".to_owned(), Value::Null);
        let body = agent.body().replace(
            &format!("\"stream\":{}", !asked),
            &format!("\"stream\":{asked}"),
        );
        let answer = agent.post(body).await.whole();
        assert_eq!(answer.heard.calls, [bash("b1")]);
    }
}

#[tokio::test]
async fn an_answer_that_is_coded_against_our_asking_is_had_again_without_our_tool() {
    let upstream = Lenient::start(|_, body| {
        let mut response = completion(&Reply::text("x"), body);
        let coding = http::HeaderValue::from_static("br");
        response.headers_mut().insert("content-encoding", coding);
        response
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    for stream in [false, true] {
        let answer = Agent::new(&proxy, stream).told("go").ask().await;
        assert_eq!(answer.header("content-encoding"), "br");
        assert_eq!(answer.header("x-plimsoll-fail-open"), "intercept");
    }
    // What can't be read may call a hidden tool, so the client gets the answer to its own request.
    let offered: Vec<bool> = upstream
        .seen()
        .iter()
        .map(|seen| String::from_utf8_lossy(&seen.body).contains("delimiter"))
        .collect();
    assert_eq!(offered, [true, false, true, false]);
    assert_eq!(upstream.seen()[0].headers["accept-encoding"], "identity");
}

#[tokio::test]
async fn a_changed_body_that_is_refused_goes_up_once_as_it_came() {
    // (what the changed body gets, what the original gets) -> (requests, fail open)
    let table = [
        (400, 200, 2, "refused"),
        (404, 200, 2, "refused"),
        (413, 200, 2, "refused"),
        (422, 200, 2, "refused"),
        (400, 400, 2, "refused_twice"),
        (422, 429, 2, "refused"),
        (401, 200, 1, ""),
        (500, 200, 1, ""),
    ];
    for stream in [false, true] {
        for (changed, original, requests, fail_open) in table {
            let upstream = Lenient::start(move |number, body| {
                let status = [changed, original][number.min(1)];
                if status == 200 {
                    return completion(&Reply::text("plain"), body);
                }
                Response::builder()
                    .status(status)
                    .header("content-type", "application/json")
                    .body(Body::from(format!(
                        r#"{{"error":{{"message":"no {number}"}}}}"#
                    )))
                    .unwrap()
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let agent = Agent::new(&proxy, stream).told("go");
            let answer = agent.ask().await;
            let what = format!("{changed} {original} {}", answer.text());
            assert_eq!(upstream.seen().len(), requests, "{what}");
            assert_eq!(answer.header("x-plimsoll-fail-open"), fail_open, "{what}");
            let last = requests - 1;
            assert_eq!(answer.status, [changed, original][last], "{what}");
            if answer.status == 200 {
                assert_eq!(answer.whole().heard.text, "plain");
            } else {
                assert!(answer.text().contains(&format!("no {last}")), "{what}");
            }
            assert_ne!(upstream.bodies()[0], agent.body(), "the tool was in it");
            if requests == 2 {
                assert_eq!(upstream.bodies()[1], agent.body(), "untouched");
                let counted = format!("plimsoll_fail_open_total{{stage={fail_open:?}}} 1");
                assert!(metric(&proxy, &counted).await.is_some(), "not counted");
            }
        }
    }
}

#[tokio::test]
async fn a_turn_that_went_up_as_it_came_is_a_gap() {
    let refusing = Script::ask(|view| match last_key(view.messages()).as_str() {
        "go" => Reply::calls(vec![explore("d1", "a"), bash("b1")]),
        "b1" if view.offers("delimiter") => Reply::error(422, r#"{"error":{"message":"no"}}"#),
        "b1" => Reply::calls(vec![bash("b2")]),
        _ => Reply::text("done"),
    });
    for stream in [false, true] {
        let provider = provider(refusing.clone()).await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work("out").await;
        let gap = agent.work("out").await;
        assert_eq!(gap.header("x-plimsoll-fail-open"), "refused");
        agent.turn().await;
        none_refused(&provider);
        let last = newest(&provider);
        assert_eq!(
            outline(&last),
            [
                "system",
                "user",
                "assistant d1 b1",
                "tool d1",
                "tool b1",
                "assistant b2",
                "tool b2"
            ]
        );
        let chats = provider.chats();
        extends(&[chats[1].clone(), chats[3].clone()]);
    }
}

/// A provider that refuses what is longer than this.
async fn narrow(window: usize, script: Script) -> Provider {
    let options = Options {
        window: Some(window),
        ..Options::default()
    };
    Provider::start(script, options).await.unwrap()
}

#[tokio::test]
async fn a_context_that_is_too_long_gets_one_emergency_pass() {
    for stream in [false, true] {
        let provider = narrow(
            5_000,
            plan([
                ("go", vec![Reply::calls(vec![bash("b1")])]),
                ("b1", vec![Reply::calls(vec![bash("b2")])]),
                ("b2", vec![Reply::calls(vec![bash("b3")])]),
            ]),
        )
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work(&"lorem ipsum ".repeat(1_200)).await;
        agent.work(&"dolor sit ".repeat(700)).await;
        agent.work("small").await;
        assert_eq!(agent.turn().await.heard.text, "done");
        let refused: Vec<bool> = provider
            .chats()
            .iter()
            .map(|request| request.verdict != Verdict::Accepted)
            .collect();
        assert_eq!(
            refused,
            [false, false, true, false, false],
            "one retry, once"
        );
        let counted = metric(&proxy, "plimsoll_passes_total{trigger=\"emergency\"} 1").await;
        assert!(counted.is_some());
        extends(&provider.chats()[3..]);
    }
}

#[tokio::test]
async fn what_no_pass_can_shorten_is_refused_in_the_upstreams_words() {
    for stream in [false, true] {
        let provider = narrow(1_000, plan([])).await;
        let proxy = Proxy::before(provider.address).await;
        let agent = Agent::new(&proxy, stream).told(&"user words ".repeat(1_000));
        let answer = agent.ask().await;
        let (status, kind, param, code) = answer.error();
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert_eq!(
            (param.as_str(), code.as_str()),
            ("messages", "context_length_exceeded")
        );
        // Nothing can be evicted, but what the proxy adds can be left out: it is never the reason.
        let asked = provider.chats();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[1].body, agent.body());
        assert_eq!(answer.header("x-plimsoll-fail-open"), "refused_twice");
    }
}

#[tokio::test]
async fn a_context_that_stays_too_long_is_tried_once_more_and_no_more() {
    // Without a window in its text: the size that was refused is what counts.
    let refusal = r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#;
    for stream in [false, true] {
        let provider = provider(plan([
            ("go", vec![Reply::calls(vec![bash("b1")])]),
            ("b1", vec![Reply::calls(vec![bash("b2")])]),
            ("b2", vec![Reply::error(400, refusal)]),
        ]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work(&"lorem ipsum ".repeat(1_200)).await;
        agent.work("small").await;
        let answer = agent.ask().await;
        assert_eq!((answer.status, answer.text().as_str()), (400, refusal));
        let sizes: Vec<usize> = provider.chats().iter().map(|r| r.size).collect();
        assert_eq!(sizes.len(), 4, "{sizes:?}");
        assert!(sizes[3] * 10 < sizes[2] * 8, "{sizes:?}");
    }
}

/// The published order never takes a prologue, nor anything else where it has no candidate: an
/// emergency changes nothing about that.
#[tokio::test]
async fn a_refusal_stands_where_the_published_order_has_no_candidate() {
    let paper = |config: &mut Config| {
        config.budget.order = Order::Paper;
        // All work before the first episode is prologue only where the model was asked from the start.
        config.budget.guide_at = 0.0;
    };
    let refusal = r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#;
    for stream in [false, true] {
        let provider = provider(plan([
            ("go", vec![Reply::calls(vec![bash("b1")])]),
            ("b1", vec![Reply::calls(vec![bash("b2")])]),
            ("b2", vec![Reply::error(400, refusal)]),
        ]))
        .await;
        let proxy = Proxy::with(provider.address, paper).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work(&"lorem ipsum ".repeat(1_200)).await;
        agent.work("small").await;
        let answer = agent.ask().await;
        assert_eq!((answer.status, answer.text().as_str()), (400, refusal));
        let chats = provider.chats();
        assert_eq!(chats.len(), 4);
        assert_eq!(chats[3].body, agent.body(), "the client's own bytes, whole");
        let counted = metric(&proxy, "plimsoll_passes_total{trigger=\"emergency\"} 0").await;
        assert!(counted.is_some(), "no pass came of it");
    }
}

#[tokio::test]
async fn marks_of_a_refused_try_stay_where_they_are() {
    // The order in which each pass takes one pair out, which is an episode of its own here: of an
    // open one nothing goes.
    let floor = |config: &mut Config| {
        config.budget.ceiling = 8_000;
        config.budget.order = Order::Paper;
        config.budget.implicit_tokens = 1_000;
        config.budget.floor = Floor::Fraction(0.75);
        // Who is asked to mark work and marks none has a prologue alone.
        config.delimiter.guidance = Guidance::Off;
        // The sizes below leave no room for a second tool.
        config.recall.enabled = false;
    };
    for stream in [false, true] {
        let refusal = Reply::text("x").fault(Fault::ContextLength { window: 4_400 });
        let names = ["go", "b1", "b2", "b3", "b4", "b5"];
        let provider = provider(Script::ask(move |view| {
            let key = last_key(view.messages());
            let refused = view.size > 4_400 && key == "b5";
            match names.iter().position(|name| *name == key) {
                _ if refused => refusal.clone(),
                Some(at) if at < 5 => Reply::calls(vec![bash(names[at + 1])]),
                _ => Reply::text("done"),
            }
        }))
        .await;
        let proxy = Proxy::with(provider.address, floor).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        for turn in 0..5 {
            agent
                .work(&format!("{turn} {}", "lorem ipsum ".repeat(540)))
                .await;
        }
        agent.turn().await;
        agent.user("and now with room");
        agent = agent.with("x-plimsoll-budget", "80000");
        agent.turn().await;
        let chats = provider.chats();
        let refused = chats.len() - 3;
        let sizes: Vec<usize> = chats.iter().map(|request| request.size).collect();
        assert!(sizes[refused] > 4_400 && sizes[refused + 1] < 4_400);
        let passed = (1..=refused + 1).filter(|at| sizes[*at] < sizes[at - 1]);
        let passed: Vec<usize> = passed.collect();
        assert_eq!(passed, [refused, refused + 1], "one pass a try: {sizes:?}");
        extends(&chats[refused + 1..]);
    }
}
