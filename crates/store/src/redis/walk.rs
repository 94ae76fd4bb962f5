//! Walks over everything that is stored. For commands, and never for a request. Never stops others
//! from reading and writing meanwhile: what comes in during a walk may be left out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_model::{Digest, is_id_of};
use redis::{Cmd, Value};

use super::super::batch::{Batch, BatchKind, Link, Take};
use super::super::error::StoreError;
use super::keys::{Keys, blob_value};
use super::rows::row_in;
use super::{Members, ReadError, RedisStore, members};

/// How many keys are asked about in one round trip.
const KEYS_AT_ONCE: usize = 64;
/// About how many bytes a batch has that is handed over.
const BATCH_BYTES: usize = 1 << 20;

/// Whom a walk hands batches to.
type Each<'a> = &'a mut dyn FnMut(Batch) -> Result<(), StoreError>;

impl RedisStore {
    /// Every blob that a link leads to, with the turn of the link.
    pub(in super::super) fn linked(&self) -> Result<Members, StoreError> {
        let mut all: BTreeSet<(u32, Digest)> = self.shared.overlay.lock().linked().collect();
        self.each_answer('l', Keys::read_set, |_, set| {
            all.extend(members(set).map_err(|error| self.unreadable(&error))?);
            Ok(())
        })?;
        let mut linked = Vec::with_capacity(all.len());
        let all: Vec<(u32, Digest)> = all.into_iter().collect();
        for some in all.chunks(KEYS_AT_ONCE) {
            let mut some = [some.to_vec()];
            self.drop_dangling(&mut some, Take::ALL)?;
            linked.extend(some.into_iter().flatten());
        }
        Ok(linked)
    }

    /// Hands over everything, as [`super::super::Store::each`] says.
    pub(in super::super) fn each(&self, each: Each<'_>) -> Result<(), StoreError> {
        // The overlay is looked at first, so that what leaves it meanwhile is not missed.
        let (blobs, rest) = self.shared.overlay.lock().each();
        blobs.into_iter().try_for_each(&mut *each)?;
        self.each_blob(each)?;
        self.each_answer('l', Keys::read_set, |key, set| {
            let set = members(set).map_err(|error| self.unreadable(&error))?;
            let links = set.into_iter().map(|(turn, id)| Link { key, id, turn });
            each(Batch {
                links: links.collect(),
                ..Batch::default()
            })
        })?;
        self.each_answer('r', Keys::read_row_named, |session, row| {
            let listed = row_in(session, row).map_err(|error| self.unreadable(&error))?;
            each(Batch {
                listed,
                ..Batch::default()
            })
        })?;
        rest.into_iter().try_for_each(each)
    }

    /// Hands over all blobs that are what their ids say.
    fn each_blob(&self, each: Each<'_>) -> Result<(), StoreError> {
        let new = |kind| Batch {
            kind,
            ..Batch::default()
        };
        let mut open = [BatchKind::Records, BatchKind::Content].map(new);
        self.each_answer('b', Keys::read_value, |id, value| {
            let Value::BulkString(stored) = value else {
                return Ok(());
            };
            let (kind, value) = match blob_value(&self.shared.settings.seals, &id, &stored) {
                Ok((kind, value)) if is_id_of(&id, &value) => (kind, value),
                Err(error) if !error.is_damage() => return Err(error.into()),
                Ok(_) | Err(_) => {
                    self.shared.mismatched.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            };
            for batch in open.iter_mut().filter(|batch| batch.kind == kind) {
                batch.blobs.push((id, value.clone()));
                if batch.size() >= BATCH_BYTES {
                    each(std::mem::replace(batch, new(kind)))?;
                }
            }
            Ok(())
        })?;
        open.into_iter().try_for_each(each)
    }

    /// Reads every key of a kind, and hands over its digest with the answer. A key may come twice.
    pub(super) fn each_answer(
        &self,
        kind: char,
        read: fn(&[u8]) -> Cmd,
        mut each: impl FnMut(Digest, Value) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.each_name(kind, |names| {
            let shared = Arc::clone(&self.shared);
            let asked = names.iter().map(|name| read(name)).collect();
            let answers = self.wait(async move { Ok(shared.ask_to_read(asked).await?) })?;
            for (name, answer) in names.iter().zip(answers) {
                if let Some(digest) = self.shared.keys.digest_in(kind, name) {
                    each(digest, answer)?;
                }
            }
            Ok(())
        })
    }

    /// Hands over the names of all keys of a kind, some at a time. A name may come twice.
    fn each_name(
        &self,
        kind: char,
        mut each: impl FnMut(&[Vec<u8>]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.open_for_reading()?;
        let shared = Arc::clone(&self.shared);
        let masters = async move { Ok::<_, ReadError>(shared.reads.masters().await?) };
        for master in self.wait(masters)? {
            let mut at = 0;
            let mut connection = self.shared.reads.number();
            loop {
                let (shared, master) = (Arc::clone(&self.shared), master.clone());
                let pattern = shared.keys.all(kind);
                let some = async move { Ok(shared.reads.names(&master, at, &pattern).await?) };
                let (next, names) = self.wait(some)?;
                // A cursor counts only where it was given. Another connection may lead to a server that
                // was started again, or to what was a replica, so this one is walked from its front.
                let now = self.shared.reads.number();
                if now != std::mem::replace(&mut connection, now) && at != 0 {
                    at = 0;
                    continue;
                }
                for some in names.chunks(KEYS_AT_ONCE) {
                    each(some)?;
                }
                if next == 0 {
                    break;
                }
                at = next;
            }
        }
        Ok(())
    }

    pub(super) fn unreadable(&self, error: &redis::RedisError) -> StoreError {
        let limit = self.shared.settings.redis.patience;
        self.shared.error("reading from", error, limit)
    }
}
