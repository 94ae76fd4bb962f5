//! Reading and writing JSON by bytes, for what every wire format does alike: reaching nested
//! values, putting several edits in place, and writing arrays and members. It builds on
//! [`plimsoll_model::raw`], knows no field name of a format, and never decides what to edit.

use std::fmt::Write as _;

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit, Member, Object, RawError, Span};

/// An object somewhere in a text, with the place where it begins. Its edits and spans are those of
/// the whole text, so that a nested value is edited without writing the values around it again.
pub struct Node<'a> {
    data: &'a [u8],
    /// Where the object begins in the data.
    pub at: usize,
    /// The object's members; their spans are into the object's own bytes.
    pub object: Object<'a>,
}

impl<'a> Node<'a> {
    /// The object that the whole text is.
    pub fn root(data: &'a [u8]) -> Option<Self> {
        let object = Object::parse(data).ok()?;
        Some(Self {
            data,
            at: 0,
            object,
        })
    }

    /// The object at a span of the text.
    pub fn at(data: &'a [u8], span: &Span) -> Option<Self> {
        let object = Object::parse(data.get(span.clone())?).ok()?;
        Some(Self {
            data,
            at: span.start,
            object,
        })
    }

    /// The span of the object itself in the text.
    pub fn whole(&self) -> Span {
        self.at..self.at + self.object.bytes().len()
    }

    /// The object under a key.
    pub fn child(&self, key: &str) -> Option<Self> {
        Self::at(self.data, &self.span(key)?)
    }

    /// The span of a key's value in the text.
    pub fn span(&self, key: &str) -> Option<Span> {
        self.object.get(key).map(|span| raw::shift(&span, self.at))
    }

    /// The spans, in the text, of the elements of the array under a key. `None` if the value is no
    /// array.
    pub fn elements(&self, key: &str) -> Option<Vec<Span>> {
        let span = self.span(key)?;
        let value = self.bytes(&span);
        // Most values are strings, and `raw::array` walks one again to say why it is no array.
        let mut elements = raw::array(value.starts_with(b"[").then_some(value)?).ok()?;
        for element in &mut elements {
            *element = raw::shift(element, span.start);
        }
        Some(elements)
    }

    /// The bytes at a span of the text.
    pub fn bytes(&self, span: &Span) -> &'a [u8] {
        self.data.get(span.clone()).unwrap_or_default()
    }

    /// The bytes of one of the object's members.
    pub fn value(&self, member: &Member<'_>) -> &'a [u8] {
        value(&self.object, member)
    }

    /// An edit of the object's own bytes as an edit of the text.
    pub fn shifted(&self, (span, new): Edit) -> Edit {
        (raw::shift(&span, self.at), new)
    }

    /// The edit that gives a key this value, whether the key is there or not.
    pub fn set(&self, key: &str, value: &[u8]) -> Edit {
        self.shifted(self.object.set(key, value))
    }

    /// The edit that gives a key this value, if the key is there with another one.
    pub fn replace(&self, key: &str, value: &[u8]) -> Option<Edit> {
        let span = self.span(key)?;
        (self.bytes(&span) != value).then(|| (span, Bytes::copy_from_slice(value)))
    }

    /// The edit that gives a key this number, if the key holds another number.
    pub fn replace_number(&self, key: &str, number: u64) -> Option<Edit> {
        let old = self.object.number(key)?;
        (old != number)
            .then(|| self.replace(key, number.to_string().as_bytes()))
            .flatten()
    }
}

/// The bytes of a member's value.
pub fn value<'a>(object: &Object<'a>, member: &Member<'_>) -> &'a [u8] {
    let value = object.bytes().get(member.value.clone());
    value.unwrap_or_default()
}

/// The members that `chosen` names, each with a copy of its value.
pub fn members(object: &Object<'_>, chosen: impl Fn(&str) -> bool) -> Vec<(String, Bytes)> {
    let members = object.members().iter().filter(|member| chosen(&member.key));
    let copy = |member: &Member<'_>| Bytes::copy_from_slice(value(object, member));
    members
        .map(|member| (member.key.to_string(), copy(member)))
        .collect()
}

