//! Whether an answer has begun to say anything. Servers send a head, a comment or a first event at once
//! and read the prompt behind it, so none of these is the first byte of an answer. It knows the events
//! that say nothing yet of all formats, and takes everything else for an answer. Never keeps a byte back.

use bytes::Bytes;
use plimsoll_model::raw::Object;

use super::json;
use super::sse::{Frame, Splitter};
use super::stream::Form;

/// The most bytes of events that may say nothing. The first event of Responses repeats the request.
const MOST: usize = 1 << 20;
/// The most bytes of a packed answer that may say nothing: a head and an event.
const MOST_PACKED: usize = 1 << 10;

/// Events that say nothing of the answer itself, by their type.
const QUIET: [&[u8]; 7] = [
    // Messages.
    b"message_start",
    b"ping",
    // Responses.
    b"response.created",
    b"response.queued",
    b"response.in_progress",
    // Servers of either send it while they work.
    b"keepalive",
    // codex's backend, ahead of the answer.
    b"codex.rate_limits",
];

/// The members of an event that hold what has begun, and may be empty so far.
const BEGUN: [&str; 4] = ["content_block", "item", "part", "delta"];
/// What an item says of itself beside what it holds.
const OF_ITEMS: [&str; 6] = ["id", "type", "role", "status", "phase", "encrypted_content"];

/// The beginning of an answer.
#[derive(Debug)]
pub struct Opening {
    form: Beginning,
    read: usize,
}

#[derive(Debug)]
enum Beginning {
    /// Its form is not known yet: blanks, and what may become a field of an event.
    Unknown(Vec<u8>),
    /// Events.
    Events(Splitter),
    /// It is packed and can't be read.
    Packed,
}

impl Opening {
    /// The beginning of an answer that is packed, or is not.
    #[must_use]
    pub fn new(packed: bool) -> Self {
        let form = match packed {
            true => Beginning::Packed,
            false => Beginning::Unknown(Vec::new()),
        };
        Self { form, read: 0 }
    }

    /// Takes what came. Returns whether the answer says something by now.
    pub fn says(&mut self, piece: &Bytes) -> bool {
        self.read += piece.len();
        if self.read > MOST {
            return true;
        }
        match &mut self.form {
            Beginning::Packed => self.read > MOST_PACKED,
            Beginning::Events(splitter) => speaks(splitter, piece.clone()),
            Beginning::Unknown(held) => {
                held.extend_from_slice(piece);
                match Form::of(held) {
                    None => false,
                    Some(Form::Json | Form::Other) => true,
                    Some(Form::Events) => {
                        let mut splitter = Splitter::new(MOST);
                        let speaks = speaks(&mut splitter, std::mem::take(held).into());
                        self.form = Beginning::Events(splitter);
                        speaks
                    }
                }
            }
        }
    }
}

/// Whether one of the events that are whole now says something.
fn speaks(splitter: &mut Splitter, piece: Bytes) -> bool {
    splitter.push(piece);
    loop {
        match splitter.next_frame() {
            Ok(Some(frame)) if says_something(&frame) => return true,
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

fn says_something(frame: &Frame) -> bool {
    let Some(data) = frame.data().filter(|data| !data.is_empty()) else {
        return false;
    };
    if QUIET.contains(&frame.event()) {
        return false;
    }
    let Ok(event) = Object::parse(&data) else {
        return true;
    };
    if event.present("error").is_some() {
        return true;
    }
    if let Some(choices) = event.raw("choices") {
        return json::objects(choices).any(|choice| chooses(&choice));
    }
    let kind = event.text("type").unwrap_or_default();
    if QUIET.contains(&kind.as_bytes()) {
        return false;
    }
    let begun = BEGUN.iter().find_map(|key| event.raw(key));
    match begun.map(Object::parse) {
        Some(Ok(begun)) => holds(&begun, &OF_ITEMS),
        _ => begun.map_or(!event.members().is_empty(), is_full),
    }
}

/// Whether a choice of Chat says something: more than whose turn it is.
fn chooses(choice: &Object<'_>) -> bool {
    let said = ["delta", "message"].iter();
    let said = said.filter_map(|key| Object::parse(choice.raw(key)?).ok());
    let mut said = said.map(|said| holds(&said, &["role"]));
    said.any(|says| says)
        || ["text", "finish_reason"]
            .iter()
            .any(|key| choice.raw(key).is_some_and(is_full))
}

/// Whether an object has something in any member but these.
fn holds(object: &Object<'_>, but: &[&str]) -> bool {
    let mut members = object.members().iter();
    members
        .any(|member| !but.contains(&member.key.as_ref()) && is_full(json::value(object, member)))
}

/// Whether a value holds something.
fn is_full(value: &[u8]) -> bool {
    !matches!(value, b"null" | b"\"\"" | b"[]" | b"{}" | b"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(body: &str) -> bool {
        Opening::new(false).says(&Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn what_only_opens_an_answer_says_nothing() {
        for quiet in [
            "",
            " \r\n\n",
            "\u{feff}",
            ": processing\n\n: again\n\n",
            "retry: 3000\n\nid: 1\n\n",
            "data:\n\n",
            "data: {\"half\":",
            "data: {}\n\n",
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},\"logprobs\":null}],\"usage\":null}\n\n",
            "data: {\"choices\":[],\"prompt_filter_results\":[{\"prompt_index\":0}]}\n\n",
            "data: {\"choices\":[{\"text\":\"\",\"index\":0,\"finish_reason\":null}]}\n\n",
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":1}}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}}\n\n",
            "event: response.created\ndata: {\"response\":{\"id\":\"r\",\"output\":[]}}\n\n",
            "data: {\"type\":\"response.in_progress\",\"response\":{}}\n\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
            "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[],\"content\":[],\"status\":\"in_progress\"}}\n\n",
            "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"m\",\"role\":\"assistant\",\"content\":[]}}\n\n",
            "data: {\"type\":\"response.content_part.added\",\"item_id\":\"m\",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"\"}}\n\n",
        ] {
            assert!(!says(quiet), "{quiet}");
        }
    }

    #[test]
    fn what_says_something_does_however_it_is_cut() {
        for body in [
            "{",
            " [",
            "<html>",
            "data: [DONE]\n\n",
            "data: no json\n\n",
            ": x\n\ndata: {\"error\":{\"message\":\"x\"}}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"a\"}}\n\n",
            "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
            "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n",
            "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
            "data: {\"type\":\"response.completed\",\"response\":{}}\n\n",
            "data: {\"candidates\":[]}\n\n",
        ] {
            for size in [1, 3, body.len()] {
                let mut opening = Opening::new(false);
                let mut pieces = body.as_bytes().chunks(size);
                let said = pieces.any(|piece| opening.says(&Bytes::copy_from_slice(piece)));
                assert!(said, "{body} by {size}");
            }
        }
    }

    #[test]
    fn what_says_nothing_for_long_is_an_answer_all_the_same() {
        assert!(says(&format!(": {}", "x".repeat(MOST))));
        let mut packed = Opening::new(true);
        assert!(!packed.says(&Bytes::from_static(b"\x1f\x8b")));
        assert!(packed.says(&Bytes::from(vec![0; MOST_PACKED])));
    }
}
