//! A list of messages in the making: units of the client's, edited ones and the proxy's own, each in
//! its place. Never decides what stands where.

use super::request::{Request, View};
use super::{chat, messages, responses};
use crate::model::Dialect;

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
    Chat(chat::splice::Array<'a>),
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
            Dialect::Chat => Self::Chat(chat::splice::Array::new(request)),
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
            Self::Chat(array) => View {
                messages: array.close(),
                edits: Vec::new(),
            },
            Self::Responses(list) => list.close(),
            Self::Messages(list) => list.close(),
        }
    }
}
