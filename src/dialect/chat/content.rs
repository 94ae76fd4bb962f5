//! The content of an assistant message where it is a list of parts, as that of Mistral's thinking
//! models is: parts of type `thinking`, which hold reasoning, before parts of text
//! (<https://docs.mistral.ai/capabilities/reasoning>). Reads them and edits them by bytes; never
//! decides what goes.

use std::borrow::Cow;

use bytes::Bytes;

use crate::dialect::edit::AssistantEdit;
use crate::dialect::message::as_text;
use crate::model::raw::{self, Edit, Object, Span};

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
    Other,
}

impl Kind {
    pub(super) fn of(part: &Object<'_>) -> Self {
        match part.text("type").as_deref() {
            Some("text") => Self::Text,
            Some("thinking") => Self::Thinking,
            Some(_) | None => Self::Other,
        }
    }
}

/// The parts of a content that is a list, by their places in it.
pub(super) fn parts<'a>(content: &'a [u8]) -> Vec<(Span, Option<Object<'a>>)> {
    let spans = raw::array(content).unwrap_or_default();
    let part = |span: Span| {
        let part = content.get(span.clone()).map(Object::parse);
        (span, part.and_then(Result::ok))
    };
    spans.into_iter().map(part).collect()
}

/// The texts that a part of type `thinking` holds, and all else in it as raw JSON.
pub(super) fn thoughts<'a>(part: &Object<'a>) -> Vec<Cow<'a, str>> {
    let Some(raw) = part.present("thinking") else {
        return Vec::new();
    };
    let inner = raw::array(raw).unwrap_or_default();
    if raw.first() != Some(&b'[') {
        return as_text(raw).into_iter().collect();
    }
    let said = |span: Span| {
        let element = raw.get(span)?;
        let text = Object::parse(element).ok()?.text("text");
        text.or_else(|| as_text(element))
    };
    inner.into_iter().filter_map(said).collect()
}

/// The edits of a message's content. A part that holds reasoning is none that holds text.
pub(super) fn edits(object: &Object<'_>, edit: &AssistantEdit<'_>) -> Vec<Edit> {
    if let Some(line) = edit.text.filter(|_| !edit.drop_text) {
        return vec![object.set("content", raw::quote(line).as_bytes())];
    }
    let Some(span) = object.get("content") else {
        return Vec::new();
    };
    let content = object.raw("content").unwrap_or_default();
    let drops_reasoning = edit.drop_reasoning || edit.foreign;
    if content.first() != Some(&b'[') {
        return if edit.drop_text {
            vec![(span, Bytes::from_static(b"null"))]
        } else {
            cut_string(content, &span, edit.cut.text)
                .into_iter()
                .collect()
        };
    }
    let parts = parts(content);
    let mut cut = Cut::new(&parts, edit);
    let gone = |place: usize| {
        let part = parts.get(place).and_then(|(_, part)| part.as_ref());
        match part.map_or(Kind::Other, Kind::of) {
            Kind::Thinking => drops_reasoning,
            Kind::Text | Kind::Other => edit.drop_text || cut.whole == Some(place),
        }
    };
    if !parts.is_empty() && (0..parts.len()).all(gone) {
        return vec![(span, Bytes::from_static(b"null"))];
    }
    let spans: Vec<Span> = parts.iter().map(|(span, _)| span.clone()).collect();
    let cuts = raw::remove_spans(&spans, gone).into_iter();
    let mut edits: Vec<Edit> = cuts
        .map(|cut| (raw::shift(&cut, span.start), Bytes::new()))
        .collect();
    edits.extend(
        cut.text
            .take()
            .map(|(at, new)| (raw::shift(&at, span.start), new)),
    );
    edits
}

/// What is cut from the front of the first part of text.
struct Cut {
    /// The place of the part that goes whole.
    whole: Option<usize>,
    text: Option<Edit>,
}

