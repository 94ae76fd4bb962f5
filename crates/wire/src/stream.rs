//! Reading an upstream's response while it is handed to the client: what is said, what is called,
//! and what the client must not see of it. It owns what is the same in all formats: cutting frames,
//! and ending the client's part once something was withheld.
//!
//! It is sans-IO: bytes and ends of hops go in, bytes for the client and [`Answer`]s come out. It
//! never runs a hidden call, never decides about hops, never sees a clock or a socket, and never
//! invents an id.
//!
//! A driver's loop:
//!
//! ```text
//! per hop:  push(chunk)…  end_hop() -> Answer
//!   Done, Mixed, Cut   record, then release()
//!   HiddenOnly         answer the calls, next_hop(), send the next request; at the cap close()
//!   Broken             release() what the upstream says of it, or break the client's stream off
//!   refused by us      fail()
//! ```

#[cfg(test)]
pub(crate) mod harness;
#[cfg(test)]
mod law;

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::room::{Full, HeldAnswer, Room};

use super::answer::Answer;
use super::blocks::BlockMachine;
use super::chat::stream::ChatMachine;
use super::diagnosis::Diagnosis;
use super::guard::Guard;
use super::machine::{Client, FormatMachine, Handout, KeptBytes};
use super::names::Names;
use super::one_text::OneText;
use super::sse::{EVENT_CAP, Splitter, TooLarge};
use super::{messages, responses};
use crate::Dialect;

pub use super::diagnosis::WhoAsked;
pub use super::responses::Echo;
pub use super::usage::{UsageMode, UsageWish};

/// How many bytes of what one hop says are kept if nobody sets another bound. The longest answers that models give
/// have some 128,000 tokens, half a MiB.
pub const ANSWER_CAP: usize = 8 << 20;
/// What is made of one call or block once the hop has ended takes so many bytes, however short it is.
const MADE_OF_PART: usize = 2_500;
/// After so many bytes at least what is kept of a hop is weighed again.
const WEIGH_EVERY: usize = 256 << 10;
/// To weigh reads all parts and all that waits, which would cost the square of a long stream's length. So it is done
/// again only after so many bytes for each part, and after a thirty-second of what is kept.
const WEIGH_PART: usize = 16;
const WEIGH_SHARE: usize = 32;

/// Settings of the stream machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSettings {
    /// Cap on one event's bytes.
    pub event_cap: usize,
    /// Room for what is held of answers.
    pub room: Room,
    /// How many bytes of what a hop says are kept. What says more is handed on and forgotten.
    pub answer_cap: usize,
    /// Which usage the client is told when a turn had several hops.
    pub usage: UsageMode,
}

impl Default for MachineSettings {
    fn default() -> Self {
        Self {
            event_cap: EVENT_CAP,
            room: Room::default(),
            answer_cap: ANSWER_CAP,
            usage: UsageMode::default(),
        }
    }
}

/// What a turn's request says about its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The wire format of the conversation.
    pub dialect: Dialect,
    /// The names of the hidden tools as this conversation knows them.
    pub hidden: Names,
    /// Whether the client wants to see usage.
    pub usage_wish: UsageWish,
    /// What a response of the Responses format repeats of its request; empty in other formats.
    pub echo: Echo,
    /// Who asked the provider why its cache missed.
    pub asked: WhoAsked,
    /// Whether the client reads the answer as one text. It is then told nothing before the turn has ended.
    pub one_text: bool,
}

impl Spec {
    /// Of a request in which the proxy put nothing: whatever the model calls, the client called it so.
    #[must_use]
    pub fn untouched(dialect: Dialect) -> Self {
        Self {
            dialect,
            hidden: Names::default(),
            usage_wish: UsageWish::Refused,
            echo: Echo::default(),
            asked: WhoAsked::Nobody,
            one_text: false,
        }
    }
}

/// Why a stream can't be read on.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// One event outgrew the cap.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Too much is held of this answer and of others.
    #[error(transparent)]
    Full(#[from] Full),
    /// The stream may hold a hidden call at a place where none can be taken out.
    #[error("the upstream's answer can't be read, and may hold a call that is not the client's")]
    Withheld,
}

