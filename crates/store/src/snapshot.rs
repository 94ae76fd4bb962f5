//! Copies of a data directory that are whole: where they may be written, and their files. Owns the
//! names of snapshots and what one holds. Never reads a value and never touches the store.
//!
//! A snapshot is a data directory of the archive alone, which has everything, with the key of the
//! tenant hash and the names of keys beside it. A store that opens there makes its engine from that.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::{Store, files};

/// The longest name of a snapshot.
const NAME_BYTES: usize = 64;
/// How many bytes are copied at a time.
const PART_BYTES: usize = 1 << 20;

/// A snapshot that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its directory.
    pub path: PathBuf,
    /// How many bytes its archive has.
    pub bytes: u64,
}

impl Store {
    /// Writes a copy of everything that was acknowledged by now into a new directory, and waits until
    /// it is durable. Batches are taken and read meanwhile. It reads all of the archive, which may
    /// take minutes, so it is never called for a request.
    ///
    /// # Errors
    /// [`StoreError::Snapshot`] if the target exists or can't be written, or if the store is not in a
    /// directory. Nothing is left of a snapshot that is not whole.
    pub fn snapshot(&self, target: &Path) -> Result<Snapshot, StoreError> {
        match self {
            Self::Memory(_) => Err(StoreError::snapshot(target, "nothing is kept on a disk")),
            Self::Sled(store) => store.snapshot(target),
            Self::Redis(_) => Err(StoreError::snapshot(
                target,
                "a store in Redis is backed up by the server, as its RDB file (BGSAVE) or its AOF; `plimsoll store copy redis sled:DIRECTORY` makes a directory of it",
            )),
            Self::Standby(store) => store.snapshot(target),
        }
    }

    /// Does the same below a directory that the operator chose. Whoever asks gives a plain name, so
    /// that nobody can write anywhere else or over anything.
    ///
    /// # Errors
    /// The errors of [`Self::snapshot`], and one for a name that is none.
    pub fn snapshot_below(
        &self,
        directory: Option<&Path>,
        name: &str,
    ) -> Result<Snapshot, StoreError> {
        let refused = |detail: &str| Err(StoreError::snapshot(Path::new(name), detail));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !begins || name.len() > NAME_BYTES || !name.bytes().all(plain) {
            return refused(
                "a snapshot has a plain name of up to 64 letters, digits, dots, dashes and underscores, and stands below store.snapshots",
            );
        }
        let Some(directory) = directory else {
            return refused("store.snapshots names no directory to write it to: set it first");
        };
        self.snapshot(&directory.join(name))
    }
}

impl StoreError {
    pub(super) fn snapshot(target: &Path, detail: &str) -> Self {
        Self::Snapshot {
            path: target.to_owned(),
            detail: detail.to_owned(),
        }
    }
}

/// Writes the directory: the first bytes of an archive under its name, and small files of the data
/// directory that stand beside it there, if they do.
pub(super) fn write(
    target: &Path,
    (archive, bytes, name): (&File, u64, &str),
    (data, beside): (&Path, &[&str]),
) -> Result<Snapshot, StoreError> {
    let failed = |error: io::Error| StoreError::snapshot(target, &error.to_string());
    let (Some(parent), Some(file_name)) = (parent(target), target.file_name()) else {
        return Err(StoreError::snapshot(target, "name a directory to be made"));
    };
    if target.symlink_metadata().is_ok() {
        return Err(StoreError::snapshot(
            target,
            "it exists already: choose another name",
        ));
    }
    let mut draft_name = file_name.to_owned();
    draft_name.push(".part");
    let draft = parent.join(draft_name);
    let written = fill(&draft, (archive, bytes, name), (data, beside))
        .and_then(|()| fs::rename(&draft, target))
        .and_then(|()| files::sync_dir(&parent));
    if written.is_err() {
        // A part of a snapshot would only be taken for one.
        let _ = fs::remove_dir_all(&draft);
    }
    written.map_err(failed)?;
    Ok(Snapshot {
        path: target.to_owned(),
        bytes,
    })
}

fn parent(target: &Path) -> Option<PathBuf> {
    let parent = target.parent()?;
    let here = parent.as_os_str().is_empty();
    Some(if here {
        PathBuf::from(".")
    } else {
        parent.to_owned()
    })
}

fn fill(
    draft: &Path,
    (archive, bytes, name): (&File, u64, &str),
    (data, beside): (&Path, &[&str]),
) -> io::Result<()> {
    // Left over from a snapshot that was killed.
    match fs::remove_dir_all(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => files::create_dir(draft)?,
    }
    let mut to = files::create(&draft.join(name))?;
    let mut part = vec![0; PART_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(PART_BYTES);
        let part = part.get_mut(..length.min(PART_BYTES)).unwrap_or_default();
        // Read at a place of its own, because the store goes on to append to the file.
        archive.read_exact_at(part, at)?;
        to.write_all(part)?;
        at += part.len() as u64;
    }
    to.sync_all()?;
    for name in beside {
        match fs::read(data.join(name)) {
            Ok(bytes) => files::write_whole(draft, name, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files::sync_dir(draft)
}
