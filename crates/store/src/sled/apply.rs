//! Brings what the committer was handed into the engine, and tells what of it was new, which is what
//! the archive gets. Owns the order of writes: blobs, what is named again, links, and rows last, which
//! may wait (see [`super::rows`]). Acknowledges a group that goes to the archive first, and never
//! before the archive is on disk.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use plimsoll_model::Digest;

use super::super::error::StoreError;
use super::age::Age;
use super::archive::Archive;
use super::committer::{Committer, Tickets};
use super::entry::Form;
use super::packs::Places;
use super::trees::{Counts, Trees};
use super::writes::Writes;

/// What a look at a group found, so that putting it needs no second look.
#[derive(Default)]
pub(super) struct Looked {
    /// The blobs of which the engine has no first chunk.
    lacking: HashSet<Digest>,
    places: Places,
}

/// What a batch came to.
pub(super) type Outcome = Result<(), StoreError>;

/// One outcome for each batch of a group. An error of the disk concerns the whole group.
type Outcomes = Result<Vec<Outcome>, StoreError>;

impl Committer {
    /// Applies a group that the journal holds. What is new in it is archived later.
    pub(super) fn apply(&mut self, group: Vec<Writes>, form: Form) -> Outcomes {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        self.behind = true;
        let (mut group, outcomes) = self.all_stored(group, form)?;
        for writes in &mut group {
            let rows = std::mem::take(&mut writes.rows);
            let new = self.put(trees, writes)?;
            self.pending.extend(new);
            // An older row does no harm in the archive.
            self.pending.rows.extend_from_slice(&rows);
            self.let_wait(rows);
        }
        Ok(outcomes)
    }

    /// Archives a group that does not fit into the journal, together with everything in the
    /// journal, and applies it. A mistake in a piece fails its batch alone, a failure of the disk
    /// fails the group. The tickets are resolved as soon as the group is on disk: nobody has to wait
    /// for the engine.
    pub(super) fn write_through(
        &mut self,
        (group, form): (Vec<Writes>, Form),
        tickets: &mut Tickets<'_>,
    ) -> Outcomes {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.read();
        let trees = engine.trees()?;
        self.behind = true;
        let (mut group, outcomes) = self.all_stored(group, form)?;
        // The archive is written first and counts what is new. `put` counts the same again when it
        // applies the group.
        let before = self.counts;
        let mut looked = self.add_new(trees, &group)?;
        self.group += 1;
        self.append_pending()?;
        tickets.send(&outcomes);
        self.counts = before;
        let rows = group.iter_mut().flat_map(|writes| writes.rows.drain(..));
        self.let_wait(rows);
        for writes in &group {
            self.put_looked(trees, writes, (&mut looked, self.archive_length()))?;
        }
        self.complete_if_far_behind(trees)?;
        Ok(outcomes)
    }

    /// A group in its stored form, without the batches that can't be encoded, and the outcome of each
    /// batch. Only what can't be encoded fails alone. Any other error stops the whole group.
    fn all_stored(
        &mut self,
        group: Vec<Writes>,
        form: Form,
    ) -> Result<(Vec<Writes>, Vec<Outcome>), StoreError> {
        let mut outcomes = Vec::with_capacity(group.len());
        let mut all = Vec::with_capacity(group.len());
        for writes in group {
            outcomes.push(match self.stored(writes, form) {
                Ok(stored) => {
                    all.push(stored);
                    Ok(())
                }
                Err(error @ StoreError::Codec(_)) => Err(error),
                Err(error) => return Err(error),
            });
        }
        Ok((all, outcomes))
    }

    /// Adds what the engine lacks of a group to what waits for the archive, and counts it.
    fn add_new(&mut self, trees: &Trees, group: &[Writes]) -> Result<Looked, StoreError> {
        let path = self.shared.place.engine().to_owned();
        let most = group.iter().map(|writes| writes.links.len()).sum();
        let (mut looked, mut links) = (Looked::default(), HashSet::with_capacity(most));
        for writes in group {
            for (id, age, stored) in &writes.blobs {
                // Two batches of a group may hold the same blob, which must be counted and written
                // once.
                if looked.lacking.contains(id) || trees.has_blob(&path, id)? {
                    self.add_name(trees, id, *age)?;
                } else {
                    looked.lacking.insert(*id);
                    self.counts.blobs += 1;
                    self.pending.blobs.push((*id, *age, stored.clone()));
                }
            }
            for (id, age) in &writes.named {
                self.add_name(trees, id, *age)?;
            }
            for (link, day) in &writes.links {
                if !links.insert(*link) {
                    continue;
                }
                let known = trees.link_day(&path, link, &mut looked.places)?;
                if known.is_none_or(|known| known < *day) {
                    self.counts.links += u64::from(known.is_none());
                    self.pending.links.push((*link, *day));
                }
            }
            // Rows are counted when they are put.
            self.pending.rows.extend_from_slice(&writes.rows);
        }
        Ok(looked)
    }