/// Reads a turn's upstream streams and writes the client's.
///
/// Its calls, in order: per hop any number of [`push`](Self::push), then
/// [`end_hop`](Self::end_hop); after it [`release`](Self::release), [`next_hop`](Self::next_hop),
/// [`close`](Self::close) or [`fail`](Self::fail). After `fail`, which may come at any time, after
/// `release` and after `close` the client's stream is over.
#[derive(Debug)]
pub struct Machine {
    splitter: Splitter,
    /// Room for what is held until more of the stream has come.
    held: HeldAnswer,
    /// How much of what a hop says is kept.
    cap: usize,
    /// How many bytes came since what is kept was weighed, after how many it is weighed again, and what it weighed.
    unweighed: usize,
    due: usize,
    weighed: usize,
    /// What was kept of the hops before.
    before: usize,
    /// Whether more was said than is kept.
    forgot: bool,
    /// What was left of what the hop said when the rest was forgotten.
    left: usize,
    handout: Handout,
    diagnosis: Diagnosis,
    format: Box<dyn FormatMachine>,
    /// What is kept while the client is told nothing.
    kept: Option<Box<OneText>>,
}

impl Machine {
    /// A machine at the start of a turn's first hop.
    #[must_use]
    pub fn new(settings: MachineSettings, spec: &Spec) -> Self {
        let (usage, hidden) = (settings.usage, &spec.hidden);
        let guard = || Guard::new(spec.dialect, hidden);
        let format: Box<dyn FormatMachine> = match spec.dialect {
            Dialect::Chat => Box::new(ChatMachine::new(usage, spec.usage_wish, guard(), hidden)),
            Dialect::Responses => {
                let events = responses::stream::ResponsesEvents::new(hidden, &spec.echo);
                Box::new(BlockMachine::new(usage, guard(), events))
            }
            Dialect::Messages => {
                let events = messages::stream::MessagesEvents::new(hidden);
                Box::new(BlockMachine::new(usage, guard(), events))
            }
        };
        Self {
            kept: OneText::new(&settings, spec),
            splitter: Splitter::new(settings.event_cap),
            held: settings.room.enter_answer(),
            cap: settings.answer_cap,
            unweighed: 0,
            due: 0,
            weighed: 0,
            before: 0,
            forgot: false,
            left: 0,
            handout: Handout {
                mute: spec.one_text,
                ..Handout::default()
            },
            diagnosis: Diagnosis::new(spec.dialect, spec.asked),
            format,
        }
    }

