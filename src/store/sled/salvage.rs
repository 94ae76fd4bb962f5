//! Saves what can still be read of a damaged engine. Owns the order of reading. Never writes to the
//! damaged engine.

use std::path::Path;

use ::sled::Tree;

use super::super::error::StoreError;
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
        let mut counts = Counts::default();
        let blobs = |key: &[u8]| counts.blobs += u64::from(key.ends_with(&[0; 4]));
        copy_readable((&damaged.blobs, aside), (&self.blobs, path), blobs)?;
        let links = |_: &[u8]| counts.links += 1;
        copy_readable((&damaged.links, aside), (&self.links, path), links)?;
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
    (to, path): (&Tree, &Path),
    mut copied: impl FnMut(&[u8]),
) -> Result<(), StoreError> {
    let mut last = None;
    let mut forward = from.iter();
    while let Ok(Some((key, value))) = guarded(aside, || forward.next().transpose()) {
        // A damaged tree may show an entry twice.
        if guarded(path, || to.insert(&key, value))?.is_none() {
            copied(&key);
        }
        last = Some(key);
    }
    let mut backward = from.iter().rev();
    while let Ok(Some((key, value))) = guarded(aside, || backward.next().transpose()) {
        if last.as_ref().is_some_and(|last| key <= *last) {
            break;
        }
        if guarded(path, || to.insert(&key, value))?.is_none() {
            copied(&key);
        }
    }
    Ok(())
}
