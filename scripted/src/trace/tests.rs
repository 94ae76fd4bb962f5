//! Odd recordings become sessions that a strict provider accepts at every turn.

use super::*;
use crate::validate;

fn lines(messages: &[Value]) -> String {
    messages
        .iter()
        .map(|message| format!("{message}\n"))
        .collect()
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn asks(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn calls(ids: &[&str]) -> Value {
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{\"path\": \".\"}"}}))
        .collect();
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": format!("result of {id}")})
}

/// The roles of what the client adds before each answer, and each answer's call ids.
fn shape(recording: &Recording) -> String {
    let mut shape = String::new();
    for turn in &recording.turns {
        let roles: Vec<&str> = turn
            .before
            .iter()
            .map(|message| message.role.as_str())
            .collect();
        let ids: Vec<&str> = turn
            .answer
            .calls
            .iter()
            .map(|call| call.id.as_str())
            .collect();
        shape.push_str(&format!("[{}]{} ", roles.join(","), ids.join(",")));
    }
    shape.trim_end().to_owned()
}

/// Every request that an agent would send is valid.
fn check_valid(recording: &Recording) {
    let mut history: Vec<Value> = Vec::new();
    for turn in &recording.turns {
        history.extend(
            turn.before
                .iter()
                .map(|message| serde_json::from_str(&message.raw).unwrap()),
        );
        let mut body = json!({"model": "m", "messages": history});
        if let Some(tools) = &recording.tools {
            body["tools"] = serde_json::from_str(tools).unwrap();
        }
        assert_eq!(
            validate::request(body.to_string().as_bytes()).err(),
            None,
            "{body}"
        );
        let calls: Vec<Value> = turn.answer.calls.iter().map(|call| {
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        }).collect();
        let mut message = says(&turn.answer.text);
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        history.push(message);
    }
}

#[test]
fn normalises() {
    let system = json!({"role": "system", "content": "s"});
    let table = [
        (vec![asks("a"), says("b")], "[system,user]"),
        (vec![system.clone(), asks("a"), says("b")], "[system,user]"),
        (
            vec![says("b"), asks("a"), says("c")],
            "[system,user] [user]",
        ),
        (vec![system.clone(), says("b")], "[system,user]"),
        (vec![asks("a"), says("b"), says("c")], "[system,user] []"),
        (
            vec![asks("a"), asks("b"), says("c"), asks("d")],
            "[system,user,user]",
        ),
        (
            vec![
                asks("a"),
                calls(&["1", "2"]),
                result("2"),
                result("1"),
                says("c"),
            ],
            "[system,user]1,2 [tool,tool]",
        ),
        (
            vec![
                asks("a"),
                calls(&["1", "2"]),
                result("2"),
                asks("b"),
                says("c"),
            ],
            "[system,user]1,2 [tool,tool,user]",
        ),
        (
            vec![
                asks("a"),
                calls(&["1"]),
                calls(&["2"]),
                result("2"),
                says("c"),
            ],
            "[system,user]1 [tool]2 [tool]",
        ),
        (vec![asks("a"), result("9"), says("c")], "[system,user]"),
        (
            vec![
                asks("a"),
                calls(&["1"]),
                result("1"),
                calls(&["1", "1"]),
                result("1"),
                result("1"),
                says("x"),
            ],
            "[system,user]1 [tool]1-r2,1-r3 [tool,tool]",
        ),
        (vec![asks("a"), says("")], "[system,user]"),
    ];
    for (messages, want) in table {
        let recording = Recording::parse(&lines(&messages)).unwrap();
        assert_eq!(shape(&recording), want);
        check_valid(&recording);
        check_valid(&recording.instance(3));
    }
}

#[test]
fn keeps_texts_ids_and_reasoning() {
    let text = format!(
        "{}\n{}",
        json!({"_meta": {"id": "s-1"}}),
        lines(&[
            asks("größe \u{1F6A2}"),
            json!({"role": "assistant", "content": "t", "reasoning_content": "r", "tool_calls": calls(&["x"])["tool_calls"]}),
            result("x"),
            says("end"),
        ])
    );
    let recording = Recording::parse(&text).unwrap();
    assert_eq!(recording.id, "s-1");
    let first = &recording.turns[0];
    assert_eq!(
        (first.answer.text.as_str(), first.answer.reasoning.as_str()),
        ("t", "r")
    );
    assert!(first.before[1].raw.contains("größe \u{1F6A2}"));
    assert_eq!(recording.users(0).count(), 1);
    let copy = recording.instance(2);
    assert_eq!(copy.id, "s-1-i2");
    assert!(copy.turns[1].before[0].raw.contains("\"x-i2\""));
    let tools: Value = serde_json::from_str(recording.tools.as_deref().unwrap()).unwrap();
    assert_eq!(
        tools[0]["function"]["parameters"]["required"],
        json!(["path"])
    );
}

#[test]
fn refuses_what_is_no_recording() {
    assert!(matches!(
        Recording::parse("{"),
        Err(TraceError::Line { line: 1 })
    ));
    assert!(matches!(
        Recording::parse("\n[]"),
        Err(TraceError::Line { line: 2 })
    ));
    assert!(matches!(
        Recording::parse(&lines(&[asks("a")])),
        Err(TraceError::Empty)
    ));
    let robot = lines(&[json!({"role": "robot"})]);
    assert!(matches!(
        Recording::parse(&robot),
        Err(TraceError::Role { line: 1, .. })
    ));
}
