//! Chat requests with everything that clients put into messages: old forms of calls, refusals, audio,
//! pictures, reasoning in several fields. What nothing is evicted of goes up byte for byte.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use plimsoll_core::turn::Guidance;

use super::support::{Lenient, Proxy, client, soon, upstream};

/// A list of messages with odd white space, so that nothing that is written anew looks the same.
const MESSAGES: &str = concat!(
    r#"[{"role":"developer","content":[{"type":"text","text":"be brief"}]} ,"#,
    r#"{"role":"user","name":"ann","content":[ {"type":"text","text":"look"},"#,
    r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"}},"#,
    r#"{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}]},"#,
    r#"{"role":"assistant","content":null,"function_call":{"name":"bash","arguments":"{ \"c\": 1}"}},"#,
    r#"{"role":"function","name":"bash","content":"out"},"#,
    r#"{"role":"assistant","content":null,"refusal":"I can't."},"#,
    r#"{"role":"user","content":"say it"},"#,
    r#"{"role":"assistant","audio":{"id":"audio_1"}, "content":null},"#,
    r#"{"role":"user","content":"think"},"#,
    r#"{"role":"assistant","content":"","reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s"}],"#,
    r#""tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{}"},"#,
    r#""extra_content":{"google":{"thought_signature":"AbC="}}, "index":0}]},"#,
    r#"{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"ok"}] }]"#,
);

const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","logprobs":{"content":[{"token":"x","logprob":-0.10,"bytes":[120],"top_logprobs":[]}],"refusal":null},"message":{"role":"assistant","content":"x","refusal":null,"annotations":[]}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}"#;

