//! The immutable record of one finished turn, and the snapshot that lists a whole path of them.
//! Written once, named by the hash of its bytes, never edited. Holds no client content; where that
//! is stored, it names it.

use super::{CallId, Digest, ItemNo, Kept, Mark, RecordId, Usage};
use serde::{Deserialize, Serialize};

/// What a record stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parent {
    /// The first turn of a conversation.
    Root,
    /// The turn before.
    Record(RecordId),
    /// A snapshot: the list of all records before this one.
    Snapshot(Digest),
}

/// The type that the agent gave an episode (paper 000 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EpisodeKind {
    /// Exploration: gathers information.
    Expl,
    /// Action: its effects persist in the environment.
    Act,
}

/// What a `delimiter` call did. The record keeps it, so that nothing is validated twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Opened an episode, closing the open one first where `auto_close` let it.
    Started {
        /// The episode's name, unique on the path.
        name: String,
        /// Its type.
        kind: EpisodeKind,
        /// Names of the closed expl episodes that it builds on.
        dependencies: Vec<String>,
    },
    /// Closed the open episode.
    Ended {
        /// The name of the episode that was closed.
        name: String,
        /// What was learned; an expl has one, an act has none.
        description: Option<String>,
    },
    /// Changed nothing: the result says why.
    Refused,
}

/// One call of a hidden tool, with the answer that it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenCall {
    /// The call's id as the provider issued it.
    pub id: CallId,
    /// Its place in the message's `tool_calls`, visible calls counted.
    pub place: u32,
    /// The call as a JSON object, byte for byte as it is sent upstream.
    pub bytes: String,
    /// Its arguments as the model wrote them.
    pub arguments: String,
    /// Tokens of name and arguments, and 8 for the call.
    pub tokens: u32,
    /// The text of the result.
    pub result: String,
    /// Its size in tokens.
    pub result_tokens: u32,
    /// What it did.
    pub effect: Effect,
    /// Whether its result carries a nudge.
    pub nudge: bool,
}

/// One upstream call of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The whole assistant message as sent upstream ever after; absent for the last hop, whose
    /// bytes the client resends.
    pub message: Option<String>,
    /// Whether that message has text, and its size in tokens.
    pub text: u32,
    /// Tokens of its reasoning fields.
    pub reasoning: u32,
    /// The hidden calls of the hop, in array order.
    pub calls: Vec<HiddenCall>,
    /// Marks that a pass before this hop moved.
    pub marks: Vec<(ItemNo, Mark)>,
    /// What that pass chose to leave of items that it did not take out whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(ItemNo, Kept)>,
    /// The size of the view that was sent, in tokens, before calibration.
    pub estimate: u64,
    /// What the provider reported.
    pub usage: Option<Usage>,
}

/// The record of one turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// What it stands on.
    pub parent: Parent,
    /// Its number on the path, from 1.
    pub turn: u32,
    /// The index of the visible response among the client's messages.
    pub position: u32,
    /// The number of the first item that the request added since the parent.
    pub base: ItemNo,
    /// The number of the first item of the response.
    pub first_item: ItemNo,
    /// The upstream calls, at least one.
    pub hops: Vec<Hop>,
    /// The text that earlier hops handed to the client, seams included.
    pub handed: String,
    /// The canonical digest of the visible response.
    pub visible: Digest,
    /// The digest of the visible text, white space trimmed.
    pub trimmed: Digest,
    /// Ids and tool names of the visible calls.
    pub calls: Vec<(CallId, String)>,
    /// Whether the request carried tools: only then was injection decided.
    pub tooled: bool,
    /// The name under which `delimiter` was injected; none where it was not.
    pub injected: Option<String>,
    /// The digest of the system text and the tools, for noticing that the cache went cold.
    pub prologue: Digest,
    /// The model that was asked.
    pub model: String,
    /// When the last hop ended, in milliseconds since 1970.
    pub ended: u64,
    /// Whether a nudge has been given since the last pass.
    pub nudged: bool,
    /// The name under which the client knows the session; empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// The turn's [`Content`], where the operator has it stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
}

/// What of the client's was stored with a turn. With the contents of the turns before it, back to
/// the last that begins at 0, it gives the client's whole history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The index of the first message that is listed; those before it are in earlier turns.
    pub from: u32,
    /// The client's messages from there on, byte for byte.
    pub messages: Vec<Digest>,
    /// The visible response, until the next turn's request brings it as the client keeps it.
    pub answer: Digest,
    /// The client's tools array.
    pub tools: Option<Digest>,
}

/// One step of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The record.
    pub record: RecordId,
    /// Where its visible response stands among the client's messages now.
    pub position: u32,
    /// The number of the first item before it that no earlier record covers.
    pub base: ItemNo,
}

/// A path of records, written every so often to bound the fold, and whenever a client's edit had
/// to be aligned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The records in order.
    pub steps: Vec<Step>,
    /// Every mark that was moved up to here, by records that an edit dropped too: marks are sticky.
    pub marks: Vec<(ItemNo, Mark)>,
    /// What is left of the items that are shown in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(ItemNo, Kept)>,
    /// The first item number that is free.
    pub next: ItemNo,
}
