//! Puts the blocks of one hop together from their pieces. It takes pieces and gives an [`Answer`];
//! it never decides what the client sees of them.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use indexmap::IndexMap;
use plimsoll_model::raw::{self, Edit, Object};

use super::usage::Counts;
use crate::answer::{Answer, Block, BlockKind, Call, Reasoning, is_cut};
use crate::blocks::Piece;
use crate::json;
use crate::machine::KeptBytes;
use crate::messages::block::BlockType;
use crate::names::Names;

/// What one hop has said so far. Strings are kept as on the wire, with their escapes, and decoded
/// once, at the end.
#[derive(Debug, Default)]
pub struct AnswerBuilder {
    blocks: Vec<Building>,
    /// The last block of each number.
    by_number: HashMap<u64, usize>,
    counts: Option<Counts>,
    /// The stop reason as sent.
    finish: Option<String>,
    /// Whether the message's end was seen.
    stopped: bool,
    error: Option<Bytes>,
    id: Option<String>,
    model: Option<String>,
    /// The id of the container in which it ran code.
    container: Option<String>,
}

/// A block in the making.
#[derive(Debug)]
struct Building {
    kind: BlockType,
    /// The name of the hidden tool that it calls, as the tool was offered.
    own_name: Option<String>,
    /// The block as it was begun.
    start: Bytes,
    /// The text that was added to its string members, without quotes.
    pieces: IndexMap<String, Vec<u8>>,
    citations: Vec<Bytes>,
    closed: bool,
}

/// The key of the pieces of a call's input. The block has no member of that name.
const INPUT_PIECE: &str = "partial_json";
/// To how many members of a block deltas may add. The API has five, and each costs a look at the whole block.
const MEMBERS: usize = 64;

impl AnswerBuilder {
    /// Takes in the id, the model and the usage of the message of `message_start`, or of an
    /// unstreamed one.
    pub fn begin(&mut self, message: &Object<'_>) {
        let text = |key| {
            let text = message.text(key).filter(|text| !text.is_empty());
            text.map(|text| text.into_owned())
        };
        self.id = self.id.take().or_else(|| text("id"));
        self.model = self.model.take().or_else(|| text("model"));
        self.keep(message);
        self.count(message);
    }

    /// Takes in the container that a message, or the delta at its end, names.
    pub fn keep(&mut self, object: &Object<'_>) {
        let container = object.child("container");
        let id = container.and_then(|container| Some(container.text("id")?.into_owned()));
        self.container = id.or(self.container.take());
    }

    /// Takes in the usage that an object reports.
    pub fn count(&mut self, object: &Object<'_>) {
        if let Some(usage) = object.child("usage") {
            self.counts.get_or_insert_default().update(&usage);
        }
    }

    /// A block begins. Returns whether it is a call of a hidden tool.
    pub fn open(&mut self, at: u64, block: &Object<'_>, hidden: &Names) -> bool {
        let own_name = meant(block, hidden).map(str::to_owned);
        let hides = own_name.is_some();
        self.by_number.insert(at, self.blocks.len());
        self.blocks.push(Building {
            kind: BlockType::of(block),
            own_name,
            start: Bytes::copy_from_slice(block.bytes()),
            pieces: IndexMap::new(),
            citations: Vec::new(),
            closed: false,
        });
        hides
    }

    /// Adds a delta to a block. If the delta is one string and nothing else, returns where that
    /// went: the block's place and the member's.
    pub fn extend(&mut self, at: u64, delta: &Object<'_>) -> Option<(usize, usize)> {
        let place = self.by_number.get(&at).copied()?;
        let block = self.blocks.get_mut(place)?;
        let mut only = None;
        let mut strings = 0;
        for member in delta.members().iter().filter(|member| member.key != "type") {
            let value = json::value(delta, member);
            match value {
                [b'"', inner @ .., b'"'] => {
                    strings += 1;
                    only = block.add(&member.key, inner);
                }
                _ if member.key == "citation" => {
                    block.citations.push(Bytes::copy_from_slice(value));
                }
                _ => {}
            }
        }
        (strings == 1).then_some((place, only?))
    }

