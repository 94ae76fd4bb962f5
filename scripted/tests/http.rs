//! The provider over real HTTP, read by a client that shows every byte.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as loudly as the tests do"
)]

mod support;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_scripted::*;
use serde_json::{Value, json};
use support::{Answer, call, open};
use tokio::io::AsyncReadExt;

async fn chat(provider: &Provider, body: &Value) -> io::Result<Answer> {
    call(
        provider,
        "POST",
        "/v1/chat/completions",
        "",
        &body.to_string(),
    )
    .await
}

fn ask(streamed: bool) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": streamed});
    if streamed {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

fn reply() -> Reply {
    Reply::calls(vec![Call::new("call_1", "ls", "{\"path\":\".\"}")]).saying("Looking – now.")
}

async fn start(script: Script) -> Provider {
    Provider::start(script, Options::default()).await.unwrap()
}

#[tokio::test]
async fn answers_streamed_and_not_and_keeps_the_requests() {
    let provider = start(Script::ask(|_| reply())).await;
    for streamed in [false, true] {
        let answer = chat(&provider, &ask(streamed)).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.whole);
        let kind = if streamed {
            "text/event-stream"
        } else {
            "application/json"
        };
        assert!(answer.head.contains(kind), "{}", answer.head);
        let heard = Heard::read(&answer.body, streamed);
        assert_eq!(
            (heard.faults, heard.text, heard.calls),
            (vec![], reply().text, reply().calls)
        );
        assert_eq!(heard.usage.unwrap()["prompt_tokens"], 6);
    }
    let kept = provider.chats();
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[1].body, ask(true).to_string());
    assert_eq!((kept[0].size, kept[0].cached, kept[1].cached), (6, 0, 6));
    assert!(
        kept.iter()
            .all(|one| one.verdict == Verdict::Accepted && one.sent() == Sent::Finished)
    );
    assert_eq!(provider.take().len(), 2);
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn refuses_with_the_error_shape_and_without_asking_the_script() {
    let provider = Provider::start(
        Script::queue([]),
        Options {
            window: Some(50),
            ..Options::default()
        },
    )
    .await
    .unwrap();
    let long = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(400)}]});
    let table = [
        (
            json!({"messages": []}).to_string(),
            Value::Null,
            "model parameter",
        ),
        ("{".to_owned(), Value::Null, "could not parse"),
        (
            long.to_string(),
            json!("context_length_exceeded"),
            "maximum context length is 50 tokens. However, your messages resulted in 104 tokens",
        ),
    ];
    for (body, code, said) in &table {
        let answer = call(&provider, "POST", "/v1/chat/completions", "", body)
            .await
            .unwrap();
        assert_eq!(answer.status, 400);
        let error: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(error["error"]["code"], *code);
        assert!(error["error"]["message"].as_str().unwrap().contains(said));
    }
    assert!(
        provider
            .chats()
            .iter()
            .all(|one| matches!(one.verdict, Verdict::Refused(_)))
    );
}

#[tokio::test]
async fn authorises_by_its_option() {
    for (auth, header, status) in [
        (Auth::Open, "", 200),
        (Auth::Any, "", 401),
        (Auth::Any, "authorization: Bearer k\r\n", 200),
        (
            Auth::Keys(vec!["k".into()]),
            "authorization: Bearer k\r\n",
            200,
        ),
        (
            Auth::Keys(vec!["k".into()]),
            "authorization: Bearer other\r\n",
            401,
        ),
        (Auth::Keys(vec!["k".into()]), "", 401),
    ] {
        let options = Options {
            auth,
            ..Options::default()
        };
        let provider = Provider::start(Script::ask(|_| Reply::text("hi")), options)
            .await
            .unwrap();
        let body = ask(false).to_string();
        for (method, path, body) in [
            ("POST", "/v1/chat/completions", body.as_str()),
            ("GET", "/v1/models", ""),
        ] {
            let answer = call(&provider, method, path, header, body).await.unwrap();
            assert_eq!(answer.status, status, "{path} {header}");
        }
    }
}