    /// Adds to what waits for the archive that a blob is named again, unless the engine has noted
    /// that already.
    fn add_name(&mut self, trees: &Trees, id: &Digest, age: Age) -> Result<(), StoreError> {
        let known = trees.age_apart(self.shared.place.engine(), id)?;
        if known.with(age) != known {
            self.pending.named.push((*id, age));
        }
        Ok(())
    }

    /// These writes with their blobs in their stored form.
    pub(super) fn stored(&mut self, writes: Writes, form: Form) -> Result<Writes, StoreError> {
        match form {
            Form::Usual => self.encode(writes),
            Form::Stored => Ok(writes),
        }
    }

    fn encode(&mut self, mut writes: Writes) -> Result<Writes, StoreError> {
        for (id, _, value) in &mut writes.blobs {
            *value = self.encoder.encode(id, value)?.into();
        }
        Ok(writes)
    }

    /// A group as it goes to the journal, which must not hold what is to be sealed as it came. An error
    /// has the group as it was: some of it can't be encoded, so each batch has to be tried alone.
    pub(super) fn journaled(
        &mut self,
        group: Vec<Writes>,
    ) -> Result<(Vec<Writes>, Form), Vec<Writes>> {
        if self.shared.settings.seals.current().is_none() {
            return Ok((group, Form::Usual));
        }
        let stored = group.iter().map(|writes| self.encode(writes.clone()));
        let stored: Result<_, StoreError> = stored.collect();
        stored
            .map(|stored| (stored, Form::Stored))
            .map_err(|_| group)
    }

    /// Writes to the engine. Returns what was new.
    pub(super) fn put(&mut self, trees: &Trees, stored: &Writes) -> Result<Writes, StoreError> {
        let archive = self.archive_length();
        self.put_looked(trees, stored, (&mut Looked::default(), archive))
    }

    fn archive_length(&self) -> u64 {
        self.archive.as_ref().map_or(0, Archive::end)
    }

    /// Writes to the engine after a look at what is written, beside an archive of this length.
    pub(super) fn put_looked(
        &mut self,
        trees: &Trees,
        stored: &Writes,
        (looked, archive): (&mut Looked, u64),
    ) -> Result<Writes, StoreError> {
        let path = self.shared.place.engine();
        let new = trees.put(path, stored, (&mut self.counts, looked))?;
        trees.tidy(path, new.entries(), archive)?;
        Ok(new)
    }
}

impl Trees {
    /// Writes blobs before links, so that a crash in between leaves only blobs that nothing leads
    /// to. Returns what was new, and counts it.
    pub(super) fn put(
        &self,
        path: &Path,
        stored: &Writes,
        (counts, looked): (&mut Counts, &mut Looked),
    ) -> Result<Writes, StoreError> {
        let mut new = Writes::default();
        for (id, age, bytes) in &stored.blobs {
            let lacking = looked.lacking.remove(id);
            let put = self.put_blob(path, id, (*age, bytes), lacking)?;
            counts.blobs += u64::from(put.new);
            // A blob that was damaged is written again without being new, so the archive gets it
            // too.
            if put.wrote {
                new.blobs.push((*id, *age, bytes.clone()));
            } else if put.named {
                new.named.push((*id, *age));
            }
        }
        for (id, age) in &stored.named {
            if self.name_blob(path, id, *age)? {
                new.named.push((*id, *age));
            }
        }
        for (link, day) in &stored.links {
            let put = self.put_link(path, (link, *day), &mut looked.places)?;
            counts.links += u64::from(put.new);
            if put.wrote {
                new.links.push((*link, *day));
            }
        }
        for listed in &stored.rows {
            let put = self.put_row(path, listed)?;
            counts.rows += u64::from(put.new);
            if put.wrote {
                new.rows.push(listed.clone());
            }
        }
        Ok(new)
    }
}