impl Cut {
    fn new(parts: &[(Span, Option<Object<'_>>)], edit: &AssistantEdit<'_>) -> Self {
        let mut cut = Self {
            whole: None,
            text: None,
        };
        let first = first_text(parts).filter(|_| !edit.drop_text && !edit.cut.text.is_empty());
        if let Some((place, span, text)) = first
            && let Some(rest) = text.strip_prefix(edit.cut.text)
        {
            // An answer of several hops whose last said nothing must not go up with empty text.
            if rest.is_empty() {
                cut.whole = Some(place);
            } else {
                cut.text = Some((span, Bytes::from(raw::quote(rest))));
            }
        }
        cut
    }
}

/// The first text in a list of parts, with its part's place and the span of its JSON string in the
/// list.
fn first_text<'a>(parts: &[(Span, Option<Object<'a>>)]) -> Option<(usize, Span, Cow<'a, str>)> {
    let mut all = parts.iter().enumerate();
    all.find_map(|(place, (at, part))| {
        let part = part
            .as_ref()
            .filter(|part| Kind::of(part) != Kind::Thinking)?;
        let span = raw::shift(&part.get("text")?, at.start);
        Some((place, span, part.text("text")?))
    })
}

/// The first text of a message, and whether it has no other.
pub(super) fn said<'a>(object: &Object<'a>) -> Option<(Cow<'a, str>, bool)> {
    let content = object.raw("content")?;
    if content.first() == Some(&b'"') {
        return Some((raw::string(content)?, true));
    }
    let parts = parts(content);
    let (place, _, text) = first_text(&parts)?;
    let more = parts.iter().skip(place + 1).any(|(_, part)| {
        let part = part.as_ref();
        part.is_some_and(|part| Kind::of(part) == Kind::Text)
    });
    Some((text, !more))
}

fn cut_string(content: &[u8], span: &Span, handed: &str) -> Option<Edit> {
    let text = raw::string(content).filter(|_| !handed.is_empty())?;
    let rest = text.strip_prefix(handed)?;
    let new = if rest.is_empty() {
        "null".to_owned()
    } else {
        raw::quote(rest)
    };
    Some((span.clone(), Bytes::from(new)))
}

/// A list of parts that says this text in the place of its own texts, and keeps all else before it.
pub(super) fn saying(content: &[u8], text: &str) -> Bytes {
    let other = |(span, part): (Span, Option<Object<'_>>)| {
        let text = part.is_some_and(|part| Kind::of(&part) == Kind::Text);
        content.get(span).filter(|_| !text)
    };
    let own = text_part(text);
    let mut all: Vec<&[u8]> = parts(content).into_iter().filter_map(other).collect();
    all.push(own.as_bytes());
    Bytes::from([b"[", all.join(&b","[..]).as_slice(), b"]"].concat())
}

/// A part of text.
pub(super) fn text_part(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, raw::quote(text))
}

/// The one part that holds what a hop thought, put together from its pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct Thinking {
    /// The elements in order; texts that follow each other are one.
    elements: Vec<Element>,
    /// The part's other members, each as it came last.
    members: Vec<(String, Bytes)>,
    /// Whether it is no list but one string.
    plain: bool,
}

#[derive(Debug, Clone)]
enum Element {
    Text(String),
    Other(Bytes),
}

impl Thinking {
    /// Takes in a part, or a piece of one.
    pub(super) fn absorb(&mut self, part: &Object<'_>) {
        for member in part.members() {
            let value = part.bytes().get(member.value.clone()).unwrap_or_default();
            if member.key == "thinking" {
                self.think(value);
            } else if member.key != "type" {
                self.members.retain(|(known, _)| *known != *member.key);
                let value = Bytes::copy_from_slice(value);
                self.members.push((member.key.to_string(), value));
            }
        }
    }

    fn think(&mut self, value: &[u8]) {
        if let [b'"', inner @ .., b'"'] = value {
            self.plain = true;
            return self.text(&raw::unescape(inner));
        }
        for span in raw::array(value).unwrap_or_default() {
            let element = value.get(span).unwrap_or_default();
            let inner = Object::parse(element).ok();
            let text = inner.as_ref().and_then(|inner| match Kind::of(inner) {
                Kind::Text => inner.raw("text"),
                Kind::Thinking | Kind::Other => None,
            });
            match text {
                Some([b'"', inner @ .., b'"']) => self.text(&raw::unescape(inner)),
                Some(_) | None => {
                    let other = Bytes::copy_from_slice(element);
                    self.elements.push(Element::Other(other));
                }
            }
        }
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.elements.last_mut() {
            Some(Element::Text(before)) => before.push_str(text),
            Some(Element::Other(_)) | None => self.elements.push(Element::Text(text.to_owned())),
        }
    }

