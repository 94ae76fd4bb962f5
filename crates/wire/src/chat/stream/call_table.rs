//! The calls of one hop, put together from their pieces: which piece belongs to which call, and
//! whether a call is hidden. It never sees frames and holds nothing back itself; it only says
//! which calls are not decided yet.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use indexmap::IndexMap;
use plimsoll_model::raw;

use super::wire::{Arguments, CallPart, Chunk};
use crate::answer::Call;
use crate::chat::signature::{Signature, of_members};
use crate::names::Names;

/// The least length of an id that is searched for: shorter ones occur in other texts too.
const LONG_ID: usize = 8;
/// With more calls than this kept from the client, all that is unreadable is taken to name one of them.
const MANY_KEPT: usize = 256;

/// Whether the client may see a call, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Not decided: its name may still become a hidden tool's, or outgrow one.
    Open,
    /// It calls a hidden tool.
    Hidden,
    /// It calls a tool of the client's.
    Visible,
    /// The hop was cut before this was decided: the client must not see it, and it is no call.
    Withheld,
}

/// One call, as far as its pieces have come.
#[derive(Debug, Clone)]
struct CallPieces {
    id: String,
    index: Option<u64>,
    name: String,
    kind: Option<String>,
    /// As on the wire, with its escapes; decoded once, at the end.
    arguments: Vec<u8>,
    /// The fields that this code does not know, each with its last value.
    extra: IndexMap<String, Bytes>,
    visibility: Visibility,
    shown_as: Option<u64>,
}

/// The calls of one hop in the order in which they were begun. A slot is a place in that order.
#[derive(Debug, Clone, Default)]
pub struct CallTable {
    hidden: Names,
    calls: Vec<CallPieces>,
    /// The slots of each id. A stream may have tens of thousands of calls.
    by_id: HashMap<String, Slots>,
    /// The last slot of each index.
    by_index: HashMap<u64, usize>,
    /// The calls that are not decided.
    open: BTreeSet<usize>,
    /// Those that the client may see.
    visible: BTreeSet<usize>,
    /// How many are kept from the client.
    kept: usize,
    /// The lowest index above all under which calls were shown.
    next_shown: u64,
    /// The names that the client was shown, by index, as long as each may become a hidden one.
    shown_names: HashMap<u64, ShownName>,
}

/// The slots of the calls with one id.
#[derive(Debug, Clone, Default)]
struct Slots {
    last: usize,
    /// The last one of each index.
    by_index: HashMap<Option<u64>, usize>,
    /// One that calls a hidden tool.
    hidden: Option<usize>,
}

/// The name that the client reads under one index.
#[derive(Debug, Clone)]
struct ShownName {
    /// The call of the first piece.
    slot: usize,
    /// `None` once it can no longer become a hidden name.
    name: Option<String>,
}

impl CallTable {
    pub fn new(hidden: &Names) -> Self {
        Self {
            hidden: hidden.clone(),
            ..Self::default()
        }
    }

    /// Whether any call is known to be kept from the client.
    pub fn hides(&self) -> bool {
        self.kept > 0
    }

    /// Whether any call is kept from the client, or may have to be.
    pub fn keeps(&self) -> bool {
        self.kept > 0 || !self.open.is_empty()
    }

    /// An empty table for the next hop, which continues the numbers that the client sees.
    pub fn next_hop(&self) -> Self {
        Self {
            next_shown: self.next_shown,
            ..Self::new(&self.hidden)
        }
    }

    /// Whether unreadable bytes contain the id of a call that is kept from the client, or may have
    /// to be.
    pub fn has_hidden_id(&self, bytes: &[u8]) -> bool {
        // Each id is looked for by itself. No model calls so many hidden tools at once.
        if self.kept + self.open.len() > MANY_KEPT {
            return true;
        }
        let kept =
            |call: &&CallPieces| call.visibility != Visibility::Visible && call.id.len() >= LONG_ID;
        let mut kept = self.calls.iter().filter(kept);
        kept.any(|call| memchr::memmem::find(bytes, call.id.as_bytes()).is_some())
    }

