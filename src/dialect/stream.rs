//! Reading an upstream's response while it is handed to the client: what is said, what is called,
//! and what the client must not see of it. It owns what all dialects' machines have in common.
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

use super::answer::Answer;
use super::names::Names;
use super::sse::TooLarge;
use super::{blocks, chat, messages, responses};
use crate::model::Dialect;

/// Settings of the stream machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Cap on one event's bytes.
    pub event_cap: usize,
    /// Which usage the client is told when a turn had several hops.
    pub usage: UsageMode,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            event_cap: super::sse::EVENT_CAP,
            usage: UsageMode::default(),
        }
    }
}

/// Which usage the client is told when a turn had several hops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageMode {
    /// Prompt and cached tokens of the last hop, completion tokens summed: agents read usage as
    /// the fill of their context and compact by it.
    #[default]
    Last,
    /// Everything summed, for those who bill by it.
    Sum,
}

/// What became of the wish for a usage chunk at the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageWish {
    /// The client asked for the usage chunk.
    Asked,
    /// The client left it open and the proxy asks: the chunk is dropped again.
    Added,
    /// The client refused it, or nobody asked: what the upstream sends all the same is passed on.
    Refused,
}

/// What a turn's request says about its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The dialect of the conversation.
    pub dialect: Dialect,
    /// The names of the hidden tools as this conversation knows them.
    pub hidden: Names,
    /// Whether the client wants to see usage.
    pub usage_wish: UsageWish,
    /// What the client's request said where the response repeats it.
    pub echo: Echo,
}

/// Values of the client's request that a response repeats and that the proxy may have changed, as
/// raw JSON. Empty in a dialect whose responses repeat nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Echo {
    /// Its `instructions`.
    pub instructions: Option<Bytes>,
    /// Its token limit.
    pub limit: Option<Bytes>,
    /// Its `previous_response_id`.
    pub previous: Option<Bytes>,
}

/// Why a stream can't be read on.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// One event outgrew the cap.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// What came may hold a hidden call where none can be taken out.
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
pub enum Machine {
    /// Chat Completions.
    Chat(Box<chat::stream::Machine>),
    /// Responses and Messages.
    Blocks(Box<blocks::Machine>),
}

impl Machine {
    /// A machine at the start of a turn's first hop.
    #[must_use]
    pub fn new(config: Config, spec: &Spec) -> Self {
        match spec.dialect {
            Dialect::Chat => Self::Chat(Box::new(chat::stream::Machine::new(config, spec))),
            Dialect::Responses | Dialect::Messages => {
                Self::Blocks(Box::new(blocks::Machine::new(config, spec)))
            }
        }
    }

    /// Takes one read of the upstream's body and appends what the client gets of it.
    ///
    /// # Errors
    /// [`StreamError`] if the stream can't be read on; call [`Machine::fail`] then, or where it is
    /// [`StreamError::Withheld`], end the client's stream without a word.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        match self {
            Self::Chat(machine) => machine.push(chunk, out),
            Self::Blocks(machine) => machine.push(chunk, out),
        }
    }

    /// Whether the frame with the finish reason was seen: it and all after it are held, and what
    /// the hop says is known but for the end of its body.
    #[must_use]
    pub fn finish_seen(&self) -> bool {
        match self {
            Self::Chat(machine) => machine.finish_seen(),
            Self::Blocks(machine) => machine.finish_seen(),
        }
    }

    /// Whether frames wait for what comes behind them, so that the client hears nothing meanwhile.
    #[must_use]
    pub fn waits(&self) -> bool {
        match self {
            Self::Chat(machine) => machine.waits(),
            Self::Blocks(machine) => machine.waits(),
        }
    }

    /// What the hop says, once its finish reason was seen: all but usage that comes behind it. So
    /// a driver can begin to record a turn while the upstream is still sending its end.
    #[must_use]
    pub fn said(&self) -> Option<Answer> {
        match self {
            Self::Chat(machine) => machine.said(),
            Self::Blocks(machine) => machine.said(),
        }
    }

    /// Whether the client was handed any byte yet, comments included.
    #[must_use]
    pub fn spoken(&self) -> bool {
        match self {
            Self::Chat(machine) => machine.spoken(),
            Self::Blocks(machine) => machine.spoken(),
        }
    }

    /// Whether the machine met what it must not hand on. It says nothing more from there on, so
    /// that the driver serves something else or breaks the stream off.
    #[must_use]
    pub fn withheld(&self) -> bool {
        match self {
            Self::Chat(machine) => machine.withheld(),
            Self::Blocks(machine) => machine.withheld(),
        }
    }

    /// The upstream's body has ended: what the hop said. What was still undecided is decided, and
    /// what may be seen of it is appended. Ask [`withheld`](Self::withheld) behind it.
    pub fn end_hop(&mut self, out: &mut Vec<Bytes>) -> Answer {
        match self {
            Self::Chat(machine) => machine.end_hop(out),
            Self::Blocks(machine) => machine.end_hop(out),
        }
    }

    /// The hop had hidden calls only: drops its end and goes on in the same client stream. What
    /// the frames that were held say besides the end is appended.
    pub fn next_hop(&mut self, out: &mut Vec<Bytes>) {
        match self {
            Self::Chat(machine) => machine.next_hop(out),
            Self::Blocks(machine) => machine.next_hop(out),
        }
    }

    /// Hands out the end of the response that was held, edited where hops before it call for it.
    pub fn release(&mut self, out: &mut Vec<Bytes>) {
        match self {
            Self::Chat(machine) => machine.release(out),
            Self::Blocks(machine) => machine.release(out),
        }
    }

    /// Ends the turn in place of the model, which would have gone on with hidden calls: what the
    /// held frames say besides the end, this text if given, and the dialect's own end.
    pub fn close(&mut self, text: Option<&str>, out: &mut Vec<Bytes>) {
        match self {
            Self::Chat(machine) => machine.close(text, out),
            Self::Blocks(machine) => machine.close(text, out),
        }
    }

    /// Ends the client's stream with an error event. What was held or undecided is dropped. The
    /// error is a JSON object; anything else becomes the message of one.
    pub fn fail(&mut self, error: &[u8], out: &mut Vec<Bytes>) {
        match self {
            Self::Chat(machine) => machine.fail(error, out),
            Self::Blocks(machine) => machine.fail(error, out),
        }
    }
}

