//! A request of messages that were said before, as one that is read again. Owns where they stand in its body. Never sent to
//! anybody.

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};

use super::{Dialect, json};

/// A request of these units, byte for byte.
pub(super) fn body(dialect: Dialect, model: &str, units: &[Bytes], tools: Option<&Bytes>) -> Bytes {
    let (list, messages) = match dialect {
        Dialect::Chat => ("messages", json::list(units)),
        Dialect::Responses => ("input", json::list(units)),
        Dialect::Messages => ("messages", of_messages(units)),
    };
    let mut body = format!("{{\"model\":{},", raw::quote(model)).into_bytes();
    if dialect == Dialect::Messages {
        body.extend_from_slice(b"\"max_tokens\":1024,");
    }
    if let Some(tools) = tools {
        body.extend_from_slice(b"\"tools\":");
        body.extend_from_slice(tools);
        body.push(b',');
    }
    body.extend_from_slice(format!("\"{list}\":").as_bytes());
    body.extend_from_slice(&messages);
    body.push(b'}');
    Bytes::from(body)
}

/// The units of Messages as messages. Some are blocks, which stand in a message of the user's.
fn of_messages(units: &[Bytes]) -> Bytes {
    let runs = units.chunk_by(|one, next| is_block(one) && is_block(next));
    let messages = runs.map(|run| match run {
        [message] if !is_block(message) => message.clone(),
        blocks => {
            let parts = [
                b"{\"role\":\"user\",\"content\":",
                &json::list(blocks)[..],
                b"}",
            ];
            Bytes::from(parts.concat())
        }
    });
    json::list(&messages.collect::<Vec<_>>())
}

/// Whether a unit of Messages is a block, or several, and no message.
fn is_block(unit: &Bytes) -> bool {
    // Several have commas between them, and are no JSON by themselves. The system's text is a string or a list.
    let is_system = matches!(unit.first(), Some(b'"' | b'['));
    !is_system && !Object::parse(unit).is_ok_and(|object| object.get("role").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was taken apart and put together again is read as it was.
    #[test]
    fn a_request_of_units_has_the_same_units() {
        let chat = r#"{"model":"m","messages":[{"role":"user","content":"go"},
            {"role":"assistant","content":"a"}]}"#;
        let responses = r#"{"model":"m","input":[{"role":"user","content":"go"},
            {"type":"function_call_output","call_id":"c","output":"o"}]}"#;
        let result = r#"{"type":"tool_result","tool_use_id":"c","content":"o"}"#;
        let text = r#"{"type":"text","text":"t"}"#;
        let call = r#"{"type":"tool_use","id":"c","name":"f","input":{}}"#;
        let messages = format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"go"}},
            {{"role":"assistant","content":[{call}]}},{{"role":"user","content":[{result},{text},{text}]}},
            {{"role":"assistant","content":"a"}}]}}"#
        );
        for (dialect, body) in [
            (Dialect::Chat, chat),
            (Dialect::Responses, responses),
            (Dialect::Messages, &messages),
        ] {
            let units = |body: &Bytes| {
                let request = dialect.decode(body.clone()).unwrap();
                let all = 0..request.messages.len();
                all.map(|at| Bytes::copy_from_slice(request.message(at)))
                    .collect::<Vec<_>>()
            };
            let units_of = units(&Bytes::copy_from_slice(body.as_bytes()));
            let again = dialect.whole_request("m", &units_of, None);
            assert_eq!(units(&again), units_of, "{dialect:?}");
        }
    }
}