    /// Notes a piece of a name that the client is shown under an index. Returns whether the piece
    /// and those of another call spell a hidden name together: clients join pieces by index alone,
    /// even if their ids belong to two calls.
    pub fn spells_hidden(&mut self, index: u64, slot: usize, piece: &str) -> bool {
        if piece.is_empty() || self.hidden.is_empty() {
            return false;
        }
        let Some(shown) = self.shown_names.get_mut(&index) else {
            let name = Some(piece.to_owned());
            self.shown_names.insert(index, ShownName { slot, name });
            return false;
        };
        let whole = shown.name.take().map(|name| name + piece);
        // A name that begins no hidden one is never going to.
        let meant = |name: &String| self.hidden.meant(name).is_some();
        let begins = |name: &String| self.hidden.may_become(name) || meant(name);
        shown.name = whole.filter(begins);
        let spells = shown.name.as_ref().is_some_and(meant);
        spells && shown.slot != slot
    }

    /// Adds one piece and returns the slot of the call that it belongs to.
    pub fn absorb(&mut self, chunk: &Chunk<'_>, part: &CallPart<'_>) -> usize {
        let slot = if chunk.has_whole_calls() {
            self.begin(part)
        } else {
            self.slot(part)
        };
        let hidden = &self.hidden;
        let Some(call) = self.calls.get_mut(slot) else {
            return slot;
        };
        if call.visibility != Visibility::Hidden && *part.name != *call.name {
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
            call.extra.insert(field.clone(), value.clone());
        }
        if call.visibility == Visibility::Open {
            let decided = call.decide(hidden, part);
            self.decide(slot, decided);
        }
        slot
    }

    /// How many bytes the arguments take, and how many all else.
    pub fn bytes(&self) -> [usize; 2] {
        let arguments = self.calls.iter().map(|call| call.arguments.len()).sum();
        let others = self.calls.iter().map(|call| {
            let extra = call
                .extra
                .iter()
                .map(|(key, value)| key.len() + value.len() + size_of::<(String, Bytes)>());
            // An id is kept twice.
            2 * call.id.len() + call.name.len() + extra.sum::<usize>()
        });
        let maps = self.calls.len() * (size_of::<CallPieces>() + 2 * size_of::<Slots>());
        [arguments, others.sum::<usize>() + maps]
    }

    /// Forgets the arguments of all calls. How a piece is told from another call's needs to know no more than that
    /// some have begun.
    pub fn forget(&mut self) {
        for call in self
            .calls
            .iter_mut()
            .filter(|call| !call.arguments.is_empty())
        {
            call.arguments = b" ".to_vec();
        }
    }

