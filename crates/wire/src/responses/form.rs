//! What the proxy writes in a Responses conversation: answers, calls, results, tools and errors.
//! An answer gives the same bytes, streamed or not. Never reads a unit.

use bytes::Bytes;
use plimsoll_model::raw;

use super::stream::ProxyMessage;
use crate::answer::{Answer, Call};
use crate::blocks::shown;
use crate::json;

pub use crate::edit::system_message as system;
pub use crate::errors::openai_error as error;

/// The hop's items in the one form in which they are stored and sent back: each as the model made
/// it, its id and its sealed reasoning untouched, with commas between them.
pub fn message(answer: &Answer) -> Bytes {
    let blocks: Vec<&[u8]> = answer.blocks.iter().map(|block| &block.raw[..]).collect();
    json::joined(&blocks)
}

/// The call as an item of its own. It keeps its item id: behind the reasoning that the call came
/// with the API demands that very item.
pub fn call(call: &Call) -> String {
    let (kind, input) = match call.kind.as_str() {
        "custom" | "custom_tool_call" => ("custom_tool_call", "input"),
        _ => ("function_call", "arguments"),
    };
    let mut json = format!(
        r#"{{"type":"{kind}","call_id":{},"name":{},"{input}":{}"#,
        raw::quote(&call.id),
        raw::quote(&call.name),
        raw::quote(&call.arguments),
    );
    json::push_members(&mut json, &call.extra);
    json.push('}');
    json
}

/// The visible response of a turn as one unit, item by item as the client was shown it: without
/// hidden calls, and without reasoning that nothing visible of its hop follows.
pub fn visible(answers: &[Answer], line: Option<&str>) -> Bytes {
    let shown = answers
        .iter()
        .flat_map(|answer| shown::of_answer(answer, true));
    let mut shown: Vec<Bytes> = shown.collect();
    let response = answers.first().and_then(|first| first.id.as_deref());
    let line = line.map(|text| ProxyMessage::new(response.unwrap_or_default(), text).item());
    shown.extend(line);
    json::joined(&shown)
}

/// A function as one element of the tools array; `parameters` are the members of its schema. The
/// API takes a function to be strict where it does not say so, and would then refuse optional
/// parameters.
pub fn tool(name: &str, description: &str, parameters: &str) -> String {
    let (name, description) = (raw::quote(name), raw::quote(description));
    format!(
        r#"{{"type":"function","name":{name},"description":{description},"strict":false,"parameters":{{{parameters}}}}}"#,
    )
}

/// The result of a hidden call as a unit.
pub fn hidden_result(id: &str, text: &str, pictures: &[String]) -> Bytes {
    let (id, text) = (raw::quote(id), json::content("input_text", text, pictures));
    Bytes::from(format!(
        r#"{{"type":"function_call_output","call_id":{id},"output":{text}}}"#
    ))
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorText;
    use crate::answer::{Block, BlockKind};
    use crate::responses::message::{canonical_of_answer, parse};

    fn a_call(name: &str, hidden: bool) -> Call {
        Call {
            id: "c\"1".to_owned(),
            name: name.to_owned(),
            arguments: "{\"p\":\"\u{e4}\\n\"}".to_owned(),
            kind: "function".to_owned(),
            extra: vec![
                ("id".to_owned(), Bytes::from_static(b"\"fc_1\"")),
                ("status".to_owned(), Bytes::from_static(b"\"completed\"")),
            ],
            hidden,
            complete: true,
        }
    }

    fn block(kind: BlockKind, raw: &'static str) -> Block {
        Block {
            kind,
            raw: Bytes::from_static(raw.as_bytes()),
        }
    }

    fn answer(hidden: [bool; 2]) -> Answer {
        let [first, second] = hidden;
        Answer {
            text: "x".to_owned(),
            calls: vec![a_call("delimiter", first), a_call("read", second)],
            blocks: vec![
                block(BlockKind::Reasoning, r#"{"type":"reasoning","id":"rs_1"}"#),
                block(
                    BlockKind::Text,
                    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}"#,
                ),
                block(
                    BlockKind::Call(0),
                    r#"{"type":"function_call","id":"fc_1"}"#,
                ),
                block(BlockKind::Reasoning, r#"{"type":"reasoning","id":"rs_2"}"#),
                block(
                    BlockKind::Call(1),
                    r#"{"type":"function_call","id":"fc_2"}"#,
                ),
            ],
            ..Answer::default()
        }
    }

    #[test]
    fn a_hop_is_stored_as_it_was_made() {
        let want = r#"{"type":"reasoning","id":"rs_1"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},{"type":"function_call","id":"fc_1"},{"type":"reasoning","id":"rs_2"},{"type":"function_call","id":"fc_2"}"#;
        assert_eq!(message(&answer([true, false])), want);
        assert_eq!(message(&Answer::default()), "");
    }

    #[test]
    fn a_call_has_one_form() {
        let want = concat!(
            r#"{"type":"function_call","call_id":"c\"1","name":"read","arguments":"{\"p\":\""#,
            "\u{e4}",
            r#"\\n\"}","id":"fc_1","status":"completed"}"#,
        );
        assert_eq!(call(&a_call("read", false)), want);
        let custom = Call {
            kind: "custom".to_owned(),
            ..a_call("read", false)
        };
        assert!(call(&custom).contains(r#""type":"custom_tool_call""#));
        assert!(call(&custom).contains(r#""input":"#));
    }

    #[test]
    fn what_was_said_is_what_the_client_saw() {
        let first = Answer {
            id: Some("resp_7".to_owned()),
            ..answer([true, true])
        };
        let shown = visible(&[first, answer([true, false])], Some("end"));
        let want = concat!(
            r#"{"type":"reasoning","id":"rs_1"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},"#,
            r#"{"type":"reasoning","id":"rs_1"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},"#,
            r#"{"type":"reasoning","id":"rs_2"},{"type":"function_call","id":"fc_2"},"#,
            r#"{"id":"msg_7","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"end"}],"role":"assistant"}"#,
        );
        assert_eq!(shown, want);
        let text = visible(&[answer([true, true])], Some("y"));
        let parsed = parse(&text).unwrap();
        assert_eq!(parsed.canonical, canonical_of_answer("xy", &[]));
    }

    #[test]
    fn tools_and_errors_have_the_apis_shape() {
        let tool: serde_json::Value =
            serde_json::from_str(&tool("t", "d\"", r#""type":"object""#)).unwrap();
        assert_eq!(
            tool,
            serde_json::json!({"type": "function", "name": "t", "description": "d\"", "strict": false, "parameters": {"type": "object"}})
        );
        let error = error(&ErrorText {
            status: 400,
            side: crate::ErrorSide::Caller,
            message: "send it",
            param: Some("input"),
            code: "missing",
        });
        assert_eq!(
            error,
            r#"{"error":{"message":"send it","type":"invalid_request_error","param":"input","code":"missing"}}"#
        );
    }
}
