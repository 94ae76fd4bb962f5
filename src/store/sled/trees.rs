//! The engine's three trees, and how blobs and links lie in them. Owns the keys and the format.
//! Every call into the engine goes through [`guarded`], which turns its panics into errors. Never
//! flushes by itself and never answers a client.
//!
//! * `blobs`: `id ‖ chunk number (u32, big-endian)` leads to at most 6 KB of the stored form. The
//!   engine puts a page of more than a quarter of a segment into a file of its own, which it never
//!   syncs. Chunks of this size never make such a page.
//! * `links`: `key ‖ turn (u32, big-endian) ‖ id` leads to nothing. The key holds everything.
//! * `meta`: `format` leads to the number of the format. `counts` leads to big-endian u64s: how many
//!   blobs and links there are, the last group of writes, and the lengths of the archive and of the
//!   log at that time. Format 1 had only the first two. This version reads both and writes format 2.

use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use ::sled::{Db, Tree};
use bytes::Bytes;

use crate::model::{Digest, blob_id};

use super::super::batch::{Link, MEMBERS};
use super::super::codec::{self, CodecError};
use super::super::error::StoreError;
use super::super::settings::StoreSettings;

/// The size of a segment. It is fixed when a store is made, and the engine refuses any other.
pub(super) const SEGMENT_BYTES: usize = 2 << 20;
/// The longest piece of a value under one key.
pub(super) const CHUNK_BYTES: usize = 6 << 10;
/// The format that this version writes.
const FORMAT: u8 = 2;
/// The oldest format that it reads, which has no archive.
const OLDEST_FORMAT: u8 = 1;
/// How often the engine's file lock is tried, and how long apart. The engine's threads may hold it
/// for a moment after a store of this process was dropped.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// How many blobs and links are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) blobs: u64,
    pub(super) links: u64,
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
}

