//! What was handed to the store but is not in its trees yet. A reader finds a turn here as soon as
//! it was committed, however slow the disk is. Never writes anything.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use plimsoll_model::Digest;

use super::batch::{Batch, BatchKind, Link, Listed, MEMBERS, Member, Take};

/// Batches on their way to the trees. Entries are counted, because several batches may hold the
/// same blob or link.
#[derive(Default)]
pub(super) struct Overlay {
    blobs: HashMap<Digest, WaitingBlob>,
    links: HashMap<Digest, BTreeMap<(u32, Digest), usize>>,
    /// The rows of each session, in the order in which they were handed over.
    rows: HashMap<Digest, Vec<Listed>>,
    batches: usize,
    bytes: usize,
}

struct WaitingBlob {
    value: Bytes,
    kind: BatchKind,
    count: usize,
}

impl Overlay {
    /// Adds the pieces of a batch. Returns false if that would exceed `batches` or `bytes`. An empty
    /// overlay takes a batch that alone exceeds `bytes`.
    pub(super) fn add<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a Batch> + Clone,
        batches: usize,
        bytes: usize,
    ) -> bool {
        let size = pieces.clone().map(Batch::size).sum::<usize>();
        if !self.fits(size, batches, bytes) && (self.batches > 0 || batches == 0) {
            return false;
        }
        self.batches += 1;
        self.bytes += size;
        pieces.for_each(|piece| self.hold(piece));
        true
    }

    /// Shows a batch to readers that does not wait to be written.
    pub(super) fn hold(&mut self, batch: &Batch) {
        for (id, value) in &batch.blobs {
            let waiting = self.blobs.entry(*id).or_insert_with(|| WaitingBlob {
                value: value.clone(),
                kind: batch.kind,
                count: 0,
            });
            waiting.count += 1;
            waiting.kind = waiting.kind.or(batch.kind);
        }
        for link in &batch.links {
            let set = self.links.entry(link.key).or_default();
            *set.entry((link.turn, link.id)).or_default() += 1;
        }
        if let Some(listed) = &batch.listed {
            self.hold_row(listed.clone());
        }
    }

    /// Shows a row to readers.
    pub(super) fn hold_row(&mut self, listed: Listed) {
        self.rows.entry(listed.session).or_default().push(listed);
    }

    /// Whether a batch fits beside the others, within `batches` and `bytes`.
    pub(super) fn has_room(&self, batch: &Batch, batches: usize, bytes: usize) -> bool {
        self.fits(batch.size(), batches, bytes)
    }

    fn fits(&self, size: usize, batches: usize, bytes: usize) -> bool {
        self.batches < batches && self.bytes + size <= bytes
    }

    /// Frees the room of pieces, of which `ended` end a batch. Readers still find them.
    pub(super) fn free(&mut self, pieces: &[Batch], ended: usize) {
        let size = pieces.iter().map(Batch::size).sum();
        self.batches = self.batches.saturating_sub(ended);
        self.bytes = self.bytes.saturating_sub(size);
    }

    /// Takes a batch out and gives its room to others.
    pub(super) fn remove(&mut self, batch: &Batch) {
        self.free(std::slice::from_ref(batch), 1);
        self.release(batch);
    }

    /// Takes a batch out without giving room to others: that was done before, or it takes none.
    pub(super) fn release(&mut self, batch: &Batch) {
        // Several batches may hold the same entry. It goes with the last of them.
        for (id, _) in &batch.blobs {
            if let Some(waiting) = self.blobs.get_mut(id) {
                waiting.count -= 1;
                if waiting.count == 0 {
                    self.blobs.remove(id);
                }
            }
        }
        for link in &batch.links {
            let Some(set) = self.links.get_mut(&link.key) else {
                continue;
            };
            if let Some(count) = set.get_mut(&(link.turn, link.id)) {
                *count -= 1;
                if *count == 0 {
                    set.remove(&(link.turn, link.id));
                }
            }
            if set.is_empty() {
                self.links.remove(&link.key);
            }
        }
        if let Some(listed) = &batch.listed {
            self.release_row(listed);
        }
    }

    /// Takes a row out that was shown.
    pub(super) fn release_row(&mut self, listed: &Listed) {
        let Some(rows) = self.rows.get_mut(&listed.session) else {
            return;
        };
        if let Some(at) = rows.iter().position(|row| row == listed) {
            rows.remove(at);
        }
        if rows.is_empty() {
            self.rows.remove(&listed.session);
        }
    }

    /// The row of each session that is to be kept of those that wait.
    pub(super) fn rows(&self) -> HashMap<Digest, Listed> {
        let newest = |rows: &Vec<Listed>| {
            let newer = |one: Listed, other: &Listed| {
                if other.replaces(&one) {
                    other.clone()
                } else {
                    one
                }
            };
            let (first, rest) = rows.split_first()?;
            Some(rest.iter().fold(first.clone(), newer))
        };
        let rows = self.rows.iter();
        rows.filter_map(|(session, rows)| Some((*session, newest(rows)?)))
            .collect()
    }

    /// Everything that waits: the blobs of each kind, and what goes behind all blobs.
    pub(super) fn each(&self) -> (Vec<Batch>, Vec<Batch>) {
        let of = |kind| {
            let blobs = self.blobs.iter().filter(move |(_, blob)| blob.kind == kind);
            Batch {
                blobs: blobs.map(|(id, blob)| (*id, blob.value.clone())).collect(),
                kind,
                ..Batch::default()
            }
        };
        let set = |(key, set): (&Digest, &BTreeMap<(u32, Digest), usize>)| {
            let key = *key;
            let link = move |&(turn, id)| Link { key, id, turn };
            set.keys().map(link).collect::<Vec<Link>>()
        };
        let links = Batch {
            links: self.links.iter().flat_map(set).collect(),
            ..Batch::default()
        };
        let rows = self.rows().into_values().map(|row| Batch {
            listed: Some(row),
            ..Batch::default()
        });
        let blobs = vec![of(BatchKind::Records), of(BatchKind::Content)];
        (blobs, std::iter::once(links).chain(rows).collect())
    }

    /// The blob, if it is here.
    pub(super) fn blob(&self, id: &Digest) -> Option<&Bytes> {
        self.blobs.get(id).map(|waiting| &waiting.value)
    }

    /// The links of a key in the order in which they are looked at, as many as are ever read.
    pub(super) fn links(&self, key: &Digest, take: Take) -> Vec<Member> {
        let set = self.links.get(key).into_iter();
        let all = set.flat_map(|set| set.keys().copied());
        take.in_order(all).take(MEMBERS).collect()
    }

    /// All links, whatever their keys.
    pub(super) fn linked(&self) -> impl Iterator<Item = (u32, Digest)> {
        self.links.values().flat_map(|set| set.keys().copied())
    }

    /// How many batches wait to be durable.
    pub(super) fn len(&self) -> usize {
        self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Link;
    use super::*;
    use plimsoll_model::blob_id;

    fn batch(value: &'static [u8]) -> Batch {
        let id = blob_id(value);
        Batch {
            blobs: vec![(id, Bytes::from_static(value))],
            links: vec![Link {
                key: blob_id(b"key"),
                id,
                turn: 3,
            }],
            ..Batch::default()
        }
    }

    #[test]
    fn a_blob_stays_until_its_last_batch_is_out() {
        let mut overlay = Overlay::default();
        let (one, two) = (batch(b"same"), batch(b"same"));
        for batch in [&one, &two] {
            assert!(overlay.add(std::iter::once(batch), 9, 999));
        }
        overlay.remove(&one);
        assert!(overlay.blob(&one.blobs[0].0).is_some());
        assert_eq!(overlay.links(&blob_id(b"key"), Take::ALL).len(), 1);
        overlay.remove(&two);
        assert!(overlay.blob(&one.blobs[0].0).is_none());
        assert!(overlay.blobs.is_empty() && overlay.links.is_empty());
        assert_eq!((overlay.batches, overlay.bytes), (0, 0));
    }

    #[test]
    fn both_bounds_hold_and_one_large_batch_still_passes() {
        let mut overlay = Overlay::default();
        assert!(overlay.add([batch(b"larger than the bound")].iter(), 2, 1));
        assert!(!overlay.add([batch(b"b")].iter(), 2, 1));
        // However many pieces a batch has, it takes one place.
        let pieces = [batch(b"b"), batch(b"c"), batch(b"d")];
        assert!(overlay.add(pieces.iter(), 2, 999));
        assert!(!overlay.add([batch(b"c")].iter(), 2, 999));
    }
}
