//! What the events of a Messages stream say.

use bytes::Bytes;

use crate::dialect::answer::Answer;
use crate::dialect::blocks::events::{Numbers, Step, Told};
use crate::dialect::sse::Frame;
use crate::dialect::stream::Spec;

/// The events of a turn.
#[derive(Debug)]
pub(in crate::dialect) struct Events {}

impl Events {
    pub(in crate::dialect) fn new(_spec: &Spec) -> Self {
        Self {}
    }

    pub(in crate::dialect) fn take(&mut self, _frame: &Frame) -> Step {
        Step::Aside
    }

    pub(in crate::dialect) fn answer(&self) -> Answer {
        Answer::default()
    }

    pub(in crate::dialect) fn next_hop(&mut self) {}

    pub(in crate::dialect) fn show(&self, frame: &Frame, _numbers: Numbers) -> Bytes {
        frame.raw().clone()
    }

    pub(in crate::dialect) fn end(&self, frame: &Frame, _told: &Told<'_>) -> Bytes {
        frame.raw().clone()
    }

    pub(in crate::dialect) fn close(
        &self,
        _held: &[Frame],
        _line: Option<&str>,
        _told: &Told<'_>,
    ) -> Vec<Bytes> {
        Vec::new()
    }

    pub(in crate::dialect) fn error(&self, error: &[u8], _sequence: Option<u64>) -> Bytes {
        Bytes::copy_from_slice(error)
    }
}
