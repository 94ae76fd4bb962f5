//! The events of a Responses stream: what each is, what a hop has said by them, and how they are
//! written for a client that was shown something else. Never keeps a frame back, and never decides
//! what is shown when.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::item::{self, Item, Kind};
use super::node::{Node, splice};
use super::own::{self, Line};
use super::response::{Origin, Response};
use crate::dialect::answer::{Answer, is_cut};
use crate::dialect::blocks::events::{Fate, Numbers, Step, Told};
use crate::dialect::sse::Frame;
use crate::dialect::stream::Spec;
use crate::model::raw::Edit;

/// What some servers end a stream with.
const DONE: &[u8] = b"[DONE]";

/// The events of a turn.
#[derive(Debug)]
pub(in crate::dialect) struct Events {
    spec: Spec,
    /// Who the response is towards the client; none before the first hop has said so.
    origin: Option<Origin>,
    hop: Hop,
    /// Whether the last frame has no members but strings and numbers, and none that names.
    plain: bool,
}

/// What the hop that is read has said so far.
#[derive(Debug, Default)]
struct Hop {
    /// Items that are whole, by the upstream's number.
    items: BTreeMap<u64, Bytes>,
    /// The ids of items that have begun, by the upstream's number.
    begun: BTreeMap<u64, String>,
    /// Visible items that never became whole but for the end's own account of them.
    late: Vec<u64>,
    /// What it reports of itself: who spoke, usage, how it ended.
    report: Answer,
}

impl Events {
    pub(in crate::dialect) fn new(spec: &Spec) -> Self {
        Self {
            spec: spec.clone(),
            origin: None,
            hop: Hop::default(),
            plain: false,
        }
    }

    pub(in crate::dialect) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(in crate::dialect) fn take(&mut self, frame: &Frame) -> Step {
        self.plain = false;
        let Some(data) = frame.data() else {
            return Step::Aside;
        };
        if data == DONE {
            return Step::End;
        }
        let Some(event) = Node::root(&data) else {
            return Step::Unreadable;
        };
        self.plain = is_plain(frame, &event);
        let kind = event.object.text("type").unwrap_or_default();
        let kind = match kind.as_bytes() {
            b"" => frame.event(),
            kind => kind,
        };
        match kind {
            b"response.created" | b"response.queued" | b"response.in_progress" => {
                self.learn(&event);
                Step::Begin
            }
            b"response.completed" | b"response.incomplete" => {
                self.learn(&event);
                self.finish(&event, kind == b"response.incomplete");
                Step::Finish
            }
            b"response.failed" | b"error" => {
                self.learn(&event);
                self.fail(&event, &data);
                Step::Error
            }
            b"response.output_item.added" => self.open(&event),
            b"response.output_item.done" => self.shut(&event, &data),
            _ => self.other(&event, &data),
        }
    }

    pub(in crate::dialect) fn answer(&self) -> Answer {
        let mut answer = self.hop.report.clone();
        answer.complete = answer.error.is_none() && answer.finish.is_some();
        let cut = !answer.complete || answer.finish.as_deref().is_some_and(is_cut);
        let items: Vec<Bytes> = self.hop.items.values().cloned().collect();
        item::tell(&mut answer, &items, &self.spec.hidden, cut);
        answer
    }

    pub(in crate::dialect) fn next_hop(&mut self) {
        self.hop = Hop::default();
    }

    pub(in crate::dialect) fn block(&self, at: u64) -> Option<Bytes> {
        self.hop.items.get(&at).cloned()
    }

    pub(in crate::dialect) fn sequence(&self, frame: &Frame) -> Option<u64> {
        Node::root(&frame.data()?)?.object.number("sequence_number")
    }

