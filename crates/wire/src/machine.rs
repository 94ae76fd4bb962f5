//! What the stream machines of all formats share: the client's side of a stream, and the contract
//! between [`super::stream::Machine`] and the machine of a format. It knows no wire format and
//! never reads a frame.

use std::fmt::Debug;

use bytes::Bytes;
use plimsoll_model::Usage;

use super::answer::Answer;
use super::sse::Frame;

/// What the client was handed of its stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Handout {
    /// Whether the client was handed any byte, comments included.
    pub spoken: bool,
    /// Whether a machine met bytes that it must not hand on. The client gets nothing more then.
    pub withheld: bool,
    /// Whether the client is told nothing yet. What is said meanwhile is dropped.
    pub mute: bool,
}

/// The client's end of a stream, for one call of a machine.
pub struct Client<'a> {
    pub handout: &'a mut Handout,
    pub out: &'a mut Vec<Bytes>,
}

impl Client<'_> {
    /// Hands bytes to the client, unless it is told nothing yet or something was withheld before.
    pub fn say(&mut self, bytes: Bytes) {
        if !self.handout.withheld && !self.handout.mute {
            self.handout.spoken = true;
            self.out.push(bytes);
        }
    }

    /// Ends what the client gets, because the next bytes may show a hidden call.
    pub fn withhold(&mut self) {
        self.handout.withheld = true;
    }
}

/// What is kept of a hop, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// What it has said: what can be forgotten.
    pub said: usize,
    /// What waits to be handed out, and what tells which of it may be.
    pub waits: usize,
    /// How many calls and blocks it has, each of which the record and the next view are made of.
    pub parts: usize,
}

/// The stream machine of a format. [`super::stream::Machine`] says what each call means to a driver
/// and in which order they come.
pub trait FormatMachine: Debug + Send + Sync {
    /// Takes one whole frame and hands out what the client gets of it.
    fn take(&mut self, frame: Frame, client: &mut Client<'_>);

    /// Whether this data at the end of a body, whose frame lacks its blank line, is a whole event.
    fn is_whole(&self, data: &[u8]) -> bool;

    /// Whether the frame with the finish reason was seen. It and all after it are held.
    fn finish_seen(&self) -> bool;

    /// Whether all that the hop says was seen, its usage included.
    fn is_told(&self) -> bool;

    /// Whether frames before the finish reason wait for what follows them.
    fn has_queue(&self) -> bool;

    /// What the hop has said so far, as if its body ended here.
    fn said(&self) -> Answer;

    /// What is kept of the hop.
    fn kept(&self) -> KeptBytes;

    /// Forgets what the hop has said so far, but for what tells which of it the client may see.
    fn forget(&mut self);

    /// The upstream's body has ended.
    fn end_hop(&mut self, client: &mut Client<'_>) -> Answer;

    /// Another hop follows in the same client stream.
    fn next_hop(&mut self, client: &mut Client<'_>);

    /// Counts the usage of hops that the client is shown nothing of, before the first hop.
    fn count(&mut self, usage: &[Usage]);

    /// Hands out the end of the response.
    fn release(&mut self, client: &mut Client<'_>);

    /// Ends the turn in place of the model.
    fn close(&mut self, text: Option<&str>, client: &mut Client<'_>);

    /// Ends the client's stream with an error.
    fn fail(&mut self, error: &[u8], client: &mut Client<'_>);
}
