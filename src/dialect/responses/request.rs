//! The body of a Responses request: where its units, its tools and the few fields lie that decide
//! how it is served. Never judges what only the upstream can judge.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::item::Kind;
use super::{refer, tools};
use crate::dialect::request::{
    Layout, Limit, Lost, Refers, Request, RequestError, Unmanaged, asks_for_json, format_in,
};
use crate::dialect::stream::{Echo, UsageWish};
use crate::model::Dialect;
use crate::model::raw::Object;

/// The member that caps the answer.
const LIMIT: &str = "max_output_tokens";
/// The member that names the response before.
pub(super) const PREVIOUS: &str = "previous_response_id";
/// The smallest cap that the API takes.
const LEAST: u64 = 16;

/// Reads a body.
///
/// Its units are the member `instructions`, key included, where that holds text, then either the
/// string that `input` is, or its items: an answer's neighbours are one unit, commas included, and
/// any other item is one by itself.
///
/// # Errors
/// [`RequestError`] where the body is no object with an input.
pub fn decode(body: Bytes) -> Result<Request, RequestError> {
    const MISSING: RequestError = RequestError::Missing {
        field: "input",
        form: "a string or an array of items",
    };
    let (object, items) = Object::parse_with_array(&body, "input")?;
    if object.has_duplicates() {
        return Err(RequestError::DuplicateKey);
    }
    let input = object.get("input").unwrap_or_default();
    let said = match (items, object.present("input")) {
        (Some(items), _) => runs(&body, &items),
        (None, Some(raw)) if raw.first() == Some(&b'"') => Said {
            units: vec![input.clone()],
            ..Said::default()
        },
        (None, Some(_)) => return Err(MISSING),
        (None, None) => Said::default(),
    };
    let elsewhere = elsewhere(&object);
    let refers = Refers {
        response: object.text(PREVIOUS).map(Cow::into_owned),
        items: said.references,
    };
    let lost = match (object.present(PREVIOUS), refers.items.is_empty()) {
        (Some(_), _) => Some(Lost::Response.word()),
        (None, false) => Some(Lost::Item.word()),
        (None, true) => None,
    };
    if object.present("input").is_none() && elsewhere.or(lost).is_none() {
        return Err(MISSING);
    }
    // Guidance on top of no message at all would make a request of what is none.
    let empty = said.units.is_empty().then_some(Unmanaged::Empty);
    let elsewhere = elsewhere.or(said.triggered.then_some(Unmanaged::CompactionTrigger));
    let (tools, tool_names) = tools::read(&object);
    Ok(Request {
        dialect: Dialect::Responses,
        model: object.text("model").unwrap_or_default().into_owned(),
        messages: instructions(&object)
            .into_iter()
            .chain(said.units)
            .collect(),
        messages_span: input,
        tools,
        tool_names,
        stream: object.raw("stream") == Some(b"true"),
        usage_wish: UsageWish::Refused,
        limit: object.number(LIMIT).map(|tokens| Limit {
            field: LIMIT,
            tokens,
            least: LEAST,
        }),
        hint: object.text("prompt_cache_key").map(Cow::into_owned),
        unmanaged: elsewhere.or(lost).or(empty),
        structured: asks_for_json(format_in(&object, "text")),
        one_call: object.raw("parallel_tool_calls") == Some(b"false"),
        // What lies elsewhere for another reason, too, is not helped by what was said before, and
        // an id that is none names nothing.
        refers: match elsewhere {
            None if refers.response.is_some() == object.present(PREVIOUS).is_some() => refers,
            _ => Refers::default(),
        },
        stored: object.raw("store") != Some(b"false"),
        layout: Layout::Flat,
        echo: echo(&object),
        body: body.clone(),
    })
}

/// What a response repeats of its request, where the proxy may have changed it.
fn echo(object: &Object<'_>) -> Echo {
    let value = |key| object.present(key).map(Bytes::copy_from_slice);
    Echo {
        instructions: value("instructions"),
        limit: value(LIMIT),
        previous: value(PREVIOUS),
    }
}

/// What says that the conversation, or its answer, lies at the provider and nowhere else.
fn elsewhere(object: &Object<'_>) -> Option<Unmanaged> {
    if object.raw("background") == Some(b"true") {
        return Some(Unmanaged::Background);
    }
    let held = object
        .present("conversation")
        .map(|_| Unmanaged::Conversation);
    // A prompt that comes with an input adds to what stands before it only.
    let prompt = || {
        let alone = object.present("input").is_none() && object.present("prompt").is_some();
        alone.then_some(Unmanaged::Prompt)
    };
    held.or_else(prompt)
}

/// The member with its key, so that its unit tells itself from an input that is a string.
fn instructions(object: &Object<'_>) -> Option<Range<usize>> {
    let text = object.text("instructions")?;
    let member = object.members().get(object.position("instructions")?)?;
    (!text.is_empty()).then(|| member.span.clone())
}

