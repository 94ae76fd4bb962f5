//! Opens the engine in a data directory: takes the lock, makes the check that the last stop calls
//! for, and moves a corrupt engine aside. Owns the names in the directory. Never deletes what it
//! can't read, and never touches the tenant key.
//!
//! The directory holds `lock` (locked while the store is open), `sled/` (the engine's files),
//! `archive` (a second copy of everything), `journal` (what is not archived yet, needed only if
//! `clean` is missing), `sealed` (see [`super::seals`]), `key.mark` (see [`super::mark`]), what [`super::swap`] names during a sweep, `clean` (only between a clean stop and the next start: the length of the
//! log and the counts), `suspect` (after the engine met damage), and `quarantine-N/` (engines that
//! could not be opened). Only the owner may read any of it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use super::super::error::StoreError;
use super::super::files::{self, quarantine_path};
use super::super::report::OpenReport;
use super::super::settings::{Keepsake, StoreSettings};
use super::log_check;
use super::trees::{Checked, Counts, Trees};

pub(super) const LOCK_FILE: &str = "lock";
/// The engine's log.
pub(super) const LOG_FILE: &str = "sled/db";
const ENGINE_DIRECTORY: &str = "sled";
const CLEAN_FILE: &str = "clean";
const SUSPECT_FILE: &str = "suspect";

const PROBE_FILE: &str = "probe";
/// Two of the engine's segments.
const PROBE_BYTES: usize = 4 << 20;

/// How many entries of each tree are read after the disk failed under the engine. Nobody should
/// have to wait for more.
const ENTRIES_CHECKED: usize = 50_000;

/// The paths in one data directory.
#[derive(Clone, Debug)]
pub(super) struct DataDirectory {
    dir: PathBuf,
    engine: PathBuf,
}

/// What a clean stop notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CleanStop {
    log: u64,
    counts: Counts,
}

impl CleanStop {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let (log, blobs, links) = (next()?, next()?, next()?);
        let rows = next()?;
        let counts = Counts { blobs, links, rows };
        Some(Self { log, counts })
    }

    fn text(self) -> String {
        let Self {
            log,
            counts: Counts { blobs, links, rows },
        } = self;
        format!("{log} {blobs} {links} {rows}\n")
    }
}

/// What a start knows about the last stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastStop {
    /// There was none, because the directory is new.
    None,
    /// It was clean, and the log is as long as it was then.
    Clean,
    /// The process was killed, and the log of this length is as the engine wrote it.
    Killed(u64),
    /// The process was killed, and the log is damaged or may be.
    Unclean,
    /// The engine met damage.
    Suspect,
    /// The process did not stop. The disk failed, and the process goes on.
    Failed,
}

