//! What was said in a conversation whose content is stored: the messages that its turns list, put
//! together. Never reads a message itself.

use super::{FindError, Reads};
use crate::model::{Content, Digest};
use crate::session::path::Path;

/// How many lists are read at a time.
const LISTS: usize = 32;

/// A conversation as it was said, by the digests of its messages.
#[derive(Default)]
pub struct Conversation {
    /// All messages up to the last answer, that one included.
    pub messages: Vec<Digest>,
    /// The tools that came with its last request.
    pub tools: Option<Digest>,
}

/// The conversation that a path went through; none where a part of it was not stored.
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

/// The conversation that lists make, the newest first; none where they leave a gap.
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
