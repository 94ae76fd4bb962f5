//! What the proxy writes in a chat conversation: messages, calls, results, tools, errors. The same
//! answer gives the same bytes, streamed or not. Never reads a message.

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};

use super::signature;
use crate::answer::{self, Answer, Call, Reasoning};
use crate::json;

pub use crate::edit::system_message as system;
pub use crate::errors::openai_error as error;

/// The hop's message in the one form in which it is stored and sent back: `role`, `content` as
/// string or null, then refusal, audio, reasoning fields and `tool_calls`, each only if there is
/// one.
pub fn message(answer: &Answer) -> Bytes {
    let mut json = String::from(r#"{"role":"assistant","content":"#);
    json.push_str(&content(answer));
    if !answer.refusal.is_empty() {
        json::push_member(&mut json, "refusal", &raw::quote(&answer.refusal));
    }
    // The API wants speech back by its id alone.
    let audio = answer.audio.as_deref();
    if let Some(id) = audio.and_then(|audio| Object::parse(audio).ok()?.text("id")) {
        let id = raw::quote(&id);
        json::push_member(&mut json, "audio", &format!(r#"{{"id":{id}}}"#));
    }
    for (field, reasoning) in &answer.reasoning {
        match reasoning {
            Reasoning::Text(text) => json::push_member(&mut json, field, &raw::quote(text)),
            Reasoning::Items(items) => {
                json::push_member(&mut json, field, &String::from_utf8_lossy(items));
            }
            Reasoning::Part(_) => {}
        }
    }
    if !answer.calls.is_empty() {
        let calls: Vec<String> = answer.calls.iter().map(call).collect();
        json::push_member(&mut json, "tool_calls", &format!("[{}]", calls.join(",")));
    }
    json.push('}');
    Bytes::from(json)
}

/// Whether an element of `reasoning_details` signs the call of this id.
pub fn signs(answer: &Answer, id: &str) -> bool {
    let mut lists = answer
        .reasoning
        .iter()
        .filter_map(|(key, reasoning)| match reasoning {
            Reasoning::Items(raw) if key == signature::DETAILS => Some(raw),
            Reasoning::Items(_) | Reasoning::Text(_) | Reasoning::Part(_) => None,
        });
    lists.any(|list| {
        let mut signed = json::objects(list).filter_map(|detail| signature::signs(&detail));
        signed.any(|signed| signed == id)
    })
}

/// The text, behind the parts that hold reasoning if there are any.
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
        (text, false) => parts.push(json::text_part("text", text)),
    }
    format!("[{}]", parts.join(","))
}

/// The call as an element of `tool_calls`: `id`, `type`, the function, then unknown fields. If the
/// upstream issued no id, none is made up.
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
    json::push_members(&mut json, &call.extra);
    json.push('}');
    json
}

/// The visible response of a turn as one message, in the form in which a client would resend it.
pub fn visible(answers: &[Answer], line: Option<&str>) -> Bytes {
    let texts = answers.iter().map(|answer| answer.text.as_str());
    let (text, _) = answer::join(texts.chain(line));
    let last = answers.last().cloned().unwrap_or_default();
    message(&Answer {
        text,
        calls: signature::visible(&last),
        ..last
    })
}

/// The result of a hidden call as a message.
pub fn hidden_result(id: &str, text: &str, pictures: &[String]) -> Bytes {
    let (id, text) = (raw::quote(id), json::content("text", text, pictures));
    Bytes::from(format!(
        r#"{{"role":"tool","tool_call_id":{id},"content":{text}}}"#
    ))
}

/// A function as one element of the tools array; `parameters` are the members of its schema.
pub fn tool(name: &str, description: &str, parameters: &str) -> String {
    let (name, description) = (raw::quote(name), raw::quote(description));
    format!(
        r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{{{parameters}}}}}}}"#,
    )
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
