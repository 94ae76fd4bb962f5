//! The list of messages as it is sent. Units go back into the hosts that they came from, and
//! unchanged hosts share the client's bytes. If something between two hosts is gone, the list is
//! repaired until it meets what the API demands of neighbours; what the client itself sends is not
//! repaired. Never decides what stands where.
//!
//! The API demands: results come first in the user message right behind their calls; reasoning is
//! bound to the message that it stands in, and neighbouring messages of the assistant count as one;
//! a system message stands behind a user's, and before an assistant's or last; no message is empty.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::raw::{Edit, Object};
use plimsoll_model::{Role, Rope};

use super::block;
use super::breakpoint::{self, Message};
use super::request::{Host, Hosts};
use crate::json;
use crate::list::{Addition, Breakpoint, Splice, UnitArray, UpstreamView};
use crate::request_fields::RequestFields;

/// The message that keeps two messages of the assistant apart once something between them is gone.
pub const SEPARATOR: &[u8] = br#"{"role":"user","content":"[results evicted]"}"#;

/// The messages of a request that are being written.
#[derive(Debug)]
pub struct MessageList<'a> {
    request: &'a RequestFields,
    hosts: &'a Hosts,
    entries: Vec<Entry>,
    system: Option<Edit>,
    /// Where breakpoints are of use: before which of the entries.
    wanted: Vec<(Breakpoint, usize)>,
    /// How many breakpoints the request may hold, the client's counted.
    allowed: usize,
}

/// One entry of the list.
#[derive(Debug)]
enum Entry {
    /// Units of one host.
    Host(usize, Vec<ListedUnit>),
    /// Something of the proxy's own.
    Ours(Addition, Bytes),
}

/// A unit of the client's.
#[derive(Debug)]
struct ListedUnit {
    index: usize,
    /// Its bytes, if they differ from the client's.
    edited: Option<Bytes>,
}

impl Splice for MessageList<'_> {
    fn client(&mut self, unit: usize) {
        if let Some(host) = self.host_of(unit) {
            self.push(host, unit, None);
        }
    }

    fn edited(&mut self, unit: usize, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        match self.host_of(unit) {
            Some(host) => self.push(host, unit, Some(bytes)),
            None => {
                let place = self.request.messages.get(unit);
                self.system = place.map(|span| (span.clone(), bytes));
            }
        }
    }

    fn add(&mut self, what: Addition, bytes: &[u8]) {
        if what == Addition::System {
            let (span, before) = &self.hosts.system;
            let system = Bytes::from([before, bytes].concat());
            self.system = Some((span.clone(), system));
        } else {
            let bytes = Bytes::copy_from_slice(bytes);
            self.entries.push(Entry::Ours(what, bytes));
        }
    }

    fn allow(&mut self, breakpoints: usize) {
        self.allowed = breakpoints;
    }

    fn breakpoint(&mut self, what: Breakpoint) {
        self.wanted.push((what, self.entries.len()));
    }

    fn close(&mut self) -> UpstreamView {
        let mut writer = Writer::new(self.request, self.hosts);
        let mut next = self.hosts.hosts.len();
        // The host that follows an entry tells whether a hop was made right behind the host before.
        let following: Vec<usize> = self
            .entries
            .iter()
            .rev()
            .map(|entry| {
                if let Entry::Host(host, _) = entry {
                    next = *host;
                }
                next
            })
            .collect();
        let entries = self.entries.iter().zip(following.into_iter().rev());
        for (at, (entry, next)) in entries.enumerate() {
            writer.wanted(self.wanted.iter().filter(|(_, before)| *before == at));
            match entry {
                Entry::Ours(Addition::Result, bytes) => writer.results.push(bytes.clone()),
                Entry::Ours(Addition::Hop, bytes) => writer.hop(next, bytes),
                Entry::Ours(Addition::System | Addition::Guidance, bytes) => {
                    writer.held.push(HeldSystem::Ours(bytes.clone()));
                }
                Entry::Host(host, units) => writer.host(*host, units),
            }
        }
        let end = self.entries.len();
        writer.wanted(self.wanted.iter().filter(|(_, at)| *at == end));
        writer.settle_held(self.hosts.hosts.len());
        let marked = writer.mark(self.allowed);
        UpstreamView {
            messages: writer.close(),
            edits: self.system.take().into_iter().collect(),
            marked,
        }
    }
}

