//! The last look at what an upstream says before it goes to the client: whether it holds a call of a
//! hidden tool where no reader accounts for one. Readers know where calls stand and take the hidden
//! ones out; this knows only how loosely some clients read, and so looks everywhere but where names
//! are the client's own business (arguments, schemas, what a server's own tools did, and all text).
//! Never edits, never decides what becomes of what it stops.
//!
//! It walks over bytes as JSON without asking whether they are any, so that it finds in spoilt bytes
//! what a lenient client would find. The walk begins only where a hidden name may stand at all.

use std::borrow::Cow;

use memchr::memmem::{self, Finder};

use super::names::Names;
use super::sse::Frame;
use super::stream::Spec;
use crate::model::{Dialect, raw};

/// Ids that are shorter stand in other texts, too.
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
/// Members that say whose a tool is, where it is not the proxy's.
const OWNERS: [&str; 3] = ["namespace", "server_label", "server_name"];
/// Members that only calls have. Where a call can't be read, no one can tell whose it is.
const OF_CALLS: [&str; 7] = [
    "arguments",
    "call_id",
    "function_call",
    "name",
    "partial_json",
    "tool_calls",
    "tool_use_id",
];

/// What it looks for: the names of the hidden tools, and the ids of hidden calls.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    hidden: Names,
    /// How an escape begins that may stand for a letter of a name.
    escape: Finder<'static>,
    ids: Vec<String>,
    /// Whether servers run tools of their own in this dialect.
    owned: bool,
}

/// How much of a name is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// A whole one.
    Whole,
    /// Its beginning, where the rest may come in another frame.
    Begun,
    /// Any, because it may be the rest of one that has begun.
    Named,
    /// Any call.
    Calls,
}

impl Guard {
    pub(super) fn new(spec: &Spec) -> Self {
        Self {
            hidden: spec.hidden.clone(),
            escape: Finder::new(br"\u00").into_owned(),
            ids: Vec::new(),
            owned: spec.dialect != Dialect::Chat,
        }
    }

    /// Remembers the ids of a hidden call that is left out.
    pub(super) fn note(&mut self, call: &[u8]) {
        let Ok(call) = raw::Object::parse(call) else {
            return;
        };
        for id in ["id", "call_id"].iter().filter_map(|key| call.text(key)) {
            let known = self.ids.iter().any(|known| *known == id);
            if id.len() >= LONG_ID && !known {
                self.ids.push(id.into_owned());
            }
        }
    }

    /// Whether a frame that was read holds a hidden call outside these places of its data, where the
    /// reader has seen to names itself.
    pub(super) fn stops(&self, frame: &Frame, seen: &[usize]) -> bool {
        if !self.may_stop(frame.raw()) {
            return false;
        }
        let data = frame.data().unwrap_or_default();
        self.walk(&data, Look::Whole, seen) || self.stops_beside(frame)
    }

    /// Whether a frame that could not be read, or says nothing, may hold a hidden call.
    pub(super) fn stops_odd(&self, frame: &Frame) -> bool {
        match frame.data() {
            None => self.stops_unread(frame.raw()),
            Some(data) => self.stops_unread(&data) || self.stops_beside(frame),
        }
    }

    /// Whether a frame names a hidden tool at all.
    pub(super) fn names(&self, frame: &Frame) -> bool {
        self.hidden.find(frame.raw()).next().is_some()
    }

    fn stops_beside(&self, frame: &Frame) -> bool {
        frame.other_lines().any(|line| quotes(line, &self.hidden))
    }

    /// The same for data with a call in a place where none is meant to be, of which there may be
    /// more to come, or where one has begun (`goes_on`) may have come.
    pub(super) fn stops_piece(&self, data: &[u8], seen: &[usize], goes_on: bool) -> bool {
        let look = if goes_on { Look::Named } else { Look::Begun };
        !self.hidden.is_empty() && self.walk(data, look, seen)
    }

    /// Whether JSON that was read holds a hidden call.
    pub(super) fn stops_json(&self, json: &[u8]) -> bool {
        self.may_stop(json) && self.walk(json, Look::Whole, &[])
    }