impl DataDirectory {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            engine: dir.join(ENGINE_DIRECTORY),
        }
    }

    /// The data directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The engine's directory.
    pub(super) fn engine(&self) -> &Path {
        &self.engine
    }

    /// Makes an error of the operating system: what was being done in the directory.
    pub(super) fn error(&self, doing: &'static str) -> impl Fn(io::Error) -> StoreError {
        let dir = self.dir.clone();
        move |error| StoreError::io(doing, &dir, &error)
    }

    /// Makes the directory and takes its lock. The lock holds until the file is dropped.
    pub(super) fn lock(&self) -> Result<File, StoreError> {
        files::make_data_directory(&self.dir).map_err(self.error("creating"))?;
        let path = self.dir.join(LOCK_FILE);
        let file = files::open(&path).map_err(|error| StoreError::io("opening", &path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                // Whoever comes second reads there who was first. Nothing else depends on it, so a full disk is no reason to stop.
                let _unnoted = file
                    .set_len(0)
                    .and_then(|()| write!(&file, "{}", process::id()));
                Ok(file)
            }
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
                dir: self.dir.clone(),
                pid: io::read_to_string(&file)
                    .ok()
                    .and_then(|pid| pid.trim().parse().ok())
                    .filter(is_here),
            }),
            Err(TryLockError::Error(error)) => Err(StoreError::io("locking", &path, &error)),
        }
    }

    /// Opens the engine and makes the check that the last stop calls for. A corrupt engine is moved
    /// aside and a new one opened.
    pub(super) fn open(
        &self,
        settings: &StoreSettings,
    ) -> Result<(Trees, Checked, OpenReport), StoreError> {
        let mut privacy = files::close_to_others(&self.dir);
        if let Some(Keepsake { name, bytes }) = &settings.keepsake
            && !self.dir.join(name).exists()
        {
            files::write_whole(&self.dir, name, bytes).map_err(self.error("writing"))?;
        }
        if self.adopt()? {
            // What it says is of the engine that was replaced.
            files::remove(&self.dir, CLEAN_FILE).map_err(self.error("cleaning"))?;
        }
        self.clear_sweep();
        let mark = fs::read_to_string(self.dir.join(CLEAN_FILE));
        let mark = mark.ok().and_then(|text| CleanStop::parse(&text));
        let last = self.last_stop(mark);
        // From here on a kill must look like one, so the note of the clean stop goes before the
        // engine opens.
        files::remove(&self.dir, CLEAN_FILE).map_err(self.error("cleaning"))?;
        let mut report = OpenReport {
            clean: matches!(last, LastStop::None | LastStop::Clean),
            ..OpenReport::default()
        };
        // A directory that a first start left without a log never held anything.
        let held = self.log_len().is_ok_and(|log| log > 0);
        let opened = self.attempt(settings, last, mark.map(|mark| mark.counts));
        let (trees, mut checked) = match opened {
            Err(error) if is_damage(&error) => {
                report.reason = Some(error.to_string());
                let (trees, mut checked) = self.mend(settings, &mut report)?;
                // What the last stop noted is newer than what is left of the engine's own account.
                let before = checked.before.get_or_insert_default();
                if let Some(mark) = mark {
                    before.counts = mark.counts;
                }
                (trees, checked)
            }
            other => other?,
        };
        if held && matches!(last, LastStop::Unclean | LastStop::Suspect) {
            // A log that is damaged may open as it was before the damage, and so without a trace of it.
            checked.before.get_or_insert_default();
        }
        report.checked = checked.read;
        files::remove(&self.dir, SUSPECT_FILE).map_err(self.error("cleaning"))?;
        report.closed = std::mem::take(&mut privacy.mended);
        report.open = privacy.open;
        Ok((trees, checked, report))
    }

    /// Checks whether the disk takes as many bytes as the engine writes when it opens.
    pub(super) fn probe(&self) -> Result<(), StoreError> {
        let path = self.dir.join(PROBE_FILE);
        let written = files::create(&path).and_then(|mut file| {
            file.write_all(&vec![0; PROBE_BYTES])?;
            file.sync_data()
        });
        let removed = fs::remove_file(&path);
        written
            .and(removed)
            .map_err(|error| StoreError::io("writing", &path, &error))
    }

    /// Opens the engine again after the disk failed. Checks as after a kill.
    pub(super) fn reopen(&self, settings: &StoreSettings) -> Result<(Trees, Checked), StoreError> {
        self.attempt(settings, LastStop::Failed, None)
    }

    /// Opens the engine and checks it. With `expected` it must hold exactly that much.
    fn attempt(
        &self,
        settings: &StoreSettings,
        last: LastStop,
        expected: Option<Counts>,
    ) -> Result<(Trees, Checked), StoreError> {
        self.prepare()
            .map_err(self.error("creating the engine's directory in"))?;
        let trees = Trees::open(&self.engine, settings)?;
        self.close_engine();
        let changed = || StoreError::Corrupt {
            detail: "it is not as it was closed".to_owned(),
        };
        let checked = match self.check(&trees, last) {
            Ok(Checked { counts, .. }) if expected.is_some_and(|expected| expected != counts) => {
                Err(changed())
            }
            other => other,
        };
        match checked {
            Ok(checked) => Ok((trees, checked)),
            Err(error) => {
                // The error is known already. Closing may only find it again.
                let _ = trees.shut(&self.engine);
                Err(error)
            }
        }
    }

    /// Makes the directory and the log for the owner alone. The engine would make them as the umask
    /// allows.
    pub(super) fn prepare(&self) -> io::Result<()> {
        files::create_dir(&self.engine)?;
        files::create_dir(&self.engine.join("blobs"))?;
        files::open(&self.engine.join("db")).map(drop)
    }

    /// Closes the files that the engine made to everybody but the owner.
    pub(super) fn close_engine(&self) {
        files::close_all(&self.engine, &mut files::Privacy::default());
    }

    fn check(&self, trees: &Trees, last: LastStop) -> Result<Checked, StoreError> {
        let limit = match last {
            LastStop::None => {
                trees.sync(&self.engine)?;
                files::sync_dir(&self.engine)
                    .and_then(|()| files::sync_dir(&self.dir))
                    .map_err(self.error("syncing"))?;
                return Ok(Checked {
                    counts: trees.position(&self.engine)?.counts,
                    counted: true,
                    ..Checked::default()
                });
            }
            LastStop::Clean => 1,
            // The whole log was read and is sound, unless the end of the file was cut off.
            LastStop::Killed(log) if trees.position(&self.engine)?.log <= log => 1,
            // A damaged log silently loses what stood behind the damage. Only counting shows that.
            LastStop::Killed(_) | LastStop::Unclean | LastStop::Suspect => usize::MAX,
            LastStop::Failed => ENTRIES_CHECKED,
        };
        trees.check(&self.engine, limit)
    }

    /// Moves a damaged engine aside and saves what can be saved. If it does not open, the damage
    /// may be in its page table or settings. Both are derived from the log, so a copy of the log
    /// alone is tried. Otherwise everything that can still be read is copied into a new engine.
    fn mend(
        &self,
        settings: &StoreSettings,
        report: &mut OpenReport,
    ) -> Result<(Trees, Checked), StoreError> {
        // Whether it opens at all decides what may be wrong with it.
        let opens = Trees::open(&self.engine, settings).and_then(|trees| trees.shut(&self.engine));
        let aside = self.quarantine()?;
        report.quarantined = Some(aside.clone());
        if opens.is_err() {
            if let Ok(rebuilt) = self.rebuild(settings, &aside) {
                return Ok(rebuilt);
            }
            fs::remove_dir_all(&self.engine).map_err(self.error("mending"))?;
        }
        let (trees, mut checked) = self.attempt(settings, LastStop::None, None)?;
        if let Ok(damaged) = Trees::open(&aside, settings) {
            // An account that can't be read leaves only the other copies to tell what is lost.
            checked.before = damaged.position(&aside).ok();
            let saved = trees.salvage(&self.engine, &damaged, &aside);
            // Closing a damaged engine may wait for ever for writes that it can't do.
            std::mem::forget(damaged);
            checked.counts = saved?;
        }
        Ok((trees, checked))
    }

    /// Opens a copy of a log without what the engine derives from it.
    fn rebuild(
        &self,
        settings: &StoreSettings,
        aside: &Path,
    ) -> Result<(Trees, Checked), StoreError> {
        self.prepare()
            .and_then(|()| fs::copy(aside.join("db"), self.engine.join("db")))
            .map_err(self.error("mending"))?;
        self.attempt(settings, LastStop::Suspect, None)
    }

    fn last_stop(&self, mark: Option<CleanStop>) -> LastStop {
        if !self.engine.exists() {
            LastStop::None
        } else if self.dir.join(SUSPECT_FILE).exists() {
            LastStop::Suspect
        } else {
            match (mark, self.log_len()) {
                (Some(mark), Ok(now)) if mark.log == now => LastStop::Clean,
                (Some(_), _) => LastStop::Unclean,
                (None, _) => {
                    let log = log_check::length_if_whole(&self.dir.join(LOG_FILE));
                    log.map_or(LastStop::Unclean, LastStop::Killed)
                }
            }
        }
    }

    fn log_len(&self) -> io::Result<u64> {
        fs::metadata(self.engine.join("db")).map(|meta| meta.len())
    }

    /// Closes the engine so that the next start is quick. The engine writes its page table only
    /// when it opens. So after writes it is opened once more, or the next start would have to read
    /// the whole log.
    pub(super) fn rest(
        &self,
        settings: &StoreSettings,
        trees: Trees,
        wrote: bool,
    ) -> Result<(), StoreError> {
        // The counts are read after the flush and before the engine closes, so they match its file.
        trees.sync(&self.engine)?;
        let counts = trees.position(&self.engine)?.counts;
        trees.shut(&self.engine)?;
        if wrote {
            Trees::open(&self.engine, settings)?.shut(&self.engine)?;
        }
        self.close_engine();
        self.log_len()
            .map(|log| CleanStop { log, counts }.text())
            .and_then(|text| files::write_whole(&self.dir, CLEAN_FILE, text.as_bytes()))
            .map_err(self.error("marking"))
    }

    /// Notes that the engine met damage, so that the next start checks everything. If even this
    /// can't be written, the limited check has to do.
    pub(super) fn suspect(&self) {
        let _ = files::write_whole(&self.dir, SUSPECT_FILE, b"the engine met damage\n");
    }

    fn quarantine(&self) -> Result<PathBuf, StoreError> {
        let aside = quarantine_path(&self.dir);
        fs::rename(&self.engine, &aside)
            .and_then(|()| files::sync_dir(&self.dir))
            .map_err(self.error("setting aside the corrupt store in"))?;
        Ok(aside)
    }
}

/// Whether an error of opening means damage. A refusal of the system says nothing about the data,
/// and a newer format is not damage.
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
        | StoreError::Sealed { .. }
        | StoreError::Snapshot { .. }
        | StoreError::WrongId { .. }
        | StoreError::Server { .. }
        | StoreError::Unreplicated { .. }
        | StoreError::Slow { .. } => false,
        #[cfg(any(test, feature = "testing"))]
        StoreError::Injected => false,
    }
}

/// Whether a process of that number may be the one that holds the lock. In a container, or over a network, the holder has
/// another number here, or none.
fn is_here(pid: &u32) -> bool {
    let is_known = !cfg!(target_os = "linux") || Path::new("/proc").join(pid.to_string()).exists();
    *pid > 1 && *pid != process::id() && is_known
}