impl<'a> MessageList<'a> {
    /// An empty one.
    pub fn new(request: &'a RequestFields, hosts: &'a Hosts) -> Self {
        Self {
            request,
            hosts,
            entries: Vec::new(),
            system: None,
            wanted: Vec::new(),
            allowed: 0,
        }
    }

    /// The host of a unit; `None` for the system text.
    fn host_of(&self, unit: usize) -> Option<usize> {
        let hosts = &self.hosts.hosts;
        let at = hosts.partition_point(|host| host.units.end <= unit);
        let host = hosts.get(at)?;
        host.units.contains(&unit).then_some(at)
    }

    fn push(&mut self, host: usize, index: usize, edited: Option<Bytes>) {
        let unit = ListedUnit { index, edited };
        match self.entries.last_mut() {
            Some(Entry::Host(last, units)) if *last == host => {
                units.push(unit);
                // A breakpoint inside a host stands before that host.
                let inside = self.entries.len();
                let wanted = self.wanted.iter_mut().filter(|(_, at)| *at == inside);
                wanted.for_each(|(_, at)| *at = inside - 1);
            }
            _ => self.entries.push(Entry::Host(host, vec![unit])),
        }
    }
}

/// A system message that waits for its place.
enum HeldSystem {
    /// The proxy's own.
    Ours(Bytes),
    /// One of the client's.
    Client {
        /// The host that it is.
        host: usize,
        /// Its bytes, if they differ from the client's.
        edited: Option<Bytes>,
        /// Whether the host before it in the client's list was written right before it.
        follows: bool,
    },
}

/// A message that is written. Without bytes of its own it is a host as the client sent it.
struct Written {
    role: Role,
    host: Option<usize>,
    bytes: Option<Bytes>,
}

/// Writes messages in order, and what the API demands between them.
struct Writer<'a> {
    request: &'a RequestFields,
    hosts: &'a Hosts,
    out: Vec<Written>,
    /// Where breakpoints are of use: before which of the messages.
    wanted: Vec<(Breakpoint, usize)>,
    /// Results that wait for a message of the user's.
    results: Vec<Bytes>,
    held: Vec<HeldSystem>,
}

