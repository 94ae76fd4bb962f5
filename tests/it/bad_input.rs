//! What a client may send wrong, on the managed path: it gets a clear error in OpenAI's shape, or
//! its own bytes go up and the upstream decides. Nothing of it is ever repaired.

use std::io::Write as _;

use axum::body::Body;
use axum::response::Response;
use plimsoll_scripted::{Reply, Verdict};
use serde_json::{Value, json};

use super::agent::{
    Agent, bash, completion, explore, newest, none_refused, outline, plan, provider, tools,
};
use super::metered::value;
use super::support::{Lenient, Proxy, client, soon};

/// A body with these messages, tools included, as an agent would write it.
fn body(messages: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"gpt-4o","tools":[{{"type":"function","function":{{"name":"bash"}}}}],"messages":{messages},"stream":{stream}}}"#
    )
}

const HI: &str = r#"[{"role":"user","content":"hi"}]"#;

/// What is no request of a dialect, or no JSON as the standard has it. Some servers take the latter.
fn unreadable(list: &str) -> Vec<Vec<u8>> {
    let whole = format!(r#"{{"model":"m","{list}":{HI},"tools":[]}}"#);
    let nan = whole.replacen('{', r#"{"temperature":NaN,"top_p":-Infinity,"#, 1);
    let utf16: Vec<u8> = whole.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = |mark: &[u8], rest: &[u8]| [mark, rest].concat();
    let list_of = |value: &str| format!(r#"{{"model":"m","{list}":{value}}}"#).into_bytes();
    vec![
        marked(b"\xef\xbb\xbf", whole.as_bytes()),
        nan.into_bytes(),
        marked(b"\xff\xfe", &utf16),
        utf16,
        whole.replace('"', "'").into_bytes(),
        whole.replacen('}', ",}", 1).into_bytes(),
        marked(whole.as_bytes(), b"}"),
        whole.as_bytes()[..40].to_vec(),
        b"{\"model\":\"\xff\xfe\"}".to_vec(),
        b"model=gpt&messages=hi".to_vec(),
        "[".repeat(100_000).into_bytes(),
        b"".to_vec(),
        b"{}".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        list_of("{\"role\":\"user\"}"),
        list_of("null"),
        list_of("7"),
    ]
}

#[tokio::test]
async fn what_cannot_be_read_goes_up_as_it_came() {
    let upstream = Lenient::saying(Reply::text("done")).await;
    let proxy = Proxy::before(upstream.addr).await;
    let mut count = 0.0;
    for (path, list) in [
        ("/v1/chat/completions", "messages"),
        ("/v1/responses", "input"),
        ("/v1/messages", "messages"),
    ] {
        for sent in unreadable(list) {
            let what = String::from_utf8_lossy(&sent[..sent.len().min(80)]).into_owned();
            let request = client().post(proxy.url(path)).body(sent.clone());
            let answer = soon(request.send()).await.unwrap();
            assert_eq!(answer.status(), 200, "{path} {what}");
            let seen = upstream.seen();
            assert_eq!(seen.last().unwrap().body, sent, "{path} {what}");
            // A Responses request without input is one, and goes on.
            if answer.headers().contains_key("x-plimsoll-fail-open") {
                assert_eq!(
                    answer.headers()["x-plimsoll-fail-open"],
                    "dialect",
                    "{path} {what}"
                );
                count += 1.0;
            }
        }
    }
    let counted = value(
        &proxy.app.metrics_text(),
        "plimsoll_fail_open_total{stage=\"dialect\"}",
    );
    assert_eq!(counted, count);
    assert!(count > 45.0, "{count}");
}

#[tokio::test]
async fn what_only_the_proxy_cannot_edit_goes_up_as_it_came() {
    let first = r#"{"role":"user","content":"hi"}"#;
    let table: Vec<(&str, String)> = vec![
        (
            "a key twice",
            body(HI, false).replacen('{', r#"{"model":"x","#, 1),
        ),
        (
            "messages twice",
            body(HI, false).replacen('{', r#"{"messages":[],"#, 1),
        ),
        (
            "a key twice in a message",
            body(r#"[{"role":"user","content":"hi","role":"user"}]"#, false),
        ),
        (
            "a message that is no object",
            body(&format!("[{first},7]"), false),
        ),
        (
            "a message without a role",
            body(r#"[{"content":"hi"}]"#, false),
        ),
        (
            "a role that is no text",
            body(r#"[{"role":7,"content":"hi"}]"#, false),
        ),
        (
            "content of another type",
            body(r#"[{"role":"user","content":7}]"#, false),
        ),
        (
            "content that is an object",
            body(r#"[{"role":"user","content":{}}]"#, false),
        ),
        (
            "calls that are no array",
            body(
                &format!(r#"[{first},{{"role":"assistant","tool_calls":{{}}}}]"#),
                false,
            ),
        ),
        (
            "a call that is no object",
            body(
                &format!(r#"[{first},{{"role":"assistant","tool_calls":["x"]}}]"#),
                false,
            ),
        ),
        (
            "an id that is no text",
            body(
                &format!(r#"[{first},{{"role":"tool","tool_call_id":3,"content":""}}]"#),
                false,
            ),
        ),
    ];
    let upstream = Lenient::saying(Reply::text("done")).await;
    let proxy = Proxy::before(upstream.addr).await;
    for stream in [false, true] {
        for (what, sent) in &table {
            let sent = sent.replace(r#""stream":false"#, &format!(r#""stream":{stream}"#));
            let answer = Agent::new(&proxy, stream).post(sent.clone()).await.whole();
            assert_eq!(upstream.bodies().last().unwrap(), &sent, "{what}");
            assert_eq!(answer.header("x-plimsoll-fail-open"), "dialect", "{what}");
        }
    }
}

#[tokio::test]
async fn odd_json_that_can_be_edited_is_managed_and_keeps_its_bytes() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let arguments = nested(200).replace('"', "\\\"");
    let result = r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#;
    // Messages that stand in the request as they are; those before them make them valid.
    let table: Vec<(&str, String)> = vec![
        (
            "depth 200 in an unknown field",
            format!(r#"{{"role":"user","content":"hi","x":{}}}"#, nested(200)),
        ),
        (
            "depth 200 in a part",
            format!(r#"{{"role":"user","content":[{{"type":"odd","odd":{}}}]}}"#, nested(200)),
        ),
        (
            "depth 200 in arguments",
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"bash","arguments":"{arguments}"}}}}]}},{result}"#
            ),
        ),
        (
            "arguments that are no JSON",
            format!(
                r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":{{"name":"bash","arguments":"{{\"oops"}}}}]}},{result}"#
            ),
        ),
        (
            "arguments that are no text",
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"bash","arguments":{{"a" : 1e3}}}}}}]}},{result}"#
            ),
        ),
        (
            "odd numbers, escapes and space",
            r#"{ "role" : "user" , "content":"\u0068\/i", "n":1.10, "big":123456789012345678901234567890 }"#.to_owned(),
        ),
        ("a role that nobody knows", r#"{"role":"robot","content":"beep"}"#.to_owned()),
        ("an empty role", r#"{"role":"","content":"beep"}"#.to_owned()),
        (
            "a key twice where nothing is edited",
            r#"{"role":"user","content":"hi","metadata":{"a":1,"a":2}}"#.to_owned(),
        ),
        (
            "a lone surrogate in text",
            r#"{"role":"user","content":"\ud83d oops"}"#.to_owned(),
        ),
        (
            "a lone surrogate in a part",
            r#"{"role":"user","content":[{"type":"text","text":"\udc00"}]}"#.to_owned(),
        ),
        (
            "a lone surrogate where nothing is read",
            r#"{"role":"user","content":"hi","name":"\ud800"}"#.to_owned(),
        ),
        (
            "a result without a call",
            r#"{"role":"tool","tool_call_id":"ghost","content":"boo"}"#.to_owned(),
        ),
        ("a result without an id", r#"{"role":"tool","content":"boo"}"#.to_owned()),
        (
            "a call without a result",
            r#"{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{}"}}]}"#.to_owned(),
        ),
        (
            "a result twice",
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"bash","arguments":"{{}}"}}}}]}},{result},{result}"#
            ),
        ),
        (
            "the same id twice",
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"bash","arguments":"{{}}"}}}},{{"id":"c","type":"function","function":{{"name":"bash","arguments":"{{}}"}}}}]}},{result},{result}"#
            ),
        ),
        (
            "empty ids",
            r#"{"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"bash","arguments":"{}"}}]},{"role":"tool","tool_call_id":"","content":"ok"}"#.to_owned(),
        ),
        (
            "a call of nothing",
            r#"{"role":"assistant","tool_calls":[{}]}"#.to_owned(),
        ),
        (
            "an empty answer",
            r#"{"role":"assistant","content":null}"#.to_owned(),
        ),
        (
            "an old function call",
            r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"1"}"#.to_owned(),
        ),
    ];
    for stream in [false, true] {
        let upstream = Lenient::saying(Reply::text("done")).await;
        let proxy = Proxy::before(upstream.addr).await;
        for (what, odd) in &table {
            let agent = Agent::new(&proxy, stream);
            let head = r#"{"role":"user","content":"go"}"#;
            let tail = r#"{"role":"user","content":"now"}"#;
            let sent = body(&format!("[{head},{odd},{tail}]"), stream);
            let answer = agent.post(sent).await.whole();
            assert_eq!(answer.header("x-plimsoll-fail-open"), "", "{what}");
            // A second request on top finds the first, whatever stands in it.
            let said = r#"{"role":"assistant","content":"done"}"#;
            let sent = body(&format!("[{head},{odd},{tail},{said},{tail}]"), stream);
            let answer = agent.post(sent).await.whole();
            assert_eq!(answer.header("x-plimsoll-turn"), "2", "{what}");
            let bodies = upstream.bodies();
            let up = String::from_utf8_lossy(bodies.last().unwrap()).into_owned();
            let messages = format!("{head},{odd},{tail},{said},{tail}]");
            assert!(up.contains(&messages), "{what}: {up}");
            assert!(up.contains("delimiter"), "{what}: managed");
        }
    }
}