    /// Whether bytes that can't be read, or that nobody knows, may hold any call, or anything of a
    /// hidden one.
    pub(super) fn stops_unread(&self, bytes: &[u8]) -> bool {
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

    /// Whether there are bits of a call in what is no JSON at all, so that a walk may lose its way.
    fn may_call(&self, bytes: &[u8]) -> bool {
        quotes(bytes, &self.hidden)
            || OF_CALLS.iter().any(|key| {
                memmem::find_iter(bytes, key).any(|at| is_call_key(bytes, at, key.len()))
            })
    }

    /// Whether the id of a hidden call stands in the bytes.
    pub(super) fn has_id(&self, bytes: &[u8]) -> bool {
        let stands = |id: &String| memmem::find(bytes, id.as_bytes()).is_some();
        self.ids.iter().any(stands)
    }

    fn may_stop(&self, bytes: &[u8]) -> bool {
        !self.hidden.is_empty()
            && (self.hidden.find(bytes).next().is_some() || self.escape.find(bytes).is_some())
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

/// Whether a name stands in the bytes with a quote at either side. Such quotes as a string holds are
/// escaped.
fn quotes(bytes: &[u8], names: &Names) -> bool {
    names.find(bytes).any(|(begin, end)| {
        let before = bytes.get(..begin).unwrap_or_default();
        let behind = bytes.get(end..).unwrap_or_default();
        let opens = before.ends_with(b"\"") && !before.ends_with(b"\\\"");
        opens || behind.starts_with(b"\"")
    })
}

/// Whether a key of so many bytes stands at `at` with something in it.
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

/// Whether a value begins at `at` that is more than nothing.
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
    /// Where the strings begin that the reader has judged.
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
    /// Whether names in it are no calls'.
    apart: bool,
    /// Whether a hidden name was found in it.
    named: bool,
    /// Whether it says whose its tool is.
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
        // What breaks off leaves levels open.
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

    /// Takes in the string whose opening quote is at `at`, a key or a value; where the walk goes on,
    /// or `None` where it has found enough.
    fn string(&mut self, at: usize) -> Option<usize> {
        let end = end_of_string(self.bytes, at + 1);
        let inner = self.bytes.get(at + 1..end).unwrap_or_default();
        let next = skip_space(self.bytes, end + 1);
        if self.bytes.get(next) == Some(&b':') {
            let value = skip_space(self.bytes, next + 1);
            return self.key(inner, value).then_some(value);
        }
        match self.level.key {
            Key::Name if !self.level.apart && !self.seen.contains(&at) => {
                self.level.named |= self.is_hidden(&decoded(inner));
            }
            Key::Owner => self.level.owned |= self.guard.owned && !inner.is_empty(),
            Key::Name | Key::Apart | Key::Other => {}
        }
        Some(end + 1)
    }

    /// Takes in a key whose value begins at `value`; false where that is enough.
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

/// Where the string ends that begins at `at`: its closing quote, or the end of the bytes.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

fn skip_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
    at + space.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::stream::{Echo, UsageWish};

    fn guard(dialect: Dialect) -> Guard {
        let mut guard = Guard::new(&Spec {
            dialect,
            hidden: ["delimiter", "recall"].into_iter().collect(),
            usage_wish: UsageWish::Asked,
            echo: Echo::default(),
        });
        guard.note(br#"{"id":"call_hidden","call_id":"c1"}"#);
        guard
    }

    #[test]
    fn calls_are_found_wherever_they_stand() {
        let guard = guard(Dialect::Responses);
        for json in [
            r#"{"name":"delimiter"}"#,
            r#" [ { "x" : [ { "Name" :  "recall" } ] } ] "#,
            r#"{"\u006eame":"\u0064elimiter"}"#,
            r#"{"name":"delimiter","name":"x"}"#,
            r#"{"name":"Delimiter"}"#,
            r#"{"name":" functions.delimiter"}"#,
            r#"{"name":"delimiter","server_label":null}"#,
            r#"{"server_label":"s","x":{"name":"delimiter"}}"#,
            r#"{"arguments":{},"name":"recall"}"#,
        ] {
            assert!(guard.stops_json(json.as_bytes()), "{json}");
        }
    }

    #[test]
    fn what_is_no_call_is_let_through() {
        let guard = guard(Dialect::Responses);
        for json in [
            r#"{"text":"\"name\":\"delimiter\"","x":"delimiter"}"#,
            r#"{"name":"delimiters"}"#,
            r#"{"name":"ls","arguments":{"name":"delimiter"},"input":{"a":[{"name":"recall"}]}}"#,
            r#"{"name":"delimiter","server_label":"s"}"#,
            r#"{"type":"mcp_list_tools","tools":[{"name":"delimiter"}]}"#,
            r#"{"name":["delimiter"],"x":{"name":null}}"#,
            "",
        ] {
            assert!(!guard.stops_json(json.as_bytes()), "{json}");
            assert!(!guard.stops_unread(json.as_bytes()), "{json}");
        }
        let chat = super::tests::guard(Dialect::Chat);
        assert!(chat.stops_json(br#"{"name":"delimiter","server_label":"s"}"#));
    }

    #[test]
    fn of_what_cannot_be_read_any_call_is_stopped() {
        let guard = guard(Dialect::Chat);
        for (bytes, stopped) in [
            ("{\"x\":NaN,\"name\":\"ls\"}", true),
            ("{\"x\":NaN,\"tool_calls\":[{", true),
            (
                "{\"x\":NaN,\"tool_calls\":[],\"function_call\": null}",
                false,
            ),
            (
                "{\"x\":NaN,\"content\":\"a \\\"name\\\":\\\"delimiter\\\"\"}",
                false,
            ),
            ("{\"x\":\"delimiter", true),
            ("delimiter", false),
            ("<p>call_hidden</p>", true),
            ("<p>c1</p>", false),
            ("\"unended \\", false),
        ] {
            assert_eq!(guard.stops_unread(bytes.as_bytes()), stopped, "{bytes}");
        }
    }

    #[test]
    fn a_name_may_only_have_begun() {
        let guard = guard(Dialect::Chat);
        for (json, begins, goes_on) in [
            (r#"{"name":"deli"}"#, true, true),
            (r#"{"name":"miter"}"#, false, true),
            (r#"{"name":""}"#, false, false),
            (r#"{"name":"read"}"#, false, true),
        ] {
            let stops = |behind| guard.stops_piece(json.as_bytes(), &[], behind);
            assert_eq!((stops(false), stops(true)), (begins, goes_on), "{json}");
        }
        let seen_to = guard.stops_piece(br#"{"name":"deli"}"#, &[8], true);
        assert!(!seen_to);
    }

    #[test]
    fn nothing_is_stopped_where_nothing_is_hidden() {
        let guard = Guard::new(&Spec {
            dialect: Dialect::Chat,
            hidden: Names::default(),
            usage_wish: UsageWish::Asked,
            echo: Echo::default(),
        });
        let call = br#"{"name":"delimiter"}"#;
        assert!(!guard.stops_json(call) && !guard.stops_unread(b"\"name\":\"x"));
        assert!(!guard.stops_piece(call, &[], true));
    }
}
