//! The list of messages as it is sent. Units go back into the hosts that they came from; hosts that
//! are as they were share the client's bytes. Where something that stood between two of them is
//! gone, what the API demands of neighbours is repaired; what the client itself sends is not.
//! Never decides what stands where.
//!
//! What the API demands: results come first in the user message right behind their calls; what is
//! thought is bound to the message that it stands in, and neighbouring messages of the assistant
//! are one to the API; a system message stands behind a user's, and before an assistant's or last;
//! no message is empty.

use std::borrow::Cow;

use bytes::Bytes;

use super::block;
use super::breakpoint::{self, Ahead, Message};
use super::request::{Host, Hosts};
use crate::dialect::request::{Layout, Request, View};
use crate::dialect::splice::{Breakpoint, Own};
use crate::model::raw::{self, Edit, Object};
use crate::model::{Role, Rope};

/// What stands between two messages of the assistant of which something between them is gone.
const SEPARATOR: &[u8] = br#"{"role":"user","content":"[results evicted]"}"#;

/// The list in the making.
#[derive(Debug)]
pub struct List<'a> {
    request: &'a Request,
    steps: Vec<Step>,
    system: Option<Edit>,
    /// Where breakpoints are of use: before which of the steps.
    wanted: Vec<(Breakpoint, usize)>,
    /// Breakpoints that the request may hold, the client's counted.
    allowed: usize,
}

/// What the list is made of, in order.
#[derive(Debug)]
enum Step {
    /// Units of one host.
    Host(usize, Vec<Unit>),
    /// The message of a hop.
    Hop(Bytes),
    /// The result of a hidden call.
    Result(Bytes),
}

/// A unit of the client's, and its bytes where they are others.
#[derive(Debug)]
struct Unit {
    index: usize,
    edited: Option<Bytes>,
}

impl<'a> List<'a> {
    /// An empty one.
    #[must_use]
    pub fn new(request: &'a Request) -> Self {
        Self {
            request,
            steps: Vec::new(),
            system: None,
            wanted: Vec::new(),
            allowed: 0,
        }
    }

    /// How many breakpoints the request may hold; none of ours where this is not said.
    pub fn allow(&mut self, breakpoints: usize) {
        self.allowed = breakpoints;
    }

    /// A breakpoint is of use here.
    pub fn breakpoint(&mut self, what: Breakpoint) {
        self.wanted.push((what, self.steps.len()));
    }

    /// The client's unit at this index, as it came.
    pub fn client(&mut self, unit: usize) {
        if let Some(host) = self.host_of(unit) {
            self.unit(
                host,
                Unit {
                    index: unit,
                    edited: None,
                },
            );
        }
    }

    /// The client's unit at this index with other bytes.
    pub fn edited(&mut self, unit: usize, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        match self.host_of(unit) {
            Some(host) => self.unit(
                host,
                Unit {
                    index: unit,
                    edited: Some(bytes),
                },
            ),
            None => {
                let place = self.request.messages.get(unit);
                self.system = place.map(|span| (span.clone(), bytes));
            }
        }
    }

    /// Something of the proxy's own.
    pub fn own(&mut self, what: Own, bytes: &[u8]) {
        match what {
            Own::System => {
                self.system = self.hosts().map(|hosts| {
                    let (span, before) = &hosts.system;
                    (span.clone(), Bytes::from([before, bytes].concat()))
                });
            }
            Own::Hop => self.steps.push(Step::Hop(Bytes::copy_from_slice(bytes))),
            Own::Result => self.steps.push(Step::Result(Bytes::copy_from_slice(bytes))),
        }
    }

    fn hosts(&self) -> Option<&'a Hosts> {
        match &self.request.layout {
            Layout::Hosts(hosts) => Some(hosts),
            Layout::Flat => None,
        }
    }

    /// The host of a unit; none for the system text.
    fn host_of(&self, unit: usize) -> Option<usize> {
        let hosts = &self.hosts()?.hosts;
        let host = hosts.partition_point(|host| host.units.end <= unit);
        hosts
            .get(host)
            .filter(|host| host.units.contains(&unit))
            .map(|_| host)
    }

    fn unit(&mut self, host: usize, unit: Unit) {
        match self.steps.last_mut() {
            Some(Step::Host(last, units)) if *last == host => {
                units.push(unit);
                // What was to stand inside of a host stands before it.
                let inside = self.steps.len();
                let wanted = self.wanted.iter_mut().filter(|(_, at)| *at == inside);
                wanted.for_each(|(_, at)| *at = inside - 1);
            }
            _ => self.steps.push(Step::Host(host, vec![unit])),
        }
    }

    /// The whole list.
    #[must_use]
    pub fn close(self) -> View {
        let hosts = self.hosts().map_or(&[][..], |hosts| hosts.hosts.as_slice());
        let mut writer = Writer::new(self.request, hosts);
        let mut next = hosts.len();
        // Where the next host stands tells whether a hop was made right behind the one before it.
        let places: Vec<usize> = self
            .steps
            .iter()
            .rev()
            .map(|step| {
                if let Step::Host(host, _) = step {
                    next = *host;
                }
                next
            })
            .collect();
        let steps = self.steps.iter().zip(places.into_iter().rev());
        for (at, (step, place)) in steps.enumerate() {
            writer.wanted(self.wanted.iter().filter(|(_, before)| *before == at));
            match step {
                Step::Result(bytes) => writer.results.push(bytes.clone()),
                Step::Hop(bytes) => writer.hop(place, bytes),
                Step::Host(host, units) => writer.host(*host, units),
            }
        }
        writer.wanted(self.wanted.iter().filter(|(_, at)| *at == self.steps.len()));
        View {
            messages: writer.close(self.allowed),
            edits: self.system.into_iter().collect(),
        }
    }
}

