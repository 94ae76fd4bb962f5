//! Makes the record of a turn, whole and at once. Pure. Never decides what the record builds on or which keys
//! lead to it, and writes nothing.

use bytes::Bytes;
use plimsoll_model::{
    CallId, Digest, Parent, RecordId, StoredHop, TurnFacts, TurnRecord, dated_id,
};
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::Answer;
use plimsoll_wire::edit::bare;
use plimsoll_wire::message::ParsedCall;

use super::state::TurnState;
use crate::session::transcript::Transcript;

/// How a turn ended.
pub struct Ending<'a> {
    /// The texts of the hops that the client was shown, in order, including the last.
    pub texts: Vec<&'a str>,
    /// Whether the client was shown nothing of the hops before those.
    pub skips: bool,
    /// The last hop's answer. Its visible calls go to the client.
    pub answer: &'a Answer,
    /// The last hop as it is recorded.
    pub last: StoredHop,
    /// A line that the proxy added at the end because the turn reached the hop cap.
    pub line: Option<&'a str>,
    /// Now, in milliseconds since 1970.
    pub now: u64,
}

impl<'a> Ending<'a> {
    /// The text that the client holds, and where that of its own hop begins. It holds one message for
    /// all hops.
    fn text(&self, dialect: Dialect) -> (String, usize) {
        let texts = self.texts.iter().copied().chain(self.line);
        dialect.join(texts)
    }

    /// The calls that the client holds: only visible ones.
    fn calls(&self) -> Vec<ParsedCall<'a>> {
        let visible = self.answer.visible_calls();
        let calls = visible.map(|(_, call)| ParsedCall {
            id: call.id.as_str().into(),
            name: call.name.as_str().into(),
            arguments: call.arguments.as_str().into(),
        });
        calls.collect()
    }

    /// The canonical digest of the visible response with the ids of its calls left blank.
    #[must_use]
    pub fn nameless(&self, dialect: Dialect) -> Digest {
        dialect.nameless_of_answer(&self.text(dialect).0, &self.calls())
    }
}

/// What a record says beside its turn: where it stands, and what is shown of it.
#[derive(Default)]
pub struct Stands {
    /// Its predecessor.
    pub parent: Parent,
    /// The name under which the client knows the session.
    pub session: String,
    /// The name of the parent session, if the client says so.
    pub parent_session: Option<String>,
    /// The list of the turn's content, if that is stored.
    pub content: Option<Digest>,
    /// What is shown of the turn.
    pub facts: Box<TurnFacts>,
}

/// The record of a turn. Nothing of it is filled in later: it is named by its hash.
#[must_use]
pub fn record(
    state: &TurnState,
    transcript: &Transcript,
    ending: Ending<'_>,
    stands: Stands,
) -> TurnRecord {
    let (text, at) = ending.text(state.request.dialect);
    // The text that earlier hops handed out ends where the text of the client's own hop begins. If
    // the record keeps the last hop whole, its text and a line of the proxy were handed out as
    // well.
    let handed = match &ending.last.message {
        Some(_) => text.clone(),
        None => text.get(..at).unwrap_or_default().to_owned(),
    };
    // The chain covers what the client resends.
    let calls = ending.calls();
    let ids = calls
        .iter()
        .map(|call| (CallId(call.id.to_string()), call.name.to_string()));
    let mut hops = state.pending.clone();
    // A nudge is given at most once between two passes.
    let nudged = hops
        .iter()
        .chain([&ending.last])
        .any(|hop| hop.calls.iter().any(|call| call.nudge));
    // A pass makes room, so the next nudge may come after one.
    let passed = hops
        .iter()
        .chain([&ending.last])
        .any(|hop| !hop.marks.is_empty());
    let before = state.path.newest().is_some_and(|record| record.nudged);
    hops.push(ending.last);
    // Hops that no answer stands behind, such as an exchange that was brought back, are never shown.
    let unshown = hops.len().saturating_sub(ending.texts.len());
    for hop in hops.iter_mut().take(unshown) {
        hop.unshown = ending.skips;
    }
    // A header on a later request holds for that request alone.
    let begun = state.path.has_begun().then_some(&state.path.choice);
    let choice = begun.unwrap_or(&state.terms.choice).clone();
    // A record that stands on another one, or on a snapshot, has them from there.
    let dropped = match &state.path.entries[..] {
        [] => state.path.dropped.clone(),
        _ => Vec::new(),
    };
    TurnRecord {
        parent: stands.parent,
        turn: state.path.next_turn(),
        position: u32::try_from(state.shapes.len()).unwrap_or(u32::MAX),
        base: transcript.base,
        first_item: transcript.first_item,
        hops,
        handed,
        visible: state.request.dialect.canonical_of_answer(&text, &calls),
        bare: bare(&text),
        calls: ids.collect(),
        tooled: state.request.takes_tools(),
        injected: state.injected.delimiter.clone(),
        recall: state.injected.recall.clone(),
        prologue: state.prologue,
        model: state.request.model.clone(),
        ended: ending.now,
        cached_for: state.request.cached_for.seconds(),
        nudged: nudged || (before && !passed),
        session: stands.session,
        parent_session: stands.parent_session,
        content: stands.content,
        without: state.known,
        guide: state.guide,
        pins: state.pin_moves.clone(),
        dropped,
        profile: choice.profile,
        split: choice.split,
        facts: stands.facts,
    }
}

/// The bytes of a record, and the id that follows from them.
#[must_use]
pub fn named(record: &TurnRecord) -> (RecordId, Bytes) {
    let bytes = encode(record);
    (RecordId(dated_id(&bytes, record.ended)), bytes)
}

/// The stored form of a value.
pub fn encode<T: serde::Serialize>(value: &T) -> Bytes {
    // Encoding these types into memory can't fail. If it did, the empty blob would be read as no
    // record.
    Bytes::from(rmp_serde::to_vec_named(value).unwrap_or_default())
}
