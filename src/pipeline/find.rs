//! Where a request stands: finds the newest turn record behind its messages and folds the path to
//! it, first in memory, then in the store. Never waits for a write and never writes.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::history::{FindError, Reads, load, record};
use crate::model::caches::{MEMORY, bounded, entry};
use crate::model::{CacheName, Digest, Head, RecordId, Role, Scope, Shape, TenantId, TurnRecord};
use crate::session::align::align;
use crate::session::chain::{self, RecordKey};
use crate::session::path::Path;

/// How many heads are looked up at a time, from the tail backwards.
const PROBES: usize = 8;
/// How many of the newest heads are looked up one by one. An agent goes on from the newest, or from
/// a place not far behind it.
const NEAR: usize = 256;
/// How many of the newest answers are tried as anchors, and how many calls of each.
const ANCHORS: usize = 64;
/// How many records of one key are looked at: where a provider gives one id to all calls, or a
/// client says the same in many sessions, all of them would else be read for each request.
const SAME: usize = 64;
/// From this many entries on, a path is remembered for the newest two turns of its branch only.
/// Each turn has a path of its own that is weighed with all of its records, since it may be the
/// last that holds them, so that a session would else weigh the square of its length; the shortest
/// stay, because agents fork from them.
const LONG: usize = 8;

/// Folded paths by the key of the head that they end at.
pub struct Paths(Cache<Digest, Arc<Path>, ByBytes>);

/// Weighs a path by the memory that it takes.
#[derive(Clone)]
struct ByBytes;

impl Weighter<Digest, Arc<Path>> for ByBytes {
    fn weight(&self, _key: &Digest, path: &Arc<Path>) -> u64 {
        (path.weight() + entry::<Digest, Arc<Path>>()) as u64
    }
}

impl Default for Paths {
    fn default() -> Self {
        Self::new(MEMORY)
    }
}

impl Paths {
    /// Paths with their share of the memory of all caches.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self(bounded(CacheName::Paths, all, ByBytes))
    }

    /// Remembers the path that ends at a head. Among several records of one head the lowest turn
    /// wins, then the lowest id, so that replicas agree.
    pub fn insert(&self, key: Digest, path: &Arc<Path>) {
        let rank = |path: &Path| {
            path.entries
                .last()
                .map(|entry| (entry.record.turn, entry.id))
        };
        let stands = self
            .0
            .get(&key)
            .is_some_and(|known| rank(&known) < rank(path));
        if !stands {
            self.0.insert(key, path.clone());
        }
    }

    /// Lets go of a long path that newer ones stand on. A request that goes on from there after
    /// all, as a fork may, is looked up in the store.
    pub(super) fn outgrow(&self, path: &Path, heads: &[Head], key: impl FnOnce(Head) -> Digest) {
        let before = path.entries.len().checked_sub(2);
        let Some(entry) = before
            .filter(|at| *at + 1 >= LONG)
            .and_then(|at| path.entries.get(at))
        else {
            return;
        };
        if let Some(head) = heads.get(entry.position as usize + 1) {
            self.0.remove(&key(*head));
        }
    }

    /// The bytes of memory that are taken, records that several paths hold counted for each.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.0.weight()
    }
}

/// What a request is looked up by.
pub struct Request<'a> {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its explicit session.
    pub scope: &'a Scope,
    /// The shapes of its messages.
    pub shapes: &'a [Arc<Shape>],
    /// The heads of its prefixes.
    pub heads: &'a [Head],
    /// The digest of an assistant message's text without white space.
    pub bare: &'a dyn Fn(usize) -> Option<Digest>,
}

impl Request<'_> {
    /// Where assistant messages stand, the newest first.
    fn assistants(&self) -> impl Iterator<Item = usize> {
        let spoken = self.shapes.iter().enumerate().rev();
        spoken
            .filter(|(_, shape)| shape.role == Role::Assistant)
            .map(|(at, _)| at)
    }
}