    /// Takes one read of the upstream's body and appends what the client gets of it.
    ///
    /// # Errors
    /// [`StreamError`] if the stream can't be read on. Call [`Machine::fail`] then; if it is
    /// [`StreamError::Withheld`], end the client's stream without a word instead.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if self.handout.withheld {
            return Err(StreamError::Withheld);
        }
        if let Some(kept) = &mut self.kept {
            kept.keep(&chunk);
        }
        self.unweighed += chunk.len();
        self.splitter.push(chunk);
        while let Some(frame) = self.splitter.next_frame()? {
            // What the client did not ask for is gone before anything else reads the frame.
            let frame = self.diagnosis.frame(frame);
            let handout = &mut self.handout;
            self.format.take(frame, &mut Client { handout, out });
            if self.handout.withheld {
                return Err(StreamError::Withheld);
            }
        }
        if self.unweighed >= self.due.max(WEIGH_EVERY.min(self.cap)) {
            self.weigh();
        }
        match self.hold() {
            // What is kept for the record may be given up for room, and the answer goes on.
            Err(Full) if self.weighed > 0 => {
                self.forget();
                Ok(self.hold()?)
            }
            held => Ok(held?),
        }
    }

    /// Takes room for all that is held.
    fn hold(&mut self) -> Result<(), Full> {
        let kept = self.kept.as_ref().map_or(0, |kept| kept.bytes());
        let waits = self.splitter.waiting() + self.before;
        self.held.take(kept + waits + self.weighed)
    }

    /// Weighs what is kept of the hop, and forgets it if that is too much.
    fn weigh(&mut self) {
        self.unweighed = 0;
        if self.weighed().said > self.cap + self.left {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.format.forget();
        self.forgot = true;
        self.left = self.weighed().said;
    }

    /// What is kept of the hop, and notes what that weighs.
    fn weighed(&mut self) -> KeptBytes {
        let kept = self.format.kept();
        // What was forgotten is made into nothing.
        let made = if self.forgot {
            0
        } else {
            kept.parts * MADE_OF_PART
        };
        self.weighed = kept.said + kept.waits + made;
        self.due = kept.parts * WEIGH_PART + (kept.said + kept.waits) / WEIGH_SHARE;
        kept
    }

    /// Whether frames wait for what follows them, so that the client hears nothing meanwhile.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.kept.is_some() || self.format.finish_seen() || self.format.has_queue()
    }

    /// What the hop says, once all of it was seen: the finish reason with its usage, or the mark behind which nothing
    /// comes. Whoever passes the stream on unchanged can then record the turn before the client sees its end.
    #[must_use]
    pub fn said(&self) -> Option<Answer> {
        let said = || self.diagnosed(self.format.said());
        self.format.is_told().then(said)
    }

    fn diagnosed(&self, answer: Answer) -> Answer {
        Answer {
            diagnosis: self.diagnosis.said(),
            forgotten: self.forgot,
            ..answer
        }
    }

    /// Whether the client was handed any byte yet, comments included.
    #[must_use]
    pub fn spoken(&self) -> bool {
        self.handout.spoken
    }

    /// Whether the machine met bytes that it must not hand on. It says nothing more from there on,
    /// so that the driver serves something else or breaks the stream off.
    #[must_use]
    pub fn withheld(&self) -> bool {
        self.handout.withheld
    }

    /// The upstream's body has ended: returns what the hop said. Calls that were still undecided
    /// are decided, and what the client may see of them is appended. Ask
    /// [`withheld`](Self::withheld) afterwards.
    pub fn end_hop(&mut self, out: &mut Vec<Bytes>) -> Answer {
        let handout = &mut self.handout;
        let mut client = Client { handout, out };
        if let Some(tail) = self.splitter.finish() {
            // Half an event is no event for any client, and would run into what follows it.
            if tail.data().is_some_and(|data| self.format.is_whole(&data)) {
                let tail = self.diagnosis.frame(tail.completed());
                self.format.take(tail, &mut client);
            }
        }
        let answer = self.format.end_hop(&mut client);
        let answer = self.diagnosed(answer);
        if let Some(kept) = &mut self.kept {
            kept.end_hop(&answer);
        }
        answer
    }

    /// The hop had hidden calls only: drops its end and continues the client's stream with the next
    /// hop. What the held frames say besides the end is appended.
    pub fn next_hop(&mut self, out: &mut Vec<Bytes>) {
        if let Some(kept) = &mut self.kept {
            kept.next_hop();
        }
        self.before += std::mem::take(&mut self.weighed);
        (self.unweighed, self.due, self.left) = (0, 0, 0);
        let handout = &mut self.handout;
        self.format.next_hop(&mut Client { handout, out });
    }

    /// Hands out the end of the response that was held, edited as the hops before it require.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        self.tell(out);
        let handout = &mut self.handout;
        self.format.release(&mut Client { handout, out });
    }

    /// Ends the turn in place of the model, which would have continued with hidden calls: hands out
    /// what the held frames say besides the end, this text if given, and the format's own end.
    pub fn close(&mut self, text: Option<&str>, out: &mut Vec<Bytes>) {
        self.tell(out);
        let handout = &mut self.handout;
        self.format.close(text, &mut Client { handout, out });
    }

    /// Ends the client's stream with an error event. Frames that were held or undecided are
    /// dropped. The error is a JSON object; anything else becomes the message of one.
    pub fn fail(&mut self, error: &[u8], out: &mut Vec<Bytes>) {
        if let Some(kept) = self.kept.take() {
            *self = kept.silent();
        }
        let handout = &mut self.handout;
        self.format.fail(error, &mut Client { handout, out });
    }

    /// Counts hops that the client is shown nothing of.
    pub(super) fn count(&mut self, usage: &[Usage]) {
        self.format.count(usage);
    }

    /// Hands out what was kept, but for the end.
    fn tell(&mut self, out: &mut Vec<Bytes>) {
        if let Some(kept) = self.kept.take() {
            *self = kept.told(out);
        }
    }
}

