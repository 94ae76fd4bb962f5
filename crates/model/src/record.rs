//! The immutable record of one finished turn, and the snapshot that lists a path of them. A record
//! is written once, is named by the hash of its bytes, and is never edited. It holds no client
//! content; if that is stored, the record names it.

use super::{
    CallId, Choice, Digest, Edits, Guide, ItemNo, Kept, PassFacts, PinMove, RecordId, SplitPlace,
    StoredMark, TurnFacts, TurnSums, Usage,
};
use serde::{Deserialize, Serialize};

/// The predecessor of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parent {
    /// The first turn of a conversation.
    #[default]
    Root,
    /// The turn before.
    Record(RecordId),
    /// A snapshot: the list of all records before this one.
    Snapshot(Digest),
}

/// The type that the agent gave an episode (paper 000 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExplicitKind {
    /// Exploration: gathers information.
    Expl,
    /// Action: its effects persist in the environment.
    Act,
}

/// What a hidden call did. The record keeps it, so that nothing is validated twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Opened an episode. With `auto_close` it closed the open one first.
    Started {
        /// The episode's name, unique on the path.
        name: String,
        /// Its type.
        kind: ExplicitKind,
        /// Names of the closed expl episodes that it builds on.
        dependencies: Vec<String>,
    },
    /// Closed the open episode.
    Ended {
        /// The name of the episode that was closed.
        name: String,
        /// What was learned. An expl has a description, an act has none.
        description: Option<String>,
    },
    /// Brought evicted originals back, which are in the result.
    Recalled {
        /// The id, as it was asked for.
        id: String,
        /// The originals that are whole in the result.
        originals: Vec<Original>,
        /// The size of the result in tokens.
        tokens: u32,
        /// Whether it stays in view until the episode that it is in ends.
        pinned: bool,
    },
    /// Changed nothing. The result says why.
    Refused,
}

/// The place of an original in the result of the `recall` that brought it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// The item.
    pub item: ItemNo,
    /// Its first byte.
    pub start: u32,
    /// The byte after its last.
    pub end: u32,
}

/// A tool that the proxy adds and answers itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HiddenTool {
    /// Marks episodes.
    #[default]
    Delimiter,
    /// Brings back what was evicted.
    Recall,
}

/// One call of a hidden tool, with the answer that it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenCall {
    /// The call's id, from the provider, or one of ours if that was unusable.
    pub id: CallId,
    /// Its place among all calls of the message, visible calls included.
    pub place: u32,
    /// The call as a JSON object, byte for byte as it is sent upstream.
    pub bytes: String,
    /// Its arguments as the model wrote them.
    pub arguments: String,
    /// Tokens of name and arguments, and 8 for the call.
    pub tokens: u32,
    /// The text of the result.
    pub result: String,
    /// Parts of the result that are no text, as JSON: what a recall brought back beside the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<String>,
    /// Its size in tokens.
    pub result_tokens: u32,
    /// What it did.
    pub effect: Effect,
    /// Whether its result carries a nudge.
    pub nudge: bool,
    /// Whether its result says what can be recalled of histories that the client dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells: bool,
    /// The tool that was called. Records from when there was one hidden tool don't say.
    #[serde(default)]
    pub tool: HiddenTool,
    /// Its place among all blocks of its hop's message, and the number of blocks. None in a dialect
    /// without blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<(u32, u32)>,
    /// Whether reasoning of its message signed it. At the client that signature is on the next
    /// call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
}

/// One upstream call of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredHop {
    /// The whole assistant message, which every later request sends. None for the last hop, whose
    /// bytes the client resends.
    pub message: Option<String>,
    /// The size of its text in tokens; 0 if it has none.
    pub text: u32,
    /// Tokens of its reasoning fields.
    pub reasoning: u32,
    /// The hidden calls of the hop, in array order.
    pub calls: Vec<HiddenCall>,
    /// Marks that a pass before this hop moved.
    pub marks: Vec<(ItemNo, StoredMark)>,
    /// What that pass kept of items that it did not remove whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(ItemNo, Kept)>,
    /// The size of the view that was sent, in tokens, before calibration.
    pub estimate: u64,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// Tokens that are left of each item whose mark was moved, in the order of `marks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<u32>,
    /// What the pass before this hop did. None if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Box<PassFacts>>,
    /// What its reasoning is bound to. None without reasoning, and for models that don't bind theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<Box<BoundTo>>,
    /// Whether the client was shown nothing of it, because it reads the turn as one text and a later hop said another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unshown: bool,
    /// Whether its message must never be edited, as one with deeds of a server's own tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opaque: bool,
}

