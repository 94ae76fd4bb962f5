//! What is asked of the server to find links and blobs, and how its answers are read. Owns what is read
//! ahead. Never waits on behalf of anybody: that is done by who asks.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use plimsoll_model::{Digest, is_id_of};
use redis::{RedisError, Value};

use super::super::batch::{MEMBERS, Take};
use super::keys::{blob_value, parse_member};
use super::{Members, ReadError, Shared};

/// How many of the blobs that links lead to are read with them, because they are nearly always asked
/// for next. Of the others it is only asked whether they are stored.
const READ_AHEAD: usize = 16;
/// How many more pages are read of a set whose first members lead to nothing.
const PAGES: usize = 8;

impl Shared {
    /// So many members of each set, behind the first or before the last `from` of them, whether their blobs are
    /// stored or not.
    pub(super) async fn read_links(
        &self,
        keys: &[Digest],
        take: Take,
        from: usize,
        count: usize,
    ) -> Result<Vec<Members>, ReadError> {
        let asked = keys
            .iter()
            .map(|key| self.keys.read_links(key, take, from, count));
        let pages = self.ask_to_read(asked.collect()).await?.into_iter();
        pages.map(|page| Ok(members(page)?)).collect()
    }

    /// Members of each set, behind the first or before the last `from` of them, whose blobs are stored: as many
    /// as are wanted, or a few more. All sets are read on together, page by page.
    pub(super) async fn read_on(
        &self,
        keys: &[Digest],
        take: Take,
        from: usize,
    ) -> Result<Vec<Members>, ReadError> {
        let mut sets = vec![Members::new(); keys.len()];
        let mut open: Vec<(Digest, &mut Members)> = keys.iter().copied().zip(&mut sets).collect();
        for number in 0..PAGES {
            let those: Vec<Digest> = open.iter().map(|(key, _)| *key).collect();
            let from = from + number * MEMBERS;
            let pages = self.read_links(&those, take, from, MEMBERS).await?;
            let ids: Vec<Digest> = pages.iter().flatten().map(|(_, id)| *id).collect();
            let mut stored = self.are_stored(&ids).await?.into_iter();
            let mut unfinished = Vec::new();
            for ((key, set), page) in open.into_iter().zip(pages) {
                let full = page.len() >= MEMBERS;
                set.extend(page.into_iter().filter(|_| stored.next().unwrap_or(true)));
                if full && set.len() < take.most() {
                    unfinished.push((key, set));
                }
            }
            open = unfinished;
            if open.is_empty() {
                break;
            }
        }
        Ok(sets)
    }

    /// Whether each blob is stored.
    pub(super) async fn are_stored(&self, ids: &[Digest]) -> Result<Vec<bool>, ReadError> {
        let asked = ids.iter().map(|id| self.keys.has_blob(id)).collect();
        let answers = self.ask_to_read(asked).await?;
        Ok(answers
            .iter()
            .map(|answer| *answer == Value::Int(1))
            .collect())
    }

    /// Whether each blob is stored. Reads the first few into the cache.
    pub(super) async fn look_ahead(&self, ids: &[Digest]) -> Result<Vec<bool>, ReadError> {
        let (ahead, rest) = ids.split_at(ids.len().min(READ_AHEAD));
        let read = ahead.iter().map(|id| self.keys.read_blob(id));
        let asked = rest.iter().map(|id| self.keys.has_blob(id));
        let answers = self.ask_to_read(read.chain(asked).collect()).await?;
        let mut stored = Vec::with_capacity(ids.len());
        for (id, answer) in ids.iter().zip(answers) {
            stored.push(match answer {
                Value::Int(count) => count == 1,
                value => self.take(id, value)?.is_some(),
            });
        }
        Ok(stored)
    }

    pub(super) async fn read_blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, ReadError> {
        let asked = ids.iter().map(|id| self.keys.read_blob(id)).collect();
        let answers = self.ask_to_read(asked).await?;
        let blobs = ids
            .iter()
            .zip(answers)
            .map(|(id, answer)| self.take(id, answer));
        blobs.collect()
    }

    /// The blob in an answer, checked against its id. It goes into the cache.
    fn take(&self, id: &Digest, answer: Value) -> Result<Option<Bytes>, ReadError> {
        let stored = match answer {
            Value::BulkString(stored) => stored,
            _ => return Ok(None),
        };
        match blob_value(&self.settings.seals, id, &stored) {
            Ok((_, value)) if is_id_of(id, &value) => {
                self.cache.insert(*id, value.clone());
                Ok(Some(value))
            }
            Err(error) if !error.is_damage() => Err(ReadError::Value(error)),
            Ok(_) | Err(_) => {
                self.mismatched.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }
}

/// The members in an answer. Leaves out what somebody else wrote.
pub(super) fn members(answer: Value) -> Result<Members, RedisError> {
    let members: Option<Vec<Vec<u8>>> = redis::from_redis_value(answer)?;
    let members = members.unwrap_or_default();
    Ok(members
        .iter()
        .filter_map(|member| parse_member(member))
        .collect())
}
