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
//! of what was written together (see [`super::writes`]). The last byte of the magic says how blobs
//! stand there: 1 is [`Form::Usual`], 2 is [`Form::Stored`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use memchr::memmem;
use twox_hash::XxHash3_128;

use super::trees::Counts;
use super::writes::{Writes, take};

const MAGIC_BYTES: usize = 8;
const HEAD: [u8; MAGIC_BYTES] = *b"\xd1plimso\x01";
const TAIL: [u8; MAGIC_BYTES] = *b"\xd2plimso\x01";
const SEALED_HEAD: [u8; MAGIC_BYTES] = *b"\xd1plimso\x02";
const SEALED_TAIL: [u8; MAGIC_BYTES] = *b"\xd2plimso\x02";
/// What all magics have in common, which is all but the first and the last byte.
const COMMON_MAGIC: &[u8] = b"plimso";
const STAMP_BYTES: usize = MAGIC_BYTES + 4 * 8 + 4 + 8;
const CHECKSUM_BYTES: usize = 16;
/// How many bytes an entry takes besides its payload.
const OVERHEAD_BYTES: usize = 2 * STAMP_BYTES + CHECKSUM_BYTES;
/// How many bytes are searched at a time for the next entry after damage.
const SEARCH_BYTES: usize = 64 << 10;

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

/// Which of the two stamps of an entry one is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Head(Form),
    Tail,
}

/// In which form an entry has blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As they came in the journal, and in their stored form in the archive.
    Usual,
    /// In their stored form.
    Stored,
}

impl Stamp {
    fn bytes(&self, magic: [u8; MAGIC_BYTES], at: u64, length: u32) -> [u8; STAMP_BYTES] {
        let mut out = [0; STAMP_BYTES];
        let numbers = [self.first, self.last, self.counts.blobs, self.counts.links];
        let numbers = numbers.map(u64::to_le_bytes);
        let body = [&magic[..], numbers.as_flattened(), &length.to_le_bytes()].concat();
        let sum = stamp_sum(&body, at);
        for (to, from) in out.iter_mut().zip(body.iter().chain(&sum)) {
            *to = *from;
        }
        out
    }

    /// Reads the stamp at `place`. Returns it with the length of its payload and which of the two it
    /// is.
    fn read(bytes: &[u8; STAMP_BYTES], place: u64) -> Option<(Self, u32, Side)> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let mut rest = body;
        let magic = take::<MAGIC_BYTES>(&mut rest)?;
        let mut number = || take(&mut rest).map(u64::from_le_bytes);
        let (first, last) = (number()?, number()?);
        let (blobs, links) = (number()?, number()?);
        let length = u32::from_le_bytes(take(&mut rest)?);
        let side = match magic {
            HEAD => Side::Head(Form::Usual),
            SEALED_HEAD => Side::Head(Form::Stored),
            TAIL | SEALED_TAIL => Side::Tail,
            _ => return None,
        };
        // The checksum covers the place of the entry, which the stamp at the end has to compute.
        let before = match side {
            Side::Head(_) => 0,
            Side::Tail => (STAMP_BYTES + CHECKSUM_BYTES) as u64 + u64::from(length),
        };
        let at = place.checked_sub(before)?;
        let counts = Counts {
            blobs,
            links,
            rows: 0,
        };
        let stamp = Self {
            first,
            last,
            counts,
        };
        (stamp_sum(body, at) == *sum).then_some((stamp, length, side))
    }
}

fn stamp_sum(body: &[u8], at: u64) -> [u8; 8] {
    let sum = XxHash3_128::oneshot(&[body, &at.to_le_bytes()].concat());
    (sum as u64).to_le_bytes()
}

/// The entry for the place `at` with all writes of a group. `None` if it takes more than `room`
/// bytes.
pub(super) fn entry(
    at: u64,
    room: usize,
    stamp: &Stamp,
    (group, form): (&[Writes], Form),
) -> Option<Vec<u8>> {
    let (head, tail) = match form {
        Form::Usual => (HEAD, TAIL),
        Form::Stored => (SEALED_HEAD, SEALED_TAIL),
    };
    let front = STAMP_BYTES + CHECKSUM_BYTES;
    let about: usize = group.iter().map(Writes::size).sum();
    let mut entry = Vec::with_capacity(front + about.min(room) + STAMP_BYTES);
    entry.resize(front, 0);
    for writes in group {
        if entry.len() + STAMP_BYTES + writes.size() > room {
            return None;
        }
        writes.write(&mut entry)?;
    }
    if entry.len() + STAMP_BYTES > room {
        return None;
    }
    let payload = entry.get(front..)?;
    let length = u32::try_from(payload.len()).ok()?;
    let sum = XxHash3_128::oneshot(payload).to_le_bytes();
    let head = [&stamp.bytes(head, at, length)[..], &sum].concat();
    entry.get_mut(..front)?.copy_from_slice(&head);
    entry.extend_from_slice(&stamp.bytes(tail, at, length));
    Some(entry)
}

/// What a reader meets.
pub(super) enum Scanned {
    /// An entry as it was written.
    Whole(Stamp, Vec<Writes>, Form),
    /// The stamp of an entry that is damaged or partly overwritten.
    Trace(Stamp),
    /// The stamp of an entry that would end behind the end of the file.
    CutOff(Stamp),
}

/// Reads the entries of a file from a place on, and skips everything else.
pub(super) struct EntryReader<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    sound: bool,
    /// Where the last entry ends of those that were met and end within the file.
    met: u64,
}

impl<'a> EntryReader<'a> {
    pub(super) fn new(file: &'a File, at: u64) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self::between(file, at, end))
    }

