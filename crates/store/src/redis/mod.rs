//! The store in a Redis or Valkey server, or in a cluster of them, which several proxies may share.
//! Nothing that is written is ever changed, so they need no locks. Owns what stands in memory
//! beside the server: batches on their way, and a cache of what was read. Never waits for the server
//! longer than a request has patience: while it does not answer, reads fail and writes wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use plimsoll_model::Digest;
use plimsoll_model::caches::{Bounded, of_bytes};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use super::batch::{Batch, BatchKind, MEMBERS, Member, Take};
use super::codec::{CodecError, Encoder};
use super::error::StoreError;
use super::overlay::Overlay;
use super::report::{Health, OpenReport};
use super::sealing::KeyName;
use super::settings::{DAY_SECONDS, Retention, StoreSettings};
use super::ticket::Ticket;

mod connection;
mod erase;
mod keys;
mod mark;
mod read;
mod rows;
mod walk;
mod writer;

#[cfg(test)]
pub(super) mod tests;

pub use connection::is_redis_url;
use connection::{Connector, servers};
use keys::{Age, Keys};
use read::members;
use writer::{Job, Writer};

/// After this time without another failure a failed read is no longer told.
const TROUBLE_PASSES: Duration = Duration::from_secs(60);
/// How many members of a set are read at once, at least. Some of the first may lead to nothing.
const LEAST_PAGE: usize = 64;
/// How long a write waits for an answer before it is sent again.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(DAY_SECONDS);
/// How much longer for each MiB that is written.
const WRITE_RATE: Duration = Duration::from_secs(1);

/// A store in a server that others may use at the same time.
pub struct RedisStore {
    shared: Arc<Shared>,
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    closed: Mutex<Option<oneshot::Receiver<()>>>,
    /// Where all connections live. `None` once the store was dropped.
    runtime: Option<Runtime>,
}

/// What readers and the writer share.
struct Shared {
    settings: StoreSettings,
    keys: Keys,
    /// The server's address, for errors.
    server: String,
    reads: Connector,
    /// Writes have a connection of their own, so that no reader waits behind them.
    writes: Connector,
    overlay: Mutex<Overlay>,
    cache: Bounded<Digest, Bytes>,
    trouble: Mutex<Trouble>,
    mismatched: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    read_trips: AtomicU64,
    write_trips: AtomicU64,
    swept: AtomicU64,
    /// Whether the records are of another tenant key than this process's.
    other_key: AtomicBool,
}

/// What did not work last, and since when. Empty while all is well.
#[derive(Default)]
struct Trouble {
    read: Option<(Instant, StoreError)>,
    write: Option<StoreError>,
    few_replicas: bool,
}

/// Members of a set as they are read.
type Members = Vec<Member>;

impl RedisStore {
    /// Starts the store's threads. Whether a server answers shows only later, because a proxy has to
    /// start without it as well.
    ///
    /// # Errors
    /// [`StoreError::Server`] if the system has no thread for it.
    pub fn open(settings: &StoreSettings) -> Result<(Self, OpenReport), StoreError> {
        // TLS needs a default. It does no harm if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let urls = &settings.redis.urls;
        let server = servers(urls);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redis")
            .enable_all()
            .build()
            .map_err(|error| StoreError::Server {
                doing: "starting a thread for",
                server: server.clone(),
                detail: error.to_string(),
                limit: settings.redis.patience,
            })?;
        let shared = Arc::new(Shared {
            keys: Keys::new(&settings.redis.prefix),
            server,
            reads: Connector::new(urls, settings.redis.patience),
            writes: Connector::new(urls, WRITE_LIMIT),
            overlay: Mutex::default(),
            cache: of_bytes(u64::from(settings.cache_mb) << 20, None),
            trouble: Mutex::default(),
            mismatched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            read_trips: AtomicU64::new(0),
            write_trips: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            other_key: AtomicBool::new(false),
            settings: settings.clone(),
        });
        let (jobs, queue) = mpsc::unbounded_channel();
        let (said, closed) = oneshot::channel();
        let writer = Writer {
            shared: Arc::clone(&shared),
            encoder: Encoder::new(settings.seals.clone())?,
            noted: false,
        };
        runtime.spawn(writer.run(queue, said));
        let report = OpenReport {
            clean: true,
            ..OpenReport::default()
        };
        let store = Self {
            shared,
            jobs: Mutex::new(Some(jobs)),
            closed: Mutex::new(Some(closed)),
            runtime: Some(runtime),
        };
        let answers = store.admit()?;
        store.claim(answers);
        Ok((store, report))
    }