/// A system message that waits for its place.
struct Held {
    host: usize,
    /// Its bytes; none where they are the client's.
    edited: Option<Bytes>,
    /// Whether what stood before it in the client's list was written right before it.
    follows: bool,
}

/// A message that is written: a host as the client sent it where it has no bytes of its own.
struct Written {
    role: Role,
    host: Option<usize>,
    bytes: Option<Bytes>,
}

/// Writes messages in order, and what is due between them.
struct Writer<'a> {
    request: &'a Request,
    hosts: &'a [Host],
    out: Vec<Written>,
    /// Where breakpoints are of use: before which of the messages.
    wanted: Vec<(Breakpoint, usize)>,
    /// Results that wait for a message of the user's.
    results: Vec<Bytes>,
    held: Vec<Held>,
}

impl<'a> Writer<'a> {
    fn new(request: &'a Request, hosts: &'a [Host]) -> Self {
        Self {
            request,
            hosts,
            out: Vec::new(),
            wanted: Vec::new(),
            results: Vec::new(),
            held: Vec::new(),
        }
    }

    /// A message of a hop that the client never saw; `place` is the next host of the client's.
    fn hop(&mut self, place: usize, bytes: &[u8]) {
        self.settle_held(place);
        self.answer(place);
        self.write(Role::Assistant, None, bytes);
    }