    /// The part as it is sent back.
    pub(super) fn part(&self) -> Bytes {
        let texts = self.elements.iter().filter_map(|element| match element {
            Element::Text(text) => Some(text.as_str()),
            Element::Other(_) => None,
        });
        let thinking = if self.plain {
            raw::quote(&texts.collect::<String>())
        } else {
            let elements = self.elements.iter().map(|element| match element {
                Element::Text(text) => text_part(text),
                Element::Other(raw) => String::from_utf8_lossy(raw).into_owned(),
            });
            format!("[{}]", elements.collect::<Vec<_>>().join(","))
        };
        let mut part = format!(r#"{{"type":"thinking","thinking":{thinking}"#);
        for (key, value) in &self.members {
            part.push_str(&format!(
                ",{}:{}",
                raw::quote(key),
                String::from_utf8_lossy(value)
            ));
        }
        part.push('}');
        Bytes::from(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::edit::Cut as Front;

    const MESSAGE: &str = r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}, {"type":"text","text":"one\n\ntwo"}],"x":1}"#;

    #[track_caller]
    fn check(message: &str, edit: &AssistantEdit<'_>, want: &str) {
        let object = Object::parse(message.as_bytes()).unwrap();
        let mut edits = edits(&object, edit);
        edits.sort_by_key(|(span, _)| span.start);
        let got = raw::splice(message.as_bytes(), &edits);
        let object = Object::parse(&got).unwrap();
        let content = String::from_utf8_lossy(object.raw("content").unwrap());
        assert_eq!(content, want, "{message}");
    }

    #[test]
    fn reasoning_in_parts_goes_and_stays_as_reasoning_does() {
        let thinking = r#"{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}"#;
        let text = r#"{"type":"text","text":"one\n\ntwo"}"#;
        let edit = |drop_text, drop_reasoning| AssistantEdit {
            drop_text,
            drop_reasoning,
            ..AssistantEdit::default()
        };
        check(
            MESSAGE,
            &edit(false, false),
            &format!("[{thinking}, {text}]"),
        );
        check(MESSAGE, &edit(false, true), &format!("[{text}]"));
        check(MESSAGE, &edit(true, false), &format!("[{thinking}]"));
        check(MESSAGE, &edit(true, true), "null");
        let foreign = AssistantEdit {
            foreign: true,
            ..AssistantEdit::default()
        };
        check(MESSAGE, &foreign, &format!("[{text}]"));
        let front = |text| AssistantEdit {
            cut: Front {
                text,
                hops: Vec::new(),
            },
            ..AssistantEdit::default()
        };
        let two = r#"{"type":"text","text":"two"}"#;
        check(MESSAGE, &front("one\n\n"), &format!("[{thinking}, {two}]"));
        check(MESSAGE, &front("one\n\ntwo"), &format!("[{thinking}]"));
        let alone = r#"{"content":[{"type":"text","text":"a"}]}"#;
        check(alone, &front("a"), "null");
    }

    #[test]
    fn pieces_of_thinking_make_one_part() {
        let mut thinking = Thinking::default();
        for piece in [
            r#"{"type":"thinking","thinking":[{"type":"text","text":"a\n"}]}"#,
            r#"{"type":"thinking","thinking":[{"type":"text","text":"b"},{"type":"reference","ids":[1]}],"closed":false}"#,
            r#"{"type":"thinking","thinking":[{"type":"text","text":""}],"closed":true}"#,
        ] {
            thinking.absorb(&Object::parse(piece.as_bytes()).unwrap());
        }
        assert_eq!(
            thinking.part(),
            r#"{"type":"thinking","thinking":[{"type":"text","text":"a\nb"},{"type":"reference","ids":[1]}],"closed":true}"#
        );
        let mut plain = Thinking::default();
        plain.absorb(&Object::parse(br#"{"type":"thinking","thinking":"a"}"#).unwrap());
        assert_eq!(plain.part(), r#"{"type":"thinking","thinking":"a"}"#);
    }

    #[test]
    fn a_list_says_another_text() {
        let content = br#"[{"type":"thinking","thinking":"a"},{"type":"text","text":"b"},{"type":"x"},{"type":"text","text":"c"}]"#;
        assert_eq!(
            saying(content, "d"),
            r#"[{"type":"thinking","thinking":"a"},{"type":"x"},{"type":"text","text":"d"}]"#
        );
    }
}