    /// Adds to a string by the place that [`AnswerBuilder::extend`] gave.
    pub fn sink(&mut self, (block, member): (usize, usize), inner: &[u8]) {
        let block = self.blocks.get_mut(block);
        if let Some((_, text)) = block.and_then(|block| block.pieces.get_index_mut(member)) {
            text.extend_from_slice(inner);
        }
    }

    /// How many bytes are kept of what was said, and of how blocks are told apart.
    pub fn kept(&self) -> KeptBytes {
        let mut kept = KeptBytes {
            parts: self.blocks.len(),
            ..KeptBytes::default()
        };
        for block in &self.blocks {
            let pieces = block.pieces.iter();
            let pieces =
                pieces.map(|(key, text)| key.len() + text.len() + size_of::<(String, Vec<u8>)>());
            let citations = block.citations.iter().map(Bytes::len);
            kept.said += pieces.chain(citations).sum::<usize>();
            kept.waits += block.start.len() + size_of::<Building>() + size_of::<(u64, usize)>();
        }
        kept
    }

    /// Forgets what was said, but for how blocks are told apart.
    pub fn forget(&mut self) {
        for block in &mut self.blocks {
            for text in block.pieces.values_mut() {
                *text = Vec::new();
            }
            block.citations = Vec::new();
        }
    }

    /// A block is whole.
    pub fn close(&mut self, at: u64) {
        let place = self.by_number.get(&at).copied();
        if let Some(block) = place.and_then(|place| self.blocks.get_mut(place)) {
            block.closed = true;
        }
    }

    /// Why the model stopped.
    pub fn finish(&mut self, reason: String) {
        self.finish = Some(reason);
    }

    /// The message has come to its end.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// The upstream sent an error event. Only the first is kept.
    pub fn fail(&mut self, data: Bytes) {
        self.error.get_or_insert(data);
    }

    /// What the hop said, in whole blocks.
    pub fn answer(&self) -> Answer {
        let complete = self.error.is_none() && (self.stopped || self.finish.is_some());
        let finish = self.finish.as_deref().map(common_finish);
        let ended = complete && !finish.is_some_and(is_cut);
        let mut answer = Answer {
            finish: finish.map(str::to_owned),
            usage: self.counts.map(Counts::usage),
            complete,
            error: self.error.clone(),
            id: self.id.clone(),
            model: self.model.clone(),
            handle: self.container.clone(),
            ..Answer::default()
        };
        let mut thoughts = String::new();
        // Once the end was seen, a block that was never closed counts as whole too.
        for block in self.blocks.iter().filter(|block| block.closed || complete) {
            block.add_to(ended, &mut answer, &mut thoughts);
        }
        if !thoughts.is_empty() {
            let thoughts = Reasoning::Text(thoughts);
            answer.reasoning.push(("thinking".to_owned(), thoughts));
        }
        answer
    }
}

impl Building {
    /// Adds to a string member. Returns the member's place among the pieces; `None` if it is one too many.
    fn add(&mut self, key: &str, inner: &[u8]) -> Option<usize> {
        if !self.pieces.contains_key(key) && self.pieces.len() < MEMBERS {
            self.pieces.insert(key.to_owned(), Vec::new());
        }
        let (place, _, text) = self.pieces.get_full_mut(key)?;
        text.extend_from_slice(inner);
        Some(place)
    }

    fn piece(&self, key: &str) -> Option<&[u8]> {
        self.pieces.get(key).map(Vec::as_slice)
    }

    /// Puts what the block says into the answer.
    fn add_to(&self, ended: bool, answer: &mut Answer, thoughts: &mut String) {
        let Ok(start) = Object::parse(&self.start) else {
            return;
        };
        let kind = match self.kind.piece() {
            Piece::Text => {
                let text = raw::unescape(&self.string(&start, "text"));
                // The API refuses a text that shows nothing, so nobody sends one back.
                if text.trim().is_empty() {
                    return;
                }
                append(&mut answer.text, text);
                BlockKind::Text
            }
            Piece::Reasoning => {
                append(thoughts, raw::unescape(&self.string(&start, "thinking")));
                BlockKind::Reasoning
            }
            Piece::Call => {
                let call = self.call(&start, ended);
                if call.hidden && !call.complete {
                    return;
                }
                answer.calls.push(call);
                BlockKind::Call(answer.calls.len() - 1)
            }
            Piece::Other => BlockKind::Other,
        };
        let raw = self.whole(&start);
        answer.blocks.push(Block { kind, raw });
    }

