//! Half a character: a lone surrogate, which JSON can spell and no text can hold. A message with one
//! goes up as it came, and the session around it is managed as ever.

use serde_json::{Value, json};

use super::support::{Lenient, Proxy, client, soon};
use axum::body::Body;
use axum::response::Response;

const HALF: &str = "LONE";

/// Puts real lone surrogates where they were named.
fn spelled(body: &Value) -> String {
    body.to_string().replace(HALF, r"a\ud800b\\\udc00")
}

fn bodies(path: &str, place: usize, long: &str) -> Value {
    // What is said at each place, and the half character at one.
    let text = |at: usize, text: &str| match at == place {
        true => format!("{text} {HALF}"),
        false => text.to_owned(),
    };
    let system = text(0, "be brief");
    let user = text(1, "go");
    let said = text(2, "I look");
    let result = text(3, "found");
    let schema = json!({"type": "object"});
    match path {
        "/v1/chat/completions" => json!({"model": "gpt-4o", "messages": [
            {"role": "system", "content": system}, {"role": "user", "content": user},
            {"role": "assistant", "content": said, "tool_calls": [{"id": "call_a",
                "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_a", "content": result},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "call_b",
                "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_b", "content": long},
            {"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}],
            "tools": [{"type": "function", "function": {"name": "read", "parameters": schema}}]}),
        "/v1/responses" => json!({"model": "gpt-4o", "store": false, "instructions": system,
            "input": [{"role": "user", "content": user}, {"role": "assistant", "content": said},
            {"type": "function_call", "call_id": "call_a", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_a", "output": result},
            {"type": "function_call", "call_id": "call_b", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_b", "output": long},
            {"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}],
            "tools": [{"type": "function", "name": "read", "parameters": schema}]}),
        _ => json!({"model": "claude-x", "max_tokens": 99, "system": system, "messages": [
            {"role": "user", "content": user},
            {"role": "assistant", "content": [{"type": "text", "text": said},
                {"type": "tool_use", "id": "call_a", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a",
                "content": result}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_b",
                "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_b",
                "content": long}]},
            {"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}],
            "tools": [{"name": "read", "input_schema": schema}]}),
    }
}

#[tokio::test]
async fn a_message_with_half_a_character_passes_and_the_rest_is_managed() {
    let provider = Lenient::start(|_, _| {
        let built = Response::builder().header("content-type", "application/json");
        built.body(Body::from("{}")).unwrap()
    });
    let provider = provider.await;
    let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = 4_000).await;
    let long = "line of a result that is long\n".repeat(2_500);
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for place in 0..4 {
            let body = spelled(&bodies(path, place, &long));
            let request = client().post(proxy.url(path)).header("x-api-key", "k");
            let response = soon(request.body(body.clone()).send()).await.unwrap();
            let what = format!("{path} {place}");
            let told = |name: &str| response.headers().get(name).cloned();
            assert_eq!(told("x-plimsoll-fail-open"), None, "{what}");
            assert_eq!(told("x-plimsoll-unmanaged"), None, "{what}");
            let sent = provider.bodies().pop().unwrap();
            let sent = String::from_utf8(sent.to_vec()).unwrap();
            assert!(sent.contains("delimiter"), "{what}");
            // What is beside it goes where there is no room for it.
            assert!(sent.len() < body.len() / 2, "{what}: {}", sent.len());
            assert!(sent.contains(r"a\ud800b\\\udc00"), "{what}: {sent}");
        }
    }
}
