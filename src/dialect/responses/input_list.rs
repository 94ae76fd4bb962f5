//! The input of a Responses request as it is written anew. Never decides what stands where.

use std::ops::Range;

use bytes::Bytes;

use crate::dialect::list::{Addition, Breakpoint, List, UnitArray, UpstreamView};
use crate::dialect::request_fields::RequestFields;
use crate::model::raw::Edit;

/// An input that is being written. One that is the client's from end to end is shared whole.
#[derive(Debug)]
pub struct InputList<'a> {
    request: &'a RequestFields,
    array: UnitArray<'a>,
    /// Edits of `instructions`, which stand outside the input.
    edits: Vec<Edit>,
    /// The unit that declares the client's tools, as it stands with the proxy's own in front of them.
    declaring: Option<(usize, Bytes)>,
}

impl<'a> InputList<'a> {
    /// An empty one.
    pub fn new(request: &'a RequestFields) -> Self {
        let first = usize::from(outside(request, 0).is_some());
        Self {
            request,
            array: UnitArray::new(request, first, around),
            edits: Vec::new(),
            declaring: None,
        }
    }
}

impl List for InputList<'_> {
    fn client(&mut self, unit: usize) {
        match &self.declaring {
            Some((at, bytes)) if *at == unit => self.array.edited(unit, bytes),
            Some(_) | None if outside(self.request, unit).is_none() => self.array.client(unit),
            Some(_) | None => {}
        }
    }

    fn edited(&mut self, unit: usize, bytes: &[u8]) {
        match outside(self.request, unit) {
            Some(span) => self.edits.push((span, Bytes::copy_from_slice(bytes))),
            None => self.array.edited(unit, bytes),
        }
    }

    fn add(&mut self, what: Addition, bytes: &[u8]) {
        self.array.add(what, bytes);
    }

    fn offer(&mut self, front: &Bytes) {
        let offered = self.request.tools_inside().and_then(|(unit, behind)| {
            let (before, tools) = self.request.message(unit).split_at_checked(behind)?;
            Some((unit, Bytes::from([before, front, tools].concat())))
        });
        self.declaring = offered;
    }

    fn allow(&mut self, breakpoints: usize) {
        self.array.allow(breakpoints);
    }

    fn breakpoint(&mut self, what: Breakpoint) {
        self.array.breakpoint(what);
    }

    fn close(&mut self) -> UpstreamView {
        UpstreamView {
            edits: std::mem::take(&mut self.edits),
            ..self.array.close()
        }
    }
}

/// The span of a unit that is no part of the input.
fn outside(request: &RequestFields, unit: usize) -> Option<Range<usize>> {
    let input = &request.messages_span;
    let span = request.messages.get(unit)?;
    (span.start < input.start || span.end > input.end).then(|| span.clone())
}

/// An input that is a string becomes a user's message in an array.
fn around(unit: &[u8]) -> [&'static [u8]; 2] {
    match unit.first() {
        Some(b'"') => [br#"{"role":"user","content":"#, b"}"],
        _ => Default::default(),
    }
}