    pub(in crate::dialect) fn show(&self, frame: &Frame, numbers: Numbers) -> Bytes {
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
            edits.extend(response.echo_edits(&self.spec));
        }
        rewrite(frame, &data, edits)
    }

    pub(in crate::dialect) fn end(&self, frame: &Frame, told: &Told<'_>) -> Bytes {
        let mut blocks = told.blocks.to_vec();
        blocks.extend(self.hop.late.iter().filter_map(|at| self.block(*at)));
        self.end_with(frame, told, &blocks, told.sequence)
    }

    pub(in crate::dialect) fn close(
        &self,
        held: &[Frame],
        line: Option<&str>,
        told: &Told<'_>,
    ) -> Vec<Bytes> {
        let mut blocks = told.blocks.to_vec();
        let mut said = Vec::new();
        if let Some(text) = line {
            let id = self.origin.as_ref().map(Origin::id).unwrap_or_default();
            let line = Line::new(&id, text);
            said.extend(line.events(told.index, told.sequence));
            blocks.push(line.item());
        }
        let mut next = told.sequence.map(|first| first + said.len() as u64);
        for frame in held {
            said.push(self.end_with(frame, told, &blocks, next));
            let numbered = self.sequence(frame).is_some();
            next = next.map(|next| next + u64::from(numbered));
        }
        said
    }

    pub(in crate::dialect) fn error(&self, error: &[u8], sequence: Option<u64>) -> Bytes {
        // Nothing was numbered before where no response has begun.
        own::error(error, sequence.or(self.origin.is_none().then_some(0)))
    }

    /// Takes in what an event's response reports of itself.
    fn learn(&mut self, event: &Node<'_>) {
        let Some(response) = Response::of_event(event) else {
            return;
        };
        response.tell(&mut self.hop.report);
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

    /// Takes in an item that the end tells of, where it had begun and was not told of before.
    fn unfinished(&mut self, raw: &[u8]) {
        let Some(item) = Item::read(raw) else { return };
        let id = item.id().unwrap_or_default();
        let at = self.numbered(&id);
        let Some(at) = at.filter(|at| !self.hop.items.contains_key(at)) else {
            return;
        };
        self.hop.items.insert(at, Bytes::copy_from_slice(raw));
        if self.fate(&item) != Fate::Hidden {
            self.hop.late.push(at);
        }
    }

    fn fail(&mut self, event: &Node<'_>, data: &Bytes) {
        let response = Response::of_event(event);
        let error = response.as_ref().and_then(Response::error);
        let error = error.map_or_else(|| data.clone(), |raw| data.slice_ref(raw));
        self.hop.report.error.get_or_insert(error);
    }

    fn open(&mut self, event: &Node<'_>) -> Step {
        let item = event.span("item").map(|span| event.bytes(&span));
        let item = item.and_then(Item::read);
        let id = item.as_ref().and_then(Item::id).unwrap_or_default();
        let at = event.object.number("output_index");
        let at = at.unwrap_or_else(|| self.next_number());
        self.hop.begun.insert(at, id.into_owned());
        let injected = !self.spec.hidden.is_empty();
        let fate = match item {
            Some(item) if injected && item.is_nameless() => Fate::Open,
            Some(item) => self.fate(&item),
            None => Fate::Shown,
        };
        Step::Open { at, fate }
    }

    fn shut(&mut self, event: &Node<'_>, data: &Bytes) -> Step {
        let raw = event.span("item").map(|span| data.slice(span));
        let raw = raw.unwrap_or_default();
        let item = Item::read(&raw);
        let id = item.as_ref().and_then(Item::id).unwrap_or_default();
        let at = event.object.number("output_index");
        let at = at.or_else(|| self.numbered(&id));
        let at = at.unwrap_or_else(|| self.next_number());
        let fate = item.as_ref().map_or(Fate::Shown, |item| self.fate(item));
        self.hop.begun.insert(at, id.into_owned());
        self.hop.items.insert(at, raw);
        Step::Close { at, fate }
    }

    /// An event of any other type. What can't be told to be about an item and yet has the name of
    /// a hidden tool in it is nothing that a client may read.
    fn other(&self, event: &Node<'_>, data: &[u8]) -> Step {
        let at = event.object.number("output_index");
        let id = event.object.text("item_id").unwrap_or_default();
        if let Some(at) = at.or_else(|| self.numbered(&id)) {
            return Step::Within { at };
        }
        if Response::of_event(event).is_some() {
            return Step::Other;
        }
        let hides = self.spec.hidden.stand_quoted_in(data);
        match (event.object.number("sequence_number"), hides) {
            // Left out as a hidden item is, so that the numbers close the gap.
            (Some(_), true) => Step::Open {
                at: u64::MAX,
                fate: Fate::Hidden,
            },
            (Some(_), false) => Step::Other,
            (None, true) => Step::Unreadable,
            (None, false) => Step::Aside,
        }
    }

    /// What becomes of an item. Reasoning waits only where something may be hidden behind it.
    fn fate(&self, item: &Item<'_>) -> Fate {
        if item.names(&self.spec.hidden) {
            return Fate::Hidden;
        }
        match item.kind() {
            Kind::Reasoning if !self.spec.hidden.is_empty() => Fate::Follows,
            Kind::Reasoning | Kind::Text | Kind::Call | Kind::Other => Fate::Shown,
        }
    }

    /// The number of the item with this id.
    fn numbered(&self, id: &str) -> Option<u64> {
        let mut begun = self.hop.begun.iter();
        let found = begun.find(|(_, own)| !id.is_empty() && *own == id);
        found.map(|(at, _)| *at)
    }

    /// The number of an item that the upstream gives none.
    fn next_number(&self) -> u64 {
        let last = self.hop.begun.last_key_value();
        last.map_or(0, |(at, _)| at + 1)
    }

    /// A frame of the end, with these items as the response's output.
    fn end_with(
        &self,
        frame: &Frame,
        told: &Told<'_>,
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
            edits.extend(response.echo_edits(&self.spec));
            if told.edited {
                let origin = self.origin.as_ref();
                edits.extend(origin.iter().flat_map(|own| response.origin_edits(own)));
                edits.extend(told.usage.iter().flat_map(|own| response.usage_edits(own)));
                edits.push(response.output_edit(blocks));
            }
        }
        rewrite(frame, &data, edits)
    }
}

/// Whether an event has no members but strings and numbers, and none that names; nor has its frame
/// any other lines than its name and its data.
fn is_plain(frame: &Frame, event: &Node<'_>) -> bool {
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
        index.and_then(|own| event.count("output_index", own)),
        numbers
            .sequence
            .and_then(|own| event.count("sequence_number", own)),
    ];
    edits.into_iter().flatten().collect()
}

fn rewrite(frame: &Frame, data: &[u8], edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return frame.raw().clone();
    }
    frame.with_data(&splice(data, edits))
}
