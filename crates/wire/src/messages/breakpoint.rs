//! Breakpoints of the provider's cache in a Messages request: those that the client has set, and
//! where the proxy's go. A marker is no part of what is cached, so one may move from request to
//! request without losing a prefix. Never moves, removes or replaces one of the client's, and never
//! decides what a breakpoint stands before.
//!
//! The API demands of markers: four at most, those in tools and system included; none on reasoning
//! or on text that says nothing; and, in the order of tools, system and messages, none that is kept
//! for an hour behind one that is kept for minutes.

use bytes::Bytes;
use plimsoll_model::Role;
use plimsoll_model::raw::{self, Object};

use super::block::{Block, BlockType, Unit};
use crate::cached_for::{MARKER, may_hold};
use crate::json;
use crate::list::Breakpoint;

/// How long the provider keeps what ends at a marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Five minutes, the default.
    #[default]
    Minutes,
    /// An hour.
    Hour,
}

impl Lifetime {
    /// The lifetime that the marker of a block, a tool or a whole request says; `None` if it has no
    /// marker.
    pub fn of(object: &Object<'_>) -> Option<Self> {
        object.present(MARKER).map(Self::read)
    }

    fn read(marker: &[u8]) -> Self {
        let ttl = Object::parse(marker).ok();
        match ttl.and_then(|marker| marker.text("ttl")).as_deref() {
            Some("1h") => Self::Hour,
            _ => Self::Minutes,
        }
    }

    const fn marker(self) -> &'static [u8] {
        match self {
            Self::Minutes => br#"{"type":"ephemeral"}"#,
            Self::Hour => br#"{"type":"ephemeral","ttl":"1h"}"#,
        }
    }
}

/// The markers in an array of tools or of blocks, in order; none if the bytes are no array.
pub fn lifetimes(array: &[u8]) -> Vec<Lifetime> {
    if !may_hold(array) {
        return Vec::new();
    }
    json::objects(array)
        .filter_map(|object| Lifetime::of(&object))
        .collect()
}

/// A message as it is sent.
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A block by its message and its place in that.
type Place = (usize, usize);

/// The markers of a request, in the order in which the provider reads them.
struct Markers {
    /// In tools and system.
    ahead: Vec<Lifetime>,
    /// In the messages.
    here: Vec<(Place, Lifetime)>,
    /// That of the whole request, which the provider sets at the end by itself.
    behind: Option<Lifetime>,
}

impl Markers {
    fn count(&self) -> usize {
        self.ahead.len() + self.here.len() + usize::from(self.behind.is_some())
    }

    fn at(&self, place: Place) -> bool {
        self.here.iter().any(|(at, _)| *at == place)
    }

    /// The lifetime of a marker at this place: that of the next marker, so that none behind it is
    /// kept longer, else that of the last marker before it.
    fn lifetime(&self, place: Place) -> Lifetime {
        let next = self.here.iter().find(|(at, _)| *at > place);
        let next = next.map(|(_, lifetime)| *lifetime).or(self.behind);
        let before = self.here.iter().rfind(|(at, _)| *at < place);
        let before = before.map(|(_, lifetime)| lifetime).or(self.ahead.last());
        next.or(before.copied()).unwrap_or_default()
    }

    fn add(&mut self, place: Place) -> Lifetime {
        let lifetime = self.lifetime(place);
        let at = self.here.partition_point(|(at, _)| *at < place);
        self.here.insert(at, (place, lifetime));
        lifetime
    }
}

/// The client's markers outside its messages.
#[derive(Clone, Debug, Default)]
pub struct OuterMarkers {
    /// The markers in tools and system, in order.
    pub ahead: Vec<Lifetime>,
    /// The marker of the whole request.
    pub whole: Option<Lifetime>,
}

