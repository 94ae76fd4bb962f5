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
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The kind of store.
    pub backend: Backend,
    /// The data directory. It is made if it is missing.
    pub path: PathBuf,
    /// The engine's page cache in MiB. The engine takes several times as much memory.
    pub cache_mb: u32,
    /// How many batches may wait to be written before commits are refused.
    pub queue: usize,
    /// How many bytes of blobs may wait to be written before commits are refused.
    pub queue_bytes: usize,
    /// How long after a failure of the disk the store is opened again.
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
