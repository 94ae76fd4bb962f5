//! Finds what a request leaves out because it was said before. Owns the keys under which responses
//! and items are stored, and reads what they lead to. Never crosses tenants, and never guesses:
//! what is incomplete counts as not found.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use plimsoll_core::session::path::Path;
use plimsoll_model::{Digest, RecordId, Scope, TenantId};
use plimsoll_store::{Link, Take};
use plimsoll_wire::Dialect;
use plimsoll_wire::request::{Found, Lost, Request};

use super::record_place::RecordPlace;
use super::stored_content::StoredContent;
use crate::history::{self, FindError, Reads};

/// How many entries with the same id are read, the newest ones. Some servers give one id to everything, and
/// each request would otherwise read all of it.
const ENTRIES_PER_ID: usize = 16;
/// How many items of a turn can be named later, the newest ones. A turn brings a few; one that brings thousands
/// at once costs the store as many keys, which lie far apart.
const LINKED_ITEMS: usize = 512;
/// How many items are looked up at a time. Between them it is asked whether anybody still waits.
const ITEMS_AT_ONCE: usize = 64;
/// How many blobs are remembered in which items were looked for.
const KNOWN_BLOBS: usize = 2;
/// How many times the longest body is read at most to find items: a short request could name one item of
/// each of many long messages.
const READ_TIMES: usize = 4;

/// The key that leads to the record of a response.
fn response_key(tenant: TenantId, dialect: Dialect, id: &str) -> Digest {
    tenant.key(&[b"response", dialect.name().as_bytes(), id.as_bytes()])
}

/// The key that leads to the blobs that hold an item.
fn item_key(tenant: TenantId, dialect: Dialect, id: &str) -> Digest {
    tenant.key(&[b"item", dialect.name().as_bytes(), id.as_bytes()])
}

/// The key that leads to those messages in one session. A client that changes its copy of an item
/// does not change other sessions, and some servers give an id more than once.
fn own_key(tenant: TenantId, item: Digest, scope: &Scope) -> Digest {
    tenant.key(&[b"item of", item.as_bytes(), scope.0.as_bytes()])
}

/// The links that lead to a response by its id, and to the newest items of its turn by theirs.
pub(super) fn links(
    place: &RecordPlace,
    dialect: Dialect,
    (response, record, turn): (&str, RecordId, u32),
    kept: &StoredContent,
) -> Vec<Link> {
    let tenant = place.tenant;
    let mut links = vec![Link {
        key: response_key(tenant, dialect, response),
        id: record.0,
        turn,
    }];
    let mut seen = HashSet::new();
    let newest = kept.messages.iter().rev().flat_map(|(blob, bytes)| {
        let items = dialect.items(bytes).into_iter().rev();
        items.map(|(id, _)| (*blob, id))
    });
    let newest = newest.filter(|item| seen.insert(item.clone()));
    for (blob, id) in newest.take(LINKED_ITEMS) {
        let item = item_key(tenant, dialect, &id);
        // A turn without an explicit session is found among all messages of the tenant.
        let own = (!place.scope.0.is_empty()).then(|| own_key(tenant, item, &place.scope));
        links.extend([item].into_iter().chain(own).map(|key| Link {
            key,
            id: blob,
            turn,
        }));
    }
    links
}

/// What a look-up of references found.
pub(super) enum LookedUp {
    /// Everything.
    Found(Box<Referred>),
    /// Not this one, which is the first that is missing.
    Lost(Lost),
}

/// What a request refers to.
#[derive(Default)]
pub(super) struct Referred {
    /// What is put into the request.
    pub found: Found,
    /// The path to the response that the request goes on from. Other responses may say the same.
    pub path: Option<Path>,
}

/// Looks up what a request refers to, up to `cap` bytes with its own. An item comes from the
/// response that the request goes on from. Otherwise it is the last one in the session, or the last
/// one in the tenant's longest conversation.
///
/// # Errors
/// [`FindError`] if the store fails. What is not there is [`Lost`].
pub(super) fn look_up(
    reads: &Reads<'_>,
    (tenant, scope): (TenantId, &Scope),
    request: &Request,
    cap: usize,
) -> Result<LookedUp, FindError> {
    let dialect = request.dialect;
    let mut known = Referred::default();
    let mut room = Room(cap.saturating_sub(request.body.len()));
    let ids: Vec<&str> = request.named_items().collect();
    let mut said = HashMap::new();
    // The conversation comes first: its messages are the first place to look for the items.
    if let Some(id) = request.previous_response() {
        let key = response_key(tenant, dialect, id);
        match conversation(reads, key, &mut room)? {
            Some(conversation) => {
                if !ids.is_empty() {
                    said = said_items(dialect, &conversation.messages);
                }
                known.found.before = conversation.messages;
                known.path = Some(conversation.path);
            }
            None => return Ok(LookedUp::Lost(Lost::Response)),
        }
    }
    let mut messages = Messages {
        reads,
        dialect,
        room: Room(cap.saturating_mul(READ_TIMES)),
        known: VecDeque::new(),
    };
    for some in ids.chunks(ITEMS_AT_ONCE) {
        let lacking = some.iter().filter(|id| !said.contains_key(**id));
        let mut likely = likely(reads, (tenant, dialect, scope), lacking)?.into_iter();
        for id in some {
            let item = match said.get(*id) {
                Some(item) => Some(item.clone()),
                None => messages.item(id, likely.next().unwrap_or_default())?,
            };
            match item.filter(|item| room.takes(item)) {
                Some(item) => known.found.items.push(item),
                None => return Ok(LookedUp::Lost(Lost::Item)),
            }
        }
    }
    Ok(LookedUp::Found(Box::new(known)))
}

