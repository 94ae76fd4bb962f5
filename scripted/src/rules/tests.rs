//! The rules are judged: what each lets pass as it was issued, and what it refuses.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

use http::HeaderMap;
use serde_json::{Value, json};

use super::{Edit, Form, Judged, Rule, Rules, Scope};
use crate::script::{Call, Reply};
use crate::validate::Refusal;
use crate::wire::{self, Envelope};

const MODEL: &str = "m";

/// A provider that has answered once, with two calls, and the message that it sent.
fn answered(rule: Rule) -> (Rules, Value) {
    let rules = Rules::new([rule]);
    let calls = vec![
        Call::new("h1", "delimiter", r#"{"action":"end"}"#),
        Call::new("b1", "bash", r#"{"c":"run"}"#),
    ];
    let mut reply = Reply::calls(calls).saying("One.").reasoning("Hm.");
    rules.issue(Form::Chat, MODEL, &Judged::default(), &mut reply);
    let envelope = Envelope {
        form: Form::Chat,
        id: "x".to_owned(),
        created: 1,
        model: MODEL.to_owned(),
        prompt: 1,
        cached: 0,
        completion: 1,
        include_usage: false,
    };
    let body: Value = serde_json::from_slice(&wire::body(&reply, &envelope)).unwrap();
    (rules, body["choices"][0]["message"].clone())
}

/// Judges a request of one turn with such a message, and a text of the user's behind it or none.
fn judged(rules: &Rules, message: &Value, model: &str, later: bool) -> Option<String> {
    let result = |id| json!({"role": "tool", "tool_call_id": id, "content": format!("of {id}")});
    let mut messages = vec![
        json!({"role": "user", "content": "go"}),
        message.clone(),
        result("h1"),
        result("b1"),
    ];
    messages.extend(later.then(|| json!({"role": "user", "content": "on"})));
    let tools = json!([{"type": "function", "function": {"name": "bash"}},
        {"type": "function", "function": {"name": "delimiter"}}]);
    let body = json!({"model": model, "messages": messages, "tools": tools});
    refused(rules, Form::Chat, &body).map(|r| r.message)
}

/// What is said against a request.
fn refused(rules: &Rules, form: Form, body: &Value) -> Option<Refusal> {
    rules.judge(form, &HeaderMap::new(), body).refusal
}

/// Takes a member away; a path may end in a list.
fn without(message: &Value, path: &str, field: &str) -> Value {
    let mut message = message.clone();
    let holder = message.pointer_mut(path).unwrap();
    holder.as_object_mut().unwrap().remove(field).unwrap();
    message
}

#[test]
fn what_was_issued_comes_back() {
    let rules = [
        Rule::GeminiSignatures,
        Rule::OpenRouterSignatures,
        Rule::DeepSeekReasoning(Scope::All),
        Rule::KimiReasoning(Scope::All),
        Rule::VllmArguments,
        Rule::LlamaArguments,
        Rule::InputObjects,
        Rule::ThinkingParts,
        Rule::StrictNames,
        Rule::NoCacheControl,
        Rule::Unwritten(Edit::Reasoning),
        Rule::Unwritten(Edit::Results),
        Rule::Unwritten(Edit::Arguments),
    ];
    for rule in rules {
        let (rules, message) = answered(rule);
        assert_eq!(judged(&rules, &message, MODEL, false), None, "{rule:?}");
        assert_eq!(judged(&rules, &message, MODEL, true), None, "{rule:?}");
    }
}

#[test]
fn what_is_lost_is_missed() {
    // (rule, what is lost, what the refusal says, whether it is missed behind the turn)
    type Lost = (Rule, fn(&Value) -> Value, &'static str, bool);
    let first = |message: &Value| {
        let mut message = message.clone();
        message["tool_calls"].as_array_mut().unwrap().remove(0);
        message
    };
    let unthought: fn(&Value) -> Value = |message| without(message, "", "reasoning_content");
    let torn: fn(&Value) -> Value = |message| {
        let mut message = message.clone();
        message["tool_calls"][0]["function"]["arguments"] = "{\"a".into();
        message
    };
    let lost: [Lost; 11] = [
        (Rule::GeminiSignatures, first, "`default_api:bash`", false),
        (
            Rule::OpenRouterSignatures,
            |message| without(message, "", "reasoning_details"),
            "Provider returned error",
            false,
        ),
        (
            Rule::OpenRouterSignatures,
            first,
            "Provider returned error",
            false,
        ),
        (
            Rule::DeepSeekReasoning(Scope::Turn),
            unthought,
            "message index 1",
            false,
        ),
        (
            Rule::KimiReasoning(Scope::All),
            |message| {
                let mut message = message.clone();
                message["reasoning_content"] = "".into();
                message
            },
            "at index 1",
            true,
        ),
        (Rule::VllmArguments, torn, "Expecting", true),
        (Rule::InputObjects, torn, "a valid dictionary", true),
        (
            Rule::ThinkingParts,
            |message| {
                let mut message = without(message, "", "tool_calls");
                message["content"].as_array_mut().unwrap().truncate(1);
                message
            },
            "but not none",
            true,
        ),
        (
            Rule::StrictNames,
            |message| {
                let mut message = message.clone();
                message["tool_calls"][0]["function"]["name"] = "functions.delimiter".into();
                message
            },
            "functions.delimiter",
            true,
        ),
        (
            Rule::Unwritten(Edit::Reasoning),
            unthought,
            "Invalid request",
            true,
        ),
        (
            Rule::Unwritten(Edit::Exchange),
            Value::clone,
            "Invalid request",
            true,
        ),
    ];
    for (rule, lose, says, later) in lost {
        let (rules, message) = answered(rule);
        let found = judged(&rules, &lose(&message), MODEL, false);
        assert!(found.is_some_and(|text| text.contains(says)), "{rule:?}");
        let found = judged(&rules, &lose(&message), MODEL, true);
        assert_eq!(found.is_some(), later, "{rule:?}");
    }
}

#[test]
fn another_model_takes_nothing_of_it() {
    for rule in [
        Rule::GeminiSignatures,
        Rule::OpenRouterSignatures,
        Rule::DeepSeekReasoning(Scope::All),
    ] {
        let (rules, message) = answered(rule);
        let rules = rules.of("other", [Rule::NothingForeign]);
        assert!(
            judged(&rules, &message, "other", false).is_some(),
            "{rule:?}"
        );
        assert_eq!(judged(&rules, &message, MODEL, false), None, "{rule:?}");
    }
}

#[test]
fn edits_are_told_from_what_was_first() {
    let (rules, message) = answered(Rule::Unwritten(Edit::Results));
    assert_eq!(judged(&rules, &message, MODEL, false), None);
    let body = |text: &str| {
        json!({"model": MODEL, "messages": [message,
            {"role": "tool", "tool_call_id": "b1", "content": text}]})
    };
    assert!(refused(&rules, Form::Chat, &body("of b1")).is_none());
    assert!(refused(&rules, Form::Chat, &body("[evicted]")).is_some());

    let (rules, message) = answered(Rule::Unwritten(Edit::Arguments));
    let mut other = message.clone();
    other["tool_calls"][1]["function"]["arguments"] = "{ \"c\": \"run\" }".into();
    assert_eq!(judged(&rules, &other, MODEL, false), None, "the same JSON");
    other["tool_calls"][1]["function"]["arguments"] = "{\"c\":\"...\"}".into();
    assert!(judged(&rules, &other, MODEL, false).is_some());
}

#[test]
fn some_of_a_hundred_are_refused() {
    let rule = Rule::Random {
        percent: 15,
        seed: 3,
        named: false,
    };
    let rules = Rules::new([rule]);
    let body = json!({"model": MODEL, "messages": []});
    let count = (0..200).filter(|_| refused(&rules, Form::Chat, &body).is_some());
    assert!((15..50).contains(&count.count()));
}

#[test]
fn messages_and_responses_are_read() {
    let rules = Rules::new([Rule::ClaudeThinking, Rule::DeepSeekThinking]);
    let mut reply = Reply::calls(vec![Call::new("b1", "bash", "{}")]).reasoning("Hm.");
    rules.issue(Form::Messages, MODEL, &Judged::default(), &mut reply);
    let call = json!({"type": "tool_use", "id": "b1", "name": "bash", "input": {}});
    let thought = |by: &str| json!({"type": "thinking", "thinking": "Hm.", "signature": super::signed(by, "Hm.")});
    let says = |content: Value| {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "go"},
            {"role": "assistant", "content": content}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "b1", "content": "out"}]}]});
        refused(&rules, Form::Messages, &body).map(|r| r.message)
    };
    assert_eq!(says(json!([thought(MODEL), call])), None);
    assert!(says(json!([thought("other"), call])).is_some());
    assert!(says(json!([call])).unwrap().contains("found `tool_use`"));

    let rules = Rules::new([Rule::ReasoningItems]);
    let given = |items: Value| {
        let body = json!({"model": MODEL, "input": items});
        refused(&rules, Form::Responses, &body).map(|refusal| refusal.message)
    };
    let (thinks, call, output) = (
        json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        json!({"type": "function_call", "id": "fc_1_a", "call_id": "a"}),
        json!({"type": "function_call_output", "call_id": "a", "output": "x"}),
    );
    assert_eq!(given(json!([thinks, call, output])), None);
    assert!(
        given(json!([call, output]))
            .unwrap()
            .contains("required 'reasoning'")
    );
    assert!(
        given(json!([thinks, output]))
            .unwrap()
            .contains("following item")
    );
}

/// Where a system message may stand among the others.
#[test]
fn a_system_message_stands_behind_the_users_and_before_an_answer_or_last() {
    let rules = Rules::new([Rule::Bound(super::Mismatch::Refuse)]);
    let none = Rules::new([Rule::NoSystemAmong]);
    for (roles, stands) in [
        (&["user", "system"][..], true),
        (&["user", "system", "assistant", "user"], true),
        (&["system", "user"], false),
        (&["user", "assistant", "system"], false),
        (&["user", "system", "user"], false),
        (&["user", "system", "system"], false),
    ] {
        let message = |role: &&str| json!({"role": role, "content": "so"});
        let messages: Vec<Value> = roles.iter().map(message).collect();
        let body = json!({"model": MODEL, "messages": messages});
        let refusal = refused(&rules, Form::Messages, &body);
        assert_eq!(refusal.is_none(), stands, "{roles:?}");
        let refusal = refused(&none, Form::Messages, &body).unwrap();
        assert!(refusal.message.contains("role 'system'"));
    }
}
