//! Byte-preserving JSON: where the members of an object and the elements of an array lie, and how
//! bytes are put in their place. It never builds a tree of values and never rewrites a byte that
//! it was not told to: numbers keep their digits, strings their escapes, keys their order.
//!
//! All spans are byte ranges into the slice that was parsed. A nested value is reached by parsing
//! its sub-slice and adding the span's start ([`shift`]). Everything here is linear, iterative in
//! depth (200 levels are fine), and accepts lone surrogates inside values that are not decoded.

use std::borrow::Cow;
use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

mod lone;
mod scan;

pub use lone::mended;
use scan::Scan;
pub use scan::{Elements, Member, Span};

/// One replacement: the bytes at the span give way to the new ones. An empty span inserts.
pub type Edit = (Span, Bytes);

/// Why bytes could not be split.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
pub enum RawError {
    /// The bytes are no JSON.
    #[error("send valid JSON: it breaks off or is malformed at line {line}, column {column}")]
    Syntax {
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault in bytes, from 1.
        column: usize,
    },
    /// The value is JSON but no object.
    #[error("send a JSON object here")]
    NotObject,
    /// The value is JSON but no array.
    #[error("send a JSON array here")]
    NotArray,
}

impl From<serde_json::Error> for RawError {
    fn from(error: serde_json::Error) -> Self {
        Self::Syntax {
            line: error.line(),
            column: error.column(),
        }
    }
}

/// The members of one JSON object in the order of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<'a> {
    bytes: &'a [u8],
    members: Vec<Member<'a>>,
    open: usize,
}

impl<'a> Object<'a> {
    /// Splits an object into its members. White space around it is allowed, anything else is not.
    ///
    /// # Errors
    /// [`RawError::NotObject`] if the bytes begin with another kind of value,
    /// [`RawError::Syntax`] if they are no JSON or no UTF-8.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RawError> {
        Self::walk(bytes, None).map(|(object, _)| object)
    }

    /// Splits an object and, in the same walk, the array under `key` into its elements. Their spans
    /// are into `bytes`, not into the array. They are `None` if the key is absent or its value is no
    /// array; of duplicate keys the last one counts.
    ///
    /// # Errors
    /// As [`Object::parse`].
    pub fn parse_with_array(
        bytes: &'a [u8],
        key: &str,
    ) -> Result<(Self, Option<Elements>), RawError> {
        Self::walk(bytes, Some(key))
    }

    fn walk(bytes: &'a [u8], split: Option<&str>) -> Result<(Self, Option<Elements>), RawError> {
        let Some((members, elements)) = Scan::new(bytes).members(split) else {
            return Err(fault(bytes).unwrap_or(RawError::NotObject));
        };
        let object = Self {
            bytes,
            members,
            open: skip_space(bytes, 0),
        };
        Ok((object, elements))
    }

    /// The bytes that were parsed.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All members in order, duplicates included.
    #[must_use]
    pub fn members(&self) -> &[Member<'a>] {
        &self.members
    }

    /// The place of a key among the members; of duplicates the last, as most parsers read it.
    #[must_use]
    pub fn position(&self, key: &str) -> Option<usize> {
        self.members.iter().rposition(|member| member.key == key)
    }

    /// The span of a key's value; of duplicates the last.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Span> {
        self.members
            .iter()
            .rfind(|member| member.key == key)
            .map(|member| member.value.clone())
    }

    /// The raw bytes of a key's value; of duplicates the last.
    #[must_use]
    pub fn raw(&self, key: &str) -> Option<&'a [u8]> {
        self.get(key).and_then(|span| self.bytes.get(span))
    }

    /// The raw bytes of a key's value unless it is absent or `null`.
    #[must_use]
    pub fn present(&self, key: &str) -> Option<&'a [u8]> {
        self.raw(key).filter(|raw| *raw != b"null")
    }

    /// The object under a key.
    #[must_use]
    pub fn child(&self, key: &str) -> Option<Self> {
        Self::parse(self.present(key)?).ok()
    }

    /// A key's value decoded, if it is a string.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.raw(key).and_then(string)
    }

    /// A key's value, if it is a number without sign, fraction and exponent that fits.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        self.raw(key)
            .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok())
    }

    /// Whether a key occurs twice. Parsers disagree on which one counts, so edit nothing then.
    #[must_use]
    pub fn has_duplicates(&self) -> bool {
        let mut keys: Vec<&str> = self
            .members
            .iter()
            .map(|member| member.key.as_ref())
            .collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair.first() == pair.last())
    }

    /// The edit that adds a member after the last one, with a comma if one is due. Two such edits
    /// for an empty object would lack the comma between them: join them first.
    #[must_use]
    pub fn append(&self, key: &str, value: &[u8]) -> Edit {
        let mut new = BytesMut::with_capacity(key.len() + value.len() + 4);
        let at = match self.members.last() {
            Some(last) => {
                new.extend_from_slice(b",");
                last.span.end
            }
            None => self.open + 1,
        };
        new.extend_from_slice(quote(key).as_bytes());
        new.extend_from_slice(b":");
        new.extend_from_slice(value);
        (at..at, new.freeze())
    }

    /// The edit that gives a key this value. If the key is absent (of duplicates the last counts),
    /// the edit adds it at the end.
    #[must_use]
    pub fn set(&self, key: &str, value: &[u8]) -> Edit {
        match self.get(key) {
            Some(span) => (span, Bytes::copy_from_slice(value)),
            None => self.append(key, value),
        }
    }

    /// The edit that gives a member of the object under a key this value, and adds that object where there is
    /// none.
    #[must_use]
    pub fn set_within(&self, holder: &str, key: &str, value: &[u8]) -> Edit {
        let inner = self.child(holder);
        match (inner, self.get(holder)) {
            (Some(inner), Some(span)) => {
                let (at, new) = inner.set(key, value);
                (shift(&at, span.start), new)
            }
            _ => {
                let value = [b"{", quote(key).as_bytes(), b":", value, b"}"].concat();
                self.set(holder, &value)
            }
        }
    }

    /// The spans to cut to remove the members at some places, each with one comma.
    #[must_use]
    pub fn remove_spans(&self, remove: impl Fn(usize) -> bool) -> Vec<Span> {
        let spans: Vec<Span> = self
            .members
            .iter()
            .map(|member| member.span.clone())
            .collect();
        remove_spans(&spans, remove)
    }

    /// The span to cut to remove the member at this place with one comma. Cut several members with
    /// [`Object::remove_spans`], because two single cuts may overlap.
    #[must_use]
    pub fn remove_span(&self, place: usize) -> Option<Span> {
        self.remove_spans(|at| at == place).into_iter().next()
    }
}

