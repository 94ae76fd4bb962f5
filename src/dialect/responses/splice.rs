//! The input as it is sent: the client's own bytes where they stand, others between them. Never
//! decides what stands where.

use std::ops::Range;

use bytes::Bytes;

use crate::dialect::request::{Request, View};
use crate::dialect::splice::{Array, Own};
use crate::model::raw::Edit;

/// The input in the making; one that is the client's from end to end is shared whole.
#[derive(Debug)]
pub struct List<'a> {
    request: &'a Request,
    array: Array<'a>,
    edits: Vec<Edit>,
}

impl<'a> List<'a> {
    /// An empty one.
    #[must_use]
    pub fn new(request: &'a Request) -> Self {
        Self {
            request,
            array: Array::new(request, around),
            edits: Vec::new(),
        }
    }

    /// The client's unit at this index, as it came.
    pub fn client(&mut self, unit: usize) {
        if self.outside(unit).is_none() {
            self.array.client(unit);
        }
    }

    /// The client's unit at this index with other bytes.
    pub fn edited(&mut self, unit: usize, bytes: &[u8]) {
        match self.outside(unit) {
            Some(span) => self.edits.push((span, Bytes::copy_from_slice(bytes))),
            None => self.array.element(bytes),
        }
    }

    /// Something of the proxy's own.
    pub fn own(&mut self, what: Own, bytes: &[u8]) {
        match what {
            Own::System | Own::Hop | Own::Result => self.array.element(bytes),
        }
    }

    /// The whole input.
    #[must_use]
    pub fn close(self) -> View {
        let first = usize::from(self.outside(0).is_some());
        let all = first..self.request.messages.len();
        View {
            messages: self.array.close(&all),
            edits: self.edits,
        }
    }

    /// Where a unit lies that is no part of the input.
    fn outside(&self, unit: usize) -> Option<Range<usize>> {
        let input = &self.request.messages_span;
        let span = self.request.messages.get(unit)?;
        (span.start < input.start || span.end > input.end).then(|| span.clone())
    }
}

/// A string is what the user said in an input that was nothing else.
fn around(unit: &[u8]) -> [&'static [u8]; 2] {
    match unit.first() {
        Some(b'"') => [br#"{"role":"user","content":"#, b"}"],
        _ => Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::request::Rewrite;
    use crate::dialect::responses::request::decode;

    fn request(body: &'static str) -> Request {
        decode(Bytes::from_static(body.as_bytes())).unwrap()
    }

    #[track_caller]
    fn check(request: &Request, make: impl FnOnce(&mut List<'_>), expect: &str) {
        let mut list = List::new(request);
        make(&mut list);
        let body = request.with(Rewrite {
            view: list.close(),
            tools: None,
            ask_usage: false,
            limit: None,
        });
        assert_eq!(std::str::from_utf8(&body.to_bytes()).unwrap(), expect);
    }

    const BODY: &str = r#"{"instructions": "be","input":[ {"role":"user"} , {"type":"reasoning"}, {"type":"function_call"}, {"type":"function_call_output"} ],"x":1e3}"#;

    #[test]
    fn the_clients_bytes_stand_where_nothing_is_changed() {
        let request = request(BODY);
        check(&request, |list| (0..4).for_each(|at| list.client(at)), BODY);
    }

    #[test]
    fn changes_stand_between_the_clients_bytes() {
        let request = request(BODY);
        check(
            &request,
            |list| {
                list.own(Own::System, b"{}");
                list.client(0);
                list.client(1);
                list.client(2);
                list.own(Own::Result, b"{\"o\":1}");
                list.edited(3, b"{\"e\":1}");
            },
            r#"{"instructions": "be","input":[{},{"role":"user"} , {"type":"reasoning"}, {"type":"function_call"},{"o":1},{"e":1}],"x":1e3}"#,
        );
        check(
            &request,
            |list| {
                list.edited(0, br#""instructions": "be G""#);
                list.client(1);
                list.client(3);
            },
            r#"{"instructions": "be G","input":[{"role":"user"},{"type":"function_call_output"}],"x":1e3}"#,
        );
        check(
            &request,
            |list| list.client(0),
            r#"{"instructions": "be","input":[],"x":1e3}"#,
        );
    }

    #[test]
    fn a_string_becomes_a_message_beside_others() {
        let body = r#"{"input":"a\"b"}"#;
        let request = request(body);
        check(&request, |list| list.client(0), body);
        check(
            &request,
            |list| {
                list.own(Own::System, b"{}");
                list.client(0);
                list.own(Own::Hop, b"{\"h\":1},{\"h\":2}");
            },
            r#"{"input":[{},{"role":"user","content":"a\"b"},{"h":1},{"h":2}]}"#,
        );
    }
}