impl<'a> Writer<'a> {
    fn new(request: &'a RequestFields, hosts: &'a Hosts) -> Self {
        Self {
            request,
            hosts,
            out: Vec::new(),
            wanted: Vec::new(),
            results: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Writes the message of a hop that the client never saw; `next` is the next host of the
    /// client's.
    fn hop(&mut self, next: usize, bytes: &[u8]) {
        self.settle_held(next);
        self.separate(next);
        self.write(Role::Assistant, None, bytes);
    }

    fn host(&mut self, at: usize, units: &[ListedUnit]) {
        let Some(host) = self.hosts.hosts.get(at) else {
            return;
        };
        match host.role {
            Role::System => {
                if self.in_place(at) {
                    self.emit_held();
                }
                self.held.push(HeldSystem::Client {
                    host: at,
                    edited: units.first().and_then(|unit| unit.edited.clone()),
                    follows: self.follows(at) && self.results.is_empty(),
                });
            }
            Role::User => {
                if self.in_place(at) {
                    self.emit_held();
                }
                self.user(at, host, units);
            }
            Role::Assistant => {
                self.settle_held(at);
                self.separate(at);
                self.whole(at, host.role, units);
            }
            // Nothing is known of what its neighbours may be.
            Role::Tool | Role::Other => {
                self.settle_held(at);
                self.whole(at, host.role, units);
            }
        }
    }

    /// Whether the message that was written last stands before this host in the client's list.
    fn follows(&self, host: usize) -> bool {
        match self.out.last() {
            None => host == 0,
            Some(last) => last.host.is_some_and(|last| last + 1 == host),
        }
    }

    /// Whether the system message that waits stands between the same two messages as at the client.
    fn in_place(&self, next: usize) -> bool {
        let [
            HeldSystem::Client {
                host,
                follows: true,
                ..
            },
        ] = self.held.as_slice()
        else {
            return false;
        };
        host + 1 == next && self.results.is_empty()
    }

    /// Writes everything that waits, because the next message is no user's.
    fn settle_held(&mut self, next: usize) {
        if self.in_place(next) {
            self.emit_held();
            return;
        }
        self.own_results();
        if !self.held.is_empty() {
            if self.out.last().is_none_or(|last| last.role != Role::User) {
                self.write(Role::User, None, SEPARATOR);
            }
            self.emit_held();
        }
    }

    /// Keeps an assistant's message apart from one that did not stand before it.
    fn separate(&mut self, place: usize) {
        let behind = self
            .out
            .last()
            .is_some_and(|last| last.role == Role::Assistant);
        if behind && !self.follows(place) {
            self.write(Role::User, None, SEPARATOR);
        }
    }

    /// Writes the results that wait as a message of their own.
    fn own_results(&mut self) {
        if self.results.is_empty() {
            return;
        }
        let results = std::mem::take(&mut self.results);
        let content = json::list(&results);
        let message = [br#"{"role":"user","content":"#, &content[..], b"}"].concat();
        self.write(Role::User, None, &message);
    }

    /// Writes the system messages that wait as one.
    fn emit_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        match held.as_slice() {
            [] => {}
            [
                HeldSystem::Client {
                    host, edited: None, ..
                },
            ] => self.share(*host, Role::System),
            held => {
                let bytes = |one: &HeldSystem| match one {
                    HeldSystem::Ours(bytes)
                    | HeldSystem::Client {
                        edited: Some(bytes),
                        ..
                    } => bytes.clone(),
                    HeldSystem::Client { host, .. } => self.bytes(*host),
                };
                let messages: Vec<Bytes> = held.iter().map(bytes).collect();
                let host = match held {
                    [HeldSystem::Client { host, .. }] => Some(*host),
                    _ => None,
                };
                match merged(&messages) {
                    Some(bytes) => self.write(Role::System, host, &bytes),
                    // Messages without a content are wrong by themselves, and stay so.
                    None => messages
                        .iter()
                        .for_each(|bytes| self.write(Role::System, None, bytes)),
                }
            }
        }
    }

    /// Writes a host that is one unit.
    fn whole(&mut self, at: usize, role: Role, units: &[ListedUnit]) {
        match units.first().and_then(|unit| unit.edited.as_ref()) {
            Some(bytes) => self.write(role, Some(at), bytes),
            None => self.share(at, role),
        }
    }

    /// Writes a user's message, with the results that wait at its front.
    fn user(&mut self, at: usize, host: &Host, units: &[ListedUnit]) {
        let complete = units.iter().map(|unit| unit.index).eq(host.units.clone());
        let untouched = complete && units.iter().all(|unit| unit.edited.is_none());
        if untouched && self.results.is_empty() {
            return self.share(at, Role::User);
        }
        let spans = self.request.messages.get(host.units.clone());
        let spans = spans.unwrap_or_default();
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
            return;
        };
        if *first == host.span {
            let bytes = match units.first().and_then(|unit| unit.edited.clone()) {
                Some(bytes) => bytes,
                None => self.bytes(at),
            };
            return self.with_results(at, &bytes);
        }
        let body = &self.request.body;
        let mut message = body.slice(host.span.start..first.start).to_vec();
        let results = std::mem::take(&mut self.results);
        let own = units.iter().map(|unit| match &unit.edited {
            Some(bytes) => bytes.clone(),
            None => Bytes::copy_from_slice(self.request.message(unit.index)),
        });
        let blocks: Vec<Bytes> = results.into_iter().chain(own).collect();
        json::push_joined(&mut message, &blocks);
        message.extend_from_slice(&body.slice(last.end..host.span.end));
        self.write(Role::User, Some(at), &message);
    }

    /// Writes a message without results of its own, with those that wait at its front.
    fn with_results(&mut self, at: usize, bytes: &[u8]) {
        match in_front(bytes, &self.results) {
            Some(message) => {
                self.results.clear();
                self.write(Role::User, Some(at), &message);
            }
            // To the API neighbouring messages of the user are one.
            None => {
                self.own_results();
                self.write(Role::User, Some(at), bytes);
            }
        }
    }

    fn bytes(&self, host: usize) -> Bytes {
        let span = self.hosts.hosts.get(host).map(|host| host.span.clone());
        span.map_or_else(Bytes::new, |span| self.request.body.slice(span))
    }

    /// Writes a host as the client sent it.
    fn share(&mut self, host: usize, role: Role) {
        self.out.push(Written {
            role,
            host: Some(host),
            bytes: None,
        });
    }

    fn write(&mut self, role: Role, host: Option<usize>, bytes: &[u8]) {
        self.out.push(Written {
            role,
            host,
            bytes: Some(Bytes::copy_from_slice(bytes)),
        });
    }

    fn close(self) -> Rope {
        let hosts = self.hosts.hosts.iter();
        let spans = hosts.map(|host| host.span.clone()).collect();
        let mut array = UnitArray::new(self.request, spans, |_| Default::default());
        for one in &self.out {
            match (&one.bytes, one.host) {
                (Some(bytes), _) => array.edited(usize::MAX, bytes),
                (None, host) => host.into_iter().for_each(|host| array.client(host)),
            }
        }
        array.close().messages
    }

    /// Breakpoints are of use behind what is written by now.
    fn wanted<'b>(&mut self, wanted: impl Iterator<Item = &'b (Breakpoint, usize)>) {
        let end = self.out.len();
        self.wanted.extend(wanted.map(|(what, _)| (*what, end)));
    }