/// The blobs in which each of these items may be, the most likely first: the newest of the session, and then the
/// newest of the tenant.
fn likely<'a>(
    reads: &Reads<'_>,
    (tenant, dialect, scope): (TenantId, Dialect, &Scope),
    ids: impl Iterator<Item = &'a &'a str>,
) -> Result<Vec<Vec<Digest>>, FindError> {
    let all: Vec<Digest> = ids.map(|id| item_key(tenant, dialect, id)).collect();
    let own = all.iter().filter(|_| !scope.0.is_empty());
    let own = own.map(|key| own_key(tenant, *key, scope));
    // All keys are read at once, because each read may wait for the disk.
    let keys: Vec<Digest> = own.chain(all.iter().copied()).collect();
    let mut own = reads.links(&keys, Take::Last(ENTRIES_PER_ID))?;
    let all = own.split_off(keys.len() - all.len());
    let own = own.into_iter().map(Some).chain(std::iter::repeat(None));
    let sets = own.zip(all).map(|(own, all)| {
        let newest = own.into_iter().chain([all]);
        let newest = newest.flat_map(|set| set.into_iter().rev());
        let newest = newest.map(|(_, blob)| blob).take(ENTRIES_PER_ID);
        newest.collect()
    });
    Ok(sets.collect())
}

/// The items of a conversation by their ids. Of several with one id it is the newest.
fn said_items(dialect: Dialect, messages: &[Bytes]) -> HashMap<String, Bytes> {
    let each = |message: &Bytes| items_of(dialect, message);
    messages.iter().flat_map(each).collect()
}

/// The items of a message by their ids. Of several with one id it is the first.
fn items_of(dialect: Dialect, message: &Bytes) -> HashMap<String, Bytes> {
    let items = dialect.items(message).into_iter().rev();
    items
        .map(|(id, item)| (id, message.slice_ref(item)))
        .collect()
}

/// How many more bytes may be read, or be put into a request.
pub(super) struct Room(pub usize);

impl Room {
    fn takes(&mut self, bytes: &Bytes) -> bool {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// A conversation that ends with a response.
pub(super) struct LinkedConversation {
    /// The path to the response.
    pub path: Path,
    /// The bytes of its messages.
    pub messages: Vec<Bytes>,
}

/// Reads the conversation that ends with a response. `None` if a part of it is missing or too long.
fn conversation(
    reads: &Reads<'_>,
    key: Digest,
    room: &mut Room,
) -> Result<Option<LinkedConversation>, FindError> {
    let mut newest = None;
    let sets = reads.links(&[key], Take::Last(ENTRIES_PER_ID))?;
    for (_, id) in sets.into_iter().flatten() {
        let id = RecordId(id);
        if let Some(record) = history::record(reads, id)? {
            // A server that gives an id again no longer knows its first use.
            newest = newest.max(Some((record.ended, id)));
        }
    }
    match newest {
        Some((_, id)) => said_until(reads, id, room),
        None => Ok(None),
    }
}

/// Reads the conversation that ends with a record. `None` if a part of it is missing or too long.
pub(super) fn said_until(
    reads: &Reads<'_>,
    id: RecordId,
    room: &mut Room,
) -> Result<Option<LinkedConversation>, FindError> {
    let Some(path) = history::load(reads, id)? else {
        return Ok(None);
    };
    let Some(said) = history::conversation(reads, &path)? else {
        return Ok(None);
    };
    let messages = said.read(reads, |bytes| room.takes(bytes))?;
    Ok(messages.map(|messages| LinkedConversation { path, messages }))
}

/// The messages in which items are looked for.
struct Messages<'a> {
    reads: &'a Reads<'a>,
    dialect: Dialect,
    /// How many more bytes may be read.
    room: Room,
    /// The items of the blobs that were read last, the newest first: a request names several items of one, and in
    /// between some of another.
    known: VecDeque<(Digest, HashMap<String, Bytes>)>,
}

impl Messages<'_> {
    /// An item, from the first of these blobs that holds it.
    fn item(&mut self, id: &str, blobs: Vec<Digest>) -> Result<Option<Bytes>, FindError> {
        for blob in blobs {
            let known = self.known.iter().position(|(known, _)| *known == blob);
            let items = match known.and_then(|at| self.known.remove(at)) {
                Some((_, items)) => items,
                None => self.read(blob)?,
            };
            // By itself, so that the rest of the blob need not stay.
            let item = items.get(id).map(|item| Bytes::copy_from_slice(item));
            self.known.push_front((blob, items));
            self.known.truncate(KNOWN_BLOBS);
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }

    /// The items of a blob; none of one that is not stored, or that there is no room to read.
    fn read(&mut self, blob: Digest) -> Result<HashMap<String, Bytes>, FindError> {
        if self.room.0 == 0 {
            return Ok(HashMap::new());
        }
        let bytes = self.reads.blobs(&[blob])?.into_iter().flatten().next();
        let bytes = bytes.filter(|bytes| self.room.takes(bytes));
        let messages = bytes.map(|bytes| history::held_by(&bytes));
        Ok(said_items(self.dialect, &messages.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests;
