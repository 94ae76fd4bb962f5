//! Checks whether the open files are still those in the directory, and repairs the store if they
//! are not: somebody removed or moved them, and what goes on being written to them would be gone at
//! the next start. Owns that check. Never restores anything that was removed, except from a copy
//! that is still in place.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::error::StoreError;
use super::archive::{self, Archive};
use super::committer::Committer;
use super::journal::{self, Journal};
use super::open;
use super::shared::Engine;
use super::trees::Trees;

/// Whether a path leads to an open file. True if that can't be found out.
fn leads_to(path: &Path, file: &File) -> bool {
    let Ok(open) = file.metadata() else {
        return true;
    };
    match std::fs::metadata(path) {
        Ok(there) => (there.dev(), there.ino()) == (open.dev(), open.ino()),
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ),
    }
}

impl Committer {
    /// Checks from time to time whether all files are in place. Begins again if one is not.
    pub(super) fn look(&mut self) {
        let shared = Arc::clone(&self.shared);
        if self.looked.elapsed() < shared.settings.look
            || self.failed.is_some()
            || shared.is_degraded()
        {
            return;
        }
        self.looked = Instant::now();
        if let Some(gone) = self.gone() {
            let note = format!(
                "{} was removed or replaced while it was in use",
                shared.place.dir().join(gone).display()
            );
            shared.say(note);
            shared.wiped.fetch_add(1, Ordering::Relaxed);
            // The copies that are still in place get what was acknowledged last.
            let _ = self.flush();
            if let Err(error) = self.begin_anew() {
                self.give_up(error);
            }
        }
    }

    /// The first file that is not the one in the directory.
    fn gone(&self) -> Option<&'static str> {
        let place = &self.shared.place;
        let engine = self.shared.engine.read();
        let log = engine.trees().ok().map(Trees::log);
        let archive = self.archive.as_ref().map(Archive::file);
        let files = [
            (open::LOCK_FILE, Some(&self.lock)),
            (open::LOG_FILE, log),
            (archive::FILE_NAME, archive),
            (journal::FILE_NAME, Some(self.journal.file())),
        ];
        let mut gone = files.into_iter().filter(|(name, file)| {
            file.is_some_and(|file| !leads_to(&place.dir().join(name), file))
        });
        gone.next().map(|(name, _)| name)
    }

    /// Opens what is in the directory now, or a new store, in place of what was removed.
    pub(super) fn begin_anew(&mut self) -> Result<(), StoreError> {
        self.stop_sweep();
        let shared = Arc::clone(&self.shared);
        let place = &shared.place;
        let before = self.counts;
        let mut engine = shared.engine.write();
        if let Engine::Open(trees) = std::mem::replace(&mut *engine, Engine::Closed) {
            // If only its copies are gone, its file is opened again, and nothing else has these.
            let _ = self.put_rows(&trees);
            // The files are gone from the directory, so what it writes does not matter.
            let _ = trees.shut(place.engine());
        }
        // Another process could take a lock file that was made again.
        if !leads_to(&place.dir().join(open::LOCK_FILE), &self.lock) {
            self.lock = place.lock()?;
        }
        self.forget_rows();
        place.admit(&shared.settings.seals)?;
        let (trees, checked, report) = place.open(&shared.settings)?;
        (self.counts, self.counted) = (checked.counts, checked.counted);
        let failed =
            |error: io::Error| StoreError::io("opening the journal in", place.dir(), &error);
        self.journal = Journal::open(place.dir()).map_err(failed)?;
        self.archive = Archive::open(place.dir()).map_err(failed)?;
        let lost = self.recover(&trees, false, checked.before)?;
        self.settle_recovered(&trees)?;
        *engine = Engine::Open(trees);
        drop(engine);
        self.failed = None;
        self.anew = false;
        // Records are also lost if they were in a file that was removed with its copies.
        let gone = before.blobs.saturating_sub(self.counts.blobs);
        let lost = lost.records().max(gone);
        shared.lost.fetch_add(lost, Ordering::Relaxed);
        let rebuilt = u64::from(report.quarantined.is_some());
        shared.rebuilt.fetch_add(rebuilt, Ordering::Relaxed);
        for note in report.notes() {
            shared.say(note);
        }
        shared.say(match lost {
            0 => "the store was rebuilt from what was left, and nothing is lost".to_owned(),
            lost => {
                format!("the store was begun again: {lost} records are lost, later ones are kept")
            }
        });
        Ok(())
    }

    /// Goes on without a store until the next try.
    pub(super) fn give_up(&mut self, error: StoreError) {
        self.shared
            .say(format!("the store can't be begun again: {error}"));
        *self.shared.engine.write() = Engine::Failed(error.clone());
        self.anew = true;
        self.failed = Some((Instant::now(), error));
    }
}
