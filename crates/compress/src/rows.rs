//! A body as rows: where each lies, whose it is, how many tokens it has, and the text of a tool's result. Owns
//! what of a row may be replaced. Never changes a byte, and never judges whether calls and results belong
//! together: a guardrail may hold back the rows that made the calls.

use std::borrow::Cow;

use plimsoll_model::raw::{Object, RawError, Span, array, quote, shift};
use plimsoll_model::{Digest, MESSAGE_TOKENS};
use plimsoll_tokens::{Encoding, UNREADABLE_IMAGE, image_tokens};

/// The most rows of a call. A session of an agent has some thousand.
pub const MOST_ROWS: usize = 20_000;

/// What is wrong with a body.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is no JSON object.
    #[error("{0}")]
    Json(#[from] RawError),
    /// It has no rows.
    #[error("send `messages`, a list of Chat Completions rows")]
    NoRows,
    /// A row is no object.
    #[error("messages[{0}] must be an object with a role")]
    Row(usize),
    /// It has too many.
    #[error("send at most {MOST_ROWS} rows; this is {0}")]
    Many(usize),
}

/// A body whose rows were found.
pub struct Rows<'a> {
    /// The bytes of the body, into which all spans are.
    pub body: &'a [u8],
    /// The rows in order.
    pub rows: Vec<Row<'a>>,
    /// The model that the caller names.
    pub model: Option<Cow<'a, str>>,
}

/// One row.
pub struct Row<'a> {
    /// Where it lies.
    pub span: Span,
    /// Its tokens.
    pub tokens: u32,
    /// Who said it.
    pub said: Said<'a>,
}

/// Who said a row, as far as it matters here.
pub enum Said<'a> {
    /// The model.
    Assistant,
    /// A tool, with what of it can be replaced.
    Tool(ToolResult<'a>),
    /// Anybody else.
    Other,
}

/// The result of a tool.
pub struct ToolResult<'a> {
    /// A name that the row keeps from call to call.
    pub digest: Digest,
    /// The text, and where it stands. `None` if it is no text, or if it is not clear which one it is.
    pub text: Option<ToolText<'a>>,
}

/// The text of a result.
pub struct ToolText<'a> {
    /// The original as it is brought back.
    pub original: Cow<'a, str>,
    /// Where its JSON stands in the body.
    pub span: Span,
    /// Whether it is a list of parts and not a string.
    listed: bool,
}

impl ToolText<'_> {
    /// A text in its place, as JSON of the same form.
    pub fn json(&self, text: &str) -> String {
        let text = quote(text);
        match self.listed {
            true => format!("[{{\"type\":\"text\",\"text\":{text}}}]"),
            false => text,
        }
    }
}

/// Counts the tokens of a text.
pub type Count<'c> = &'c dyn Fn(&str) -> u32;

/// The model and the places of the rows of a body.
fn split(body: &[u8]) -> Result<(Object<'_>, Vec<Span>), BodyError> {
    let (whole, rows) = Object::parse_with_array(body, "messages")?;
    let rows = rows.ok_or(BodyError::NoRows)?.spans;
    match rows.len() {
        0..=MOST_ROWS => Ok((whole, rows)),
        many => Err(BodyError::Many(many)),
    }
}

impl<'a> Rows<'a> {
    /// Reads a body. `encoding` tells how a model's tokens are counted, and `count` counts them.
    ///
    /// # Errors
    /// [`BodyError`] if it is not what the form asks for.
    pub fn read(
        body: &'a [u8],
        encoding: impl Fn(Option<&str>) -> Encoding,
        count: impl Fn(Encoding, &str) -> u32,
    ) -> Result<Self, BodyError> {
        let (whole, spans) = split(body)?;
        let model = whole.text("model");
        let encoding = encoding(model.as_deref());
        let count = |text: &str| count(encoding, text);
        let mut rows = Vec::with_capacity(spans.len());
        for (place, span) in spans.into_iter().enumerate() {
            let bytes = body.get(span.clone()).unwrap_or_default();
            let object = Object::parse(bytes).map_err(|_| BodyError::Row(place))?;
            let role = object.text("role").ok_or(BodyError::Row(place))?;
            rows.push(Row {
                tokens: tokens(&object, &count),
                said: said(&role, &object, span.start),
                span,
            });
        }
        Ok(Self { body, rows, model })
    }
}

fn said<'a>(role: &str, row: &Object<'a>, start: usize) -> Said<'a> {
    match role {
        "assistant" => Said::Assistant,
        "tool" => {
            let call = row.text("tool_call_id").unwrap_or_default();
            let text = text(row, start);
            let content = match &text {
                Some(text) => text.original.as_bytes(),
                None => row.raw("content").unwrap_or_default(),
            };
            Said::Tool(ToolResult {
                digest: Digest::of(&[call.as_bytes(), content]),
                text,
            })
        }
        _ => Said::Other,
    }
}

/// The text of a tool's row: a string, or a list of texts alone. Of several texts the original is the list itself,
/// so that nothing of it is lost.
fn text<'a>(row: &Object<'a>, start: usize) -> Option<ToolText<'a>> {
    if row.has_duplicates() {
        return None;
    }
    let span = row.get("content")?;
    let raw = row.bytes().get(span.clone())?;
    let span = shift(&span, start);
    if let Some(original) = plimsoll_model::raw::string(raw) {
        return Some(ToolText {
            original,
            span,
            listed: false,
        });
    }
    let parts = array(raw).ok()?;
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        let part = Object::parse(raw.get(part)?).ok()?;
        let is_text = part.text("type").is_some_and(|kind| kind == "text");
        texts.push(part.text("text").filter(|_| is_text)?);
    }
    let original = match texts.len() {
        0 => return None,
        1 => texts.pop()?,
        _ => Cow::Borrowed(std::str::from_utf8(raw).ok()?),
    };
    Some(ToolText {
        original,
        span,
        listed: true,
    })
}

/// The tokens of a row: its texts, its pictures, and all else as it stands there, calls among them.
fn tokens(row: &Object<'_>, count: Count<'_>) -> u32 {
    let mut all = MESSAGE_TOKENS;
    for member in row.members() {
        let raw = row.bytes().get(member.value.clone()).unwrap_or_default();
        let size = match member.key.as_ref() {
            "role" | "tool_call_id" => 0,
            "content" => content_tokens(raw, count),
            _ => count(&String::from_utf8_lossy(raw)),
        };
        all = all.saturating_add(size);
    }
    all
}

fn content_tokens(raw: &[u8], count: Count<'_>) -> u32 {
    if let Some(text) = plimsoll_model::raw::string(raw) {
        return count(&text);
    }
    let Ok(parts) = array(raw) else {
        return count(&String::from_utf8_lossy(raw));
    };
    let parts = parts.into_iter().filter_map(|part| raw.get(part));
    let size = |part: &[u8]| match Object::parse(part) {
        Ok(part) => part_tokens(&part, count),
        Err(_) => count(&String::from_utf8_lossy(part)),
    };
    parts.map(size).fold(0, u32::saturating_add)
}

fn part_tokens(part: &Object<'_>, count: Count<'_>) -> u32 {
    if let Some(text) = part.text("text") {
        return count(&text);
    }
    let image = part.child("image_url");
    let detail = image.as_ref().and_then(|image| image.text("detail"));
    match image.as_ref().and_then(|image| image.text("url")) {
        Some(url) => image_tokens(&url, detail.as_deref()),
        // Sound and files are no text, and nobody says how long they are.
        None => UNREADABLE_IMAGE,
    }
}
