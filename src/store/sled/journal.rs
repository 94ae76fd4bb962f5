//! A short journal before the engine: a group is durable as soon as it stands here, for the price
//! of one write and one fdatasync. The engine's own flush wakes all of its threads and waits for
//! the disk twice; it is made up for when nobody waits, and then the journal begins anew.
//!
//! Owns the file `journal`: 64 KB that are written once, so that later writes change no metadata.
//! Entries stand one behind the other from the front; what is behind the last is left over from
//! earlier rounds, or zero. An entry, numbers little-endian:
//!
//! `checksum of all that follows (16 bytes) ‖ round (u64) ‖ length (u32) ‖ batches`
//!
//! A batch: `blobs (u32) ‖ for each: id (32), length (u32), bytes ‖ links (u32) ‖ for each: key
//! (32), id (32), turn (u32)`. Reading ends at the first entry that is not whole or is of another
//! round than the first. It never drops an entry that the engine might still miss: only
//! [`Journal::restart`] does, and its caller has made the engine durable before.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use bytes::Bytes;
use twox_hash::XxHash3_128;

use crate::model::Digest;

use super::super::files;
use super::super::{Batch, Link};

const NAME: &str = "journal";
/// As much as is ever to be read again after a kill, and as is ever behind in the engine: some
/// forty turns. A group that has no room left is flushed by the engine as it is.
const SIZE: usize = 64 << 10;
const CHECKSUM: usize = 16;
const HEADER: usize = CHECKSUM + 8 + 4;

/// The open journal.
pub(super) struct Journal {
    file: File,
    round: u64,
    end: usize,
}

impl Journal {
    /// Opens or makes the journal of a data directory.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(dir.join(NAME))?;
        let length = file.metadata()?.len();
        if length < SIZE as u64 {
            let missing = usize::try_from(SIZE as u64 - length).unwrap_or(SIZE);
            (&file).seek(SeekFrom::Start(length))?;
            (&file).write_all(&vec![0; missing])?;
            file.sync_all()?;
            files::sync_dir(dir)?;
        }
        let mut journal = Self {
            file,
            round: 0,
            end: 0,
        };
        let bytes = journal.bytes()?;
        journal.round = Entries::new(&bytes).round.unwrap_or_default();
        journal.end = journal.read()?.1;
        Ok(journal)
    }

    /// Whether the engine has all that was ever acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// All batches that the engine might miss, oldest first.
    pub(super) fn batches(&self) -> io::Result<Vec<Batch>> {
        self.read().map(|(batches, _)| batches)
    }

    /// Writes a group and waits until it is durable. Says no, and does nothing, where it has no
    /// room.
    pub(super) fn append(&mut self, group: &[Batch]) -> io::Result<bool> {
        let Some(entry) = entry(self.round, SIZE - self.end, group) else {
            return Ok(false);
        };
        (&self.file).seek(SeekFrom::Start(self.end as u64))?;
        (&self.file).write_all(&entry)?;
        self.file.sync_data()?;
        self.end += entry.len();
        Ok(true)
    }

    /// Forgets all entries, because the engine has them on disk. Writes nothing: the next entry
    /// overwrites the first and is of another round than the rest.
    pub(super) fn restart(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.end = 0;
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; SIZE];
        (&self.file).seek(SeekFrom::Start(0))?;
        (&self.file).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&self) -> io::Result<(Vec<Batch>, usize)> {
        let bytes = self.bytes()?;
        let mut entries = Entries::new(&bytes);
        let mut batches = Vec::new();
        // After a restart the first entry is still the one of the round before.
        while entries.round == Some(self.round)
            && let Some(entry) = entries.next()
        {
            batches.extend(entry);
        }
        Ok((batches, entries.done))
    }
}

/// An entry with all of a group, if it takes up at most `room`.
fn entry(round: u64, room: usize, group: &[Batch]) -> Option<Vec<u8>> {
    let mut entry = vec![0; HEADER];
    for batch in group {
        if entry.len() + batch.size() > room {
            return None;
        }
        write_batch(&mut entry, batch)?;
    }
    if entry.len() > room {
        return None;
    }
    let length = u32::try_from(entry.len() - HEADER).ok()?;
    let head = [&round.to_le_bytes()[..], &length.to_le_bytes()[..]].concat();
    entry.get_mut(CHECKSUM..HEADER)?.copy_from_slice(&head);
    let checksum = XxHash3_128::oneshot(entry.get(CHECKSUM..)?);
    let head = entry.get_mut(..CHECKSUM)?;
    head.copy_from_slice(&checksum.to_le_bytes());
    Some(entry)
}

fn write_batch(out: &mut Vec<u8>, batch: &Batch) -> Option<()> {
    let number = |count: usize| u32::try_from(count).ok().map(u32::to_le_bytes);
    out.extend(number(batch.blobs.len())?);
    for (id, bytes) in &batch.blobs {
        out.extend(id.as_bytes());
        out.extend(number(bytes.len())?);
        out.extend_from_slice(bytes);
    }
    out.extend(number(batch.links.len())?);
    for link in &batch.links {
        out.extend(link.key.as_bytes());
        out.extend(link.id.as_bytes());
        out.extend(link.turn.to_le_bytes());
    }
    Some(())
}