    /// Adds a piece of arguments to a call that changes in nothing else.
    pub fn extend(&mut self, slot: usize, inner: &[u8]) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.arguments.extend_from_slice(inner);
        }
    }

    pub fn visibility(&self, slot: usize) -> Visibility {
        self.calls
            .get(slot)
            .map_or(Visibility::Visible, |call| call.visibility)
    }

    /// Decides the calls that are open, because no piece follows. If the hop was `cut`, a call
    /// whose name might have become a hidden one is withheld.
    pub fn settle(&mut self, cut: bool) {
        for slot in std::mem::take(&mut self.open) {
            let name = self.calls.get(slot).map_or("", |call| &call.name);
            let decided = if self.hidden.meant(name).is_some() {
                Visibility::Hidden
            } else if cut && self.hidden.may_become(name) {
                Visibility::Withheld
            } else {
                Visibility::Visible
            };
            self.decide(slot, decided);
        }
    }

    /// Notes what is known of an open call.
    fn decide(&mut self, slot: usize, visibility: Visibility) {
        let Some(call) = self.calls.get_mut(slot) else {
            return;
        };
        call.visibility = visibility;
        if visibility == Visibility::Open {
            return;
        }
        self.open.remove(&slot);
        match visibility {
            Visibility::Visible => {
                self.visible.insert(slot);
            }
            Visibility::Hidden => {
                self.kept += 1;
                if let Some(slots) = self.by_id.get_mut(&call.id) {
                    slots.hidden.get_or_insert(slot);
                }
            }
            Visibility::Withheld | Visibility::Open => self.kept += 1,
        }
    }

    /// The index under which the client sees a call: the upstream's own, or if `renumber` is set
    /// the next one in the order in which calls are shown.
    pub fn shown_as(&mut self, slot: usize, own: Option<u64>, renumber: bool) -> u64 {
        let next = self.next_shown;
        let Some(call) = self.calls.get_mut(slot) else {
            return next;
        };
        let fresh = if renumber { next } else { own.unwrap_or(next) };
        let shown = *call.shown_as.get_or_insert(fresh);
        self.next_shown = next.max(shown.saturating_add(1));
        shown
    }

    /// The signature that a visible call is owed of the hidden calls right before it; none if it
    /// has its own. The first hidden call has it, because a provider signs the first of the calls
    /// that it makes at once.
    pub fn owed_to(&self, slot: usize) -> Option<Signature> {
        let own = self.calls.get(slot)?;
        let before = self.calls.get(..slot).unwrap_or_default();
        let hidden = before
            .iter()
            .rev()
            .take_while(|call| call.visibility != Visibility::Visible);
        let signed = hidden.filter(|call| call.visibility == Visibility::Hidden);
        let owed = signed.filter_map(|call| of_members(&call.extra)).last()?;
        of_members(&own.extra).is_none().then_some(owed)
    }

    /// How many calls have begun.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call has begun.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether a call with this id has begun.
    pub fn has_id(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Whether there are hidden tools at all.
    pub fn may_hide(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The hidden call with this id.
    pub fn hidden_with_id(&self, id: &str) -> Option<usize> {
        self.by_id.get(id)?.hidden
    }

    /// The first visible call behind this one.
    pub fn next_visible(&self, slot: usize) -> Option<usize> {
        self.visible.range(slot + 1..).next().copied()
    }

    /// The id of a call, if it has one.
    pub fn id(&self, slot: usize) -> Option<&str> {
        let call = self.calls.get(slot)?;
        (!call.id.is_empty()).then_some(call.id.as_str())
    }

    /// The calls for the hop's answer. `ended` says that the hop came to its own end; if it did
    /// not, incomplete hidden calls are left out.
    pub fn into_calls(self, ended: bool) -> Vec<Call> {
        let last = self.calls.len().saturating_sub(1);
        let calls = self.calls.into_iter().enumerate();
        calls
            .filter(|(_, call)| call.visibility != Visibility::Withheld)
            .map(|(place, call)| call.finished(&self.hidden, ended || place < last))
            .filter(|call| !call.hidden || call.complete)
            .collect()
    }

    /// The call that a piece belongs to: by id first, because some servers use an index twice; then
    /// by index; and without either the last call.
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
                let index = call.index;
                self.name(slot, &part.id, index);
            }
            return slot;
        }
        self.begin(part)
    }

    fn begin(&mut self, part: &CallPart<'_>) -> usize {
        self.calls.push(CallPieces {
            id: part.id.to_string(),
            index: part.index,
            name: String::new(),
            kind: None,
            arguments: Vec::new(),
            extra: IndexMap::new(),
            visibility: Visibility::Open,
            shown_as: None,
        });
        let slot = self.calls.len() - 1;
        self.open.insert(slot);
        if let Some(index) = part.index {
            self.by_index.insert(index, slot);
        }
        self.name(slot, &part.id, part.index);
        slot
    }

    /// Notes the id of a call.
    fn name(&mut self, slot: usize, id: &str, index: Option<u64>) {
        if !id.is_empty() {
            let hides = self.visibility(slot) == Visibility::Hidden;
            let slots = self.by_id.entry(id.to_owned()).or_default();
            slots.hidden = slots.hidden.or(hides.then_some(slot));
            slots.last = slot.max(slots.last);
            let last = slots.by_index.entry(index).or_insert(slot);
            *last = slot.max(*last);
        }
    }

    /// The last call with the id of a piece. Where both have an index, it must be the same.
    fn by_id(&self, part: &CallPart<'_>) -> Option<usize> {
        let slots = self.by_id.get(&*part.id)?;
        match part.index {
            None => Some(slots.last),
            index => {
                let of = |index: Option<u64>| slots.by_index.get(&index);
                of(index).max(of(None)).copied()
            }
        }
    }

    fn by_index(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.calls.len().checked_sub(1),
        }
    }

    /// A call at this index that has no id yet and gets the piece's. If both have a name they are
    /// two calls.
    fn nameless(&self, part: &CallPart<'_>) -> Option<usize> {
        let slot = self.by_index(Some(part.index?))?;
        let call = self.calls.get(slot)?;
        let same = call.id.is_empty() && (call.name.is_empty() || part.name.is_empty());
        same.then_some(slot)
    }

    /// Whether a piece without an id begins a new call, though its index (or the lack of one)
    /// points to this slot: it brings a name after arguments have begun, and not the same name
    /// again.
    fn starts_anew(&self, slot: usize, part: &CallPart<'_>) -> bool {
        let Some(call) = self.calls.get(slot) else {
            return false;
        };
        if part.name.is_empty() || call.name.is_empty() {
            return false;
        }
        // Some clients join pieces by a number alone. Without one they read the hidden name by itself.
        let hides = part.index.is_none() && self.hidden.meant(&call.name).is_some();
        if hides && *part.name != *call.name {
            return true;
        }
        if call.arguments.is_empty() {
            return false;
        }
        if *part.name == *call.name {
            return part.index.is_none() && call.is_whole();
        }
        let joined = format!("{}{}", call.name, part.name);
        let goes_on = call.visibility == Visibility::Open
            && (self.hidden.meant(&joined).is_some() || self.hidden.may_become(&joined));
        !goes_on
    }
}

