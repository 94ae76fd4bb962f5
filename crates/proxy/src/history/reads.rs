//! Reads the store, and tells how long each reading took. A reading for which nobody waits any more is
//! not begun. Never knows what is looked up.

use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_model::Digest;
use plimsoll_store::{Member, Store, StoreError, Take};

use super::{FindError, Patience};
use crate::record::StoreOp;

/// How many blobs are read before asking again whether anybody still waits.
const AT_ONCE: usize = 256;

/// A store, and a function that is told how long each reading took.
pub struct Reads<'a> {
    store: &'a Store,
    told: &'a dyn Fn(StoreOp, Duration),
    patience: Patience,
}

impl<'a> Reads<'a> {
    /// Reads a store and tells `told` of each reading.
    #[must_use]
    pub fn new(store: &'a Store, told: &'a dyn Fn(StoreOp, Duration)) -> Self {
        Self {
            store,
            told,
            patience: Patience::default(),
        }
    }

    /// These reads, which stop when nobody waits any more.
    #[must_use]
    pub fn while_waited_for(self, patience: &Patience) -> Self {
        Self {
            patience: patience.clone(),
            ..self
        }
    }

    /// As [`Store::links`].
    pub fn links(&self, keys: &[Digest], take: Take) -> Result<Vec<Vec<Member>>, FindError> {
        self.timed(StoreOp::Links, |store| store.links(keys, take))
    }

    /// As [`Store::blobs`], but a few at a time, so that a long list can be stopped.
    pub fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, FindError> {
        let mut blobs = Vec::with_capacity(ids.len());
        for some in ids.chunks(AT_ONCE) {
            blobs.append(&mut self.timed(StoreOp::Blobs, |store| store.blobs(some))?);
        }
        Ok(blobs)
    }

    fn timed<T>(
        &self,
        op: StoreOp,
        read: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, FindError> {
        if self.patience.is_over() {
            return Err(FindError::Late);
        }
        let begun = Instant::now();
        let answer = read(self.store);
        (self.told)(op, begun.elapsed());
        Ok(answer?)
    }
}
