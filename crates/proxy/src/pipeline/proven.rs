//! Remembers what an upstream has shown once and for good, in memory and in the store: that it accepts a
//! credential, and that it refuses a model's thoughts once something before them changed. Owns the keys under
//! which this is stored. Never holds a credential, only its hash, and never decides what follows from it.

use bytes::Bytes;
use plimsoll_model::{Digest, blob_id};
use plimsoll_store::{Batch, Link, Store};
use quick_cache::sync::Cache;

use super::learned::TenantModel;

/// How many facts memory holds. The store holds all of them.
const FACTS_HELD: usize = 10_000;
/// The blob that the key of a fact leads to.
const TAKEN: &[u8] = b"taken";

/// Something that an upstream has shown.
#[derive(Clone, Copy)]
pub(super) enum Fact<'a> {
    /// It accepts this credential.
    Credential(Digest),
    /// It refuses the thoughts of this model once something before them changed.
    Binds(&'a TenantModel),
}

/// What one upstream has shown.
pub struct Proven {
    /// The upstream. What one has shown does not count for another.
    upstream: Digest,
    /// Facts by their key in the store. The value says whether the store has taken the entry.
    known: Cache<Digest, bool>,
}

impl Proven {
    /// An empty set for the upstream at this base URL.
    #[must_use]
    pub fn by(base_url: &str) -> Self {
        Self {
            upstream: Digest::of(&[b"upstream", base_url.as_bytes()]),
            known: Cache::new(FACTS_HELD),
        }
    }

    /// The key of a fact in the store.
    pub(super) fn key(&self, fact: Fact<'_>) -> Digest {
        let upstream = self.upstream.as_bytes();
        match fact {
            Fact::Credential(credential) => {
                Digest::of(&[b"taken", upstream, credential.as_bytes()])
            }
            Fact::Binds(whose) => Digest::of(&[b"binds", upstream, whose.digest().as_bytes()]),
        }
    }

    /// Notes a fact. Nobody waits for the write: if it is lost, the upstream shows it again after a restart.
    pub(super) fn note(&self, store: &Store, fact: Fact<'_>) {
        let key = self.key(fact);
        if self.known.get(&key) == Some(true) {
            return;
        }
        let id = blob_id(TAKEN);
        let ticket = store.commit(Batch {
            blobs: vec![(id, Bytes::from_static(TAKEN))],
            links: vec![Link { key, id, turn: 0 }],
            owner: Some(self.upstream),
            ..Batch::default()
        });
        self.known.insert(key, !ticket.is_refused());
    }

    /// Whether memory knows the fact with this key.
    pub(super) fn knows(&self, key: &Digest) -> bool {
        self.known.get(key).is_some()
    }

    /// Takes over what the store knows.
    pub(super) fn learn(&self, key: Digest) {
        self.known.insert(key, true);
    }
}