/// What an input is made of.
#[derive(Default)]
struct Said {
    units: Vec<Range<usize>>,
    /// Whether an item asks for a compaction.
    triggered: bool,
    /// Where references stand, and the ids of what they name.
    references: Vec<(Range<usize>, String)>,
}

/// Reads an array of items.
fn runs(body: &[u8], items: &[Range<usize>]) -> Said {
    let mut said = Said {
        units: Vec::with_capacity(items.len()),
        ..Said::default()
    };
    let mut open = false;
    for item in items {
        let raw = body.get(item.clone()).unwrap_or_default();
        let kind = Kind::peek(raw);
        said.triggered |= kind == Kind::Trigger;
        let reference = refer::named(raw).map(|id| (item.clone(), id));
        said.references.extend(reference);
        match said.units.last_mut() {
            Some(run) if open && kind.is_answer() => run.end = item.end,
            _ => said.units.push(item.clone()),
        }
        open = kind.is_answer();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Request {
        decode(Bytes::from(body.to_owned())).unwrap()
    }

    fn units(request: &Request) -> Vec<&str> {
        let count = 0..request.messages.len();
        let units = count.map(|at| std::str::from_utf8(request.message(at)).unwrap());
        units.collect()
    }

    #[test]
    fn an_answers_items_are_one_unit() {
        let request = read(
            r#"{"input":[{"role":"developer"}, {"role":"user"},{"type":"reasoning"} ,{"role":"assistant"},{"type":"function_call"},{"type":"function_call_output"},{"type":"function_call"},{"type":"compaction"}], "instructions" : "be brief","tools":[{"type":"function","name":"f"}],"max_output_tokens":40,"stream":true,"prompt_cache_key":"k","model":"m"}"#,
        );
        assert_eq!(
            units(&request),
            [
                r#""instructions" : "be brief""#,
                r#"{"role":"developer"}"#,
                r#"{"role":"user"}"#,
                r#"{"type":"reasoning"} ,{"role":"assistant"},{"type":"function_call"}"#,
                r#"{"type":"function_call_output"}"#,
                r#"{"type":"function_call"}"#,
                r#"{"type":"compaction"}"#,
            ]
        );
        assert_eq!(request.unmanaged, None);
        assert_eq!((request.model.as_str(), request.stream), ("m", true));
        assert_eq!(request.hint.as_deref(), Some("k"));
        assert_eq!(request.tool_names, ["f"]);
        assert_eq!(request.limit_left(10), Some(30));
        assert_eq!(request.limit_left(39), Some(16));
    }

    #[test]
    fn an_input_may_be_a_string() {
        let request = read(r#"{"input":"hi","instructions":""}"#);
        assert_eq!(units(&request), [r#""hi""#]);
        assert_eq!(request.limit, None);
    }

    #[test]
    fn what_lies_at_the_provider_is_not_managed() {
        for (body, word) in [
            (
                r#"{"input":"x","previous_response_id":"resp_1"}"#,
                Some("previous_response_id"),
            ),
            (
                r#"{"previous_response_id":"resp_1"}"#,
                Some("previous_response_id"),
            ),
            (r#"{"input":"x","previous_response_id":null}"#, None),
            (
                r#"{"input":"x","conversation":{"id":"conv_1"}}"#,
                Some("conversation"),
            ),
            (r#"{"input":"x","background":true}"#, Some("background")),
            (r#"{"input":"x","background":false}"#, None),
            (r#"{"prompt":{"id":"p"}}"#, Some("prompt")),
            (r#"{"input":"x","prompt":{"id":"p"}}"#, None),
            (r#"{"input":[]}"#, Some("empty")),
            (r#"{"input":[],"instructions":"x"}"#, Some("empty")),
            (
                r#"{"input":[{"role":"user"},{"type":"compaction_trigger"}]}"#,
                Some("compaction_trigger"),
            ),
        ] {
            assert_eq!(read(body).unmanaged.map(Unmanaged::name), word, "{body}");
        }
    }

    #[test]
    fn a_body_without_an_input_is_refused() {
        for bad in ["{}", r#"{"input":7}"#, r#"{"input":null}"#] {
            let error = decode(Bytes::from_static(bad.as_bytes())).unwrap_err();
            let wanted = RequestError::Missing {
                field: "input",
                form: "a string or an array of items",
            };
            assert_eq!(error, wanted, "{bad}");
        }
        assert_eq!(
            decode(Bytes::from_static(br#"{"input":"x","input":"y"}"#)).unwrap_err(),
            RequestError::DuplicateKey
        );
        assert!(matches!(
            decode(Bytes::from_static(b"{")),
            Err(RequestError::Body(_))
        ));
    }
}
