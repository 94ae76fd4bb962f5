//! The form of entries in the journal and in the archive. Entries are found even behind damage.
//! Owns the form and its checks. Never decides what a file should hold: it reports what it meets.
//!
//! An entry, with numbers in little-endian: `stamp ‖ checksum of the payload (16) ‖ payload ‖
//! stamp`. The two stamps differ only in their first bytes, so that one flipped bit never hides
//! that there was an entry. A stamp:
//!
//! `magic (8) ‖ first number (u64) ‖ last number (u64) ‖ blobs (u64) ‖ links (u64) ‖ length of the
//! payload (u32) ‖ checksum (u64)`
//!
//! The checksum of a stamp covers the entry's place in its file as well. So bytes that only look
//! like an entry, because somebody stored them as a value, do not count. The numbers are those of
//! groups of writes. Blobs and links are how many the store held with them. A payload is a sequence
//! of batches: `blobs (u32) ‖ for each: id (32), length (u32), bytes ‖ links (u32) ‖ for each: key
//! (32), id (32), turn (u32)`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use memchr::memmem;
use twox_hash::XxHash3_128;

use crate::model::Digest;

use super::super::batch::{Batch, Link};
use super::trees::Counts;

const MAGIC: usize = 8;
const HEAD: [u8; MAGIC] = *b"\xd1plimso\x02";
const TAIL: [u8; MAGIC] = *b"\xd2plimso\x02";
/// What both magics have in common, which is all but the first byte.
const COMMON: &[u8] = b"plimso\x02";
const STAMP: usize = MAGIC + 4 * 8 + 4 + 8;
const CHECKSUM: usize = 16;
/// How many bytes an entry takes besides its payload.
const AROUND: usize = 2 * STAMP + CHECKSUM;
/// How many bytes are searched at a time for the next entry after damage.
const WINDOW: usize = 64 << 10;

/// What an entry says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The first group in the entry.
    pub(super) first: u64,
    /// The last group in the entry.
    pub(super) last: u64,
    /// What the store held when the entry was written.
    pub(super) counts: Counts,
}

impl Stamp {
    fn bytes(&self, magic: [u8; MAGIC], at: u64, length: u32) -> [u8; STAMP] {
        let mut out = [0; STAMP];
        let numbers = [self.first, self.last, self.counts.blobs, self.counts.links];
        let numbers = numbers.map(u64::to_le_bytes);
        let body = [&magic[..], numbers.as_flattened(), &length.to_le_bytes()].concat();
        let sum = stamp_sum(&body, at);
        for (to, from) in out.iter_mut().zip(body.iter().chain(&sum)) {
            *to = *from;
        }
        out
    }

    /// Reads the stamp at `place`. Returns it with its length and whether it is the first of the
    /// two.
    fn read(bytes: &[u8; STAMP], place: u64) -> Option<(Self, u32, bool)> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let mut rest = body;
        let magic = take::<MAGIC>(&mut rest)?;
        let mut number = || take(&mut rest).map(u64::from_le_bytes);
        let (first, last) = (number()?, number()?);
        let (blobs, links) = (number()?, number()?);
        let length = u32::from_le_bytes(take(&mut rest)?);
        let front = match magic {
            HEAD => true,
            TAIL => false,
            _ => return None,
        };
        // The checksum covers the place of the entry, which the stamp at the end has to compute.
        let before = if front {
            0
        } else {
            (STAMP + CHECKSUM) as u64 + u64::from(length)
        };
        let at = place.checked_sub(before)?;
        let counts = Counts { blobs, links };
        let stamp = Self {
            first,
            last,
            counts,
        };
        (stamp_sum(body, at) == *sum).then_some((stamp, length, front))
    }
}

fn stamp_sum(body: &[u8], at: u64) -> [u8; 8] {
    let sum = XxHash3_128::oneshot(&[body, &at.to_le_bytes()].concat());
    (sum as u64).to_le_bytes()
}

