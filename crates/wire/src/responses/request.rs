//! The body of a Responses request: where its units, its tools and the few fields lie that decide
//! how it is served. Never judges what only the upstream can judge.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use plimsoll_model::raw::{self, Object};

use super::hops::HOPS;
use super::item::{ItemType, leading_type};
use super::stream::Echo;
use super::tools::{self, Declared};
use crate::Dialect;
use crate::request_fields::{
    Limit, RequestError, RequestFields, Unmanaged, asks_for_json, format_in,
};

/// The member that caps the answer.
const LIMIT: &str = "max_output_tokens";
/// The member that names the response before.
pub const PREVIOUS: &str = "previous_response_id";
/// The most bytes of a reference to an item: it has an id and its type.
const LONGEST_REFERENCE: usize = 1024;

/// What a request leaves out because it was said before, and what a response to it repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The id of the response that it goes on from.
    pub response: Option<String>,
    /// The spans of the references that stand in the place of items, and the items' ids, in order.
    pub items: Vec<(Range<usize>, String)>,
    /// The values that a response repeats.
    pub echo: Echo,
}

/// Reads a body.
///
/// Its units are the member `instructions`, key included, if that holds text; then either the
/// string that `input` is, or its items. The neighbouring items of an answer are one unit, commas
/// included; any other item is a unit by itself.
///
/// # Errors
/// [`RequestError`] if the body is no object with an input.
pub fn decode(body: Bytes) -> Result<(RequestFields, References), RequestError> {
    const MISSING: RequestError = RequestError::Missing {
        field: "input",
        form: "a string or an array of items",
    };
    let (object, items) = Object::parse_with_array(&body, "input")?;
    if object.has_duplicates() {
        return Err(RequestError::DuplicateKey);
    }
    let input = object.get("input").unwrap_or_default();
    let objects = items.as_ref().map_or(0, |items| items.objects);
    let units = match (items, object.present("input")) {
        (Some(items), _) => InputUnits::of(&body, &items.spans),
        (None, Some(raw)) if raw.first() == Some(&b'"') => InputUnits {
            spans: vec![input.clone()],
            ..InputUnits::default()
        },
        (None, Some(_)) => return Err(MISSING),
        (None, None) => InputUnits::default(),
    };
    let elsewhere = elsewhere(&object);
    let lost = match (object.present(PREVIOUS), units.references.is_empty()) {
        (Some(_), _) => Some(Unmanaged::PreviousResponseId),
        (None, false) => Some(Unmanaged::ItemReference),
        (None, true) => None,
    };
    if object.present("input").is_none() && elsewhere.or(lost).is_none() {
        return Err(MISSING);
    }
    // With guidance added, a request without any message would become a valid one.
    let empty = units.spans.is_empty().then_some(Unmanaged::Empty);
    let elsewhere = elsewhere.or(units.triggers.then_some(Unmanaged::CompactionTrigger));
    let mut references = References {
        echo: echo(&object),
        ..References::default()
    };
    // If the history lies elsewhere for another reason too, finding what was said before does not
    // help. An id that is no string names nothing.
    let response = object.text(PREVIOUS).map(Cow::into_owned);
    if elsewhere.is_none() && response.is_some() == object.present(PREVIOUS).is_some() {
        references.response = response;
        references.items = units.references;
    }
    let tools = tools::read(&body, &object, &units.tools);
    let fields = RequestFields::new(Dialect::Responses, &body, &object, units.spans.iter());
    let fields = RequestFields {
        messages: instructions(&object)
            .into_iter()
            .chain(units.spans)
            .collect(),
        objects,
        messages_span: input,
        tools,
        limit: Limit::of(&object, LIMIT, &HOPS),
        hint: object.text("prompt_cache_key").map(Cow::into_owned),
        unmanaged: elsewhere.or(lost).or(empty),
        structured: asks_for_json(format_in(&object, "text")),
        one_call: object.raw("parallel_tool_calls") == Some(b"false"),
        stored: object.raw("store") != Some(b"false"),
        ..fields
    };
    Ok((fields, references))
}