/// The path behind a request where memory alone tells it: nearly always, because a session's
/// newest head is remembered and a new session has none.
#[must_use]
pub fn remembered(paths: &Paths, request: &Request<'_>) -> Option<Arc<Path>> {
    let Some(newest) = request.assistants().next() else {
        return Some(Arc::default());
    };
    let head = request.heads.get(newest + 1)?;
    let key = RecordKey::After(*head).digest(request.tenant, request.scope);
    paths
        .0
        .get(&key)
        .filter(|path| path.covered() == newest + 1)
}

/// The path behind a request; empty where nothing of it is known. May read the disk.
///
/// # Errors
/// [`FindError`] where the store fails; a path that is [`remembered`] needs none.
pub fn locate(
    store: &Reads<'_>,
    paths: &Paths,
    request: &Request<'_>,
) -> Result<Arc<Path>, FindError> {
    let assistants: Vec<usize> = request.assistants().collect();
    let Some(newest) = assistants.first().copied() else {
        return Ok(Arc::default());
    };
    let found = by_head(store, paths, request, &assistants)?;
    if found.as_ref().is_some_and(|path| path.covered() > newest) {
        return Ok(found.unwrap_or_default());
    }
    // The client changed or dropped something behind the newest known head, or never had us.
    let covered = found.as_ref().map_or(0, |path| path.covered());
    let after: Vec<usize> = assistants.into_iter().filter(|at| *at >= covered).collect();
    match by_anchor(store, request, &after)? {
        Some(path) => Ok(Arc::new(path)),
        None => Ok(found.unwrap_or_default()),
    }
}

/// The path of the newest known head, from the tail backwards, in this scope, else in any.
fn by_head(
    store: &Reads<'_>,
    paths: &Paths,
    request: &Request<'_>,
    assistants: &[usize],
) -> Result<Option<Arc<Path>>, FindError> {
    if let Some(path) = newest_known(store, paths, request, assistants, RecordKey::After)? {
        return Ok(Some(path));
    }
    let called = |shape: &Arc<Shape>| !shape.calls.is_empty();
    let Some(first) = request.shapes.iter().position(called) else {
        return Ok(None);
    };
    let covering = assistants.partition_point(|at| *at >= first);
    let covering = assistants.get(..covering).unwrap_or_default();
    newest_known(store, paths, request, covering, RecordKey::Fork)
}

/// The path of the newest known head of these, the newest first. Of a history of millions of
/// messages some hundred heads are looked up and no more: all of the newest, and of those behind
/// them ever fewer. In a session that was served from its beginning every head is known up to a
/// place, which is then found by halves.
fn newest_known(
    store: &Reads<'_>,
    paths: &Paths,
    request: &Request<'_>,
    assistants: &[usize],
    key: fn(Head) -> RecordKey<'static>,
) -> Result<Option<Arc<Path>>, FindError> {
    let (near, far) = assistants.split_at(assistants.len().min(NEAR));
    for probe in near.chunks(PROBES) {
        if let Some(path) = probe_heads(store, paths, request, probe, key)? {
            return Ok(Some(path));
        }
    }
    let doubling = std::iter::successors(Some(1_usize), |at| at.checked_mul(2));
    let sparse = doubling.map(|at| at - 1).take_while(|at| *at < far.len());
    let mut sparse: Vec<usize> = sparse.chain(far.len().checked_sub(1)).collect();
    sparse.dedup();
    let known = |places: &[usize]| {
        let heads = places
            .iter()
            .filter_map(|at| request.heads.get(far.get(*at)? + 1));
        let keys = heads.map(|head| key(*head).digest(request.tenant, request.scope));
        let sets = store.links(&keys.collect::<Vec<_>>())?;
        Ok::<_, FindError>(sets.iter().position(|set| !set.is_empty()))
    };
    let Some(hit) = known(&sparse)? else {
        return Ok(None);
    };
    let place = |at: usize| sparse.get(at).copied().unwrap_or(0);
    let (mut unknown, mut newest) = (hit.checked_sub(1).map(place), place(hit));
    while let Some(half) = unknown.map(|unknown| unknown.midpoint(newest)) {
        if Some(half) == unknown {
            break;
        }
        match known(&[half])? {
            Some(_) => newest = half,
            None => unknown = Some(half),
        }
    }
    let found = far.iter().skip(newest).take(PROBES).copied();
    probe_heads(store, paths, request, &found.collect::<Vec<_>>(), key)
}

