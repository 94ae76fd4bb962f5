//! The transcript of one request: every message and hidden exchange in order, split into numbered
//! items, with the episode graph over them. It is built for each request from shapes and records
//! alone, so that all replicas build the same. Never edited: marks say what is shown.

mod build;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use plimsoll_model::{Edits, Handed, ItemKind, ItemNo, Role, ThoughtRules, ToolClass};

use super::graph::{DelimiterRole, Graph};
use super::index::{EntryIndex, EpisodeIndex, Indexed, ItemIndex, indices};

pub use build::{TranscriptInput, build};

/// Where an entry's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's message at this index.
    Client(usize),
    /// The client's message at this index. It is the last hop of the turn at this step of the path.
    LastHop {
        /// The client's message.
        message: usize,
        /// The step of the path.
        step: usize,
    },
    /// The assistant message of a hop that the client never saw.
    Hop {
        /// The step of the path; the length of the path for the turn in hand.
        step: usize,
        /// The hop of that turn.
        hop: usize,
    },
    /// The result of a hidden call.
    HiddenResult {
        /// The step of the path; the length of the path for the turn in hand.
        step: usize,
        /// The hop of that turn.
        hop: usize,
        /// The call of that hop.
        call: usize,
    },
    /// The guidance, as a system message among the others.
    Guidance,
}

/// One message of the transcript.
#[derive(Clone, Debug)]
pub struct TranscriptEntry {
    /// Where its bytes come from.
    pub source: Source,
    /// Who speaks.
    pub role: Role,
    /// Its items: a range of [`Transcript::items`].
    pub items: Range<ItemIndex>,
    /// How the message relates to the text of earlier hops of its turn.
    pub handed: Handed,
}

/// One item of the transcript.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its number. A result has the number of its call.
    pub no: ItemNo,
    /// What it is.
    pub kind: ItemKind,
    /// The entry that it stands in.
    pub entry: EntryIndex,
    /// Its size in tokens. The four tokens of the message itself are not part of a result's size.
    pub tokens: u32,
    /// The result of a call, or the call of a result.
    pub pair: Option<ItemIndex>,
    /// Its episode; none if it can't be evicted.
    pub episode: Option<EpisodeIndex>,
    /// What a call to `delimiter` did; none for anything else.
    pub delimiter: Option<DelimiterRole>,
    /// The class of a call's tool.
    pub class: ToolClass,
    /// The name of a call's tool.
    pub name: Arc<str>,
    /// The digest of a client's call, which is equal if the same call is made again; 0 for any
    /// other item.
    pub digest: u64,
    /// The place of a call among the calls of its message that the client sees, or among those that it does not.
    pub place: u32,
    /// Whether it is a call that the client never sees.
    pub hidden: bool,
    /// Whether it is a call of a message that must never be edited. Its result may still be shown
    /// in part.
    pub bound: bool,
    /// Whether it is a call that was written as text: the message is the call.
    pub said: bool,
    /// How a result that came as text begins. This stays in view, whatever else of it goes.
    pub front: Option<Arc<str>>,
    /// Whether a recall brought it back to stay until its episode ends.
    pub pinned: bool,
    /// Whether neither it nor its result may be edited or left out.
    pub stays: bool,
    /// Whether its result has a form of its own: no mark edits that, and the pair goes whole.
    pub whole: bool,
    /// Whether it is a text of white space alone, which is shown only beside something else.
    pub blank: bool,
}

impl Item {
    /// Whether it is a call to a tool of the client's.
    #[must_use]
    pub fn is_clients_call(&self) -> bool {
        self.kind == ItemKind::Call && !self.hidden && self.delimiter.is_none()
    }

    /// Whether it is the same call as another. A call that was written as text is like no other.
    #[must_use]
    pub fn is_same_call(&self, other: &Self) -> bool {
        self.digest != 0 && self.digest == other.digest
    }

    /// The item whose mark and notes decide how this one is shown: the call of a result, else the
    /// item itself, whose index is given.
    #[must_use]
    pub fn holder(&self, index: ItemIndex) -> ItemIndex {
        match self.kind {
            ItemKind::Result => self.pair.unwrap_or(index),
            ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Reasoning
            | ItemKind::Call
            | ItemKind::Opaque => index,
        }
    }
}

/// The transcript of one request.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// All messages in order.
    pub entries: Indexed<EntryIndex, TranscriptEntry>,
    /// All items in order.
    pub items: Indexed<ItemIndex, Item>,
    /// The episodes over them.
    pub graph: Graph,
    /// The number of the first item that no record covers.
    pub base: ItemNo,
    /// The number of the first item of the turn in hand.
    pub first_item: ItemNo,
    /// Whether the client changed text that the newest turn handed out, which breaks the cached
    /// prefix.
    pub changed: bool,
    /// Edits that its views do without, because the upstream refuses them.
    pub without: Edits,
    /// What its provider makes of thoughts that are sent back.
    pub thoughts: ThoughtRules,
    /// The tokens of a message that keeps two answers apart once what stood between them is gone; 0 where the format
    /// needs none.
    pub apart: u32,
    /// Its calls by their numbers, once somebody has asked for one.
    calls: OnceLock<HashMap<ItemNo, ItemIndex>>,
}

impl Transcript {
    /// The items of a message of this transcript.
    #[must_use]
    pub fn items_of(&self, entry: &TranscriptEntry) -> &[Item] {
        self.items.range(entry.items.clone()).unwrap_or_default()
    }

    /// The call with a number.
    #[must_use]
    pub fn call(&self, no: ItemNo) -> Option<ItemIndex> {
        let calls = self.calls.get_or_init(|| {
            let calls = self.items.indexed();
            let calls = calls.filter(|(_, item)| item.kind == ItemKind::Call);
            calls.map(|(at, item)| (item.no, at)).collect()
        });
        calls.get(&no).copied()
    }

    /// The newest assistant message.
    #[must_use]
    pub fn newest_answer(&self) -> Option<&TranscriptEntry> {
        let mut entries = self.entries.iter();
        entries.rfind(|entry| entry.role == Role::Assistant)
    }

    /// The client's calls that have results, oldest first.
    pub fn answered_calls(&self) -> impl DoubleEndedIterator<Item = (ItemIndex, &Item)> {
        let answered = |item: &Item| item.is_clients_call() && item.pair.is_some();
        self.items.indexed().filter(move |(_, item)| answered(item))
    }

    /// The items of a message with their indices.
    pub fn indexed_items_of(
        &self,
        entry: &TranscriptEntry,
    ) -> impl Iterator<Item = (ItemIndex, &Item)> + Clone {
        indices(entry.items.clone()).zip(self.items_of(entry))
    }

    /// The thought and the text of an assistant message, which stand before its calls. One answer may have thousands
    /// of calls, and what is asked for each of them must not read all of them.
    pub fn spoken_of(&self, entry: &TranscriptEntry) -> impl Iterator<Item = (ItemIndex, &Item)> {
        let items = self.indexed_items_of(entry);
        items.take_while(|(_, item)| item.kind != ItemKind::Call)
    }
}