/// The values that a response repeats of its request and that the proxy may have changed.
fn echo(object: &Object<'_>) -> Echo {
    let value = |key| object.present(key).map(Bytes::copy_from_slice);
    Echo {
        instructions: value("instructions"),
        limit: value(LIMIT),
        previous: value(PREVIOUS),
    }
}

/// Why the conversation, or its answer, lies at the provider and nowhere else; `None` if it does
/// not.
fn elsewhere(object: &Object<'_>) -> Option<Unmanaged> {
    if object.raw("background") == Some(b"true") {
        return Some(Unmanaged::Background);
    }
    let held = object
        .present("conversation")
        .map(|_| Unmanaged::Conversation);
    // A prompt beside an input only adds to what stands before the input.
    let prompt = || {
        let alone = object.present("input").is_none() && object.present("prompt").is_some();
        alone.then_some(Unmanaged::Prompt)
    };
    held.or_else(prompt)
}

/// What makes a unit an element of the input. An input that is a string becomes a user's message in
/// an array.
pub fn around(unit: &[u8]) -> [&'static [u8]; 2] {
    match unit.first() {
        Some(b'"') => [br#"{"role":"user","content":"#, b"}"],
        _ => Default::default(),
    }
}

/// The span of the member with its key. The key tells this unit from an input that is a string.
fn instructions(object: &Object<'_>) -> Option<Range<usize>> {
    let text = object.text("instructions")?;
    let member = object.members().get(object.position("instructions")?)?;
    (!text.is_empty()).then(|| member.span.clone())
}

/// The units of an input.
#[derive(Default)]
struct InputUnits {
    spans: Vec<Range<usize>>,
    /// Whether an item asks for a compaction.
    triggers: bool,
    /// The spans of references, and the ids of the items that they name.
    references: Vec<(Range<usize>, String)>,
    /// The arrays of tools in items.
    tools: Vec<Declared>,
}

impl InputUnits {
    /// Reads an array of items.
    fn of(body: &[u8], items: &[Range<usize>]) -> Self {
        let mut units = Self {
            spans: Vec::with_capacity(items.len()),
            ..Self::default()
        };
        let mut open = false;
        for item in items {
            let raw = body.get(item.clone()).unwrap_or_default();
            let (kind, tools) = ItemType::peek(raw);
            units.triggers |= kind == ItemType::Trigger;
            let tools = tools.map(|span| raw::shift(&span, item.start));
            units
                .tools
                .extend(tools.map(|span| Declared { kind, span }));
            let reference = referenced_id(raw).map(|id| (item.clone(), id));
            units.references.extend(reference);
            match units.spans.last_mut() {
                Some(run) if open && kind.is_answer() => run.end = item.end,
                _ => units.spans.push(item.clone()),
            }
            open = kind.is_answer();
        }
        units
    }
}

/// The id of the item that this one only refers to, as an `item_reference` does. The type of a
/// reference may be left out; then it has nothing but its id.
pub fn referenced_id(raw: &[u8]) -> Option<String> {
    let other = leading_type(raw).is_some_and(|kind| kind != b"item_reference");
    if other || raw.len() > LONGEST_REFERENCE {
        return None;
    }
    let object = Object::parse(raw).ok()?;
    let id = object.text("id")?;
    let bare = || {
        let said = ["type", "role", "content"];
        !said.iter().any(|key| object.present(key).is_some())
    };
    let refers = object.text("type").as_deref() == Some("item_reference") || bare();
    refers.then(|| id.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> RequestFields {
        decode(Bytes::from(body.to_owned())).unwrap().0
    }

    fn units(request: &RequestFields) -> Vec<&str> {
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
        assert_eq!(request.tools.names, ["f"]);
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
