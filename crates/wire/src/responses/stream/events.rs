//! The events of a Responses stream: what each event is, what a hop has said by them, and how they
//! are written for a client that was shown something else. Never keeps a frame back, and never
//! decides what is shown when.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use plimsoll_model::raw::Edit;

use super::output_item::{self, OutputItem};
use super::proxy_events::{self, ProxyMessage};
use super::response::{Echo, Origin, Response};
use crate::answer::{Answer, is_cut};
use crate::blocks::events::{BlocksEnding, Events, FrameKind, Numbers, Visibility};
use crate::json::{self, Node, splice};
use crate::machine::KeptBytes;
use crate::names::Names;
use crate::sse::Frame;

/// The data that some servers end a stream with.
const DONE: &[u8] = b"[DONE]";

/// The members of an item that tell what it is, and which.
const TOLD_APART: [&str; 6] = ["type", "id", "call_id", "name", "role", "status"];

/// The events of a turn.
#[derive(Debug)]
pub struct ResponsesEvents {
    hidden: Names,
    echo: Echo,
    /// The response's identity towards the client; `None` before the first hop has told it.
    origin: Option<Origin>,
    hop: HopItems,
    /// Whether the last frame has only strings and numbers, and none of them is a name.
    plain: bool,
}

/// What the current hop has said so far.
#[derive(Debug, Default)]
struct HopItems {
    /// The whole items, by the upstream's number.
    items: BTreeMap<u64, Bytes>,
    /// The ids of items that have begun, by the upstream's number.
    begun: BTreeMap<u64, String>,
    /// The first number of each id.
    by_id: HashMap<String, u64>,
    /// Visible items that were whole only in the final event's list of items.
    late: Vec<u64>,
    /// What the response reports of itself: its id, its model, its usage, how it ended.
    report: Answer,
}

impl Events for ResponsesEvents {
    const BLOCK: &'static str = "item";

    fn take(&mut self, frame: &Frame) -> FrameKind {
        self.plain = false;
        let Some(data) = frame.data() else {
            return FrameKind::Aside;
        };
        if data == DONE {
            return FrameKind::End;
        }
        let Some(event) = Node::root(&data) else {
            return FrameKind::Unreadable;
        };
        self.plain = has_plain_members(frame, &event);
        let kind = event.object.text("type").unwrap_or_default();
        let kind = match kind.as_bytes() {
            b"" => frame.event(),
            kind => kind,
        };
        match kind {
            b"response.created" | b"response.queued" | b"response.in_progress" => {
                self.learn(&event);
                FrameKind::Begin
            }
            b"response.completed" | b"response.incomplete" => {
                self.learn(&event);
                self.finish(&event, kind == b"response.incomplete");
                FrameKind::Finish
            }
            b"response.failed" | b"error" => {
                self.learn(&event);
                self.fail(&event, &data);
                FrameKind::Error
            }
            b"response.output_item.added" => self.open(&event),
            b"response.output_item.done" => self.shut(&event, &data),
            _ => self.other(&event, &data),
        }
    }

    fn is_plain(&self) -> bool {
        self.plain
    }

    fn answer(&self) -> Answer {
        let mut answer = self.hop.report.clone();
        answer.complete = answer.error.is_none() && answer.finish.is_some();
        let cut = !answer.complete || answer.finish.as_deref().is_some_and(is_cut);
        let items: Vec<Bytes> = self.hop.items.values().cloned().collect();
        output_item::add_to(&mut answer, &items, &self.hidden, cut);
        answer
    }

    fn kept(&self) -> KeptBytes {
        let begun = self.hop.begun.values();
        let begun = begun.map(|id| 2 * (id.len() + size_of::<(u64, String, Bytes)>()));
        KeptBytes {
            said: self.hop.items.values().map(Bytes::len).sum(),
            waits: begun.sum(),
            parts: self.hop.begun.len(),
        }
    }

    fn forget(&mut self) {
        // Which items were whole decides what the end has to bring, and the end brings the late ones.
        let late: HashSet<u64> = self.hop.late.iter().copied().collect();
        let early = self
            .hop
            .items
            .iter_mut()
            .filter(|(at, _)| !late.contains(at));
        for (_, item) in early {
            *item = json::with_only(item, &TOLD_APART).unwrap_or_default();
        }
    }

    fn next_hop(&mut self) {
        self.hop = HopItems::default();
    }

    fn block(&self, at: u64) -> Option<Bytes> {
        let item = self.hop.items.get(&at).filter(|item| !item.is_empty());
        item.cloned()
    }

    fn sequence(&self, frame: &Frame) -> Option<u64> {
        Node::root(&frame.data()?)?.object.number("sequence_number")
    }

