//! What the proxy writes in a Messages conversation: messages, calls, results, tools, errors. The
//! same answer gives the same bytes, streamed or not. Never reads a message.

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};

use super::block;
use crate::answer::{Answer, Call};
use crate::blocks::shown;
use crate::errors::{ErrorSide, ErrorText};
use crate::json;

/// The message of a hop in the one form in which it is stored and sent back: its blocks, hidden
/// calls among them. An empty text is left out, because the provider refuses it.
pub fn message(answer: &Answer) -> Bytes {
    assistant(answer.blocks.iter().map(|block| block.raw.clone()))
}

fn assistant(blocks: impl Iterator<Item = Bytes>) -> Bytes {
    let says = |raw: &Bytes| !block::Block::read(raw).is_ok_and(|block| block.is_empty_text());
    let blocks: Vec<Bytes> = blocks.filter(says).collect();
    let mut json = br#"{"role":"assistant","content":["#.to_vec();
    json::push_joined(&mut json, &blocks);
    json.extend_from_slice(b"]}");
    Bytes::from(json)
}

/// A hidden call in the form in which it goes back into its message. Arguments that are no object
/// are none, because the provider refuses them.
pub fn call(call: &Call) -> String {
    let input = match Object::parse(call.arguments.as_bytes()) {
        Ok(_) => call.arguments.as_str(),
        Err(_) => "{}",
    };
    let mut json = format!(
        r#"{{"type":"tool_use","id":{},"name":{},"input":{input}"#,
        raw::quote(&call.id),
        raw::quote(&call.name),
    );
    json::push_members(&mut json, &call.extra);
    json.push('}');
    json
}

/// The visible response of a turn as one unit: the blocks of all its hops, hidden calls left out,
/// and the proxy's own line.
pub fn visible(answers: &[Answer], line: Option<&str>) -> Bytes {
    let line = line.map(|line| Bytes::from(json::text_part("text", line)));
    let blocks = answers
        .iter()
        .flat_map(|answer| shown::of_answer(answer, false));
    assistant(blocks.chain(line))
}

/// The result of a hidden call as a unit.
pub fn hidden_result(id: &str, text: &str, pictures: &[String]) -> Bytes {
    let (id, text) = (raw::quote(id), json::content("text", text, pictures));
    Bytes::from(format!(
        r#"{{"type":"tool_result","tool_use_id":{id},"content":{text}}}"#
    ))
}

/// A system text of the proxy's own.
pub fn system(block: &str) -> Bytes {
    Bytes::from(raw::quote(block))
}

/// A tool as one element of the tools array; `parameters` are the members of its schema.
pub fn tool(name: &str, description: &str, parameters: &str) -> String {
    let (name, description) = (raw::quote(name), raw::quote(description));
    format!(r#"{{"name":{name},"description":{description},"input_schema":{{{parameters}}}}}"#)
}

/// An error in the API's shape, which has no room for a code: the message ends with it.
pub fn error(error: &ErrorText<'_>) -> Bytes {
    let kind = match (error.side, error.status) {
        (ErrorSide::Upstream, _) => "api_error",
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 404) => "not_found_error",
        (_, 408 | 504) => "timeout_error",
        (_, 413) => "request_too_large",
        (_, 429) => "rate_limit_error",
        (_, 503 | 529) => "overloaded_error",
        (_, 400..500) => "invalid_request_error",
        (ErrorSide::Caller, _) => "invalid_request_error",
        (ErrorSide::Server, _) => "api_error",
    };
    let message = raw::quote(&format!("{} ({})", error.message, error.code));
    Bytes::from(format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":{message}}}}}"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Block, BlockKind};

    fn a_call(arguments: &str, hidden: bool) -> Call {
        Call {
            id: "toolu_1".to_owned(),
            name: "read".to_owned(),
            arguments: arguments.to_owned(),
            kind: "tool_use".to_owned(),
            extra: vec![],
            hidden,
            complete: true,
        }
    }

    fn an_answer() -> Answer {
        let block = |kind, raw: &'static str| Block {
            kind,
            raw: Bytes::from_static(raw.as_bytes()),
        };
        Answer {
            calls: vec![a_call("{}", true), a_call("{}", false)],
            blocks: vec![
                block(BlockKind::Reasoning, r#"{"type":"thinking"}"#),
                block(BlockKind::Text, r#"{"type":"text","text":""}"#),
                block(BlockKind::Call(0), r#"{"type":"tool_use","id":"h"}"#),
                block(BlockKind::Call(1), r#"{"type":"tool_use","id":"v"}"#),
            ],
            ..Answer::default()
        }
    }

    #[test]
    fn messages_are_their_blocks() {
        let answer = an_answer();
        assert_eq!(
            message(&answer),
            r#"{"role":"assistant","content":[{"type":"thinking"},{"type":"tool_use","id":"h"},{"type":"tool_use","id":"v"}]}"#
        );
        assert_eq!(
            visible(&[answer.clone(), answer], Some("go\n")),
            concat!(
                r#"{"role":"assistant","content":[{"type":"thinking"},{"type":"tool_use","id":"v"},"#,
                r#"{"type":"thinking"},{"type":"tool_use","id":"v"},{"type":"text","text":"go\n"}]}"#
            )
        );
    }

    #[test]
    fn calls_have_an_object_as_input() {
        for (arguments, input) in [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("", "{}"),
            ("{\"a", "{}"),
            ("[]", "{}"),
        ] {
            let want =
                format!(r#"{{"type":"tool_use","id":"toolu_1","name":"read","input":{input}}}"#);
            assert_eq!(call(&a_call(arguments, true)), want);
        }
        let extra = vec![(
            "caller".to_owned(),
            Bytes::from_static(br#"{"type":"direct"}"#),
        )];
        let with = Call {
            extra,
            ..a_call("{}", true)
        };
        assert!(call(&with).ends_with(r#""input":{},"caller":{"type":"direct"}}"#));
    }

    #[test]
    fn errors_have_the_type_of_their_status() {
        for (status, side, kind) in [
            (400, ErrorSide::Caller, "invalid_request_error"),
            (401, ErrorSide::Caller, "authentication_error"),
            (405, ErrorSide::Caller, "invalid_request_error"),
            (408, ErrorSide::Caller, "timeout_error"),
            (413, ErrorSide::Caller, "request_too_large"),
            (426, ErrorSide::Caller, "invalid_request_error"),
            (429, ErrorSide::Caller, "rate_limit_error"),
            (500, ErrorSide::Server, "api_error"),
            (502, ErrorSide::Server, "api_error"),
            (503, ErrorSide::Server, "overloaded_error"),
            (504, ErrorSide::Server, "timeout_error"),
            (502, ErrorSide::Upstream, "api_error"),
        ] {
            let text = ErrorText {
                status,
                side,
                message: "say \"so\"",
                param: None,
                code: "c",
            };
            let want = format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"say \"so\" (c)"}}}}"#
            );
            assert_eq!(error(&text), want, "{status}");
        }
    }

    #[test]
    fn a_tool_has_an_input_schema() {
        assert_eq!(
            tool("a", "b\n", r#""type":"object""#),
            r#"{"name":"a","description":"b\n","input_schema":{"type":"object"}}"#
        );
    }
}
