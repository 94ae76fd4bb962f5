//! A conversation whose content is stored: its messages, in order, from the lists that its turns
//! keep. Never reads a message itself.

use plimsoll_core::session::path::Path;
use plimsoll_model::{Content, Digest};

use super::{FindError, Reads};

/// How many lists are read at a time.
const LISTS: usize = 32;

/// A conversation by the digests of its messages.
#[derive(Default)]
pub struct Conversation {
    /// All messages, including the last answer.
    pub messages: Vec<Digest>,
    /// The tools that came with its last request.
    pub tools: Option<Digest>,
}

/// The conversation of a path; `None` if a part of it was not stored.
///
/// # Errors
/// [`FindError`] where the store fails or a list can't be read.
pub fn conversation(reads: &Reads<'_>, path: &Path) -> Result<Option<Conversation>, FindError> {
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
        conversation.messages.push(list.answer);
        conversation.tools = list.tools;
    }
    Some(conversation)
}