    /// Sets our breakpoints. Returns whether there are any.
    fn mark(&mut self, breakpoints: usize) -> bool {
        if breakpoints == 0 || self.wanted.is_empty() {
            return false;
        }
        let marked = self.marked(breakpoints);
        let any = !marked.is_empty();
        for (at, bytes) in marked {
            if let Some(message) = self.out.get_mut(at) {
                message.bytes = Some(bytes);
            }
        }
        any
    }

    fn marked(&self, breakpoints: usize) -> Vec<(usize, Bytes)> {
        let messages = self.out.iter().map(|one| Message {
            role: one.role,
            bytes: match (&one.bytes, one.host) {
                (Some(bytes), _) => bytes.clone(),
                (None, host) => host.map_or_else(Bytes::new, |host| self.bytes(host)),
            },
        });
        let messages: Vec<Message> = messages.collect();
        let all = (Breakpoint::Tail, messages.len());
        // Messages that waited when the end was named have been written since.
        let wanted = self.wanted.iter().map(|(what, at)| match what {
            Breakpoint::Tail => all,
            Breakpoint::Prologue | Breakpoint::Cut => (*what, *at),
        });
        let wanted: Vec<(Breakpoint, usize)> = wanted.collect();
        breakpoint::place(&messages, &self.hosts.markers, &wanted, breakpoints)
    }
}

/// A user's message with blocks at its front.
fn in_front(bytes: &[u8], blocks: &[Bytes]) -> Option<Bytes> {
    if blocks.is_empty() {
        return Some(Bytes::copy_from_slice(bytes));
    }
    let object = Object::parse(bytes).ok()?;
    let content = object.raw("content")?;
    let mut all: Vec<Cow<'_, [u8]>> = blocks.iter().map(|block| Cow::Borrowed(&**block)).collect();
    all.extend(elements(content)?);
    Some(json::with(&object, "content", &json::list(&all)))
}

/// The blocks of a content as elements of an array.
fn elements(content: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    match content.first()? {
        b'"' if content == b"\"\"" => Some(Vec::new()),
        b'"' => Some(vec![Cow::Owned(block::text_of(content))]),
        _ => Some(json::array(content)?.map(Cow::Borrowed).collect()),
    }
}

/// Several messages as one: the last, with the contents of all.
fn merged(messages: &[Bytes]) -> Option<Bytes> {
    let (last, before) = messages.split_last()?;
    if before.is_empty() {
        return Some(last.clone());
    }
    let mut blocks = Vec::new();
    for message in before {
        let object = Object::parse(message).ok()?;
        let content = elements(object.raw("content")?)?;
        blocks.extend(
            content
                .into_iter()
                .map(|block| Bytes::copy_from_slice(&block)),
        );
    }
    in_front(last, &blocks)
}