/// The form of a body by its first bytes, whatever its headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A stream of events.
    Events,
    /// JSON.
    Json,
    /// Neither.
    Other,
}

impl Form {
    /// The form of a body that begins with these bytes; `None` until there are more.
    #[must_use]
    pub fn of(begin: &[u8]) -> Option<Self> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
        let mut rest = begin.trim_ascii_start();
        while let Some(behind) = rest.strip_prefix(MARK) {
            rest = behind.trim_ascii_start();
        }
        let begins = |field: &&[u8]| match rest.strip_prefix(*field) {
            Some(behind) => matches!(behind.first(), Some(b':' | b'\n' | b'\r')),
            None => false,
        };
        match rest.first()? {
            b'{' | b'[' => Some(Self::Json),
            b':' => Some(Self::Events),
            _ if FIELDS.iter().any(begins) => Some(Self::Events),
            // What may still become a field, or a byte order mark, is not decided.
            _ if FIELDS
                .iter()
                .chain([&MARK])
                .any(|known| known.starts_with(rest)) =>
            {
                None
            }
            _ => Some(Self::Other),
        }
    }
}

/// The unstreamed equal of the machine.
pub mod unary {
    use bytes::Bytes;

    use super::{Answer, Diagnosis, Guard, Spec};
    use crate::Dialect;
    use crate::{chat, messages, responses};

    pub use crate::unary::{TurnEnd, Unstreamed};

    /// Reads a hop's body; `None` if it holds no answer (an error body, say).
    #[must_use]
    pub fn read(body: &Bytes, spec: &Spec) -> Option<Answer> {
        match spec.dialect {
            Dialect::Chat => chat::stream::unary::read(body, &spec.hidden),
            Dialect::Responses => responses::stream::unary::read(body, &spec.hidden),
            Dialect::Messages => messages::stream::unary::read(body, &spec.hidden),
        }
    }

    /// A hop's body without what its client did not ask for, and what the provider says of why its cache missed.
    #[must_use]
    pub fn diagnosed(body: &Bytes, spec: &Spec) -> (Bytes, Option<String>) {
        let mut diagnosis = Diagnosis::new(spec.dialect, spec.asked);
        let body = diagnosis.body(body);
        (body, diagnosis.said())
    }

    /// The body that the client gets, made of the last hop's: with the first hop's id, what all
    /// hops said, hidden calls left out and usage told by the rule. If nothing was hidden these are
    /// the last hop's bytes, untouched.
    #[must_use]
    pub fn compose(turn: &Unstreamed<'_>, spec: &Spec) -> Bytes {
        match spec.dialect {
            Dialect::Chat => chat::stream::unary::compose(turn),
            Dialect::Responses => responses::stream::unary::compose(turn, &spec.echo),
            Dialect::Messages => messages::stream::unary::compose(turn),
        }
    }

    /// Whether a body in which [`read`] found no answer may hold a hidden call.
    #[must_use]
    pub fn may_hide(body: &[u8], spec: &Spec) -> bool {
        Guard::new(spec.dialect, &spec.hidden).stops_unread(body)
    }

    /// Whether a body that was composed still holds a hidden call.
    #[must_use]
    pub fn still_hides(composed: &[u8], spec: &Spec) -> bool {
        Guard::new(spec.dialect, &spec.hidden).stops_json(composed)
    }
}
