//! One item of the wire: what it is by its type, who said it, and what lies in it. A unit is one
//! item, a run of an answer's items with the commas between them, or a text that stands outside
//! all items. Never counts, compares or changes any.

use std::borrow::Cow;

use crate::dialect::message::{MessageError, ParsedCall, Part, as_text};
use crate::model::Role;
use crate::model::raw::{self, Object, RawError, Span};

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of this role.
    Message(Role),
    /// Reasoning, or a reference to some that the provider keeps.
    Reasoning,
    /// A call that the client answers.
    Call,
    /// What the provider's own tools did, or a reference to what it keeps: said by the model, and
    /// nothing that could be edited.
    Fixed,
    /// The result of a call.
    Result,
    /// Asks the provider to compact the conversation.
    Trigger,
    /// Anything else, such as what the provider compacted.
    Unknown,
}

impl Kind {
    /// Whether it is a part of an answer, which stand in one unit.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        match self {
            Self::Message(Role::Assistant) | Self::Reasoning | Self::Call | Self::Fixed => true,
            Self::Message(Role::System | Role::User | Role::Tool | Role::Other)
            | Self::Result
            | Self::Trigger
            | Self::Unknown => false,
        }
    }

    fn of(object: &Object<'_>) -> Self {
        let named = |key: &str| object.text(key).is_some_and(|id| !id.is_empty());
        match object.text("type").as_deref() {
            None | Some("message") => Self::Message(role_of(object)),
            Some("reasoning") => Self::Reasoning,
            Some("item_reference") => match object.text("id") {
                Some(id) if id.starts_with("rs_") => Self::Reasoning,
                Some(_) | None => Self::Fixed,
            },
            Some("function_call" | "custom_tool_call") => Self::Call,
            Some(
                "function_call_output" | "custom_tool_call_output" | "local_shell_call_output",
            ) => Self::Result,
            Some("mcp_list_tools" | "mcp_approval_request") => Self::Fixed,
            Some("compaction_trigger") => Self::Trigger,
            // A tool that runs at the provider has no id by which the client could answer.
            Some(other) if other.ends_with("_call") && named("call_id") => Self::Call,
            Some(other) if other.ends_with("_output") && named("call_id") => Self::Result,
            Some(other) if other.ends_with("_call") || other.ends_with("_output") => Self::Fixed,
            Some(_) => Self::Unknown,
        }
    }

    /// The kind of an item that need not be read as a whole where its type stands first in it.
    #[must_use]
    pub fn peek(raw: &[u8]) -> Self {
        match leading_type(raw) {
            Some(b"reasoning") => Self::Reasoning,
            Some(b"function_call" | b"custom_tool_call") => Self::Call,
            Some(b"function_call_output" | b"custom_tool_call_output") => Self::Result,
            Some(_) | None => Object::parse(raw).map_or(Self::Unknown, |object| Self::of(&object)),
        }
    }
}

/// The type of an item that begins with it, without a walk over the rest.
pub(super) fn leading_type(raw: &[u8]) -> Option<&[u8]> {
    let rest = raw.strip_prefix(br#"{"type":"#)?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    rest.get(..memchr::memchr(b'"', rest)?)
}

fn role_of(object: &Object<'_>) -> Role {
    match object.text("role").as_deref() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) | None => Role::Other,
    }
}

/// One item, borrowing from its bytes.
#[derive(Debug)]
pub struct Item<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its members.
    pub object: Object<'a>,
}

impl<'a> Item<'a> {
    /// Reads an item.
    ///
    /// # Errors
    /// [`MessageError`] where it is no object, or has a key twice.
    pub fn read(raw: &'a [u8]) -> Result<Self, MessageError> {
        let object = Object::parse(raw)?;
        if object.has_duplicates() {
            return Err(MessageError::DuplicateKey);
        }
        Ok(Self {
            kind: Kind::of(&object),
            object,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.object.bytes()
    }

    /// The provider's name for it.
    #[must_use]
    pub fn id(&self) -> Option<Cow<'a, str>> {
        self.object.text("id").filter(|id| !id.is_empty())
    }

    /// The id of the call that it makes or answers.
    #[must_use]
    pub fn call_id(&self) -> Option<Cow<'a, str>> {
        // A local shell's result bears the call's id as its own.
        self.object
            .text("call_id")
            .or_else(|| self.object.text("id"))
    }

