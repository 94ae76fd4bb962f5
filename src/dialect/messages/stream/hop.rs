//! What one hop has said so far: its blocks put together from their pieces. It takes pieces and
//! gives an [`Answer`]; what the client sees of them is the machine's business.

use bytes::Bytes;

use super::usage::{Counts, splice};
use crate::dialect::answer::{Answer, Block, BlockKind, Call, Reasoning, is_cut};
use crate::dialect::names::Names;
use crate::model::raw::{self, Edit, Object};

/// What one hop has said so far. Strings stand as on the wire, escapes and all, and are decoded
/// once, at the end.
#[derive(Debug, Default)]
pub(super) struct Hop {
    blocks: Vec<Building>,
    counts: Option<Counts>,
    /// The stop reason as sent.
    finish: Option<String>,
    /// Whether the message's end was seen.
    stopped: bool,
    error: Option<Bytes>,
    id: Option<String>,
    model: Option<String>,
}

/// A block in the making.
#[derive(Debug)]
struct Building {
    at: u64,
    kind: Kind,
    /// The name that the hidden tool has which it calls.
    own_name: Option<String>,
    /// The block as it was begun.
    start: Bytes,
    /// What was added to its strings, by member, without quotes.
    pieces: Vec<(String, Vec<u8>)>,
    citations: Vec<Bytes>,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Call { hidden: bool },
    Other,
}

/// The piece of an `input_json_delta`, which is added to no member of that name.
const JSON: &str = "partial_json";

impl Hop {
    /// Takes in who speaks: the message of `message_start`, or an unstreamed one.
    pub(super) fn begin(&mut self, message: &Object<'_>) {
        let text = |key| {
            let text = message.text(key).filter(|text| !text.is_empty());
            text.map(|text| text.into_owned())
        };
        self.id = self.id.take().or_else(|| text("id"));
        self.model = self.model.take().or_else(|| text("model"));
        self.count(message);
    }

    /// Takes in the usage that an object reports.
    pub(super) fn count(&mut self, object: &Object<'_>) {
        let usage = object.present("usage").map(Object::parse);
        if let Some(Ok(usage)) = usage {
            self.counts.get_or_insert_default().overlay(&usage);
        }
    }

    /// A block begins; says whether it is a call of a hidden tool.
    pub(super) fn open(&mut self, at: u64, block: &Object<'_>, hidden: &Names) -> bool {
        let kind = Kind::of(block, hidden);
        self.blocks.push(Building {
            at,
            kind,
            own_name: meant(block, hidden).map(str::to_owned),
            start: Bytes::copy_from_slice(block.bytes()),
            pieces: Vec::new(),
            citations: Vec::new(),
            closed: false,
        });
        kind == Kind::Call { hidden: true }
    }

    /// Adds a delta to a block. If it is one string and nothing else, says where that goes: the
    /// block's place, and the member's.
    pub(super) fn extend(&mut self, at: u64, delta: &Object<'_>) -> Option<(usize, usize)> {
        let place = self.blocks.iter().rposition(|block| block.at == at)?;
        let block = self.blocks.get_mut(place)?;
        let mut only = None;
        let mut strings = 0;
        for member in delta.members().iter().filter(|member| member.key != "type") {
            let value = delta.bytes().get(member.value.clone()).unwrap_or_default();
            match value {
                [b'"', inner @ .., b'"'] => {
                    strings += 1;
                    only = Some(block.add(&member.key, inner));
                }
                _ if member.key == "citation" => {
                    block.citations.push(Bytes::copy_from_slice(value));
                }
                _ => {}
            }
        }
        (strings == 1).then_some((place, only?))
    }

    /// Adds to a string by the place that [`Hop::extend`] gave.
    pub(super) fn sink(&mut self, (block, member): (usize, usize), inner: &[u8]) {
        let block = self.blocks.get_mut(block);
        if let Some((_, text)) = block.and_then(|block| block.pieces.get_mut(member)) {
            text.extend_from_slice(inner);
        }
    }