#[tokio::test]
async fn what_the_upstream_refuses_anyway_is_refused_in_its_words() {
    // Managed requests that are wrong by themselves: the changed body is refused, then the
    // client's own, and that answer stands.
    let hello = json!([{"role": "user", "content": "hi"}]);
    let table: Vec<(&str, &str, Value)> = vec![
        ("no model", "model", Value::Null),
        ("an empty model", "model", json!("")),
        ("a model that is no text", "model", json!(7)),
        ("a temperature of another type", "temperature", json!("hot")),
        ("a limit of another type", "max_tokens", json!("many")),
        ("a count of another type", "n", json!("two")),
        ("options of another type", "stream_options", json!("x")),
        ("a tool that is no object", "tools", json!([1])),
        (
            "a tool without a name",
            "tools",
            json!([{"type": "function", "function": {}}]),
        ),
        ("tools of another type", "tools", json!({"a": 1})),
        ("tools of another type", "tools", json!("bash")),
        (
            "an unknown role",
            "messages",
            json!([{"role": "robot", "content": "x"}]),
        ),
        (
            "a result without a call",
            "messages",
            json!([{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "a", "content": "x"}]),
        ),
        ("no messages", "messages", json!([])),
    ];
    for stream in [false, true] {
        let provider = provider(plan([])).await;
        let proxy = Proxy::before(provider.address).await;
        for (what, field, value) in &table {
            let mut sent = json!({"model": "gpt-4o", "tools": tools(), "stream": stream});
            sent["messages"] = hello.clone();
            sent[*field] = value.clone();
            if value.is_null() {
                sent.as_object_mut().unwrap().remove(*field);
            }
            let sent = sent.to_string();
            let answer = Agent::new(&proxy, stream).post(sent.clone()).await;
            let (status, kind, ..) = answer.error();
            assert_eq!(
                (status, kind.as_str()),
                (400, "invalid_request_error"),
                "{what}"
            );
            let seen = provider.take();
            let last = seen.last().unwrap();
            assert_eq!(
                last.body, sent,
                "{what}: the client's own bytes had the last word"
            );
            assert!(seen.len() <= 2, "{what}");
            match &last.verdict {
                Verdict::Refused(refusal) => {
                    assert!(
                        answer
                            .text()
                            .contains(&refusal.message.replace('"', "\\\"")),
                        "{what}"
                    );
                }
                other => panic!("{what}: {other:?}"),
            }
        }
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn coded_and_chunked_bodies_are_managed_like_any_other() {
    for stream in [false, true] {
        for way in ["gzip", "zstd", "chunked", "padded"] {
            let provider = provider(plan([(
                "go",
                vec![Reply::calls(vec![explore("d1", "a"), bash("b1")])],
            )]))
            .await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            for _ in 0..2 {
                let plain = agent.body();
                let sender = match way {
                    "gzip" | "zstd" => agent.clone().with("content-encoding", way),
                    _ => agent.clone(),
                };
                let sent: reqwest::Body = match way {
                    "gzip" => gzip(plain.as_bytes()).into(),
                    "zstd" => zstd::encode_all(plain.as_bytes(), 1).unwrap().into(),
                    "chunked" => {
                        let bytes: Vec<Vec<u8>> =
                            plain.as_bytes().chunks(7).map(<[u8]>::to_vec).collect();
                        let chunks = bytes.into_iter().map(Ok::<_, std::io::Error>);
                        reqwest::Body::wrap_stream(futures_util::stream::iter(chunks))
                    }
                    _ => format!("\n\t {plain}\r\n").into(),
                };
                let answer = sender.post(sent).await.whole();
                assert_eq!(answer.header("x-plimsoll-fail-open"), "", "{way}");
                agent.keep(&answer.heard);
                if !answer.heard.calls.is_empty() {
                    agent.result("b1", "out");
                }
            }
            let last = newest(&provider);
            assert_eq!(
                outline(&last),
                ["system", "user", "assistant d1 b1", "tool d1", "tool b1"],
                "{way}"
            );
            assert_eq!(last.header("content-encoding"), "", "what goes up is plain");
            none_refused(&provider);
        }
    }
}

#[tokio::test]
async fn a_coded_body_that_is_refused_goes_up_in_its_coding() {
    let upstream = Lenient::start(|number, body| match number {
        0 => Response::builder()
            .status(400)
            .body(Body::from("no"))
            .unwrap(),
        _ => completion(&Reply::text("plain"), body),
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    let agent = Agent::new(&proxy, false).told("go");
    let sent = gzip(agent.body().as_bytes());
    let answer = agent
        .with("content-encoding", "gzip")
        .post(sent.clone())
        .await;
    assert_eq!(answer.whole().heard.text, "plain");
    let seen = upstream.seen();
    assert!(!seen[0].headers.contains_key("content-encoding"));
    assert_eq!(seen[1].headers["content-encoding"], "gzip");
    assert_eq!(seen[1].body, sent);
}

#[tokio::test]
async fn bodies_over_the_cap_are_refused_and_large_ones_are_served() {
    const CAP: usize = 400_000;
    let provider = provider(plan([])).await;
    let proxy = Proxy::with(provider.address, |config| config.server.body_cap = CAP).await;
    for stream in [false, true] {
        let large = Agent::new(&proxy, stream).told(&"large ".repeat(60_000));
        large.ask().await.whole();
        let huge = Agent::new(&proxy, stream).told(&"x".repeat(CAP));
        let coded = zstd::encode_all(huge.body().as_bytes(), 1).unwrap();
        for answer in [
            huge.ask().await,
            huge.clone()
                .with("content-encoding", "zstd")
                .post(coded)
                .await,
        ] {
            let (status, _, _, code) = answer.error();
            assert_eq!((status, code.as_str()), (413, "body_too_large"));
        }
    }
    assert_eq!(
        provider.chats().len(),
        2,
        "what is over the cap never goes up"
    );
}
