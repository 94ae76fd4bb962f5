//! A turn of whole bodies that has come to its end, as the formats write its one body for the
//! client. It never reads a body.

use bytes::Bytes;
use plimsoll_model::Usage;

use super::answer::Answer;
use super::names::Names;
use super::usage::{UsageMode, combined};

/// How a turn came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd<'a> {
    /// The model ended it, or the upstream did.
    Upstream,
    /// The proxy ended it at the hop cap, with a line of its own if the model said nothing.
    HopCap {
        /// The line.
        line: Option<&'a str>,
    },
}

impl<'a> TurnEnd<'a> {
    /// The line of the proxy's own.
    pub fn line(self) -> Option<&'a str> {
        match self {
            Self::Upstream => None,
            Self::HopCap { line } => line,
        }
    }
}

/// A turn of whole bodies that has come to its end.
#[derive(Clone, Copy, Debug)]
pub struct Unstreamed<'a> {
    /// How usage is told.
    pub usage: UsageMode,
    /// The names of the hidden tools.
    pub hidden: &'a Names,
    /// The answers of the hops before the first one that the client is shown. They were paid for.
    pub skipped: &'a [Answer],
    /// The body of the first hop that the client is shown.
    pub first: &'a Bytes,
    /// The last hop's body.
    pub last: &'a Bytes,
    /// The answers of the hops that the client is shown, in order, the last one's included.
    pub hops: &'a [Answer],
    /// How it ended.
    pub end: TurnEnd<'a>,
}

impl<'a> Unstreamed<'a> {
    /// The answers of all hops but the last.
    pub(super) fn earlier(&self) -> &'a [Answer] {
        let split = self.hops.split_last();
        split.map_or(&[][..], |(_, earlier)| earlier)
    }

    /// Whether the last body goes to the client as it came: no hop stands before it and nothing is
    /// added to it.
    pub(super) fn is_last_alone(&self) -> bool {
        self.is_one_hop() && self.end == TurnEnd::Upstream
    }

    fn is_one_hop(&self) -> bool {
        self.hops.len() + self.skipped.len() <= 1
    }

    /// The usage that the client is told. `None` if the turn has one hop, which tells its own.
    pub(super) fn usage(&self) -> Option<Usage> {
        if self.is_one_hop() {
            return None;
        }
        let hops = self.skipped.iter().chain(self.hops);
        let reported = hops.filter_map(|hop| hop.usage.as_ref());
        combined(self.usage, reported)
    }
}