#[tokio::test]
async fn what_messages_hold_goes_up_byte_for_byte() {
    let seen: Arc<Mutex<Vec<(String, Bytes)>>> = Arc::default();
    let kept = seen.clone();
    let upstream = upstream(move |request| {
        let kept = kept.clone();
        async move {
            let path = request.uri().to_string();
            let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
            kept.lock().unwrap().push((path, body));
            Response::builder()
                .header("content-type", "application/json")
                .body(Body::from(ANSWER))
                .unwrap()
        }
    })
    .await;
    let proxy = Proxy::with(upstream, |config| {
        config.delimiter.guidance = Guidance::Off;
    })
    .await;
    let tools = r#"[{"type":"function","function":{"name":"bash"}}]"#;
    let functions = r#""functions":[{"name":"bash","parameters":{}}],"function_call":"auto""#;
    // (path, members beside the messages, why it is not managed)
    let managed = format!(r#""tools":{tools},"logprobs":true,"top_logprobs":0"#);
    let table = [
        ("/v1/chat/completions", managed.clone(), ""),
        (
            "/v1/openai/deployments/d/chat/completions?api-version=2026-01-01",
            managed.clone(),
            "",
        ),
        ("/v1/openai/v1/chat/completions", managed.clone(), ""),
        ("/v1/chat/completions", functions.to_owned(), ""),
        ("/v1/chat/completions", format!(r#"{managed},"n":2"#), "n"),
    ];
    for (path, members, unmanaged) in table {
        let body = format!(r#"{{"model":"gpt-4o", "messages": {MESSAGES},{members}}}"#);
        let sent = client().post(proxy.url(path)).body(body.clone());
        let answer = soon(sent.header("authorization", "Bearer k").send())
            .await
            .unwrap();
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value.map_or("", |value| value.to_str().unwrap()).to_owned()
        };
        assert_eq!(header("x-plimsoll-fail-open"), "", "{path} {members}");
        assert_eq!(header("x-plimsoll-unmanaged"), unmanaged, "{path}");
        assert_eq!(answer.text().await.unwrap(), ANSWER, "byte for byte");
        let (asked, got) = seen.lock().unwrap().pop().unwrap();
        assert_eq!(asked, path);
        let got = String::from_utf8(got.to_vec()).unwrap();
        assert!(got.contains(MESSAGES), "{path} {members}: {got}");
        let hides = members.contains("\"tools\"") && unmanaged.is_empty();
        assert_eq!(got.contains("\"delimiter\""), hides, "{path} {members}");
        assert!(hides || got == body, "{path} {members}: {got}");
    }
}

#[tokio::test]
async fn nothing_is_hidden_in_an_answer_that_must_be_json() {
    let provider = Lenient::start(|_, _| Response::new(Body::from(ANSWER))).await;
    let proxy = Proxy::before(provider.addr).await;
    let user = r#"{"role":"user","content":"go"}"#;
    let chat = format!(
        r#""messages":[{user}],"tools":[{{"type":"function","function":{{"name":"bash"}}}}]"#
    );
    let responses =
        format!(r#""input":[{user}],"store":false,"tools":[{{"type":"function","name":"bash"}}]"#);
    let messages = format!(
        r#""messages":[{user}],"max_tokens":9,"tools":[{{"name":"bash","input_schema":{{}}}}]"#
    );
    let schema = r#"{"type":"json_schema","schema":{}}"#;
    for (path, body, format, hides) in [
        (
            "/v1/chat/completions",
            &chat,
            r#""response_format":{"type":"text"}"#.to_owned(),
            true,
        ),
        (
            "/v1/chat/completions",
            &chat,
            r#""response_format":{"type":"json_object"}"#.to_owned(),
            false,
        ),
        (
            "/v1/chat/completions",
            &chat,
            format!(r#""response_format":{schema}"#),
            false,
        ),
        (
            "/v1/responses",
            &responses,
            r#""text":{"verbosity":"low","format":{"type":"text"}}"#.to_owned(),
            true,
        ),
        (
            "/v1/responses",
            &responses,
            format!(r#""text":{{"format":{schema}}}"#),
            false,
        ),
        (
            "/v1/messages",
            &messages,
            r#""output_config":{"effort":"low"}"#.to_owned(),
            true,
        ),
        (
            "/v1/messages",
            &messages,
            format!(r#""output_config":{{"format":{schema}}}"#),
            false,
        ),
        (
            "/v1/messages",
            &messages,
            format!(r#""output_format":{schema}"#),
            false,
        ),
    ] {
        let body = format!(r#"{{"model":"m",{body},{format}}}"#);
        let request = client()
            .post(proxy.url(path))
            .bearer_auth("k")
            .body(body.clone());
        request.send().await.unwrap().bytes().await.unwrap();
        let bodies = provider.bodies();
        let got = String::from_utf8_lossy(bodies.last().unwrap());
        assert_eq!(got.contains("\"delimiter\""), hides, "{got}");
        assert!(hides || got == body, "{got}");
    }
}

#[tokio::test]
async fn what_was_spoken_behind_a_hidden_call_is_named_in_the_next_request() {
    spoken_behind("null").await;
    // All text was the first hop's.
    spoken_behind(r#""First.""#).await;
}

async fn spoken_behind(first: &'static str) {
    let provider = Lenient::start(move |number, _| {
        let message = match number {
            0 => CALLED.replace("null", first),
            _ => SPOKEN.to_owned(),
        };
        let answer = ANSWER.replace(
            r#"{"role":"assistant","content":"x","refusal":null,"annotations":[]}"#,
            &message,
        );
        let built = Response::builder().header("content-type", "application/json");
        built.body(Body::from(answer)).unwrap()
    })
    .await;
    let proxy = Proxy::before(provider.addr).await;
    let url = proxy.url("/v1/chat/completions");
    let mut messages = r#"{"role":"user","content":"say it"}"#.to_owned();
    for content in [first, "null"] {
        let tools = r#"[{"type":"function","function":{"name":"bash"}}]"#;
        let body = format!(r#"{{"model":"gpt-4o-audio","messages":[{messages}],"tools":{tools}}}"#);
        let request = client().post(&url).bearer_auth("k").body(body);
        let answer = request.send().await.unwrap().text().await.unwrap();
        assert!(answer.contains(r#""audio":{"id":"audio_2""#), "{answer}");
        messages.push_str(&format!(
            r#",{{"role":"assistant","content":{content},"audio":{{"id":"audio_2"}}}}"#
        ));
        messages.push_str(r#",{"role":"user","content":"again"}"#);
    }
    let seen = provider.bodies();
    assert_eq!(seen.len(), 3);
    let again = String::from_utf8_lossy(&seen[2]);
    let (call, spoken) = (again.find("\"h1\""), again.find("\"audio_2\""));
    assert!(call.is_some() && call < spoken, "{again}");
}

const CALLED: &str = concat!(
    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"h1","type":"function","#,
    r#""function":{"name":"delimiter","arguments":"{\"action\":\"start\",\"type\":\"expl\",\"name\":\"a\"}"}}]}"#,
);
const SPOKEN: &str = r#"{"role":"assistant","content":null,"refusal":null,"audio":{"id":"audio_2","data":"UklGRg==","expires_at":1,"transcript":"hm"}}"#;
