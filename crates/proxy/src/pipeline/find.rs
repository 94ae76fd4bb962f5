//! Finds where a request stands: the newest turn record behind its messages, and the path to it.
//! Looks in memory first and then in the store. Never waits for a write and never writes.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use plimsoll_core::session::align::align;
use plimsoll_core::session::chain::{self, RecordKey};
use plimsoll_core::session::path::Path;
use plimsoll_model::caches::{Bounded, ByBytes, MEMORY, bounded};
use plimsoll_model::{
    CacheName, CallId, Digest, Head, RecordId, Role, Scope, Shape, TenantId, TurnRecord,
};
use plimsoll_store::Take;
use plimsoll_wire::edit;
use quick_cache::sync::Cache;

use crate::history::{FindError, Reads, load, record};

/// How many heads, or anchors of how many answers, are looked up at a time, from the newest to the oldest.
const HEADS_AT_ONCE: usize = 8;
/// How many of the newest heads are looked up one by one. An agent nearly always goes on from one
/// of these.
const NEWEST_HEADS: usize = 256;
/// How many of the newest answers are tried as anchors.
const NEWEST_ANSWERS: usize = 64;
/// By how many calls of an answer its record is found: the first ones.
pub(super) const ANCHOR_CALLS: usize = 64;
/// How many anchors are looked up at a time, unless one answer has more. Each may lead to many records.
const KEYS_AT_ONCE: usize = ANCHOR_CALLS;
/// How many records of one key are read. Some providers give the same id to all calls, and some
/// clients say the same in many sessions: every request would otherwise read all of these records.
const RECORDS_PER_KEY: usize = 64;
/// An answer of more calls, or a longer text, is not looked at for calls that are written in it.
const WRITTEN_CALLS: usize = 32;
const WRITTEN_BYTES: usize = 256 << 10;
/// The number of entries from which on only the two newest paths of a branch are remembered. Each
/// turn has its own path, and a path is weighed with all its records, because it may be the last to
/// hold them. A session would therefore weigh the square of its length. Short paths stay, because
/// agents fork from them.
const LONG_PATH: usize = 8;
/// Of how many sessions it is remembered that they have begun. Those that the store knows are looked up there.
const MOST_BEGUN: usize = 4096;
/// How many paths with a twin are expected to be kept.
const MOST_TWINS: usize = 256;
/// Which part of the memory of all caches such paths take at most.
const TWINS_SHARE: usize = 64;

/// Folded paths, by the key of the head at which they end.
pub struct Paths {
    known: Bounded<Digest, Arc<Path>>,
    /// Paths that end where another does, which is found in their place. The newest of each place.
    twins: Bounded<Digest, Arc<Path>>,
    /// Sessions in which a conversation has begun, by the key of their first record.
    begun: Cache<Digest, ()>,
    /// How often everything was forgotten.
    forgotten: RwLock<u64>,
}

impl Default for Paths {
    fn default() -> Self {
        Self::new(MEMORY)
    }
}

