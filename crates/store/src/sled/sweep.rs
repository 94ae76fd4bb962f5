//! Copies what is young enough into a fresh store, beside the one that serves. Owns the thread that
//! does so, and what a copy has to have before it can take the other's place. Never touches the
//! store that serves, and never removes anything from it.
//!
//! The engine can't give room back, so what is too old is left out of a copy. First everything is
//! read and put into the copy, and then, from the archive, what was written meanwhile. The
//! committer takes over with the little that is left (see [`super::replace`]).

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_model::Digest;

use super::super::error::StoreError;
use super::super::files;
use super::super::sealing::Seals;
use super::super::settings::StoreSettings;
use super::age::Age;
use super::apply::Looked;
use super::archive::Archive;
use super::entry::{EntryReader, Scanned, Stamp};
use super::kept::{Census, Limits};
use super::open::DataDirectory;
use super::scan::Cursor;
use super::shared::Shared;
use super::trees::{Counts, Position, Trees};
use super::writes::Writes;

/// How many bytes are read at a time.
const PART_BYTES: usize = 256 << 10;
/// The thread goes on until no more than this was written since its last look at the archive.
const LEFT_BYTES: u64 = 256 << 10;
/// How many bytes a copy's engine takes between two flushes.
const FLUSH_BYTES: usize = 2 << 20;
/// The cache of a copy's engine, in MiB.
const CACHE_MB: u32 = 16;
/// How often it looks at most. A store that is written faster than it is copied is left to the
/// committer, which then writes nothing else for a moment.
const LOOKS: u32 = 20;

/// What a sweep is to do.
pub(super) struct Sweep {
    pub(super) shared: Arc<Shared>,
    pub(super) limits: Limits,
    /// The files have to fit into so many bytes, which they don't now.
    pub(super) fit: Option<u64>,
    /// A copy is made even if everything stays.
    pub(super) always: bool,
    /// What goes whatever its age.
    pub(super) erased: HashSet<Digest>,
    /// The archive of the store that serves, and the place up to which its engine has everything.
    pub(super) archive: File,
    pub(super) from: u64,
    /// Whether it has to stop.
    pub(super) stop: Arc<AtomicBool>,
}

/// What a sweep came to.
pub(super) enum Swept {
    /// There is nothing to remove.
    Nothing,
    /// A copy was made, which has everything in the archive up to a place.
    Copied {
        fresh: Box<Fresh>,
        until: u64,
        removed: Removed,
    },
}

/// What a copy lacks of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Removed {
    pub(super) blobs: u64,
    /// Although the files had to fit into less, nothing more may go.
    pub(super) exhausted: bool,
}

impl Sweep {
    /// Makes a copy, if anything is too old.
    pub(super) fn run(mut self) -> Result<Swept, StoreError> {
        let census = self.census()?;
        let mut exhausted = false;
        if let Some(most) = self.fit {
            exhausted = census.fit(&mut self.limits, most);
        } else if census.old == 0 && !self.always {
            return Ok(Swept::Nothing);
        }
        let place = DataDirectory::new(&self.shared.place.draft());
        let mut fresh = Fresh::make(place, &self.shared.settings)?;
        fresh.erased = std::mem::take(&mut self.erased);
        let blobs = self.copy(&mut fresh)?;
        let mut until = self.from;
        for _ in 0..LOOKS {
            let before = until;
            until = self.catch_up(&mut fresh, before)?;
            if until - before < LEFT_BYTES {
                break;
            }
        }
        Ok(Swept::Copied {
            fresh: Box::new(fresh.rest(&self.shared.settings)?),
            until,
            removed: Removed { blobs, exhausted },
        })
    }

    fn census(&self) -> Result<Census, StoreError> {
        let mut census = Census::default();
        self.each(|part| {
            census.count(&part, &self.limits);
            Ok(())
        })?;
        Ok(census)
    }

