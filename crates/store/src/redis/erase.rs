//! Removes what is to be erased, and links that lead to nothing. What is too old the server removes by
//! itself. For commands, and never for a request. Never removes a link that is being written: such a
//! link may lead to nothing for a moment.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_model::Digest;
use redis::{Cmd, Value};

use super::super::batch::Link;
use super::super::error::StoreError;
use super::keys::Keys;
use super::{ReadError, RedisStore, WRITE_LIMIT, members};

/// How many links are looked at before those that lead to nothing are removed.
const LINKS_AT_ONCE: usize = 100_000;
/// How many commands go in one round trip.
const COMMANDS_AT_ONCE: usize = 256;
/// After this time a write has come to its end, or is sent again whole.
const BEING_WRITTEN: Duration = WRITE_LIMIT.saturating_add(Duration::from_secs(1));

impl RedisStore {
    /// Does what [`super::super::Store::erase`] says.
    pub(in super::super) fn erase(&self, ids: &HashSet<Digest>) -> Result<u64, StoreError> {
        let keys = &self.shared.keys;
        let mut removed = 0;
        let ids: Vec<Digest> = ids.iter().copied().collect();
        for some in ids.chunks(COMMANDS_AT_ONCE) {
            let blobs = some.iter().map(|id| keys.remove_blob(id)).collect();
            let answers = self.write(blobs)?;
            removed += answers
                .iter()
                .filter(|answer| **answer == Value::Int(1))
                .count() as u64;
            self.write(some.iter().map(|id| keys.remove_row(id)).collect())?;
            for id in some {
                self.shared.cache.remove(id);
            }
        }
        let erased: HashSet<Digest> = ids.into_iter().collect();
        let mut links = Vec::new();
        self.each_answer('l', Keys::read_set, |key, set| {
            let set = members(set).map_err(|error| self.unreadable(&error))?;
            links.extend(set.into_iter().map(|(turn, id)| Link { key, id, turn }));
            if links.len() >= LINKS_AT_ONCE {
                self.remove_dangling(std::mem::take(&mut links), &erased)?;
            }
            Ok(())
        })?;
        self.remove_dangling(links, &erased)?;
        self.unlist_what_has_no_row()?;
        self.shared.swept.fetch_add(removed, Ordering::Relaxed);
        Ok(removed)
    }

    /// Removes those links that lead to nothing, and go on to do so.
    fn remove_dangling(
        &self,
        links: Vec<Link>,
        erased: &HashSet<Digest>,
    ) -> Result<(), StoreError> {
        let mut dangling = self.dangling(links)?;
        if dangling.iter().any(|link| !erased.contains(&link.id)) {
            std::thread::sleep(BEING_WRITTEN);
            dangling = self.dangling(dangling)?;
        }
        for some in dangling.chunks(COMMANDS_AT_ONCE) {
            let keys = &self.shared.keys;
            self.write(some.iter().map(|link| keys.remove_link(link)).collect())?;
        }
        // A write that was sent again in between may have brought a blob, after its link.
        let gone: HashSet<Link> = self.dangling(dangling.clone())?.into_iter().collect();
        let back = dangling.iter().filter(|link| !gone.contains(link));
        let back: Vec<Cmd> = back.map(|link| self.shared.keys.write_link(link)).collect();
        for some in back.chunks(COMMANDS_AT_ONCE) {
            self.write(some.to_vec())?;
        }
        Ok(())
    }

    /// Takes sessions out of the list whose rows have been too old.
    fn unlist_what_has_no_row(&self) -> Result<(), StoreError> {
        let mut before = None;
        loop {
            let shared = Arc::clone(&self.shared);
            let page = self.wait(async move {
                let places = shared.places_before(before, COMMANDS_AT_ONCE).await?;
                let sessions: Vec<Digest> = places.iter().map(|(_, session)| *session).collect();
                let rows = shared.rows_of(&sessions).await?;
                Ok(places.into_iter().zip(rows).collect::<Vec<_>>())
            })?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            before = Some(*last);
            let gone = page.iter().filter(|(_, row)| row.is_none());
            self.write(
                gone.map(|((_, session), _)| self.shared.keys.unlist(session))
                    .collect(),
            )?;
        }
    }

    /// Those links whose blob is not stored.
    fn dangling(&self, links: Vec<Link>) -> Result<Vec<Link>, StoreError> {
        let mut dangling = Vec::new();
        for some in links.chunks(COMMANDS_AT_ONCE) {
            let ids: Vec<Digest> = some.iter().map(|link| link.id).collect();
            let shared = Arc::clone(&self.shared);
            let stored = self.wait(async move { shared.are_stored(&ids).await })?;
            let gone = some.iter().zip(stored).filter(|(_, stored)| !stored);
            dangling.extend(gone.map(|(link, _)| *link));
        }
        Ok(dangling)
    }

    /// Sends commands that change something, and waits for the answers.
    fn write(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, StoreError> {
        // The writer's own connection stays as it is: what replicas have is asked of it.
        let shared = Arc::clone(&self.shared);
        self.wait(async move { shared.reads.ask(commands).await.map_err(ReadError::from) })
    }
}
