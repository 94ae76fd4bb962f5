//! How to open a store, how long it keeps what it is handed, and what it takes for the time. Owns
//! the defaults. Never reads a configuration.

use std::path::PathBuf;
#[cfg(any(test, feature = "testing"))]
use std::sync::Arc;
#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::key_mark::KeyMark;
use super::sealing::Seals;

/// The kinds of store that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `Store::Memory`.
    Memory,
    /// `Store::Sled`.
    Sled,
    /// `Store::Redis`.
    Redis,
}

/// Where a Redis or Valkey store is.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// The URL of the server, or those of some nodes of a cluster. May hold a password.
    pub urls: Vec<String>,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// How many replicas must have a write before it counts as durable.
    pub replicas: u8,
    /// How long a read waits for an answer.
    pub patience: Duration,
}

impl std::fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisSettings")
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            prefix: "plimsoll".to_owned(),
            replicas: 0,
            patience: Duration::from_millis(1_500),
        }
    }
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The kind of store.
    pub backend: Backend,
    /// The data directory. It is made if it is missing.
    pub path: PathBuf,
    /// Where the servers of [`Backend::Redis`] are.
    pub redis: RedisSettings,
    /// The cache in MiB: the engine's pages, which take several times as much memory, or what was
    /// read from Redis.
    pub cache_mb: u32,
    /// How many batches may wait to be written before commits are refused.
    pub queue: usize,
    /// How many bytes of blobs may wait to be written before commits are refused.
    pub queue_bytes: usize,
    /// How long after a failure of the disk the store is opened again, and how long after a failure
    /// of Redis reads fail at once.
    pub retry: Duration,
    /// How long closing may take. After that it is given up, as if the process had been killed.
    pub close_wait: Duration,
    /// How often the store checks that its open files are still those in the directory.
    pub look: Duration,
    /// How often a disk that refuses is tried again while memory takes its place.
    pub stand_by: Duration,
    /// A file that belongs into the directory beside the store. It is written again if somebody
    /// empties the directory.
    pub keepsake: Option<Keepsake>,
    /// The mark of the tenant key with which the process serves. With `None` whoever opens the store only
    /// looks after it, and neither compares marks nor writes one.
    pub key_mark: Option<KeyMark>,
    /// How long and how much is kept.
    pub retention: Retention,
    /// The keys under which values are sealed.
    pub seals: Seals,
    /// What the store takes for the time.
    pub clock: Clock,
}

/// How long and how much a store keeps. What is named again, in a new batch or among its
/// [`renewed`](super::Batch::renewed), counts as new from that day on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// How long batches of [`BatchKind::Records`](super::BatchKind::Records) are kept. `None` means
    /// for ever.
    pub records: Option<Duration>,
    /// How long batches of [`BatchKind::Content`](super::BatchKind::Content) are kept. `None` means
    /// for ever.
    pub content: Option<Duration>,
    /// How many bytes the files of a data directory may take before the oldest is removed. `None`
    /// means without limit.
    pub most_bytes: Option<u64>,
}

/// What a store takes for the time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The time of the system.
    #[default]
    System,
    /// A time that a test sets, in seconds since 1970.
    #[cfg(any(test, feature = "testing"))]
    Set(Arc<AtomicU64>),
}

/// Seconds in a day.
pub(super) const DAY_SECONDS: u64 = 24 * 60 * 60;

impl Clock {
    /// The number of the day in UTC, counted from 1970. It never is 0, which stands for no day.
    #[must_use]
    pub(super) fn today(&self) -> u16 {
        let seconds = match self {
            Self::System => SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(0, |since| since.as_secs()),
            #[cfg(any(test, feature = "testing"))]
            Self::Set(seconds) => seconds.load(Ordering::Relaxed),
        };
        u16::try_from(seconds / DAY_SECONDS)
            .unwrap_or(u16::MAX)
            .max(1)
    }
}

impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::System, Self::System) => true,
            #[cfg(any(test, feature = "testing"))]
            (Self::Set(ours), Self::Set(theirs)) => Arc::ptr_eq(ours, theirs),
            #[cfg(any(test, feature = "testing"))]
            _ => false,
        }
    }
}

impl Eq for Clock {}

/// A small secret file that belongs to the store.
#[derive(Clone, PartialEq, Eq)]
pub struct Keepsake {
    /// Its name in the data directory.
    pub name: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Keepsake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keepsake")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            backend: Backend::Sled,
            path: PathBuf::from("./data"),
            redis: RedisSettings::default(),
            cache_mb: 48,
            queue: 1024,
            queue_bytes: 64 << 20,
            retry: Duration::from_secs(1),
            close_wait: Duration::from_secs(10),
            look: Duration::from_secs(1),
            stand_by: Duration::from_secs(15),
            keepsake: None,
            key_mark: None,
            retention: Retention::default(),
            seals: Seals::default(),
            clock: Clock::default(),
        }
    }
}