/// The whole entries at the front of the journal, all of one round.
struct Entries<'a> {
    bytes: &'a [u8],
    done: usize,
    round: Option<u64>,
}

impl<'a> Entries<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let round = whole(bytes).map(|(round, _)| round);
        Self {
            bytes,
            done: 0,
            round,
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Vec<Batch>;

    fn next(&mut self) -> Option<Vec<Batch>> {
        let (round, payload) = whole(self.bytes.get(self.done..)?)?;
        if self.round != Some(round) {
            return None;
        }
        let mut batches = Vec::new();
        let mut rest = payload;
        while !rest.is_empty() {
            batches.push(read_batch(&mut rest)?);
        }
        self.done += HEADER + payload.len();
        Some(batches)
    }
}

/// The round and the payload of the entry at the front, if it is whole.
fn whole(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (checksum, mut rest) = bytes.split_first_chunk::<CHECKSUM>()?;
    let summed = rest;
    let round = u64::from_le_bytes(take(&mut rest)?);
    let length = u32::from_le_bytes(take(&mut rest)?) as usize;
    let payload = rest.get(..length)?;
    let summed = summed.get(..HEADER - CHECKSUM + length)?;
    let sound = XxHash3_128::oneshot(summed).to_le_bytes() == *checksum;
    sound.then_some((round, payload))
}

fn read_batch(rest: &mut &[u8]) -> Option<Batch> {
    let mut batch = Batch::default();
    for _ in 0..u32::from_le_bytes(take(rest)?) {
        let id = Digest(take(rest)?);
        let length = u32::from_le_bytes(take(rest)?) as usize;
        let (bytes, behind) = rest.split_at_checked(length)?;
        batch.blobs.push((id, Bytes::copy_from_slice(bytes)));
        *rest = behind;
    }
    for _ in 0..u32::from_le_bytes(take(rest)?) {
        batch.links.push(Link {
            key: Digest(take(rest)?),
            id: Digest(take(rest)?),
            turn: u32::from_le_bytes(take(rest)?),
        });
    }
    Some(batch)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::super::super::blob_id;
    use super::super::super::tests::noise;
    use super::*;

    fn batch(seed: u64, length: usize) -> Batch {
        let bytes = noise(seed, length);
        let id = blob_id(&bytes);
        let link = |turn| Link {
            key: blob_id(&seed.to_le_bytes()),
            id,
            // The last byte is none that a file is filled up with.
            turn: u32::MAX - turn,
        };
        Batch {
            blobs: vec![(id, bytes), (blob_id(b""), Bytes::new())],
            links: (0..3).map(link).collect(),
        }
    }

    #[test]
    fn what_was_appended_is_read_again_until_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let groups = [
            vec![batch(1, 700), batch(2, 0)],
            vec![batch(3, 9_000)],
            vec![],
        ];
        let mut journal = Journal::open(dir.path()).unwrap();
        assert!(journal.is_empty());
        for group in &groups {
            assert!(journal.append(group).unwrap());
        }
        let mut journal = Journal::open(dir.path()).unwrap();
        assert!(!journal.is_empty());
        assert_eq!(journal.batches().unwrap(), groups.concat());
        journal.restart();
        assert_eq!(journal.batches().unwrap(), []);
        let next = batch(4, 100);
        assert!(journal.append(std::slice::from_ref(&next)).unwrap());
        // What the first round left behind the new entry is not read.
        let mut journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.batches().unwrap(), std::slice::from_ref(&next));
        assert!(journal.append(std::slice::from_ref(&next)).unwrap());
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.batches().unwrap(), [next.clone(), next]);
    }

    #[test]
    fn a_group_without_room_is_left_out_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        let mut kept = Vec::new();
        for seed in 0.. {
            let next = batch(seed, 5_000);
            if !journal.append(std::slice::from_ref(&next)).unwrap() {
                break;
            }
            kept.push(next);
        }
        assert_eq!(kept.len(), SIZE / 5_300);
        assert!(!journal.append(&[batch(99, SIZE)]).unwrap());
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.batches().unwrap(), kept);
        let length = std::fs::metadata(dir.path().join(NAME)).unwrap().len();
        assert_eq!(length, SIZE as u64);
    }

    #[test]
    fn a_torn_or_changed_entry_ends_the_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let mut journal = Journal::open(dir.path()).unwrap();
        let (first, second) = (batch(1, 40), batch(2, 40));
        assert!(journal.append(std::slice::from_ref(&first)).unwrap());
        let start = journal.end;
        assert!(journal.append(std::slice::from_ref(&second)).unwrap());
        let sound = std::fs::read(&path).unwrap();
        for at in 0..journal.end {
            let mut torn = sound.clone();
            torn[at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            let read = Journal::open(dir.path()).unwrap().batches().unwrap();
            let want = if at < start {
                vec![]
            } else {
                vec![first.clone()]
            };
            assert_eq!(read, want, "byte {at}");
            if at % 9 > 0 {
                continue;
            }
            std::fs::write(&path, &sound[..at]).unwrap();
            let read = Journal::open(dir.path()).unwrap().batches().unwrap();
            assert_eq!(read, want, "cut at {at}");
        }
    }
}
