//! Tests of `dialect`.

use super::*;

#[test]
fn paths_are_told_apart_as_they_were_sent() {
    let table = [
        ("/v1/chat/completions", Some(Dialect::Chat)),
        ("/chat/completions", Some(Dialect::Chat)),
        (
            "/openai/deployments/gpt/chat/completions",
            Some(Dialect::Chat),
        ),
        ("/v1/chat/completions/", None),
        ("/v1/chat/completions/chatcmpl-1", None),
        ("/v1/chat%2Fcompletions", None),
        ("/v1/xchat/completions", None),
        ("/v1/completions", None),
        ("/v1/responses", Some(Dialect::Responses)),
        ("/v1/responses/resp_1", None),
        ("/v1/responses/compact", None),
        ("/v1/messages", Some(Dialect::Messages)),
        ("/messages", Some(Dialect::Messages)),
        ("/v1/messages/count_tokens", Some(Dialect::Messages)),
        ("/v1/messages/batches", None),
        ("/v1/threads/t/messages", None),
        ("/v1/models", None),
    ];
    for (path, wanted) in table {
        let found = Dialect::of_path(path).map(|(dialect, _)| dialect);
        assert_eq!(found, wanted, "{path}");
    }
}

#[test]
fn what_was_called_is_the_same_under_other_ids() {
    let answers = [
        (
            Dialect::Chat,
            r#"{"role":"assistant","content":"said","tool_calls":[{"id":"ID","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
            r#"{"role":"tool","tool_call_id":"ID","content":"said"}"#,
        ),
        (
            Dialect::Responses,
            r#"{"role":"assistant","content":"said"},{"type":"function_call","call_id":"ID","name":"f","arguments":"{}"}"#,
            r#"{"type":"function_call_output","call_id":"ID","output":"said"}"#,
        ),
        (
            Dialect::Messages,
            r#"{"role":"assistant","content":[{"type":"text","text":"said"},{"type":"tool_use","id":"ID","name":"f","input":{}}]}"#,
            r#"{"type":"tool_result","tool_use_id":"ID","content":"said"}"#,
        ),
    ];
    for (dialect, answer, result) in answers {
        let digests = |unit: &str, id: &str| {
            let unit = unit.replace("ID", id);
            let parsed = dialect.parse(unit.as_bytes()).unwrap();
            (parsed.canonical, parsed.nameless)
        };
        for unit in [answer, result] {
            let ((one, blank), (other, same)) = (digests(unit, "a"), digests(unit, "b"));
            assert_ne!(one, other, "{dialect:?}");
            assert_eq!(blank, same, "{dialect:?}");
            assert_ne!(
                blank,
                digests(&unit.replace("said", "done"), "a").1,
                "{dialect:?}"
            );
        }
        let parsed = dialect.parse(answer.as_bytes()).unwrap();
        let handed = dialect.nameless_of_answer("said", &parsed.calls);
        assert_eq!(handed, parsed.nameless, "{dialect:?}");
    }
}

#[test]
fn a_call_gets_another_id() {
    let calls = [
        (
            Dialect::Chat,
            r#"{"id":"ID","type":"function","function":{"name":"f","arguments":"{}"}}"#,
        ),
        (
            Dialect::Responses,
            r#"{"type":"function_call","id":"fc_1","call_id":"ID","name":"f","arguments":"{}"}"#,
        ),
        (
            Dialect::Messages,
            r#"{"type":"tool_use","id":"ID","name":"f","input":{}}"#,
        ),
    ];
    for (dialect, call) in calls {
        let edit = CallEdit {
            id: Some("new"),
            ..CallEdit::default()
        };
        let new = dialect.edit_call(call.as_bytes(), &edit).unwrap();
        assert_eq!(new, call.replace("ID", "new"), "{dialect:?}");
    }
}