impl CallPieces {
    fn decide(&self, hidden: &Names, part: &CallPart<'_>) -> Visibility {
        let begun = !self.arguments.is_empty();
        if hidden.meant(&self.name).is_some() {
            // A name that is a hidden one could still grow until the arguments begin.
            return if begun {
                Visibility::Hidden
            } else {
                Visibility::Open
            };
        }
        if !hidden.may_become(&self.name) {
            return Visibility::Visible;
        }
        // The beginning of a hidden name is a whole name of the client's once arguments follow that
        // bring no more of it, or that are whole.
        let named = begun && !self.name.is_empty() && (part.name.is_empty() || self.is_whole());
        if named {
            Visibility::Visible
        } else {
            Visibility::Open
        }
    }

    fn is_whole(&self) -> bool {
        self.arguments.starts_with(b"{") && raw::is_json(raw::unescape(&self.arguments).as_bytes())
    }

    fn finished(self, hidden: &Names, ended: bool) -> Call {
        let meant = hidden.meant(&self.name);
        let own = meant.filter(|_| self.visibility == Visibility::Hidden);
        Call {
            complete: ended || self.is_whole(),
            id: self.id,
            // A misspelt name is stored as the provider was offered it, since some check names.
            name: own.map_or_else(|| self.name.clone(), str::to_owned),
            arguments: raw::unescape(&self.arguments),
            kind: self.kind.unwrap_or_else(|| "function".to_owned()),
            extra: self.extra.into_iter().collect(),
            hidden: self.visibility == Visibility::Hidden,
        }
    }
}
