//! All that was ever stored, once more: what the engine loses is put back from here, and what is
//! damaged here is damaged for itself. Owns the file `archive`: entries ([`super::entry`]), each with
//! the new writes of some groups in the engine's stored form, one behind the other. It is only ever
//! appended to, and never read while the engine is well.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::super::files;
use super::super::{Batch, StoreError};
use super::entry::{Reader, Stamp, seal};
use super::trees::{Position, Trees};

pub(super) const NAME: &str = "archive";
const DRAFT: &str = "archive.new";
/// How much of an engine is written in one entry where an archive is made from it.
const PART: usize = 1 << 20;

/// The open archive.
pub(super) struct Archive {
    file: File,
    end: u64,
    /// The last group that is in it.
    pub(super) last: u64,
}

impl Archive {
    /// Opens the archive of a data directory; there is none before the first start, and in a
    /// directory of an older version.
    pub(super) fn open(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(NAME);
        if !path.try_exists()? {
            return Ok(None);
        }
        let file = files::open(&path)?;
        let end = file.metadata()?.len();
        Ok(Some(Self { file, end, last: 0 }))
    }

    /// Makes an archive of all that an engine holds, in place of the one that is there.
    pub(super) fn make(
        dir: &Path,
        engine: &Path,
        trees: &Trees,
        position: Position,
    ) -> Result<Self, StoreError> {
        let path = dir.join(DRAFT);
        let failed = |error: io::Error| StoreError::io("writing", &path, &error);
        let file = files::create(&path).map_err(failed)?;
        let (end, last) = (0, 0);
        let mut archive = Self { file, end, last };
        let mut part = Batch::default();
        trees.each(engine, |blob, link| {
            part.blobs.extend(blob);
            part.links.extend(link);
            if part.size() < PART {
                return Ok(());
            }
            let part = std::mem::take(&mut part);
            archive.write(&Stamp::default(), &part).map_err(failed)
        })?;
        let stamp = Stamp {
            first: 0,
            last: position.group,
            counts: position.counts,
        };
        archive
            .write(&stamp, &part)
            .and_then(|()| archive.file.sync_all())
            .and_then(|()| fs::rename(&path, dir.join(NAME)))
            .and_then(|()| files::sync_dir(dir))
            .map_err(failed)?;
        archive.last = position.group;
        Ok(archive)
    }

    /// Appends what some groups wrote and waits until it is durable.
    pub(super) fn append(&mut self, stamp: &Stamp, writes: &Batch) -> io::Result<()> {
        let end = self.end;
        let written = self.write(stamp, writes);
        let written = written.and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.last = stamp.last,
            Err(_) => {
                self.end = end;
                // What stands there in part would only be stepped over by every later reader.
                let _ = self.file.set_len(end);
            }
        }
        written
    }

    fn write(&mut self, stamp: &Stamp, writes: &Batch) -> io::Result<()> {
        let writes = std::slice::from_ref(writes);
        let entry = seal(self.end, usize::MAX, stamp, writes);
        let entry = entry.ok_or_else(|| io::Error::other("more at once than an entry holds"))?;
        (&self.file).seek(SeekFrom::Start(self.end))?;
        (&self.file).write_all(&entry)?;
        self.end += entry.len() as u64;
        Ok(())
    }

    /// The entries from a place on.
    pub(super) fn entries(&self, from: u64) -> io::Result<Reader<'_>> {
        Reader::new(&self.file, from)
    }

    /// How long it is.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The open file, to tell whether it is still the one in the directory.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}
