//! The calls of one hop, put together from their pieces: which piece belongs to which call, and
//! whether a call is hidden. It never sees frames and holds nothing back itself; it only says
//! what is not decided yet.

use bytes::Bytes;

use super::answer::Call;
use super::wire::{Arguments, CallPart, Chunk};
use crate::dialect::chat::signature::{Signature, of_members};
use crate::dialect::names::Names;
use crate::model::raw;

/// Ids that are shorter stand in other texts, too.
const LONG_ID: usize = 8;

/// What is known about whether the client may see a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its name may still become, or still outgrow, a hidden one.
    Open,
    /// It is for a hidden tool.
    Hidden,
    /// It is for a tool of the client's.
    Visible,
    /// The hop was cut before it could be told: the client must not see it, and it is no call.
    Withheld,
}

/// One call so far.
#[derive(Debug, Clone)]
struct Pieces {
    id: String,
    index: Option<u64>,
    name: String,
    kind: Option<String>,
    /// As on the wire, escapes and all; decoded once, at the end.
    arguments: Vec<u8>,
    extra: Vec<(String, Bytes)>,
    fate: Fate,
    shown_as: Option<u64>,
}

/// The calls of one hop in the order in which they were begun. A slot is a place in that order.
#[derive(Debug, Clone)]
pub(super) struct Table {
    hidden: Names,
    calls: Vec<Pieces>,
    /// The first index that no visible call was shown under.
    next_shown: u64,
    /// What the names that were shown come to by index, as far as they begin a hidden one.
    spelt: Vec<Spelt>,
}

/// What the pieces of names come to that the client was shown under one index.
#[derive(Debug, Clone)]
struct Spelt {
    index: u64,
    /// The call of the first piece.
    slot: usize,
    /// `None` once it can't become a hidden name any longer.
    name: Option<String>,
}

impl Table {
    pub(super) fn new(hidden: &Names) -> Self {
        Self {
            hidden: hidden.clone(),
            calls: Vec::new(),
            next_shown: 0,
            spelt: Vec::new(),
        }
    }

    /// Whether any of the calls is known to be kept from the client.
    pub(super) fn hides(&self) -> bool {
        let kept = |call: &Pieces| matches!(call.fate, Fate::Hidden | Fate::Withheld);
        self.calls.iter().any(kept)
    }

    /// Whether any of the calls is kept from the client, or may have to be.
    pub(super) fn keeps(&self) -> bool {
        self.calls.iter().any(|call| call.fate != Fate::Visible)
    }

    /// An empty table for the next hop, which goes on numbering what the client sees.
    pub(super) fn next_hop(&self) -> Self {
        Self {
            next_shown: self.next_shown,
            ..Self::new(&self.hidden)
        }
    }

    /// Whether bytes that could not be read show the id of a call that is kept from the client, or
    /// may have to be.
    pub(super) fn has_hidden_id(&self, bytes: &[u8]) -> bool {
        let kept = |call: &&Pieces| call.fate != Fate::Visible && call.id.len() >= LONG_ID;
        let mut kept = self.calls.iter().filter(kept);
        kept.any(|call| memchr::memmem::find(bytes, call.id.as_bytes()).is_some())
    }

    /// Notes a piece of a name that the client is shown under an index, and says whether it makes a
    /// hidden name of the pieces of another call. Clients put calls together by index alone, even
    /// where ids say that they are two.
    pub(super) fn spells_hidden(&mut self, index: u64, slot: usize, piece: &str) -> bool {
        if piece.is_empty() || self.hidden.is_empty() {
            return false;
        }
        let known = self.spelt.iter_mut().find(|spelt| spelt.index == index);
        let Some(spelt) = known else {
            let name = Some(piece.to_owned());
            self.spelt.push(Spelt { index, slot, name });
            return false;
        };
        let whole = spelt.name.take().map(|name| name + piece);
        // What begins no hidden name never will.
        let meant = |name: &String| self.hidden.meant(name).is_some();
        let begins = |name: &String| self.hidden.may_become(name) || meant(name);
        spelt.name = whole.filter(begins);
        let spells = spelt.name.as_ref().is_some_and(meant);
        spells && spelt.slot != slot
    }

