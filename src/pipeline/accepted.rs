//! Credentials that the upstream has taken, in memory and in the store. Never holds one, only its hash, and
//! never says what follows from it.

use bytes::Bytes;
use quick_cache::sync::Cache;

use crate::model::{Digest, blob_id};
use crate::store::{Batch, Link, Store};

/// How many credentials are remembered; all are in the store.
const REMEMBERED: usize = 10_000;
/// What the key of a credential that was taken leads to.
const TAKEN: &[u8] = b"taken";

/// Credentials that the upstream has taken.
pub struct Accepted {
    /// The upstream that took them: another one's word is not its own.
    upstream: Digest,
    /// By the key that they have in the store, and whether they are on their way there.
    known: Cache<Digest, bool>,
}

impl Accepted {
    /// Those that the upstream at this base URL takes.
    #[must_use]
    pub fn by(base_url: &str) -> Self {
        Self {
            upstream: Digest::of(&[b"upstream", base_url.as_bytes()]),
            known: Cache::new(REMEMBERED),
        }
    }

    /// The key of a credential.
    pub(super) fn key(&self, credential: Digest) -> Digest {
        Digest::of(&[b"taken", self.upstream.as_bytes(), credential.as_bytes()])
    }

    /// Notes that one was taken. Nobody waits for it: without it the credential's first request
    /// after a restart is served as that of a new one.
    pub(super) fn note(&self, store: &Store, credential: Digest) {
        let key = self.key(credential);
        if self.known.get(&key) == Some(true) {
            return;
        }
        let id = blob_id(TAKEN);
        let ticket = store.commit(Batch {
            blobs: vec![(id, Bytes::from_static(TAKEN))],
            links: vec![Link { key, id, turn: 0 }],
        });
        self.known.insert(key, !ticket.is_refused());
    }

    /// Whether memory knows that the credential of this key was taken.
    pub(super) fn knows(&self, key: &Digest) -> bool {
        self.known.get(key).is_some()
    }

    /// Takes in what the store knows.
    pub(super) fn learn(&self, key: Digest) {
        self.known.insert(key, true);
    }
}
