//! What readers ask of the store: waiting writes and the engine together. Owns that nothing is
//! missed that moves from one to the other meanwhile. Never writes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use plimsoll_model::{Digest, is_id_of};

use super::super::batch::{Batch, BatchKind, Listed, Member, Take};
use super::super::codec;
use super::super::error::StoreError;
use super::SledStore;
use super::scan::Cursor;
use super::trees::StoredBlob;
use super::writes::Writes;

/// About how many bytes are handed over at a time.
const PART_BYTES: usize = 1 << 20;

/// Leaves the first members whose blob is stored, up to so many.
fn drop_dangling(
    set: &mut Vec<Member>,
    most: usize,
    stored: impl Fn(&Digest) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut kept = Vec::with_capacity(set.len().min(most));
    for member in set.drain(..) {
        if kept.len() >= most {
            break;
        }
        if stored(&member.1)? {
            kept.push(member);
        }
    }
    *set = kept;
    Ok(())
}

impl SledStore {
    pub(crate) fn links(
        &self,
        keys: &[Digest],
        take: Take,
    ) -> Result<Vec<Vec<Member>>, StoreError> {
        // The overlay is read before the trees. A batch that moves from one to the other in between
        // is then found twice and never missed.
        let mut sets: Vec<Vec<Member>> = {
            let overlay = self.shared.overlay.lock();
            keys.iter().map(|key| overlay.links(key, take)).collect()
        };
        self.shared.read(|trees, path| {
            let stored = |id: &Digest| self.shared.has_blob(trees, id);
            for (key, set) in keys.iter().zip(&mut sets) {
                drop_dangling(set, take.most(), stored)?;
                take.join(set, trees.links(path, key, take, stored)?);
            }
            Ok(())
        })?;
        Ok(sets)
    }

    pub(crate) fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        // The overlay comes first, as in `links`.
        let mut set: BTreeSet<(u32, Digest)> = self.shared.overlay.lock().linked().collect();
        self.shared.read(|trees, path| {
            trees.each_member(path, |member| {
                set.insert(member);
            })?;
            let mut set = set.into_iter().collect();
            drop_dangling(&mut set, usize::MAX, |id| self.shared.has_blob(trees, id))?;
            Ok(set)
        })
    }

    pub(crate) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut blobs: Vec<Option<Bytes>> = {
            let overlay = self.shared.overlay.lock();
            ids.iter().map(|id| overlay.blob(id).cloned()).collect()
        };
        self.shared.read(|trees, path| {
            // Only what does not wait in the overlay is read from the disk.
            for (id, blob) in ids
                .iter()
                .zip(&mut blobs)
                .filter(|(_, blob)| blob.is_none())
            {
                *blob = match trees.blob(path, id)? {
                    StoredBlob::Whole(value) => Some(value),
                    StoredBlob::Absent => None,
                    StoredBlob::Mismatch => {
                        self.shared.mismatched.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                };
            }
            Ok(())
        })?;
        Ok(blobs)
    }

    pub(crate) fn sessions(
        &self,
        before: Option<(u64, Digest)>,
        most: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        // The overlay comes first, as in `links`.
        let mut newest = self.shared.overlay.lock().rows();
        let waited: Vec<Digest> = newest.keys().copied().collect();
        self.shared.read(|trees, path| {
            let rows = trees.rows_before(path, before, most.saturating_add(waited.len()))?;
            // A row that waited may be in the engine by now, or may have been replaced there, behind
            // the place that was read.
            let moved = waited.iter().map(|session| trees.row(path, session));
            let moved: Result<Vec<_>, _> = moved.collect();
            for listed in rows.into_iter().chain(moved?.into_iter().flatten()) {
                let known = newest.get(&listed.session);
                if known.is_none_or(|known| listed.replaces(known)) {
                    newest.insert(listed.session, listed);
                }
            }
            let rows = newest.into_values();
            let mut rows: Vec<Listed> = rows
                .filter(|listed| before.is_none_or(|before| listed.place() < before))
                .collect();
            rows.sort_unstable_by_key(|listed| Reverse(listed.place()));
            rows.truncate(most);
            Ok(rows)
        })
    }

    /// Those of some rows that would replace what is kept of their sessions.
    pub(crate) fn newer(&self, rows: &[Listed]) -> Result<Vec<Listed>, StoreError> {
        let waiting = self.shared.overlay.lock().rows();
        let mut newer = Vec::new();
        self.shared.read(|trees, path| {
            for row in rows {
                let known = [
                    waiting.get(&row.session).cloned(),
                    trees.row(path, &row.session)?,
                ];
                if known.iter().flatten().all(|known| row.replaces(known)) {
                    newer.push(row.clone());
                }
            }
            Ok(())
        })?;
        Ok(newer)
    }

    pub(crate) fn each(
        &self,
        each: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // The overlay comes first, as in `links`. Its links and rows come last, because they may
        // lead to blobs of the engine.
        let (blobs, rest) = self.shared.overlay.lock().each();
        for batch in blobs {
            each(batch)?;
        }
        let mut cursor = Cursor::default();
        // Nobody who needs the engine has to wait until everything was handed over.
        while let Some(part) = self
            .shared
            .read(|trees, path| trees.part(path, &mut cursor, PART_BYTES))?
        {
            for batch in self.decoded(part)? {
                each(batch)?;
            }
        }
        rest.into_iter().try_for_each(each)
    }

    /// A part of the engine as batches, each of one kind.
    fn decoded(&self, part: Writes) -> Result<Vec<Batch>, StoreError> {
        let (mut records, mut content) = (Vec::new(), Vec::new());
        for (id, age, stored) in part.blobs {
            let value = match codec::decode(&self.shared.settings.seals, &id, &stored) {
                Ok(value) if is_id_of(&id, &value) => value,
                Err(error) if !error.is_damage() => return Err(error.into()),
                Ok(_) | Err(_) => {
                    self.shared.mismatched.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            match age.kind() {
                BatchKind::Records => records.push((id, value)),
                BatchKind::Content => content.push((id, value)),
            }
        }
        let batches = [
            Batch {
                blobs: records,
                links: part.links.into_iter().map(|(link, _)| link).collect(),
                ..Batch::default()
            },
            Batch {
                blobs: content,
                kind: BatchKind::Content,
                ..Batch::default()
            },
        ];
        let rows = part.rows.into_iter().map(|row| Batch {
            listed: Some(row),
            ..Batch::default()
        });
        let filled = |batch: &Batch| !batch.blobs.is_empty() || !batch.links.is_empty();
        Ok(batches.into_iter().filter(filled).chain(rows).collect())
    }
}
