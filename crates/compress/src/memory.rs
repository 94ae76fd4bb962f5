//! What is remembered between calls, in memory alone and bounded by bytes: through how many results the passes of a
//! session had gone, and the originals of what is shown as a stub. All of it may be lost: a session's passes follow
//! from its rows, and its next call brings the originals again. Never writes to a disk.

use std::sync::Arc;

use plimsoll_model::caches::{Bounded, of_bytes};
use plimsoll_model::{Digest, TenantId};

/// One part in so many is for where sessions stand.
const STANDS_SHARE: usize = 16;

/// What is remembered.
pub struct Memory {
    /// By a chain of results: through how many of them the passes had gone.
    stands: Bounded<Digest, u32>,
    /// By tenant and id. `None` if originals are not kept.
    originals: Option<Bounded<(TenantId, String), Arc<str>>>,
}

impl Memory {
    /// Takes so many bytes at most.
    pub fn of(bytes: usize, keep: bool) -> Self {
        let stands = bytes / STANDS_SHARE;
        let originals = bytes.saturating_sub(stands) as u64;
        Self {
            stands: of_bytes(stands as u64, None),
            // In one piece, so that a long result fits.
            originals: keep.then(|| of_bytes(originals, Some(1))),
        }
    }

    /// The newest of these chains that is known: its place, and through how many results the passes had gone.
    pub fn stand(&self, chains: &[Digest]) -> Option<(usize, usize)> {
        let mut newest = chains.iter().enumerate().rev();
        newest.find_map(|(place, chain)| {
            let through = self.stands.get(chain)?;
            Some((place, usize::try_from(through).ok()?))
        })
    }

    /// Remembers where a session stands. What was replaced once stays so.
    pub fn set_stand(&self, chain: Digest, through: usize) {
        let through = u32::try_from(through).unwrap_or(u32::MAX);
        let before = self.stands.get(&chain);
        if before.is_none_or(|before| before < through) {
            self.stands.insert(chain, through);
        }
    }

    /// Whether originals are kept.
    pub const fn keeps(&self) -> bool {
        self.originals.is_some()
    }

    /// Keeps an original.
    pub fn keep(&self, tenant: TenantId, id: &str, original: &str) {
        let Some(originals) = &self.originals else {
            return;
        };
        let key = (tenant, id.to_owned());
        if originals.get(&key).is_none() {
            originals.insert(key, Arc::from(original));
        }
    }

    /// The original of an id of this tenant.
    pub fn original(&self, tenant: TenantId, id: &str) -> Option<Arc<str>> {
        self.originals.as_ref()?.get(&(tenant, id.to_owned()))
    }
}
