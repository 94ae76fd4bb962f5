//! What can go wrong with a store, in words that say what to do. It decides nothing: whoever
//! asks the store fails open or goes on without it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::model::Digest;

use super::codec::CodecError;

/// Why a store could not be opened, read or written. Cheap to clone, because one failed write
/// answers every batch of its group.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    /// Another process works in the same data directory.
    #[error(
        "another process holds the data directory {}: stop it, or give this one a directory of its own",
        dir.display()
    )]
    Locked {
        /// The data directory.
        dir: PathBuf,
    },
    /// The operating system refused; the next commit tries again.
    #[error("{doing} {}: {detail}; check space, permissions and the disk", path.display())]
    Io {
        /// What was being done, as a participle.
        doing: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// The kind, for whoever must decide.
        kind: io::ErrorKind,
        /// The system's own words.
        detail: String,
    },
    /// What is on disk is not what was written.
    #[error("the store is corrupt ({detail}): restart to set it aside and begin afresh")]
    Corrupt {
        /// The engine's error or panic, for the log.
        detail: String,
    },
    /// An earlier corruption stopped all work on the store until a restart.
    #[error("the store stopped after a corruption: restart to set it aside and begin afresh")]
    Degraded,
    /// More is waiting to be written than the configuration allows.
    #[error(
        "the store can't keep up: its queue is full; use a faster disk or lower server.max_in_flight"
    )]
    Busy,
    /// Closing did not end in time.
    #[error(
        "the store did not close within {waited:?}: what was acknowledged is safe; check the disk"
    )]
    Slow {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The store was closed.
    #[error("the store is closed: open it again")]
    Closed,
    /// The directory was written by a newer version of the program.
    #[error(
        "the store has format {found} and this version reads up to {known}: start the newer version"
    )]
    Format {
        /// The format on disk.
        found: u8,
        /// The newest format that this version reads.
        known: u8,
    },
    /// A value could not be encoded, or is of a version that this program does not know.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A blob was handed in under an id that is not the hash of its bytes.
    #[error("a blob came with the id {id:?}, which is not the hash of its bytes: use `blob_id`")]
    WrongId {
        /// The id that it came with.
        id: Digest,
    },
    /// A test asked for this failure.
    #[cfg(any(test, feature = "testing"))]
    #[error("the store was told to fail: lift the fault")]
    Injected,
}

/// The system's numbers for a disk that refuses: EIO, EFBIG, ENOSPC, EROFS and EDQUOT. The engine
/// hands on some errors as text.
const READ_ONLY: u8 = 30;
const DISK: [u8; 5] = [5, 27, 28, READ_ONLY, 122];

/// Whether the disk refused, and not the configuration: it is full, broken or mounted to be read.
/// A read-only place where nothing was ever kept (`there` is false) is a wrong configuration.
pub(crate) fn is_of_disk(kind: io::ErrorKind, detail: &str, there: bool) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let says = |number: &u8| {
        detail.contains(&format!("(os error {number})"))
            || detail.contains(&format!("Os {{ code: {number},"))
    };
    if kind == ReadOnlyFilesystem || says(&READ_ONLY) {
        return there;
    }
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge) || DISK.iter().any(says)
}

impl StoreError {
    /// Whether the disk refused; see [`is_of_disk`].
    pub(super) fn is_of_disk(&self, there: bool) -> bool {
        matches!(self, Self::Io { kind, detail, .. } if is_of_disk(*kind, detail, there))
    }

    /// An error of the operating system, with what was being done to which path.
    pub(super) fn io(doing: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            kind: error.kind(),
            detail: error.to_string(),
        }
    }
}