    /// Adds one piece and says to which call it belongs.
    pub(super) fn absorb(&mut self, chunk: &Chunk<'_>, part: &CallPart<'_>) -> usize {
        let slot = if chunk.has_whole_calls() {
            self.begin(part)
        } else {
            self.slot(part)
        };
        let hidden = &self.hidden;
        let Some(call) = self.calls.get_mut(slot) else {
            return slot;
        };
        if call.fate != Fate::Hidden && *part.name != *call.name {
            call.name.push_str(&part.name);
        }
        call.kind = call
            .kind
            .take()
            .or_else(|| part.kind.as_deref().map(str::to_owned));
        match &part.arguments {
            Arguments::Nothing => {}
            Arguments::Text(span) => call.arguments.extend_from_slice(chunk.bytes(span)),
            Arguments::Value(span) => {
                let quoted = raw::quote(&String::from_utf8_lossy(chunk.bytes(span)));
                let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
                call.arguments.extend_from_slice(inner.as_bytes());
            }
        }
        for (field, value) in &part.extra {
            call.extra.retain(|(known, _)| known != field);
            call.extra
                .push((field.clone(), Bytes::copy_from_slice(value)));
        }
        if call.fate == Fate::Open {
            call.fate = call.decide(hidden, part);
        }
        slot
    }

    /// Adds a piece of arguments to a call of which nothing else changes.
    pub(super) fn extend(&mut self, slot: usize, inner: &[u8]) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.arguments.extend_from_slice(inner);
        }
    }

    pub(super) fn fate(&self, slot: usize) -> Fate {
        self.calls.get(slot).map_or(Fate::Visible, |call| call.fate)
    }

    /// Decides what is open, for no piece will follow. Where the hop was cut, a name that might
    /// have become a hidden one is withheld.
    pub(super) fn settle(&mut self, cut: bool) {
        for call in self.calls.iter_mut().filter(|call| call.fate == Fate::Open) {
            call.fate = if self.hidden.meant(&call.name).is_some() {
                Fate::Hidden
            } else if cut && self.hidden.may_become(&call.name) {
                Fate::Withheld
            } else {
                Fate::Visible
            };
        }
    }

    /// The index under which the client sees a call. Where nothing is hidden it is the upstream's
    /// own; else the calls are numbered densely in the order in which they are shown.
    pub(super) fn shown_as(&mut self, slot: usize, own: Option<u64>, renumber: bool) -> u64 {
        let next = self.next_shown;
        let Some(call) = self.calls.get_mut(slot) else {
            return next;
        };
        let fresh = if renumber { next } else { own.unwrap_or(next) };
        let shown = *call.shown_as.get_or_insert(fresh);
        self.next_shown = next.max(shown.saturating_add(1));
        shown
    }

    /// The signature that a visible call is owed of the hidden ones before it: none where it has its
    /// own. The first has it, because a provider signs the first of those that it makes at once.
    pub(super) fn owed_to(&self, slot: usize) -> Option<Signature> {
        let own = self.calls.get(slot)?;
        let before = self.calls.get(..slot).unwrap_or_default();
        let hidden = before
            .iter()
            .rev()
            .take_while(|call| call.fate != Fate::Visible);
        let signed = hidden.filter(|call| call.fate == Fate::Hidden);
        let owed = signed.filter_map(|call| of_members(&call.extra)).last()?;
        of_members(&own.extra).is_none().then_some(owed)
    }

    /// Whether no call has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether a call with this id has begun.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.calls.iter().any(|call| call.id == id)
    }

    /// Whether a call may be kept from the client at all.
    pub(super) fn may_hide(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The hidden call with this id.
    pub(super) fn hidden_with_id(&self, id: &str) -> Option<usize> {
        let hidden = |call: &Pieces| call.fate == Fate::Hidden && call.id == id;
        self.calls.iter().position(hidden)
    }

    /// The first visible call behind one.
    pub(super) fn next_visible(&self, slot: usize) -> Option<usize> {
        let visible = |slot: &usize| self.fate(*slot) == Fate::Visible;
        (slot + 1..self.calls.len()).find(visible)
    }

    /// Whether the client was shown a piece of a call.
    pub(super) fn was_shown(&self, slot: usize) -> bool {
        let call = self.calls.get(slot);
        call.is_some_and(|call| call.shown_as.is_some())
    }

    /// The id of a call, where it has one.
    pub(super) fn id(&self, slot: usize) -> Option<&str> {
        let call = self.calls.get(slot)?;
        (!call.id.is_empty()).then_some(call.id.as_str())
    }

    /// The calls as the hop's answer has them. `ended` says that the hop came to its own end;
    /// where it did not, hidden calls that are not complete are left out.
    pub(super) fn into_calls(self, ended: bool) -> Vec<Call> {
        let last = self.calls.len().saturating_sub(1);
        let calls = self.calls.into_iter().enumerate();
        calls
            .filter(|(_, call)| call.fate != Fate::Withheld)
            .map(|(place, call)| call.finished(&self.hidden, ended || place < last))
            .filter(|call| !call.hidden || call.complete)
            .collect()
    }

    /// The call that a piece belongs to: by id first, because some servers use an index twice;
    /// then by index; and without either the last one.
    fn slot(&mut self, part: &CallPart<'_>) -> usize {
        let found = if part.id.is_empty() {
            self.by_index(part.index)
                .filter(|slot| !self.starts_anew(*slot, part))
        } else {
            self.by_id(part).or_else(|| self.nameless(part))
        };
        if let Some(slot) = found {
            if let Some(call) = self.calls.get_mut(slot).filter(|call| call.id.is_empty()) {
                call.id = part.id.to_string();
            }
            return slot;
        }
        self.begin(part)
    }

    fn begin(&mut self, part: &CallPart<'_>) -> usize {
        self.calls.push(Pieces {
            id: part.id.to_string(),
            index: part.index,
            name: String::new(),
            kind: None,
            arguments: Vec::new(),
            extra: Vec::new(),
            fate: Fate::Open,
            shown_as: None,
        });
        self.calls.len() - 1
    }

    fn by_id(&self, part: &CallPart<'_>) -> Option<usize> {
        self.calls.iter().rposition(|call| {
            let apart = call.index.is_some() && part.index.is_some() && call.index != part.index;
            call.id == part.id && !apart
        })
    }

    fn by_index(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        }
    }

    /// A call at this index that has no id yet, and gets the piece's: not if both have a name.
    fn nameless(&self, part: &CallPart<'_>) -> Option<usize> {
        let slot = self.by_index(Some(part.index?))?;
        let call = self.calls.get(slot)?;
        let same = call.id.is_empty() && (call.name.is_empty() || part.name.is_empty());
        same.then_some(slot)
    }

    /// Whether a piece without an id begins a call behind the one that its index (or the lack of
    /// one) points to: it brings a name after arguments have begun, and not the same name again.
    fn starts_anew(&self, slot: usize, part: &CallPart<'_>) -> bool {
        let Some(call) = self.calls.get(slot) else {
            return false;
        };
        if part.name.is_empty() || call.name.is_empty() || call.arguments.is_empty() {
            return false;
        }
        if *part.name == *call.name {
            return part.index.is_none() && call.is_whole();
        }
        let joined = format!("{}{}", call.name, part.name);
        let goes_on = call.fate == Fate::Open
            && (self.hidden.meant(&joined).is_some() || self.hidden.may_become(&joined));
        !goes_on
    }
}

