//! Putting into a request what it refers to: the conversation up to a response, and items that it
//! names by their ids. Never looks anything up.

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit, Object};

use super::item::{self, Unit};
use super::request::{PREVIOUS, References, decode};
use crate::json;
use crate::request_fields::RequestFields;

/// The request with all that it refers to in its input: the units `before` it, and the `items` that
/// it names, in its order. It repeats to the client what the client sent, and can't be told from a
/// request that had everything from the start. `None` if a part can't be read: a conversation is
/// put together whole or not at all.
pub fn expand(
    request: &RequestFields,
    references: &References,
    before: &[Bytes],
    items: &[Bytes],
) -> Option<(RequestFields, References)> {
    let object = Object::parse(&request.body).ok()?;
    let mut edits: Vec<Edit> = Vec::new();
    let before = before.iter().map(|unit| input_items(unit));
    let before = join(&before.collect::<Option<Vec<Bytes>>>()?);
    let previous = object.position(PREVIOUS);
    match object.present("input").and(object.get("input")) {
        // An input that is a string becomes the last item of a list.
        Some(input) if request.body.get(input.start) == Some(&b'"') => {
            let own = input_items(request.body.get(input.clone())?)?;
            edits.push((input, json::list(&[join(&[before, own])])));
        }
        // An input that is a list gets the units in front, and items in the place of references.
        Some(input) => {
            let alone = raw::array(request.body.get(input.clone())?)
                .ok()?
                .is_empty();
            let comma = if alone || before.is_empty() { "" } else { "," };
            let at = input.start + 1;
            edits.push((at..at, [&before[..], comma.as_bytes()].concat().into()));
            let spans = references.items.iter().map(|(span, _)| span.clone());
            edits.extend(spans.zip(items.iter().cloned()));
        }
        // Without an input the units are all of it. They take the place of a null, or else of the
        // id that stood for them.
        None if object.get("input").is_some() => {
            edits.extend(
                object
                    .get("input")
                    .map(|null| (null, json::list(&[before]))),
            );
        }
        None => {
            let member = object.members().get(previous?)?.span.clone();
            let value = [br#""input":"#, &json::list(&[before])[..]].concat();
            edits.push((member, value.into()));
        }
    }
    if object.get("input").is_some()
        && let Some(cut) = previous.and_then(|place| object.remove_span(place))
    {
        edits.push((cut, Bytes::new()));
    }
    let (fields, mut own) = decode(json::splice(&request.body, edits)).ok()?;
    own.echo = references.echo.clone();
    Some((fields, own))
}

/// A unit as items of an input, with commas between them: empty for a unit that stands outside the
/// input, and for an answer that said nothing. `None` if it can't be read.
fn input_items(unit: &[u8]) -> Option<Bytes> {
    if unit.is_empty() {
        return Some(Bytes::new());
    }
    Some(match item::read(unit).ok()? {
        Unit::Instructions(..) => Bytes::new(),
        Unit::Input(_) => [br#"{"role":"user","content":"#, unit, b"}"]
            .concat()
            .into(),
        Unit::Items(_) => Bytes::copy_from_slice(unit),
    })
}

/// Items one after the other.
fn join(items: &[Bytes]) -> Bytes {
    let some = items.iter().filter(|items| !items.is_empty());
    json::joined(&some.collect::<Vec<_>>())
}

/// The items of a unit that have an id, by which they may be referred to.
pub fn items(unit: &[u8]) -> Vec<(String, &[u8])> {
    let items = item::items(unit).unwrap_or_default();
    let named = items.iter().map(|item| (item.id(), item.raw()));
    let named = named.filter_map(|(id, raw)| Some((id?.into_owned(), raw)));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::request::{Found, Request, Unmanaged};
    use crate::responses::request::referenced_id;

    fn request(body: &str) -> Request {
        let body = Bytes::from(body.to_owned());
        Dialect::Responses.decode(body).unwrap()
    }

    #[track_caller]
    fn check(body: &str, before: &[&'static str], items: &[&'static str], expect: &str) {
        let bytes = |texts: &[&'static str]| {
            let texts = texts.iter().map(|text| Bytes::from_static(text.as_bytes()));
            texts.collect()
        };
        let found = Found {
            before: bytes(before),
            items: bytes(items),
        };
        let referring = request(body);
        assert!(referring.refers() && referring.unmanaged.is_some());
        let whole = referring.expand(&found).unwrap();
        assert_eq!(std::str::from_utf8(&whole.body).unwrap(), expect);
        assert!(!whole.refers());
        assert_eq!(whole.unmanaged, None);
        assert_eq!(whole.echo(), referring.echo());
    }

    const BEFORE: [&str; 3] = [
        r#""instructions":"never carried over""#,
        r#""hi""#,
        r#"{"type":"reasoning","id":"rs_1"},{"type":"function_call","id":"fc_1","call_id":"c"}"#,
    ];

    #[test]
    fn the_conversation_stands_before_what_is_new() {
        check(
            r#"{"model":"m","previous_response_id":"resp_1","input":[ {"type":"function_call_output","call_id":"c","output":"x"}],"store":true}"#,
            &BEFORE,
            &[],
            r#"{"model":"m","input":[{"role":"user","content":"hi"},{"type":"reasoning","id":"rs_1"},{"type":"function_call","id":"fc_1","call_id":"c"}, {"type":"function_call_output","call_id":"c","output":"x"}],"store":true}"#,
        );
        check(
            r#"{"instructions":"new","input": "a\"b" , "previous_response_id":"resp_1"}"#,
            &BEFORE[..2],
            &[],
            r#"{"instructions":"new","input": [{"role":"user","content":"hi"},{"role":"user","content":"a\"b"}]}"#,
        );
    }

    #[test]
    fn nothing_new_is_no_hindrance() {
        for (body, expect) in [
            (
                r#"{"previous_response_id":"resp_1"}"#,
                r#"{"input":[{"role":"user","content":"hi"}]}"#,
            ),
            (
                r#"{"model":"m","previous_response_id":"resp_1","x":1}"#,
                r#"{"model":"m","input":[{"role":"user","content":"hi"}],"x":1}"#,
            ),
            (
                r#"{"input":null,"previous_response_id":"resp_1","x":1}"#,
                r#"{"input":[{"role":"user","content":"hi"}],"x":1}"#,
            ),
            (
                r#"{"input":[ ],"previous_response_id":"resp_1","x":1}"#,
                r#"{"input":[{"role":"user","content":"hi"} ],"x":1}"#,
            ),
        ] {
            check(body, &BEFORE[1..2], &[], expect);
        }
    }

    #[test]
    fn an_answer_that_said_nothing_leaves_nothing_and_one_that_is_unreadable_all() {
        let body = r#"{"previous_response_id":"resp_1","input":[{"role":"user"}]}"#;
        check(
            body,
            &[r#""hi""#, ""],
            &[],
            r#"{"input":[{"role":"user","content":"hi"},{"role":"user"}]}"#,
        );
        let found = Found {
            before: vec![Bytes::from_static(br#"{"type":"a","type":"b"}"#)],
            items: Vec::new(),
        };
        assert!(request(body).expand(&found).is_none());
    }

    #[test]
    fn items_stand_where_they_were_referenced_id() {
        check(
            r#"{"input":[{"role":"user"},{"type":"item_reference","id":"rs_1"}, {"id":"fc_1"} ,{"type":"function_call_output"}],"previous_response_id":null}"#,
            &[],
            &[
                r#"{"id":"rs_1","type":"reasoning"}"#,
                r#"{"type":"function_call"}"#,
            ],
            r#"{"input":[{"role":"user"},{"id":"rs_1","type":"reasoning"}, {"type":"function_call"} ,{"type":"function_call_output"}]}"#,
        );
        check(
            r#"{"previous_response_id":"resp_1","input":[{"type":"item_reference","id":"msg_1"}]}"#,
            &BEFORE[1..2],
            &[r#"{"role":"assistant"}"#],
            r#"{"input":[{"role":"user","content":"hi"},{"role":"assistant"}]}"#,
        );
    }

    #[test]
    fn references_are_told_from_items() {
        for (raw, id) in [
            (r#"{"type":"item_reference","id":"rs_1"}"#, Some("rs_1")),
            (r#"{"id":"msg_1","type":"item_reference"}"#, Some("msg_1")),
            (r#"{"id":"msg_1"}"#, Some("msg_1")),
            (r#"{"id":"msg_1","type":null}"#, Some("msg_1")),
            (r#"{"id":"msg_1","role":"user"}"#, None),
            (r#"{"id":"msg_1","content":"x"}"#, None),
            (r#"{"id":"fc_1","type":"function_call"}"#, None),
            (r#"{"type":"item_reference"}"#, None),
            (r#"{"type":"item_reference","id":7}"#, None),
            ("7", None),
        ] {
            assert_eq!(referenced_id(raw.as_bytes()).as_deref(), id, "{raw}");
        }
    }

    #[test]
    fn items_are_found_by_their_ids() {
        let unit = BEFORE[2].as_bytes();
        let found = items(unit);
        let ids: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["rs_1", "fc_1"]);
        assert_eq!(found[0].1, br#"{"type":"reasoning","id":"rs_1"}"#);
        assert!(items(BEFORE[0].as_bytes()).is_empty());
        assert!(items(BEFORE[1].as_bytes()).is_empty());
    }

    #[test]
    fn what_lies_elsewhere_all_the_same_refers_to_nothing() {
        for more in [
            r#""background":true"#,
            r#""conversation":"conv_1""#,
            r#""input":[{"type":"item_reference","id":"a"},{"type":"compaction_trigger"}]"#,
            r#""prompt":{"id":"p"}"#,
        ] {
            let request = request(&format!(r#"{{"previous_response_id":"resp_1",{more}}}"#));
            assert!(!request.refers(), "{more}");
            assert!(request.unmanaged.is_some(), "{more}");
        }
        let request = request(r#"{"previous_response_id":7,"input":[{"id":"msg_1"}]}"#);
        assert!(!request.refers());
        assert_eq!(request.unmanaged, Some(Unmanaged::PreviousResponseId));
    }
}
