//! Messages as the middle knows them: roles, items, marks and sizes, whatever the dialect. Never
//! holds a client's text; only its shape, its canonical digest and its size in tokens.

use std::fmt;

use super::{CallId, Digest};

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `system` or `developer`.
    System,
    /// `user`.
    User,
    /// `assistant`.
    Assistant,
    /// `tool`: the result of one call.
    Tool,
    /// A role that the dialect does not know: passed on, never evicted.
    Other,
}

/// What an item is. See the design's vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// System or developer text: never evicted.
    System,
    /// User text: never evicted.
    User,
    /// Assistant text.
    Text,
    /// Reasoning of a model.
    Reasoning,
    /// A tool call; it lives and dies with its result.
    Call,
    /// The result of a call.
    Result,
    /// Whatever has no place in the above: never evicted.
    Opaque,
}

/// The number of an item, given when it is first seen and kept for good. A call and its result
/// share one.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct ItemNo(pub u32);

impl ItemNo {
    /// The number behind a span of so many.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl fmt::Display for ItemNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One call of an assistant message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallShape {
    /// The id that the provider issued; may be empty or repeated.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// Tokens of name and arguments, and 8 for the call itself.
    pub tokens: u32,
    /// A digest of name and canonical arguments: equal for the same call made again.
    pub digest: u64,
}

/// What is known of one client message without its bytes. Made once a message and remembered by
/// the digest of its raw bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Who speaks.
    pub role: Role,
    /// The digest of the canonical projection; equal for equal meaning, whatever the bytes.
    pub canonical: Digest,
    /// The calls of an assistant message, in array order.
    pub calls: Vec<CallShape>,
    /// The call that a tool message answers.
    pub result_of: Option<CallId>,
    /// Tokens of text, images and everything else that is not a call or reasoning.
    pub text: u32,
    /// Tokens of reasoning fields.
    pub reasoning: u32,
    /// True where the message holds something that must never be dropped or edited, such as a
    /// legacy `function_call`.
    pub opaque: bool,
}

/// Tokens that a message costs beside its contents (design §7).
pub const MESSAGE_TOKENS: u32 = 4;
/// Tokens that a call costs beside its name and arguments (design §7).
pub const CALL_TOKENS: u32 = 8;

impl Shape {
    /// The size of the whole message in tokens by the formula of design §7.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        let calls: u32 = self.calls.iter().map(|call| call.tokens).sum();
        MESSAGE_TOKENS + self.text + self.reasoning + calls
    }
}

/// What a tool is for, which decides the level at which its results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolClass {
    /// Search results and listings.
    Bulk,
    /// Reads of a file or a page.
    Read,
    /// Commands.
    Shell,
    /// Edits and writes.
    Write,
    /// Anything that no list names.
    Unknown,
}

/// How the client's message relates to the text that earlier hops of its turn handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// Earlier hops handed out nothing.
    Nothing,
    /// The message starts with it: the last hop's own text is what follows.
    Front,
    /// The message's first blocks are it; the last hop's own blocks stand behind them, its reasoning
    /// among them.
    Split,
    /// The message is exactly it: the last hop has no text of its own.
    All,
    /// The client changed it: the message goes whole, and the earlier hops' text is left out.
    Changed,
}
