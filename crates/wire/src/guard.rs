//! The last look at an upstream's bytes before they go to the client: whether they hold a call of a
//! hidden tool that no reader has found. Readers know where calls stand and take the hidden ones
//! out. The guard knows only how loosely some clients read, and so looks everywhere except where
//! names are the client's own business: arguments, schemas, the deeds of a server's own tools, and
//! all text. Never edits, and never decides what becomes of the bytes that it stops.
//!
//! It walks over bytes as if they were JSON, without a check, so that it finds in spoilt bytes what
//! a lenient client would find. It does so only if a hidden name may stand in the bytes at all.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use memchr::memmem::{self, Finder};
use plimsoll_model::raw;

use super::json;
use super::names::Names;
use super::sse::Frame;
use crate::Dialect;

/// The least length of an id that is searched for: shorter ones occur in other texts too.
const LONG_ID: usize = 8;
/// Members whose values name things that are no calls.
const APART: [&str; 11] = [
    "arguments",
    "attributes",
    "format",
    "input",
    "input_schema",
    "metadata",
    "parameters",
    "schema",
    "tool_choice",
    "tools",
    "variables",
];
/// Members that name the owner of a tool. A tool of the proxy's has none.
const OWNERS: [&str; 3] = ["namespace", "server_label", "server_name"];
/// Members that only calls have. If a call can't be read, it may be a hidden one.
const OF_CALLS: [&str; 7] = [
    "arguments",
    "call_id",
    "function_call",
    "name",
    "partial_json",
    "tool_calls",
    "tool_use_id",
];

/// The beginning of an escape that may stand for a letter of a name.
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br"\u00"));

/// The names of the hidden tools and the ids of hidden calls, which the client must not see.
#[derive(Debug, Clone)]
pub struct Guard {
    hidden: Names,
    /// Those of letters that stand in ids, which are found by a look at each word.
    ids: HashSet<Vec<u8>>,
    /// All others.
    odd_ids: HashSet<Vec<u8>>,
    /// Whether servers run tools of their own in this format.
    owned: bool,
}

/// How much of a hidden name is enough to stop the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The whole name.
    Whole,
    /// Its beginning, because the rest may come in another frame.
    Begun,
    /// Any name, because it may be the rest of a name that has begun.
    Named,
    /// Any call at all.
    Calls,
}

/// Whether a byte is one of those that ids are made of.
const fn is_of_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

impl Guard {
    pub fn new(dialect: Dialect, hidden: &Names) -> Self {
        Self {
            hidden: hidden.clone(),
            ids: HashSet::new(),
            odd_ids: HashSet::new(),
            owned: dialect != Dialect::Chat,
        }
    }

    /// Remembers the ids of a hidden call that is left out.
    pub fn note(&mut self, call: &[u8]) {
        let Ok(call) = raw::Object::parse(call) else {
            return;
        };
        for id in ["id", "call_id"].iter().filter_map(|key| call.text(key)) {
            if id.len() >= LONG_ID {
                let ids = match id.bytes().all(is_of_id) {
                    true => &mut self.ids,
                    false => &mut self.odd_ids,
                };
                ids.insert(id.into_owned().into_bytes());
            }
        }
    }

    /// Whether a frame that was read holds a hidden call outside these places of its data, in ascending order, at
    /// which the reader has judged the names itself.
    pub fn stops(&self, frame: &Frame, seen: &[usize]) -> bool {
        if !self.may_stop(frame.raw()) {
            return false;
        }
        let data = frame.data().unwrap_or_default();
        self.walk(&data, Look::Whole, seen) || self.stops_beside(frame)
    }

    /// Whether a frame that could not be read, or says nothing, may hold a hidden call.
    pub fn stops_odd(&self, frame: &Frame) -> bool {
        match frame.data() {
            None => self.stops_unread(frame.raw()),
            Some(data) => self.stops_unread(&data) || self.stops_beside(frame),
        }
    }

    /// Whether a frame names a hidden tool at all.
    pub fn names(&self, frame: &Frame) -> bool {
        self.hidden.find(frame.raw()).next().is_some()
    }

    fn stops_beside(&self, frame: &Frame) -> bool {
        frame.other_lines().any(|line| quotes(line, &self.hidden))
    }

