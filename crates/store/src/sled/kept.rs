//! What is young enough to stay: by the settings, and by days that have to go because the files take
//! too much room. Owns that decision. Never removes anything.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::batch::BatchKind;
use super::super::settings::{DAY_SECONDS, Retention};
use super::age::Age;
use super::writes::Writes;

/// The share of the bound that is left when files took too much room: nine tenths.
const LEFT: (u64, u64) = (9, 10);
/// About how many bytes the files of a fresh store take for each byte of its archive, in tenths. The
/// engine's log takes more than twice what lives in it.
const FILES_TENTHS: u64 = 34;
/// How many bytes the files of an empty store take.
const EMPTY_BYTES: u64 = 9 << 20;
/// How many bytes a blob and a link take beside a blob's own.
const BLOB_BYTES: u64 = 41;
const LINK_BYTES: u64 = 70;

/// The first days that stay.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    today: u16,
    records: u16,
    content: u16,
}

impl Limits {
    pub(super) fn new(retention: &Retention, today: u16) -> Self {
        let first = |kept: Option<Duration>| {
            let days = kept.map(|kept| kept.as_secs() / DAY_SECONDS);
            let days = days.and_then(|days| u16::try_from(days).ok());
            days.map_or(0, |days| today.saturating_sub(days))
        };
        Self {
            today,
            records: first(retention.records),
            content: first(retention.content),
        }
    }

    /// Whether a blob stays.
    pub(super) fn keeps(&self, age: Age) -> bool {
        let Age {
            records, content, ..
        } = age;
        (records > 0 && records >= self.records) || (content > 0 && content >= self.content)
    }

    /// Whether a link stays, given the day on which it was last written and its blob, which stays. A
    /// link to a blob that was renewed stays with it. Otherwise a link must itself be as young as a
    /// blob would have to be.
    pub(super) fn keeps_link(&self, day: u16, blob: Age) -> bool {
        let own = Age {
            records: blob.records.min(day),
            content: blob.content.min(day),
            renewed: false,
        };
        blob.renewed || self.keeps(own)
    }
}

/// What a store holds, by day.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// How many blobs are too old.
    pub(super) old: u64,
    /// Bytes of the others by kind and last day.
    content: BTreeMap<u16, u64>,
    records: BTreeMap<u16, u64>,
    /// Bytes of links and rows.
    rest: u64,
}

impl Census {
    /// Counts a part of a store.
    pub(super) fn count(&mut self, part: &Writes, limits: &Limits) {
        for (_, age, bytes) in &part.blobs {
            if !limits.keeps(*age) {
                self.old += 1;
                continue;
            }
            let days = match age.kind() {
                BatchKind::Records => &mut self.records,
                BatchKind::Content => &mut self.content,
            };
            *days.entry(age.records.max(age.content)).or_default() +=
                bytes.len() as u64 + BLOB_BYTES;
        }
        let rows: usize = part.rows.iter().map(|listed| listed.row.len()).sum();
        self.rest += part.links.len() as u64 * LINK_BYTES + rows as u64;
    }

    /// Moves the limits so far that a copy takes about nine tenths of `most` bytes: the oldest day
    /// goes first, content before records. Today and yesterday stay, because what is used every day
    /// is named once a day. Returns whether even what has to stay is too much.
    pub(super) fn fit(&self, limits: &mut Limits, most: u64) -> bool {
        let target = most / LEFT.1 * LEFT.0;
        let yesterday = limits.today.saturating_sub(1);
        let all: u64 = self.records.values().chain(self.content.values()).sum();
        // Links and rows go with their blobs.
        let rest = |left: u64| u128::from(self.rest) * u128::from(left) / u128::from(all.max(1));
        let files = |left: u64| {
            let archive = left.saturating_add(u64::try_from(rest(left)).unwrap_or(u64::MAX));
            EMPTY_BYTES.saturating_add(archive.saturating_mul(FILES_TENTHS) / 10)
        };
        let mut left = all;
        for (days, first) in [
            (&self.content, &mut limits.content),
            (&self.records, &mut limits.records),
        ] {
            for (day, bytes) in days.range(..yesterday) {
                if files(left) <= target {
                    return false;
                }
                left -= bytes;
                *first = day + 1;
            }
        }
        files(left) > target
    }
}
