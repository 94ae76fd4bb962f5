//! Brings an engine up to what the archive and the journal hold, and finds out what none of the
//! three has. Owns the count of what is lost. Reads both files past damage, and never counts a write
//! as lost that one of them has. Where something may be lost and nothing tells what, it says one.

use std::sync::Arc;

use super::super::batch::Batch;
use super::super::codec;
use super::super::error::StoreError;
use super::super::report::Loss;
use super::apply::Looked;
use super::archive::Archive;
use super::committer::Committer;
use super::entry::{Form, Scanned, Stamp};
use super::trees::{Counts, Position, Trees};
use super::writes::Writes;

/// Which groups of writes were found, whole or only as a trace.
struct GroupsFound {
    /// The groups that were found, as ranges that include both ends.
    known: Vec<(u64, u64)>,
    /// The last group of which there is any sign.
    top: u64,
    /// The last group in the archive.
    archived: u64,
    /// What the store held when that group was written.
    expected: Counts,
}

impl GroupsFound {
    /// Starts with an engine that has all groups up to `group`.
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

    /// Takes the groups up to one as known, because counts tell what is missing of them.
    fn counted(&mut self, group: u64) {
        self.known.push((0, group));
    }

    fn trace(&mut self, stamp: &Stamp) {
        self.top = self.top.max(stamp.last);
    }

