//! Writing the list of messages of a request anew: what every format's list takes, and the array
//! that shares the client's bytes. Never decides what stands where.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;
use plimsoll_model::Rope;
use plimsoll_model::raw::{Edit, Span};

use super::explicit;
use super::request_fields::RequestFields;

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

/// The list of messages of a request as it is written anew. Its units come in order.
pub trait Splice: Debug {
    /// The client's unit at this index, as it came.
    fn client(&mut self, unit: usize);

    /// The client's unit at this index with other bytes.
    fn edited(&mut self, unit: usize, bytes: &[u8]);

    /// Something of the proxy's own.
    fn add(&mut self, what: Addition, bytes: &[u8]);

    /// Tools of the proxy's own, which stand in front of those that the client declares in the list. The
    /// client's may stand beside the list instead; then the list takes none.
    fn offer(&mut self, _front: &Bytes) {}

    /// How many breakpoints the request may hold, the client's counted. Without this call none is
    /// set, nor is one ever set in a format that has no place for it.
    fn allow(&mut self, breakpoints: usize);

    /// A breakpoint is of use behind what stands in the list by now.
    fn breakpoint(&mut self, what: Breakpoint);

    /// The whole list; the list is empty afterwards.
    fn close(&mut self) -> UpstreamView;
}

/// A JSON array of units that is being written. Runs of the client's units are shared, not copied,
/// the separators between them included. A unit that stands outside the client's array, such as a
/// system text, is edited where it stands.
#[derive(Debug)]
pub struct UnitArray<'a> {
    request: &'a RequestFields,
    /// The client's units.
    units: Cow<'a, [Span]>,
    rope: Rope,
    /// The run of the client's units that is not written yet, by index.
    run: Option<Range<usize>>,
    around: Around,
    /// The edits of units outside the array.
    edits: Vec<Edit>,
    /// The unit that declares the client's tools, as it stands with the proxy's own in front of them.
    declaring: Option<(usize, Bytes)>,
    /// How many breakpoints the proxy may still set.
    breakpoints: usize,
    marked: bool,
}

/// The bytes before and behind a unit that make it an element of the array.
pub type Around = fn(&[u8]) -> [&'static [u8]; 2];

impl<'a> UnitArray<'a> {
    /// An empty one of these units of the client's.
    pub fn new(request: &'a RequestFields, units: Cow<'a, [Span]>, around: Around) -> Self {
        Self {
            request,
            units,
            rope: Rope::default(),
            run: None,
            around,
            edits: Vec::new(),
            declaring: None,
            breakpoints: 0,
            marked: false,
        }
    }

    /// The span of a unit that stands outside the client's array.
    fn outside(&self, unit: usize) -> Option<Span> {
        let array = &self.request.messages_span;
        let span = self.units.get(unit)?;
        (span.start < array.start || span.end > array.end).then(|| span.clone())
    }

    /// Writes the run of the client's units.
    fn settle(&mut self) {
        let Some(run) = self.run.take() else { return };
        let span = |at: usize| self.units.get(at);
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

impl Splice for UnitArray<'_> {
    fn client(&mut self, unit: usize) {
        if self.outside(unit).is_some() {
            return;
        }
        if let Some((_, bytes)) = self.declaring.take_if(|(at, _)| *at == unit) {
            return self.edited(unit, &bytes);
        }
        match &mut self.run {
            Some(run) if run.end == unit => run.end += 1,
            _ => {
                self.settle();
                self.run = Some(unit..unit + 1);
            }
        }
    }

    fn edited(&mut self, unit: usize, bytes: &[u8]) {
        if let Some(span) = self.outside(unit) {
            return self.edits.push((span, Bytes::copy_from_slice(bytes)));
        }
        self.settle();
        let [before, behind] = self.begin(bytes);
        self.rope.write(before);
        self.rope.write(bytes);
        self.rope.write(behind);
    }

    fn add(&mut self, _what: Addition, bytes: &[u8]) {
        self.edited(usize::MAX, bytes);
    }

    fn offer(&mut self, front: &Bytes) {
        let offered = self.request.tools_inside().and_then(|(unit, behind)| {
            let (before, tools) = self.request.message(unit).split_at_checked(behind)?;
            Some((unit, Bytes::from([before, front, tools].concat())))
        });
        self.declaring = offered;
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
        let edits = std::mem::take(&mut self.edits);
        let outside = |unit: &usize| self.outside(*unit).is_some();
        let first = (0..self.units.len()).take_while(outside).count();
        let all = first..self.units.len();
        let untouched = match &self.run {
            Some(run) => *run == all,
            None => all.is_empty(),
        };
        if self.rope.is_empty() && untouched {
            let span = self.request.messages_span.clone();
            return UpstreamView {
                messages: self.request.body.slice(span).into(),
                edits,
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
            edits,
            marked: self.marked,
        }
    }
}
