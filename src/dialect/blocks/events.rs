//! What the machine asks of a dialect whose messages are made of blocks: what a frame is, what the
//! hop has said, and how a frame is written for the client. It only passes on to the dialect; what
//! is shown, when and under which numbers is the machine's business.
//!
//! A dialect's `Events` lives as long as the turn. It keeps what the hop that is read has said so
//! far (cleared by `next_hop`) and what the client knows of the first hop (its id, say; never
//! cleared). It never keeps a frame back and never counts what was shown.

use bytes::Bytes;

use crate::dialect::answer::Answer;
use crate::dialect::sse::Frame;
use crate::dialect::stream::Spec;
use crate::dialect::{messages, responses};
use crate::model::raw::Object;
use crate::model::{Dialect, Usage};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dialect) enum Step {
    /// The response begins: `message_start`; `response.created`, `.queued`, `.in_progress`. Shown
    /// of the first hop only, through `show`.
    Begin,
    /// A block begins: `content_block_start`; `response.output_item.added`.
    Open {
        /// The upstream's number of it: `index`; `output_index`.
        at: u64,
        /// Whether the client sees it.
        fate: Fate,
    },
    /// It is about a block that has begun, whatever it says of it. An unknown event that carries a
    /// block's number is one.
    Within {
        /// The upstream's number of the block.
        at: u64,
    },
    /// A block is whole: `content_block_stop`; `response.output_item.done`.
    Close {
        /// The upstream's number of the block.
        at: u64,
        /// Whether the client sees it, now that all of it is known. Counts only where the block
        /// was opened as [`Fate::Open`]; it is never that itself.
        fate: Fate,
    },
    /// The frame that says how the response ended: `message_delta` with a `stop_reason`;
    /// `response.completed`, `.incomplete`. Held, with all behind it, and shown through `end`.
    Finish,
    /// What a stream ends with besides: `message_stop`; `[DONE]`. Held, too.
    End,
    /// The response failed: `error`; `response.failed`. Shown at once, through `end`.
    Error,
    /// It is about no block but has its place in the order (its `sequence_number`, say): waits
    /// behind frames that wait, shown through `show`.
    Other,
    /// It has no place in the order and is never changed: a comment, `ping`, an unknown event
    /// without numbers. Shown at once, even while frames before it wait.
    Aside,
    /// Its data is no JSON object, or nothing known that names a hidden tool. Shown at once unless
    /// such a name stands in it.
    Unreadable,
}

/// Whether the client sees a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dialect) enum Fate {
    /// It does.
    Shown,
    /// It does not: a call of a hidden tool.
    Hidden,
    /// Only if a block that it sees opens behind it in the same hop, or the hop ends without being
    /// of hidden calls alone: reasoning of a dialect that can't have it stand alone, where hidden
    /// tools are injected. All its frames wait, and so does what comes behind it.
    Follows,
    /// Not known before [`Step::Close`]: a call without a name. Its frames wait. It is never shown
    /// if it is never closed.
    Open,
}

/// The numbers under which a frame is shown; none where it keeps its own. A number that the frame
/// does not have is not put into it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::dialect) struct Numbers {
    /// The block's number: `index`; `output_index`.
    pub(in crate::dialect) index: Option<u64>,
    /// The event's number: `sequence_number`.
    pub(in crate::dialect) sequence: Option<u64>,
}

/// What the client is told at the end of its response.
#[derive(Debug, Clone, Copy)]
pub(in crate::dialect) struct Told<'a> {
    /// Whether the response is other than the upstream's: something was kept from the client, or
    /// hops stand before this one. Where it is not, the frame keeps all but what echoes of the
    /// request (tools, instructions), and its own numbers.
    pub(in crate::dialect) edited: bool,
    /// The blocks that the client was shown whole, of all hops, in order, as `Events::block` gave
    /// them.
    pub(in crate::dialect) blocks: &'a [Bytes],
    /// The usage to tell, where the turn had several hops.
    pub(in crate::dialect) usage: Option<&'a Usage>,
    /// The next block's number.
    pub(in crate::dialect) index: u64,
    /// The next event's number, where events have one; `None` where the frame keeps its own.
    pub(in crate::dialect) sequence: Option<u64>,
}

/// The events of a dialect.
#[derive(Debug)]
pub(in crate::dialect) enum Events {
    /// Responses.
    Responses(Box<responses::stream::events::Events>),
    /// Messages.
    Messages(Box<messages::stream::events::Events>),
}

