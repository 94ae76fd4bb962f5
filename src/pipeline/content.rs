//! What the client said, where it is stored: every message once, by the digest of its bytes, and for
//! each turn the list of those that came with it. Owns what such a list holds, and how a whole
//! conversation is made of them; never decides whether any is written.

use bytes::Bytes;

use super::find::FindError;
use super::reads::Reads;
use crate::model::{Content, Digest, blob_id};
use crate::session::path::Path;
use crate::store::{Batch, Store};
use crate::turn::ending::encode;
use crate::turn::hop::State;

/// How many lists are read at a time.
const LISTS: usize = 32;

/// A turn's content on its way to the disk.
pub struct Kept {
    /// Its list.
    pub id: Digest,
    /// The messages that it lists, and the answer.
    pub messages: Vec<(Digest, Bytes)>,
}

/// Hands the turn's content over to be written; `None` where the store has no room.
#[must_use]
pub fn keep(store: &Store, state: &State, said: Bytes) -> Option<Kept> {
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
fn first(state: &State) -> usize {
    let path = &state.path;
    let newest = path.entries.last().filter(|_| !path.aligned);
    let stored = newest.filter(|entry| entry.record.content.is_some());
    stored.map_or(0, |entry| entry.position as usize)
}

/// A conversation as it was said, by the digests of its messages.
#[derive(Default)]
pub struct Said {
    /// All messages up to the last answer, that one included.
    pub messages: Vec<Digest>,
    /// The tools that came with its last request.
    pub tools: Option<Digest>,
}

/// The conversation that a path went through; none where a part of it was not stored.
///
/// # Errors
/// [`FindError`] where the store fails or a list can't be read.
pub fn said(reads: &Reads<'_>, path: &Path) -> Result<Option<Said>, FindError> {
    let mut lists: Vec<Content> = Vec::new();
    for entries in path.entries.rchunks(LISTS) {
        let named = entries.iter().rev();
        let named: Vec<Digest> = named.map_while(|entry| entry.record.content).collect();
        for bytes in reads.blobs(&named)? {
            let Some(bytes) = bytes else { return Ok(None) };
            let list: Content = rmp_serde::from_slice(&bytes)?;
            let begins = list.from == 0;
            lists.push(list);
            if begins {
                return Ok(join(lists));
            }
        }
        if named.len() < entries.len() {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The conversation that lists make, the newest first; none where they leave a gap.
fn join(lists: Vec<Content>) -> Option<Said> {
    let mut said = Said::default();
    for list in lists.into_iter().rev() {
        let from = list.from as usize;
        if said.messages.len() < from {
            return None;
        }
        said.messages.truncate(from);
        said.messages.extend(list.messages);
        said.messages.push(list.answer);
        said.tools = list.tools;
    }
    Some(said)
}
