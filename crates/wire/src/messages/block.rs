//! Content blocks of the Messages format, and the form of a unit, which its bytes alone tell: the
//! system text, a whole message, one tool result, or a run of other blocks. Never counts blocks.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use plimsoll_model::raw::{self, Object, RawError};

use crate::blocks::Piece;
use crate::json;
use crate::message::{MessageError, ParsedCall};

/// The type of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// `text`, or content that is a string.
    Text,
    /// `thinking`.
    Thinking,
    /// `redacted_thinking`.
    Redacted,
    /// `tool_use`.
    Call,
    /// `tool_result`.
    Result,
    /// `image`.
    Image,
    /// `document`.
    Document,
    /// `search_result`.
    SearchResult,
    /// Anything else: what a server's own tool did, a reference to a tool, types of tomorrow.
    Other,
}

impl BlockType {
    /// What it is in an answer. The call of a server's own tool concerns the server and the client only.
    pub const fn piece(self) -> Piece {
        match self {
            Self::Text => Piece::Text,
            Self::Thinking | Self::Redacted => Piece::Reasoning,
            Self::Call => Piece::Call,
            Self::Result | Self::Image | Self::Document | Self::SearchResult | Self::Other => {
                Piece::Other
            }
        }
    }

    /// The type of a block with these members.
    pub fn of(block: &Object<'_>) -> Self {
        match block.text("type").unwrap_or_default().as_ref() {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::Redacted,
            "tool_use" => Self::Call,
            "tool_result" => Self::Result,
            "image" => Self::Image,
            "document" => Self::Document,
            "search_result" => Self::SearchResult,
            _ => Self::Other,
        }
    }
}

/// One block, borrowing from its bytes.
#[derive(Debug)]
pub struct Block<'a> {
    /// Its bytes: an object, or the string that is all of a content.
    pub raw: &'a [u8],
    /// What it is.
    pub kind: BlockType,
    /// Its members; `None` if it is a string.
    object: Option<Object<'a>>,
}

impl<'a> Block<'a> {
    /// Reads an element of a content.
    ///
    /// # Errors
    /// [`MessageError`] if it is no object, or has a key twice.
    pub fn read(raw: &'a [u8]) -> Result<Self, MessageError> {
        let object = Object::parse(raw).map_err(|_| MessageError::Field("content"))?;
        Self::of(raw, object)
    }

    fn of(raw: &'a [u8], object: Object<'a>) -> Result<Self, MessageError> {
        if object.has_duplicates() {
            return Err(MessageError::DuplicateKey);
        }
        let kind = BlockType::of(&object);
        Ok(Self {
            raw,
            kind,
            object: Some(object),
        })
    }

    /// Whether it is reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.kind.piece() == Piece::Reasoning
    }

    /// A member decoded, if it is a string.
    pub fn field(&self, key: &str) -> Option<Cow<'a, str>> {
        self.object.as_ref()?.text(key)
    }

    /// A member's bytes, if it is there and not null.
    pub fn member(&self, key: &str) -> Option<&'a [u8]> {
        self.object.as_ref()?.present(key)
    }

    /// A member that is an object.
    pub fn child(&self, key: &str) -> Option<Object<'a>> {
        self.object.as_ref()?.child(key)
    }

    /// The text of a block of text.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        if self.kind != BlockType::Text {
            return None;
        }
        match &self.object {
            Some(object) => object.text("text"),
            None => raw::string(self.raw),
        }
    }

    /// Whether it is an empty text.
    pub fn is_empty_text(&self) -> bool {
        self.text().is_some_and(|text| text.is_empty())
    }

    /// The call that it makes, its arguments as raw JSON.
    pub fn call(&self) -> ParsedCall<'a> {
        let input = self.member("input").unwrap_or(b"{}");
        ParsedCall {
            id: self.field("id").unwrap_or_default(),
            name: self.field("name").unwrap_or_default(),
            arguments: String::from_utf8_lossy(input),
        }
    }

    /// Whether a call was made by a server's own tool, whose state is elsewhere.
    pub fn is_by_server(&self) -> bool {
        let caller = self.child("caller");
        caller.is_some_and(|caller| caller.text("type").as_deref() != Some("direct"))
    }

    /// Its content taken apart; empty if it has none.
    ///
    /// # Errors
    /// As [`blocks`].
    pub fn content(&self) -> Result<Vec<Block<'a>>, MessageError> {
        self.member("content").map_or(Ok(Vec::new()), blocks)
    }

    /// The block with a member set.
    pub fn with(&self, key: &str, value: &[u8]) -> Option<Bytes> {
        Some(json::with(self.object.as_ref()?, key, value))
    }
}

