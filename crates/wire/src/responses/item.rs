//! One item of the wire: its type, its role, and its contents. A unit is one item, a run of an
//! answer's items with the commas between them, or a text that stands outside all items. Never
//! counts or compares items.

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::Role;
use plimsoll_model::raw::{self, Object, RawError, Span};

use crate::blocks::Piece;
use crate::json;
use crate::message::{MessageError, ParsedCall, Part, as_text};

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemType {
    /// A message of this role.
    Message(Role),
    /// Reasoning, or a reference to some that the provider keeps.
    Reasoning,
    /// A call that the client answers.
    Call,
    /// A deed of the provider's own tools, or a reference to what the provider keeps: said by the
    /// model, and not to be edited.
    Fixed,
    /// The result of a call.
    Result,
    /// Declares tools from here on, as the system does.
    Tools,
    /// Asks the provider to compact the conversation.
    Trigger,
    /// Anything else, such as what the provider compacted.
    Unknown,
}

impl ItemType {
    /// Whether it is a part of an answer. Neighbouring parts of an answer are one unit.
    pub const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::Message(Role::Assistant) | Self::Reasoning | Self::Call | Self::Fixed
        )
    }

    /// What it is in an answer.
    pub const fn piece(self) -> Piece {
        match self {
            Self::Message(_) => Piece::Text,
            Self::Reasoning => Piece::Reasoning,
            Self::Call => Piece::Call,
            Self::Fixed | Self::Result | Self::Tools | Self::Trigger | Self::Unknown => {
                Piece::Other
            }
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
            Some("additional_tools") => Self::Tools,
            Some("compaction_trigger") => Self::Trigger,
            // A tool that runs at the provider has no id by which the client could answer.
            Some(other) if other.ends_with("_call") && named("call_id") => Self::Call,
            Some(other) if other.ends_with("_output") && named("call_id") => Self::Result,
            Some(other) if other.ends_with("_call") || other.ends_with("_output") => Self::Fixed,
            Some(_) => Self::Unknown,
        }
    }

    /// The type of an item and the span of the tools that it declares, without reading the whole
    /// item if it begins with a type that declares none.
    pub fn peek(raw: &[u8]) -> (Self, Option<Span>) {
        match leading_type(raw) {
            Some(b"reasoning") => (Self::Reasoning, None),
            Some(b"function_call" | b"custom_tool_call") => (Self::Call, None),
            Some(b"function_call_output" | b"custom_tool_call_output") => (Self::Result, None),
            Some(_) | None => match Object::parse(raw) {
                Ok(object) => {
                    let kind = Self::of(&object);
                    (kind, kind.declared(&object))
                }
                Err(_) => (Self::Unknown, None),
            },
        }
    }

    /// The span of the array of tools that an item of this type declares: those that the client adds,
    /// that a search found, or that a server of tools listed.
    fn declared(self, object: &Object<'_>) -> Option<Span> {
        match self {
            Self::Tools | Self::Result | Self::Fixed | Self::Unknown => {
                let array = object.raw("tools").is_some_and(|raw| raw.starts_with(b"["));
                object.get("tools").filter(|_| array)
            }
            Self::Message(_) | Self::Reasoning | Self::Call | Self::Trigger => None,
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
pub struct ResponsesItem<'a> {
    /// What it is.
    pub kind: ItemType,
    /// Its members.
    pub object: Object<'a>,
}

impl<'a> ResponsesItem<'a> {
    /// Reads an item.
    ///
    /// # Errors
    /// [`MessageError`] if it is no object, or has a key twice.
    pub fn read(raw: &'a [u8]) -> Result<Self, MessageError> {
        let object = Object::parse(raw)?;
        if object.has_duplicates() {
            return Err(MessageError::DuplicateKey);
        }
        Ok(Self {
            kind: ItemType::of(&object),
            object,
        })
    }

    /// Its bytes.
    pub fn raw(&self) -> &'a [u8] {
        self.object.bytes()
    }

    /// The tools that it declares, as they stand. They are counted as the text that the model reads.
    pub fn tools(&self) -> Option<Part<'a>> {
        let raw = self.raw().get(self.kind.declared(&self.object)?)?;
        std::str::from_utf8(raw)
            .ok()
            .map(|tools| Part::Text(tools.into()))
    }

    /// The provider's name for the item.
    pub fn id(&self) -> Option<Cow<'a, str>> {
        self.object.text("id").filter(|id| !id.is_empty())
    }

    /// The id of the call that it makes or answers.
    pub fn call_id(&self) -> Option<Cow<'a, str>> {
        // A local shell's result bears the call's id as its own.
        self.object
            .text("call_id")
            .or_else(|| self.object.text("id"))
    }

    /// The call that it makes. The type names the call of a tool without a name, and its arguments
    /// are the member that says what to do.
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

    /// The texts that the commands of a built-in shell wrote. A `shell_call_output` lists the
    /// `stdout`, the `stderr` and the `outcome` of each command
    /// (<https://platform.openai.com/docs/guides/tools-shell>). `None` for any other output.
    pub fn shell(&self) -> Option<Vec<Part<'a>>> {
        if self.object.text("type").as_deref() != Some("shell_call_output") {
            return None;
        }
        let commands = json::array(self.object.present("output")?)?;
        let commands: Vec<Object<'a>> = commands
            .map(|command| Object::parse(command).ok())
            .collect::<Option<_>>()?;
        let streams = commands
            .iter()
            .flat_map(|command| [command.text("stdout"), command.text("stderr")]);
        let said = streams.flatten().filter(|text| !text.is_empty());
        (!commands.is_empty()).then(|| said.map(Part::Text).collect())
    }

    /// The output of a built-in shell with another text: as if the newest command alone had run and
    /// had written that.
    pub fn shell_saying(&self, text: &str) -> Option<Bytes> {
        self.shell()?;
        let newest = json::objects(self.object.present("output")?).last()?;
        let text = raw::quote(text);
        let mut edits = vec![newest.set("stdout", text.as_bytes())];
        if newest.present("stderr").is_some() {
            edits.push(newest.set("stderr", b"\"\""));
        }
        Some(json::list(&[json::splice(newest.bytes(), edits)]))
    }

    /// The parts of its content, or of its output.
    ///
    /// # Errors
    /// [`MessageError::Field`] if they are not what the API allows.
    pub fn parts(&self) -> Result<Vec<Part<'a>>, MessageError> {
        let field = match self.kind == ItemType::Result {
            true => "output",
            false => "content",
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
            _ => {
                let parts = json::array(raw).ok_or(wrong)?;
                parts.map(|raw| part(raw, field)).collect()
            }
        }
    }

    /// The text of a message, without refusals.
    pub fn said(&self) -> String {
        let Some(raw) = self.object.present("content") else {
            return String::new();
        };
        if raw.first() == Some(&b'"') {
            return raw::string(raw).unwrap_or_default().into_owned();
        }
        json::objects(raw)
            .filter_map(|part| part.text("text"))
            .collect()
    }

    /// Its bytes as a message that says only `rest`, the end of its text: parts before that go, and
    /// the part in which it begins is cut. `None` if its text does not end like that.
    pub fn saying(&self, rest: &str) -> Option<Bytes> {
        let raw = self.object.present("content")?;
        if raw.first() == Some(&b'"') {
            return Some(json::with_text(&self.object, "content", rest));
        }
        let mut before = self.said().strip_suffix(rest)?.len();
        let mut parts: Vec<Cow<'_, [u8]>> = Vec::new();
        for bytes in json::array(raw)? {
            let part = Object::parse(bytes).ok()?;
            let text = part.text("text").unwrap_or_default();
            if text.is_empty() || before == 0 {
                parts.push(Cow::Borrowed(bytes));
            } else if text.len() > before {
                let text = raw::quote(text.get(before..)?);
                // Annotations and logprobs name places in the old text.
                let noted = ["annotations", "logprobs"].into_iter();
                let noted = noted.filter(|key| part.present(key).is_some());
                let mut edits = vec![part.set("text", text.as_bytes())];
                edits.extend(noted.map(|key| part.set(key, b"[]")));
                parts.push(Cow::Owned(json::splice(bytes, edits).to_vec()));
                before = 0;
            } else {
                before -= text.len();
            }
        }
        Some(json::with(&self.object, "content", &json::list(&parts)))
    }

    /// Its bytes as a message with another text, in the form that its content has.
    pub fn instead(&self, text: &str) -> Bytes {
        let text = raw::quote(text);
        let raw = self.object.present("content");
        let content = if raw.is_some_and(|raw| raw.first() == Some(&b'[')) {
            format!(r#"[{{"type":"output_text","text":{text},"annotations":[]}}]"#)
        } else {
            text
        };
        json::with(&self.object, "content", content.as_bytes())
    }

    /// The texts of its reasoning that can be read.
    pub fn thoughts(&self) -> Vec<Cow<'a, str>> {
        let fields = ["summary", "content"].into_iter();
        let parts =
            fields.flat_map(|key| json::objects(self.object.present(key).unwrap_or_default()));
        let texts = parts.filter_map(|part| part.text("text"));
        texts.filter(|text| !text.is_empty()).collect()
    }

    /// How many of its bytes only the provider can read.
    pub fn sealed(&self) -> usize {
        let raw = self.object.present("encrypted_content");
        raw.map_or(0, |raw| raw.len().saturating_sub(2))
    }
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

/// A unit, by its form.
#[derive(Debug)]
pub enum Unit<'a> {
    /// The member `instructions` with its key: its text, and the span of the string.
    Instructions(Cow<'a, str>, Span),
    /// An input that is a string.
    Input(Cow<'a, str>),
    /// One item, or a run of an answer's.
    Items(Vec<ResponsesItem<'a>>),
}

/// Reads a unit.
///
/// # Errors
/// [`MessageError`] if it is no unit.
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
/// [`MessageError`] if it is neither.
pub fn items(unit: &[u8]) -> Result<Vec<ResponsesItem<'_>>, MessageError> {
    let run = json::run(unit)?;
    let items: Vec<ResponsesItem<'_>> = run.map(ResponsesItem::read).collect::<Result<_, _>>()?;
    match items.as_slice() {
        [] => Err(MessageError::Shape(RawError::NotObject)),
        [_] => Ok(items),
        many if many.iter().all(|item| item.kind.is_answer()) => Ok(items),
        _ => Err(MessageError::Field("type")),
    }
}

#[cfg(test)]
mod tests;