    /// A block is whole.
    pub(super) fn close(&mut self, at: u64) {
        let block = self.blocks.iter_mut().rev().find(|block| block.at == at);
        if let Some(block) = block {
            block.closed = true;
        }
    }

    /// Why the model stopped.
    pub(super) fn finish(&mut self, reason: String) {
        self.finish = Some(reason);
    }

    /// The message has come to its end.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// The upstream sent an error event. Only the first one is kept.
    pub(super) fn fail(&mut self, data: Bytes) {
        self.error.get_or_insert(data);
    }

    /// What the hop said: its whole blocks.
    pub(super) fn answer(&self) -> Answer {
        let complete = self.error.is_none() && (self.stopped || self.finish.is_some());
        let finish = self.finish.as_deref().map(normalised);
        let ended = complete && !finish.is_some_and(is_cut);
        let mut answer = Answer {
            finish: finish.map(str::to_owned),
            usage: self.counts.map(Counts::usage),
            complete,
            error: self.error.clone(),
            id: self.id.clone(),
            model: self.model.clone(),
            ..Answer::default()
        };
        let mut thought = String::new();
        // Where the end was seen, a block that was never closed is whole all the same.
        for block in self.blocks.iter().filter(|block| block.closed || complete) {
            block.tell(ended, &mut answer, &mut thought);
        }
        if !thought.is_empty() {
            let thought = Reasoning::Text(thought);
            answer.reasoning.push(("thinking".to_owned(), thought));
        }
        answer
    }
}

impl Building {
    /// Adds to a string member; says which of the pieces it is.
    fn add(&mut self, key: &str, inner: &[u8]) -> usize {
        let known = self.pieces.iter().position(|(known, _)| known == key);
        let place = known.unwrap_or_else(|| {
            self.pieces.push((key.to_owned(), Vec::new()));
            self.pieces.len() - 1
        });
        if let Some((_, text)) = self.pieces.get_mut(place) {
            text.extend_from_slice(inner);
        }
        place
    }

    fn piece(&self, key: &str) -> Option<&[u8]> {
        let piece = self.pieces.iter().find(|(known, _)| known == key);
        piece.map(|(_, text)| text.as_slice())
    }

    /// Puts what the block says into the answer.
    fn tell(&self, ended: bool, answer: &mut Answer, thought: &mut String) {
        let Ok(start) = Object::parse(&self.start) else {
            return;
        };
        let kind = match self.kind {
            Kind::Text => {
                let text = raw::unescape(&self.string(&start, "text"));
                // The API takes no text back that shows nothing, so nobody sends it.
                if text.trim().is_empty() {
                    return;
                }
                answer.text.push_str(&text);
                BlockKind::Text
            }
            Kind::Reasoning => {
                thought.push_str(&raw::unescape(&self.string(&start, "thinking")));
                BlockKind::Reasoning
            }
            Kind::Call { hidden } => {
                let call = self.call(&start, hidden, ended);
                if hidden && !call.complete {
                    return;
                }
                answer.calls.push(call);
                BlockKind::Call(answer.calls.len() - 1)
            }
            Kind::Other => BlockKind::Other,
        };
        let raw = self.whole(&start);
        answer.blocks.push(Block { kind, raw });
    }

    fn call(&self, start: &Object<'_>, hidden: bool, ended: bool) -> Call {
        let text = |key| start.text(key).unwrap_or_default().into_owned();
        let arguments = self.arguments(start);
        let extra = start
            .members()
            .iter()
            .filter(|member| !matches!(member.key.as_ref(), "type" | "id" | "name" | "input"));
        let raw = |span| start.bytes().get(span).unwrap_or_default();
        Call {
            id: text("id"),
            name: self.own_name.clone().unwrap_or_else(|| text("name")),
            complete: ended || Object::parse(arguments.as_bytes()).is_ok(),
            arguments,
            kind: text("type"),
            extra: extra
                .map(|member| {
                    let value = Bytes::copy_from_slice(raw(member.value.clone()));
                    (member.key.clone().into_owned(), value)
                })
                .collect(),
            hidden,
        }
    }