/// The spans of an array's elements, without white space around them.
///
/// # Errors
/// [`RawError::NotArray`] if the bytes begin with another kind of value, [`RawError::Syntax`] if
/// they are no JSON or no UTF-8.
pub fn array(bytes: &[u8]) -> Result<Vec<Span>, RawError> {
    let spans = Scan::new(bytes).elements();
    spans.ok_or_else(|| fault(bytes).unwrap_or(RawError::NotArray))
}

/// The spans to cut to remove the chosen elements (or members) with their commas. Neighbours are
/// cut as one span; the spans are sorted and don't overlap.
#[must_use]
pub fn remove_spans(elements: &[Span], remove: impl Fn(usize) -> bool) -> Vec<Span> {
    let mut cuts: Vec<Span> = Vec::new();
    let mut run: Option<Span> = None;
    let mut kept_end: Option<usize> = None;
    for (place, span) in elements.iter().enumerate() {
        if remove(place) {
            let start = run.as_ref().map_or(span.start, |open| open.start);
            run = Some(start..span.end);
        } else {
            // A run before a kept element includes the comma after the run.
            cuts.extend(run.take().map(|open| open.start..span.start));
            kept_end = Some(span.end);
        }
    }
    // A run at the end includes the comma before it, if there is one.
    cuts.extend(run.map(|open| kept_end.unwrap_or(open.start)..open.end));
    cuts
}

/// Copies the bytes with the edits in place. The edits must be in order and must not overlap. An
/// edit that breaks this or reaches past the end is a mistake of the caller, and is left out.
#[must_use]
pub fn splice(bytes: &[u8], edits: &[Edit]) -> Bytes {
    let grown: usize = edits.iter().map(|(_, new)| new.len()).sum();
    let mut written = BytesMut::with_capacity(bytes.len() + grown);
    let mut done = 0;
    for (span, new) in edits {
        let kept = bytes
            .get(done..span.start)
            .filter(|_| span.end <= bytes.len());
        debug_assert!(
            kept.is_some() && span.start <= span.end,
            "edit {span:?} out of order"
        );
        if let Some(kept) = kept {
            written.extend_from_slice(kept);
            written.extend_from_slice(new);
            done = span.end.max(span.start);
        }
    }
    written.extend_from_slice(bytes.get(done..).unwrap_or_default());
    written.freeze()
}

