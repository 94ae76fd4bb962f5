//! A list of messages in the making: units of the client's, edited ones and the proxy's own, each in
//! its place. Never decides what stands where.

use std::ops::Range;

use super::request::{Request, View};
use super::{messages, responses};
use crate::model::{Dialect, Rope};

/// What the proxy puts in by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// A system message.
    System,
    /// The message of a hop that the client never saw.
    Hop,
    /// The result of a hidden call.
    Result,
}

/// Where a breakpoint of the provider's cache is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakpoint {
    /// At the end of the prologue, which no pass touches.
    Prologue,
    /// Before what a pass edits first.
    Cut,
    /// At the end.
    Tail,
}

/// The list in the making.
#[derive(Debug)]
pub enum Splice<'a> {
    /// An array of chat messages.
    Chat(Array<'a>),
    /// The input of a Responses request.
    Responses(responses::splice::List<'a>),
    /// The messages of a Messages request.
    Messages(messages::splice::List<'a>),
}

impl<'a> Splice<'a> {
    /// An empty list.
    #[must_use]
    pub fn new(request: &'a Request) -> Self {
        match request.dialect {
            Dialect::Chat => Self::Chat(Array::new(request, |_| Default::default())),
            Dialect::Responses => Self::Responses(responses::splice::List::new(request)),
            Dialect::Messages => Self::Messages(messages::splice::List::new(request)),
        }
    }

    /// The client's unit at this index, as it came.
    pub fn client(&mut self, unit: usize) {
        match self {
            Self::Chat(array) => array.client(unit),
            Self::Responses(list) => list.client(unit),
            Self::Messages(list) => list.client(unit),
        }
    }

    /// The client's unit at this index with other bytes.
    pub fn edited(&mut self, unit: usize, bytes: &[u8]) {
        match self {
            Self::Chat(array) => array.element(bytes),
            Self::Responses(list) => list.edited(unit, bytes),
            Self::Messages(list) => list.edited(unit, bytes),
        }
    }

    /// Something of the proxy's own.
    pub fn own(&mut self, what: Own, bytes: &[u8]) {
        match self {
            Self::Chat(array) => array.element(bytes),
            Self::Responses(list) => list.own(what, bytes),
            Self::Messages(list) => list.own(what, bytes),
        }
    }

    /// How many breakpoints the request may hold, the client's counted. Where this is not said none
    /// is set, nor in formats that have no place for one.
    pub fn allow(&mut self, breakpoints: usize) {
        match self {
            Self::Chat(_) | Self::Responses(_) => {}
            Self::Messages(list) => list.allow(breakpoints),
        }
    }

    /// A breakpoint is of use behind what stands in the list by now.
    pub fn breakpoint(&mut self, what: Breakpoint) {
        match self {
            Self::Chat(_) | Self::Responses(_) => {}
            Self::Messages(list) => list.breakpoint(what),
        }
    }

    /// The whole list.
    #[must_use]
    pub fn close(self) -> View {
        match self {
            Self::Chat(array) => {
                let all = 0..array.request.messages.len();
                View {
                    messages: array.close(&all),
                    edits: Vec::new(),
                }
            }
            Self::Responses(list) => list.close(),
            Self::Messages(list) => list.close(),
        }
    }
}

/// A JSON array in the making. Runs of the client's units are shared, not copied, the separators
/// between them included.
#[derive(Debug)]
pub struct Array<'a> {
    request: &'a Request,
    rope: Rope,
    /// The run of the client's units that is not yet written, by index.
    run: Option<Range<usize>>,
    around: Around,
}

/// What stands before and behind an element that is none by itself.
pub type Around = fn(&[u8]) -> [&'static [u8]; 2];

impl<'a> Array<'a> {
    /// An empty one.
    #[must_use]
    pub fn new(request: &'a Request, around: Around) -> Self {
        Self {
            request,
            rope: Rope::default(),
            run: None,
            around,
        }
    }

    /// The client's unit at this index, as it came.
    pub fn client(&mut self, unit: usize) {
        match &mut self.run {
            Some(run) if run.end == unit => run.end += 1,
            _ => {
                self.settle();
                self.run = Some(unit..unit + 1);
            }
        }
    }

    /// A unit with other bytes, or one of the proxy's own.
    pub fn element(&mut self, bytes: &[u8]) {
        self.settle();
        let [before, behind] = self.begin(bytes);
        self.rope.write(before);
        self.rope.write(bytes);
        self.rope.write(behind);
    }

    /// The whole array. Where it is nothing but `all` units as they came it is the client's own, with
    /// what stands beside the brackets.
    #[must_use]
    pub fn close(mut self, all: &Range<usize>) -> Rope {
        let run = self.run.clone().unwrap_or(all.start..all.start);
        if self.rope.is_empty() && run == *all {
            let span = self.request.messages_span.clone();
            return self.request.body.slice(span).into();
        }
        self.settle();
        if self.rope.is_empty() {
            self.rope.write(b"[");
        }
        self.rope.write(b"]");
        self.rope
    }

    fn settle(&mut self) {
        let Some(run) = self.run.take() else { return };
        let span = |at: usize| self.request.messages.get(at);
        if let (Some(first), Some(last)) = (span(run.start), span(run.end - 1)) {
            let bytes = self.request.body.slice(first.start..last.end);
            let [before, behind] = self.begin(&bytes);
            self.rope.write(before);
            self.rope.share(bytes);
            self.rope.write(behind);
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> [&'static [u8]; 2] {
        let separator = if self.rope.is_empty() { b"[" } else { b"," };
        self.rope.write(separator);
        (self.around)(bytes)
    }
}
