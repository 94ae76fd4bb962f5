//! What a request leaves out because it was said before: the ids under which responses and items are
//! found again, and how what they name is read from our own records. Never crosses tenants, and
//! never guesses: what is not whole is not found.

use std::collections::HashSet;

use bytes::Bytes;

use super::content::Kept;
use super::place::Place;
use crate::dialect::request::{Found, Lost, Request};
use crate::history::{self, FindError, Reads};
use crate::model::{Dialect, Digest, RecordId, Scope, TenantId};
use crate::session::path::Path;
use crate::store::Link;

/// How many of what has the same id are looked at: a server that gives one id to all would have
/// all of them read for each request.
const SAME: usize = 16;
/// How many messages are read at a time.
const MESSAGES: usize = 64;

/// The key of the record of a response.
fn response_key(tenant: TenantId, dialect: Dialect, id: &str) -> Digest {
    let tenant = tenant.0.as_bytes();
    Digest::of(&[
        b"response",
        tenant,
        dialect.name().as_bytes(),
        id.as_bytes(),
    ])
}

/// The key of the messages that hold an item.
fn item_key(tenant: TenantId, dialect: Dialect, id: &str) -> Digest {
    let tenant = tenant.0.as_bytes();
    Digest::of(&[b"item", tenant, dialect.name().as_bytes(), id.as_bytes()])
}

/// The key of those of one session: a client that changes its copy does not change it in others,
/// and some servers give an id more than once.
fn own_key(item: Digest, scope: &Scope) -> Digest {
    Digest::of(&[b"item of", item.as_bytes(), scope.0.as_bytes()])
}

/// What leads to a response, by its id, record and turn, and to all items that came with the turn.
pub(super) fn links(
    place: &Place,
    dialect: Dialect,
    (response, record, turn): (&str, RecordId, u32),
    kept: &Kept,
) -> Vec<Link> {
    let tenant = place.tenant;
    let mut links = vec![Link {
        key: response_key(tenant, dialect, response),
        id: record.0,
        turn,
    }];
    for (message, bytes) in &kept.messages {
        for id in dialect.ids(bytes) {
            let item = item_key(tenant, dialect, &id);
            // What names no session is found among all.
            let own = (!place.scope.0.is_empty()).then(|| own_key(item, &place.scope));
            links.extend([item].into_iter().chain(own).map(|key| Link {
                key,
                id: *message,
                turn,
            }));
        }
    }
    links
}

/// What a request refers to, and where it stands by that.
#[derive(Default)]
pub(super) struct Known {
    /// What is put into it.
    pub found: Found,
    /// The path to the response that it goes on from, which others may say the same words as.
    pub path: Option<Path>,
}

/// Finds what a request of this session refers to, of at most `cap` bytes. An item is that of the
/// response that the request goes on from, else as it was said last in the session, else in
/// the conversation of the tenant that has gone furthest.
///
/// # Errors
/// [`FindError`] where the store fails; what is not there is [`Lost`].
pub(super) fn look_up(
    reads: &Reads<'_>,
    (tenant, scope): (TenantId, &Scope),
    request: &Request,
    cap: usize,
) -> Result<Result<Known, Lost>, FindError> {
    let dialect = request.dialect;
    let mut known = Known::default();
    let mut room = Room(cap.saturating_sub(request.body.len()));
    let mut said = HashSet::new();
    if let Some(id) = &request.refers.response {
        let key = response_key(tenant, dialect, id);
        match conversation(reads, key, &mut room)? {
            Some(conversation) => {
                known.found.before = conversation.messages;
                known.path = Some(conversation.path);
                said.extend(conversation.ids);
            }
            None => return Ok(Err(Lost::Response)),
        }
    }
    let ids = request.refers.items.iter().map(|(_, id)| id.as_str());
    let ids: Vec<&str> = ids.collect();
    let all = ids.iter().map(|id| item_key(tenant, dialect, id));
    let keys: Vec<Digest> = all
        .clone()
        .chain(all.map(|key| own_key(key, scope)))
        .collect();
    let sets = reads.links(&keys)?;
    let (all, own) = sets.split_at(ids.len());
    for (id, (all, own)) in ids.into_iter().zip(all.iter().zip(own)) {
        let said = all.iter().filter(|(_, message)| said.contains(message));
        let likely = said.rev().chain(own.iter().rev()).chain(all.iter().rev());
        let likely = likely.map(|(_, message)| *message).take(SAME);
        match item(reads, dialect, id, likely)?.filter(|item| room.takes(item)) {
            Some(item) => known.found.items.push(item),
            None => return Ok(Err(Lost::Item)),
        }
    }
    Ok(Ok(known))
}

/// How many bytes may still be put into a request.
struct Room(usize);

impl Room {
    fn takes(&mut self, bytes: &Bytes) -> bool {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// The conversation up to a response.
struct Conversation {
    /// The path to it.
    path: Path,
    /// Its messages, by the digests of their bytes.
    ids: Vec<Digest>,
    /// Their bytes.
    messages: Vec<Bytes>,
}

/// The conversation up to a response, message by message.
fn conversation(
    reads: &Reads<'_>,
    key: Digest,
    room: &mut Room,
) -> Result<Option<Conversation>, FindError> {
    let mut newest = None;
    let links = reads.links(&[key])?.into_iter().flatten();
    let links: Vec<_> = links.collect();
    for (_, id) in links.into_iter().rev().take(SAME) {
        let id = RecordId(id);
        if let Some(record) = history::record(reads, id)? {
            // A server that gives an id a second time has let go of the first.
            newest = newest.max(Some((record.ended, id)));
        }
    }
    let Some((_, id)) = newest else {
        return Ok(None);
    };
    let Some(path) = history::load(reads, id)? else {
        return Ok(None);
    };
    let Some(said) = history::conversation(reads, &path)? else {
        return Ok(None);
    };
    let mut messages = Vec::with_capacity(said.messages.len());
    for ids in said.messages.chunks(MESSAGES) {
        for bytes in reads.blobs(ids)? {
            match bytes.filter(|bytes| room.takes(bytes)) {
                Some(bytes) => messages.push(bytes),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(Conversation {
        path,
        ids: said.messages,
        messages,
    }))
}

/// An item, from the first of these messages that holds it.
fn item(
    reads: &Reads<'_>,
    dialect: Dialect,
    id: &str,
    messages: impl Iterator<Item = Digest>,
) -> Result<Option<Bytes>, FindError> {
    for message in messages {
        let message = reads.blobs(&[message])?.into_iter().next().flatten();
        let item = message.and_then(|message| dialect.item(&message, id));
        if item.is_some() {
            return Ok(item);
        }
    }
    Ok(None)
}
