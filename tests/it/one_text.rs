//! A client that asks for JSON in the middle of a conversation gets one piece of JSON, whatever the model said beside
//! hidden calls, and the model finds all of it again in the next turn.

use serde_json::{Value, json};

use super::dialects::{Agent, DIALECTS, Dialect, Provider, Reply, call, says};
use super::support::Proxy;

const START: &str = r#"{"action":"start","name":"look","type":"expl"}"#;

/// What a hop says, and the tool that it calls.
type Hop = (&'static str, Option<&'static str>);

/// Turns by their hops, with what the client is to read.
const TURNS: [(&[Hop], &str); 6] = [
    (
        &[
            (r#"{"at": 1}"#, Some("delimiter")),
            (r#"{"ok": true}"#, None),
        ],
        r#"{"ok": true}"#,
    ),
    (
        &[
            ("I mark this.", Some("delimiter")),
            (r#"{"ok": true}"#, None),
        ],
        r#"{"ok": true}"#,
    ),
    (
        &[(r#"{"ok": true}"#, Some("delimiter")), ("", None)],
        r#"{"ok": true}"#,
    ),
    (
        &[
            ("I mark this.", Some("delimiter")),
            (r#"{"ok": true}"#, Some("delimiter")),
            ("", None),
        ],
        r#"{"ok": true}"#,
    ),
    (
        &[
            (r#"{"at": 1}"#, Some("delimiter")),
            (r#"{"at": 2}"#, Some("delimiter")),
            (r#"{"ok": true}"#, None),
        ],
        r#"{"ok": true}"#,
    ),
    (
        &[(r#"{"ok": true}"#, Some("delimiter")), ("", Some("bash"))],
        r#"{"ok": true}"#,
    ),
];

/// A provider that says hello, then the hops, then goodbye.
async fn provider(hops: &'static [Hop]) -> Provider {
    Provider::start(move |number, _| -> Reply {
        let said = number.checked_sub(1).and_then(|at| hops.get(at));
        let Some((text, tool)) = said else {
            return says(["hello", "goodbye"][usize::from(number > 0)], Vec::new());
        };
        let arguments = |tool: &str| if tool == "bash" { "{}" } else { START };
        let call = |tool: &str| call(&format!("c{number}"), tool, arguments(tool));
        says(text, tool.iter().map(|tool| call(tool)).collect())
    })
    .await
}

/// How each format asks for JSON.
fn schema(dialect: Dialect) -> (&'static str, Value) {
    let schema = json!({"type": "object"});
    match dialect {
        Dialect::Chat => (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": "r", "schema": schema}}),
        ),
        Dialect::Responses => (
            "text",
            json!({"format": {"type": "json_schema", "name": "r", "schema": schema}}),
        ),
        Dialect::Messages => (
            "output_config",
            json!({"format": {"type": "json_schema", "schema": schema}}),
        ),
    }
}

#[tokio::test]
async fn json_in_mid_conversation_is_one_piece() {
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        for (hops, read) in TURNS {
            let case = format!("{dialect:?} {stream} {hops:?}");
            let host = provider(hops).await;
            let proxy = Proxy::with(host.addr, |_| ()).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "json");
            agent.user("look");
            agent.turn().await;
            agent.user("now as JSON");
            agent.fields.push(schema(dialect));
            let answer = agent.turn().await;
            assert_eq!(answer.text, read, "{case}");
            let calls: Vec<&str> = answer.calls.iter().map(|call| &*call.name).collect();
            let last = hops.last().and_then(|(_, tool)| *tool);
            assert_eq!(calls, last.as_slice(), "{case}");
            // All hops were paid for.
            let paid = format!(r#"tokens":{}"#, 2 * hops.len());
            if !(stream && dialect == Dialect::Chat) {
                assert!(answer.bytes.contains(&paid), "{case}: {}", answer.bytes);
            }
            let before = host.newest();
            agent.fields.clear();
            agent.user("thanks");
            assert_eq!(agent.turn().await.text, "goodbye", "{case}");
            let after = host.newest();
            let (before, after) = (before.texts(), after.texts());
            // Messages has the user speak in the message of the last result, if the model said nothing behind it.
            let joins = dialect == Dialect::Messages && hops.last() == Some(&("", None));
            assert!(
                joins || after.starts_with(&before),
                "{case}: {before:?} {after:?}"
            );
            for (text, _) in hops.iter().filter(|(text, _)| !text.is_empty()) {
                let quoted = Value::from(*text).to_string();
                let times = after.join("\n").matches(&quoted).count();
                assert_eq!(times, 1, "{case}: {text} in {after:#?}");
            }
        }
    }
}
