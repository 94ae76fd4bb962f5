//! The one form in which an answer's message and its calls are stored and sent back upstream. The
//! same answer gives the same bytes, streamed or not. Never reads a message.

use bytes::Bytes;

use super::{content, signature};
use crate::dialect::answer::{self, Answer, Call, Reasoning};
use crate::dialect::{ErrorSide, ErrorText};
use crate::model::raw::{self, Object};

/// The hop's message in the one form in which it is stored and sent back: `role`, `content`
/// as string or null, refusal, audio and reasoning fields if there were any, `tool_calls` if there
/// are any. The same answer gives the same bytes, streamed or not.
#[must_use]
pub fn message(answer: &Answer) -> Bytes {
    let mut json = String::from(r#"{"role":"assistant","content":"#);
    json.push_str(&content(answer));
    if !answer.refusal.is_empty() {
        push_member(&mut json, "refusal", &raw::quote(&answer.refusal));
    }
    // What was spoken is named, as the API wants it back.
    let audio = answer.audio.as_deref();
    let audio = audio.and_then(|audio| {
        Object::parse(audio)
            .ok()?
            .text("id")
            .map(|id| raw::quote(&id))
    });
    if let Some(id) = audio {
        push_member(&mut json, "audio", &format!(r#"{{"id":{id}}}"#));
    }
    for (field, reasoning) in &answer.reasoning {
        match reasoning {
            Reasoning::Text(text) => push_member(&mut json, field, &raw::quote(text)),
            Reasoning::Items(items) => {
                push_member(&mut json, field, &String::from_utf8_lossy(items));
            }
            Reasoning::Part(_) => {}
        }
    }
    if !answer.calls.is_empty() {
        let calls: Vec<String> = answer.calls.iter().map(call).collect();
        push_member(&mut json, "tool_calls", &format!("[{}]", calls.join(",")));
    }
    json.push('}');
    Bytes::from(json)
}

/// Whether an element of `reasoning_details` signs the call of this id.
#[must_use]
pub fn signs(answer: &Answer, id: &str) -> bool {
    let lists = answer.reasoning.iter().filter_map(|(key, reasoning)| {
        let own = (key == signature::DETAILS).then_some(reasoning)?;
        match own {
            Reasoning::Items(raw) => Some(raw),
            Reasoning::Text(_) | Reasoning::Part(_) => None,
        }
    });
    let signs = |raw: &[u8]| {
        let detail = Object::parse(raw).ok();
        detail
            .and_then(|detail| signature::signs(&detail))
            .as_deref()
            == Some(id)
    };
    let mut elements = lists.flat_map(|list| {
        let spans = raw::array(list).unwrap_or_default().into_iter();
        spans.filter_map(|span| list.get(span))
    });
    elements.any(signs)
}

/// The text, as a part behind those that hold reasoning where there are any.
fn content(answer: &Answer) -> String {
    let parts = answer.reasoning.iter().filter_map(|(_, part)| match part {
        Reasoning::Part(raw) => Some(String::from_utf8_lossy(raw).into_owned()),
        Reasoning::Text(_) | Reasoning::Items(_) => None,
    });
    let mut parts: Vec<String> = parts.collect();
    match (answer.text.as_str(), parts.is_empty()) {
        ("", true) => return "null".to_owned(),
        (text, true) => return raw::quote(text),
        ("", false) => {}
        (text, false) => parts.push(content::text_part(text)),
    }
    format!("[{}]", parts.join(","))
}

/// The call as an element of `tool_calls`: `id`, `type`, the function, then unknown fields.
/// An id that the upstream did not issue is not made up.
#[must_use]
pub fn call(call: &Call) -> String {
    let mut json = String::from("{");
    if !call.id.is_empty() {
        json.push_str(&format!(r#""id":{},"#, raw::quote(&call.id)));
    }
    let (body, input) = match call.kind.as_str() {
        "custom" => ("custom", "input"),
        _ => ("function", "arguments"),
    };
    json.push_str(&format!(
        r#""type":{},"{body}":{{"name":{},"{input}":{}}}"#,
        raw::quote(&call.kind),
        raw::quote(&call.name),
        raw::quote(&call.arguments),
    ));
    for (field, value) in &call.extra {
        push_member(&mut json, field, &String::from_utf8_lossy(value));
    }
    json.push('}');
    json
}

fn push_member(json: &mut String, key: &str, value: &str) {
    json.push(',');
    json.push_str(&raw::quote(key));
    json.push(':');
    json.push_str(value);
}

/// The visible response of a turn as one message, in the form that a client would resend.
#[must_use]
pub fn said(answers: &[Answer], line: Option<&str>) -> Bytes {
    let texts = answers.iter().map(|answer| answer.text.as_str());
    let (text, _) = answer::join(texts.chain(line));
    let last = answers.last();
    let calls = last.map_or_else(Vec::new, signature::visible);
    message(&Answer {
        text,
        refusal: last.map_or_else(String::new, |last| last.refusal.clone()),
        audio: last.and_then(|last| last.audio.clone()),
        reasoning: last.map_or_else(Vec::new, |last| last.reasoning.clone()),
        calls,
        ..Answer::default()
    })
}

/// A function as one element of the tools array; `parameters` are the members of its schema.
#[must_use]
pub fn tool(name: &str, description: &str, parameters: &str) -> String {
    let (name, description) = (raw::quote(name), raw::quote(description));
    format!(
        r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{{{parameters}}}}}}}"#,
    )
}

/// An error in the API's shape.
#[must_use]
pub fn error(error: &ErrorText<'_>) -> Bytes {
    let kind = match error.side {
        ErrorSide::Caller => "invalid_request_error",
        ErrorSide::Upstream => "upstream_error",
        ErrorSide::Server => "server_error",
    };
    let (message, code) = (raw::quote(error.message), raw::quote(error.code));
    let param = error.param.map_or_else(|| "null".to_owned(), raw::quote);
    Bytes::from(format!(
        r#"{{"error":{{"message":{message},"type":"{kind}","param":{param},"code":{code}}}}}"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_call(hidden: bool) -> Call {
        Call {
            id: "c\"1".to_owned(),
            name: "read".to_owned(),
            arguments: "{\"p\":\"\u{e4}\\n\"}".to_owned(),
            kind: "function".to_owned(),
            extra: vec![(
                "extra_content".to_owned(),
                Bytes::from_static(br#"{"g": 1e3}"#),
            )],
            hidden,
            complete: true,
        }
    }

    #[test]
    fn the_message_has_one_form() {
        let mut answer = Answer {
            calls: vec![a_call(false)],
            ..Answer::default()
        };
        answer.reasoning = vec![
            (
                "reasoning_content".to_owned(),
                Reasoning::Text("why".to_owned()),
            ),
            (
                "reasoning_details".to_owned(),
                Reasoning::Items(Bytes::from_static(b"[{\"a\":1}]")),
            ),
        ];
        let want = concat!(
            r#"{"role":"assistant","content":null,"reasoning_content":"why","#,
            r#""reasoning_details":[{"a":1}],"tool_calls":[{"id":"c\"1","type":"function","#,
            r#""function":{"name":"read","arguments":"{\"p\":\""#,
            "\u{e4}",
            r#"\\n\"}"},"extra_content":{"g": 1e3}}]}"#,
        );
        assert_eq!(message(&answer), want);
        let custom = Call {
            kind: "custom".to_owned(),
            extra: vec![],
            id: String::new(),
            ..a_call(false)
        };
        assert!(
            super::call(&custom)
                .starts_with(r#"{"type":"custom","custom":{"name":"read","input":"#)
        );
        let text = Answer {
            text: "hi\n".to_owned(),
            refusal: "no".to_owned(),
            ..Answer::default()
        };
        assert_eq!(
            message(&text),
            r#"{"role":"assistant","content":"hi\n","refusal":"no"}"#
        );
    }
}