    /// Reads the engine that serves, part by part.
    fn each(
        &self,
        mut each: impl FnMut(Writes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut cursor = Cursor::default();
        while let Some(part) = {
            self.go_on()?;
            let read = |trees: &Trees, path: &Path| trees.part(path, &mut cursor, PART_BYTES);
            self.shared.read(read)?
        } {
            each(part)?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), StoreError> {
        if self.stop.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        Ok(())
    }

    /// Copies what stays. Returns how many blobs do not.
    fn copy(&self, fresh: &mut Fresh) -> Result<u64, StoreError> {
        let mut removed = 0;
        self.each(|mut part| {
            let all = part.blobs.len();
            part.blobs
                .retain(|(id, age, _)| self.limits.keeps(*age) && !fresh.erased.contains(id));
            removed += (all - part.blobs.len()) as u64;
            fresh.put_young(part, &self.limits)
        })?;
        Ok(removed)
    }

    /// Adds what the archive has from a place on. Returns up to where.
    fn catch_up(&self, fresh: &mut Fresh, from: u64) -> Result<u64, StoreError> {
        // Only what is durable is read: the committer may be about to write more.
        let until = self.shared.archived.load(Ordering::Acquire);
        fresh.follow(&self.shared, &self.archive, (from, until), &|| self.go_on())?;
        Ok(until)
    }
}

/// A copy that is being made.
pub(super) struct Fresh {
    place: DataDirectory,
    trees: Trees,
    archive: Archive,
    counts: Counts,
    /// About how many bytes its engine was handed since it was flushed.
    unflushed: usize,
    seals: Seals,
    /// Whether something is still sealed under another key, or not at all, because it is damaged.
    stale: bool,
    /// What goes whatever its age, even if it is named again meanwhile.
    erased: HashSet<Digest>,
}

impl Fresh {
    /// Begins an empty one.
    fn make(place: DataDirectory, settings: &StoreSettings) -> Result<Self, StoreError> {
        match fs::remove_dir_all(place.dir()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(place.error("clearing")(error));
            }
            _ => {}
        }
        place.prepare().map_err(place.error("creating"))?;
        let archive = Archive::begin(place.dir()).map_err(place.error("writing"))?;
        Self::with(place, archive, settings, Counts::default())
    }

    /// Whether all that it holds is sealed under the key of now, or open if there is none.
    pub(super) fn is_sealed_anew(&self) -> bool {
        !self.stale
    }

    fn with(
        place: DataDirectory,
        archive: Archive,
        settings: &StoreSettings,
        counts: Counts,
    ) -> Result<Self, StoreError> {
        // The store that serves needs its memory meanwhile.
        let settings = StoreSettings {
            cache_mb: settings.cache_mb.min(CACHE_MB),
            ..settings.clone()
        };
        let trees = Trees::open(place.engine(), &settings)?;
        Ok(Self {
            place,
            trees,
            archive,
            counts,
            unflushed: 0,
            seals: settings.seals,
            stale: false,
            erased: HashSet::new(),
        })
    }

    /// Puts a part of the store that serves, whose blobs all stay, without the links and rows that
    /// do not.
    fn put_young(&mut self, mut part: Writes, limits: &Limits) -> Result<(), StoreError> {
        let mut links = Vec::with_capacity(part.links.len());
        for (link, day) in std::mem::take(&mut part.links) {
            let blob = self.trees.age(self.place.engine(), &link.id)?;
            if blob.is_some_and(|blob| limits.keeps_link(day, blob)) {
                links.push((link, day));
            }
        }
        let mut rows = Vec::with_capacity(part.rows.len());
        for row in std::mem::take(&mut part.rows) {
            if !self.erased.contains(&row.session)
                && self.trees.has_blob(self.place.engine(), &row.id)?
            {
                rows.push(row);
            }
        }
        self.put(Writes {
            links,
            rows,
            ..part
        })
    }

    fn put(&mut self, mut writes: Writes) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        for (id, _, stored) in &mut writes.blobs {
            match self.seals.renew(id, stored) {
                Ok(Some(renewed)) => *stored = renewed.into(),
                Ok(None) => {}
                // It is copied as it is. Readers tell that it is damaged.
                Err(_) => self.stale = true,
            }
        }
        let engine = self.place.engine();
        let looked = &mut Looked::default();
        let new = self
            .trees
            .put(engine, &writes, (&mut self.counts, looked))?;
        self.trees.tidy(engine, new.entries(), self.archive.end())?;
        // The engine uses the room of what it replaced again only after a flush.
        self.unflushed += writes.size();
        if self.unflushed >= FLUSH_BYTES {
            self.trees.sync(engine)?;
            self.unflushed = 0;
        }
        let written = self.archive.write(&Stamp::default(), &writes);
        written.map_err(self.place.error("writing the archive in"))
    }

