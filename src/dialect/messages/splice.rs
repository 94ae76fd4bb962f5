//! The list of messages as it is sent.

use crate::dialect::request::{Request, View};
use crate::dialect::splice::Own;

/// The list in the making.
#[derive(Debug)]
pub struct List<'a> {
    request: &'a Request,
}

impl<'a> List<'a> {
    /// An empty one.
    #[must_use]
    pub fn new(request: &'a Request) -> Self {
        Self { request }
    }

    /// The client's unit at this index, as it came.
    pub fn client(&mut self, _unit: usize) {}

    /// The client's unit at this index with other bytes.
    pub fn edited(&mut self, _unit: usize, _bytes: &[u8]) {}

    /// Something of the proxy's own.
    pub fn own(&mut self, _what: Own, _bytes: &[u8]) {}

    /// The whole list.
    #[must_use]
    pub fn close(self) -> View {
        let _ = self.request;
        View::default()
    }
}