#[tokio::test]
async fn a_queue_answers_in_order_and_then_fails() {
    let provider = start(Script::queue([
        Reply::text("one"),
        Reply::error(418, "tea"),
    ]))
    .await;
    assert_eq!(
        Heard::body(&chat(&provider, &ask(false)).await.unwrap().body).text,
        "one"
    );
    let tea = chat(&provider, &ask(true)).await.unwrap();
    assert_eq!((tea.status, tea.body), (418, b"tea".to_vec()));
    assert_eq!(chat(&provider, &ask(true)).await.unwrap().status, 500);
}

#[tokio::test]
async fn usage_is_scaled_and_cached_by_credential() {
    let options = Options {
        usage_factor: 1.5,
        ..Options::default()
    };
    let provider = Provider::start(Script::ask(|_| Reply::text("hi")), options)
        .await
        .unwrap();
    let body = ask(false).to_string();
    let mut cached = Vec::new();
    for key in ["a", "a", "b"] {
        let header = format!("authorization: Bearer {key}\r\n");
        let answer = call(&provider, "POST", "/v1/chat/completions", &header, &body)
            .await
            .unwrap();
        let usage = Heard::body(&answer.body).usage.unwrap();
        assert_eq!(usage["prompt_tokens"], 9);
        cached.push(
            usage["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap(),
        );
    }
    assert_eq!(cached, [0, 9, 0]);
}

#[tokio::test]
async fn network_writes_are_cut() {
    let style = Style {
        cut: Some(1),
        ..Style::default()
    };
    let provider = start(Script::ask(move |_| reply().style(style.clone()))).await;
    let answer = chat(&provider, &ask(true)).await.unwrap();
    assert_eq!(answer.chunks, answer.body.len());
    assert_eq!(Heard::stream(&answer.body).calls, reply().calls);
}

#[tokio::test]
async fn faults_before_the_body() {
    let status = Fault::Status {
        status: 529,
        retry_after: Some(3),
        retry_after_ms: Some(2500),
    };
    let provider = start(Script::queue([
        Reply::text("x").fault(Fault::CloseBeforeHeaders),
        Reply::text("x").fault(status),
        Reply::text("x").fault(Fault::ContextLength { window: 9 }),
    ]))
    .await;
    assert!(
        chat(&provider, &ask(true)).await.is_err(),
        "nothing is said"
    );
    let busy = chat(&provider, &ask(true)).await.unwrap();
    assert_eq!(busy.status, 529);
    assert!(busy.head.contains("retry-after: 3") && busy.head.contains("retry-after-ms: 2500"));
    let long = chat(&provider, &ask(true)).await.unwrap();
    let error = Heard::body(&long.body).error.unwrap();
    assert_eq!(
        (long.status, &error["code"]),
        (400, &json!("context_length_exceeded"))
    );
}

#[tokio::test]
async fn faults_within_the_body() {
    for streamed in [true, false] {
        let faults = [
            (Fault::CloseAfter { bytes: 100 }, false),
            (Fault::CloseAt { event: 2 }, false),
            (Fault::EndAt { event: 2 }, true),
            (Fault::ErrorEventAt { event: 2 }, true),
            (Fault::GarbageAt { event: 2 }, true),
            (Fault::HalfUtf8At { event: 2 }, !streamed),
        ];
        for (fault, whole) in faults {
            let provider = start(Script::ask(move |_| reply().fault(fault))).await;
            let answer = chat(&provider, &ask(streamed)).await.unwrap();
            assert_eq!(answer.whole, whole, "{fault:?}");
            let heard = Heard::read(&answer.body, streamed);
            let noticed = !heard.faults.is_empty() || heard.error.is_some();
            assert!(noticed, "{fault:?}: {heard:?}");
            if let Fault::CloseAfter { bytes } = fault {
                assert_eq!(answer.body.len(), bytes, "what was sent arrives");
            }
        }
    }
}

#[tokio::test]
async fn stalls_and_silence_last_until_the_client_leaves() {
    for fault in [Fault::StallAt { event: 1 }, Fault::NeverAnswer] {
        let provider = start(Script::ask(move |_| reply().fault(fault))).await;
        let body = ask(true).to_string();
        let stream = open(&provider, "POST", "/v1/chat/completions", "", &body).await;
        while provider.chats().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(provider.chats()[0].sent(), Sent::Open, "{fault:?}");
        drop(stream);
        while provider.chats()[0].sent() == Sent::Open {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(provider.chats()[0].sent(), Sent::Abandoned, "{fault:?}");
    }
}

#[tokio::test]
async fn side_paths() {
    let provider = start(Script::queue([])).await;
    let echo = call(&provider, "PUT", "/v1/echo?a=1", "x-own: 7\r\n", "körper")
        .await
        .unwrap();
    let echo: Value = serde_json::from_slice(&echo.body).unwrap();
    assert_eq!(
        (&echo["method"], &echo["query"], &echo["body"]),
        (&json!("PUT"), &json!("a=1"), &json!("körper"))
    );
    assert!(
        echo["headers"]
            .as_array()
            .unwrap()
            .contains(&json!(["x-own", "7"]))
    );
    let mirror = call(
        &provider,
        "POST",
        "/v1/mirror",
        "content-type: text/x\r\n",
        "as is",
    )
    .await
    .unwrap();
    assert_eq!(mirror.body, b"as is");
    assert!(mirror.head.contains("text/x"));
    let models = call(&provider, "GET", "/v1/models", "", "").await.unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&models.body).unwrap()["data"][0]["id"],
        "scripted-1"
    );
    let body = json!({"model": "e", "input": ["a", "bcd"]}).to_string();
    let embedded = call(&provider, "POST", "/v1/embeddings", "", &body)
        .await
        .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&embedded.body).unwrap()["data"][1]["embedding"],
        json!([3])
    );
    let slow = call(&provider, "GET", "/v1/slow?pieces=3&every_ms=1", "", "")
        .await
        .unwrap();
    assert_eq!(
        (slow.chunks, slow.body),
        (3, b"data: 0\n\ndata: 1\n\ndata: 2\n\n".to_vec())
    );
    assert_eq!(
        call(&provider, "GET", "/v1/nothing", "", "")
            .await
            .unwrap()
            .status,
        404
    );
    assert_eq!(provider.requests().len(), 6);
    assert!(provider.chats().is_empty());
}