/// What a model had before it when it thought. Its provider takes the thought back only behind the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundTo {
    /// The digest of tools, system text and messages, thoughts left out.
    pub prefix: Digest,
    /// The prefix of the thought before it in that request; none if it was the first.
    pub thought: Option<Digest>,
}

impl TurnRecord {
    /// What its turn and all turns of its branch before it came to.
    #[must_use]
    pub fn sums(&self) -> TurnSums {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let calls = self.hops.iter().flat_map(|hop| &hop.calls);
        let recalled = calls.filter(
            |call| matches!(&call.effect, Effect::Recalled { originals, .. } if !originals.is_empty()),
        );
        let mut sums = self.facts.sums;
        sums.turns += 1;
        sums.over += u32::from(self.facts.over);
        sums.passes += count(self.hops.iter().filter(|hop| hop.is_passed()).count());
        sums.hops += count(self.hops.len().saturating_sub(1));
        sums.recalls += count(recalled.count());
        sums.needed.add(&self.facts.needed);
        if let Some(account) = &self.facts.account {
            sums.add(account);
        }
        sums
    }

    /// What its conversation is served under.
    #[must_use]
    pub fn choice(&self) -> Choice {
        Choice {
            profile: self.profile.clone(),
            split: self.split.clone(),
        }
    }

    /// The messages of its earlier hops that the client was shown, as they are stored.
    #[must_use]
    pub fn handed_out(&self) -> Vec<&str> {
        let earlier = self.hops.iter().take(self.hops.len().saturating_sub(1));
        let shown = earlier.filter(|hop| !hop.unshown);
        shown.filter_map(|hop| hop.message.as_deref()).collect()
    }
}

impl StoredHop {
    /// Whether a pass ran before it. A rung for new results moves marks as well.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.pass.is_some()
    }
}

/// The record of one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Its predecessor.
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
    pub hops: Vec<StoredHop>,
    /// The text that earlier hops handed to the client, including the text between them.
    pub handed: String,
    /// The canonical digest of the visible response.
    pub visible: Digest,
    /// The digest of the visible text without white space.
    #[serde(rename = "trimmed")]
    pub bare: Digest,
    /// Ids and tool names of the visible calls.
    pub calls: Vec<(CallId, String)>,
    /// Whether the request had tools. Only then was injection decided.
    pub tooled: bool,
    /// The name under which `delimiter` was injected; none if it was not.
    pub injected: Option<String>,
    /// The name under which `recall` was injected; none if it was not.
    pub recall: Option<String>,
    /// The digest of the system text and the tools. A change means that the cache is cold.
    pub prologue: Digest,
    /// The model that was asked.
    pub model: String,
    /// When the last hop ended, in milliseconds since 1970.
    pub ended: u64,
    /// How long the request asked the provider to keep what it caches, in seconds; 0 if it left that to the provider.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_for: u32,
    /// Whether a nudge has been given since the last pass.
    pub nudged: bool,
    /// The name under which the client knows the session.
    pub session: String,
    /// The name of the parent session, if the client says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<String>,
    /// The turn's [`Content`], if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
    /// Edits that the upstream was known to refuse for this model. The turn's view did without
    /// them.
    #[serde(default, skip_serializing_if = "Edits::is_empty")]
    pub without: Edits,
    /// What the conversation was told of its hidden tools. Meaningless for a request without tools.
    #[serde(default, skip_serializing_if = "Guide::is_default")]
    pub guide: Guide,
    /// Pins that the turn set or lifted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinMove>,
    /// The histories that the client had dropped when its conversation began anew: of each the newest record,
    /// oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<RecordId>,
    /// The profile with which the conversation began. None if it began without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The place of its session in a split. None if it is in no split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitPlace>,
    /// What is shown of the turn.
    pub facts: Box<TurnFacts>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Where a message of the client's content is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// By itself, under the digest of its bytes.
    Alone(Digest),
    /// Under this digest with other short messages that came with it, and at this place among them.
    Among(Digest, u16),
}