/// The elements of an array; `None` if the bytes are no array.
pub fn array(bytes: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    // As in [`Node::elements`]: an error is dear to make.
    if bytes.trim_ascii_start().first() != Some(&b'[') {
        return None;
    }
    let spans = raw::array(bytes).ok()?.into_iter();
    Some(spans.filter_map(|span| bytes.get(span)))
}

/// The elements of an array; none if the bytes are no array.
pub fn elements(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    array(bytes).into_iter().flatten()
}

/// The elements of an array that are objects; none if the bytes are no array.
pub fn objects(bytes: &[u8]) -> impl Iterator<Item = Object<'_>> {
    elements(bytes).filter_map(|element| Object::parse(element).ok())
}

/// The values that stand in the bytes with commas between them.
///
/// # Errors
/// [`RawError`] if they are no such values.
pub fn run(bytes: &[u8]) -> Result<impl Iterator<Item = &[u8]>, RawError> {
    let spans = raw::array(&[b"[", bytes, b"]"].concat())?.into_iter();
    Ok(spans.filter_map(|span| bytes.get(span.start - 1..span.end - 1)))
}

/// An array of these elements.
pub fn list<T: AsRef<[u8]>>(elements: &[T]) -> Bytes {
    let length: usize = elements.iter().map(|one| one.as_ref().len() + 1).sum();
    let mut list = Vec::with_capacity(length + 2);
    list.push(b'[');
    push_joined(&mut list, elements);
    list.push(b']');
    Bytes::from(list)
}

/// These elements with commas between them.
pub fn joined<T: AsRef<[u8]>>(elements: &[T]) -> Bytes {
    let mut joined = Vec::new();
    push_joined(&mut joined, elements);
    Bytes::from(joined)
}

/// A content: a text, or a list of it as a part of this type and of other parts.
pub fn content(part_type: &str, text: &str, others: &[String]) -> String {
    if others.is_empty() {
        return raw::quote(text);
    }
    let mut parts = vec![text_part(part_type, text)];
    parts.extend_from_slice(others);
    format!("[{}]", parts.join(","))
}

/// A part without its breakpoint of the provider's cache.
pub fn without_breakpoint(part: &[u8]) -> Bytes {
    let object = Object::parse(part).ok();
    let span = object.and_then(|object| object.remove_span(object.position("cache_control")?));
    let edit = span.map(|span| (span, Bytes::new()));
    raw::splice(part, edit.as_slice())
}

/// Writes elements with commas between them.
pub fn push_joined<T: AsRef<[u8]>>(json: &mut Vec<u8>, elements: &[T]) {
    for (place, element) in elements.iter().enumerate() {
        if place > 0 {
            json.push(b',');
        }
        json.extend_from_slice(element.as_ref());
    }
}

/// What becomes of a member that holds a list.
#[derive(Debug, PartialEq, Eq)]
pub enum ListEdit {
    /// This array takes its place.
    Replace(Bytes),
    /// The member is removed.
    Remove,
}

impl ListEdit {
    /// The edit that leaves these elements.
    pub fn leaving<T: AsRef<[u8]>>(elements: &[T]) -> Self {
        match elements.is_empty() {
            true => Self::Remove,
            false => Self::Replace(list(elements)),
        }
    }

    /// Puts the edit of the member with this key among those of an object, whose members at the places in `removed`
    /// go.
    pub fn put(
        self,
        object: &Object<'_>,
        key: &str,
        edits: &mut Vec<Edit>,
        removed: &mut Vec<usize>,
    ) {
        match self {
            Self::Replace(array) => edits.push(object.set(key, &array)),
            Self::Remove => removed.extend(object.position(key)),
        }
    }
}

/// The text between the quotes of a JSON string; empty for any other value. A lone surrogate
/// becomes U+FFFD.
pub fn lossy(value: &[u8]) -> String {
    let inner = value.strip_prefix(b"\"");
    let inner = inner.and_then(|rest| rest.strip_suffix(b"\""));
    inner.map(raw::unescape).unwrap_or_default()
}

/// The bytes with edits in any order put in place. No two edits may overlap.
pub fn splice(bytes: &[u8], mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    raw::splice(bytes, &edits)
}

/// The object with one member set.
pub fn with(object: &Object<'_>, key: &str, value: &[u8]) -> Bytes {
    raw::splice(object.bytes(), &[object.set(key, value)])
}

