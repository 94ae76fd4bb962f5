//! Serves in place of a disk that refuses a store: from memory, with a new try from time to time.
//! When the disk works again, everything in memory is written there, and new batches go there. What
//! the disk then does not take stays in memory and is tried again.
//! Memory holds as much as may wait for a disk ([`StoreSettings::queue_bytes`]); after that the
//! oldest is dropped. Owns the switch from memory to disk. Never gives up, never hides what is
//! lost or what a restart would lose, and never has anybody wait for whoever reads or sweeps the disk.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use plimsoll_model::Digest;

use super::batch::{Batch, Listed, Member, Take};
use super::error::StoreError;
use super::files;
use super::memory::Memory;
use super::report::Health;
use super::settings::StoreSettings;
use super::sled::SledStore;
use super::snapshot::Snapshot;
use super::ticket::Ticket;

/// Memory in place of a disk that refuses.
pub struct Standby(Arc<Inner>);

struct Inner {
    settings: StoreSettings,
    memory: Memory,
    disk: RwLock<Disk>,
    /// Held while what is in memory is written to the disk.
    moving: Mutex<()>,
    left: Mutex<Left>,
}

enum Disk {
    Refuses(StoreError),
    Open(Arc<SledStore>),
    Closed,
}

/// What a disk that works again has not taken yet of what is in memory.
#[derive(Default)]
struct Left {
    batches: usize,
    /// Why it did not take the last one that it refused.
    why: Option<StoreError>,
}

impl Standby {
    /// Serves from memory, because the disk refused with `error`.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the system has no thread for the next tries.
    pub(super) fn new(settings: &StoreSettings, error: StoreError) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner {
            settings: settings.clone(),
            memory: Memory::bounded(settings.queue_bytes),
            disk: RwLock::new(Disk::Refuses(error)),
            moving: Mutex::default(),
            left: Mutex::default(),
        });
        let weak = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("standby".to_owned())
            .spawn(move || retry(&weak))
            .map_err(|error| StoreError::io("starting a thread for", &settings.path, &error))?;
        Ok(Self(inner))
    }

    pub(super) fn links(
        &self,
        keys: &[Digest],
        take: Take,
    ) -> Result<Vec<Vec<Member>>, StoreError> {
        let mut sets = self.0.memory.links(keys, take)?;
        if let Disk::Open(disk) = &*self.0.disk.read() {
            for (set, more) in sets.iter_mut().zip(disk.links(keys, take)?) {
                take.join(set, more);
            }
        }
        Ok(sets)
    }

    pub(super) fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        let mut set = self.0.memory.linked()?;
        if let Some(disk) = self.0.open() {
            set.extend(disk.linked()?);
            set.sort_unstable();
            set.dedup();
        }
        Ok(set)
    }

    pub(super) fn blobs(&self, ids: &[Digest]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut blobs = self.0.memory.blobs(ids)?;
        if let Disk::Open(disk) = &*self.0.disk.read() {
            for (blob, more) in blobs.iter_mut().zip(disk.blobs(ids)?) {
                *blob = blob.take().or(more);
            }
        }
        Ok(blobs)
    }

    pub(super) fn sessions(
        &self,
        before: Option<(u64, Digest)>,
        most: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let Disk::Open(disk) = &*self.0.disk.read() else {
            return self.0.memory.sessions(before, most);
        };
        // A row in memory may be older than that of the same session on the disk, and both may be
        // on the page or one of them.
        let held = self.0.memory.sessions(None, usize::MAX)?;
        let newer = disk.newer(&held)?;
        let mut rows = disk.sessions(before, most.saturating_add(held.len()))?;
        rows.retain(|row| !newer.iter().any(|held| held.session == row.session));
        rows.extend(
            newer
                .into_iter()
                .filter(|row| before.is_none_or(|before| row.place() < before)),
        );
        rows.sort_by_key(|row| std::cmp::Reverse(row.place()));
        rows.truncate(most);
        Ok(rows)
    }

    pub(super) fn each(
        &self,
        each: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.0.memory.each(each)?;
        self.0.open().map_or(Ok(()), |disk| disk.each(each))
    }

    pub(super) fn commit(&self, batch: Batch) -> Ticket {
        match &*self.0.disk.read() {
            Disk::Open(disk) => disk.commit(batch),
            Disk::Refuses(_) | Disk::Closed => self.0.memory.commit(batch),
        }
    }

    pub(super) fn commit_spare(&self, batch: Batch) -> Ticket {
        match &*self.0.disk.read() {
            Disk::Open(disk) => disk.commit_spare(batch),
            Disk::Refuses(_) | Disk::Closed => self.0.memory.commit(batch),
        }
    }

    pub(super) fn sweep(&self, erased: HashSet<Digest>) -> Result<u64, StoreError> {
        let (disk, removed) = {
            // What is on its way to the disk would get there behind the sweep.
            let _still = self.0.moving.lock();
            (self.0.disk(), self.0.memory.erase(&erased))
        };
        // A disk that refuses may have more of it, so whoever asked is told to ask again.
        Ok(disk?.sweep(erased)?.saturating_add(removed))
    }

    pub(super) fn snapshot(&self, target: &Path) -> Result<Snapshot, StoreError> {
        let (disk, left) = {
            let _still = self.0.moving.lock();
            (self.0.disk(), self.0.left.lock().batches)
        };
        let disk = disk?;
        if left > 0 {
            let detail = "the disk has not taken all that is in memory yet: try again later";
            return Err(StoreError::snapshot(target, detail));
        }
        disk.snapshot(target)
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        files::bytes(&self.0.settings.path)
    }

    pub(super) fn disk_free(&self) -> u64 {
        files::free(&self.0.settings.path)
    }

    pub(super) fn close(&self) -> Result<(), StoreError> {
        // What is being written to the disk gets there, unless the disk is too slow.
        let _moved = self.0.moving.try_lock_for(self.0.settings.close_wait);
        self.0.memory.close();
        let disk = std::mem::replace(&mut *self.0.disk.write(), Disk::Closed);
        match disk {
            Disk::Open(disk) => {
                let closed = disk.close();
                let lost = self.0.left.lock().why.take();
                closed.and(lost.map_or(Ok(()), Err))
            }
            Disk::Refuses(error) => Err(error),
            Disk::Closed => Err(StoreError::Closed),
        }
    }

    pub(super) fn health(&self) -> Health {
        let memory = self.0.memory.health();
        match &*self.0.disk.read() {
            Disk::Open(disk) => {
                let health = disk.health();
                Health {
                    lost: health.lost + memory.lost,
                    waiting: health.waiting + self.0.left.lock().batches,
                    ..health
                }
            }
            Disk::Refuses(_) | Disk::Closed => Health {
                memory_only: true,
                ..memory
            },
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = match &*self.0.disk.read() {
            Disk::Open(disk) => disk.notes(),
            Disk::Refuses(error) => vec![format!(
                "turns are kept in memory only, and a restart loses them: {error}; the disk is tried again every {} s",
                self.0.settings.stand_by.as_secs()
            )],
            Disk::Closed => Vec::new(),
        };
        let Left { batches, why } = &*self.0.left.lock();
        if *batches > 0 {
            let why = why.as_ref().map(|why| format!(": {why}"));
            notes.push(format!(
                "the disk works again, but {batches} batches of records are still in memory only, and a restart loses them; they are tried again every {} s{}",
                self.0.settings.stand_by.as_secs(),
                why.unwrap_or_default()
            ));
        }
        let lost = self.0.memory.health().lost;
        if lost > 0 {
            notes.push(format!(
                "{lost} records are lost: the disk refused for longer than memory could keep them"
            ));
        }
        notes
    }
}

