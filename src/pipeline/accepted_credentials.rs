//! Remembers which credentials the upstream has accepted, in memory and in the store. Owns the keys
//! under which they are stored. Never holds a credential, only its hash, and never decides what an
//! accepted credential may do.

use bytes::Bytes;
use quick_cache::sync::Cache;

use crate::model::{Digest, blob_id};
use crate::store::{Batch, Link, Store};

/// How many credentials memory holds. The store holds all of them.
const CREDENTIALS_HELD: usize = 10_000;
/// The blob that the key of an accepted credential leads to.
const TAKEN: &[u8] = b"taken";

/// The credentials that one upstream has accepted.
pub struct AcceptedCredentials {
    /// The upstream that accepted them. The word of one upstream does not count for another.
    upstream: Digest,
    /// Credentials by their key in the store. The value says whether the store has taken the entry.
    known: Cache<Digest, bool>,
}

impl AcceptedCredentials {
    /// An empty set for the upstream at this base URL.
    #[must_use]
    pub fn by(base_url: &str) -> Self {
        Self {
            upstream: Digest::of(&[b"upstream", base_url.as_bytes()]),
            known: Cache::new(CREDENTIALS_HELD),
        }
    }

    /// The key of a credential in the store.
    pub(super) fn key(&self, credential: Digest) -> Digest {
        Digest::of(&[b"taken", self.upstream.as_bytes(), credential.as_bytes()])
    }

    /// Notes that the upstream accepted a credential. Nobody waits for the write: if it is lost,
    /// the first request after a restart is treated as if the credential were new.
    pub(super) fn note(&self, store: &Store, credential: Digest) {
        let key = self.key(credential);
        if self.known.get(&key) == Some(true) {
            return;
        }
        let id = blob_id(TAKEN);
        let ticket = store.commit(Batch {
            blobs: vec![(id, Bytes::from_static(TAKEN))],
            links: vec![Link { key, id, turn: 0 }],
            ..Batch::default()
        });
        self.known.insert(key, !ticket.is_refused());
    }

    /// Whether memory knows that the credential with this key was accepted.
    pub(super) fn knows(&self, key: &Digest) -> bool {
        self.known.get(key).is_some()
    }

    /// Takes over what the store knows of a credential.
    pub(super) fn learn(&self, key: Digest) {
        self.known.insert(key, true);
    }
}