impl Pieces {
    fn decide(&self, hidden: &Names, part: &CallPart<'_>) -> Fate {
        let begun = !self.arguments.is_empty();
        if hidden.meant(&self.name).is_some() {
            // A name that is a hidden one could still grow until the arguments begin.
            return if begun { Fate::Hidden } else { Fate::Open };
        }
        if !hidden.may_become(&self.name) {
            return Fate::Visible;
        }
        // A beginning of a hidden name is a name of its own once arguments follow without more of
        // it, or are whole.
        let named = begun && !self.name.is_empty() && (part.name.is_empty() || self.is_whole());
        if named { Fate::Visible } else { Fate::Open }
    }

    fn is_whole(&self) -> bool {
        self.arguments.starts_with(b"{") && raw::is_json(raw::unescape(&self.arguments).as_bytes())
    }

    fn finished(self, hidden: &Names, ended: bool) -> Call {
        let meant = hidden.meant(&self.name);
        let own = meant.filter(|_| self.fate == Fate::Hidden);
        Call {
            complete: ended || self.is_whole(),
            id: self.id,
            // A provider that checks names takes back what it was offered.
            name: own.map_or_else(|| self.name.clone(), str::to_owned),
            arguments: raw::unescape(&self.arguments),
            kind: self.kind.unwrap_or_else(|| "function".to_owned()),
            extra: self.extra,
            hidden: self.fate == Fate::Hidden,
        }
    }
}
