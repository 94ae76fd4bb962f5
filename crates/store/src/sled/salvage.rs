//! Saves what can still be read of a damaged engine. Owns the order of reading. Never writes to the
//! damaged engine.

use std::path::Path;

use ::sled::{IVec, Tree};

use super::super::error::StoreError;
use super::packs::{Places, parse_pack};
use super::rows::parse_row;
use super::trees::{Counts, Position, Trees, guarded};

impl Trees {
    /// Copies everything readable from a damaged engine into this new one: each tree from its front
    /// up to the damage, and then from its back down to it. Readers check what is copied against
    /// its id.
    pub(super) fn salvage(
        &self,
        path: &Path,
        damaged: &Self,
        aside: &Path,
    ) -> Result<Counts, StoreError> {
        copy_readable((&damaged.blobs, aside), |key, value| {
            guarded(path, || self.blobs.insert(key, value).map(drop))
        })?;
        // Each link is put anew, because what is left of a pack may reach into another.
        copy_readable((&damaged.packs, aside), |_, value| {
            parse_pack(value).try_for_each(|(link, day)| {
                self.put_link(path, (&link, day), &mut Places::default())
                    .map(drop)
            })
        })?;
        // Each row is put anew, so that the two trees of rows agree.
        copy_readable((&damaged.rows, aside), |key, value| {
            parse_row(key, value).map_or(Ok(()), |row| self.put_row(path, &row).map(drop))
        })?;
        let counts = self.check(path, usize::MAX)?.counts;
        // The new engine knows of no group, so everything in the archive and the journal is applied
        // to it.
        let position = Position {
            counts,
            ..Position::default()
        };
        self.put_position(path, position)?;
        self.sync(path)?;
        Ok(counts)
    }
}

/// Stops without an error where the source can't be read, and with one where the target can't be
/// written.
fn copy_readable(
    (from, aside): (&Tree, &Path),
    put: impl Fn(&IVec, &IVec) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut last = None;
    let mut forward = from.iter();
    while let Ok(Some((key, value))) = guarded(aside, || forward.next().transpose()) {
        put(&key, &value)?;
        last = Some(key);
    }
    let mut backward = from.iter().rev();
    while let Ok(Some((key, value))) = guarded(aside, || backward.next().transpose()) {
        if last.as_ref().is_some_and(|last| key <= *last) {
            break;
        }
        put(&key, &value)?;
    }
    Ok(())
}