    /// Adds what an archive has between two places.
    pub(super) fn follow(
        &mut self,
        shared: &Shared,
        archive: &File,
        (from, until): (u64, u64),
        go_on: &dyn Fn() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |error| shared.place.error("reading the archive in")(error);
        let mut entries = EntryReader::between(archive, from, until);
        let mut lacking = HashSet::new();
        while let Some(found) = entries.next().map_err(failed)? {
            go_on()?;
            let Scanned::Whole(_, group, _) = found else {
                // What is damaged here is still whole in the engine that serves.
                return Err(StoreError::Corrupt {
                    detail: "the archive is damaged".to_owned(),
                });
            };
            for mut writes in group {
                // Whoever names it again goes without it.
                writes.named.retain(|(id, _)| !self.erased.contains(id));
                writes
                    .links
                    .retain(|(link, _)| !self.erased.contains(&link.id));
                // A row may have waited in a queue. That of a later turn leads to another record.
                writes.rows.retain(|row| !self.erased.contains(&row.id));
                for (id, age) in &writes.named {
                    if self.rescue(shared, id, *age)? {
                        lacking.insert(*id);
                    }
                }
                self.put(writes)?;
            }
        }
        if lacking.is_empty() {
            return Ok(());
        }
        self.rescue_links(shared, &lacking)
    }

    /// Copies a blob after all, because it was named again since it was left out.
    fn rescue(&mut self, shared: &Shared, id: &Digest, age: Age) -> Result<bool, StoreError> {
        if self.trees.has_blob(self.place.engine(), id)? {
            return Ok(false);
        }
        let Some((stored, behind)) = shared.read(|trees, path| trees.stored(path, id))? else {
            return Ok(false);
        };
        self.put(Writes {
            blobs: vec![(*id, behind.with(age), stored)],
            ..Writes::default()
        })?;
        Ok(true)
    }

    /// Copies the links and rows of blobs that were left out at first.
    fn rescue_links(
        &mut self,
        shared: &Shared,
        lacking: &HashSet<Digest>,
    ) -> Result<(), StoreError> {
        let mut cursor = Cursor::links();
        while let Some(mut part) =
            shared.read(|trees, path| trees.part(path, &mut cursor, PART_BYTES))?
        {
            part.links.retain(|(link, _)| lacking.contains(&link.id));
            part.rows.retain(|row| lacking.contains(&row.id));
            self.put(part)?;
        }
        Ok(())
    }

    /// Puts everything on the disk, and opens it again: the engine writes its page table only when it
    /// opens, and without one the committer would have to wait until the whole log was read.
    fn rest(self, settings: &StoreSettings) -> Result<Self, StoreError> {
        let engine = self.place.engine().to_owned();
        self.trees.sync(&engine)?;
        self.archive.sync().map_err(self.place.error("syncing"))?;
        self.trees.shut(&engine)?;
        let (stale, erased) = (self.stale, self.erased);
        let fresh = Self::with(self.place, self.archive, settings, self.counts)?;
        Ok(Self {
            stale,
            erased,
            ..fresh
        })
    }

    /// Closes it with everything on the disk, up to a group. It can then take its place.
    pub(super) fn finish(mut self, group: u64, today: u16) -> Result<Counts, StoreError> {
        let engine = self.place.engine().to_owned();
        let stamp = Stamp {
            first: 0,
            last: group,
            counts: self.counts,
        };
        let written = self.archive.write(&stamp, &Writes::default());
        written
            .and_then(|()| self.archive.sync())
            .map_err(self.place.error("syncing"))?;
        let position = Position {
            counts: self.counts,
            group,
            archived: self.archive.end(),
            log: 0,
        };
        self.trees.put_swept(&engine, today)?;
        self.trees.put_position(&engine, position)?;
        self.trees.sync(&engine)?;
        self.trees.shut(&engine)?;
        self.place.close_engine();
        files::sync_dir(&engine)
            .and_then(|()| files::sync_dir(self.place.dir()))
            .map_err(self.place.error("syncing"))?;
        Ok(self.counts)
    }
}
