//! A conversation whose content is stored: its messages, in order, from the lists that its turns
//! keep, and how short messages lie together. Never looks into a message.

use std::collections::HashMap;

use bytes::Bytes;
use plimsoll_core::session::path::Path;
use plimsoll_core::turn::ending::encode;
use plimsoll_model::{Content, Digest, Said};

use super::{FindError, Reads};

/// How many lists are read at a time.
const LISTS: usize = 32;
/// How many messages are read at a time.
const MESSAGES_AT_ONCE: usize = 64;

/// A conversation that is stored.
#[derive(Default)]
pub struct Conversation {
    /// All messages, including the last answer.
    pub messages: Vec<Said>,
    /// The tools that came with its last request.
    pub tools: Option<Digest>,
}

impl Conversation {
    /// The bytes of all messages. `None` if one of them is not stored, or if `takes` refuses one.
    ///
    /// # Errors
    /// [`FindError`] where the store fails.
    pub fn read(
        &self,
        reads: &Reads<'_>,
        mut takes: impl FnMut(&Bytes) -> bool,
    ) -> Result<Option<Vec<Bytes>>, FindError> {
        let mut messages = Vec::with_capacity(self.messages.len());
        for some in self.messages.chunks(MESSAGES_AT_ONCE) {
            let mut ids: Vec<Digest> = some.iter().map(|said| said.blob()).collect();
            ids.sort_unstable();
            ids.dedup();
            let blobs = reads.blobs(&ids)?;
            let blobs = ids.into_iter().zip(blobs);
            let blobs = blobs.filter_map(|(id, blob)| Some((id, blob?)));
            let blobs: HashMap<Digest, Bytes> = blobs.collect();
            let mut together: HashMap<Digest, Vec<Bytes>> = HashMap::new();
            for said in some {
                let blob = blobs.get(&said.blob());
                let message = match said {
                    Said::Alone(_) => blob.cloned(),
                    Said::Among(id, at) => blob.and_then(|blob| {
                        let held = together.entry(*id).or_insert_with(|| held_by(blob));
                        held.get(usize::from(*at)).cloned()
                    }),
                };
                match message.filter(&mut takes) {
                    Some(message) => messages.push(message),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(messages))
    }

    /// The bytes of the tools. `None` if none came along, or they are not stored.
    ///
    /// # Errors
    /// [`FindError`] where the store fails.
    pub fn read_tools(&self, reads: &Reads<'_>) -> Result<Option<Bytes>, FindError> {
        match self.tools {
            Some(id) => Ok(reads.blobs(&[id])?.into_iter().next().flatten()),
            None => Ok(None),
        }
    }
}

/// Short messages as one blob.
#[must_use]
pub fn together(messages: &[&str]) -> Bytes {
    encode(&messages)
}

/// The messages that a blob holds: several that were put together, or itself.
#[must_use]
pub fn held_by(blob: &Bytes) -> Vec<Bytes> {
    // Several are an array of MessagePack, which begins as no JSON does.
    match rmp_serde::from_slice::<Vec<&str>>(blob) {
        Ok(several) => {
            let several = several.into_iter();
            several
                .map(|text| blob.slice_ref(text.as_bytes()))
                .collect()
        }
        Err(_) => vec![blob.clone()],
    }
}

/// The conversation of a path; `None` if a part of it was not stored. A turn without content of its own stands in the list
/// of the next one that has some.
///
/// # Errors
/// [`FindError`] where the store fails or a list can't be read.
pub fn conversation(reads: &Reads<'_>, path: &Path) -> Result<Option<Conversation>, FindError> {
    let mut lists: Vec<Content> = Vec::new();
    if path.newest().is_none_or(|newest| newest.content.is_none()) {
        return Ok(None);
    }
    for entries in path.entries.rchunks(LISTS) {
        let named = entries.iter().rev();
        let named: Vec<Digest> = named.filter_map(|entry| entry.record.content).collect();
        for bytes in reads.blobs(&named)? {
            let Some(bytes) = bytes else { return Ok(None) };
            let list: Content = rmp_serde::from_slice(&bytes)?;
            let begins = list.from == 0;
            lists.push(list);
            if begins {
                return Ok(join(lists));
            }
        }
    }
    Ok(None)
}

/// Joins lists, given newest first. `None` if there is a gap between them.
fn join(lists: Vec<Content>) -> Option<Conversation> {
    let mut conversation = Conversation::default();
    for list in lists.into_iter().rev() {
        let from = list.from as usize;
        if conversation.messages.len() < from {
            return None;
        }
        conversation.messages.truncate(from);
        conversation.messages.extend(list.messages);
        conversation.messages.push(Said::Alone(list.answer));
        conversation.tools = list.tools;
    }
    Some(conversation)
}