    /// Whether data with a call at a place where none is expected may hold a hidden call. More of the call may
    /// follow, or it may continue a call that has begun (`goes_on`).
    pub fn stops_piece(&self, data: &[u8], seen: &[usize], goes_on: bool) -> bool {
        let look = if goes_on { Look::Named } else { Look::Begun };
        !self.hidden.is_empty() && self.walk(data, look, seen)
    }

    /// Whether JSON that was read holds a hidden call.
    pub fn stops_json(&self, json: &[u8]) -> bool {
        self.may_stop(json) && self.walk(json, Look::Whole, &[])
    }

    /// Whether bytes that can't be read, or that no reader knows, may hold any call, or a part of a
    /// hidden one.
    pub fn stops_unread(&self, bytes: &[u8]) -> bool {
        if self.hidden.is_empty() {
            return false;
        }
        let look = if raw::is_json(bytes) {
            Look::Whole
        } else {
            Look::Calls
        };
        self.walk(bytes, look, &[])
            || (look == Look::Calls && self.may_call(bytes))
            || self.has_id(bytes)
    }

    /// Whether there are pieces of a call in bytes that are no JSON, in which a walk may lose its
    /// way.
    fn may_call(&self, bytes: &[u8]) -> bool {
        quotes(bytes, &self.hidden)
            || OF_CALLS.iter().any(|key| {
                memmem::find_iter(bytes, key).any(|at| is_call_key(bytes, at, key.len()))
            })
    }

    /// Whether the id of a hidden call stands in the bytes.
    pub fn has_id(&self, bytes: &[u8]) -> bool {
        let mut words = bytes.split(|byte| !is_of_id(*byte));
        let mut odd = self.odd_ids.iter();
        // An escape before an id is read as a part of its word, and so is what somebody put before it.
        let ends = |word: &[u8]| {
            let behind = word.iter().enumerate().filter(|(_, byte)| **byte == b'_');
            let mut begins = [0, 1, 5].into_iter().chain(behind.map(|(at, _)| at + 1));
            begins.any(|at| word.get(at..).is_some_and(|id| self.ids.contains(id)))
        };
        words.any(ends) || odd.any(|id| memmem::find(bytes, id).is_some())
    }

    fn may_stop(&self, bytes: &[u8]) -> bool {
        !self.hidden.is_empty()
            && (self.hidden.find(bytes).next().is_some() || ESCAPE.find(bytes).is_some())
    }

    fn walk(&self, bytes: &[u8], look: Look, seen: &[usize]) -> bool {
        let mut walk = Walk {
            guard: self,
            bytes,
            look,
            seen,
            open: Vec::new(),
            level: Level::default(),
        };
        walk.finds()
    }
}

/// Whether a name stands in the bytes with a quote at either side. Quotes inside a string are
/// escaped and do not count.
fn quotes(bytes: &[u8], names: &Names) -> bool {
    names.find(bytes).any(|(begin, end)| {
        let before = bytes.get(..begin).unwrap_or_default();
        let behind = bytes.get(end..).unwrap_or_default();
        let opens = before.ends_with(b"\"") && !before.ends_with(b"\\\"");
        opens || behind.starts_with(b"\"")
    })
}

/// Whether a key of this length stands at `at` and has a value that says something.
fn is_call_key(bytes: &[u8], at: usize, length: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    let escaped = before.ends_with(b"\\\"");
    let colon = skip_space(bytes, at + length + 1);
    before.ends_with(b"\"")
        && !escaped
        && bytes.get(at + length) == Some(&b'"')
        && bytes.get(colon) == Some(&b':')
        && holds_something(bytes, skip_space(bytes, colon + 1))
}

/// Whether the value at `at` says something.
fn holds_something(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at..).unwrap_or_default();
    let nothing: [&[u8]; 4] = [b"null", b"[]", b"{}", b"\"\""];
    !nothing.iter().any(|nothing| rest.starts_with(nothing))
}

/// A walk over bytes as if they were JSON.
struct Walk<'a> {
    guard: &'a Guard,
    bytes: &'a [u8],
    look: Look,
    /// The places of the strings that the reader has judged.
    seen: &'a [usize],
    /// The levels around this one, outermost first.
    open: Vec<Level>,
    level: Level,
}

