//! The events that the proxy writes itself in a Responses stream: the message that ends a turn at
//! the hop cap, and errors. It makes up no id: the message's id follows from the response's.

use bytes::Bytes;
use plimsoll_model::raw;

use crate::blocks::events;
use crate::json::{Node, lossy};

/// A message of the proxy's own.
pub struct ProxyMessage {
    id: String,
    /// The text as a JSON string.
    text: String,
}

impl ProxyMessage {
    /// A message of a response with this id.
    pub fn new(response: &str, text: &str) -> Self {
        let own = response.strip_prefix("resp_").unwrap_or(response);
        Self {
            id: raw::quote(&format!("msg_{own}")),
            text: raw::quote(text),
        }
    }

    /// The message as an item of the output.
    pub fn item(&self) -> Bytes {
        self.item_with("completed", &self.part())
    }

    /// The events that bring it, at this place among the blocks, and under numbers from this one on
    /// if events have numbers.
    pub fn events(&self, index: u64, sequence: Option<u64>) -> Vec<Bytes> {
        let (id, text, part) = (&self.id, &self.text, self.part());
        let within = format!(r#""item_id":{id},"output_index":{index},"content_index":0"#);
        let begun = String::from_utf8_lossy(&self.item_with("in_progress", "")).into_owned();
        let whole = String::from_utf8_lossy(&self.item()).into_owned();
        let bodies = [
            (
                "response.output_item.added",
                format!(r#""output_index":{index},"item":{begun}"#),
            ),
            (
                "response.content_part.added",
                format!(r#"{within},"part":{}"#, part_of(r#""""#)),
            ),
            (
                "response.output_text.delta",
                format!(r#"{within},"delta":{text},"logprobs":[]"#),
            ),
            (
                "response.output_text.done",
                format!(r#"{within},"text":{text},"logprobs":[]"#),
            ),
            (
                "response.content_part.done",
                format!(r#"{within},"part":{part}"#),
            ),
            (
                "response.output_item.done",
                format!(r#""output_index":{index},"item":{whole}"#),
            ),
        ];
        let numbers = (0_u64..).map(|step| sequence.map(|first| first.saturating_add(step)));
        let events = bodies.iter().zip(numbers);
        events
            .map(|((name, body), number)| {
                let data = format!(r#"{{"type":"{name}",{}{body}}}"#, member(number));
                events::event(name, data.as_bytes())
            })
            .collect()
    }

    fn part(&self) -> String {
        part_of(&self.text)
    }

    fn item_with(&self, status: &str, content: &str) -> Bytes {
        let id = &self.id;
        Bytes::from(format!(
            r#"{{"id":{id},"type":"message","status":"{status}","content":[{content}],"role":"assistant"}}"#
        ))
    }
}

fn part_of(text: &str) -> String {
    format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{text}}}"#)
}

/// An event's number as a member with a comma behind it.
fn member(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| {
        format!(r#""sequence_number":{number},"#)
    })
}

/// An error event. The error is a JSON object, with or without the `error` key around it;
/// anything else becomes the message.
pub fn error(error: &[u8], sequence: Option<u64>) -> Bytes {
    let whole = Node::root(error);
    let inner = whole.as_ref().and_then(|whole| whole.child("error"));
    let said = inner.or(whole);
    let text = |key: &str| {
        let raw = said.as_ref()?.object.raw(key)?;
        (raw.first() == Some(&b'"')).then(|| lossy(raw))
    };
    let quoted =
        |text: Option<String>| text.map_or_else(|| "null".to_owned(), |text| raw::quote(&text));
    let message = text("message").unwrap_or_else(|| String::from_utf8_lossy(error).into_owned());
    let data = format!(
        r#"{{"type":"error",{}"code":{},"message":{},"param":{}}}"#,
        member(sequence),
        quoted(text("code").or_else(|| text("type"))),
        raw::quote(&message),
        quoted(text("param")),
    );
    events::event("error", data.as_bytes())
}
