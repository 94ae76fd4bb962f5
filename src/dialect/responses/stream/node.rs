//! An object somewhere in bytes, with where it begins, so that edits of nested values are edits of
//! the whole. It knows no field name.

use bytes::Bytes;

use crate::model::raw::{self, Edit, Object, Span};

/// An object somewhere in bytes.
pub(super) struct Node<'a> {
    data: &'a [u8],
    at: usize,
    /// Its members; their spans are into the object's own bytes.
    pub(super) object: Object<'a>,
}

impl<'a> Node<'a> {
    /// The object that all of the bytes are.
    pub(super) fn root(data: &'a [u8]) -> Option<Self> {
        let object = Object::parse(data).ok()?;
        Some(Self {
            data,
            at: 0,
            object,
        })
    }

    /// The object under a key.
    pub(super) fn child(&self, key: &str) -> Option<Self> {
        let span = self.span(key)?;
        let object = Object::parse(self.data.get(span.clone())?).ok()?;
        Some(Self {
            data: self.data,
            at: span.start,
            object,
        })
    }

    /// Where a key's value lies in all of the bytes.
    pub(super) fn span(&self, key: &str) -> Option<Span> {
        self.object.get(key).map(|span| raw::shift(&span, self.at))
    }

    /// Where the elements of the array under a key lie in all of the bytes.
    pub(super) fn elements(&self, key: &str) -> Option<Vec<Span>> {
        let span = self.span(key)?;
        let inner = raw::array(self.data.get(span.clone())?).ok()?;
        Some(
            inner
                .iter()
                .map(|element| raw::shift(element, span.start))
                .collect(),
        )
    }

    /// The bytes at a span of all of the bytes.
    pub(super) fn bytes(&self, span: &Span) -> &'a [u8] {
        self.data.get(span.clone()).unwrap_or_default()
    }

    /// The edit that gives a key this value, whether it is there or not.
    pub(super) fn set(&self, key: &str, value: &[u8]) -> Edit {
        let (span, new) = self.object.set(key, value);
        (raw::shift(&span, self.at), new)
    }

    /// The edit that gives a key this value, where it is there with another.
    pub(super) fn replace(&self, key: &str, value: &[u8]) -> Option<Edit> {
        let span = self.span(key)?;
        (self.bytes(&span) != value).then(|| (span, Bytes::copy_from_slice(value)))
    }

    /// The edit that gives a key this number, where it holds another.
    pub(super) fn count(&self, key: &str, count: u64) -> Option<Edit> {
        let old = self.object.number(key)?;
        (old != count)
            .then(|| self.replace(key, count.to_string().as_bytes()))
            .flatten()
    }
}

/// The bytes with edits in any order put in place; none may overlap another.
pub(super) fn splice(data: &[u8], mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    raw::splice(data, &edits)
}

/// What a JSON string says, whatever escapes it holds; empty for any other value.
pub(super) fn lossy(raw: &[u8]) -> String {
    let inner = raw
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    inner.map(raw::unescape).unwrap_or_default()
}
