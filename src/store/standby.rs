//! Serves in place of a disk that refuses a store: from memory, with a new try from time to time.
//! When the disk works again, everything in memory is written there, and new batches go there.
//! Memory holds as much as may wait for a disk ([`StoreSettings::queue_bytes`]); after that the
//! oldest is dropped. Owns the switch from memory to disk. Never gives up, and never hides what is
//! lost or what a restart would lose.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::model::Digest;

use super::batch::{Batch, Listed};
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
}

enum Disk {
    Refuses(StoreError),
    Open(SledStore),
    Closed,
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
        });
        let weak = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("standby".to_owned())
            .spawn(move || retry(&weak))
            .map_err(|error| StoreError::io("starting a thread for", &settings.path, &error))?;
        Ok(Self(inner))
    }

    pub(super) fn links(&self, keys: &[Digest]) -> Result<Vec<Vec<(u32, Digest)>>, StoreError> {
        let mut sets = self.0.memory.links(keys)?;
        if let Disk::Open(disk) = &*self.0.disk.read() {
            for (set, more) in sets.iter_mut().zip(disk.links(keys)?) {
                set.extend(more);
                set.sort_unstable();
                set.dedup();
            }
        }
        Ok(sets)
    }

    pub(super) fn linked(&self) -> Result<Vec<(u32, Digest)>, StoreError> {
        let mut set = self.0.memory.linked()?;
        if let Disk::Open(disk) = &*self.0.disk.read() {
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
        match &*self.0.disk.read() {
            Disk::Open(disk) => disk.each(each),
            Disk::Refuses(_) | Disk::Closed => Ok(()),
        }
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
        match &*self.0.disk.read() {
            Disk::Open(disk) => disk.sweep(erased),
            Disk::Refuses(error) => Err(error.clone()),
            Disk::Closed => Err(StoreError::Closed),
        }
    }

    pub(super) fn snapshot(&self, target: &Path) -> Result<Snapshot, StoreError> {
        match &*self.0.disk.read() {
            Disk::Open(disk) => disk.snapshot(target),
            Disk::Refuses(error) => Err(error.clone()),
            Disk::Closed => Err(StoreError::Closed),
        }
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        files::bytes(&self.0.settings.path)
    }

    pub(super) fn close(&self) -> Result<(), StoreError> {
        // What is being written to the disk gets there, unless the disk is too slow.
        let _moved = self.0.moving.try_lock_for(self.0.settings.close_wait);
        self.0.memory.close();
        match std::mem::replace(&mut *self.0.disk.write(), Disk::Closed) {
            Disk::Open(disk) => disk.close(),
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
        let lost = self.0.memory.health().lost;
        if lost > 0 {
            notes.push(format!(
                "{lost} records are lost: the disk refused for longer than memory could keep them"
            ));
        }
        notes
    }
}

/// Tries the disk until it works, or until nobody uses the store any more.
fn retry(inner: &Weak<Inner>) {
    loop {
        let Some(pause) = inner.upgrade().map(|inner| inner.settings.stand_by) else {
            return;
        };
        std::thread::sleep(pause);
        let Some(inner) = inner.upgrade() else { return };
        // The store was closed meanwhile.
        if !matches!(*inner.disk.read(), Disk::Refuses(_)) {
            return;
        }
        match SledStore::open(&inner.settings) {
            Ok((store, report)) => {
                for note in report.notes() {
                    tracing::warn!("{note}");
                }
                return inner.take(store);
            }
            Err(error) => inner.refused(error),
        }
    }
}

impl Inner {
    fn refused(&self, error: StoreError) {
        if let Disk::Refuses(last) = &mut *self.disk.write() {
            *last = error;
        }
    }

    /// Switches to the disk. New batches go there at once, and what is in memory follows.
    fn take(&self, store: SledStore) {
        let _moving = self.moving.lock();
        let mut disk = self.disk.write();
        // The store was closed while the disk was being opened.
        if !matches!(*disk, Disk::Refuses(_)) {
            let _ = store.close();
            return;
        }
        *disk = Disk::Open(store);
        drop(disk);
        let (mut kept, mut left) = (0u64, 0u64);
        for batch in self.memory.batches() {
            let ticket = match &*self.disk.read() {
                Disk::Open(disk) => disk.commit(batch),
                Disk::Refuses(_) | Disk::Closed => return,
            };
            match ticket.wait() {
                Ok(()) => kept += 1,
                Err(_) => left += 1,
            }
        }
        if left == 0 {
            self.memory.release();
        }
        tracing::warn!(
            kept,
            left,
            "the disk takes the store again and has everything that was in memory"
        );
    }
}