    /// Refuses keys with which a part of what is stored could not be read. If the server does not
    /// answer, that shows when it is read. Returns whether it did.
    fn admit(&self) -> Result<bool, StoreError> {
        let shared = Arc::clone(&self.shared);
        let asked = async move { shared.reads.ask(vec![shared.keys.read_seals()]).await };
        let limit = self.shared.settings.redis.patience;
        let Some(Ok(mut answers)) = self.run(asked, limit) else {
            return Ok(false);
        };
        let names = answers.pop().map(redis::from_redis_value::<Vec<Vec<u8>>>);
        let names = names.and_then(Result::ok).unwrap_or_default();
        let names: Vec<KeyName> = names
            .iter()
            .filter_map(|name| KeyName::read(name))
            .collect();
        StoreError::unless_given(&self.shared.settings.seals, &names)?;
        Ok(true)
    }

    pub(super) fn links(&self, keys: &[Digest], take: Take) -> Result<Vec<Members>, StoreError> {
        let most = take.most();
        self.open_for_reading()?;
        // The overlay is read first. A batch that goes to the server in between is then found twice
        // and never missed.
        let mut waiting: Vec<Members> = {
            let overlay = self.shared.overlay.lock();
            keys.iter().map(|key| overlay.links(key, take)).collect()
        };
        if keys.is_empty() {
            return Ok(waiting);
        }
        let (shared, asked) = (Arc::clone(&self.shared), keys.to_vec());
        // Some of the members may lead to nothing.
        let page = most.saturating_mul(2).clamp(LEAST_PAGE, MEMBERS);
        let mut sets = self.wait(async move { shared.read_links(&asked, take, 0, page).await })?;
        let full: Vec<bool> = sets.iter().map(|set| set.len() >= page).collect();
        sets.append(&mut waiting);
        self.drop_dangling(&mut sets, take)?;
        let waiting = sets.split_off(keys.len());
        let each = keys.iter().zip(&mut sets).zip(full);
        let lacking = each.filter(|((_, set), full)| *full && set.len() < most);
        let (those, lacking): (Vec<Digest>, Vec<&mut Members>) =
            lacking.map(|((key, set), _)| (*key, set)).unzip();
        if !those.is_empty() {
            let shared = Arc::clone(&self.shared);
            let more = self.wait(async move { shared.read_on(&those, take, page).await })?;
            for (set, more) in lacking.into_iter().zip(more) {
                set.extend(more);
            }
        }
        for (set, waits) in sets.iter_mut().zip(waiting) {
            take.join(set, waits);
        }
        Ok(sets)
    }