    fn call(&self, start: &Object<'_>, ended: bool) -> Call {
        let text = |key| start.text(key).unwrap_or_default().into_owned();
        let arguments = self.arguments(start);
        let own = ["type", "id", "name", "input"];
        Call {
            id: text("id"),
            name: self.own_name.clone().unwrap_or_else(|| text("name")),
            complete: ended || Object::parse(arguments.as_bytes()).is_ok(),
            arguments,
            kind: text("type"),
            extra: json::members(start, |key| !own.contains(&key)),
            hidden: self.own_name.is_some(),
        }
    }

    /// A call's arguments as the model wrote them; an empty object if it wrote none.
    fn arguments(&self, start: &Object<'_>) -> String {
        let streamed = raw::unescape(self.piece(INPUT_PIECE).unwrap_or_default());
        if !streamed.trim().is_empty() {
            return streamed;
        }
        let begun = start.raw("input").filter(|raw| raw.starts_with(b"{"));
        String::from_utf8_lossy(begun.unwrap_or(b"{}")).into_owned()
    }

    /// The text between the quotes of a member once all pieces are added.
    fn string<'a>(&self, start: &'a Object<'_>, key: &str) -> Cow<'a, [u8]> {
        let begun = match start.raw(key) {
            Some([b'"', inner @ .., b'"']) => inner,
            _ => b"",
        };
        match self.piece(key) {
            Some(piece) => Cow::Owned([begun, piece].concat()),
            None => Cow::Borrowed(begun),
        }
    }

    /// The block as one value: as it began, with all that was added.
    fn whole(&self, start: &Object<'_>) -> Bytes {
        let mut edits: Vec<Edit> = Vec::new();
        for key in self.pieces.keys().filter(|key| *key != INPUT_PIECE) {
            let text = self.string(start, key);
            edits.push(start.set(key, &[b"\"", &text[..], b"\""].concat()));
        }
        // A misspelt name is stored as the provider was offered it, since some check names.
        let own_name = self.own_name.as_deref();
        if let Some(name) = own_name.filter(|own| start.text("name").as_deref() != Some(own)) {
            edits.push(start.set("name", raw::quote(name).as_bytes()));
        }
        let begun = start.raw("input").is_some_and(|raw| raw.starts_with(b"{"));
        if self.piece(INPUT_PIECE).is_some() || (self.kind == BlockType::Call && !begun) {
            let arguments = self.arguments(start);
            // Arguments that a token limit cut are no JSON, and nothing but JSON may stand there.
            let whole = Object::parse(arguments.as_bytes()).is_ok();
            let input = if whole { arguments.trim() } else { "{}" };
            edits.push(start.set("input", input.as_bytes()));
        }
        if !self.citations.is_empty() {
            let begun = json::elements(start.raw("citations").unwrap_or_default());
            let all: Vec<&[u8]> = begun
                .chain(self.citations.iter().map(Bytes::as_ref))
                .collect();
            let all = json::list(&all);
            edits.push(start.set("citations", &all));
        }
        // An unstreamed block is whole as it began, and may be most of the answer.
        if edits.is_empty() {
            return self.start.clone();
        }
        json::splice(&self.start, edits)
    }
}

/// The name of the hidden tool that a block calls.
pub fn meant<'n>(block: &Object<'_>, hidden: &'n Names) -> Option<&'n str> {
    let name = block.text("name").unwrap_or_default();
    let calls = BlockType::of(block) == BlockType::Call;
    hidden.meant(&name).filter(|_| calls)
}

/// Puts a text behind another. An answer is mostly one text, and then it is not copied.
fn append(to: &mut String, text: String) {
    if to.is_empty() {
        *to = text;
    } else {
        to.push_str(&text);
    }
}

/// The finish reason, in the words that all formats share if it says that the model was cut off.
fn common_finish(reason: &str) -> &str {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        other => other,
    }
}