    /// Reads no further than to a place.
    pub(super) fn between(file: &'a File, at: u64, end: u64) -> Self {
        Self {
            file,
            at,
            end,
            sound: true,
            met: at,
        }
    }

    /// Whether nothing but whole entries was met, up to the very end.
    pub(super) fn is_sound(&self) -> bool {
        self.sound && self.at == self.end
    }

    /// Whether something stands behind the last entry, once everything was read.
    pub(super) fn has_rest(&self) -> bool {
        self.met < self.end
    }

    /// Where a write begins that broke off, once everything was read. It leaves the beginning of an
    /// entry, or zeros. `None` if the file ends with an entry, or with anything else.
    pub(super) fn unfinished(&self) -> io::Result<Option<u64>> {
        let rest = self.end.saturating_sub(self.met);
        let unfinished = if rest < STAMP_BYTES as u64 {
            rest > 0
        } else {
            // The stamp of an entry that ends within the file would have been met.
            let mut bytes = [0; STAMP_BYTES];
            self.file.read_exact_at(&mut bytes, self.met)?;
            Stamp::read(&bytes, self.met).is_some() || self.is_zero(self.met)?
        };
        Ok(unfinished.then_some(self.met))
    }

    /// Whether there are only zeros from a place on.
    fn is_zero(&self, mut from: u64) -> io::Result<bool> {
        let mut window = vec![0; SEARCH_BYTES];
        while from < self.end {
            let length = usize::try_from(self.end - from).unwrap_or(SEARCH_BYTES);
            let part = window.get_mut(..length.min(SEARCH_BYTES));
            let part = part.unwrap_or_default();
            self.file.read_exact_at(part, from)?;
            if part.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            from += part.len() as u64;
        }
        Ok(true)
    }

    /// The next entry or trace. `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Scanned>> {
        while self.at + STAMP_BYTES as u64 <= self.end {
            let mut bytes = [0; STAMP_BYTES];
            self.file.read_exact_at(&mut bytes, self.at)?;
            let Some((stamp, length, side)) = Stamp::read(&bytes, self.at) else {
                // After damage, the next magic is searched for, because entries have no fixed
                // places.
                self.sound = false;
                self.at = self.search(self.at + 1)?;
                continue;
            };
            let length = length as usize;
            let ends = match side {
                Side::Head(_) => self.at + (OVERHEAD_BYTES + length) as u64,
                Side::Tail => self.at + STAMP_BYTES as u64,
            };
            // The stamp alone tells which groups were written.
            let trace = if ends > self.end {
                Scanned::CutOff(stamp)
            } else {
                self.met = ends;
                if let Some((group, form, ended)) = self.payload(&stamp, side, length)? {
                    self.at = ends;
                    if !ended {
                        // The next entry may begin where this one broke off.
                        self.at -= STAMP_BYTES as u64;
                        self.sound = false;
                    }
                    return Ok(Some(Scanned::Whole(stamp, group, form)));
                }
                Scanned::Trace(stamp)
            };
            // Either the payload is damaged, or this is the end of an entry whose beginning is.
            self.sound = false;
            self.at += STAMP_BYTES as u64;
            return Ok(Some(trace));
        }
        Ok(None)
    }

    /// The writes of the entry at hand, if this is its front and its payload is intact, and whether
    /// its last stamp is.
    fn payload(
        &self,
        stamp: &Stamp,
        side: Side,
        length: usize,
    ) -> io::Result<Option<(Vec<Writes>, Form, bool)>> {
        let Side::Head(form) = side else {
            return Ok(None);
        };
        let mut bytes = vec![0; CHECKSUM_BYTES + length + STAMP_BYTES];
        let from = self.at + STAMP_BYTES as u64;
        self.file.read_exact_at(&mut bytes, from)?;
        let Some((payload, tail)) = bytes.split_last_chunk() else {
            return Ok(None);
        };
        let Some((sum, payload)) = payload.split_first_chunk::<CHECKSUM_BYTES>() else {
            return Ok(None);
        };
        if XxHash3_128::oneshot(payload).to_le_bytes() != *sum {
            return Ok(None);
        }
        let tail = Stamp::read(tail, from + (CHECKSUM_BYTES + length) as u64);
        let ended = tail.is_some_and(|(met, ..)| met == *stamp);
        Ok(read_all(payload).map(|group| (group, form, ended)))
    }

    /// Where the next stamp may begin, from a place on. The end of the file if there is none.
    fn search(&self, mut from: u64) -> io::Result<u64> {
        let mut window = vec![0; SEARCH_BYTES];
        while from < self.end {
            let length = (self.end - from).min(SEARCH_BYTES as u64);
            let Some(part) = window.get_mut(..usize::try_from(length).unwrap_or(SEARCH_BYTES))
            else {
                break;
            };
            self.file.read_exact_at(part, from)?;
            // The byte before the common part belongs to the stamp and must be in the window.
            let mut found = memmem::find_iter(part, COMMON_MAGIC);
            if let Some(at) = found.find(|at| *at > 0) {
                return Ok(from + at as u64 - 1);
            }
            if length < SEARCH_BYTES as u64 {
                break;
            }
            // The windows overlap, so that a magic on their border is found.
            from += length - MAGIC_BYTES as u64;
        }
        Ok(self.end)
    }
}

/// All writes of a payload. `None` if it holds anything else.
fn read_all(mut payload: &[u8]) -> Option<Vec<Writes>> {
    let mut all = Vec::new();
    while !payload.is_empty() {
        all.push(Writes::read(&mut payload)?);
    }
    Some(all)
}

#[cfg(test)]
mod tests;
