//! The array of messages as it is sent: the client's own bytes where they stand, others between
//! them. Never decides what stands where.

use std::ops::Range;

use crate::dialect::request::Request;
use crate::model::Rope;

/// The array of messages in the making. Runs of the client's messages are shared, not copied, the
/// separators between them included.
#[derive(Debug)]
pub struct Array<'a> {
    request: &'a Request,
    rope: Rope,
    /// The run of client messages that is not yet written, by index.
    run: Option<Range<usize>>,
    empty: bool,
}

impl<'a> Array<'a> {
    /// An empty one.
    #[must_use]
    pub fn new(request: &'a Request) -> Self {
        let mut rope = Rope::default();
        rope.write(b"[");
        Self {
            request,
            rope,
            run: None,
            empty: true,
        }
    }

    /// The client's message at this index, as it came.
    pub fn client(&mut self, message: usize) {
        match &mut self.run {
            Some(run) if run.end == message => run.end += 1,
            _ => {
                self.settle();
                self.run = Some(message..message + 1);
            }
        }
    }

    /// A message with other bytes, or one of the proxy's own.
    pub fn element(&mut self, bytes: &[u8]) {
        self.settle();
        self.comma();
        self.rope.write(bytes);
    }

    fn settle(&mut self) {
        let Some(run) = self.run.take() else { return };
        let span = |at: usize| self.request.messages.get(at);
        if let (Some(first), Some(last)) = (span(run.start), span(run.end - 1)) {
            let bytes = self.request.body.slice(first.start..last.end);
            self.comma();
            self.rope.share(bytes);
        }
    }

    fn comma(&mut self) {
        if !std::mem::take(&mut self.empty) {
            self.rope.write(b",");
        }
    }

    /// The whole array.
    #[must_use]
    pub fn close(mut self) -> Rope {
        self.settle();
        self.rope.write(b"]");
        self.rope
    }
}
