//! Messages as the middle knows them: roles, items and sizes, in any dialect. Never holds a
//! client's text, only its shape, its canonical digest and its size in tokens.

use std::fmt;

use super::{CallId, Digest, label_set};

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
    /// A tool call. It is shown or evicted together with its result.
    Call,
    /// The result of a call.
    Result,
    /// Anything else: never evicted.
    Opaque,
}

/// The number of an item, which is given when the item is first seen and never changes. A call and
/// its result have the same number.
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
    /// The number that is so many higher.
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
    /// A digest of name and canonical arguments, which is equal if the same call is made again.
    pub digest: u64,
}

/// What is known of one client message without its bytes. Made once for each message and cached by
/// the digest of its raw bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Who speaks.
    pub role: Role,
    /// The digest of the canonical projection; equal for equal meaning, whatever the bytes.
    pub canonical: Digest,
    /// The canonical digest with the ids of calls left blank: equal if only those differ.
    pub nameless: Digest,
    /// The calls of an assistant message, in array order.
    pub calls: Vec<CallShape>,
    /// The call that a tool message answers.
    pub result_of: Option<CallId>,
    /// Tokens of text, images and everything else that is not a call or reasoning.
    pub text: u32,
    /// Tokens of reasoning fields.
    pub reasoning: u32,
    /// Whether the message has something that must never be dropped or edited, such as a legacy
    /// `function_call`.
    pub opaque: bool,
    /// Whether it is a result of a form of its own, which goes with its call or stays as it is.
    pub whole: bool,
    /// Whether all of its text is white space, which no provider takes for a message.
    pub blank: bool,
}

/// Tokens of a message in addition to its contents (design §7).
pub const MESSAGE_TOKENS: u32 = 4;
/// Tokens of a call in addition to its name and arguments (design §7).
pub const CALL_TOKENS: u32 = 8;

impl Shape {
    /// The size of the whole message in tokens by the formula of design §7.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        let calls: u32 = self.calls.iter().map(|call| call.tokens).sum();
        MESSAGE_TOKENS + self.text + self.reasoning + calls
    }
}

label_set!(
    /// What a tool is for. This decides the level at which its results are evicted.
    ToolClass {
        /// Search results and listings.
        Bulk => "bulk",
        /// Reads of a file or a page.
        Read => "read",
        /// Commands.
        Shell => "shell",
        /// Edits and writes.
        Write => "write",
        /// Anything that no list names.
        Unknown => "unknown",
    }
);

/// How the client's message of a turn relates to the text that earlier hops of the turn handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// Earlier hops handed out nothing.
    Nothing,
    /// The message starts with that text. The rest is the last hop's own.
    Front,
    /// The first blocks of the message are that text. The last hop's own blocks follow, including
    /// its reasoning.
    Split,
    /// The message is exactly that text. The last hop has no text of its own.
    All,
    /// The client changed that text. The message is sent whole, and the text of the earlier hops is
    /// left out.
    Changed,
}