impl Paths {
    /// Makes a cache that takes its share of `all`, the memory of all caches.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self {
            known: bounded(CacheName::Paths, all),
            twins: Cache::with_weighter(MOST_TWINS, (all / TWINS_SHARE) as u64, ByBytes),
            begun: Cache::new(MOST_BEGUN),
            forgotten: RwLock::default(),
        }
    }

    /// Forgets everything, and what is being read from the store as well.
    pub fn forget(&self) {
        let mut forgotten = self.forgotten.write();
        *forgotten += 1;
        self.known.clear();
        self.twins.clear();
        self.begun.clear();
    }

    /// Notes that a conversation begins under this key. Whether one had begun there before, as far as is remembered.
    pub(super) fn begins(&self, key: Digest) -> bool {
        let before = self.begun.get(&key).is_some();
        self.begun.insert(key, ());
        before
    }

    /// Whether a conversation is remembered to have begun under this key.
    pub(super) fn has_begun(&self, key: &Digest) -> bool {
        self.begun.get(key).is_some()
    }

    /// Remembers a path that was read from the store, unless everything was forgotten since the reading
    /// began, when this was `forgotten`: the store may not have it any more.
    fn insert_read(&self, key: Digest, path: &Arc<Path>, forgotten: u64) {
        let now = self.forgotten.read();
        if *now == forgotten {
            self.insert(key, path);
        }
    }

    /// Remembers the path that ends at a head. If several records have the same head, the one with
    /// the lowest turn wins, and then the one with the lowest id, so that all replicas agree.
    pub fn insert(&self, key: Digest, path: &Arc<Path>) {
        let rank = |path: &Path| {
            path.entries
                .last()
                .map(|entry| (entry.record.turn, entry.id))
        };
        let stands = self
            .known
            .get(&key)
            .is_some_and(|known| rank(&known) < rank(path));
        if stands {
            self.twins.insert(key, path.clone());
        } else {
            self.known.insert(key, path.clone());
        }
    }

    /// The newest path that ends where the one that is known by this key does.
    pub(super) fn twin(&self, key: &Digest) -> Option<Arc<Path>> {
        self.twins.get(key)
    }

    /// Drops a long path once a newer one includes it. A request that still goes on from there,
    /// such as a fork, is looked up in the store.
    pub(super) fn outgrow(&self, path: &Path, heads: &[Head], key: impl FnOnce(Head) -> Digest) {
        let before = path.entries.len().checked_sub(2);
        let Some(entry) = before
            .filter(|at| *at + 1 >= LONG_PATH)
            .and_then(|at| path.entries.get(at))
        else {
            return;
        };
        if let Some(head) = heads.get(entry.position as usize + 1) {
            self.known.remove(&key(*head));
        }
    }

    /// The memory that all paths take, in bytes. A record that several paths share is counted for
    /// each of them.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.known.weight() + self.twins.weight()
    }
}

/// What a request is looked up by.
pub struct PathQuery<'a> {
    /// The tenant that owns the request.
    pub tenant: TenantId,
    /// The explicit session.
    pub scope: &'a Scope,
    /// The shapes of its messages.
    pub shapes: &'a [Arc<Shape>],
    /// The head of each prefix of the messages.
    pub heads: &'a [Head],
    /// Returns the text of an assistant message.
    pub text: &'a dyn Fn(usize) -> Option<String>,
}

impl PathQuery<'_> {
    /// The positions of the assistant messages, the newest first.
    fn assistants(&self) -> impl Iterator<Item = usize> {
        let spoken = self.shapes.iter().enumerate().rev();
        spoken
            .filter(|(_, shape)| shape.role == Role::Assistant)
            .map(|(at, _)| at)
    }
}

/// Whether a text has the calls of a record's answer in it, as agents send them back that keep calls as text.
fn is_written(text: &str, record: &TurnRecord) -> bool {
    let named = |(id, name): &(CallId, String)| {
        !id.0.is_empty() && text.contains(&id.0) && text.contains(name)
    };
    // Each call is looked for by itself.
    let few = (1..=WRITTEN_CALLS).contains(&record.calls.len()) && text.len() <= WRITTEN_BYTES;
    few && record.calls.iter().all(named)
}

/// The path behind a request, if memory alone knows it. It nearly always does: the newest head of a
/// session is remembered, and a new session has none.
#[must_use]
pub fn remembered(paths: &Paths, request: &PathQuery<'_>) -> Option<Arc<Path>> {
    let Some(newest) = request.assistants().next() else {
        return Some(Arc::default());
    };
    let head = request.heads.get(newest + 1)?;
    let key = RecordKey::After(*head).digest(request.tenant, request.scope);
    paths
        // A remembered path that ends elsewhere was tied to another history.
        .known
        .get(&key)
        .filter(|path| path.covered() == newest + 1)
}