    /// The call that it makes. One of a tool without a name is named by its type, and its
    /// arguments are whatever says what to do.
    #[must_use]
    pub fn call(&self) -> ParsedCall<'a> {
        let name = self.object.text("name").filter(|name| !name.is_empty());
        let name = name.or_else(|| self.object.text("type"));
        let arguments = ["arguments", "input", "action", "actions", "operation"]
            .into_iter()
            .find_map(|key| self.object.present(key));
        ParsedCall {
            id: self.object.text("call_id").unwrap_or_default(),
            name: name.unwrap_or_default(),
            arguments: arguments.and_then(as_text).unwrap_or_default(),
        }
    }

    /// Whether its output may be any text.
    #[must_use]
    pub fn takes_text(&self) -> bool {
        matches!(
            self.object.text("type").as_deref(),
            Some(
                "function_call_output"
                    | "custom_tool_call_output"
                    | "local_shell_call_output"
                    | "apply_patch_call_output"
            )
        ) || self.shell().is_some()
    }

    /// What the commands of a built-in shell said: `shell_call_output` lists for each of them what it
    /// wrote to `stdout` and `stderr`, and its `outcome`
    /// (<https://platform.openai.com/docs/guides/tools-shell>). `None` for any other output.
    #[must_use]
    pub fn shell(&self) -> Option<Vec<Part<'a>>> {
        if self.object.text("type").as_deref() != Some("shell_call_output") {
            return None;
        }
        let raw = self.object.present("output")?;
        let mut parts = Vec::new();
        let commands = raw::array(raw).ok()?;
        for span in &commands {
            let command = Object::parse(raw.get(span.clone())?).ok()?;
            let streams = ["stdout", "stderr"].into_iter();
            let said = streams.filter_map(|stream| command.text(stream));
            parts.extend(said.filter(|text| !text.is_empty()).map(Part::Text));
        }
        (!commands.is_empty()).then_some(parts)
    }

    /// The output of a built-in shell with another text: the newest command is said to have written
    /// that, and nothing else.
    #[must_use]
    pub fn shell_saying(&self, text: &str) -> Option<Vec<u8>> {
        self.shell()?;
        let raw = self.object.present("output")?;
        let newest = raw::array(raw).ok()?.pop()?;
        let newest = Object::parse(raw.get(newest)?).ok()?;
        let text = raw::quote(text);
        let mut edits = vec![newest.set("stdout", text.as_bytes())];
        if newest.present("stderr").is_some() {
            edits.push(newest.set("stderr", b"\"\""));
        }
        edits.sort_by_key(|(span, _)| span.start);
        let newest = raw::splice(newest.bytes(), &edits);
        Some([b"[", &newest[..], b"]"].concat())
    }

    /// The parts of its content, or of its output.
    ///
    /// # Errors
    /// [`MessageError::Field`] where they are none.
    pub fn parts(&self) -> Result<Vec<Part<'a>>, MessageError> {
        let field = match self.kind {
            Kind::Result => "output",
            Kind::Message(_)
            | Kind::Reasoning
            | Kind::Call
            | Kind::Fixed
            | Kind::Trigger
            | Kind::Unknown => "content",
        };
        let Some(raw) = self.object.present(field) else {
            return Ok(Vec::new());
        };
        let wrong = MessageError::Field(field);
        match raw.first() {
            Some(b'"') => {
                let text = raw::string(raw).ok_or(wrong)?;
                Ok(if text.is_empty() {
                    Vec::new()
                } else {
                    vec![Part::Text(text)]
                })
            }
            Some(b'{') => Ok(vec![part(raw, field)?]),
            _ => array(raw, field)?.map(|raw| part(raw, field)).collect(),
        }
    }

    /// What the model said in a message, without what it refused.
    #[must_use]
    pub fn said(&self) -> String {
        let Some(raw) = self.object.present("content") else {
            return String::new();
        };
        if raw.first() == Some(&b'"') {
            return raw::string(raw).unwrap_or_default().into_owned();
        }
        let parts = raw::array(raw).unwrap_or_default().into_iter();
        let parts = parts.filter_map(|span| Object::parse(raw.get(span)?).ok());
        parts.filter_map(|part| part.text("text")).collect()
    }

    /// Its bytes as a message that says the end of what it says: parts before that go, and the one
    /// that it begins in is cut. `None` where it does not say that at its end.
    #[must_use]
    pub fn saying(&self, rest: &str) -> Option<Vec<u8>> {
        let raw = self.object.present("content")?;
        if raw.first() == Some(&b'"') {
            let edit = self.object.set("content", raw::quote(rest).as_bytes());
            return Some(raw::splice(self.raw(), &[edit]).to_vec());
        }
        let mut before = self.said().strip_suffix(rest)?.len();
        let mut parts: Vec<Cow<'_, [u8]>> = Vec::new();
        for span in raw::array(raw).ok()? {
            let bytes = raw.get(span)?;
            let part = Object::parse(bytes).ok()?;
            let text = part.text("text").unwrap_or_default();
            if text.is_empty() || before == 0 {
                parts.push(Cow::Borrowed(bytes));
            } else if text.len() > before {
                let text = raw::quote(text.get(before..)?);
                // What is noted of places in the text is not of these.
                let noted = ["annotations", "logprobs"].into_iter();
                let noted = noted.filter(|key| part.present(key).is_some());
                let mut edits = vec![part.set("text", text.as_bytes())];
                edits.extend(noted.map(|key| part.set(key, b"[]")));
                edits.sort_by_key(|(span, _)| span.start);
                parts.push(Cow::Owned(raw::splice(bytes, &edits).to_vec()));
                before = 0;
            } else {
                before -= text.len();
            }
        }
        let parts = [b"[", parts.join(&b","[..]).as_slice(), b"]"].concat();
        Some(raw::splice(self.raw(), &[self.object.set("content", &parts)]).to_vec())
    }

    /// Its bytes as a message that says another text, in the form that its content has.
    #[must_use]
    pub fn instead(&self, text: &str) -> Vec<u8> {
        let text = raw::quote(text);
        let raw = self.object.present("content");
        let content = if raw.is_some_and(|raw| raw.first() == Some(&b'[')) {
            format!(r#"[{{"type":"output_text","text":{text},"annotations":[]}}]"#)
        } else {
            text
        };
        let edit = self.object.set("content", content.as_bytes());
        raw::splice(self.raw(), &[edit]).to_vec()
    }

    /// The texts of reasoning that can be read.
    #[must_use]
    pub fn thoughts(&self) -> Vec<Cow<'a, str>> {
        let texts = |field: &str| -> Option<Vec<Cow<'a, str>>> {
            let raw = self.object.present(field)?;
            let parts = raw::array(raw).ok()?.into_iter();
            let parts = parts.filter_map(|span| Object::parse(raw.get(span)?).ok());
            Some(parts.filter_map(|part| part.text("text")).collect())
        };
        let both = ["summary", "content"].into_iter().filter_map(texts);
        both.flatten().filter(|text| !text.is_empty()).collect()
    }

    /// How many bytes of it only the provider can read.
    #[must_use]
    pub fn sealed(&self) -> usize {
        let raw = self.object.present("encrypted_content");
        raw.map_or(0, |raw| raw.len().saturating_sub(2))
    }
}

