//! The content of an assistant message as a list of parts, which Mistral's thinking models send:
//! parts of type `thinking`, which hold reasoning, before parts of text
//! (<https://docs.mistral.ai/capabilities/reasoning>). Reads the parts and edits them by bytes;
//! never decides what is removed.

use std::borrow::Cow;

use bytes::Bytes;
use indexmap::IndexMap;
use plimsoll_model::raw::{self, Edit, Object, Span};

use crate::edit::AssistantEdit;
use crate::json;
use crate::message::as_text;

/// The type of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartType {
    Text,
    Thinking,
    Other,
}

impl PartType {
    pub fn of(part: &Object<'_>) -> Self {
        match part.text("type").as_deref() {
            Some("text") => Self::Text,
            Some("thinking") => Self::Thinking,
            Some(_) | None => Self::Other,
        }
    }
}

/// One part with its span in the list; no object if the part is none.
type Part<'a> = (Span, Option<Object<'a>>);

/// The parts of a content that is a list.
fn parts(content: &[u8]) -> Vec<Part<'_>> {
    let spans = raw::array(content).unwrap_or_default();
    let part = |span: Span| {
        let part = content.get(span.clone()).map(Object::parse);
        (span, part.and_then(Result::ok))
    };
    spans.into_iter().map(part).collect()
}

fn type_of(part: Option<&Object<'_>>) -> PartType {
    part.map_or(PartType::Other, PartType::of)
}

/// The texts in a part of type `thinking`, and all else in it as raw JSON.
pub fn thoughts<'a>(part: &Object<'a>) -> Vec<Cow<'a, str>> {
    let Some(raw) = part.present("thinking") else {
        return Vec::new();
    };
    if raw.first() != Some(&b'[') {
        return as_text(raw).into_iter().collect();
    }
    let text = |element| {
        let text = Object::parse(element).ok()?.text("text");
        text.or_else(|| as_text(element))
    };
    json::elements(raw).filter_map(text).collect()
}

/// The edits of a message's content. A part that holds reasoning counts as reasoning, never as
/// text.
pub fn edits(object: &Object<'_>, edit: &AssistantEdit<'_>) -> Vec<Edit> {
    if let Some(line) = edit.text.filter(|_| !edit.drop_text) {
        return vec![object.set("content", raw::quote(line).as_bytes())];
    }
    let Some(span) = object.get("content") else {
        return Vec::new();
    };
    let content = object.raw("content").unwrap_or_default();
    let null = || vec![(span.clone(), Bytes::from_static(b"null"))];
    if content.first() != Some(&b'[') {
        return match edit.drop_text {
            true => null(),
            false => cut_string(content, &span, edit.cut.text)
                .into_iter()
                .collect(),
        };
    }
    let parts = parts(content);
    let cut = TextCut::new(&parts, edit);
    let gone = |place: usize| {
        let part = parts.get(place).and_then(|(_, part)| part.as_ref());
        match type_of(part) {
            PartType::Thinking => edit.drop_reasoning || edit.foreign,
            PartType::Text | PartType::Other => edit.drop_text || cut == TextCut::Part(place),
        }
    };
    // Providers refuse an empty list of parts.
    if !parts.is_empty() && (0..parts.len()).all(gone) {
        return null();
    }
    let spans: Vec<Span> = parts.iter().map(|(span, _)| span.clone()).collect();
    let cuts = raw::remove_spans(&spans, gone).into_iter();
    let mut edits: Vec<Edit> = cuts.map(|cut| (cut, Bytes::new())).collect();
    if let TextCut::Front(edit) = cut {
        edits.push(edit);
    }
    for (at, _) in &mut edits {
        *at = raw::shift(at, span.start);
    }
    edits
}

/// What is cut from the first part of text.
#[derive(PartialEq, Eq)]
enum TextCut {
    /// Nothing.
    Nothing,
    /// The whole part at this place.
    Part(usize),
    /// The front of its text.
    Front(Edit),
}

impl TextCut {
    fn new(parts: &[Part<'_>], edit: &AssistantEdit<'_>) -> Self {
        let handed = edit.cut.text;
        let first = first_text(parts).filter(|_| !edit.drop_text && !handed.is_empty());
        let Some((place, span, text)) = first else {
            return Self::Nothing;
        };
        match text.strip_prefix(handed) {
            None => Self::Nothing,
            // The last hop may have said nothing, and providers refuse an empty text.
            Some("") => Self::Part(place),
            Some(rest) => Self::Front((span, Bytes::from(raw::quote(rest)))),
        }
    }
}

/// The first text in a list of parts, with its part's place and the span of its JSON string in the
/// list.
fn first_text<'a>(parts: &[Part<'a>]) -> Option<(usize, Span, Cow<'a, str>)> {
    let mut all = parts.iter().enumerate();
    all.find_map(|(place, (at, part))| {
        let part = part.as_ref();
        let part = part.filter(|part| PartType::of(part) != PartType::Thinking)?;
        let span = raw::shift(&part.get("text")?, at.start);
        Some((place, span, part.text("text")?))
    })
}

