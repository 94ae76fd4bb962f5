//! The list of messages of a request as it is written anew, in any wire format. Never decides what
//! stands where.

use bytes::Bytes;

use super::list::{List, UnitArray, UpstreamView};
use super::messages::message_list::MessageList;
use super::responses::input_list::InputList;

pub use super::list::{Addition, Breakpoint};

/// A list of messages that is being written.
#[derive(Debug)]
pub enum Splice<'a> {
    /// An array of chat messages.
    Chat(UnitArray<'a>),
    /// The input of a Responses request.
    Responses(InputList<'a>),
    /// The messages of a Messages request.
    Messages(MessageList<'a>),
}

impl<'a> Splice<'a> {
    fn list(&mut self) -> &mut (dyn List + 'a) {
        match self {
            Self::Chat(list) => list,
            Self::Responses(list) => list,
            Self::Messages(list) => list,
        }
    }

    /// The client's unit at this index, as it came.
    pub fn client(&mut self, unit: usize) {
        self.list().client(unit);
    }

    /// The client's unit at this index with other bytes.
    pub fn edited(&mut self, unit: usize, bytes: &[u8]) {
        self.list().edited(unit, bytes);
    }

    /// Something of the proxy's own.
    pub fn add(&mut self, what: Addition, bytes: &[u8]) {
        self.list().add(what, bytes);
    }

    /// Tools of the proxy's own, which stand in front of those that the client declares in the list. The
    /// client's may stand beside the list instead; then the list takes none.
    pub fn offer(&mut self, front: &Bytes) {
        self.list().offer(front);
    }

    /// How many breakpoints the request may hold, the client's counted. Without this call none is
    /// set, nor is one ever set in a format that has no place for it.
    pub fn allow(&mut self, breakpoints: usize) {
        self.list().allow(breakpoints);
    }

    /// A breakpoint is of use behind what stands in the list by now.
    pub fn breakpoint(&mut self, what: Breakpoint) {
        self.list().breakpoint(what);
    }

    /// The whole list.
    #[must_use]
    pub fn close(mut self) -> UpstreamView {
        self.list().close()
    }
}
