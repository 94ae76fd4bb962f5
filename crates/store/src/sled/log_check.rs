//! Checks whether the engine's log is as the engine wrote it. After a kill the engine reads its log
//! again and silently skips what it can't read, so that records vanish. This reads the log before
//! the engine does, and checks every message against its checksum. Owns what it knows of the log's
//! form. Never writes; and if it is not certain it says no, which only means that everything is
//! counted.
//!
//! The log consists of segments, each with a header: `checksum (u32) ‖ number of its first byte
//! (i64) ‖ what was durable then (i64)`, the latter two inverted. Messages follow one another:
//! `checksum (u32) ‖ kind (u8) ‖ length ‖ number of the segment ‖ page`, the latter three of
//! varying length, and then the body. Segments are used again, so the last one may end in what an
//! earlier one held.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::trees::SEGMENT_BYTES;
use super::writes::take;

const HEADER_BYTES: usize = 20;
/// No message begins this close to the end of a segment.
const RED_ZONE: usize = 32;
/// How many threads read. Checksums are as fast as memory, and a disk is faster with several
/// readers.
const READERS: usize = 2;

const CAP_KIND: u8 = 2;
/// Kinds of messages whose body lies in a file of its own. The store's values never make one.
const OUTSIDE_KINDS: [u8; 3] = [7, 9, 11];
const LAST_KIND: u8 = 11;

/// A segment of the log.
#[derive(Clone, Copy)]
struct Segment {
    at: u64,
    /// The number of its first byte, counted over everything that was ever written.
    lsn: u64,
}

/// The length of a log if all of it is as it was written.
pub(super) fn length_if_whole(log: &Path) -> Option<u64> {
    let file = File::open(log).ok()?;
    let length = fs::metadata(log).ok()?.len();
    let segments = segments(&file, length).ok()??;
    let top = segments.iter().map(|segment| segment.lsn).max();
    // All readers take segments from one counter, and stop as soon as one finds damage.
    let (next, sound) = (AtomicUsize::new(0), AtomicBool::new(true));
    let read = || {
        let mut bytes = Vec::new();
        while sound.load(Ordering::Relaxed)
            && let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let whole = read_segment(&file, length, segment.at, &mut bytes)
                .is_ok_and(|()| is_whole(&bytes, *segment, Some(segment.lsn) == top));
            sound.fetch_and(whole, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..READERS {
            // If there is no thread to be had, this one reads everything.
            let _ = std::thread::Builder::new().spawn_scoped(scope, read);
        }
        read();
    });
    sound.into_inner().then_some(length)
}

/// All segments that were ever written. `None` if a header is damaged.
fn segments(file: &File, length: u64) -> io::Result<Option<Vec<Segment>>> {
    let mut segments = Vec::new();
    let mut bytes = Vec::new();
    for at in (0..length).step_by(SEGMENT_BYTES) {
        let mut header = [0; HEADER_BYTES];
        if length - at >= HEADER_BYTES as u64 {
            file.read_exact_at(&mut header, at)?;
        }
        if header == [0; HEADER_BYTES] {
            // Either nothing was written there yet, or the header was lost. Then other bytes are
            // left.
            read_segment(file, length, at, &mut bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(None);
            }
            continue;
        }
        match lsn(&header) {
            Some(lsn) => segments.push(Segment { at, lsn }),
            None => return Ok(None),
        }
    }
    Ok(Some(segments))
}

fn read_segment(file: &File, length: u64, at: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let there = usize::try_from(length.saturating_sub(at)).unwrap_or(SEGMENT_BYTES);
    bytes.resize(there.min(SEGMENT_BYTES), 0);
    file.read_exact_at(bytes, at)
}

/// The number of a segment's first byte, if the header is sound.
fn lsn(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let (sum, mut rest) = header.split_first_chunk::<4>()?;
    if !crc32fast::hash(rest) != u32::from_le_bytes(*sum) {
        return None;
    }
    let lsn = u64::from_le_bytes(take(&mut rest)?) ^ (u64::MAX >> 1);
    (lsn % SEGMENT_BYTES as u64 == 0).then_some(lsn)
}

/// Whether all messages of a segment are sound. The last segment of all may end early, provided
/// that none of its messages stand after that end. What is lost of such an end is in the archive.
fn is_whole(bytes: &[u8], segment: Segment, last: bool) -> bool {
    let number = segment.lsn / SEGMENT_BYTES as u64;
    let mut at = HEADER_BYTES;
    while at + RED_ZONE <= SEGMENT_BYTES {
        match message(bytes, at, number) {
            Some((CAP_KIND, _)) => return true,
            Some((_, end)) => at = end,
            None => {
                let mut behind = at + 1..bytes.len();
                return last && !behind.any(|at| message(bytes, at, number).is_some());
            }
        }
    }
    true
}

/// The kind of a message and the place where it ends, if it is sound.
fn message(bytes: &[u8], at: usize, number: u64) -> Option<(u8, usize)> {
    let bytes = bytes.get(at..)?;
    let mut rest = bytes;
    let sum = u32::from_le_bytes(take(&mut rest)?);
    let [kind] = take(&mut rest)?;
    if kind == 0 || kind > LAST_KIND || OUTSIDE_KINDS.contains(&kind) {
        return None;
    }
    let length = usize::try_from(number_at(&mut rest)?).ok()?;
    if length > rest.len() || number_at(&mut rest)? != number {
        return None;
    }
    number_at(&mut rest)?;
    let body = rest.get(..length)?;
    // The checksum covers the body first and then the header behind the checksum, as the engine
    // computes it.
    let front = bytes.len() - rest.len();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(bytes.get(4..front)?);
    (!hasher.finalize() == sum).then_some((kind, at + front + length))
}

/// A number of varying length, in the engine's encoding.
fn number_at(rest: &mut &[u8]) -> Option<u64> {
    let [first] = take(rest)?;
    Some(match first {
        0..=240 => u64::from(first),
        241..=248 => {
            let [second] = take(rest)?;
            240 + 256 * (u64::from(first) - 241) + u64::from(second)
        }
        249 => {
            let [high, low] = take(rest)?;
            2288 + 256 * u64::from(high) + u64::from(low)
        }
        250..=255 => {
            let (front, behind) = rest.split_at_checked(usize::from(first) - 247)?;
            *rest = behind;
            let each = front.iter().rev();
            each.fold(0, |number, byte| number << 8 | u64::from(*byte))
        }
    })
}

/// Where the newest message of a log ends. What its segment holds behind that is of no use.
#[cfg(test)]
pub(super) fn end(log: &Path) -> u64 {
    let file = File::open(log).unwrap();
    let length = file.metadata().unwrap().len();
    let segments = segments(&file, length).unwrap().unwrap();
    let newest = segments.iter().max_by_key(|segment| segment.lsn).unwrap();
    let mut bytes = Vec::new();
    read_segment(&file, length, newest.at, &mut bytes).unwrap();
    let number = newest.lsn / SEGMENT_BYTES as u64;
    let mut at = HEADER_BYTES;
    while let Some((_, end)) = message(&bytes, at, number) {
        at = end;
    }
    newest.at + at as u64
}