/// The entry for the place `at` with all batches of a group. `None` if it takes more than `room`
/// bytes.
pub(super) fn seal(at: u64, room: usize, stamp: &Stamp, group: &[Batch]) -> Option<Vec<u8>> {
    let front = STAMP + CHECKSUM;
    let mut entry = vec![0; front];
    for batch in group {
        if entry.len() + STAMP + batch.size() > room {
            return None;
        }
        write_batch(&mut entry, batch)?;
    }
    if entry.len() + STAMP > room {
        return None;
    }
    let payload = entry.get(front..)?;
    let length = u32::try_from(payload.len()).ok()?;
    let sum = XxHash3_128::oneshot(payload).to_le_bytes();
    let head = [&stamp.bytes(HEAD, at, length)[..], &sum].concat();
    entry.get_mut(..front)?.copy_from_slice(&head);
    entry.extend_from_slice(&stamp.bytes(TAIL, at, length));
    Some(entry)
}

/// What a reader meets.
pub(super) enum Scanned {
    /// An entry as it was written.
    Whole(Stamp, Vec<Batch>),
    /// The stamp of an entry that is damaged or partly overwritten.
    Trace(Stamp),
}

/// Reads the entries of a file from a place on, and skips everything else.
pub(super) struct EntryReader<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl<'a> EntryReader<'a> {
    pub(super) fn new(file: &'a File, at: u64) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file, at, end })
    }

    /// The next entry or trace. `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Scanned>> {
        while self.at + STAMP as u64 <= self.end {
            let mut bytes = [0; STAMP];
            self.file.read_exact_at(&mut bytes, self.at)?;
            let Some((stamp, length, front)) = Stamp::read(&bytes, self.at) else {
                self.at = self.search(self.at + 1)?;
                continue;
            };
            if front && let Some(batches) = self.payload(length as usize)? {
                self.at += (AROUND + length as usize) as u64;
                return Ok(Some(Scanned::Whole(stamp, batches)));
            }
            self.at += STAMP as u64;
            return Ok(Some(Scanned::Trace(stamp)));
        }
        Ok(None)
    }

    /// The batches of the entry at hand, if its payload is intact.
    fn payload(&self, length: usize) -> io::Result<Option<Vec<Batch>>> {
        let from = self.at + STAMP as u64;
        if from + (CHECKSUM + length) as u64 > self.end {
            return Ok(None);
        }
        let mut bytes = vec![0; CHECKSUM + length];
        self.file.read_exact_at(&mut bytes, from)?;
        let Some((sum, payload)) = bytes.split_first_chunk::<CHECKSUM>() else {
            return Ok(None);
        };
        if XxHash3_128::oneshot(payload).to_le_bytes() != *sum {
            return Ok(None);
        }
        Ok(read_batches(payload))
    }

    /// Where the next stamp may begin, from a place on. The end of the file if there is none.
    fn search(&self, mut from: u64) -> io::Result<u64> {
        let mut window = vec![0; WINDOW];
        while from < self.end {
            let length = (self.end - from).min(WINDOW as u64);
            let Some(part) = window.get_mut(..usize::try_from(length).unwrap_or(WINDOW)) else {
                break;
            };
            self.file.read_exact_at(part, from)?;
            // The byte before the common part belongs to the stamp and must be in the window.
            let mut found = memmem::find_iter(part, COMMON);
            if let Some(at) = found.find(|at| *at > 0) {
                return Ok(from + at as u64 - 1);
            }
            if length < WINDOW as u64 {
                break;
            }
            // The windows overlap, so that a magic on their border is found.
            from += length - MAGIC as u64;
        }
        Ok(self.end)
    }
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

/// All batches of a payload. `None` if it holds anything else.
pub(super) fn read_batches(mut payload: &[u8]) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    while !payload.is_empty() {
        batches.push(read_batch(&mut payload)?);
    }
    Some(batches)
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

pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::super::tests::noise;
    use super::*;
    use crate::model::blob_id;

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

    fn stamp(group: u64) -> Stamp {
        let (blobs, links) = (group * 2, group * 3);
        Stamp {
            first: group,
            last: group,
            counts: Counts { blobs, links },
        }
    }

    /// The groups that are read whole, and the last of which there is a trace.
    fn read(bytes: &[u8]) -> (Vec<(u64, Vec<Batch>)>, u64) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut reader = EntryReader::new(&file, 0).unwrap();
        let (mut whole, mut top) = (Vec::new(), 0);
        while let Some(found) = reader.next().unwrap() {
            let met = match found {
                Scanned::Whole(met, batches) => {
                    whole.push((met.last, batches));
                    met
                }
                Scanned::Trace(met) => met,
            };
            assert_eq!(met, stamp(met.last));
            top = top.max(met.last);
        }
        (whole, top)
    }

    fn file(groups: &[(u64, Vec<Batch>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, group) in groups {
            let at = bytes.len() as u64;
            bytes.extend(seal(at, usize::MAX, &stamp(*number), group).unwrap());
        }
        bytes
    }

    #[test]
    fn what_was_sealed_is_read_again_and_only_at_its_place() {
        let groups = [
            (1, vec![batch(1, 700), batch(2, 0)]),
            (2, vec![batch(3, 90_000)]),
            (3, vec![]),
        ];
        let bytes = file(&groups);
        assert_eq!(read(&bytes), (groups.to_vec(), 3));
        let moved = [&[0][..], &bytes].concat();
        assert_eq!(read(&moved), (vec![], 0));
        assert_eq!(read(&[]), (vec![], 0));
    }

    #[test]
    fn an_entry_takes_the_room_that_it_says_or_none() {
        let group = [batch(1, 500)];
        let length = seal(0, usize::MAX, &stamp(1), &group).unwrap().len();
        assert!(seal(0, length, &stamp(1), &group).is_some());
        assert!(seal(0, length - 1, &stamp(1), &group).is_none());
    }

    #[test]
    fn one_flipped_bit_takes_one_entry_and_never_its_trace() {
        let groups: Vec<_> = (1..4).map(|n| (n, vec![batch(n, 60)])).collect();
        let sound = file(&groups);
        let ends: Vec<usize> = (1..4).map(|n| file(&groups[..n]).len()).collect();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            let hit = ends.iter().filter(|end| **end <= at).count();
            let (whole, top) = read(&bytes);
            assert_eq!(top, 3, "byte {at}");
            let left: Vec<u64> = whole.iter().map(|(number, _)| *number).collect();
            let tail = ends[hit] - STAMP <= at;
            let want: Vec<u64> = (1..4).filter(|n| tail || *n != hit as u64 + 1).collect();
            assert_eq!(left, want, "byte {at}");
            assert!(whole.iter().all(|entry| groups.contains(entry)));
        }
    }

    #[test]
    fn a_cut_file_keeps_what_stands_before_the_cut() {
        let groups: Vec<_> = (1..4).map(|n| (n, vec![batch(n, 60)])).collect();
        let sound = file(&groups);
        for at in (0..sound.len()).step_by(7) {
            let whole = (1..4).filter(|n| file(&groups[..*n]).len() <= at).count();
            assert!(read(&sound[..at]).0.len() >= whole, "cut at {at}");
        }
    }

    #[test]
    fn what_follows_a_long_damage_is_found() {
        let groups: Vec<_> = (1..4).map(|n| (n, vec![batch(n, 200_000)])).collect();
        let mut bytes = file(&groups);
        let from = file(&groups[..1]).len();
        let to = file(&groups[..2]).len();
        bytes[from..to].fill(0xd1);
        let (whole, top) = read(&bytes);
        assert_eq!(whole, [groups[0].clone(), groups[2].clone()]);
        assert_eq!(top, 3);
    }
}
