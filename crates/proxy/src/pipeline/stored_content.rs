//! Stores what the client said: each message by itself or, if many come at once, with other short ones; and for each
//! turn the list of the messages that came with it. Owns what such a list holds. Never decides whether content is
//! stored, and never reads any.

use bytes::Bytes;
use plimsoll_core::turn::ending::encode;
use plimsoll_core::turn::state::TurnState;
use plimsoll_model::{Content, Digest, Parent, Said, TenantId, blob_id};
use plimsoll_store::{Batch, BatchKind, Store};

use super::erasing::Leave;
use crate::history;

/// How many messages a turn brings at most that are all stored by themselves. Agents bring fewer.
const FEW_MESSAGES: usize = 64;
/// How many bytes a short message has at most. A blob takes some hundred bytes of the engine's memory for as long
/// as it is stored.
const SHORT_BYTES: usize = 1 << 10;
/// How many short messages are stored together: at least, unless there are no more, and at most. In between they
/// end behind a message whose digest begins with one of the 16 lowest bytes. So a client that drops a message and
/// sends the rest again has the same ones together.
const LEAST_TOGETHER: usize = 16;
const MOST_TOGETHER: usize = 64;
const ENDS: u8 = 16;

/// The content of a turn on its way to the disk.
pub struct StoredContent {
    /// The id of its list.
    pub id: Digest,
    /// The messages of the list and the answer, each with the id of the blob that holds it.
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
    // All ids are digests of bytes, so what is stored already costs nothing. Short messages that lie together are
    // stored again if one of them changed.
    let from = first(state);
    let request = &state.request;
    let new = from..request.messages.len();
    // Copies each message: a slice would keep the whole body in memory until it is written.
    let copies = new.map(|at| Bytes::copy_from_slice(request.message(at)));
    let mut messages: Vec<Bytes> = copies.collect();
    let mut listed = ListedMessages::of(&messages);
    messages.push(said.clone());
    let answer = listed.put(said);
    let content = Content {
        from: u32::try_from(from).unwrap_or(u32::MAX),
        messages: std::mem::take(&mut listed.said),
        answer,
        tools: request
            .tools_bytes()
            .map(|tools| listed.put(Bytes::copy_from_slice(tools))),
    };
    let id = listed.put(encode(&content));
    let size: usize = listed.blobs.iter().map(|(_, bytes)| bytes.len()).sum();
    let batch = Batch {
        blobs: listed.blobs,
        kind: BatchKind::Content,
        owner: Some(tenant.0),
        ..Batch::default()
    };
    if !leave.hold(&batch) || store.commit_spare(batch).is_refused() {
        tracing::warn!(bytes = size, "a turn's content was not stored");
        return None;
    }
    let held = content.messages.into_iter().chain([Said::Alone(answer)]);
    let messages = held.map(Said::blob).zip(messages).collect();
    Some(StoredContent { id, messages })
}

/// Messages, and the blobs that hold them.
#[derive(Default)]
struct ListedMessages {
    said: Vec<Said>,
    blobs: Vec<(Digest, Bytes)>,
}

impl ListedMessages {
    /// These messages: each in a blob, or short ones together if there are many.
    fn of(messages: &[Bytes]) -> Self {
        let mut listed = Self::default();
        let many = messages.len() > FEW_MESSAGES;
        // The short ones that are to be stored together, and their places.
        let mut together: Vec<(usize, &str)> = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let id = blob_id(message);
            listed.said.push(Said::Alone(id));
            let short = many && message.len() <= SHORT_BYTES;
            match short.then(|| std::str::from_utf8(message)) {
                Some(Ok(text)) => {
                    together.push((at, text));
                    let ends = together.len() >= LEAST_TOGETHER && id.0.first() < Some(&ENDS);
                    if ends || together.len() >= MOST_TOGETHER {
                        listed.put_together(&std::mem::take(&mut together));
                    }
                }
                Some(Err(_)) | None => listed.blobs.push((id, message.clone())),
            }
        }
        listed.put_together(&together);
        listed
    }

    fn put_together(&mut self, messages: &[(usize, &str)]) {
        if messages.is_empty() {
            return;
        }
        let texts: Vec<&str> = messages.iter().map(|(_, text)| *text).collect();
        let blob = self.put(history::together(&texts));
        for (among, (at, _)) in (0..).zip(messages) {
            if let Some(said) = self.said.get_mut(*at) {
                *said = Said::Among(blob, among);
            }
        }
    }

    fn put(&mut self, bytes: Bytes) -> Digest {
        let id = blob_id(&bytes);
        self.blobs.push((id, bytes));
        id
    }
}

/// The first message to list: the answer of the newest turn that has content, as the client keeps it. Zero, so that
/// everything is listed, if no turn has any or the client changed its history.
fn first(state: &TurnState) -> usize {
    let path = &state.path;
    if path.aligned {
        return 0;
    }
    for entry in path.entries.iter().rev() {
        if entry.record.content.is_some() {
            return entry.position as usize;
        }
        // A snapshot may stand for an edit of the client's. What was listed before it is another history then.
        if matches!(entry.record.parent, Parent::Snapshot(_)) {
            return 0;
        }
    }
    0
}

#[cfg(test)]
mod tests;
