//! Writing the list of messages of a request anew: what every format's list takes, and the array
//! that shares the client's bytes. Never decides what stands where.

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;

use super::explicit;
use super::request_fields::RequestFields;
use crate::model::Rope;
use crate::model::raw::Edit;

/// What the proxy puts into a list by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// A system message in front of all others.
    System,
    /// A system message among the others.
    Guidance,
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

/// The conversation as the upstream gets it.
#[derive(Clone, Debug, Default)]
pub struct UpstreamView {
    /// What stands in place of the list of messages, brackets included.
    pub messages: Rope,
    /// What changes outside it, by places in the client's body.
    pub edits: Vec<Edit>,
    /// Whether a breakpoint of the proxy's is in it.
    pub marked: bool,
}

/// A list of messages that is being written. Its units come in order.
pub trait List: Debug {
    /// The client's unit at this index, as it came.
    fn client(&mut self, unit: usize);

    /// The client's unit at this index with other bytes.
    fn edited(&mut self, unit: usize, bytes: &[u8]);

    /// Something of the proxy's own.
    fn add(&mut self, what: Addition, bytes: &[u8]);

    /// Tools of the proxy's own, which stand in front of those that the client declares in the list.
    fn offer(&mut self, _front: &Bytes) {}

    /// How many breakpoints the request may hold, the client's counted.
    fn allow(&mut self, _breakpoints: usize) {}

    /// A breakpoint is of use behind what stands in the list by now.
    fn breakpoint(&mut self, _what: Breakpoint) {}

    /// The whole list; the list is empty afterwards.
    fn close(&mut self) -> UpstreamView;
}

/// A JSON array of units that is being written. Runs of the client's units are shared, not copied,
/// the separators between them included.
#[derive(Debug)]
pub struct UnitArray<'a> {
    request: &'a RequestFields,
    /// The client's units that make up the whole array.
    all: Range<usize>,
    rope: Rope,
    /// The run of the client's units that is not written yet, by index.
    run: Option<Range<usize>>,
    around: Around,
    /// How many breakpoints the proxy may still set.
    breakpoints: usize,
    marked: bool,
}

/// The bytes before and behind a unit that make it an element of the array.
pub type Around = fn(&[u8]) -> [&'static [u8]; 2];

impl<'a> UnitArray<'a> {
    /// An empty one. `first` is the client's first unit that stands in the array.
    pub fn new(request: &'a RequestFields, first: usize, around: Around) -> Self {
        Self {
            request,
            all: first..request.messages.len(),
            rope: Rope::default(),
            run: None,
            around,
            breakpoints: 0,
            marked: false,
        }
    }

    /// Writes the run of the client's units.
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

impl List for UnitArray<'_> {
    fn client(&mut self, unit: usize) {
        match &mut self.run {
            Some(run) if run.end == unit => run.end += 1,
            _ => {
                self.settle();
                self.run = Some(unit..unit + 1);
            }
        }
    }

    fn edited(&mut self, _unit: usize, bytes: &[u8]) {
        self.settle();
        let [before, behind] = self.begin(bytes);
        self.rope.write(before);
        self.rope.write(bytes);
        self.rope.write(behind);
    }

    fn add(&mut self, _what: Addition, bytes: &[u8]) {
        self.edited(usize::MAX, bytes);
    }

    fn allow(&mut self, breakpoints: usize) {
        self.breakpoints = breakpoints.saturating_sub(self.request.explicit_breakpoints());
    }

    /// The provider sets the one at the end by itself, and the others only stand on what the client sent as it is.
    fn breakpoint(&mut self, what: Breakpoint) {
        if self.breakpoints == 0 || what == Breakpoint::Tail {
            return;
        }
        let newest = self.run.as_ref().map(|run| run.end - 1);
        let unit = newest.map(|at| (at, self.request.message(at)));
        let marked =
            unit.and_then(|(at, unit)| Some((at, explicit::marked(self.request.dialect, unit)?)));
        if let Some((at, marked)) = marked {
            self.run = self
                .run
                .take()
                .map(|run| run.start..at)
                .filter(|run| !run.is_empty());
            self.edited(at, &marked);
            self.breakpoints -= 1;
            self.marked = true;
        }
    }

    /// An array of all the client's units as they came is the client's own, with what stands beside
    /// the brackets.
    fn close(&mut self) -> UpstreamView {
        let untouched = match &self.run {
            Some(run) => *run == self.all,
            None => self.all.is_empty(),
        };
        if self.rope.is_empty() && untouched {
            let span = self.request.messages_span.clone();
            return UpstreamView {
                messages: self.request.body.slice(span).into(),
                edits: Vec::new(),
                marked: false,
            };
        }
        self.settle();
        if self.rope.is_empty() {
            self.rope.write(b"[");
        }
        self.rope.write(b"]");
        UpstreamView {
            messages: std::mem::take(&mut self.rope),
            edits: Vec::new(),
            marked: self.marked,
        }
    }
}