/// The object with one member set to a string.
pub fn with_text(object: &Object<'_>, key: &str, text: &str) -> Bytes {
    with(object, key, raw::quote(text).as_bytes())
}

/// The object with its `content` set to a text. If a part of the content has a breakpoint of the
/// client's for the provider's cache, the text is a part that has it.
pub fn with_content(object: &Object<'_>, text: &str) -> Bytes {
    let content = object.raw("content").unwrap_or_default();
    let marker = objects(content).find_map(|part| Some(part.raw("cache_control")?.to_vec()));
    let Some(marker) = marker else {
        return with_text(object, "content", text);
    };
    let part = format!(
        r#"[{{"type":"text","text":{},"cache_control":{}}}]"#,
        raw::quote(text),
        String::from_utf8_lossy(&marker),
    );
    with(object, "content", part.as_bytes())
}

/// The edits that cut members by their places.
pub fn cuts(object: &Object<'_>, gone: impl Fn(usize) -> bool) -> Vec<Edit> {
    let cuts = object.remove_spans(gone).into_iter();
    cuts.map(|cut| (cut, Bytes::new())).collect()
}

/// The object without the members that `gone` chooses. `None` if the bytes are no object.
pub fn without(bytes: &[u8], gone: impl Fn(&Member<'_>) -> bool) -> Option<Bytes> {
    let object = Object::parse(bytes).ok()?;
    let cuts = cuts(&object, |place| {
        object.members().get(place).is_some_and(&gone)
    });
    Some(raw::splice(bytes, &cuts))
}

/// The object with no members but these. `None` if the bytes are no object.
pub fn with_only(bytes: &[u8], keys: &[&str]) -> Option<Bytes> {
    without(bytes, |member| !keys.contains(&member.key.as_ref()))
}

/// Writes members behind others.
pub fn push_members(json: &mut String, members: &[(String, Bytes)]) {
    for (key, value) in members {
        push_member(json, key, &String::from_utf8_lossy(value));
    }
}

/// Writes one member behind others.
pub fn push_member(json: &mut String, key: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = write!(json, ",{}:{value}", raw::quote(key));
}

/// A message with a block of text appended to the content at a span: behind a blank line if the
/// content is a string, as one more part of this type if it is an array of parts.
pub fn append_text(bytes: &[u8], content: Span, part_type: &str, block: &str) -> Option<Bytes> {
    let raw = bytes.get(content.clone())?;
    let (at, new) = match raw.first()? {
        b'"' => {
            let quoted = raw::quote(&format!("\n\n{block}"));
            let inner = quoted.get(1..quoted.len() - 1)?;
            (raw.len() - 1, inner.to_owned())
        }
        b'[' => {
            let part = text_part(part_type, block);
            match raw::array(raw).ok()?.last() {
                Some(last) => (last.end, format!(",{part}")),
                None => (1, part),
            }
        }
        _ => return None,
    };
    let at = content.start + at;
    Some(raw::splice(bytes, &[(at..at, Bytes::from(new))]))
}

/// A message with a marker on the block at a span.
pub fn marked(message: &[u8], block: &Span, (key, marker): (&str, &[u8])) -> Option<Bytes> {
    let block = Node::at(message, block)?;
    Some(raw::splice(message, &[block.set(key, marker)]))
}

/// A message whose content at a span, a string, is a block of this type with a marker, which is the same to the provider.
pub fn marked_text(
    message: &[u8],
    content: Span,
    text_type: &str,
    (key, marker): (&str, &[u8]),
) -> Option<Bytes> {
    let begin = format!(r#"[{{"type":"{text_type}","text":"#);
    let key = format!(r#","{key}":"#);
    let text = message.get(content.clone())?;
    let block = [begin.as_bytes(), text, key.as_bytes(), marker, b"}]"].concat();
    Some(raw::splice(message, &[(content, block.into())]))
}

/// The end of the string that begins at `at`: its closing quote.
pub fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// A part of a content that is text.
pub fn text_part(part_type: &str, text: &str) -> String {
    format!(r#"{{"type":"{part_type}","text":{}}}"#, raw::quote(text))
}
