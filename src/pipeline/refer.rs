//! What a request leaves out because it was said before: the ids under which responses and items are
//! found again, and how what they name is read from our own records. Never crosses tenants, and
//! never guesses: what is not whole is not found.

use bytes::Bytes;

use super::content::{self, Kept};
use super::find::{self, FindError};
use super::reads::Reads;
use crate::dialect::request::{Found, Lost, Request};
use crate::model::{Dialect, Digest, RecordId, TenantId};
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

/// What leads to a response, by its id, record and turn, and to all items that came with the turn.
pub(super) fn links(
    tenant: TenantId,
    dialect: Dialect,
    (response, record, turn): (&str, RecordId, u32),
    kept: &Kept,
) -> Vec<Link> {
    let mut links = vec![Link {
        key: response_key(tenant, dialect, response),
        id: record.0,
        turn,
    }];
    for (message, bytes) in &kept.messages {
        let ids = dialect.ids(bytes);
        links.extend(ids.iter().map(|id| Link {
            key: item_key(tenant, dialect, id),
            id: *message,
            turn,
        }));
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

/// Finds what a request refers to, of at most `cap` bytes.
///
/// # Errors
/// [`FindError`] where the store fails; what is not there is [`Lost`].
pub(super) fn look_up(
    reads: &Reads<'_>,
    tenant: TenantId,
    request: &Request,
    cap: usize,
) -> Result<Result<Known, Lost>, FindError> {
    let dialect = request.dialect;
    let mut known = Known::default();
    let mut room = Room(cap.saturating_sub(request.body.len()));
    if let Some(id) = &request.refers.response {
        let key = response_key(tenant, dialect, id);
        match conversation(reads, key, &mut room)? {
            Some((path, before)) => {
                known.found.before = before;
                known.path = Some(path);
            }
            None => return Ok(Err(Lost::Response)),
        }
    }
    let ids = request.refers.items.iter().map(|(_, id)| id.as_str());
    let ids: Vec<&str> = ids.collect();
    let keys: Vec<Digest> = ids.iter().map(|id| item_key(tenant, dialect, id)).collect();
    for (id, set) in ids.into_iter().zip(reads.links(&keys)?) {
        match item(reads, dialect, id, &set)?.filter(|item| room.takes(item)) {
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

/// The path to a response, and the conversation up to it, message by message.
fn conversation(
    reads: &Reads<'_>,
    key: Digest,
    room: &mut Room,
) -> Result<Option<(Path, Vec<Bytes>)>, FindError> {
    let mut newest = None;
    let links = reads.links(&[key])?.into_iter().flatten();
    let links: Vec<_> = links.collect();
    for (_, id) in links.into_iter().rev().take(SAME) {
        let id = RecordId(id);
        if let Some(record) = find::record(reads, id)? {
            // A server that gives an id a second time has let go of the first.
            newest = newest.max(Some((record.ended, id)));
        }
    }
    let Some((_, id)) = newest else {
        return Ok(None);
    };
    let Some(path) = find::load(reads, id)? else {
        return Ok(None);
    };
    let Some(said) = content::said(reads, &path)? else {
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
    Ok(Some((path, messages)))
}

/// An item as it was said last.
fn item(
    reads: &Reads<'_>,
    dialect: Dialect,
    id: &str,
    set: &[(u32, Digest)],
) -> Result<Option<Bytes>, FindError> {
    for (_, message) in set.iter().rev().take(SAME) {
        let message = reads.blobs(&[*message])?.into_iter().next().flatten();
        let item = message.and_then(|message| dialect.item(&message, id));
        if item.is_some() {
            return Ok(item);
        }
    }
    Ok(None)
}