/// The messages that get a marker of the proxy's, with their new bytes. `wanted` says before which
/// message each breakpoint is of use. A client that sets no marker gets all of them. A client that
/// does knows its own tail and prologue, but not what is evicted next: it gets those of cuts.
pub fn place(
    messages: &[Message],
    outer: &OuterMarkers,
    wanted: &[(Breakpoint, usize)],
    max: usize,
) -> Vec<(usize, Bytes)> {
    if wanted.is_empty() || max == 0 {
        return Vec::new();
    }
    let mut markers = Markers {
        ahead: outer.ahead.clone(),
        here: (0..)
            .zip(messages)
            .flat_map(|(at, one)| found(at, one))
            .collect(),
        behind: outer.whole,
    };
    let kinds: &[Breakpoint] = match markers.count() {
        0 => &[Breakpoint::Tail, Breakpoint::Prologue, Breakpoint::Cut],
        _ => &[Breakpoint::Cut],
    };
    let mut marked = Vec::new();
    for kind in kinds {
        for (_, end) in wanted.iter().filter(|(wanted, _)| wanted == kind) {
            let free = markers.count() < max;
            let place = last_markable(messages, *end);
            let place = place.filter(|place| free && !markers.at(*place));
            marked.extend(place.and_then(|place| {
                let message = messages.get(place.0)?;
                let lifetime = markers.add(place);
                // Two markers never share a message, because each is sought from a message's end.
                Some((place.0, with(&message.bytes, place.1, lifetime)?))
            }));
        }
    }
    marked
}

/// The markers that a message holds.
fn found(at: usize, message: &Message) -> Vec<(Place, Lifetime)> {
    let unit = Some(&message.bytes).filter(|bytes| may_hold(bytes));
    let Some(Ok(unit)) = unit.map(|bytes| Unit::read(bytes)) else {
        return Vec::new();
    };
    let blocks = (0..).zip(&unit.blocks);
    let lifetimes = blocks.flat_map(|(block, one)| {
        inside(one)
            .into_iter()
            .map(move |lifetime| (block, lifetime))
    });
    lifetimes
        .map(|(block, lifetime)| ((at, block), lifetime))
        .collect()
}

/// The markers of a block: its own, and those of what it holds.
fn inside(block: &Block<'_>) -> Vec<Lifetime> {
    let source = block.child("source");
    let source = source.and_then(|source| source.present("content"));
    let held = [block.member("content"), source].into_iter().flatten();
    let held = held.flat_map(lifetimes);
    held.chain(block.member(MARKER).map(Lifetime::read))
        .collect()
}

/// The last block before a message that may be marked.
fn last_markable(messages: &[Message], end: usize) -> Option<Place> {
    let before = messages.iter().enumerate().take(end).rev();
    let spoken = before.filter(|(_, one)| matches!(one.role, Role::User | Role::Assistant));
    spoken
        .filter_map(|(at, one)| {
            let unit = Unit::read(&one.bytes).ok()?;
            let block = unit.blocks.iter().rposition(is_markable)?;
            Some((at, block))
        })
        .next()
}

fn is_markable(block: &Block<'_>) -> bool {
    match block.kind {
        BlockType::Text => block.text().is_some_and(|text| !text.trim().is_empty()),
        BlockType::Image | BlockType::Document => true,
        BlockType::Call => !block.is_by_server(),
        // The provider does not count a reference that makes a tool callable as content.
        BlockType::Result => block
            .content()
            .is_ok_and(|held| held.iter().all(|held| held.kind != BlockType::Other)),
        BlockType::Thinking | BlockType::Redacted | BlockType::SearchResult | BlockType::Other => {
            false
        }
    }
}

/// A message with one of its blocks marked.
fn with(message: &[u8], block: usize, lifetime: Lifetime) -> Option<Bytes> {
    let marker = (MARKER, lifetime.marker());
    let content = Object::parse(message).ok()?.get("content")?;
    let raw = message.get(content.clone())?;
    if raw.first() == Some(&b'"') {
        return json::marked_text(message, content, "text", marker);
    }
    let blocks = raw::array(raw).ok()?;
    json::marked(
        message,
        &raw::shift(blocks.get(block)?, content.start),
        marker,
    )
}