    /// How many groups after `from` are missing or left only a trace.
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
    /// Applies what the engine lacks. `clean` says how the store stopped last, and `before` what the
    /// engine held before it was damaged. What the archive lacks waits to be archived, and the
    /// journal holds it until then.
    pub(super) fn recover(
        &mut self,
        trees: &Trees,
        clean: bool,
        before: Option<Position>,
    ) -> Result<Loss, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.pending = Writes::default();
        let position = trees.position(shared.place.engine())?;
        self.group = position.group;
        let archive = self.archive.take();
        // An archive that is shorter than the engine knows it was cut off, and is made anew from
        // the engine.
        let archive = archive.filter(|archive| archive.end() >= position.archived);
        if let Some(mut archive) = archive {
            archive.last = position.group;
            // After a clean stop both are complete, so nothing has to be read.
            if clean && archive.end() == position.archived {
                self.archive = Some(archive);
                self.journal.rewind();
                return Ok(Loss::default());
            }
            let mut tale = GroupsFound::new(position.group);
            let from = position.archived;
            let replayed = self.replay_archive(trees, &mut archive, (from, clean), &mut tale);
            archive.last = tale.archived;
            let cut = before.is_some_and(|before| before.archived > archive.end());
            self.archive = Some(archive);
            let rest = replayed?;
            let lacking = self.lacking(tale.expected);
            self.replay_journal(trees, &mut tale)?;
            self.group = tale.top;
            self.behind = true;
            // Nobody knows how much stood where the archive ends too early.
            return Ok(told(tale, lacking, rest || cut));
        }
        let mut tale = GroupsFound::new(position.group);
        self.replay_journal(trees, &mut tale)?;
        // Without an archive nothing else tells what the damage took.
        let held = before.unwrap_or_default();
        let lacking = self.lacking(held.counts);
        tale.counted(held.group);
        self.group = tale.top.max(held.group);
        self.behind = true;
        // The damage may have brought back an older account.
        Ok(told(tale, lacking, before.is_some()))
    }

    /// What the archive and the journal hold and an engine may lack, with decoded blobs. Writes
    /// nothing.
    pub(super) fn unapplied(&self, trees: &Trees) -> Result<Vec<Batch>, StoreError> {
        let place = &self.shared.place;
        let failed = |error| StoreError::io("reading the journal in", place.dir(), &error);
        let position = trees.position(place.engine())?;
        // The archive comes before the journal: its groups are older.
        let mut held = Vec::new();
        if let Some(archive) = &self.archive {
            let mut entries = archive.entries(position.archived);
            while let Some(found) = entries.next().map_err(failed)? {
                let Scanned::Whole(_, group, _) = found else {
                    continue;
                };
                for writes in group {
                    held.extend(self.decoded(writes)?.batches());
                }
            }
        }
        let mut entries = self.journal.entries().map_err(failed)?;
        while let Some(found) = entries.next().map_err(failed)? {
            if let Scanned::Whole(stamp, group, form) = found
                && stamp.last > position.group
            {
                for writes in group {
                    let writes = match form {
                        Form::Usual => writes,
                        Form::Stored => self.decoded(writes)?,
                    };
                    held.extend(writes.batches());
                }
            }
        }
        Ok(held)
    }

    /// These writes with their blobs as they came.
    fn decoded(&self, mut writes: Writes) -> Result<Writes, StoreError> {
        for (id, _, bytes) in &mut writes.blobs {
            *bytes = codec::decode(&self.shared.settings.seals, id, bytes)?;
        }
        Ok(writes)
    }

    /// Returns whether the archive ends with something that no kill left there. `clean` says that the
    /// store did not stop by one: if it has nothing of the archive then, the archive was put there.
    fn replay_archive(
        &mut self,
        trees: &Trees,
        archive: &mut Archive,
        (from, clean): (u64, bool),
        tale: &mut GroupsFound,
    ) -> Result<bool, StoreError> {
        let dir = self.shared.place.dir().to_owned();
        let failed = |error| StoreError::io("reading the archive in", &dir, &error);
        let mut entries = archive.entries(from);
        while let Some(found) = entries.next().map_err(failed)? {
            match found {
                Scanned::Whole(stamp, group, _) => {
                    for writes in &group {
                        let looked = &mut Looked::default();
                        self.put_looked(trees, writes, (looked, archive.end()))?;
                    }
                    if !self.counted {
                        // The engine may have had some of it already without having noted it. A
                        // stamp does not count rows.
                        self.counts = Counts {
                            rows: self.counts.rows,
                            ..stamp.counts
                        };
                    }
                    tale.archived(&stamp);
                }
                Scanned::Trace(stamp) => tale.trace(&stamp),
                // If a kill cut the write short, nobody was told that it is durable.
                Scanned::CutOff(_) => {}
            }
        }
        let rest = entries.has_rest();
        if clean && from == 0 {
            return Ok(rest);
        }
        // A later entry behind the rest of one that was cut off would look like damage.
        let unfinished = entries.unfinished().map_err(failed)?;
        archive.cut(unfinished.unwrap_or(archive.end()));
        Ok(false)
    }

    /// How much less the engine has than was expected.
    fn lacking(&self, expected: Counts) -> Counts {
        if !self.counted {
            return Counts::default();
        }
        Counts {
            blobs: expected.blobs.saturating_sub(self.counts.blobs),
            links: expected.links.saturating_sub(self.counts.links),
            rows: 0,
        }
    }

    /// Applies the groups that only the journal has, in their order, and lets them wait for the
    /// archive.
    fn replay_journal(&mut self, trees: &Trees, tale: &mut GroupsFound) -> Result<(), StoreError> {
        let dir = self.shared.place.dir().to_owned();
        let failed = |error| StoreError::io("reading the journal in", &dir, &error);
        let mut groups = Vec::new();
        let mut entries = self.journal.entries().map_err(failed)?;
        while let Some(found) = entries.next().map_err(failed)? {
            match found {
                Scanned::Whole(stamp, group, form) => groups.push((stamp, group, form)),
                Scanned::Trace(stamp) | Scanned::CutOff(stamp) => tale.trace(&stamp),
            }
        }
        groups.sort_by_key(|(stamp, ..)| stamp.last);
        for (stamp, group, form) in groups {
            if stamp.last <= tale.archived && tale.has(stamp.last) {
                continue;
            }
            if !self.counted {
                // As above. Some entries of the last group may stay uncounted. That hides a little
                // from a later check, but raises no false alarm.
                let Counts { blobs, links, .. } = stamp.counts;
                self.counts.blobs = self.counts.blobs.max(blobs);
                self.counts.links = self.counts.links.max(links);
            }
            for writes in group {
                match self.stored(writes, form) {
                    Ok(stored) => {
                        self.put(trees, &stored)?;
                        self.pending.extend(stored);
                    }
                    // It was refused when it was new as well.
                    Err(StoreError::Codec(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            tale.whole(&stamp);
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
            self.complete(trees)?;
            self.journal.rewind();
        } else if self.behind {
            self.archive_pending(trees)?;
        }
        Ok(())
    }
}

/// What is lost. Groups in the archive are not lost if the engine has as much as it had then. Where
/// something is missing of which nothing tells how much it was, it is one write at least.
fn told(tale: GroupsFound, lacking: Counts, missing: bool) -> Loss {
    let Counts { blobs, links, .. } = lacking;
    let from = if blobs + links > 0 { 0 } else { tale.archived };
    let loss = Loss {
        writes: tale.missing(from),
        blobs,
        links,
    };
    if missing && loss.records() == 0 {
        return Loss { writes: 1, ..loss };
    }
    loss
}
