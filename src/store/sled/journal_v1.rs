//! The form of the journal before there was an archive. Reads what a killed process of that version
//! left. Never writes one.
//!
//! An entry, with numbers in little-endian: `checksum of all that follows (16 bytes) ‖ round (u64)
//! ‖ length (u32) ‖ batches`. Reading stops at the first entry that is not whole, or that belongs
//! to another round than the first.

use twox_hash::XxHash3_128;

use super::entry::read_all;
use super::writes::{Writes, take};

const CHECKSUM: usize = 16;
const HEADER: usize = CHECKSUM + 8 + 4;

/// All writes that the engine may lack, oldest first.
pub(super) fn writes(bytes: &[u8]) -> Vec<Writes> {
    let mut found = Vec::new();
    let mut rest = bytes;
    let mut first = None;
    while let Some((round, payload)) = whole(rest)
        && *first.get_or_insert(round) == round
        && let Some(writes) = read_all(payload, Writes::read_old)
        && let Some(behind) = rest.get(HEADER + payload.len()..)
    {
        found.extend(writes);
        rest = behind;
    }
    found
}

/// The round and the payload of the first entry, if it is whole.
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
