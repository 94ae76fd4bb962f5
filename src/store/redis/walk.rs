//! Walks over everything that is stored. For commands, and never for a request. Never stops others
//! from reading and writing meanwhile: what comes in during a walk may be left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::Digest;

use super::super::error::StoreError;
use super::keys::Keys;
use super::{Members, READ_LIMIT, ReadError, RedisStore, members};

/// How many keys are asked about in one round trip.
const KEYS_AT_ONCE: usize = 1_000;

impl RedisStore {
    /// Every blob that a link leads to, with the turn of the link.
    pub(in super::super) fn linked(&self) -> Result<Members, StoreError> {
        let mut all: BTreeSet<(u32, Digest)> = self.shared.overlay.lock().linked().collect();
        self.each_set(|set| all.extend(set))?;
        let mut linked = Vec::with_capacity(all.len());
        let all: Vec<(u32, Digest)> = all.into_iter().collect();
        for some in all.chunks(KEYS_AT_ONCE) {
            let mut some = [some.to_vec()];
            self.drop_dangling(&mut some)?;
            linked.extend(some.into_iter().flatten());
        }
        Ok(linked)
    }

    /// Hands over the members of every set of links, whole.
    fn each_set(&self, mut each: impl FnMut(Members)) -> Result<(), StoreError> {
        self.each_name(|names| {
            let shared = Arc::clone(&self.shared);
            let asked = names.iter().map(|name| Keys::read_set(name)).collect();
            let sets = self.wait(async move { Ok(shared.ask_to_read(asked).await?) })?;
            for set in sets {
                each(
                    members(set)
                        .map_err(|error| self.shared.error("reading from", &error, READ_LIMIT))?,
                );
            }
            Ok(())
        })
    }

    /// Hands over the names of all sets of links, some at a time. A name may come twice.
    fn each_name(
        &self,
        mut each: impl FnMut(&[Vec<u8>]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.open_for_reading()?;
        let shared = Arc::clone(&self.shared);
        let masters = async move { Ok::<_, ReadError>(shared.reads.masters().await?) };
        for master in self.wait(masters)? {
            let mut at = 0;
            loop {
                let (shared, master) = (Arc::clone(&self.shared), master.clone());
                let pattern = shared.keys.all_links();
                let some = async move { Ok(shared.reads.names(&master, at, &pattern).await?) };
                let (next, names) = self.wait(some)?;
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
}
