//! A second copy of everything that was ever stored. What the engine loses is restored from here,
//! and damage to the archive does not reach the engine. Owns the file `archive`: entries (see
//! [`super::entry`]), one behind the other, each with the new writes of some groups in their stored
//! form. Never read while the engine is well, and never changed but by appending, and by cutting off
//! what was not appended to its end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::super::error::StoreError;
use super::super::files;
use super::entry::{EntryReader, Form, Stamp, entry};
use super::scan::Cursor;
use super::trees::{Position, Trees};
use super::writes::Writes;

pub(super) const FILE_NAME: &str = "archive";
const DRAFT_NAME: &str = "archive.new";
/// How many bytes go into one entry when an archive is made from an engine.
const PART_BYTES: usize = 1 << 20;

/// The open archive.
pub(super) struct Archive {
    file: File,
    end: u64,
    /// The last group that it holds.
    pub(super) last: u64,
}

impl Archive {
    /// Opens the archive of a data directory. There is none before the first start.
    pub(super) fn open(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(FILE_NAME);
        if !path.try_exists()? {
            return Ok(None);
        }
        let file = files::open(&path)?;
        let end = file.metadata()?.len();
        Ok(Some(Self { file, end, last: 0 }))
    }

    /// Makes an empty archive, where there is none that counts.
    pub(super) fn begin(dir: &Path) -> io::Result<Self> {
        let file = files::create(&dir.join(FILE_NAME))?;
        let (end, last) = (0, 0);
        Ok(Self { file, end, last })
    }

    /// Makes an archive of everything in an engine. It replaces the one that exists.
    pub(super) fn make(
        dir: &Path,
        engine: &Path,
        trees: &Trees,
        position: Position,
    ) -> Result<Self, StoreError> {
        let path = dir.join(DRAFT_NAME);
        let failed = |error: io::Error| StoreError::io("writing", &path, &error);
        let file = files::create(&path).map_err(failed)?;
        let (end, last) = (0, 0);
        let mut archive = Self { file, end, last };
        let mut cursor = Cursor::default();
        // Entries of moderate size keep the damage of one flipped bit small.
        while let Some(part) = trees.part(engine, &mut cursor, PART_BYTES)? {
            archive.write(&Stamp::default(), &part).map_err(failed)?;
        }
        let stamp = Stamp {
            first: 0,
            last: position.group,
            counts: position.counts,
        };
        archive
            .write(&stamp, &Writes::default())
            .and_then(|()| archive.file.sync_all())
            .and_then(|()| fs::rename(&path, dir.join(FILE_NAME)))
            .and_then(|()| files::sync_dir(dir))
            .map_err(failed)?;
        archive.last = position.group;
        Ok(archive)
    }

    /// Appends the writes of some groups and waits until they are durable.
    pub(super) fn append(&mut self, stamp: &Stamp, writes: &Writes) -> io::Result<()> {
        let end = self.end;
        let written = self.write(stamp, writes);
        let written = written.and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.last = stamp.last,
            Err(_) => {
                self.end = end;
                self.cut(end);
            }
        }
        written
    }

    /// Appends without waiting until it is durable.
    pub(super) fn write(&mut self, stamp: &Stamp, writes: &Writes) -> io::Result<()> {
        let writes = (std::slice::from_ref(writes), Form::Usual);
        let entry = entry(self.end, usize::MAX, stamp, writes);
        let entry = entry.ok_or_else(|| io::Error::other("more at once than an entry holds"))?;
        self.file.write_all_at(&entry, self.end)?;
        self.end += entry.len() as u64;
        Ok(())
    }

    /// Waits until everything that was appended is durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// The entries from a place on. The file may be longer than the archive, if the disk refused to
    /// make it shorter after an append that failed.
    pub(super) fn entries(&self, from: u64) -> EntryReader<'_> {
        EntryReader::between(&self.file, from, self.end)
    }

    /// Cuts the file at `end`. The caller knows that no whole entry stands behind it. If the disk
    /// refuses, every later reader has to step over what is there.
    pub(super) fn cut(&mut self, end: u64) {
        let longer = self.file.metadata().is_ok_and(|file| file.len() > end);
        if longer && self.file.set_len(end).is_ok() {
            self.end = end;
        }
    }

    /// How long the archive is, in bytes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The open file. It is compared with the one in the directory.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}
