//! Bringing an engine up to what the archive and the journal hold, and telling what none of the
//! three has any more. It reads them past damage, and never calls a write lost that one of them has.

use std::sync::Arc;

use super::super::codec;
use super::super::{Batch, Loss, StoreError};
use super::archive::Archive;
use super::committer::Committer;
use super::entry::{Found, Stamp};
use super::old;
use super::trees::{Counts, Trees};

/// Which groups of writes were met, whole or by a trace only.
struct Tale {
    /// Groups that are there, as ranges with both ends.
    known: Vec<(u64, u64)>,
    /// The last group of which anything tells.
    top: u64,
    /// The last group in the archive, and how much the store had then.
    archived: u64,
    expected: Counts,
}

impl Tale {
    /// The engine has all groups up to `group`.
    fn new(group: u64) -> Self {
        Self {
            known: vec![(0, group)],
            top: group,
            archived: group,
            expected: Counts::default(),
        }
    }

    fn has(&self, group: u64) -> bool {
        let mut known = self.known.iter();
        known.any(|(first, last)| (*first..=*last).contains(&group))
    }

    fn whole(&mut self, stamp: &Stamp) {
        self.known.push((stamp.first, stamp.last));
        self.top = self.top.max(stamp.last);
    }

    fn archived(&mut self, stamp: &Stamp) {
        self.whole(stamp);
        if stamp.last >= self.archived {
            self.archived = stamp.last;
            self.expected = stamp.counts;
        }
    }

    fn trace(&mut self, stamp: &Stamp) {
        self.top = self.top.max(stamp.last);
    }

    /// How many groups behind `from` left nothing but a trace, or a gap.
    fn missing(mut self, from: u64) -> u64 {
        self.known.sort_unstable();
        let (mut missing, mut met) = (0, from);
        for (first, last) in self.known {
            missing += first.saturating_sub(met + 1);
            met = met.max(last);
        }
        missing + self.top.saturating_sub(met)
    }
}