    fn show(&self, frame: &Frame, numbers: Numbers) -> Bytes {
        let data = frame.data().unwrap_or_default();
        let plain = numbers == Numbers::default();
        if plain && memchr::memmem::find(&data, br#""response""#).is_none() {
            return frame.raw().clone();
        }
        let Some(event) = Node::root(&data) else {
            return frame.raw().clone();
        };
        let mut edits = number_edits(&event, numbers);
        if let Some(response) = Response::of_event(&event) {
            edits.extend(response.echo_edits(&self.hidden, &self.echo));
        }
        rewrite(frame, &data, edits)
    }

    fn end(&self, frame: &Frame, ending: &BlocksEnding<'_>) -> Bytes {
        let mut blocks = ending.blocks.to_vec();
        blocks.extend(self.hop.late.iter().filter_map(|at| self.block(*at)));
        self.end_with(frame, ending, &blocks, ending.sequence)
    }

    fn close(&self, held: &[Frame], line: Option<&str>, ending: &BlocksEnding<'_>) -> Vec<Bytes> {
        let mut blocks = ending.blocks.to_vec();
        let mut said = Vec::new();
        if let Some(text) = line {
            let id = self.origin.as_ref().map(Origin::id).unwrap_or_default();
            let line = ProxyMessage::new(&id, text);
            said.extend(line.events(ending.index, ending.sequence));
            blocks.push(line.item());
        }
        let mut next = ending.sequence.map(|first| first + said.len() as u64);
        for frame in held {
            said.push(self.end_with(frame, ending, &blocks, next));
            let numbered = self.sequence(frame).is_some();
            next = next.map(|next| next + u64::from(numbered));
        }
        said
    }

    fn error(&self, error: &[u8], sequence: Option<u64>) -> Bytes {
        // Before a response has begun, no event was numbered.
        proxy_events::error(error, sequence.or(self.origin.is_none().then_some(0)))
    }
}

impl ResponsesEvents {
    /// The events of a turn's first hop.
    pub fn new(hidden: &Names, echo: &Echo) -> Self {
        Self {
            hidden: hidden.clone(),
            echo: echo.clone(),
            origin: None,
            hop: HopItems::default(),
            plain: false,
        }
    }

    /// Takes in what an event's response reports of itself.
    fn learn(&mut self, event: &Node<'_>) {
        let Some(response) = Response::of_event(event) else {
            return;
        };
        response.add_to(&mut self.hop.report);
        self.origin.get_or_insert_with(|| response.origin());
    }

    fn finish(&mut self, event: &Node<'_>, incomplete: bool) {
        let response = Response::of_event(event);
        let finish = response.as_ref().and_then(Response::finish);
        self.hop.report.finish = match finish {
            Some(finish) if finish != "stop" => Some(finish),
            Some(_) | None if incomplete => Some("length".to_owned()),
            Some(_) | None => Some("stop".to_owned()),
        };
        for raw in response.iter().flat_map(Response::items) {
            self.unfinished(raw);
        }
    }

    /// Takes in an item of the final event's list, if it had begun and never became whole.
    fn unfinished(&mut self, raw: &[u8]) {
        let Some(item) = OutputItem::read(raw) else {
            return;
        };
        let id = item.id().unwrap_or_default();
        let at = self.numbered(&id);
        let Some(at) = at.filter(|at| !self.hop.items.contains_key(at)) else {
            return;
        };
        self.hop.items.insert(at, Bytes::copy_from_slice(raw));
        if self.visibility(&item) != Visibility::Hidden {
            self.hop.late.push(at);
        }
    }

    fn fail(&mut self, event: &Node<'_>, data: &Bytes) {
        let response = Response::of_event(event);
        let error = response.as_ref().and_then(Response::error);
        let error = error.map_or_else(|| data.clone(), |raw| data.slice_ref(raw));
        self.hop.report.error.get_or_insert(error);
    }

    fn open(&mut self, event: &Node<'_>) -> FrameKind {
        let item = event.span("item").map(|span| event.bytes(&span));
        let item = item.and_then(OutputItem::read);
        let id = item.as_ref().and_then(OutputItem::id).unwrap_or_default();
        let at = event.object.number("output_index");
        let at = at.unwrap_or_else(|| self.next_number());
        self.begin(at, &id);
        let injected = !self.hidden.is_empty();
        let visibility = match item {
            Some(item) if injected && item.is_nameless() => Visibility::Open,
            Some(item) => self.visibility(&item),
            None => Visibility::Shown,
        };
        FrameKind::Open { at, visibility }
    }