/// Finds the path behind a request. The path is empty if nothing of the request is known. May read
/// the disk.
///
/// # Errors
/// [`FindError`] if the store fails.
pub fn locate(
    store: &Reads<'_>,
    paths: &Paths,
    request: &PathQuery<'_>,
) -> Result<Arc<Path>, FindError> {
    let assistants: Vec<usize> = request.assistants().collect();
    let Some(newest) = assistants.first().copied() else {
        return Ok(Arc::default());
    };
    let found = by_head(store, paths, request, &assistants)?;
    if found.as_ref().is_some_and(|path| path.covered() > newest) {
        return Ok(found.unwrap_or_default());
    }
    let found = further(found, by_what_was_called(store, request, &assistants)?);
    if found.as_ref().is_some_and(|path| path.covered() > newest) {
        return Ok(found.unwrap_or_default());
    }
    // The client changed or dropped something after the newest known head, or the session was never
    // served by this proxy. An anchor may still tie a newer record.
    let covered = found.as_ref().map_or(0, |path| path.covered());
    let after: Vec<usize> = assistants.into_iter().filter(|at| *at >= covered).collect();
    match by_anchor(store, request, &after)? {
        Some(path) => Ok(Arc::new(path)),
        None => Ok(found.unwrap_or_default()),
    }
}

/// Finds the path of the newest known head in this scope, or else in any scope.
fn by_head(
    store: &Reads<'_>,
    paths: &Paths,
    request: &PathQuery<'_>,
    assistants: &[usize],
) -> Result<Option<Arc<Path>>, FindError> {
    if let Some(path) = newest_known(store, paths, request, assistants, RecordKey::After)? {
        return Ok(Some(path));
    }
    // A fork is found across scopes, so only heads that include a call count: many conversations
    // begin with the same words.
    let called = |shape: &Arc<Shape>| !shape.calls.is_empty();
    let Some(first) = request.shapes.iter().position(called) else {
        return Ok(None);
    };
    let covering = assistants.partition_point(|at| *at >= first);
    let covering = assistants.get(..covering).unwrap_or_default();
    newest_known(store, paths, request, covering, RecordKey::Fork)
}

/// The path that covers more.
fn further(one: Option<Arc<Path>>, other: Option<Arc<Path>>) -> Option<Arc<Path>> {
    let covered = |path: &Option<Arc<Path>>| path.as_ref().map(|path| path.covered());
    if covered(&other) > covered(&one) {
        other
    } else {
        one
    }
}

/// Finds the path of the newest head in this scope that is known without the ids of calls. A client may
/// have renamed them: in the same way with every request, or when it changed its provider.
fn by_what_was_called(
    store: &Reads<'_>,
    request: &PathQuery<'_>,
    assistants: &[usize],
) -> Result<Option<Arc<Path>>, FindError> {
    let called = |shape: &Arc<Shape>| !shape.calls.is_empty();
    let Some(first) = request.shapes.iter().position(called) else {
        return Ok(None);
    };
    let newest = assistants.iter().take_while(|at| **at >= first);
    let newest: Vec<usize> = newest.take(NEWEST_ANSWERS).copied().collect();
    let heads = chain::nameless(request.heads, request.shapes);
    for probe in newest.chunks(HEADS_AT_ONCE) {
        let heads = probe.iter().filter_map(|at| heads.get(at + 1));
        let keys = heads.map(|head| RecordKey::Nameless(*head));
        let keys = keys.map(|key| key.digest(request.tenant, request.scope));
        let sets = store.links(&keys.collect::<Vec<_>>(), Take::ALL)?;
        for (at, set) in probe.iter().zip(sets) {
            let ids: Vec<Digest> = set.into_iter().map(|(_, id)| id).collect();
            let Some(id) = the_one(store, request, *at, &ids)? else {
                continue;
            };
            if let Some(path) = load(store, RecordId(id))?
                && path.covered() == at + 1
            {
                return Ok(Some(Arc::new(path)));
            }
        }
    }
    Ok(None)
}

/// The one of these records that answered what stands before the message at `at`. What was said and done
/// may be the same in several conversations; then only the ids before the answer tell them apart, if the
/// client renames those in the same way with every request.
fn the_one(
    store: &Reads<'_>,
    request: &PathQuery<'_>,
    at: usize,
    ids: &[Digest],
) -> Result<Option<Digest>, FindError> {
    if ids.len() < 2 {
        return Ok(ids.first().copied());
    }
    let Some(before) = request.heads.get(at) else {
        return Ok(None);
    };
    let key = RecordKey::Before(*before).digest(request.tenant, request.scope);
    let sets = store.links(&[key], Take::ALL)?;
    let answered: HashSet<Digest> = sets.into_iter().flatten().map(|(_, id)| id).collect();
    let mut those = ids.iter().filter(|id| answered.contains(*id));
    Ok(match (those.next(), those.next()) {
        (Some(id), None) => Some(*id),
        (Some(_) | None, _) => None,
    })
}

