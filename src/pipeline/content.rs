//! What the client said, where it is stored: every message once, by the digest of its bytes, and for
//! each turn the list of those that came with it. Owns what such a list holds; never decides whether any
//! is written, and reads none.

use bytes::Bytes;

use crate::model::{Content, Digest, blob_id};
use crate::store::{Batch, Store};
use crate::turn::ending::encode;
use crate::turn::state::TurnState;

/// A turn's content on its way to the disk.
pub struct Kept {
    /// Its list.
    pub id: Digest,
    /// The messages that it lists, and the answer.
    pub messages: Vec<(Digest, Bytes)>,
}

/// Hands the turn's content over to be written; `None` where the store has no room.
#[must_use]
pub fn keep(store: &Store, state: &TurnState, said: Bytes) -> Option<Kept> {
    let from = first(state);
    let mut batch = Batch::default();
    let mut put = |bytes: Bytes| {
        let id = blob_id(&bytes);
        batch.blobs.push((id, bytes));
        id
    };
    let request = &state.request;
    let messages = from..request.messages.len();
    let messages: Vec<Digest> = messages
        // Copied: a slice would hold the whole body until it is written.
        .map(|at| put(Bytes::copy_from_slice(request.message(at))))
        .collect();
    let content = Content {
        from: u32::try_from(from).unwrap_or(u32::MAX),
        messages,
        answer: put(said),
        tools: request
            .tools_bytes()
            .map(|tools| put(Bytes::copy_from_slice(tools))),
    };
    let id = put(encode(&content));
    let mut listed = batch.blobs.clone();
    // The messages were put first, and the answer behind them.
    listed.truncate(content.messages.len() + 1);
    let size: usize = batch.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
    if store.commit_spare(batch).is_refused() {
        tracing::warn!(bytes = size, "a turn's content was not stored");
        return None;
    }
    Some(Kept {
        id,
        messages: listed,
    })
}

/// The first message to list: the answer of the turn before, as the client keeps it. Everything
/// where that turn has no content, or the client has changed what it had said before.
fn first(state: &TurnState) -> usize {
    let path = &state.path;
    let newest = path.entries.last().filter(|_| !path.aligned);
    let stored = newest.filter(|entry| entry.record.content.is_some());
    stored.map_or(0, |entry| entry.position as usize)
}