impl Events {
    /// The events of a turn's first hop. Chat has no blocks, and never comes here.
    pub(in crate::dialect) fn new(spec: &Spec) -> Self {
        match spec.dialect {
            Dialect::Responses => {
                Self::Responses(Box::new(responses::stream::events::Events::new(spec)))
            }
            Dialect::Chat | Dialect::Messages => {
                Self::Messages(Box::new(messages::stream::events::Events::new(spec)))
            }
        }
    }

    /// Reads a frame, takes what it says into the hop, and says what it is. Called once for each
    /// frame of a hop, in order.
    pub(in crate::dialect) fn take(&mut self, frame: &Frame) -> Step {
        match self {
            Self::Responses(events) => events.take(frame),
            Self::Messages(events) => events.take(frame),
        }
    }

    /// Whether the frame that was taken last can hold no call: all that it says is said in strings
    /// and numbers of its own.
    pub(in crate::dialect) fn is_plain(&self) -> bool {
        match self {
            Self::Responses(events) => events.is_plain(),
            Self::Messages(events) => events.is_plain(),
        }
    }

    /// The block that a frame's data brings, as raw JSON.
    pub(in crate::dialect) fn brought<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        let key = match self {
            Self::Responses(_) => "item",
            Self::Messages(_) => "content_block",
        };
        Object::parse(data).ok()?.raw(key)
    }

    /// What the hop has said so far: whole blocks only, those that are hidden or wait included.
    /// Asked for when the finish was seen, when the body has ended, or both.
    pub(in crate::dialect) fn answer(&self) -> Answer {
        match self {
            Self::Responses(events) => events.answer(),
            Self::Messages(events) => events.answer(),
        }
    }

    /// Another hop begins in the same client stream.
    pub(in crate::dialect) fn next_hop(&mut self) {
        match self {
            Self::Responses(events) => events.next_hop(),
            Self::Messages(events) => events.next_hop(),
        }
    }

    /// A block of this hop that has closed, as it stands in the response's list of blocks. `None`
    /// in a dialect that has no such list in its stream.
    pub(in crate::dialect) fn block(&self, at: u64) -> Option<Bytes> {
        match self {
            Self::Responses(events) => events.block(at),
            Self::Messages(_) => None,
        }
    }

    /// A frame's own event number.
    pub(in crate::dialect) fn sequence(&self, frame: &Frame) -> Option<u64> {
        match self {
            Self::Responses(events) => events.sequence(frame),
            Self::Messages(_) => None,
        }
    }

    /// A frame as the client sees it, whole: what echoes of the request is the client's own, and
    /// the numbers are these. The frame's own bytes where nothing differs.
    pub(in crate::dialect) fn show(&self, frame: &Frame, numbers: Numbers) -> Bytes {
        match self {
            Self::Responses(events) => events.show(frame, numbers),
            Self::Messages(events) => events.show(frame, numbers),
        }
    }

    /// As `show`, for the frame with the finish ([`Step::Finish`]) or the failure
    /// ([`Step::Error`]): it also tells what all hops come to.
    pub(in crate::dialect) fn end(&self, frame: &Frame, told: &Told<'_>) -> Bytes {
        match self {
            Self::Responses(events) => events.end(frame, told),
            Self::Messages(events) => events.end(frame, told),
        }
    }

    /// The end of a turn that the model would have gone on with: a block of text of the proxy's
    /// own if a line is given, at the numbers told, then the dialect's end, made of the held frames
    /// ([`Step::Finish`] and all behind it) but ending as if the model had. One element per event.
    pub(in crate::dialect) fn close(
        &self,
        held: &[Frame],
        line: Option<&str>,
        told: &Told<'_>,
    ) -> Vec<Bytes> {
        match self {
            Self::Responses(events) => events.close(held, line, told),
            Self::Messages(events) => events.close(held, line, told),
        }
    }

    /// An error event of the proxy's own, whole. The error is a JSON object, with or without the
    /// dialect's wrapping around it, or another dialect's; anything else becomes the message.
    pub(in crate::dialect) fn error(&self, error: &[u8], sequence: Option<u64>) -> Bytes {
        match self {
            Self::Responses(events) => events.error(error, sequence),
            Self::Messages(events) => events.error(error, sequence),
        }
    }
}

/// An event of our own under its name.
pub(in crate::dialect) fn event(name: &str, data: &[u8]) -> Bytes {
    let mut raw = Vec::with_capacity(data.len() + name.len() + 16);
    raw.extend_from_slice(b"event: ");
    raw.extend_from_slice(name.as_bytes());
    raw.push(b'\n');
    raw.extend_from_slice(&crate::dialect::sse::event(data));
    Bytes::from(raw)
}