/// Finds the path of the newest known head. `assistants` lists positions from the newest to the
/// oldest. However long the history is, only some hundred heads are looked up: each of the newest,
/// and ever fewer of the older ones. If a session was served from its beginning, all its heads up
/// to one place are known, and a binary search finds that place.
fn newest_known(
    store: &Reads<'_>,
    paths: &Paths,
    request: &PathQuery<'_>,
    assistants: &[usize],
    key: fn(Head) -> RecordKey<'static>,
) -> Result<Option<Arc<Path>>, FindError> {
    let (near, far) = assistants.split_at(assistants.len().min(NEWEST_HEADS));
    for probe in near.chunks(HEADS_AT_ONCE) {
        if let Some(path) = probe_heads(store, paths, request, probe, key)? {
            return Ok(Some(path));
        }
    }
    // Behind the newest heads the places to look at double their distance. The oldest is always
    // among them.
    let doubling = std::iter::successors(Some(1_usize), |at| at.checked_mul(2));
    let sparse = doubling.map(|at| at - 1).take_while(|at| *at < far.len());
    let mut sparse: Vec<usize> = sparse.chain(far.len().checked_sub(1)).collect();
    sparse.dedup();
    let known = |places: &[usize]| {
        let heads = places
            .iter()
            .filter_map(|at| request.heads.get(far.get(*at)? + 1));
        let keys = heads.map(|head| key(*head).digest(request.tenant, request.scope));
        let sets = store.links(&keys.collect::<Vec<_>>(), Take::First(1))?;
        Ok::<_, FindError>(sets.iter().position(|set| !set.is_empty()))
    };
    let Some(hit) = known(&sparse)? else {
        return Ok(None);
    };
    // The answer lies between the last place that is unknown and the first that is known.
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
    // The path at the place that was found may be gone, so the next older ones are tried as well.
    let found = far.iter().skip(newest).take(HEADS_AT_ONCE).copied();
    probe_heads(store, paths, request, &found.collect::<Vec<_>>(), key)
}

