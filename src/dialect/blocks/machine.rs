//! The stream machine.

use bytes::Bytes;

use crate::dialect::answer::Answer;
use crate::dialect::stream::{Config, Spec, StreamError};

/// Reads a turn's upstream streams and writes the client's; its calls are those of
/// [`crate::dialect::stream::Machine`].
#[derive(Debug)]
pub struct Machine {}

impl Machine {
    /// A machine at the start of a turn's first hop.
    #[must_use]
    pub fn new(_config: Config, _spec: &Spec) -> Self {
        Self {}
    }

    /// Takes one read.
    ///
    /// # Errors
    /// [`StreamError`] if the stream can't be read on.
    pub fn push(&mut self, _chunk: Bytes, _out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        Ok(())
    }

    /// Whether the end was seen.
    #[must_use]
    pub fn finish_seen(&self) -> bool {
        false
    }

    /// What the hop says.
    #[must_use]
    pub fn said(&self) -> Option<Answer> {
        None
    }

    /// Whether the client was handed any byte yet.
    #[must_use]
    pub fn spoken(&self) -> bool {
        false
    }

    /// The upstream's body has ended.
    pub fn end_hop(&mut self, _out: &mut Vec<Bytes>) -> Answer {
        Answer::default()
    }

    /// Goes on in the same client stream.
    pub fn next_hop(&mut self, _out: &mut Vec<Bytes>) {}

    /// Hands out the end.
    pub fn release(&mut self, _out: &mut Vec<Bytes>) {}

    /// Ends the turn in place of the model.
    pub fn close(&mut self, _text: Option<&str>, _out: &mut Vec<Bytes>) {}

    /// Ends the client's stream with an error event.
    pub fn fail(&mut self, _error: &[u8], _out: &mut Vec<Bytes>) {}
}