/// Decodes a JSON string; borrows if it has no escape. `None` if the bytes are not a JSON string or
/// have a lone surrogate.
#[must_use]
pub fn string(bytes: &[u8]) -> Option<Cow<'_, str>> {
    // Most values that are not strings are null, and making an error is slow.
    if bytes.trim_ascii_start().first() != Some(&b'"') {
        return None;
    }
    if memchr::memchr(b'\\', bytes).is_none() {
        return serde_json::from_slice::<&str>(bytes)
            .ok()
            .map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(bytes).ok().map(Cow::Owned)
}

/// Decodes the text between the quotes of a JSON string, and always finds something to show: a lone
/// surrogate becomes U+FFFD, and a backslash that begins no escape is kept.
#[must_use]
pub fn unescape(inner: &[u8]) -> String {
    let text = String::from_utf8_lossy(inner);
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        decoded.push_str(rest.get(..at).unwrap_or_default());
        let escape = rest.get(at..).unwrap_or_default();
        let (character, used) = read_escape(escape).unwrap_or(('\\', 1));
        decoded.push(character);
        rest = escape.get(used..).unwrap_or_default();
    }
    decoded.push_str(rest);
    decoded
}

/// The character of the escape at the text's start, and the escape's length.
fn read_escape(text: &str) -> Option<(char, usize)> {
    let character = match text.as_bytes().get(1)? {
        b'n' => '\n',
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => return read_unicode(text),
        _ => return None,
    };
    Some((character, 2))
}

fn read_unicode(text: &str) -> Option<(char, usize)> {
    let first = read_unit(text)?;
    let second = text.get(6..).and_then(read_unit);
    let pair = char::decode_utf16([first, second.unwrap_or_default()]).next()?;
    match pair {
        Ok(character) => Some((character, 6 * character.len_utf16())),
        Err(_) => Some((char::REPLACEMENT_CHARACTER, 6)),
    }
}

/// The UTF-16 unit of the `\uXXXX` at the text's start.
fn read_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

/// A JSON string with its quotes and escapes.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for part in text.split_inclusive(|c: char| c == '"' || c == '\\' || c < ' ') {
        let last = part
            .chars()
            .next_back()
            .filter(|c| *c == '"' || *c == '\\' || *c < ' ');
        let Some(special) = last else {
            quoted.push_str(part);
            continue;
        };
        quoted.push_str(part.strip_suffix(special).unwrap_or_default());
        push_escape(&mut quoted, special);
    }
    quoted.push('"');
    quoted
}

fn push_escape(quoted: &mut String, special: char) {
    use fmt::Write as _;
    match special {
        '"' => quoted.push_str("\\\""),
        '\\' => quoted.push_str("\\\\"),
        '\n' => quoted.push_str("\\n"),
        '\r' => quoted.push_str("\\r"),
        '\t' => quoted.push_str("\\t"),
        other => {
            // Writing to a String cannot fail.
            let _ = write!(quoted, "\\u{:04x}", u32::from(other));
        }
    }
}

/// A span of a nested value, moved by where that value starts.
#[must_use]
pub fn shift(span: &Span, by: usize) -> Span {
    span.start + by..span.end + by
}

/// Whether the bytes are one JSON value, white space around it allowed.
#[must_use]
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

/// The fault in bytes that are not JSON or not UTF-8; `None` if they are both.
fn fault(bytes: &[u8]) -> Option<RawError> {
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        return Some(error.into());
    }
    let valid = std::str::from_utf8(bytes).err()?.valid_up_to();
    let before = bytes.get(..valid).unwrap_or_default();
    let line_start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
    Some(RawError::Syntax {
        line: 1 + memchr::memchr_iter(b'\n', before).count(),
        column: 1 + valid - line_start,
    })
}

fn skip_space(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let space = rest
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .count();
    from + space
}

#[cfg(test)]
mod tests;
