//! Reads the list of sessions. Never reads anything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::Digest;
use redis::{RedisError, Value};

use super::super::batch::Listed;
use super::super::error::StoreError;
use super::keys::{PARTS, parse_row};
use super::{ReadError, RedisStore, Shared};

/// Where a row stands in the list: its time and its session.
type Place = (u64, Digest);

impl RedisStore {
    pub(in super::super) fn sessions(
        &self,
        before: Option<Place>,
        most: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        self.open_for_reading()?;
        // The overlay comes first, as in `links`.
        let waiting = self.shared.overlay.lock().rows();
        let sessions: Vec<Digest> = waiting.keys().copied().collect();
        let wanted = most.saturating_add(waiting.len());
        let shared = Arc::clone(&self.shared);
        let (listed, known) = self.wait(async move {
            let known = shared.rows_of(&sessions).await?;
            Ok((shared.rows_before(before, wanted).await?, known))
        })?;
        let mut rows = BTreeMap::new();
        for row in listed.into_iter().chain(known.into_iter().flatten()) {
            // Of a row that waits, the session may have an older one in the server.
            let newer = waiting
                .get(&row.session)
                .filter(|newer| newer.replaces(&row));
            let row = newer.cloned().unwrap_or(row);
            rows.insert(row.session, row);
        }
        for row in waiting.into_values() {
            rows.entry(row.session).or_insert(row);
        }
        let mut rows: Vec<Listed> = rows.into_values().collect();
        rows.retain(|row| before.is_none_or(|before| row.place() < before));
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.place()));
        rows.truncate(most);
        Ok(rows)
    }
}

impl Shared {
    /// The rows behind a place, newest first.
    async fn rows_before(
        &self,
        mut before: Option<Place>,
        most: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let mut rows = Vec::new();
        // A row may have expired that the list still has. More are read in its place.
        while rows.len() < most {
            let wanted = most - rows.len();
            let places = self.places_before(before, wanted).await?;
            let Some(last) = places.last() else { break };
            before = Some(*last);
            let sessions: Vec<Digest> = places.iter().map(|(_, session)| *session).collect();
            rows.extend(self.rows_of(&sessions).await?.into_iter().flatten());
        }
        Ok(rows)
    }

    /// The first `most` places behind a place, newest first.
    pub(super) async fn places_before(
        &self,
        before: Option<Place>,
        most: usize,
    ) -> Result<Vec<Place>, ReadError> {
        let mut places = Vec::new();
        // Each part with how many of its sessions were read, and how many of them count.
        let mut parts: Vec<(u8, usize, usize)> = (0..PARTS).map(|part| (part, 0, 0)).collect();
        while !parts.is_empty() {
            let time = before.map(|(time, _)| time);
            let page =
                |&(part, from, _): &(u8, usize, usize)| self.keys.read_part(part, time, from, most);
            let answers = self.ask_to_read(parts.iter().map(page).collect()).await?;
            let mut unread = Vec::new();
            for ((part, from, counted), answer) in parts.into_iter().zip(answers) {
                let page = scored(answer)?;
                let (read, known) = (page.len(), places.len());
                let session = |(member, time): (Vec<u8>, u64)| {
                    Some((time, Digest(<[u8; 32]>::try_from(member).ok()?)))
                };
                let page = page.into_iter().filter_map(session);
                places.extend(page.filter(|place| before.is_none_or(|before| *place < before)));
                // Some of a page may have the time of `before` and stand in front of it.
                let counted = counted + places.len() - known;
                if read == most && counted < most {
                    unread.push((part, from + read, counted));
                }
            }
            parts = unread;
        }
        places.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
        places.truncate(most);
        Ok(places)
    }

    /// The row of each session.
    pub(super) async fn rows_of(
        &self,
        sessions: &[Digest],
    ) -> Result<Vec<Option<Listed>>, ReadError> {
        let asked = sessions.iter().map(|session| self.keys.read_row(session));
        let answers = self.ask_to_read(asked.collect()).await?;
        let rows = sessions.iter().zip(answers);
        Ok(rows
            .map(|(session, answer)| row_in(*session, answer))
            .collect::<Result<_, RedisError>>()?)
    }
}

/// The row in an answer.
pub(super) fn row_in(session: Digest, answer: Value) -> Result<Option<Listed>, RedisError> {
    let member = scored(answer)?.pop();
    Ok(member.and_then(|(member, at)| parse_row(session, at, &member)))
}

/// Members with their scores, which are times.
fn scored(answer: Value) -> Result<Vec<(Vec<u8>, u64)>, RedisError> {
    let members: Vec<(Vec<u8>, f64)> = redis::from_redis_value(answer)?;
    // A time in milliseconds is a whole number that a score holds exactly.
    Ok(members
        .into_iter()
        .map(|(member, at)| (member, at as u64))
        .collect())
}
