//! Breakpoints of the provider's cache in a Messages request: which the client has set, and where
//! ours go. A marker is no part of what is cached, so that one may move from request to request
//! without a prefix being lost. Never moves, removes or replaces one of the client's, and never
//! decides what they stand before.
//!
//! What the API demands of markers: four at most, those in tools and system counted, none on what
//! was thought nor on text that says nothing, and none that is kept for an hour behind one that is
//! kept for minutes, in the order of tools, system and messages.

use bytes::Bytes;
use memchr::memmem;

use super::block::{Block, Form, Kind, Unit};
use crate::dialect::splice::Breakpoint;
use crate::model::Role;
use crate::model::raw::{self, Object};

const KEY: &str = "cache_control";

/// How long the provider keeps what ends at a marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// Five minutes, which it is where nothing is said.
    #[default]
    Minutes,
    /// An hour.
    Hour,
}

impl Life {
    /// That of the marker of a block, a tool or a whole request; none where it has none.
    #[must_use]
    pub fn of(object: &Object<'_>) -> Option<Self> {
        object.present(KEY).map(Self::read)
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

/// The markers of an array of tools or of blocks, in order; none in what is no array.
#[must_use]
pub fn lives(array: &[u8]) -> Vec<Life> {
    if !may_hold(array) {
        return Vec::new();
    }
    let elements = raw::array(array).unwrap_or_default().into_iter();
    let elements = elements.filter_map(|span| Object::parse(array.get(span)?).ok());
    elements.filter_map(|object| Life::of(&object)).collect()
}

/// Whether a marker may be in there. Histories are long and markers few.
fn may_hold(bytes: &[u8]) -> bool {
    memmem::find(bytes, KEY.as_bytes()).is_some()
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

/// What is marked, in the order in which the provider reads it.
struct Markers {
    /// In tools and system.
    ahead: Vec<Life>,
    /// In the messages.
    here: Vec<(Place, Life)>,
    /// That of the whole request, which the provider sets at the end by itself.
    behind: Option<Life>,
}

impl Markers {
    fn count(&self) -> usize {
        self.ahead.len() + self.here.len() + usize::from(self.behind.is_some())
    }

    fn at(&self, place: Place) -> bool {
        self.here.iter().any(|(at, _)| *at == place)
    }

    /// How long a marker at this place is kept: as long as the next one, so that none behind it is
    /// kept longer, or as the last one before it.
    fn life(&self, place: Place) -> Life {
        let next = self.here.iter().find(|(at, _)| *at > place);
        let next = next.map(|(_, life)| *life).or(self.behind);
        let before = self.here.iter().rfind(|(at, _)| *at < place);
        let before = before.map(|(_, life)| life).or(self.ahead.last());
        next.or(before.copied()).unwrap_or_default()
    }

    fn add(&mut self, place: Place) -> Life {
        let life = self.life(place);
        let at = self.here.partition_point(|(at, _)| *at < place);
        self.here.insert(at, (place, life));
        life
    }
}

/// What is known of a request before its messages are written.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    /// The markers in tools and system, in order.
    pub lives: Vec<Life>,
    /// That of the whole request.
    pub whole: Option<Life>,
}

/// The messages that get a marker of ours, with their new bytes. `wanted` says before which message
/// each breakpoint is of use. A client that sets none gets all of them; one that does knows its
/// tail and its prologue, but not what is evicted next.
#[must_use]
pub fn place(
    messages: &[Message],
    ahead: &Ahead,
    wanted: &[(Breakpoint, usize)],
    max: usize,
) -> Vec<(usize, Bytes)> {
    if wanted.is_empty() || max == 0 {
        return Vec::new();
    }
    let mut markers = Markers {
        ahead: ahead.lives.clone(),
        here: (0..)
            .zip(messages)
            .flat_map(|(at, one)| found(at, one))
            .collect(),
        behind: ahead.whole,
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
                let life = markers.add(place);
                // Two never share a message: each is sought from the end of one.
                Some((place.0, with(&message.bytes, place.1, life)?))
            }));
        }
    }
    marked
}

/// The markers that a message holds.
fn found(at: usize, message: &Message) -> Vec<(Place, Life)> {
    let unit = Some(&message.bytes).filter(|bytes| may_hold(bytes));
    let Some(Ok(unit)) = unit.map(|bytes| Unit::read(bytes)) else {
        return Vec::new();
    };
    let blocks = (0..).zip(&unit.blocks);
    let lives =
        blocks.flat_map(|(block, one)| inside(one).into_iter().map(move |life| (block, life)));
    lives.map(|(block, life)| ((at, block), life)).collect()
}

/// The markers of a block: its own, and those of what it holds.
fn inside(block: &Block<'_>) -> Vec<Life> {
    let source = block.member("source");
    let source = source.and_then(|source| Object::parse(source).ok()?.present("content"));
    let held = [block.member("content"), source].into_iter().flatten();
    let held = held.flat_map(lives);
    held.chain(block.member(KEY).map(Life::read)).collect()
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
        Kind::Text => block.text().is_some_and(|text| !text.trim().is_empty()),
        Kind::Image | Kind::Document => true,
        Kind::Call => !block.is_by_server(),
        // What makes a tool callable is no content to the provider.
        Kind::Result => block
            .content()
            .is_ok_and(|held| held.iter().all(|held| held.kind != Kind::Other)),
        Kind::Thinking | Kind::Redacted | Kind::SearchResult | Kind::Other => false,
    }
}

/// A message with one of its blocks marked. Content that is a string becomes a block, which is the
/// same to the provider.
fn with(message: &[u8], block: usize, life: Life) -> Option<Bytes> {
    let unit = Unit::read(message).ok()?;
    let Form::Message {
        content: Some(span),
        ..
    } = &unit.form
    else {
        return None;
    };
    let content = message.get(span.clone())?;
    if content.first() == Some(&b'"') {
        let text = [
            br#"[{"type":"text","text":"#,
            content,
            br#","cache_control":"#,
            life.marker(),
            b"}]",
        ];
        let edit = (span.clone(), Bytes::from(text.concat()));
        return Some(raw::splice(message, &[edit]));
    }
    let element = raw::array(content).ok()?.get(block)?.clone();
    let marked = unit.blocks.get(block)?.with(KEY, life.marker())?;
    let edit = (raw::shift(&element, span.start), Bytes::from(marked));
    Some(raw::splice(message, &[edit]))
}
