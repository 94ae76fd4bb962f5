//! What can go wrong with a store, in words that say what to do. Owns the errors. Never decides
//! what follows: whoever asks the store fails open or goes on without it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_model::Digest;
use thiserror::Error;

use super::codec::CodecError;
use super::sealing::{KeyName, Seals};

/// Why a store could not be opened, read or written. Cheap to clone, because one failed write
/// answers all batches of its group.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    /// Another process uses the same data directory.
    #[error(
        "{} holds the data directory {}: stop it, or give this one a directory of its own by --data",
        holder(*pid), dir.display()
    )]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// The process that holds it, if it has noted itself.
        pid: Option<u32>,
    },
    /// The operating system refused. The next commit tries again.
    #[error("{doing} {}: {detail}; check space, permissions and the disk", path.display())]
    Io {
        /// What was being done, as a participle.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kind of the error, to decide by.
        kind: io::ErrorKind,
        /// The text of the system's error.
        detail: String,
    },
    /// The server of the store refused, or did not answer in time.
    #[error(
        "{doing} the store at {server}: {detail}; check that it runs, answers within {limit:?} and has memory"
    )]
    Server {
        /// What was being done, as a participle.
        doing: &'static str,
        /// The server, without credentials.
        server: String,
        /// What it said.
        detail: String,
        /// How long an answer was waited for.
        limit: Duration,
    },
    /// The write was done, but too few replicas have it.
    #[error(
        "only {had} of {wanted} replicas of the store have a write: check them, or lower store.replicas"
    )]
    Unreplicated {
        /// How many replicas are to have it.
        wanted: u8,
        /// How many have it.
        had: u8,
    },
    /// The bytes on disk are not what was written.
    #[error("the store is corrupt ({detail}): restart to set it aside and begin afresh")]
    Corrupt {
        /// The engine's error or panic, for the log.
        detail: String,
    },
    /// Corruption was found earlier, and the store does nothing until a restart.
    #[error("the store stopped after a corruption: restart to set it aside and begin afresh")]
    Degraded,
    /// More waits to be written than the configuration allows.
    #[error(
        "the store can't keep up: its queue is full; use a faster disk or lower server.max_in_flight"
    )]
    Busy,
    /// The store did not close in time.
    #[error(
        "the store did not close within {waited:?}: what was acknowledged is safe; check the disk"
    )]
    Slow {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The store was closed.
    #[error("the store is closed: open it again")]
    Closed,
    /// A newer version of the program wrote the directory.
    #[error(
        "the store has format {found}, and this version reads formats up to {known}: start the newer version"
    )]
    Format {
        /// The format on disk.
        found: u8,
        /// The newest format that this version reads.
        known: u8,
    },
    /// Something in the store is sealed under keys that were not given.
    #[error(
        "the store is sealed under a key that was not given ({keys}): set it as PLIMSOLL__STORE__SEAL_KEY, or among PLIMSOLL__STORE__SEAL_KEY_PREVIOUS if it was used before"
    )]
    Sealed {
        /// The names of the keys, which say nothing about them.
        keys: String,
    },
    /// No snapshot was made.
    #[error("no snapshot was written to {}: {detail}", path.display())]
    Snapshot {
        /// Where it was to be.
        path: PathBuf,
        /// Why not, and what to do.
        detail: String,
    },
    /// A value could not be encoded, or its version is not known.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A blob came with an id that is not the hash of its bytes.
    #[error(
        "a blob came with the id {id:?}, which is not the hash of its bytes: use `blob_id` or `dated_id`"
    )]
    WrongId {
        /// That id.
        id: Digest,
    },
    /// A test asked for this failure.
    #[cfg(any(test, feature = "testing"))]
    #[error("the store was told to fail: lift the fault")]
    Injected,
}

/// The numbers by which a system says that a disk refuses: EIO, EFBIG, ENOSPC, EROFS and EDQUOT.
/// They are needed because the engine passes some errors on as text.
const READ_ONLY: u8 = 30;
const DISK_ERRORS: [u8; 5] = [5, 27, 28, READ_ONLY, 122];

/// Whether the disk refused: it is full, broken or mounted read-only. `there` says whether the
/// directory exists. A read-only place that does not exist yet is a wrong configuration, and not
/// the disk's fault.
pub fn is_of_disk(kind: io::ErrorKind, detail: &str, there: bool) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let says = |number: &u8| {
        detail.contains(&format!("(os error {number})"))
            || detail.contains(&format!("Os {{ code: {number},"))
    };
    if kind == ReadOnlyFilesystem || says(&READ_ONLY) {
        return there;
    }
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge) || DISK_ERRORS.iter().any(says)
}

/// Words for the process that holds a data directory, as [`StoreError::Locked`] knows it.
#[must_use]
pub fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl StoreError {
    /// Whether the disk refused. See [`is_of_disk`].
    pub(super) fn is_of_disk(&self, there: bool) -> bool {
        matches!(self, Self::Io { kind, detail, .. } if is_of_disk(*kind, detail, there))
    }

    /// Refuses a store whose keys are `names`, unless all of them were given.
    pub(super) fn unless_given(seals: &Seals, names: &[KeyName]) -> Result<(), Self> {
        let lacking: Vec<String> = seals
            .lacking(names)
            .iter()
            .map(KeyName::to_string)
            .collect();
        if lacking.is_empty() {
            return Ok(());
        }
        Err(Self::Sealed {
            keys: lacking.join(", "),
        })
    }

    /// An error of the operating system. `doing` says what was being done to `path`.
    pub(super) fn io(doing: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            kind: error.kind(),
            detail: error.to_string(),
        }
    }
}
