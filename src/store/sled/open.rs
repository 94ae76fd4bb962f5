//! From a data directory to an open engine: the lock, the check that the last stop calls for,
//! and quarantine. It never deletes what it can't read, and never touches the tenant key.
//!
//! The directory: `lock` (held while the store is open), `sled/` (the engine's), `clean` (there
//! only between a clean stop and the next start), `suspect` (there once the engine met damage),
//! `quarantine-N/` (engine directories that could not be opened).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::super::files;
use super::super::{Config, OpenReport, StoreError, quarantine_path};
use super::trees::{Counts, Trees};

const LOCK: &str = "lock";
const ENGINE: &str = "sled";
const CLEAN: &str = "clean";
const SUSPECT: &str = "suspect";

/// How many entries of each tree are read after an unclean stop: a fraction of a second.
const CHECK: usize = 50_000;

/// The paths of one data directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    dir: PathBuf,
    engine: PathBuf,
}

/// What a start finds of the last stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastStop {
    /// There was none: the directory is new.
    None,
    /// Clean, and the log is as long as it was then.
    Clean,
    /// Killed, or the log was changed since.
    Unclean,
    /// The engine met damage.
    Suspect,
}

impl Place {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            engine: dir.join(ENGINE),
        }
    }

    /// The engine's directory.
    pub(super) fn engine(&self) -> &Path {
        &self.engine
    }

    fn error(&self, doing: &'static str) -> impl Fn(io::Error) -> StoreError {
        let dir = self.dir.clone();
        move |error| StoreError::io(doing, &dir, &error)
    }

    /// Makes the directory and takes its lock, which holds until the file is dropped.
    pub(super) fn lock(&self) -> Result<File, StoreError> {
        fs::create_dir_all(&self.dir).map_err(self.error("creating"))?;
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| StoreError::io("opening", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
                dir: self.dir.clone(),
            }),
            Err(TryLockError::Error(error)) => Err(StoreError::io("locking", &path, &error)),
        }
    }

    /// Opens the engine and checks it as far as the last stop calls for; a corrupt one is moved
    /// aside and a new one opened.
    pub(super) fn open(&self, config: &Config) -> Result<(Trees, Counts, OpenReport), StoreError> {
        let last = self.last_stop();
        files::remove(&self.dir, CLEAN).map_err(self.error("cleaning"))?;
        let mut report = OpenReport {
            clean: matches!(last, LastStop::None | LastStop::Clean),
            ..OpenReport::default()
        };
        let opened = match self.attempt(config, last) {
            Err(error) if is_damage(&error) => {
                report.quarantined = Some(self.quarantine()?);
                report.reason = Some(error.to_string());
                self.attempt(config, LastStop::None)
            }
            other => other,
        };
        let (trees, counts, checked) = opened?;
        files::remove(&self.dir, SUSPECT).map_err(self.error("cleaning"))?;
        (report.blobs, report.links, report.checked) = (counts.blobs, counts.links, checked);
        Ok((trees, counts, report))
    }

    /// Opens the engine again after the disk had failed; the check is that of a kill.
    pub(super) fn reopen(&self, config: &Config) -> Result<(Trees, Counts), StoreError> {
        let (trees, counts, _) = self.attempt(config, LastStop::Unclean)?;
        Ok((trees, counts))
    }

    fn attempt(&self, config: &Config, last: LastStop) -> Result<(Trees, Counts, u64), StoreError> {
        let trees = Trees::open(&self.engine, config)?;
        let checked = match last {
            LastStop::None => {
                trees.sync(&self.engine)?;
                files::sync_dir(&self.engine)
                    .and_then(|()| files::sync_dir(&self.dir))
                    .map_err(self.error("syncing"))?;
                0
            }
            LastStop::Clean => trees.check(&self.engine, 1)?,
            LastStop::Unclean => trees.check(&self.engine, CHECK)?,
            LastStop::Suspect => trees.check(&self.engine, usize::MAX)?,
        };
        let counts = trees.counts(&self.engine)?;
        Ok((trees, counts, checked))
    }

    fn last_stop(&self) -> LastStop {
        if !self.engine.exists() {
            LastStop::None
        } else if self.dir.join(SUSPECT).exists() {
            LastStop::Suspect
        } else {
            let marked = fs::read_to_string(self.dir.join(CLEAN)).ok();
            let marked = marked.and_then(|text| text.trim().parse::<u64>().ok());
            match (marked, self.log_len()) {
                (Some(then), Ok(now)) if then == now => LastStop::Clean,
                _ => LastStop::Unclean,
            }
        }
    }

    fn log_len(&self) -> io::Result<u64> {
        fs::metadata(self.engine.join("db")).map(|meta| meta.len())
    }

    /// Closes the engine so that the next start is quick. The engine keeps its page table only
    /// when it opens, so after writes it is opened once more: otherwise the next start would
    /// have to read the whole log of this one.
    pub(super) fn rest(
        &self,
        config: &Config,
        trees: Trees,
        wrote: bool,
    ) -> Result<(), StoreError> {
        trees.sync(&self.engine)?;
        trees.shut(&self.engine)?;
        if wrote {
            Trees::open(&self.engine, config)?.shut(&self.engine)?;
        }
        self.log_len()
            .and_then(|length| files::write_whole(&self.dir, CLEAN, length.to_string().as_bytes()))
            .map_err(self.error("marking"))
    }

    /// Notes that the engine met damage, so that the next start looks at everything. Best
    /// effort: where even this can't be written, the bounded check remains.
    pub(super) fn suspect(&self) {
        let _ = files::write_whole(&self.dir, SUSPECT, b"the engine met damage\n");
    }

    fn quarantine(&self) -> Result<PathBuf, StoreError> {
        let aside = quarantine_path(&self.dir);
        fs::rename(&self.engine, &aside)
            .and_then(|()| files::sync_dir(&self.dir))
            .map_err(self.error("setting aside the corrupt store in"))?;
        Ok(aside)
    }
}

/// Whether an error of opening means that the data is damaged. A refusal of the system says
/// nothing about the data, and a newer format is none of our business.
fn is_damage(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } | StoreError::Codec(_) => true,
        StoreError::Io { kind, .. } => {
            matches!(
                kind,
                io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
            )
        }
        StoreError::Locked { .. }
        | StoreError::Degraded
        | StoreError::Busy
        | StoreError::Closed
        | StoreError::Format { .. }
        | StoreError::WrongId { .. }
        | StoreError::Slow { .. }
        | StoreError::Injected => false,
    }
}