fn probe_heads(
    store: &Reads<'_>,
    paths: &Paths,
    request: &PathQuery<'_>,
    probe: &[usize],
    key: fn(Head) -> RecordKey<'static>,
) -> Result<Option<Arc<Path>>, FindError> {
    let forgotten = *paths.forgotten.read();
    let keys: Vec<(usize, Digest)> = probe
        .iter()
        .filter_map(|at| request.heads.get(at + 1).map(|head| (*at, *head)))
        .map(|(at, head)| (at, key(head).digest(request.tenant, request.scope)))
        .collect();
    // The newest head is nearly always in memory. An older head counts only if no newer one is
    // known.
    if let Some((at, key)) = keys.first()
        && let Some(path) = paths.known.get(key)
        && path.covered() == at + 1
    {
        return Ok(Some(path));
    }
    let digests: Vec<Digest> = keys.iter().map(|(_, key)| *key).collect();
    let sets = store.links(&digests, Take::First(RECORDS_PER_KEY))?;
    for ((at, key), set) in keys.iter().zip(sets) {
        for (_, id) in set {
            let Some(path) = load(store, RecordId(id))? else {
                continue;
            };
            if path.covered() == at + 1 {
                let path = Arc::new(path);
                paths.insert_read(*key, &path, forgotten);
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// Finds the path that the newest anchor leads to, aligned with the messages.
fn by_anchor(
    store: &Reads<'_>,
    request: &PathQuery<'_>,
    assistants: &[usize],
) -> Result<Option<Path>, FindError> {
    let mut newest = assistants.get(..NEWEST_ANSWERS).unwrap_or(assistants);
    while !newest.is_empty() {
        let keys = next_anchors(request, newest);
        let (probe, older) = newest.split_at(keys.len());
        newest = older;
        // One more than are read tells that there are more.
        let sets = store.links(&keys.concat(), Take::First(RECORDS_PER_KEY + 1))?;
        let mut sets = sets.into_iter();
        for (at, keys) in probe.iter().zip(keys) {
            let of_this = sets.by_ref().take(keys.len()).flatten();
            let ids: Vec<RecordId> = of_this.map(|(_, id)| RecordId(id)).collect();
            if let Some(path) = tie(store, request, *at, &ids)? {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// The keys of the first of these answers, as many as are looked up at a time: those of one answer at least.
fn next_anchors(request: &PathQuery<'_>, assistants: &[usize]) -> Vec<Vec<Digest>> {
    let (mut keys, mut room) = (Vec::new(), KEYS_AT_ONCE);
    for at in assistants.iter().take(HEADS_AT_ONCE) {
        let of_this = anchors(request, *at);
        if of_this.len() > room && !keys.is_empty() {
            break;
        }
        room = room.saturating_sub(of_this.len());
        keys.push(of_this);
    }
    keys
}

/// The keys under which a record of the answer at `at` may be found, whatever stands before the answer now.
fn anchors(request: &PathQuery<'_>, at: usize) -> Vec<Digest> {
    let Some(shape) = request.shapes.get(at) else {
        return Vec::new();
    };
    let named = shape.calls.iter().filter(|call| !call.id.0.is_empty());
    let calls = named.take(ANCHOR_CALLS);
    let calls = calls.map(|call| RecordKey::Call(&call.id, &call.name));
    // An answer without calls has no id. It is tied by its own digest, together with the call before it.
    let silent = shape.calls.is_empty();
    let before = silent
        .then(|| chain::call_before(request.shapes, at))
        .flatten();
    let text = before.map(|before| RecordKey::Text(shape.canonical, before));
    // The head before an answer finds records whose answer the client trimmed or joined.
    let head = request.heads.get(at);
    let head = head.map(|head| RecordKey::Before(*head));
    let keys = calls.chain(text).chain(head);
    keys.map(|key| key.digest(request.tenant, request.scope))
        .collect()
}

/// The aligned path of the first record whose visible response is the message at `at`. It matches
/// if its digest is the same, if it is the only record whose text is the same apart from white
/// space or whose calls are written in it, or if alignment ties the record before it.
fn tie(
    store: &Reads<'_>,
    request: &PathQuery<'_>,
    at: usize,
    ids: &[RecordId],
) -> Result<Option<Path>, FindError> {
    let mut known = Vec::new();
    for id in ids.iter().take(RECORDS_PER_KEY) {
        if let Some(record) = record(store, *id)? {
            known.push((*id, record));
        }
    }
    // The lowest turn wins, and then the lowest id, so that all replicas agree.
    known.sort_by_key(|(id, record)| (record.turn, *id));
    known.dedup_by_key(|(id, _)| *id);
    let shape = request.shapes.get(at);
    let visible = shape.map(|shape| shape.canonical);
    let text = (request.text)(at);
    let bare = text.as_deref().map(edit::bare);
    let alike = |record: &TurnRecord| Some(record.bare) == bare;
    // Records beyond the limit were not read, and one of them may have the same text.
    let alone = known.iter().filter(|(_, record)| alike(record)).count() == 1;
    let all = ids.len() <= RECORDS_PER_KEY;
    let only = alone && all;
    let plain = text.filter(|_| shape.is_some_and(|shape| shape.calls.is_empty()));
    let written = |record: &TurnRecord| {
        let text = plain.as_deref();
        text.is_some_and(|text| is_written(text, record))
    };
    let writer = known.iter().filter(|(_, record)| written(record)).count() == 1 && all;
    for (id, record) in &known {
        let same = Some(record.visible) == visible;
        let mut path = match load(store, *id)? {
            Some(path) => path,
            None => continue,
        };
        if !same && only && alike(record) && record.calls.is_empty() {
            // The client changed only white space, so the place is certain.
            path.aligned = true;
            if path.covered() == at + 1 {
                return Ok(Some(path));
            }
        }
        // The client wrote the answer's calls into its text. All before the answer is as it was, so nothing is aligned.
        if writer && written(record) && path.covered() == at + 1 {
            return Ok(Some(path));
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
