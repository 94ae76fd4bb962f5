//! The engine's trees, and how blobs and links lie in them. Owns their keys and the format. Every
//! call into the engine goes through [`guarded`], which turns its panics into errors. Never flushes
//! by itself and never answers a client.
//!
//! * `blobs`: see [`super::chunks`]. The engine puts a page of more than a quarter of a segment into
//!   a file of its own, which it never syncs. Chunks of this size never make such a page.
//! * `packs`: see [`super::packs`].
//! * `rows` and `newest`: see [`super::rows`].
//! * The tree without a name: one key, `tidied`, see [`Trees::tidy`].
//! * `meta`: `format` leads to the number of the format. `counts` leads to big-endian u64s: how many
//!   blobs and links there are, the last group of writes, the lengths of the archive and of the log
//!   at that time, and how many rows there are. `swept` and `doubted` lead to days.

use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::sled::{Db, Tree};
use bytes::Bytes;
use plimsoll_model::{Digest, is_id_of};

use super::super::codec::{self, CodecError};
use super::super::error::StoreError;
use super::super::sealing::Seals;
use super::super::settings::StoreSettings;
use super::age::Age;
use super::chunks::{AGE_NUMBER, chunk_key, chunks};

/// The size of a segment. It is fixed when a store is made, and the engine refuses any other.
pub(super) const SEGMENT_BYTES: usize = 2 << 20;
/// The longest piece of a value under one key.
pub(super) const CHUNK_BYTES: usize = 6 << 10;
/// The format that this version reads and writes.
const FORMAT: u8 = 1;
/// The key that is written to let the engine tidy.
const TIDIED: &str = "tidied";
/// After so many writes to a page the engine writes it anew.
const PAGE_WRITES: u8 = 11;
/// After so many writes the engine is let take a step to give room back, if its log is long.
const WRITES_A_STEP: usize = 12;
/// By how much the log may be longer than the archive before it counts as long.
pub(super) const SLACK_BYTES: u64 = 16 << 20;
/// How often the engine's file lock is tried, and how long apart. The engine's threads may hold it
/// for a moment after a store of this process was dropped.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) blobs: u64,
    pub(super) links: u64,
    /// How many sessions have a row.
    pub(super) rows: u64,
}

/// Up to where the engine holds what was written. Its log keeps the order of writes, so the
/// position that is left shows what was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) counts: Counts,
    /// The last group of writes that the engine has whole.
    pub(super) group: u64,
    /// The engine has everything that the archive holds before this place.
    pub(super) archived: u64,
    /// How long the engine's log was then.
    pub(super) log: u64,
}

/// What a check found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checked {
    /// How much is stored. It was counted if `counted` says so, and otherwise noted earlier.
    pub(super) counts: Counts,
    pub(super) counted: bool,
    /// How many entries were read.
    pub(super) read: u64,
    /// What a damaged engine held: nothing if neither its own account nor the last stop says how
    /// much. `None` if this one is not what was left of a damaged one, and can't be.
    pub(super) before: Option<Position>,
}

/// A blob as it was found.
pub(super) enum StoredBlob {
    Whole(Bytes),
    /// Bytes are stored, but they do not match the id.
    Mismatch,
    Absent,
}

/// What was done to put a blob.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutBlob {
    /// It was not stored whole.
    pub(super) new: bool,
    /// At least a part of it was written.
    pub(super) wrote: bool,
    /// It was stored, and is named on a later day.
    pub(super) named: bool,
}

/// The open engine.
pub(super) struct Trees {
    pub(super) blobs: Tree,
    pub(super) packs: Tree,
    pub(super) rows: Tree,
    pub(super) newest: Tree,
    meta: Tree,
    /// The store's own handle on the log, because the engine's flush does not reach the cache of
    /// the disk.
    log: File,
    db: Db,
    /// How many writes there were since the engine took its last step.
    since_step: AtomicUsize,
    /// The keys under which values are sealed.
    seals: Seals,
}