/// The open engine.
pub(super) struct Trees {
    pub(super) blobs: Tree,
    pub(super) links: Tree,
    meta: Tree,
    /// The store's own handle on the log, because the engine's flush does not reach the cache of
    /// the disk.
    log: File,
    db: Db,
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
        let (blobs, links, meta) = guarded(path, || {
            Ok((
                db.open_tree("blobs")?,
                db.open_tree("links")?,
                db.open_tree("meta")?,
            ))
        })?;
        let log = path.join("db");
        let log = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&log)
            .map_err(|error| StoreError::io("opening", &log, &error))?;
        let trees = Self {
            blobs,
            links,
            meta,
            log,
            db,
        };
        trees.check_format(path)?;
        Ok(trees)
    }

    fn check_format(&self, path: &Path) -> Result<(), StoreError> {
        let found = guarded(path, || self.meta.get("format"))?;
        match found.as_ref().and_then(|value| value.first()) {
            Some(&FORMAT) => Ok(()),
            Some(&OLDEST_FORMAT) => self.put_format(path),
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
            None => self.put_format(path),
        }
    }

    fn put_format(&self, path: &Path) -> Result<(), StoreError> {
        guarded(path, || self.meta.insert("format", &[FORMAT]).map(|_| ()))
    }

    /// The position that was noted with the last group.
    pub(super) fn position(&self, path: &Path) -> Result<Position, StoreError> {
        let value = guarded(path, || self.meta.get("counts"))?;
        let Some(value) = value else {
            return Ok(Position::default());
        };
        // Format 1 noted only two numbers. The others then count as zero.
        let (numbers, rest) = value.as_chunks::<8>();
        let (blobs, links, [group, archived, log]) = match (numbers, rest) {
            ([blobs, links], []) => (*blobs, *links, [[0; 8]; 3]),
            ([blobs, links, rest @ ..], []) if let Ok(rest) = <[_; 3]>::try_from(rest) => {
                (*blobs, *links, rest)
            }
            _ => {
                return Err(StoreError::Corrupt {
                    detail: "the counts are damaged".to_owned(),
                });
            }
        };
        Ok(Position {
            counts: Counts {
                blobs: u64::from_be_bytes(blobs),
                links: u64::from_be_bytes(links),
            },
            group: u64::from_be_bytes(group),
            archived: u64::from_be_bytes(archived),
            log: u64::from_be_bytes(log),
        })
    }

    /// Notes a position. Adds the current length of the log.
    pub(super) fn put_position(&self, path: &Path, position: Position) -> Result<(), StoreError> {
        let Position {
            counts: Counts { blobs, links },
            group,
            archived,
            log: _,
        } = position;
        let log = self.log.metadata();
        let log = log.map_err(|error| StoreError::io("looking at", path, &error))?;
        let value = [blobs, links, group, archived, log.len()].map(u64::to_be_bytes);
        guarded(path, || {
            self.meta.insert("counts", value.as_flattened()).map(|_| ())
        })
    }

    /// Writes a blob in its stored form, unless the same bytes are stored.
    pub(super) fn put_blob(
        &self,
        path: &Path,
        id: &Digest,
        stored: &[u8],
    ) -> Result<PutBlob, StoreError> {
        guarded(path, || {
            let mut put = PutBlob::default();
            for (number, chunk) in (0u32..).zip(stored.chunks(CHUNK_BYTES)) {
                let key = chunk_key(id, number);
                // Writing the same bytes again would only wear the log. Bytes that differ were
                // damaged, and are repaired here. A blob that lacked a chunk was not counted.
                let old = self.blobs.get(key)?;
                if old.as_deref() != Some(chunk) {
                    self.blobs.insert(key, chunk)?;
                    put.wrote = true;
                }
                put.new |= old.is_none();
            }
            Ok(put)
        })
    }

    /// Writes a link. Returns whether it is new.
    pub(super) fn put_link(&self, path: &Path, link: &Link) -> Result<bool, StoreError> {
        guarded(path, || {
            let key = link_key(link);
            let new = !self.links.contains_key(key)?;
            if new {
                self.links.insert(key, &[])?;
            }
            Ok(new)
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

    /// The first links of a key, in order.
    pub(super) fn links(
        &self,
        path: &Path,
        key: &Digest,
    ) -> Result<Vec<(u32, Digest)>, StoreError> {
        guarded(path, || {
            let entries = self.links.scan_prefix(key.as_bytes());
            entries
                .map(|entry| entry.map(|(key, _)| key))
                .filter_map(member)
                .take(MEMBERS)
                .collect()
        })
    }

    /// Hands over every blob in its stored form, and then every link. Leaves out a blob that lacks
    /// a chunk.
    pub(super) fn each(
        &self,
        path: &Path,
        mut each: impl FnMut(Option<(Digest, Bytes)>, Option<Link>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut chunks = self.blobs.iter();
        let mut blob: Option<(Digest, Vec<u8>)> = None;
        loop {
            let next = guarded(path, || chunks.next().transpose())?;
            let next = next.as_ref().map(|(key, value)| (parse_chunk(key), value));
            // A chunk that continues the blob at hand.
            if let (Some((Some((id, number)), value)), Some((open, bytes))) = (&next, &mut blob)
                && id == open
                && *number > 0
            {
                bytes.extend_from_slice(value);
                continue;
            }
            // The blob at hand has ended. Its own length says whether a chunk is missing.
            if let Some((id, bytes)) = blob.take()
                && codec::stored_len(&bytes).is_ok_and(|length| length == bytes.len())
            {
                each(Some((id, bytes.into())), None)?;
            }
            match next {
                Some((Some((id, 0)), value)) => blob = Some((id, value.to_vec())),
                Some(_) => {}
                None => break,
            }
        }
        let mut links = self.links.iter().keys();
        while let Some(key) = guarded(path, || links.next().transpose())? {
            each(None, parse_link(&key))?;
        }
        Ok(())
    }

    /// Hands over the turn and the id of every link.
    pub(super) fn each_member(
        &self,
        path: &Path,
        mut each: impl FnMut((u32, Digest)),
    ) -> Result<(), StoreError> {
        guarded(path, || {
            let keys = self.links.iter().keys();
            keys.filter_map(member)
                .try_for_each(|found| found.map(&mut each))
        })
    }

    /// Whether a blob is stored, judged by its first chunk.
    pub(super) fn has_blob(&self, path: &Path, id: &Digest) -> Result<bool, StoreError> {
        guarded(path, || self.blobs.contains_key(chunk_key(id, 0)))
    }

    /// Whether a link is stored.
    pub(super) fn has_link(&self, path: &Path, link: &Link) -> Result<bool, StoreError> {
        guarded(path, || self.links.contains_key(link_key(link)))
    }

    /// Reads a blob and checks it against its id.
    ///
    /// # Errors
    /// The engine's errors, and one for a value of an unknown version.
    pub(super) fn blob(&self, path: &Path, id: &Digest) -> Result<StoredBlob, StoreError> {
        let Some(first) = guarded(path, || self.blobs.get(chunk_key(id, 0)))? else {
            return Ok(StoredBlob::Absent);
        };
        // The first chunk says how long the whole form is, and so how many chunks follow.
        let length = match codec::stored_len(&first) {
            Ok(length) => length,
            Err(error) => return unreadable(error),
        };
        let stored = if length <= first.len() {
            first
        } else {
            let mut whole = first.to_vec();
            for number in 1..length.div_ceil(CHUNK_BYTES) {
                let number = u32::try_from(number).map_err(|_| CodecError::TooLarge(length))?;
                match guarded(path, || self.blobs.get(chunk_key(id, number)))? {
                    Some(chunk) => whole.extend_from_slice(&chunk),
                    None => return Ok(StoredBlob::Mismatch),
                }
            }
            whole.into()
        };
        match codec::decode(&stored) {
            Ok(value) if blob_id(&value) == *id => Ok(StoredBlob::Whole(value)),
            Ok(_) => Ok(StoredBlob::Mismatch),
            Err(error) => unreadable(error),
        }
    }

    /// Reads up to `limit` entries of each tree. If that is all of them, checks them against the
    /// noted counts. A blob that lacks a chunk does not count.
    pub(super) fn check(&self, path: &Path, limit: usize) -> Result<Checked, StoreError> {
        let (met, read, all) = guarded(path, || {
            let (mut met, mut read) = (Counts::default(), 0u64);
            let mut entries = self.blobs.iter();
            let mut blob = BlobAtHand::default();
            for entry in entries.by_ref().take(limit) {
                let (key, chunk) = entry?;
                met.blobs += u64::from(blob.is_whole_with(&key, &chunk));
                read += 1;
            }
            let mut rest = self.links.iter();
            for entry in rest.by_ref().take(limit) {
                entry?;
                met.links += 1;
                read += 1;
            }
            let all = entries.next().is_none() && rest.next().is_none();
            Ok((met, read, all))
        })?;
        let counted = self.position(path)?.counts;
        if !all {
            return Ok(Checked {
                counts: counted,
                counted: false,
                read,
            });
        }
        // There may be more than was noted, because counts are noted after the entries. There can't
        // be fewer.
        if met.blobs < counted.blobs || met.links < counted.links {
            return Err(StoreError::Corrupt {
                detail: format!(
                    "{} blobs and {} links are left of {} and {}",
                    met.blobs, met.links, counted.blobs, counted.links
                ),
            });
        }
        Ok(Checked {
            counts: met,
            counted: true,
            read,
        })
    }
}

fn is_lock(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { detail, .. } if detail.contains("could not acquire lock"))
}

fn unreadable(error: CodecError) -> Result<StoredBlob, StoreError> {
    match error {
        CodecError::Version(_) => Err(error.into()),
        CodecError::TooLarge(_) | CodecError::Damaged | CodecError::Compressor => {
            Ok(StoredBlob::Mismatch)
        }
    }
}

/// The blob whose chunks are being read, in their order.
#[derive(Default)]
struct BlobAtHand {
    id: Option<Digest>,
    /// How many bytes its chunks had so far.
    have: usize,
    /// How many bytes it has to have. Its first chunk says so.
    want: usize,
}

impl BlobAtHand {
    /// Takes the next chunk. Returns whether its blob is whole with it.
    fn is_whole_with(&mut self, key: &[u8], chunk: &[u8]) -> bool {
        match parse_chunk(key) {
            Some((id, 0)) => {
                // What can't be read is not missing.
                let want = codec::stored_len(chunk).unwrap_or(chunk.len());
                *self = Self {
                    id: Some(id),
                    have: chunk.len(),
                    want,
                };
            }
            Some((id, _)) if self.id == Some(id) => self.have += chunk.len(),
            _ => return false,
        }
        self.have == self.want
    }
}

fn chunk_key(id: &Digest, number: u32) -> [u8; 36] {
    let mut key = [0; 36];
    let (head, tail) = key.split_at_mut(32);
    head.copy_from_slice(id.as_bytes());
    tail.copy_from_slice(&number.to_be_bytes());
    key
}

fn parse_chunk(key: &[u8]) -> Option<(Digest, u32)> {
    let (id, rest) = key.split_first_chunk::<32>()?;
    let number = <[u8; 4]>::try_from(rest).ok()?;
    Some((Digest(*id), u32::from_be_bytes(number)))
}

fn parse_link(key: &[u8]) -> Option<Link> {
    let (of, rest) = key.split_first_chunk::<32>()?;
    let (turn, rest) = rest.split_first_chunk::<4>()?;
    let id = <[u8; 32]>::try_from(rest).ok()?;
    Some(Link {
        key: Digest(*of),
        id: Digest(id),
        turn: u32::from_be_bytes(*turn),
    })
}

fn link_key(link: &Link) -> [u8; 68] {
    let mut out = [0; 68];
    let (key, rest) = out.split_at_mut(32);
    let (turn, id) = rest.split_at_mut(4);
    key.copy_from_slice(link.key.as_bytes());
    turn.copy_from_slice(&link.turn.to_be_bytes());
    id.copy_from_slice(link.id.as_bytes());
    out
}

/// The turn and the id in the key of a link. `None` if the key has another length, because the
/// store never writes one.
fn member(
    key: Result<::sled::IVec, ::sled::Error>,
) -> Option<Result<(u32, Digest), ::sled::Error>> {
    let key = match key {
        Ok(key) => key,
        Err(error) => return Some(Err(error)),
    };
    let (_, rest) = key.split_first_chunk::<32>()?;
    let (turn, id) = rest.split_first_chunk::<4>()?;
    let id = <[u8; 32]>::try_from(id).ok()?;
    Some(Ok((u32::from_be_bytes(*turn), Digest(id))))
}