fn probe_heads(
    store: &Reads<'_>,
    paths: &Paths,
    request: &Request<'_>,
    probe: &[usize],
    key: fn(Head) -> RecordKey<'static>,
) -> Result<Option<Arc<Path>>, FindError> {
    let keys: Vec<(usize, Digest)> = probe
        .iter()
        .filter_map(|at| request.heads.get(at + 1).map(|head| (*at, *head)))
        .map(|(at, head)| (at, key(head).digest(request.tenant, request.scope)))
        .collect();
    // The newest head is nearly always remembered; older ones only count where no newer is known.
    if let Some((at, key)) = keys.first()
        && let Some(path) = paths.0.get(key)
        && path.covered() == at + 1
    {
        return Ok(Some(path));
    }
    let digests: Vec<Digest> = keys.iter().map(|(_, key)| *key).collect();
    let sets = store.links(&digests)?;
    for ((at, key), set) in keys.iter().zip(sets) {
        for (_, id) in set.into_iter().take(SAME) {
            let Some(path) = load(store, RecordId(id))? else {
                continue;
            };
            if path.covered() == at + 1 {
                let path = Arc::new(path);
                paths.insert(*key, &path);
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// The path that the newest anchor leads to, aligned with the messages.
fn by_anchor(
    store: &Reads<'_>,
    request: &Request<'_>,
    assistants: &[usize],
) -> Result<Option<Path>, FindError> {
    for at in assistants.iter().take(ANCHORS) {
        let Some(shape) = request.shapes.get(*at) else {
            continue;
        };
        let mut keys: Vec<Digest> = shape
            .calls
            .iter()
            .filter(|call| !call.id.0.is_empty())
            .take(ANCHORS)
            .map(|call| RecordKey::Call(&call.id, &call.name).digest(request.tenant, request.scope))
            .collect();
        if shape.calls.is_empty()
            && let Some(before) = chain::call_before(request.shapes, *at)
        {
            let key = RecordKey::Text(shape.canonical, before);
            keys.push(key.digest(request.tenant, request.scope));
        }
        if let Some(head) = request.heads.get(*at) {
            keys.push(RecordKey::Before(*head).digest(request.tenant, request.scope));
        }
        let ids: Vec<RecordId> = store
            .links(&keys)?
            .into_iter()
            .flatten()
            .map(|(_, id)| RecordId(id))
            .collect();
        if let Some(path) = tie(store, request, *at, &ids)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The aligned path of the first record whose visible response stands at `at`: the same by digest,
/// or the only one whose text is the same but for white space, or one whose predecessor is tied.
fn tie(
    store: &Reads<'_>,
    request: &Request<'_>,
    at: usize,
    ids: &[RecordId],
) -> Result<Option<Path>, FindError> {
    let mut known = Vec::new();
    for id in ids.iter().take(SAME) {
        if let Some(record) = record(store, *id)? {
            known.push((*id, record));
        }
    }
    known.sort_by_key(|(id, record)| (record.turn, *id));
    known.dedup_by_key(|(id, _)| *id);
    let visible = request.shapes.get(at).map(|shape| shape.canonical);
    let bare = (request.bare)(at);
    let alike = |record: &TurnRecord| Some(record.bare) == bare;
    // Of what was not looked at, some may be alike too.
    let alone = known.iter().filter(|(_, record)| alike(record)).count() == 1;
    let only = alone && ids.len() <= SAME;
    for (id, record) in &known {
        let same = Some(record.visible) == visible;
        let mut path = match load(store, *id)? {
            Some(path) => path,
            None => continue,
        };
        if !same && only && alike(record) && record.calls.is_empty() {
            // White space is all that the client changed: the place is certain.
            path.aligned = true;
            if path.covered() == at + 1 {
                return Ok(Some(path));
            }
        }
        let aligned = align(&path, request.shapes);
        if aligned.covered() == at + 1 {
            return Ok(Some(aligned));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