    fn host(&mut self, at: usize, units: &[Unit]) {
        let Some(host) = self.hosts.get(at) else {
            return;
        };
        match host.role {
            Role::System => {
                if self.in_place(at) {
                    self.emit_held();
                }
                self.held.push(Held {
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
                self.answer(at);
                self.whole(at, host.role, units);
            }
            // Nothing is known of its neighbours.
            Role::Tool | Role::Other => {
                self.settle_held(at);
                self.whole(at, host.role, units);
            }
        }
    }

    /// Whether what was written last is what stands before this host in the client's list.
    fn follows(&self, host: usize) -> bool {
        match self.out.last() {
            None => host == 0,
            Some(last) => last.host.is_some_and(|last| last + 1 == host),
        }
    }

    /// Whether the system message that waits stands where the client put it, between the same two.
    fn in_place(&self, next: usize) -> bool {
        let mut held = self.held.iter();
        let first = held.next();
        first.is_some_and(|held| held.follows && held.host + 1 == next)
            && held.next().is_none()
            && self.results.is_empty()
    }

    /// What waits is written, because what comes next is no user's message.
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

    /// Keeps an assistant's message apart from one that it did not stand behind.
    fn answer(&mut self, place: usize) {
        let behind = self
            .out
            .last()
            .is_some_and(|last| last.role == Role::Assistant);
        if behind && !self.follows(place) {
            self.write(Role::User, None, SEPARATOR);
        }
    }

    /// The results that wait as a message of their own.
    fn own_results(&mut self) {
        if self.results.is_empty() {
            return;
        }
        let results = std::mem::take(&mut self.results);
        let content = results.join(&b","[..]);
        let message = [br#"{"role":"user","content":["#, content.as_slice(), b"]}"].concat();
        self.write(Role::User, None, &message);
    }

    /// The system messages that wait, as one.
    fn emit_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        match held.as_slice() {
            [] => {}
            [
                Held {
                    host, edited: None, ..
                },
            ] => self.share(*host, Role::System),
            held => {
                let messages: Vec<Bytes> = held
                    .iter()
                    .map(|held| held.edited.clone().unwrap_or_else(|| self.bytes(held.host)))
                    .collect();
                let host = held
                    .first()
                    .filter(|_| held.len() == 1)
                    .map(|held| held.host);
                match merged(&messages) {
                    Some(bytes) => self.write(Role::System, host, &bytes),
                    // Without a content to merge they are wrong by themselves, and stay so.
                    None => messages
                        .iter()
                        .for_each(|bytes| self.write(Role::System, None, bytes)),
                }
            }
        }
    }

    /// A host that is one unit.
    fn whole(&mut self, at: usize, role: Role, units: &[Unit]) {
        match units.first().and_then(|unit| unit.edited.as_ref()) {
            Some(bytes) => self.write(role, Some(at), bytes),
            None => self.share(at, role),
        }
    }

    /// A user's message, with the results that wait at its front.
    fn user(&mut self, at: usize, host: &Host, units: &[Unit]) {
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
        message.extend_from_slice(&blocks.join(&b","[..]));
        message.extend_from_slice(&body.slice(last.end..host.span.end));
        self.write(Role::User, Some(at), &message);
    }

    /// A message without results of its own, with those that wait at its front.
    fn with_results(&mut self, at: usize, bytes: &[u8]) {
        match in_front(bytes, &self.results) {
            Some(message) => {
                self.results.clear();
                self.write(Role::User, Some(at), &message);
            }
            // Neighbouring messages of the user are one to the API.
            None => {
                self.own_results();
                self.write(Role::User, Some(at), bytes);
            }
        }
    }

    fn bytes(&self, host: usize) -> Bytes {
        let span = self.hosts.get(host).map(|host| host.span.clone());
        span.map_or_else(Bytes::new, |span| self.request.body.slice(span))
    }

    /// A host as the client sent it.
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

    fn close(mut self, breakpoints: usize) -> Rope {
        self.settle_held(self.hosts.len());
        self.mark(breakpoints);
        let mut shared = self.out.iter().map(Written::shared);
        if shared.by_ref().eq((0..self.hosts.len()).map(Some)) {
            let whole = self.request.messages_span.clone();
            return Rope::from(self.request.body.slice(whole));
        }
        let mut rope = Rope::default();
        let runs = self.out.chunk_by(|one, next| match one.shared() {
            Some(host) => next.shared() == Some(host + 1),
            None => false,
        });
        let mut before: &[u8] = b"[";
        for run in runs {
            rope.write(std::mem::replace(&mut before, b","));
            match run {
                [
                    Written {
                        bytes: Some(bytes), ..
                    },
                ] => rope.write(bytes),
                run => rope.share(self.run(run)),
            }
        }
        if self.out.is_empty() {
            rope.write(b"[");
        }
        rope.write(b"]");
        rope
    }

    /// Neighbouring hosts as the client sent them, with what stands between them.
    fn run(&self, run: &[Written]) -> Bytes {
        let ends = [run.first(), run.last()];
        let hosts = ends.map(|one| self.hosts.get(one?.shared()?));
        match hosts {
            [Some(first), Some(last)] => self.request.body.slice(first.span.start..last.span.end),
            _ => Bytes::new(),
        }
    }

    /// Breakpoints are of use behind what is written by now.
    fn wanted<'b>(&mut self, wanted: impl Iterator<Item = &'b (Breakpoint, usize)>) {
        let end = self.out.len();
        self.wanted.extend(wanted.map(|(what, _)| (*what, end)));
    }

    /// Sets our breakpoints.
    fn mark(&mut self, breakpoints: usize) {
        let Layout::Hosts(Hosts { ahead, .. }) = &self.request.layout else {
            return;
        };
        if breakpoints == 0 || self.wanted.is_empty() {
            return;
        }
        for (at, bytes) in self.marked(ahead, breakpoints) {
            if let Some(message) = self.out.get_mut(at) {
                message.bytes = Some(bytes);
            }
        }
    }

    fn marked(&self, ahead: &Ahead, breakpoints: usize) -> Vec<(usize, Bytes)> {
        let messages = self.out.iter().map(|one| Message {
            role: one.role,
            bytes: match (&one.bytes, one.host) {
                (Some(bytes), _) => bytes.clone(),
                (None, host) => host.map_or_else(Bytes::new, |host| self.bytes(host)),
            },
        });
        let messages: Vec<Message> = messages.collect();
        let all = (Breakpoint::Tail, messages.len());
        // What waited for its place when the end was named has been written since.
        let wanted = self.wanted.iter().map(|(what, at)| match what {
            Breakpoint::Tail => all,
            Breakpoint::Prologue | Breakpoint::Cut => (*what, *at),
        });
        let wanted: Vec<(Breakpoint, usize)> = wanted.collect();
        breakpoint::place(&messages, ahead, &wanted, breakpoints)
    }
}

impl Written {
    /// The host that it is, where it is one as the client sent it.
    fn shared(&self) -> Option<usize> {
        self.host.filter(|_| self.bytes.is_none())
    }
}

/// A user's message with blocks at its front.
fn in_front(bytes: &[u8], blocks: &[Bytes]) -> Option<Bytes> {
    if blocks.is_empty() {
        return Some(Bytes::copy_from_slice(bytes));
    }
    let object = Object::parse(bytes).ok()?;
    let span = object.get("content")?;
    let content = object.raw("content")?;
    let mut all: Vec<Cow<'_, [u8]>> = blocks.iter().map(|block| Cow::Borrowed(&**block)).collect();
    all.extend(elements(content)?);
    let array = [b"[", all.join(&b","[..]).as_slice(), b"]"].concat();
    Some(raw::splice(bytes, &[(span, Bytes::from(array))]))
}

/// The blocks of a content as they stand in an array.
fn elements(content: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    match content.first()? {
        b'"' if content == b"\"\"" => Some(Vec::new()),
        b'"' => Some(vec![Cow::Owned(block::text_of(content))]),
        _ => {
            let spans = raw::array(content).ok()?;
            let elements = spans.into_iter().filter_map(|span| content.get(span));
            Some(elements.map(Cow::Borrowed).collect())
        }
    }
}

/// Several messages as the last one with the contents of all.
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