/// Runs code of the engine. Its panics, and its errors about damaged data, become
/// [`StoreError::Corrupt`].
pub(super) fn guarded<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, ::sled::Error>,
) -> Result<T, StoreError> {
    // The engine panics at some damage where it could return an error. No caller may die of it.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(::sled::Error::Io(error))) => Err(StoreError::io("using", path, &error)),
        Ok(Err(error)) => Err(StoreError::Corrupt {
            detail: error.to_string(),
        }),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Err(StoreError::Corrupt {
                detail: text.unwrap_or("the engine panicked").to_owned(),
            })
        }
    }
}

impl Trees {
    /// Opens the engine in `path`. Reads no more than the engine must.
    pub(super) fn open(path: &Path, settings: &StoreSettings) -> Result<Self, StoreError> {
        let open = || {
            ::sled::Config::new()
                .path(path)
                .segment_size(SEGMENT_BYTES)
                .cache_capacity(u64::from(settings.cache_mb) << 20)
                // The thread for this would be waited for without end if it ever panicked.
                .flush_every_ms(None)
                .open()
        };
        let mut db = guarded(path, open);
        // A store of this process that was dropped a moment ago may still hold the lock.
        for _ in 0..LOCK_TRIES {
            if !db.as_ref().is_err_and(is_lock) {
                break;
            }
            std::thread::sleep(LOCK_PAUSE);
            db = guarded(path, open);
        }
        let db = db?;
        let tree = |name: &str| guarded(path, || db.open_tree(name));
        let log = path.join("db");
        let log = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&log)
            .map_err(|error| StoreError::io("opening", &log, &error))?;
        let trees = Self {
            blobs: tree("blobs")?,
            packs: tree("packs")?,
            rows: tree("rows")?,
            newest: tree("newest")?,
            meta: tree("meta")?,
            log,
            db,
            since_step: AtomicUsize::new(0),
            seals: settings.seals.clone(),
        };
        trees.check_format(path)?;
        Ok(trees)
    }

    fn check_format(&self, path: &Path) -> Result<(), StoreError> {
        let found = guarded(path, || self.meta.get("format"))?;
        match found.as_ref().and_then(|value| value.first()) {
            Some(&FORMAT) => Ok(()),
            // A newer version wrote it. What this version wrote into it might destroy it.
            Some(&found) => Err(StoreError::Format {
                found,
                known: FORMAT,
            }),
            // An empty engine is new, but blobs without a format mean that a part of it is gone.
            None if guarded(path, || Ok(self.blobs.first()?.is_some()))? => {
                Err(StoreError::Corrupt {
                    detail: "blobs without a format".to_owned(),
                })
            }
            None => guarded(path, || self.meta.insert("format", &[FORMAT]).map(|_| ())),
        }
    }

    /// The day of the last sweep. 0 if there was none.
    pub(super) fn swept(&self, path: &Path) -> Result<u16, StoreError> {
        self.day(path, "swept")
    }

    /// Notes that nothing is left that was too old on a day.
    pub(super) fn put_swept(&self, path: &Path, day: u16) -> Result<(), StoreError> {
        self.put_day(path, "swept", day)
    }

    /// The day on which the clock was first too far ahead of the last sweep to be believed. 0 if there is none.
    pub(super) fn doubted(&self, path: &Path) -> Result<u16, StoreError> {
        self.day(path, "doubted")
    }

    /// Notes that day.
    pub(super) fn put_doubted(&self, path: &Path, day: u16) -> Result<(), StoreError> {
        self.put_day(path, "doubted", day)
    }

    /// A day that was noted under a name. 0 if there is none.
    fn day(&self, path: &Path, name: &str) -> Result<u16, StoreError> {
        let value = guarded(path, || self.meta.get(name))?;
        let day = value.and_then(|value| value[..].try_into().ok());
        Ok(day.map_or(0, u16::from_be_bytes))
    }

    fn put_day(&self, path: &Path, name: &str, day: u16) -> Result<(), StoreError> {
        guarded(path, || {
            self.meta.insert(name, &day.to_be_bytes()).map(|_| ())
        })
    }

    /// The position that was noted last.
    pub(super) fn position(&self, path: &Path) -> Result<Position, StoreError> {
        let value = guarded(path, || self.meta.get("counts"))?;
        let Some(value) = value else {
            return Ok(Position::default());
        };
        let (numbers, rest) = value.as_chunks::<8>();
        let (Ok(numbers), []) = (<[[u8; 8]; 6]>::try_from(numbers), rest) else {
            return Err(StoreError::Corrupt {
                detail: "the counts are damaged".to_owned(),
            });
        };
        let [blobs, links, group, archived, log, rows] = numbers.map(u64::from_be_bytes);
        Ok(Position {
            counts: Counts { blobs, links, rows },
            group,
            archived,
            log,
        })
    }

    /// Notes a position. Adds the current length of the log.
    pub(super) fn put_position(&self, path: &Path, position: Position) -> Result<(), StoreError> {
        let Position {
            counts: Counts { blobs, links, rows },
            group,
            archived,
            log: _,
        } = position;
        let log = self.log.metadata();
        let log = log.map_err(|error| StoreError::io("looking at", path, &error))?;
        let value = [blobs, links, group, archived, log.len(), rows].map(u64::to_be_bytes);
        guarded(path, || {
            self.meta.insert("counts", value.as_flattened()).map(|_| ())
        })
    }

    /// Writes a blob in its stored form, unless the same bytes are stored. Then it only notes the
    /// age, if that is younger. A caller who knows that its first chunk is not stored says so by
    /// `lacking`, which saves looking for it.
    pub(super) fn put_blob(
        &self,
        path: &Path,
        id: &Digest,
        (age, stored): (Age, &[u8]),
        lacking: bool,
    ) -> Result<PutBlob, StoreError> {
        let mut known = Age::default();
        let mut put = guarded(path, || {
            let mut put = PutBlob::default();
            for (number, chunk) in chunks(stored, age) {
                let key = chunk_key(id, number);
                // Writing the same bytes again would only wear the log. Bytes that differ were
                // damaged, and are repaired here. A blob that lacked a chunk was not counted.
                let old = if lacking && number == 0 {
                    None
                } else {
                    self.blobs.get(key)?
                };
                let same = old.as_ref().and_then(|old| chunk.age_if_same(old));
                if same.is_none() {
                    self.blobs.insert(key, chunk.value())?;
                    put.wrote = true;
                }
                known = known.with(same.unwrap_or_else(|| chunk.age()));
                put.new |= old.is_none();
            }
            Ok(put)
        })?;
        if known.with(age) != known {
            put.named = self.put_age(path, id, age)?;
        }
        Ok(put)
    }

    /// Notes that a blob is named again. Does nothing if it is not stored. Returns whether the age is
    /// younger than the one that was noted apart.
    pub(super) fn name_blob(&self, path: &Path, id: &Digest, age: Age) -> Result<bool, StoreError> {
        Ok(self.has_blob(path, id)? && self.put_age(path, id, age)?)
    }

    fn put_age(&self, path: &Path, id: &Digest, age: Age) -> Result<bool, StoreError> {
        let known = self.age_apart(path, id)?;
        let younger = known.with(age);
        if younger == known {
            return Ok(false);
        }
        let key = chunk_key(id, AGE_NUMBER);
        guarded(path, || self.blobs.insert(key, &younger.bytes()))?;
        Ok(true)
    }

    /// The age with which a blob was named again.
    pub(super) fn age_apart(&self, path: &Path, id: &Digest) -> Result<Age, StoreError> {
        let value = guarded(path, || self.blobs.get(chunk_key(id, AGE_NUMBER)))?;
        let bytes = value.and_then(|value| value[..].try_into().ok());
        Ok(bytes.map(Age::read).unwrap_or_default())
    }

    /// Lets the engine give room back, a step for some writes, while its log is longer than the archive
    /// and some slack. The archive has every value once. The engine moves a page out of a segment that
    /// is mostly replaced, each time that it writes some page anew, and that is at every tenth write to
    /// a page. Values that are written again and again, as packs are, would otherwise be
    /// replaced faster than their room is used again. The page that is written for this has a tree of
    /// its own: each write copies its page, and this one has a single entry.
    pub(super) fn tidy(&self, path: &Path, writes: usize, archive: u64) -> Result<(), StoreError> {
        let since = self.since_step.load(Ordering::Relaxed) + writes;
        self.since_step
            .store(since % WRITES_A_STEP, Ordering::Relaxed);
        let steps = since / WRITES_A_STEP;
        // A length that can't be read is taken for long.
        let length = || self.log.metadata().map_or(u64::MAX, |log| log.len());
        if steps == 0 || length() <= archive.saturating_add(SLACK_BYTES) {
            return Ok(());
        }
        guarded(path, || {
            let mut writes = (0..steps).flat_map(|_| 0..PAGE_WRITES);
            writes.try_for_each(|n| self.db.insert(TIDIED, &[n]).map(drop))
        })
    }

    /// Makes everything that was written durable: by the engine's flush, and then by the disk's.
    pub(super) fn sync(&self, path: &Path) -> Result<(), StoreError> {
        guarded(path, || self.db.flush().map(|_| ()))?;
        self.log
            .sync_data()
            .map_err(|error| StoreError::io("syncing", path, &error))
    }

    /// The open log. It is compared with the one in the directory.
    pub(super) fn log(&self) -> &File {
        &self.log
    }

    /// Closes the engine, which writes once more and may panic.
    pub(super) fn shut(self, path: &Path) -> Result<(), StoreError> {
        guarded(path, || {
            drop(self);
            Ok(())
        })
    }

    /// Whether a blob is stored, judged by its first chunk.
    pub(super) fn has_blob(&self, path: &Path, id: &Digest) -> Result<bool, StoreError> {
        guarded(path, || self.blobs.contains_key(chunk_key(id, 0)))
    }

    /// Reads a blob and checks it against its id.
    ///
    /// # Errors
    /// The engine's errors, and one for a value of an unknown version.
    pub(super) fn blob(&self, path: &Path, id: &Digest) -> Result<StoredBlob, StoreError> {
        let stored = match self.stored(path, id) {
            Ok(None) => return Ok(StoredBlob::Absent),
            Ok(Some((stored, _))) => stored,
            Err(StoreError::Codec(error)) => return unreadable(error),
            Err(error) => return Err(error),
        };
        match codec::decode(&self.seals, id, &stored) {
            Ok(value) if is_id_of(id, &value) => Ok(StoredBlob::Whole(value)),
            Ok(_) => Ok(StoredBlob::Mismatch),
            Err(error) => unreadable(error),
        }
    }

    /// A blob in its stored form, with the age behind it. `None` if it is not stored. If a chunk is
    /// missing, the form is cut short.
    pub(super) fn stored(
        &self,
        path: &Path,
        id: &Digest,
    ) -> Result<Option<(Bytes, Age)>, StoreError> {
        let Some(first) = guarded(path, || self.blobs.get(chunk_key(id, 0)))? else {
            return Ok(None);
        };
        // The first chunk says how long the whole form is, and so how many chunks follow.
        let length = codec::stored_len(&first)?;
        let mut whole = first.to_vec();
        for number in 1..length.div_ceil(CHUNK_BYTES) {
            let number = u32::try_from(number).map_err(|_| CodecError::TooLarge(length))?;
            let chunk = guarded(path, || self.blobs.get(chunk_key(id, number)))?;
            whole.extend_from_slice(chunk.as_deref().unwrap_or_default());
        }
        let behind = whole.get(length..).and_then(|age| age.try_into().ok());
        let age = behind.map(Age::read).unwrap_or_default();
        if behind.is_some() {
            whole.truncate(length);
        }
        Ok(Some((whole.into(), age)))
    }

    /// When a blob was last named. `None` if it is not stored.
    pub(super) fn age(&self, path: &Path, id: &Digest) -> Result<Option<Age>, StoreError> {
        let stored = self.stored(path, id)?;
        let apart = self.age_apart(path, id)?;
        Ok(stored.map(|(_, behind)| behind.with(apart)))
    }
}

fn is_lock(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { detail, .. } if detail.contains("could not acquire lock"))
}

fn unreadable(error: CodecError) -> Result<StoredBlob, StoreError> {
    if error.is_damage() {
        Ok(StoredBlob::Mismatch)
    } else {
        Err(error.into())
    }
}