/// An object or array that the walk is in.
#[derive(Default)]
struct Level {
    /// The member that the walk is in.
    key: Key,
    /// Whether the names in it belong to no calls.
    apart: bool,
    /// Whether a hidden name was found in it.
    named: bool,
    /// Whether it names the owner of its tool.
    owned: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Key {
    Name,
    Owner,
    Apart,
    #[default]
    Other,
}

impl Walk<'_> {
    /// Whether there is a call that must be stopped.
    fn finds(&mut self) -> bool {
        let mut at = 0;
        while let Some(byte) = self.bytes.get(at) {
            let next = match byte {
                b'"' => self.string(at),
                b'{' | b'[' => self.enter(at),
                b'}' | b']' => self.leave(at),
                b',' => {
                    self.level.key = Key::Other;
                    Some(at + 1)
                }
                _ => Some(at + 1),
            };
            match next {
                Some(next) => at = next,
                None => return true,
            }
        }
        // Bytes that break off leave levels open.
        let open = std::mem::take(&mut self.open);
        self.level.calls() || open.iter().any(Level::calls)
    }

    fn enter(&mut self, at: usize) -> Option<usize> {
        let inner = Level {
            apart: self.level.apart || self.level.key == Key::Apart,
            ..Level::default()
        };
        self.open.push(std::mem::replace(&mut self.level, inner));
        Some(at + 1)
    }

    fn leave(&mut self, at: usize) -> Option<usize> {
        if let Some(outer) = self.open.pop() {
            let inner = std::mem::replace(&mut self.level, outer);
            if inner.calls() {
                return None;
            }
        }
        Some(at + 1)
    }

    /// Takes in the string whose opening quote is at `at`, a key or a value. Returns where the walk
    /// goes on, or `None` if it has found enough.
    fn string(&mut self, at: usize) -> Option<usize> {
        let end = json::end_of_string(self.bytes, at + 1).unwrap_or(self.bytes.len());
        let inner = self.bytes.get(at + 1..end).unwrap_or_default();
        let next = skip_space(self.bytes, end + 1);
        if self.bytes.get(next) == Some(&b':') {
            let value = skip_space(self.bytes, next + 1);
            return self.key(inner, value).then_some(value);
        }
        match self.level.key {
            Key::Name if !self.level.apart && self.seen.binary_search(&at).is_err() => {
                self.level.named |= self.is_hidden(&decoded(inner));
            }
            Key::Owner => self.level.owned |= self.guard.owned && !inner.is_empty(),
            Key::Name | Key::Apart | Key::Other => {}
        }
        Some(end + 1)
    }

    /// Takes in a key whose value begins at `value`. Returns false if that is enough.
    fn key(&mut self, inner: &[u8], value: usize) -> bool {
        let key = decoded(inner);
        let is = |known: &&str| key.eq_ignore_ascii_case(known);
        let calls = self.look == Look::Calls && OF_CALLS.iter().any(is);
        if calls && holds_something(self.bytes, value) {
            return false;
        }
        self.level.key = if is(&"name") {
            Key::Name
        } else if APART.contains(&key.as_ref()) {
            Key::Apart
        } else if OWNERS.contains(&key.as_ref()) {
            Key::Owner
        } else {
            Key::Other
        };
        true
    }

    fn is_hidden(&self, name: &str) -> bool {
        let hidden = &self.guard.hidden;
        let meant = || hidden.meant(name).is_some();
        match self.look {
            Look::Whole | Look::Calls => meant(),
            Look::Begun => !name.is_empty() && (meant() || hidden.may_become(name)),
            Look::Named => !name.is_empty() && !hidden.is_empty(),
        }
    }
}

impl Level {
    fn calls(&self) -> bool {
        self.named && !self.owned
    }
}

fn decoded(inner: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(inner) {
        Ok(text) if !text.contains('\\') => Cow::Borrowed(text),
        Ok(_) | Err(_) => Cow::Owned(raw::unescape(inner)),
    }
}

fn skip_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
    at + space.count()
}

#[cfg(test)]
mod tests;