impl Committer {
    /// Applies what the engine lacks, of a store whose last stop was clean or not. What the
    /// archive lacks waits to be written there; the journal keeps it until then.
    pub(super) fn recover(&mut self, trees: &Trees, clean: bool) -> Result<Loss, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.pending = Batch::default();
        let position = trees.position(shared.place.engine())?;
        self.group = position.group;
        let archive = self.archive.take();
        let archive = archive.filter(|archive| archive.end() >= position.archived);
        if let Some(mut archive) = archive {
            archive.last = position.group;
            if clean && archive.end() == position.archived {
                self.archive = Some(archive);
                self.journal.rewind();
                return Ok(Loss::default());
            }
            let mut tale = Tale::new(position.group);
            let replayed = self.replay_archive(trees, &archive, position.archived, &mut tale);
            archive.last = tale.archived;
            self.archive = Some(archive);
            replayed?;
            let lacking = self.lacking(&tale);
            self.replay_journal(trees, &mut tale)?;
            self.group = tale.top;
            self.behind = true;
            return Ok(told(tale, lacking));
        }
        let mut tale = Tale::new(position.group);
        self.replay_old(trees)?;
        self.replay_journal(trees, &mut tale)?;
        self.group = tale.top;
        self.behind = true;
        Ok(told(tale, Counts::default()))
    }

    /// What the archive and the journal hold and an engine may lack, with its blobs as they are
    /// read. It writes nothing.
    pub(super) fn unapplied(&self, trees: &Trees) -> Result<Vec<Batch>, StoreError> {
        let place = &self.shared.place;
        let failed = |error| StoreError::io("reading the journal in", place.dir(), &error);
        let position = trees.position(place.engine())?;
        let mut held = Vec::new();
        if let Some(archive) = &self.archive {
            let mut entries = archive.entries(position.archived).map_err(failed)?;
            while let Some(found) = entries.next().map_err(failed)? {
                let Found::Whole(_, batches) = found else {
                    continue;
                };
                for mut batch in batches {
                    for (_, bytes) in &mut batch.blobs {
                        *bytes = codec::decode(bytes)?;
                    }
                    held.push(batch);
                }
            }
        }
        let mut entries = self.journal.entries().map_err(failed)?;
        while let Some(found) = entries.next().map_err(failed)? {
            if let Found::Whole(stamp, batches) = found
                && stamp.last > position.group
            {
                held.extend(batches);
            }
        }
        Ok(held)
    }

    fn replay_archive(
        &mut self,
        trees: &Trees,
        archive: &Archive,
        from: u64,
        tale: &mut Tale,
    ) -> Result<(), StoreError> {
        let dir = self.shared.place.dir().to_owned();
        let failed = |error| StoreError::io("reading the archive in", &dir, &error);
        let mut entries = archive.entries(from).map_err(failed)?;
        while let Some(found) = entries.next().map_err(failed)? {
            match found {
                Found::Whole(stamp, batches) => {
                    for batch in &batches {
                        self.put(trees, batch)?;
                    }
                    if !self.counted {
                        // The engine may have had some of it, which was not noted any more.
                        self.counts = stamp.counts;
                    }
                    tale.archived(&stamp);
                }
                Found::Trace(stamp) => tale.trace(&stamp),
            }
        }
        Ok(())
    }

    /// How much less the engine has than it had when the archive was last written.
    fn lacking(&self, tale: &Tale) -> Counts {
        if !self.counted {
            return Counts::default();
        }
        Counts {
            blobs: tale.expected.blobs.saturating_sub(self.counts.blobs),
            links: tale.expected.links.saturating_sub(self.counts.links),
        }
    }

    /// Applies the groups of the journal that nothing else has, in their order, and has them
    /// archived.
    fn replay_journal(&mut self, trees: &Trees, tale: &mut Tale) -> Result<(), StoreError> {
        let dir = self.shared.place.dir().to_owned();
        let failed = |error| StoreError::io("reading the journal in", &dir, &error);
        let mut groups = Vec::new();
        let mut entries = self.journal.entries().map_err(failed)?;
        while let Some(found) = entries.next().map_err(failed)? {
            match found {
                Found::Whole(stamp, batches) => groups.push((stamp, batches)),
                Found::Trace(stamp) => tale.trace(&stamp),
            }
        }
        groups.sort_by_key(|(stamp, _)| stamp.last);
        for (stamp, batches) in groups {
            if stamp.last <= tale.archived && tale.has(stamp.last) {
                continue;
            }
            if !self.counted {
                // As above; of the last group alone some may stay uncounted, which hides a little
                // from a later check and alarms nobody.
                let Counts { blobs, links } = stamp.counts;
                self.counts.blobs = self.counts.blobs.max(blobs);
                self.counts.links = self.counts.links.max(links);
            }
            for batch in &batches {
                match self.encode(batch) {
                    Ok(stored) => {
                        self.put(trees, &stored)?;
                        self.pending.blobs.extend(stored.blobs);
                        self.pending.links.extend(stored.links);
                    }
                    // It was refused when it was new, too.
                    Err(StoreError::Codec(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            tale.whole(&stamp);
        }
        Ok(())
    }

    /// Applies what a version without an archive left in its journal.
    fn replay_old(&mut self, trees: &Trees) -> Result<(), StoreError> {
        let dir = self.shared.place.dir().to_owned();
        let bytes = self.journal.bytes();
        let bytes =
            bytes.map_err(|error| StoreError::io("reading the journal in", &dir, &error))?;
        for batch in old::batches(&bytes) {
            match self.encode(&batch) {
                Ok(stored) => self.put(trees, &stored).map(drop)?,
                Err(StoreError::Codec(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes what was recovered durable, so that the journal is free for new groups.
    pub(super) fn settle_recovered(&mut self, trees: &Trees) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let (dir, engine) = (shared.place.dir(), shared.place.engine());
        if self.archive.is_none() {
            let archive = Archive::make(dir, engine, trees, self.position())?;
            self.archive = Some(archive);
            trees.put_position(engine, self.position())?;
            trees.sync(engine)?;
            self.journal.rewind();
        } else if self.behind {
            self.archive_pending(trees)?;
        }
        Ok(())
    }
}

/// What is lost: nothing of a group that is in the archive is, if the engine has as much as then.
fn told(tale: Tale, lacking: Counts) -> Loss {
    let Counts { blobs, links } = lacking;
    let from = if blobs + links > 0 { 0 } else { tale.archived };
    Loss {
        writes: tale.missing(from),
        blobs,
        links,
    }
}
