//! A message of any wire format, taken apart: who speaks, what is counted, which calls are made,
//! and the canonical digest that the chain is made of. Never reads a wire format itself.

use std::borrow::Cow;

use plimsoll_model::raw::{self, Object, RawError};
use plimsoll_model::{CallId, Digest, Role};
use serde_json::Value;
use twox_hash::XxHash3_128;

use super::json;

/// Why a message could not be read. The request then goes upstream as it came.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MessageError {
    /// Not a JSON object.
    #[error("each message must be a JSON object: {0}")]
    Shape(#[from] RawError),
    /// A key twice: parsers disagree on which one counts.
    #[error("each key may stand once in a message")]
    DuplicateKey,
    /// A field of another type than the format allows, or text with a lone surrogate.
    #[error("the field {0:?} must be valid text of the type that the API names")]
    Field(&'static str),
}

/// A call of an assistant message.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedCall<'a> {
    /// Its id; empty where absent.
    pub id: Cow<'a, str>,
    /// The tool's name; empty where absent.
    pub name: Cow<'a, str>,
    /// The arguments as text; raw JSON if they are no string.
    pub arguments: Cow<'a, str>,
}

/// A part of a message's content, for counting.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text, counted as such.
    Text(Cow<'a, str>),
    /// Text of a document or of a search's result that stands in a message: counted as text, and nobody's own words.
    Quoted(Cow<'a, str>),
    /// An image by address or data, with its detail level.
    Image {
        /// A `data:` or remote address.
        url: Cow<'a, str>,
        /// `low`, `high` or `auto`.
        detail: Option<Cow<'a, str>>,
    },
    /// An image that is counted by its area, as base64; empty if its data is elsewhere.
    Picture(Cow<'a, str>),
    /// Anything else as raw JSON.
    Other(&'a [u8]),
}

/// One message taken apart, borrowing from its bytes.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// Who speaks.
    pub role: Role,
    /// The digest of the canonical projection (design §3).
    pub canonical: Digest,
    /// The canonical digest with the ids of calls left blank, for clients that rename them.
    pub nameless: Digest,
    /// The parts of the content.
    pub parts: Vec<Part<'a>>,
    /// The texts of reasoning fields; raw JSON if they are no strings.
    pub reasoning: Vec<Cow<'a, str>>,
    /// How many bytes of reasoning only the provider can read.
    pub sealed: usize,
    /// The calls in array order.
    pub calls: Vec<ParsedCall<'a>>,
    /// The call that a tool message answers.
    pub result_of: Option<CallId>,
    /// Whether it holds something that must never be edited.
    pub opaque: bool,
    /// Whether it is a result of a form of its own, which goes with its call or stays as it is.
    pub whole: bool,
}

impl Parsed<'_> {
    /// A message of which only the role and the digest are known.
    pub(super) fn new(role: Role, digest: &Canonical) -> Self {
        Self {
            role,
            canonical: digest.finish(),
            nameless: digest.nameless(),
            parts: Vec::new(),
            reasoning: Vec::new(),
            sealed: 0,
            calls: Vec::new(),
            result_of: None,
            opaque: false,
            whole: false,
        }
    }

    /// The parts one after the other, with a part that is no text named at its place.
    #[must_use]
    pub fn named(&self) -> String {
        let named = self.parts.iter().map(|part| match part {
            Part::Text(text) | Part::Quoted(text) => Cow::Borrowed(text.as_ref()),
            Part::Image { .. } | Part::Picture(_) => Cow::Borrowed("[an image]"),
            Part::Other(raw) => Cow::Owned(format!("[an attachment of {} bytes]", raw.len())),
        });
        named.collect::<Vec<_>>().concat()
    }

    /// The texts among the parts that whoever speaks said.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.to_string()),
            Part::Quoted(_) | Part::Image { .. } | Part::Picture(_) | Part::Other(_) => None,
        });
        texts.collect()
    }
}

/// A digest of a call's name and canonical arguments: equal for the same call made again.
#[must_use]
pub fn call_digest(name: &str, arguments: &str) -> u64 {
    let arguments = canonical_arguments(arguments);
    let bytes = [name.as_bytes(), &arguments[..]].join(&0);
    // The low half is as good a digest as any other.
    XxHash3_128::oneshot(&bytes) as u64
}

/// A string decoded, or any other value as its raw text.
#[must_use]
pub fn as_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    if raw.first() == Some(&b'"') {
        return raw::string(raw);
    }
    std::str::from_utf8(raw).ok().map(Cow::Borrowed)
}