/// A JSON string as a block of text.
pub fn text_of(string: &[u8]) -> Vec<u8> {
    [br#"{"type":"text","text":"#, string, b"}"].concat()
}

/// The blocks of a content: of an array its elements, of a string one of text. An empty string has
/// none.
///
/// # Errors
/// [`MessageError`] if it is neither, or if an element can't be read.
pub fn blocks(raw: &[u8]) -> Result<Vec<Block<'_>>, MessageError> {
    if raw.first() == Some(&b'"') {
        let bare = Block {
            raw,
            kind: BlockType::Text,
            object: None,
        };
        return Ok(if raw == b"\"\"" { vec![] } else { vec![bare] });
    }
    let elements = json::array(raw).ok_or(MessageError::Field("content"))?;
    elements.map(Block::read).collect()
}

/// The form of a unit.
#[derive(Debug)]
pub enum UnitForm<'a> {
    /// The text at the top of the request.
    System,
    /// A whole message.
    Message {
        /// Its `role`.
        role: Cow<'a, str>,
        /// The span of its content in the unit; `None` if it has none.
        content: Option<Range<usize>>,
    },
    /// One result of a message.
    Result(Block<'a>),
    /// Other blocks of a message that also holds results.
    Run,
}

/// A unit taken apart.
#[derive(Debug)]
pub struct Unit<'a> {
    /// Its form.
    pub form: UnitForm<'a>,
    /// Its blocks; of a result those of its content.
    pub blocks: Vec<Block<'a>>,
}

impl<'a> Unit<'a> {
    /// Reads a unit.
    ///
    /// # Errors
    /// [`MessageError`] if it has none of the forms, or if a block of it can't be read.
    pub fn read(bytes: &'a [u8]) -> Result<Self, MessageError> {
        if matches!(bytes.first(), Some(b'"' | b'[')) {
            return Ok(Self {
                form: UnitForm::System,
                blocks: blocks(bytes)?,
            });
        }
        let object = match Object::parse(bytes) {
            Ok(object) => object,
            Err(error) => return Self::run(bytes, error),
        };
        if object.has_duplicates() {
            return Err(MessageError::DuplicateKey);
        }
        if object.get("role").is_some() {
            return Self::message(&object);
        }
        let block = Block::of(bytes, object)?;
        if block.kind == BlockType::Result {
            return Ok(Self {
                blocks: block.content()?,
                form: UnitForm::Result(block),
            });
        }
        // An object with neither a role nor a type is a message that lacks its role.
        block.member("type").ok_or(MessageError::Field("role"))?;
        Ok(Self {
            form: UnitForm::Run,
            blocks: vec![block],
        })
    }

    fn message(object: &Object<'a>) -> Result<Self, MessageError> {
        let role = object.text("role").ok_or(MessageError::Field("role"))?;
        let content = object.present("content");
        Ok(Self {
            blocks: content.map_or(Ok(Vec::new()), blocks)?,
            form: UnitForm::Message {
                role,
                content: object.get("content"),
            },
        })
    }

    /// Several blocks with commas between them.
    fn run(bytes: &'a [u8], error: RawError) -> Result<Self, MessageError> {
        let blocks = json::run(bytes).map_err(|_| error)?;
        let blocks: Vec<Block<'_>> = blocks.map(Block::read).collect::<Result<_, _>>()?;
        if blocks.is_empty() {
            return Err(error.into());
        }
        Ok(Self {
            form: UnitForm::Run,
            blocks,
        })
    }

    /// Its texts one after the other.
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(Block::text).collect()
    }

    /// Its calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &Block<'a>> {
        self.blocks
            .iter()
            .filter(|block| block.kind == BlockType::Call)
    }
}