fn array<'a>(
    raw: &'a [u8],
    field: &'static str,
) -> Result<impl Iterator<Item = &'a [u8]>, MessageError> {
    let spans = raw::array(raw).map_err(|_| MessageError::Field(field))?;
    Ok(spans.into_iter().filter_map(|span| raw.get(span)))
}

fn part<'a>(raw: &'a [u8], field: &'static str) -> Result<Part<'a>, MessageError> {
    let wrong = MessageError::Field(field);
    let object = Object::parse(raw).map_err(|_| wrong)?;
    let text = |key: &str| {
        let text = object.text(key).map(Part::Text);
        text.ok_or(MessageError::Field(field))
    };
    match object.text("type").as_deref() {
        Some("input_text" | "output_text" | "text") => text("text"),
        Some("refusal") => text("refusal"),
        Some("input_image" | "computer_screenshot") => Ok(match object.text("image_url") {
            Some(url) => Part::Image {
                url,
                detail: object.text("detail"),
            },
            None => Part::Other(raw),
        }),
        Some(_) | None => Ok(Part::Other(raw)),
    }
}

/// A unit by what its bytes are.
#[derive(Debug)]
pub enum Unit<'a> {
    /// The member `instructions` with its key: its text, and where the string lies.
    Instructions(Cow<'a, str>, Span),
    /// An input that is a string.
    Input(Cow<'a, str>),
    /// One item, or a run of an answer's.
    Items(Vec<Item<'a>>),
}

/// Reads a unit.
///
/// # Errors
/// [`MessageError`] where it is none.
pub fn read(unit: &[u8]) -> Result<Unit<'_>, MessageError> {
    if unit.first() != Some(&b'"') {
        return items(unit).map(Unit::Items);
    }
    if raw::is_json(unit) {
        let text = raw::string(unit).ok_or(MessageError::Field("input"))?;
        return Ok(Unit::Input(text));
    }
    let whole = [b"{", unit, b"}"].concat();
    let span = Object::parse(&whole)?
        .get("instructions")
        .ok_or(MessageError::Field("instructions"))?;
    let span = span.start - 1..span.end - 1;
    let text = unit.get(span.clone()).and_then(raw::string);
    let text = text.ok_or(MessageError::Field("instructions"))?;
    Ok(Unit::Instructions(text, span))
}

/// Reads one item, or a run of an answer's.
///
/// # Errors
/// [`MessageError`] where it is neither.
pub fn items(unit: &[u8]) -> Result<Vec<Item<'_>>, MessageError> {
    let whole = [b"[", unit, b"]"].concat();
    let spans = raw::array(&whole)?.into_iter();
    let inner = spans.filter_map(|span| unit.get(span.start - 1..span.end - 1));
    let items: Vec<Item<'_>> = inner.map(Item::read).collect::<Result<_, _>>()?;
    match items.as_slice() {
        [] => Err(MessageError::Shape(RawError::NotObject)),
        [_] => Ok(items),
        many if many.iter().all(|item| item.kind.is_answer()) => Ok(items),
        _ => Err(MessageError::Field("type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_told_apart_by_type() {
        let table = [
            (r#"{"role":"user"}"#, Kind::Message(Role::User)),
            (
                r#"{"type":"message","role":"developer"}"#,
                Kind::Message(Role::System),
            ),
            (r#"{"role":"critic"}"#, Kind::Message(Role::Other)),
            (r#"{"type": "reasoning","id":"rs_1"}"#, Kind::Reasoning),
            (r#"{"type":"item_reference","id":"rs_1"}"#, Kind::Reasoning),
            (r#"{"type":"item_reference","id":"msg_1"}"#, Kind::Fixed),
            (r#"{"type":"function_call"}"#, Kind::Call),
            (r#"{"type":"custom_tool_call"}"#, Kind::Call),
            (r#"{"type":"shell_call","call_id":"c"}"#, Kind::Call),
            (r#"{"type":"tool_search_call","call_id":null}"#, Kind::Fixed),
            (r#"{"type":"web_search_call","id":"ws_1"}"#, Kind::Fixed),
            (r#"{"type":"function_call_output"}"#, Kind::Result),
            (
                r#"{"type":"computer_call_output","call_id":"c"}"#,
                Kind::Result,
            ),
            (r#"{"type":"tool_search_output"}"#, Kind::Fixed),
            (r#"{"type":"mcp_list_tools"}"#, Kind::Fixed),
            (r#"{"type":"mcp_approval_response"}"#, Kind::Unknown),
            (r#"{"type":"compaction"}"#, Kind::Unknown),
            (r#"{"type":"compaction_trigger"}"#, Kind::Trigger),
            (r#"{"type":7}"#, Kind::Message(Role::Other)),
        ];
        for (json, kind) in table {
            assert_eq!(Item::read(json.as_bytes()).unwrap().kind, kind, "{json}");
            assert_eq!(Kind::peek(json.as_bytes()), kind, "{json}");
        }
        assert_eq!(Kind::peek(b"7"), Kind::Unknown);
    }

    #[test]
    fn texts_outside_the_items_are_told_apart() {
        assert!(matches!(read(br#""a \" b""#), Ok(Unit::Input(text)) if text == "a \" b"));
        let unit = br#""instructions" : "be \"brief\"""#;
        match read(unit).unwrap() {
            Unit::Instructions(text, span) => {
                assert_eq!(text, "be \"brief\"");
                assert_eq!(&unit[span], br#""be \"brief\"""#);
            }
            other => panic!("{other:?}"),
        }
        for bad in [
            &br#""instructions":7"#[..],
            br#""else":"x""#,
            br#""\ud800""#,
        ] {
            assert!(read(bad).is_err());
        }
    }

    #[test]
    fn only_the_items_of_an_answer_make_a_run() {
        let run = br#"{"type":"reasoning"} , {"type":"function_call"}"#;
        assert_eq!(items(run).unwrap().len(), 2);
        for bad in [
            &br#"{"type":"function_call"},{"type":"function_call_output"}"#[..],
            b"",
            b"7",
            br#"{"type":"a","type":"b"}"#,
        ] {
            assert!(items(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