/// The canonical projection of a message (design §3) as a digest. Fields are length-prefixed and
/// tagged, so that bytes never shift from one into the next.
pub struct Canonical {
    whole: blake3::Hasher,
    /// The projection with the ids of calls left blank, kept from the first id on.
    nameless: Option<blake3::Hasher>,
}

impl Canonical {
    /// The projection of a message of this role.
    #[must_use]
    pub fn new(role: &str) -> Self {
        let mut canonical = Self {
            whole: blake3::Hasher::new(),
            nameless: None,
        };
        canonical.put(b'r', role.as_bytes());
        canonical
    }

    /// Adds a field.
    pub fn put(&mut self, tag: u8, bytes: &[u8]) {
        field(&mut self.whole, tag, bytes);
        if let Some(nameless) = &mut self.nameless {
            field(nameless, tag, bytes);
        }
    }

    /// Adds the id of a call.
    pub fn id(&mut self, tag: u8, id: &str) {
        let nameless = self.nameless.get_or_insert_with(|| self.whole.clone());
        field(nameless, tag, b"");
        field(&mut self.whole, tag, id.as_bytes());
    }

    /// Adds a text, unless it is empty.
    pub fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.put(b't', text.as_bytes());
        }
    }

    /// Adds the parts of a content.
    pub fn parts(&mut self, parts: &[Part<'_>]) {
        for part in parts {
            match part {
                Part::Text(text) | Part::Quoted(text) => self.text(text),
                Part::Image { url, .. } | Part::Picture(url) => self.put(b'i', url.as_bytes()),
                Part::Other(raw) => self.put(b'o', &canonical_part(raw)),
            }
        }
    }

    /// Adds calls.
    pub fn calls(&mut self, calls: &[ParsedCall<'_>]) {
        for call in calls {
            self.id(b'c', &call.id);
            self.put(b'n', call.name.as_bytes());
            self.put(b'a', &canonical_arguments(&call.arguments));
        }
    }

    /// The digest of all that was added.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest(*self.whole.finalize().as_bytes())
    }

    /// The digest of what was added, with the ids of calls left blank.
    #[must_use]
    pub fn nameless(&self) -> Digest {
        let hasher = self.nameless.as_ref().unwrap_or(&self.whole);
        Digest(*hasher.finalize().as_bytes())
    }
}

fn field(hasher: &mut blake3::Hasher, tag: u8, bytes: &[u8]) {
    hasher.update(&[tag]);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// Arguments with sorted keys, no white space and numbers in shortest f64 form; unchanged if they
/// are no JSON.
fn canonical_arguments(arguments: &str) -> Cow<'_, [u8]> {
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => Cow::Owned(sorted(&value)),
        Err(_) => Cow::Borrowed(arguments.as_bytes()),
    }
}

/// A content part without the cache marker that clients move between turns.
#[must_use]
pub fn canonical_part(raw: &[u8]) -> Cow<'_, [u8]> {
    match serde_json::from_slice::<Value>(raw) {
        Ok(Value::Object(mut map)) => {
            map.remove("cache_control");
            Cow::Owned(sorted(&Value::Object(map)))
        }
        _ => Cow::Borrowed(raw),
    }
}

/// A digest of the tools that a model is offered, by value and whatever their order. A tool that is loaded
/// later counts once a message refers to it.
#[must_use]
pub fn canonical_tools(tools: &[u8]) -> Digest {
    let deferred = |raw: &[u8]| {
        let object = Object::parse(raw).ok();
        object.is_some_and(|object| object.raw("defer_loading") == Some(b"true"))
    };
    let elements = json::elements(tools).filter(|raw| !deferred(raw));
    let mut parts: Vec<Cow<'_, [u8]>> = elements.map(canonical_part).collect();
    parts.sort_unstable();
    let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
    Digest::of(&parts)
}

fn sorted(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_sorted(value, &mut out);
    out
}

/// `serde_json`'s map is a `BTreeMap`, so its keys are sorted already; only numbers need care.
fn write_sorted(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) => out.extend_from_slice(format!("{float:?}").as_bytes()),
            None => out.extend_from_slice(number.to_string().as_bytes()),
        },
        Value::Array(elements) => {
            out.push(b'[');
            for element in elements {
                write_sorted(element, out);
                out.push(b',');
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (key, element) in map {
                out.extend_from_slice(raw::quote(key).as_bytes());
                out.push(b':');
                write_sorted(element, out);
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::String(text) => out.extend_from_slice(raw::quote(text).as_bytes()),
        Value::Null | Value::Bool(_) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}
