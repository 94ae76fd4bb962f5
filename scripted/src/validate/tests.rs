//! The validator's table: bodies that must pass, and bodies that must not with what is said.

use serde_json::{Value, json};

use super::*;

fn body(messages: Value) -> Value {
    json!({"model": "m", "messages": messages})
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}})
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}}})
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn hello() -> Value {
    body(json!([{"role": "user", "content": "hi"}]))
}

#[test]
fn accepts_what_providers_accept() {
    let asks = json!({"role": "user", "content": "hi"});
    let table = [
        hello(),
        body(
            json!([{"role": "system", "content": ""}, asks, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ),
        body(json!([{"role": "developer", "content": [{"type": "text", "text": "x"}]}, asks])),
        body(
            json!([{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]}]),
        ),
        body(
            json!([asks, {"role": "assistant", "tool_calls": [call("a"), call("b")]}, {"role": "tool", "tool_call_id": "b", "content": ""}, {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]}]),
        ),
        body(
            json!([asks, {"role": "assistant", "content": null, "tool_calls": [call("a")]}, {"role": "tool", "tool_call_id": "a", "content": "x"}, asks]),
        ),
        // The same id may come again in a later group.
        body(
            json!([asks, {"role": "assistant", "tool_calls": [call("a")]}, {"role": "tool", "tool_call_id": "a", "content": "x"}, {"role": "assistant", "tool_calls": [call("a")]}, {"role": "tool", "tool_call_id": "a", "content": "x"}]),
        ),
        body(json!([asks, {"role": "assistant", "content": null, "refusal": "no"}])),
        body(
            json!([asks, {"role": "assistant", "content": "x", "reasoning_content": "r", "unknown": 1}]),
        ),
        with(hello(), "tools", json!([tool("a"), tool("b")])),
        with(
            with(hello(), "tools", json!([tool("a")])),
            "tool_choice",
            json!("required"),
        ),
        with(
            with(hello(), "tools", json!([tool("a")])),
            "tool_choice",
            json!({"type": "function", "function": {"name": "a"}}),
        ),
        with(hello(), "tools", Value::Null),
        with(
            with(hello(), "stream", json!(true)),
            "stream_options",
            json!({"include_usage": true}),
        ),
        with(
            hello(),
            "tools",
            json!([{"type": "function", "function": {"name": "a", "description": "é".repeat(1_024)}}]),
        ),
    ];
    for body in table {
        let text = body.to_string();
        assert_eq!(request(text.as_bytes()).err(), None, "{text}");
    }
}

#[test]
fn refuses_malformed_json_and_non_objects() {
    for text in [
        "",
        "{",
        "[]",
        "\"x\"",
        "{\"model\":\"m\",}",
        "{\"model\":\"\\ud800\"}",
    ] {
        let refusal = request(text.as_bytes()).expect_err(text);
        assert_eq!(refusal, Refusal::malformed(), "{text}");
    }
}

