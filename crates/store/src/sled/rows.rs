//! How the list of sessions lies in the engine: a tree `rows`, where `time (u64) ‖ session (32)`
//! leads to `id (32) ‖ row`, and a tree `newest`, where the session leads to the time of its row.
//! Numbers are big-endian, so that the list is read in its order from the back. Owns both trees, and
//! which rows wait for them. Never looks into a row.

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use plimsoll_model::Digest;

use super::super::batch::Listed;
use super::super::error::StoreError;
use super::committer::Committer;
use super::trees::{Trees, guarded};
use super::writes::Writes;

/// What was done to put a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutRow {
    /// Its session had none.
    pub(super) new: bool,
    /// It was written.
    pub(super) wrote: bool,
}

impl Committer {
    /// Keeps rows in memory until the engine is completed. A row costs the engine three writes, and a
    /// busy session gets its next one before that, which replaces this one. Nothing is lost with the
    /// memory, because the journal or the archive has each row.
    pub(super) fn let_wait(&mut self, rows: impl IntoIterator<Item = Listed>) {
        let mut overlay = self.shared.overlay.lock();
        for listed in rows {
            let waiting = self.rows.get(&listed.session);
            if waiting.is_some_and(|waiting| !listed.replaces(waiting)) {
                continue;
            }
            // Readers find one of the two at any time.
            overlay.hold_row(listed.clone());
            if let Some(old) = self.rows.insert(listed.session, listed) {
                overlay.release_row(&old);
            }
        }
    }

    /// Brings the engine the rows that wait.
    pub(super) fn put_rows(&mut self, trees: &Trees) -> Result<(), StoreError> {
        let rows = Writes {
            rows: self.rows.values().cloned().collect(),
            ..Writes::default()
        };
        self.put(trees, &rows)?;
        self.forget_rows();
        Ok(())
    }

    /// Lets no row wait any more: the engine has them, or gets them from the archive and the journal.
    pub(super) fn forget_rows(&mut self) {
        let mut overlay = self.shared.overlay.lock();
        for (_, listed) in self.rows.drain() {
            overlay.release_row(&listed);
        }
    }
}

impl Trees {
    /// The row of a session.
    pub(super) fn row(&self, path: &Path, session: &Digest) -> Result<Option<Listed>, StoreError> {
        let newest = guarded(path, || self.newest.get(session.as_bytes()))?;
        newest.map_or(Ok(None), |at| self.row_of(path, (&at, session)))
    }

    /// The row of a session, whose time is known.
    fn row_of(
        &self,
        path: &Path,
        (at, session): (&[u8], &Digest),
    ) -> Result<Option<Listed>, StoreError> {
        let key = [at, session.as_bytes()].concat();
        let value = guarded(path, || self.rows.get(&key))?;
        Ok(value.and_then(|value| parse_row(&key, &value)))
    }

    /// Keeps a row in place of the one that its session has, unless that is newer.
    pub(super) fn put_row(&self, path: &Path, listed: &Listed) -> Result<PutRow, StoreError> {
        let session = listed.session.as_bytes();
        let at = listed.at.to_be_bytes();
        let old = guarded(path, || self.newest.get(session))?;
        // A later row replaces the old one unseen. Otherwise the old one is read, which may be missing.
        // Of two rows with the same time the greater stays.
        if let Some(old) = old.as_deref().filter(|old| *old >= &at[..])
            && let Some(old) = self.row_of(path, (old, &listed.session))?
            && !listed.replaces(&old)
        {
            return Ok(PutRow::default());
        }
        let value = [listed.id.as_bytes(), &listed.row[..]].concat();
        guarded(path, || {
            // After a crash in between, the copies put the row again, because they are ahead.
            if let Some(old) = old.as_deref().filter(|old| *old != &at[..]) {
                self.rows.remove([old, &session[..]].concat())?;
            }
            self.rows.insert(row_key(listed.place()), value)?;
            self.newest.insert(session, &at)?;
            let new = old.is_none();
            Ok(PutRow { new, wrote: true })
        })
    }

    /// The rows before a place, newest first.
    pub(super) fn rows_before(
        &self,
        path: &Path,
        before: Option<(u64, Digest)>,
        most: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let end = before.map_or(Bound::Unbounded, |place| Bound::Excluded(row_key(place)));
        let mut entries = self.rows.range((Bound::Unbounded, end)).rev();
        let mut rows = Vec::new();
        while rows.len() < most
            && let Some((key, value)) = guarded(path, || entries.next().transpose())?
        {
            let Some(listed) = parse_row(&key, &value) else {
                continue;
            };
            // Damage may have brought back a row that was replaced.
            let newest = guarded(path, || self.newest.get(listed.session.as_bytes()))?;
            if newest.is_some_and(|at| *at == listed.at.to_be_bytes()) {
                rows.push(listed);
            }
        }
        Ok(rows)
    }
}

fn row_key((at, session): (u64, Digest)) -> [u8; 40] {
    let mut key = [0; 40];
    let (time, rest) = key.split_at_mut(8);
    time.copy_from_slice(&at.to_be_bytes());
    rest.copy_from_slice(session.as_bytes());
    key
}

/// A row as it lies in the tree. `None` for what the store never writes.
pub(super) fn parse_row(key: &[u8], value: &[u8]) -> Option<Listed> {
    let (at, session) = key.split_first_chunk::<8>()?;
    let (id, row) = value.split_first_chunk::<32>()?;
    Some(Listed {
        session: Digest(session.try_into().ok()?),
        at: u64::from_be_bytes(*at),
        id: Digest(*id),
        row: Bytes::copy_from_slice(row),
    })
}
