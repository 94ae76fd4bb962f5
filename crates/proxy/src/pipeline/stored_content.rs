//! Stores what the client said: each message once, under the digest of its bytes, and for each turn
//! the list of the messages that came with it. Owns what such a list holds. Never decides whether
//! content is stored, and never reads any.

use bytes::Bytes;
use plimsoll_core::turn::ending::encode;
use plimsoll_core::turn::state::TurnState;
use plimsoll_model::{Content, Digest, TenantId, blob_id};
use plimsoll_store::{Batch, BatchKind, Store};

use super::erasing::Leave;

/// The content of a turn on its way to the disk.
pub struct StoredContent {
    /// The id of its list.
    pub id: Digest,
    /// The messages of the list and the answer.
    pub messages: Vec<(Digest, Bytes)>,
}

/// Hands the content of a turn to the store. Returns `None` if the store has no room.
#[must_use]
pub fn keep(
    store: &Store,
    leave: &Leave<'_>,
    (tenant, state): (TenantId, &TurnState),
    said: Bytes,
) -> Option<StoredContent> {
    // All ids are digests of bytes, so a message that is stored already costs nothing.
    let from = first(state);
    let mut batch = Batch {
        kind: BatchKind::Content,
        owner: Some(tenant.0),
        ..Batch::default()
    };
    let mut put = |bytes: Bytes| {
        let id = blob_id(&bytes);
        batch.blobs.push((id, bytes));
        id
    };
    let request = &state.request;
    let messages = from..request.messages.len();
    let messages: Vec<Digest> = messages
        // Copies each message: a slice would keep the whole body in memory until it is written.
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
    // `put` added the messages first and the answer next. The tools and the list itself follow, and
    // nothing refers to those by an id.
    listed.truncate(content.messages.len() + 1);
    let size: usize = batch.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
    if !leave.hold(&batch) || store.commit_spare(batch).is_refused() {
        tracing::warn!(bytes = size, "a turn's content was not stored");
        return None;
    }
    Some(StoredContent {
        id,
        messages: listed,
    })
}

/// The first message to list: the answer of the turn before, as the client keeps it. Zero, so that
/// everything is listed, if that turn has no content or the client changed its history.
fn first(state: &TurnState) -> usize {
    let path = &state.path;
    let newest = path.entries.last().filter(|_| !path.aligned);
    let stored = newest.filter(|entry| entry.record.content.is_some());
    stored.map_or(0, |entry| entry.position as usize)
}
