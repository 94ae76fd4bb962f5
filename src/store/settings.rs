//! How to open a store. Owns the defaults. Never reads a configuration.

use std::path::PathBuf;
use std::time::Duration;

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
}

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
        }
    }
}
