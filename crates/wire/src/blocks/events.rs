//! What the machine of blocks asks of a format: what a frame is, what the hop has said, and how a
//! frame is written for the client. Never decides what is shown, when and under which numbers.

use std::fmt::Debug;

use bytes::Bytes;
use plimsoll_model::Usage;

use crate::answer::Answer;
use crate::machine::KeptBytes;
use crate::sse::{self, Frame};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// The response begins: `message_start`; `response.created`, `.queued`, `.in_progress`. Shown
    /// of the first hop only, through `show`.
    Begin,
    /// A block begins: `content_block_start`; `response.output_item.added`.
    Open {
        /// The upstream's number of it: `index`; `output_index`.
        at: u64,
        /// Whether the client sees it.
        visibility: Visibility,
    },
    /// It is about a block that has begun. An unknown event that carries a block's number counts.
    Within {
        /// The upstream's number of the block.
        at: u64,
    },
    /// A block is whole: `content_block_stop`; `response.output_item.done`.
    Close {
        /// The upstream's number of the block.
        at: u64,
        /// Whether the client sees it, now that all of it is known. Counts only if the block was
        /// opened as [`Visibility::Open`]; it is never that itself.
        visibility: Visibility,
    },
    /// The frame that says how the response ended: `message_delta` with a `stop_reason`;
    /// `response.completed`, `.incomplete`. Held, with all behind it, and shown through `end`.
    Finish,
    /// What else a stream ends with: `message_stop`; `[DONE]`. Held, too.
    End,
    /// The response failed: `error`; `response.failed`. Shown at once, through `end`.
    Error,
    /// It is about no block but has its place in the order (by its `sequence_number`, say). Waits
    /// behind frames that wait, shown through `show`.
    Other,
    /// It has no place in the order and is never changed: a comment, `ping`, an unknown event
    /// without numbers. Shown at once, even while frames before it wait.
    Aside,
    /// Its data is no JSON object, or an unknown object that names a hidden tool. Shown at once,
    /// unless such a name stands in it.
    Unreadable,
}

/// Whether the client sees a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// It does.
    Shown,
    /// It does not: a call of a hidden tool.
    Hidden,
    /// It does if a visible block opens behind it in the same hop, or if the hop ends with anything
    /// but hidden calls alone: reasoning in a format that refuses it alone, if hidden tools are
    /// injected. All its frames wait, and so does what comes behind it.
    Follows,
    /// Not known before [`FrameKind::Close`]: a call without a name. Its frames wait. It is never
    /// shown if it is never closed.
    Open,
}

/// The numbers under which a frame is shown; `None` if it keeps its own. A number that the frame
/// does not have is not put into it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The block's number: `index`; `output_index`.
    pub index: Option<u64>,
    /// The event's number: `sequence_number`.
    pub sequence: Option<u64>,
}

/// What the client is told at the end of its response.
#[derive(Debug, Clone, Copy)]
pub struct BlocksEnding<'a> {
    /// Whether the response differs from the upstream's: something was kept from the client, or
    /// hops stand before this one. If not, the frame keeps its own numbers, and all but what it
    /// repeats of the request (tools, instructions).
    pub edited: bool,
    /// The blocks that the client was shown whole, of all hops, in order, as [`Events::block`] gave
    /// them.
    pub blocks: &'a [Bytes],
    /// The usage to tell, if the turn had several hops.
    pub usage: Option<&'a Usage>,
    /// The next block's number.
    pub index: u64,
    /// The next event's number; `None` if events have none or the frame keeps its own.
    pub sequence: Option<u64>,
}

/// The events of a format whose messages are made of blocks.
///
/// An implementation lives as long as the turn. It keeps what the current hop has said so far
/// (cleared by `next_hop`) and what the client knows of the first hop (its id, say; never cleared).
/// It never keeps a frame back and never counts what was shown.
pub trait Events: Debug + Send + Sync {
    /// The member of an event that holds a block: `item`; `content_block`.
    const BLOCK: &'static str;

    /// Reads a frame, takes what it says into the hop, and says what it is. Called once for each
    /// frame of a hop, in order.
    fn take(&mut self, frame: &Frame) -> FrameKind;

    /// Whether the frame that was taken last can hold no call: it says all that it says in strings
    /// and numbers of its own.
    fn is_plain(&self) -> bool;

    /// What the hop has said so far: whole blocks only, those that are hidden or wait included.
    /// Asked for when the finish was seen, when the body has ended, or both.
    fn answer(&self) -> Answer;

    /// What is kept of the hop.
    fn kept(&self) -> KeptBytes;

    /// Forgets what the hop has said so far, but for what tells which of it the client may see.
    fn forget(&mut self);

    /// Another hop begins in the same client stream.
    fn next_hop(&mut self);

    /// A block of this hop that has closed, as it stands in the response's list of blocks. `None`
    /// in a format whose stream has no such list.
    fn block(&self, _at: u64) -> Option<Bytes> {
        None
    }

    /// A frame's own event number. `None` in a format that numbers no events.
    fn sequence(&self, _frame: &Frame) -> Option<u64> {
        None
    }

    /// A frame as the client sees it, whole: what it repeats of the request is the client's own,
    /// and the numbers are these. The frame's own bytes if nothing differs.
    fn show(&self, frame: &Frame, numbers: Numbers) -> Bytes;

    /// Like `show`, for the frame with the finish ([`FrameKind::Finish`]) or the failure
    /// ([`FrameKind::Error`]): it also tells what all hops add up to.
    fn end(&self, frame: &Frame, ending: &BlocksEnding<'_>) -> Bytes;

    /// The end of a turn that the model would have continued: a block of text of the proxy's own if
    /// a line is given, at the numbers of the ending, then the format's own end, made of the held
    /// frames ([`FrameKind::Finish`] and all behind it) but ending as if the model had ended it.
    /// One element per event.
    fn close(&self, held: &[Frame], line: Option<&str>, ending: &BlocksEnding<'_>) -> Vec<Bytes>;

    /// An error event of the proxy's own, whole. The error is a JSON object, with or without the
    /// format's wrapping around it, or another format's; anything else becomes the message.
    fn error(&self, error: &[u8], sequence: Option<u64>) -> Bytes;
}

/// An event of the proxy's own under its name.
pub fn event(name: &str, data: &[u8]) -> Bytes {
    let mut raw = Vec::with_capacity(data.len() + name.len() + 16);
    raw.extend_from_slice(b"event: ");
    raw.extend_from_slice(name.as_bytes());
    raw.push(b'\n');
    raw.extend_from_slice(&sse::event(data));
    Bytes::from(raw)
}