#[tokio::test]
async fn stopping_closes_connections_and_frees_the_port() {
    let provider = start(Script::ask(|_| reply().fault(Fault::NeverAnswer))).await;
    let port = provider.address.port();
    let mut stream = open(
        &provider,
        "POST",
        "/v1/chat/completions",
        "",
        &ask(true).to_string(),
    )
    .await;
    while provider.chats().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    provider.stop();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.ok();
    assert!(rest.is_empty());
    let options = Options {
        port,
        ..Options::default()
    };
    let again = Provider::start(Script::ask(|_| Reply::text("back")), options)
        .await
        .unwrap();
    assert_eq!(
        Heard::body(&chat(&again, &ask(false)).await.unwrap().body).text,
        "back"
    );
}

#[tokio::test]
async fn scripts_see_the_request() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let provider = start(Script::ask(move |request| {
        let facts = (
            request.index,
            request.messages().len(),
            request.offers("ls"),
            request.header("x-a").map(str::to_owned),
            request.size,
        );
        log.lock().unwrap().push(facts);
        Reply::text("ok")
    }))
    .await;
    let mut body = ask(false);
    body["tools"] = json!([{"type": "function", "function": {"name": "ls"}}]);
    call(
        &provider,
        "POST",
        "/v1/chat/completions",
        "x-a: b\r\n",
        &body.to_string(),
    )
    .await
    .unwrap();
    let size = 6 + body["tools"].to_string().len().div_ceil(4);
    assert_eq!(
        *seen.lock().unwrap(),
        [(0, 1, true, Some("b".to_owned()), size)]
    );
}