/// Tries the disk until it has everything, or until nobody uses the store any more.
fn retry(inner: &Weak<Inner>) {
    loop {
        let Some(pause) = inner.upgrade().map(|inner| inner.settings.stand_by) else {
            return;
        };
        std::thread::sleep(pause);
        let Some(inner) = inner.upgrade() else { return };
        if inner.try_again() {
            return;
        }
    }
}

impl Inner {
    /// The disk, if it works. Whoever works with it for long holds nothing that closing, or the
    /// next commit, would wait for.
    fn open(&self) -> Option<Arc<SledStore>> {
        self.disk().ok()
    }

    /// The disk, or why there is none.
    fn disk(&self) -> Result<Arc<SledStore>, StoreError> {
        match &*self.disk.read() {
            Disk::Open(disk) => Ok(Arc::clone(disk)),
            Disk::Refuses(error) => Err(error.clone()),
            Disk::Closed => Err(StoreError::Closed),
        }
    }

    /// Tries to open the disk, and to write there what is in memory. Whether there is nothing more
    /// to try.
    fn try_again(&self) -> bool {
        let refuses = match &*self.disk.read() {
            Disk::Refuses(_) => true,
            Disk::Open(_) => false,
            Disk::Closed => return true,
        };
        if !refuses {
            return self.take(None);
        }
        match SledStore::open(&self.settings) {
            Ok((store, report)) => {
                for note in report.notes() {
                    tracing::warn!("{note}");
                }
                self.take(Some(store))
            }
            Err(error) => {
                self.refused(error);
                false
            }
        }
    }

    fn refused(&self, error: StoreError) {
        if let Disk::Refuses(last) = &mut *self.disk.write() {
            *last = error;
        }
    }

    /// Switches to a disk that was opened, so that new batches go there at once, and has what is in
    /// memory follow. Whether nothing is left of that.
    fn take(&self, opened: Option<SledStore>) -> bool {
        let _moving = self.moving.lock();
        if let Some(store) = opened
            && let Err(unused) = self.switch(store)
        {
            let _ = unused.close();
            return true;
        }
        let batches = self.memory.batches();
        let (all, mut kept, mut why) = (batches.len(), 0, None);
        self.left.lock().batches = all;
        for batch in batches {
            // The store was closed meanwhile.
            let Some(disk) = self.open() else { return true };
            match disk.commit(batch).wait() {
                Ok(()) => kept += 1,
                Err(error) => why = Some(error),
            }
            self.left.lock().batches = all - kept;
        }
        let left = all - kept;
        if left == 0 {
            self.memory.release();
            tracing::warn!(
                kept,
                "the disk takes the store again and has everything that was in memory"
            );
        } else {
            // Links and the blobs that they lead to are only found together, so all of it stays.
            tracing::warn!(
                kept,
                left,
                error = why.as_ref().map(tracing::field::display),
                "the disk takes the store again, but not all that is in memory, which stays there and is tried again"
            );
        }
        self.left.lock().why = why;
        left == 0
    }

    /// Has new batches go to a disk that was opened, unless the store was closed meanwhile.
    fn switch(&self, store: SledStore) -> Result<(), SledStore> {
        let mut disk = self.disk.write();
        if !matches!(*disk, Disk::Refuses(_)) {
            return Err(store);
        }
        *disk = Disk::Open(Arc::new(store));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