    /// A call's arguments as the model wrote them. A call without any has an empty object.
    fn arguments(&self, start: &Object<'_>) -> String {
        let streamed = raw::unescape(self.piece(JSON).unwrap_or_default());
        if !streamed.trim().is_empty() {
            return streamed;
        }
        let begun = start.raw("input").filter(|raw| raw.starts_with(b"{"));
        String::from_utf8_lossy(begun.unwrap_or(b"{}")).into_owned()
    }

    /// What stands between the quotes of a member once all pieces are added.
    fn string(&self, start: &Object<'_>, key: &str) -> Vec<u8> {
        let begun = match start.raw(key) {
            Some([b'"', inner @ .., b'"']) => inner,
            _ => b"",
        };
        [begun, self.piece(key).unwrap_or_default()].concat()
    }

    /// The block as one value: what was begun, with what was added.
    fn whole(&self, start: &Object<'_>) -> Bytes {
        let mut edits: Vec<Edit> = Vec::new();
        for (key, _) in self.pieces.iter().filter(|(key, _)| key != JSON) {
            let text = self.string(start, key);
            edits.push(start.set(key, &[b"\"", text.as_slice(), b"\""].concat()));
        }
        // A provider that checks names takes back what it was offered.
        let own_name = self.own_name.as_deref();
        if let Some(name) = own_name.filter(|own| start.text("name").as_deref() != Some(own)) {
            edits.push(start.set("name", raw::quote(name).as_bytes()));
        }
        let begun = start.raw("input").is_some_and(|raw| raw.starts_with(b"{"));
        if self.piece(JSON).is_some() || (matches!(self.kind, Kind::Call { .. }) && !begun) {
            let arguments = self.arguments(start);
            // What a limit cut in two is no JSON, and nothing else may stand there.
            let whole = Object::parse(arguments.as_bytes()).is_ok();
            let input = if whole { arguments.trim() } else { "{}" };
            edits.push(start.set("input", input.as_bytes()));
        }
        if !self.citations.is_empty() {
            let begun = start.raw("citations").unwrap_or_default();
            let known = raw::array(begun).unwrap_or_default().into_iter();
            let known = known.map(|span| begun.get(span).unwrap_or_default());
            let all: Vec<&[u8]> = known
                .chain(self.citations.iter().map(Bytes::as_ref))
                .collect();
            let all = [b"[", all.join(b",".as_slice()).as_slice(), b"]"].concat();
            edits.push(start.set("citations", &all));
        }
        splice(&self.start, edits)
    }
}

impl Kind {
    fn of(block: &Object<'_>, hidden: &Names) -> Self {
        match block.text("type").as_deref() {
            Some("text") => Self::Text,
            Some("thinking" | "redacted_thinking") => Self::Reasoning,
            Some("tool_use") => {
                let hidden = meant(block, hidden).is_some();
                Self::Call { hidden }
            }
            // What a server's own tool does is between it and the client.
            Some(_) | None => Self::Other,
        }
    }
}

/// The name of the hidden tool that a block calls.
fn meant<'n>(block: &Object<'_>, hidden: &'n Names) -> Option<&'n str> {
    let name = block.text("name").unwrap_or_default();
    let calls = block.text("type").as_deref() == Some("tool_use");
    hidden.meant(&name).filter(|_| calls)
}

/// Whether a block is a call of a hidden tool.
pub(super) fn is_hidden(block: &Object<'_>, hidden: &Names) -> bool {
    Kind::of(block, hidden) == Kind::Call { hidden: true }
}

/// The finish reason by the words that all dialects share where it says that the model did not get
/// to its end.
fn normalised(reason: &str) -> &str {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        other => other,
    }
}
