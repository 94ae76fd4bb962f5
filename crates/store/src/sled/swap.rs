//! Puts a swept store in the place of the one that it was copied from. Owns the names `sweep.new`
//! (a copy that is being made), `swept` (one that is whole, and counts from the moment on at which it
//! has this name) and `dropped` (the engine that it replaces). However often the process is killed
//! on the way, the next start goes on where it stood. Never decides what is copied.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::error::StoreError;
use super::super::files;
use super::archive;
use super::open::DataDirectory;

const DRAFT: &str = "sweep.new";
const SWEPT: &str = "swept";
const DROPPED: &str = "dropped";
/// The engine's directory, in a data directory and in a copy.
const ENGINE: &str = "sled";

impl DataDirectory {
    /// Where a copy is made.
    pub(super) fn draft(&self) -> PathBuf {
        self.dir().join(DRAFT)
    }

    /// Makes a whole copy count. From here on the store is what was copied.
    pub(super) fn promote(&self) -> Result<(), StoreError> {
        fs::rename(self.draft(), self.dir().join(SWEPT))
            .and_then(|()| files::sync_dir(self.dir()))
            .map_err(self.error("finishing a sweep in"))
    }

    /// Puts a copy that counts in its place. Returns whether there was one. An engine that
    /// is open may go on to read, and to be closed, but not to write.
    pub(super) fn adopt(&self) -> Result<bool, StoreError> {
        self.move_in().map_err(self.error("finishing a sweep in"))
    }

    fn move_in(&self) -> io::Result<bool> {
        let (dir, swept) = (self.dir(), self.dir().join(SWEPT));
        if !swept.try_exists()? {
            return Ok(false);
        }
        // Each step leaves what the next start needs to take the same step again, or the next one.
        if swept.join(ENGINE).try_exists()? {
            if self.engine().try_exists()? {
                remove_all(&dir.join(DROPPED))?;
                fs::rename(self.engine(), dir.join(DROPPED))?;
            }
            fs::rename(swept.join(ENGINE), self.engine())?;
            files::sync_dir(dir)?;
        }
        if swept.join(archive::FILE_NAME).try_exists()? {
            fs::rename(swept.join(archive::FILE_NAME), dir.join(archive::FILE_NAME))?;
        }
        remove_all(&swept)?;
        files::sync_dir(dir)?;
        Ok(true)
    }

    /// Removes what a sweep left behind: a copy that never counted, and an engine that was replaced.
    /// What can't be removed takes room, and is tried again at the next start.
    pub(super) fn clear_sweep(&self) {
        for name in [DRAFT, DROPPED] {
            if let Err(error) = remove_all(&self.dir().join(name)) {
                tracing::warn!("can't remove {name}: {error}");
            }
        }
    }
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