    fn shut(&mut self, event: &Node<'_>, data: &Bytes) -> FrameKind {
        let raw = event.span("item").map(|span| data.slice(span));
        let raw = raw.unwrap_or_default();
        let item = OutputItem::read(&raw);
        let id = item.as_ref().and_then(OutputItem::id).unwrap_or_default();
        let at = event.object.number("output_index");
        let at = at.or_else(|| self.numbered(&id));
        let at = at.unwrap_or_else(|| self.next_number());
        let visibility = item
            .as_ref()
            .map_or(Visibility::Shown, |item| self.visibility(item));
        self.begin(at, &id);
        self.hop.items.insert(at, raw);
        FrameKind::Close { at, visibility }
    }

    /// An event of any other type. If it belongs to no item and yet holds the name of a hidden
    /// tool, the client may not read it.
    fn other(&self, event: &Node<'_>, data: &[u8]) -> FrameKind {
        let at = event.object.number("output_index");
        let id = event.object.text("item_id").unwrap_or_default();
        if let Some(at) = at.or_else(|| self.numbered(&id)) {
            return FrameKind::Within { at };
        }
        if Response::of_event(event).is_some() {
            return FrameKind::Other;
        }
        let hides = self.hidden.stand_quoted_in(data);
        match (event.object.number("sequence_number"), hides) {
            // Left out like a hidden item, so that the numbers close the gap.
            (Some(_), true) => FrameKind::Open {
                at: u64::MAX,
                visibility: Visibility::Hidden,
            },
            (Some(_), false) => FrameKind::Other,
            (None, true) => FrameKind::Unreadable,
            (None, false) => FrameKind::Aside,
        }
    }

    /// Whether the client sees an item. Reasoning waits only if something behind it may be hidden.
    fn visibility(&self, item: &OutputItem<'_>) -> Visibility {
        match item.visibility(&self.hidden) {
            Visibility::Follows if self.hidden.is_empty() => Visibility::Shown,
            visibility => visibility,
        }
    }

    /// Notes that an item has begun.
    fn begin(&mut self, at: u64, id: &str) {
        if !id.is_empty() {
            let first = self.hop.by_id.entry(id.to_owned()).or_insert(at);
            *first = at.min(*first);
        }
        self.hop.begun.insert(at, id.to_owned());
    }

    /// The number of the item with this id.
    fn numbered(&self, id: &str) -> Option<u64> {
        let at = self.hop.by_id.get(id).copied()?;
        let own = self.hop.begun.get(&at);
        own.is_some_and(|own| own == id).then_some(at)
    }

    /// The number of an item that the upstream gives none.
    fn next_number(&self) -> u64 {
        let last = self.hop.begun.last_key_value();
        last.map_or(0, |(at, _)| at + 1)
    }

    /// A frame of the response's end, with these items as the output.
    fn end_with(
        &self,
        frame: &Frame,
        ending: &BlocksEnding<'_>,
        blocks: &[Bytes],
        sequence: Option<u64>,
    ) -> Bytes {
        let data = frame.data().unwrap_or_default();
        let Some(event) = Node::root(&data) else {
            return frame.raw().clone();
        };
        let numbers = Numbers {
            index: None,
            sequence,
        };
        let mut edits = number_edits(&event, numbers);
        if let Some(response) = Response::of_event(&event) {
            let own = (&self.hidden, &self.echo);
            let origin = self.origin.as_ref().filter(|_| ending.edited);
            let output = ending.edited.then_some(blocks);
            edits.extend(response.own_edits(own, ending.usage, origin, output));
        }
        rewrite(frame, &data, edits)
    }
}

/// Whether an event has only strings and numbers, none of which is a name, and its frame has no
/// lines but its event's name and its data.
fn has_plain_members(frame: &Frame, event: &Node<'_>) -> bool {
    const FIELDS: usize = "event: \r\ndata: \r\n\r\n".len();
    let mut members = event.object.members().iter();
    let said = event.object.bytes().len() + frame.event().len();
    frame.raw().len() <= said + FIELDS
        && members.all(|member| {
            let value = event.bytes(&member.value);
            !matches!(value, [b'{' | b'[', _, _, ..]) && !member.key.eq_ignore_ascii_case("name")
        })
}

fn number_edits(event: &Node<'_>, numbers: Numbers) -> Vec<Edit> {
    let index = numbers.index;
    let edits = [
        index.and_then(|own| event.replace_number("output_index", own)),
        numbers
            .sequence
            .and_then(|own| event.replace_number("sequence_number", own)),
    ];
    edits.into_iter().flatten().collect()
}

fn rewrite(frame: &Frame, data: &[u8], edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return frame.raw().clone();
    }
    frame.with_data(&splice(data, edits))
}
