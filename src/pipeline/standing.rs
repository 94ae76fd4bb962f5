//! What may be put into a caller's request before the upstream has looked at it. A token that says
//! whose it is proves nothing here: until the upstream has taken it once, nothing is looked up for
//! it. Owns what was taken, in memory and in the store; never holds a credential, only its hash.

use bytes::Bytes;
use http::StatusCode;
use quick_cache::sync::Cache;

use super::app::App;
use super::opening::{Opening, Trust, look_up};
use super::request::{Identity, Standing};
use crate::dialect::Purpose;
use crate::history::{Patience, Reads};
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

    fn key(&self, credential: Digest) -> Digest {
        Digest::of(&[b"taken", self.upstream.as_bytes(), credential.as_bytes()])
    }

    /// Notes that one was taken. Nobody waits for it: without it the credential's first request
    /// after a restart is served as that of a new one.
    fn note(&self, store: &Store, credential: Digest) {
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
}

/// How far the caller of a request is trusted. Asks the store where memory does not know.
pub(super) async fn trust(app: &std::sync::Arc<App>, opening: &mut Opening) -> Trust {
    let identity = opening.request.identity;
    let alone = match identity.standing {
        Standing::Own => return Trust::Whole,
        Standing::Anonymous => return Trust::Unnamed,
        Standing::Claimed(alone) => alone,
    };
    let key = app.accepted.key(identity.credential);
    if app.accepted.known.get(&key).is_some() {
        return Trust::Whole;
    }
    let find = move |app: &App, patience: &Patience| {
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(&app.store, &told).while_waited_for(patience);
        let found = reads.links(&[key]);
        // What can't be read was not taken.
        Ok(found.is_ok_and(|sets| sets.iter().any(|set| !set.is_empty())))
    };
    if look_up(app, opening, find).await.unwrap_or(false) {
        app.accepted.known.insert(key, true);
        return Trust::Whole;
    }
    Trust::Nothing(alone)
}

/// Notes what the upstream's answer to a request says of its credential. Only what is sent to be
/// answered counts: many upstreams tell anyone of their models.
pub(super) fn answered(app: &App, identity: &Identity, purpose: Purpose, status: StatusCode) {
    let claimed = matches!(identity.standing, Standing::Claimed(_));
    if claimed && purpose == Purpose::Answer && status.is_success() {
        app.accepted.note(&app.store, identity.credential);
    }
}