/// The first text of a message, and whether the message has no other.
pub fn text<'a>(object: &Object<'a>) -> Option<(Cow<'a, str>, bool)> {
    let content = object.raw("content")?;
    if content.first() == Some(&b'"') {
        return Some((raw::string(content)?, true));
    }
    let parts = parts(content);
    let (place, _, text) = first_text(&parts)?;
    let mut behind = parts.iter().skip(place + 1);
    let more = behind.any(|(_, part)| type_of(part.as_ref()) == PartType::Text);
    Some((text, !more))
}

fn cut_string(content: &[u8], span: &Span, handed: &str) -> Option<Edit> {
    let text = raw::string(content).filter(|_| !handed.is_empty())?;
    let new = match text.strip_prefix(handed)? {
        "" => "null".to_owned(),
        rest => raw::quote(rest),
    };
    Some((span.clone(), Bytes::from(new)))
}

/// A list of parts with this text in place of its own texts, behind all its other parts.
pub fn saying(content: &[u8], text: &str) -> Bytes {
    let own = json::text_part("text", text);
    let other = |(span, part): Part<'_>| {
        let is_text = type_of(part.as_ref()) == PartType::Text;
        content.get(span).filter(|_| !is_text)
    };
    let mut all: Vec<&[u8]> = parts(content).into_iter().filter_map(other).collect();
    all.push(own.as_bytes());
    json::list(&all)
}

/// The one part that holds the reasoning of a hop, put together from its pieces.
#[derive(Debug, Clone, Default)]
pub struct Thinking {
    /// The elements in order; texts that follow each other are one.
    elements: Vec<Element>,
    /// The part's other members, each with its newest value.
    members: IndexMap<String, Bytes>,
    /// Whether the value is one string and no list.
    plain: bool,
}

#[derive(Debug, Clone)]
enum Element {
    Text(String),
    Other(Bytes),
}

impl Thinking {
    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        let elements = self.elements.iter().map(|element| match element {
            Element::Text(text) => text.len(),
            Element::Other(value) => value.len(),
        });
        let members = self
            .members
            .iter()
            .map(|(key, value)| key.len() + value.len() + size_of::<(String, Bytes)>());
        elements.chain(members).sum()
    }

    /// Takes in a part, or a piece of one.
    pub fn absorb(&mut self, part: &Object<'_>) {
        for member in part.members() {
            let value = json::value(part, member);
            if member.key == "thinking" {
                self.absorb_value(value);
            } else if member.key != "type" {
                let value = Bytes::copy_from_slice(value);
                self.members.insert(member.key.to_string(), value);
            }
        }
    }

    fn absorb_value(&mut self, value: &[u8]) {
        if value.starts_with(b"\"") {
            self.plain = true;
            return self.push_text(&json::lossy(value));
        }
        for element in json::elements(value) {
            let text = Object::parse(element).ok();
            let text = text.filter(|text| PartType::of(text) == PartType::Text);
            match text.and_then(|text| text.raw("text")) {
                Some(text) if text.starts_with(b"\"") => self.push_text(&json::lossy(text)),
                Some(_) | None => {
                    let other = Bytes::copy_from_slice(element);
                    self.elements.push(Element::Other(other));
                }
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.elements.last_mut() {
            Some(Element::Text(before)) => before.push_str(text),
            Some(Element::Other(_)) | None => self.elements.push(Element::Text(text.to_owned())),
        }
    }

    /// The part as it is sent back.
    pub fn part(&self) -> Bytes {
        let texts = self.elements.iter().filter_map(|element| match element {
            Element::Text(text) => Some(text.as_str()),
            Element::Other(_) => None,
        });
        let thinking = if self.plain {
            raw::quote(&texts.collect::<String>())
        } else {
            let elements = self.elements.iter().map(|element| match element {
                Element::Text(text) => json::text_part("text", text),
                Element::Other(raw) => String::from_utf8_lossy(raw).into_owned(),
            });
            format!("[{}]", elements.collect::<Vec<_>>().join(","))
        };
        let mut part = format!(r#"{{"type":"thinking","thinking":{thinking}"#);
        for (key, value) in &self.members {
            json::push_member(&mut part, key, &String::from_utf8_lossy(value));
        }
        part.push('}');
        Bytes::from(part)
    }
}

#[cfg(test)]
mod tests;