impl Said {
    /// The blob that holds it.
    #[must_use]
    pub fn blob(self) -> Digest {
        let (Self::Alone(blob) | Self::Among(blob, _)) = self;
        blob
    }
}

/// The client's content that was stored with a turn. Together with the contents of the turns before
/// it, back to the last that begins at 0, it is the client's whole history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The index of the first message that is listed; those before it are in earlier turns.
    pub from: u32,
    /// The client's messages from there on, byte for byte.
    pub messages: Vec<Said>,
    /// The visible response as the proxy sent it. The next turn's request brings it as the client
    /// keeps it.
    pub answer: Digest,
    /// The client's tools array.
    pub tools: Option<Digest>,
}

/// One record in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// The record.
    pub record: RecordId,
    /// The index of its visible response among the client's messages now.
    pub position: u32,
    /// The number of the first item before it that no earlier record covers.
    pub base: ItemNo,
}

/// A path of records. One is written every so often to bound the fold, and whenever a path was
/// aligned to an edit of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The records in order.
    pub steps: Vec<SnapshotEntry>,
    /// Every mark that was moved so far, including those of records that an edit dropped: marks are
    /// kept.
    pub marks: Vec<(ItemNo, StoredMark)>,
    /// What is kept of the items that are shown in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(ItemNo, Kept)>,
    /// The first item number that is free.
    pub next: ItemNo,
    /// What the conversation was told of its hidden tools, including by records that an edit
    /// dropped. None if no request had tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guide: Option<Guide>,
    /// The pinned items, the oldest pin first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<ItemNo>,
    /// The histories that the client has dropped so far: of each the newest record, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<RecordId>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Held;
    use crate::tests::is_fixture;

    /// A record like most.
    fn newest() -> TurnRecord {
        let call = |id: &str, place, tool, effect| HiddenCall {
            id: CallId(id.to_owned()),
            place,
            bytes: format!(r#"{{"id":"{id}","type":"function"}}"#),
            arguments: r#"{"id":"read:3"}"#.to_owned(),
            tokens: 11,
            result: "recalled read:3: 1 line\nfn main() {}".to_owned(),
            pictures: Vec::new(),
            result_tokens: 12,
            effect,
            nudge: false,
            tells: false,
            tool,
            block: None,
            signed: false,
        };
        let (item, start, end) = (ItemNo(3), 24, 36);
        let recalled = Effect::Recalled {
            id: "read:3".to_owned(),
            originals: vec![Original { item, start, end }],
            tokens: 12,
            pinned: true,
        };
        let kept = Kept {
            of: Some(40),
            lines: vec![(0, 8)],
            trimmed: true,
            ..Kept::default()
        };
        let hop = StoredHop {
            message: None,
            text: 3,
            reasoning: 0,
            calls: vec![
                call("r1", 0, HiddenTool::Recall, recalled),
                call("r2", 2, HiddenTool::Recall, Effect::Refused),
            ],
            marks: vec![
                (ItemNo(2), StoredMark::Clipped),
                (ItemNo(4), StoredMark::Folded),
            ],
            kept: vec![(ItemNo(2), kept)],
            estimate: 1300,
            ..StoredHop::default()
        };
        TurnRecord {
            parent: Parent::Root,
            turn: 4,
            position: 7,
            base: ItemNo(12),
            first_item: ItemNo(14),
            hops: vec![hop],
            handed: String::new(),
            visible: Digest([1; 32]),
            bare: Digest([2; 32]),
            calls: vec![(CallId("c1".to_owned()), "read".to_owned())],
            tooled: true,
            injected: Some("delimiter".to_owned()),
            recall: Some("plimsoll_recall".to_owned()),
            prologue: Digest([3; 32]),
            model: "gpt-4o".to_owned(),
            ended: 1_700_000_000_000,
            cached_for: 0,
            nudged: false,
            session: "0011223344556677".to_owned(),
            parent_session: Some("8899aabbccddeeff".to_owned()),
            content: Some(Digest([4; 32])),
            without: Edits::default(),
            guide: Guide::default(),
            pins: Vec::new(),
            dropped: Vec::new(),
            profile: None,
            split: None,
            facts: Box::default(),
        }
    }

    /// Each form that a record takes, by the name of its fixture.
    fn forms() -> [(&'static str, TurnRecord); 7] {
        use crate::turn_facts::tests::facts;

        let hop = |change: fn(&mut StoredHop)| {
            let mut record = newest();
            change(&mut record.hops[0]);
            record
        };
        let mut told = hop(|hop| {
            hop.left = vec![12, 0];
            hop.pass = Some(Box::new(PassFacts {
                trigger: "budget".to_owned(),
                before: 41_376,
                after: 30_356,
                floor: 22_399,
                cut: 8_320,
                held: vec![
                    ("first-look".to_owned(), 5_100, Held::Open),
                    ("auto-9".to_owned(), 1_200, Held::Floor),
                ],
            }));
        });
        told.facts = Box::new(facts());
        let mut thinking = hop(|hop| {
            hop.bound_to = Some(Box::new(BoundTo {
                prefix: Digest([5; 32]),
                thought: Some(Digest([6; 32])),
            }));
        });
        thinking.without = Edits::from_iter([crate::EditKind::Thoughts]);
        thinking.guide = Guide {
            waited: true,
            among: true,
            ..Guide::default()
        };
        let chosen = TurnRecord {
            pins: vec![PinMove::Set(ItemNo(4)), PinMove::Lift(ItemNo(2))],
            profile: Some("coding".to_owned()),
            split: Some(SplitPlace {
                profile: "coding".to_owned(),
                tried: true,
            }),
            ..newest()
        };
        let mut anew = hop(|hop| {
            hop.calls[0].tells = true;
            hop.calls[0].pictures = vec![r#"{"type":"image"}"#.to_owned()];
        });
        anew.dropped = vec![RecordId(Digest([7; 32]))];
        let alone = TurnRecord {
            parent_session: None,
            content: None,
            recall: None,
            ..newest()
        };
        [
            ("turn", newest()),
            ("turn-alone", alone),
            ("turn-facts", told),
            ("turn-bound", thinking),
            ("turn-unshown", hop(|hop| hop.unshown = true)),
            ("turn-chosen", chosen),
            ("turn-anew", anew),
        ]
    }

    /// The forms of what is kept of a result.
    fn kept_forms() -> [(&'static str, TurnRecord); 4] {
        let form = |kept: Kept| {
            let mut record = newest();
            record.hops[0].kept = vec![(ItemNo(5), kept)];
            record
        };
        // A result that points to another, by its length and what stays of it.
        let pointer = |of, lines: &[(u32, u32)]| {
            form(Kept {
                of,
                lines: lines.to_vec(),
                same: Some(ItemNo(2)),
                ..Kept::default()
            })
        };
        let referred = Kept {
            lines: vec![(0, 900)],
            refers: Some("[this refers to read:12]".to_owned()),
            ..Kept::default()
        };
        let runs = [(0, 20), (300, 300), (600, 900)];
        [
            ("turn-pointer", pointer(Some(900), &[])),
            ("turn-grown", pointer(None, &[(600, 900)])),
            ("turn-runs", pointer(Some(900), &runs)),
            ("turn-referred", form(referred)),
        ]
    }

    #[test]
    fn records_are_written_as_their_fixtures_and_read_back() {
        for (name, record) in forms().into_iter().chain(kept_forms()) {
            is_fixture(name, &record);
        }
    }

    #[test]
    fn a_snapshot_is_written_as_its_fixture_and_read_back() {
        let pinning = Snapshot {
            next: ItemNo(9),
            pins: vec![ItemNo(4), ItemNo(2)],
            dropped: vec![RecordId(Digest([7; 32]))],
            ..Snapshot::default()
        };
        is_fixture("snapshot", &pinning);
    }
}