#[tokio::test]
async fn rules_are_issued_for_and_refused_by() {
    let calls = vec![Call::new("b1", "bash", "{}")];
    let options = Options {
        rules: Rules::new([Rule::GeminiSignatures]),
        ..Options::default()
    };
    let script = Script::ask(move |_| Reply::calls(calls.clone()));
    let provider = Provider::start(script, options).await.unwrap();
    for streamed in [false, true] {
        let body = ask(streamed);
        let answer = chat(&provider, &body).await.unwrap();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(text.matches("thought_signature").count(), 1, "{text}");
    }
    let mut body = ask(false);
    let call = json!({"id": "b1", "type": "function",
        "function": {"name": "bash", "arguments": "{}"}});
    body["messages"] = json!([{"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "b1", "content": "out"}]);
    let answer = chat(&provider, &body).await.unwrap();
    assert_eq!(answer.status, 400);
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(error[0]["error"]["status"], "INVALID_ARGUMENT");
    let last = provider.chats().pop().unwrap();
    assert!(matches!(last.verdict, Verdict::Refused(_)));
}

/// A short recorded session: two calls, an edit, a report.
fn session() -> Arc<Session> {
    let tool = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"path\": \"ä\"}"}});
    let lines = [
        json!({"_meta": {"id": "short"}}),
        json!({"role": "user", "content": "tidy up"}),
        json!({"role": "assistant", "content": "I look.", "tool_calls": [tool("a", "read"), tool("b", "ls")]}),
        json!({"role": "tool", "tool_call_id": "a", "content": "text"}),
        json!({"role": "tool", "tool_call_id": "b", "content": "ä"}),
        json!({"role": "assistant", "content": "", "tool_calls": [tool("c", "edit")]}),
        json!({"role": "tool", "tool_call_id": "c", "content": "done"}),
        json!({"role": "assistant", "content": "It is tidy."}),
    ];
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    Session::new(Recording::parse(&text.join("\n")).unwrap(), 1)
}

#[tokio::test]
async fn a_session_plays_over_http_through_faults() {
    for streamed in [true, false] {
        let player = Player::new([session()])
            .any_style(3)
            .fault(|place| match place.attempt {
                0 => Some(Fault::CloseBeforeHeaders),
                1 => Some(Fault::CloseAfter { bytes: 40 }),
                2 => Some(Fault::Status {
                    status: 429,
                    retry_after: None,
                    retry_after_ms: Some(1),
                }),
                _ => None,
            });
        let player = Arc::new(player);
        let provider = start(player.script()).await;
        let options = ClientOptions {
            streamed,
            annotated: false,
            ..ClientOptions::default()
        };
        let mut client = Client::new(session(), options);
        let mut attempts = 0;
        while let Some(request) = client.request() {
            let headers: String = request
                .headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let body = std::str::from_utf8(&request.body).unwrap();
            attempts += 1;
            let Ok(answer) = call(&provider, "POST", "/v1/chat/completions", &headers, body).await
            else {
                continue;
            };
            let outcome = client.hear(answer.status, &answer.body);
            assert_eq!(
                outcome.advanced,
                outcome.violations.is_empty(),
                "{:?}",
                outcome.violations
            );
        }
        assert_eq!((client.turn(), attempts), (3, 12));
        let received = provider.take();
        let requests: Vec<&Received> = received.iter().collect();
        assert_eq!(audit::always(&requests, &session()), []);
        let growth = audit::growth(&requests, &size::Sizer::new(size::quarter_of_bytes()));
        assert_eq!((growth.requests, growth.breaks.len()), (12, 0));
        assert!(audit::cached_share(&requests) >= growth.share());
        assert_eq!(player.violations(), []);
    }
}