    /// Takes out links whose blob is not stored.
    fn drop_dangling(&self, sets: &mut [Members], take: Take) -> Result<(), StoreError> {
        let mut ids = in_turn(sets, take);
        {
            let overlay = self.shared.overlay.lock();
            let near =
                |id: &Digest| overlay.blob(id).is_some() || self.shared.cache.peek(id).is_some();
            ids.retain(|id| !near(id));
        }
        // Each once.
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(*id));
        if ids.is_empty() {
            return Ok(());
        }
        let (shared, asked) = (Arc::clone(&self.shared), ids.clone());
        let stored = self.wait(async move { shared.look_ahead(&asked).await })?;
        let stored = ids.iter().zip(stored).filter(|(_, stored)| !stored);
        let gone: std::collections::HashSet<Digest> = stored.map(|(id, _)| *id).collect();
        if !gone.is_empty() {
            for set in sets {
                set.retain(|(_, id)| !gone.contains(id));
            }
        }
        Ok(())
    }

    pub(super) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.open_for_reading()?;
        let mut blobs: Vec<Option<Bytes>> = {
            let overlay = self.shared.overlay.lock();
            let near = |id| {
                overlay
                    .blob(id)
                    .cloned()
                    .or_else(|| self.shared.cache.get(id))
            };
            ids.iter().map(near).collect()
        };
        let absent = ids.iter().zip(&blobs).filter(|(_, blob)| blob.is_none());
        let absent: Vec<Digest> = absent.map(|(id, _)| *id).collect();
        if absent.is_empty() {
            return Ok(blobs);
        }
        let shared = Arc::clone(&self.shared);
        let found = self.wait(async move { shared.read_blobs(&absent).await })?;
        let holes = blobs.iter_mut().filter(|blob| blob.is_none());
        for (hole, found) in holes.zip(found) {
            *hole = found;
        }
        Ok(blobs)
    }

    /// Does the same as [`Self::commit`], but leaves half of the queue free.
    pub(super) fn commit_spare(&self, batch: Batch) -> Ticket {
        let StoreSettings {
            queue, queue_bytes, ..
        } = self.shared.settings;
        let room = self
            .shared
            .overlay
            .lock()
            .has_room(&batch, queue / 2, queue_bytes / 2);
        if !room {
            return self.shared.refuse(StoreError::Busy);
        }
        self.commit(batch)
    }

    pub(super) fn commit(&self, batch: Batch) -> Ticket {
        let shared = &self.shared;
        // A blob with a wrong id must not be readable even while it waits.
        if let Err(error) = batch.verify() {
            return shared.refuse(error);
        }
        let jobs = self.jobs.lock();
        let Some(jobs) = &*jobs else {
            return shared.refuse(StoreError::Closed);
        };
        let StoreSettings {
            queue, queue_bytes, ..
        } = shared.settings;
        // The overlay takes the batch before the writer does, so that no reader can miss it. It also
        // bounds the queue.
        if !shared
            .overlay
            .lock()
            .add(std::iter::once(&batch), queue, queue_bytes)
        {
            return shared.refuse(StoreError::Busy);
        }
        let (acknowledge, ticket) = Ticket::waiting();
        match jobs.send(Job { batch, acknowledge }) {
            Ok(()) => ticket,
            Err(mpsc::error::SendError(job)) => {
                shared.overlay.lock().remove(&job.batch);
                shared.refuse(StoreError::Closed)
            }
        }
    }

    pub(super) fn close(&self) -> Result<(), StoreError> {
        let closed = self.closed.lock().take();
        let Some(closed) = closed.filter(|_| self.jobs.lock().take().is_some()) else {
            return Err(StoreError::Closed);
        };
        let waited = self.shared.settings.close_wait;
        self.run(
            async move { matches!(tokio::time::timeout(waited, closed).await, Ok(Ok(()))) },
            waited * 2,
        )
        .filter(|written| *written)
        .map(|_| ())
        .ok_or(StoreError::Slow { waited })
    }

    pub(super) fn health(&self) -> Health {
        let shared = &self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // One lock at a time: a guard within the value below would last until its end.
        let waiting = shared.overlay.lock().len();
        let memory_only = shared.trouble.lock().write.is_some();
        Health {
            mismatched: count(&shared.mismatched),
            failed: count(&shared.failed),
            waiting,
            memory_only,
            refused: count(&shared.refused),
            read_trips: count(&shared.read_trips),
            write_trips: count(&shared.write_trips),
            swept: count(&shared.swept),
            cached: shared.cache.weight(),
            other_key: shared.other_key.load(Ordering::Relaxed),
            ..Health::default()
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let waiting = self.shared.overlay.lock().len();
        let trouble = self.shared.trouble.lock();
        let mut notes: Vec<String> = self.shared.other_key().into_iter().collect();
        if let Some(error) = &trouble.write {
            notes.push(format!(
                "{error}; turns are served, and {waiting} batches wait in memory to be written"
            ));
        } else if let Some((since, error)) = &trouble.read
            && since.elapsed() < TROUBLE_PASSES
        {
            notes.push(format!(
                "{error}; requests of sessions that this process has not served lately go as they came"
            ));
        }
        if trouble.few_replicas {
            let replicas = self.shared.settings.redis.replicas;
            notes.push(format!(
                "the store's last write reached fewer than {replicas} replicas"
            ));
        }
        notes
    }

    fn open_for_reading(&self) -> Result<(), StoreError> {
        if self.jobs.lock().is_none() {
            return Err(StoreError::Closed);
        }
        // While the server does not answer, one request in a while finds out whether it does again.
        // The others must not wait for that.
        let mut trouble = self.shared.trouble.lock();
        match &mut trouble.read {
            Some((since, error)) if since.elapsed() < self.shared.settings.retry => {
                Err(error.clone())
            }
            Some((since, _)) => {
                *since = Instant::now();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Waits for a read.
    fn wait<T: Send + 'static>(
        &self,
        read: impl Future<Output = Result<T, ReadError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        // A look-up may take several round trips.
        let limit = self.shared.settings.redis.patience;
        let answer = self.run(read, limit * 2);
        let late = || {
            ReadError::Server(RedisError::from((
                redis::ErrorKind::Io,
                "no answer in time",
            )))
        };
        let mut trouble = self.shared.trouble.lock();
        match answer.unwrap_or_else(|| Err(late())) {
            Ok(answer) => {
                trouble.read = None;
                Ok(answer)
            }
            Err(ReadError::Value(error)) => Err(error.into()),
            Err(ReadError::Server(error)) => {
                let error = self.shared.error("reading from", &error, limit);
                trouble.read = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Runs work on the store's own thread and blocks until it is done. `None` if it takes too long.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        limit: Duration,
    ) -> Option<T> {
        let (done, waiting) = std::sync::mpsc::sync_channel(1);
        self.runtime.as_ref()?.spawn(async move {
            // Whoever waited may have given up.
            let _ = done.try_send(work.await);
        });
        waiting.recv_timeout(limit).ok()
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        // A runtime may not wait for its threads where the store may be dropped, which is anywhere.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why something could not be read.
enum ReadError {
    Server(RedisError),
    Value(CodecError),
}

impl From<RedisError> for ReadError {
    fn from(error: RedisError) -> Self {
        Self::Server(error)
    }
}

impl Shared {
    /// How long what a batch holds is kept.
    fn age(&self, kind: BatchKind) -> Age {
        let Retention {
            records, content, ..
        } = self.settings.retention;
        let age = match kind {
            BatchKind::Records => records,
            BatchKind::Content => content,
        };
        // What a session stands on is named once a day, so it must live a day longer.
        age.map(|age| age + DAY)
    }

    async fn ask_to_read(&self, commands: Vec<Cmd>) -> RedisResult<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.read_trips.fetch_add(1, Ordering::Relaxed);
        self.reads.ask(commands).await.inspect_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Sends commands of so many bytes, and waits longer for the answer to many.
    async fn ask_to_write(&self, commands: Vec<Cmd>, bytes: usize) -> RedisResult<()> {
        self.write_trips.fetch_add(1, Ordering::Relaxed);
        let more = WRITE_RATE.saturating_mul(u32::try_from(bytes >> 20).unwrap_or(u32::MAX));
        self.writes.ask_within(WRITE_LIMIT + more, commands).await?;
        let mut trouble = self.trouble.lock();
        (trouble.write, trouble.few_replicas) = (None, false);
        Ok(())
    }

    /// Keeps the records that were just written, because the next turn reads them.
    fn remember(&self, batch: &Batch) {
        if batch.kind == BatchKind::Records {
            for (id, value) in &batch.blobs {
                self.cache.insert(*id, value.clone());
            }
        }
    }

    /// Takes a batch out of the overlay. The server has it, or will never have it.
    fn settle(&self, batch: &Batch, written: bool) {
        self.overlay.lock().remove(batch);
        if !written {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn refuse(&self, error: StoreError) -> Ticket {
        self.failed.fetch_add(1, Ordering::Relaxed);
        Ticket::done(Err(error))
    }

    fn error(&self, doing: &'static str, error: &RedisError, limit: Duration) -> StoreError {
        StoreError::Server {
            doing,
            server: self.server.clone(),
            detail: error.to_string(),
            limit,
        }
    }

    /// Notes that a write failed.
    fn failed(&self, doing: &'static str, error: &RedisError) -> StoreError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let error = self.error(doing, error, WRITE_LIMIT);
        self.trouble.lock().write = Some(error.clone());
        error
    }
}

/// The blobs of these sets in the order in which they are most likely asked for: the first that is wanted of each
/// set, then the second of each, and so on.
fn in_turn(sets: &[Members], take: Take) -> Vec<Digest> {
    let ranked = sets.iter().flat_map(|set| {
        let wanted = take.in_order(set.iter().copied());
        wanted.enumerate().map(|(rank, (_, id))| (rank, id))
    });
    let mut ranked: Vec<(usize, Digest)> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, id)| id).collect()
}