/// What a body is by its first bytes, whatever its headers call it.
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

    use super::{Answer, Config, Spec, chat, messages, responses};
    use crate::dialect::guard::Guard;
    use crate::dialect::usage::told;
    use crate::model::Dialect;
    use crate::model::Usage;

    /// Reads a hop's body; `None` if it holds no answer (an error body, say).
    #[must_use]
    pub fn read(body: &Bytes, spec: &Spec) -> Option<Answer> {
        match spec.dialect {
            Dialect::Chat => chat::stream::unary::read(body, spec),
            Dialect::Responses => responses::stream::unary::read(body, spec),
            Dialect::Messages => messages::stream::unary::read(body, spec),
        }
    }

    /// Whether a body in which [`read`] found no answer may hold a hidden call.
    #[must_use]
    pub fn may_hide(body: &[u8], spec: &Spec) -> bool {
        Guard::new(spec).stops_unread(body)
    }

    /// Whether a body that was composed still holds a hidden call.
    #[must_use]
    pub fn still_hides(composed: &[u8], spec: &Spec) -> bool {
        Guard::new(spec).stops_json(composed)
    }

    /// A turn that has come to its end.
    #[derive(Clone, Copy, Debug)]
    pub struct Unstreamed<'a> {
        /// How usage is told.
        pub config: &'a Config,
        /// How the hops were to be read.
        pub spec: &'a Spec,
        /// The first hop's body.
        pub first: &'a Bytes,
        /// The last hop's body.
        pub last: &'a Bytes,
        /// The answers of all hops in order, the last one's included.
        pub hops: &'a [Answer],
        /// Whether it was ended at the hop cap, with its line of text if one is to be said.
        pub closed: Option<Option<&'a str>>,
    }

    impl<'a> Unstreamed<'a> {
        /// The body that the client gets, made of the last hop's: with the first hop's id, what
        /// all hops said, hidden calls left out and usage told by the rule. Where nothing was
        /// hidden these are the last hop's bytes, untouched.
        #[must_use]
        pub fn compose(&self) -> Bytes {
            match self.spec.dialect {
                Dialect::Chat => chat::stream::unary::compose(self),
                Dialect::Responses => responses::stream::unary::compose(self),
                Dialect::Messages => messages::stream::unary::compose(self),
            }
        }

        /// The answers of all hops but the last.
        pub(in crate::dialect) fn earlier(&self) -> &'a [Answer] {
            self.hops
                .split_last()
                .map_or(&[][..], |(_, earlier)| earlier)
        }

        /// What the client is told of usage.
        pub(in crate::dialect) fn usage(&self) -> Option<Usage> {
            let reported = self.hops.iter().filter_map(|hop| hop.usage.as_ref());
            told(self.config.usage, reported)
        }
    }
}