#[test]
fn refuses_with_the_parameter_and_the_text_of_a_provider() {
    let asks = json!({"role": "user", "content": "hi"});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let calls = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let tools = |tools: Value| with(hello(), "tools", tools);
    let raw = |function: Value| json!([{"id": "a", "type": "function", "function": function}]);
    let table: Vec<(Value, &str, &str)> = vec![
        (json!({"messages": [asks]}), "model", "must provide a model"),
        (
            json!({"model": "", "messages": [asks]}),
            "model",
            "must provide a model",
        ),
        (
            json!({"model": 1, "messages": [asks]}),
            "model",
            "expected a string, but got an integer",
        ),
        (
            json!({"model": "m"}),
            "messages",
            "Missing required parameter",
        ),
        (
            body(json!({})),
            "messages",
            "expected an array of objects, but got an object",
        ),
        (body(json!("hi")), "messages", "but got a string"),
        (body(json!([])), "messages", "empty array"),
        (body(json!(["hi"])), "messages[0]", "expected an object"),
        (
            body(json!([{"content": "x"}])),
            "messages[0].role",
            "Missing",
        ),
        (
            body(json!([{"role": 1, "content": "x"}])),
            "messages[0].role",
            "expected a string",
        ),
        (
            body(json!([{"role": "robot", "content": "x"}])),
            "messages[0].role",
            "Invalid value: 'robot'",
        ),
        (
            body(json!([{"role": "user"}])),
            "messages[0].content",
            "Missing",
        ),
        (
            body(json!([{"role": "user", "content": null}])),
            "messages[0].content",
            "but got null",
        ),
        (
            body(json!([{"role": "user", "content": 7}])),
            "messages[0].content",
            "but got an integer",
        ),
        (
            body(json!([{"role": "user", "content": []}])),
            "messages[0].content",
            "empty array",
        ),
        (
            body(json!([{"role": "user", "content": ["x"]}])),
            "messages[0].content[0]",
            "expected an object",
        ),
        (
            body(json!([{"role": "user", "content": [{"text": "x"}]}])),
            "messages[0].content[0].type",
            "Missing",
        ),
        (
            body(json!([{"role": "user", "content": [{"type": "text"}]}])),
            "messages[0].content[0].text",
            "Missing",
        ),
        (
            body(json!([{"role": "user", "content": [{"type": "text", "text": 1}]}])),
            "messages[0].content[0].text",
            "Invalid type",
        ),
        (
            body(json!([{"role": "system"}, asks])),
            "messages[0].content",
            "Missing",
        ),
        (
            body(json!([{"role": "system", "content": [{"type": "image_url", "image_url": {}}]}])),
            "messages[0].content[0].type",
            "Invalid value",
        ),
        (
            body(json!([asks, {"role": "assistant"}])),
            "messages[1].content",
            "either content or tool_calls",
        ),
        (
            body(json!([asks, {"role": "assistant", "content": null}])),
            "messages[1].content",
            "either content or tool_calls",
        ),
        (
            body(json!([asks, {"role": "assistant", "content": ""}])),
            "messages[1].content",
            "either content or tool_calls",
        ),
        (
            body(json!([asks, {"role": "assistant", "content": "x", "tool_calls": []}])),
            "messages[1].tool_calls",
            "empty array",
        ),
        (
            body(json!([asks, {"role": "assistant", "content": "x", "tool_calls": null}])),
            "messages[1].tool_calls",
            "but got null",
        ),
        (
            body(json!([
                asks,
                calls(json!([{"type": "function", "function": {"name": "a", "arguments": ""}}]))
            ])),
            "messages[1].tool_calls[0].id",
            "Missing",
        ),
        (
            body(json!([
                asks,
                calls(
                    json!([{"id": "", "type": "function", "function": {"name": "a", "arguments": ""}}])
                )
            ])),
            "messages[1].tool_calls[0].id",
            "empty string",
        ),
        (
            body(json!([
                asks,
                calls(json!([{"id": "a", "function": {"name": "a", "arguments": ""}}]))
            ])),
            "messages[1].tool_calls[0].type",
            "Missing",
        ),
        (
            body(json!([
                asks,
                calls(raw(json!({"name": "a", "arguments": {}})))
            ])),
            "messages[1].tool_calls[0].function.arguments",
            "expected a string, but got an object",
        ),
        (
            body(json!([asks, calls(raw(json!({"name": "a"})))])),
            "messages[1].tool_calls[0].function.arguments",
            "Missing",
        ),
        (
            body(json!([
                asks,
                calls(raw(json!({"name": "a b", "arguments": ""})))
            ])),
            "messages[1].tool_calls[0].function.name",
            "pattern",
        ),
        (
            body(json!([asks, calls(raw(json!("ls")))])),
            "messages[1].tool_calls[0].function",
            "expected an object",
        ),
        (
            body(json!([
                asks,
                calls(json!([call("a"), call("a")])),
                result("a")
            ])),
            "messages[1].tool_calls[1].id",
            "Duplicate",
        ),
        (
            body(json!([
                asks,
                calls(json!([call("a")])),
                result("a"),
                result("a")
            ])),
            "messages.[3].tool_call_id",
            "Duplicate",
        ),
        (
            body(json!([
                asks,
                calls(json!([call("a"), call("b")])),
                result("a")
            ])),
            "messages.[3].role",
            "response messages: b",
        ),
        (
            body(json!([asks, calls(json!([call("a")])), asks, result("a")])),
            "messages.[2].role",
            "response messages: a",
        ),
        (
            body(
                json!([asks, calls(json!([call("a")])), {"role": "system", "content": "x"}, result("a")]),
            ),
            "messages.[2].role",
            "response messages: a",
        ),
        (
            body(json!([asks, result("a")])),
            "messages.[1].role",
            "must be a response to a preceeding message",
        ),
        (
            body(json!([
                asks,
                calls(json!([call("a")])),
                result("a"),
                asks,
                result("a")
            ])),
            "messages.[4].role",
            "must be a response to a preceeding message",
        ),
        (
            body(json!([asks, calls(json!([call("a")])), result("b")])),
            "messages.[2].role",
            "must be a response to a preceeding message",
        ),
        (
            body(json!([asks, calls(json!([call("a")])), {"role": "tool", "content": "x"}])),
            "messages.[2].tool_call_id",
            "Missing",
        ),
        (
            body(json!([asks, calls(json!([call("a")])), {"role": "tool", "tool_call_id": "a"}])),
            "messages[2].content",
            "Missing",
        ),
        (
            body(
                json!([asks, calls(json!([call("a")])), {"role": "tool", "tool_call_id": "a", "content": null}]),
            ),
            "messages[2].content",
            "but got null",
        ),
        (
            with(hello(), "stream", json!("yes")),
            "stream",
            "expected a boolean",
        ),
        (
            with(hello(), "temperature", json!("hot")),
            "temperature",
            "expected a decimal",
        ),
        (
            with(hello(), "max_tokens", json!(1.5)),
            "max_tokens",
            "but got a decimal",
        ),
        (
            with(hello(), "stream_options", json!({"include_usage": true})),
            "stream_options",
            "only allowed when 'stream'",
        ),
        (tools(json!({})), "tools", "expected an array"),
        (tools(json!([])), "tools", "empty array"),
        (tools(json!(["ls"])), "tools[0]", "expected an object"),
        (
            tools(json!([{"function": {"name": "a"}}])),
            "tools[0].type",
            "Missing",
        ),
        (
            tools(json!([{"type": "function"}])),
            "tools[0].function",
            "Missing",
        ),
        (
            tools(json!([{"type": "gadget", "gadget": {}}])),
            "tools[0].type",
            "Invalid value",
        ),
        (
            tools(json!([{"type": "function", "function": {}}])),
            "tools[0].function.name",
            "Missing",
        ),
        (
            tools(json!([{"type": "function", "function": {"name": "a".repeat(65)}}])),
            "tools[0].function.name",
            "pattern",
        ),
        (
            tools(json!([tool("a"), tool("b"), tool("a")])),
            "tools[2].function.name",
            "unique",
        ),
        (
            tools(
                json!([{"type": "function", "function": {"name": "a", "description": "x".repeat(1_025)}}]),
            ),
            "tools[0].function.description",
            "string too long",
        ),
        (
            tools(json!([{"type": "function", "function": {"name": "a", "parameters": {}}}])),
            "tools[0].function.parameters",
            "Invalid schema",
        ),
        (
            tools(json!([{"type": "function", "function": {"name": "a", "parameters": "x"}}])),
            "tools[0].function.parameters",
            "expected an object",
        ),
        (
            with(hello(), "tool_choice", json!("auto")),
            "tool_choice",
            "only allowed when 'tools'",
        ),
        (
            with(hello(), "parallel_tool_calls", json!(true)),
            "parallel_tool_calls",
            "only allowed when 'tools'",
        ),
        (
            with(
                tools(json!([tool("a")])),
                "tool_choice",
                json!({"type": "function", "function": {"name": "b"}}),
            ),
            "tool_choice",
            "'b' not found in 'tools'",
        ),
        (
            with(tools(json!([tool("a")])), "tool_choice", json!("maybe")),
            "tool_choice",
            "Invalid value: 'maybe'",
        ),
        (
            with(tools(json!([tool("a")])), "tool_choice", json!(1)),
            "tool_choice",
            "but got an integer",
        ),
        (
            tools(Value::Array(
                (0..129).map(|n| tool(&format!("t{n}"))).collect(),
            )),
            "tools",
            "array too long",
        ),
    ];
    for (body, param, said) in table {
        let text = body.to_string();
        let refusal = request(text.as_bytes()).expect_err(&text);
        assert_eq!(refusal.param.as_deref(), Some(param), "{text}");
        assert!(
            refusal.message.contains(said),
            "{text}\n{}",
            refusal.message
        );
        assert_eq!(refusal.status, 400);
    }
}

#[test]
fn refusals_have_the_error_shape() {
    let refusal = Refusal::context_length(100, 101);
    let body: Value = serde_json::from_str(&refusal.body(Form::Chat)).unwrap();
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert_eq!(body["error"]["type"], "invalid_request_error");
    let text = body["error"]["message"].as_str().unwrap();
    assert!(text.starts_with(
        "This model's maximum context length is 100 tokens. However, your messages resulted in 101 tokens."
    ));
    let malformed: Value = serde_json::from_str(&Refusal::malformed().body(Form::Chat)).unwrap();
    assert!(malformed["error"]["code"].is_null());
}
