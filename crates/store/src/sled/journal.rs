//! A short journal in front of the engine. A group is durable as soon as it stands here, at the
//! price of one write and one fdatasync. The archive and the engine follow when nobody waits or the
//! journal is full, and then it begins again.
//!
//! Owns the file `journal`: 64 KB that are written once, so that later writes change no metadata.
//! Entries (see [`super::entry`]) stand one behind the other from the front, one for each group.
//! What stands behind the last entry is zero or left over from earlier rounds. It does no harm,
//! because its groups are known. Never drops an entry that the archive may miss: only
//! [`Journal::rewind`] does, after the caller made the archive durable.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::super::files;
use super::entry::{EntryReader, Form, Stamp, entry};
use super::writes::Writes;

pub(super) const FILE_NAME: &str = "journal";
/// As much as the archive is ever behind, which is some forty turns. A group that does not fit goes
/// to the archive at once.
pub(super) const SIZE_BYTES: usize = 64 << 10;

/// The open journal.
pub(super) struct Journal {
    file: File,
    end: usize,
}

impl Journal {
    /// Opens or makes the journal of a data directory. It takes nothing until it is rewound.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let file = files::open(&dir.join(FILE_NAME))?;
        let length = file.metadata()?.len();
        if length < SIZE_BYTES as u64 {
            let missing = usize::try_from(SIZE_BYTES as u64 - length).unwrap_or(SIZE_BYTES);
            (&file).seek(SeekFrom::Start(length))?;
            (&file).write_all(&vec![0; missing])?;
            file.sync_all()?;
            files::sync_dir(dir)?;
        }
        Ok(Self {
            file,
            end: SIZE_BYTES,
        })
    }

    /// Writes a group and waits until it is durable. Returns false and writes nothing if there is
    /// no room.
    pub(super) fn append(&mut self, stamp: &Stamp, group: (&[Writes], Form)) -> io::Result<bool> {
        let at = self.end as u64;
        let Some(entry) = entry(at, SIZE_BYTES - self.end, stamp, group) else {
            return Ok(false);
        };
        (&self.file).seek(SeekFrom::Start(at))?;
        (&self.file).write_all(&entry)?;
        self.file.sync_data()?;
        self.end += entry.len();
        Ok(true)
    }

    /// Begins again, because the archive holds all entries. Writes nothing: the next entry
    /// overwrites the first.
    pub(super) fn rewind(&mut self) {
        self.end = 0;
    }

    /// Overwrites everything, because the archive holds what may stay of it. What was erased would
    /// otherwise stand here until the next round.
    pub(super) fn wipe(&mut self) -> io::Result<()> {
        (&self.file).seek(SeekFrom::Start(0))?;
        (&self.file).write_all(&vec![0; SIZE_BYTES])?;
        self.file.sync_data()?;
        self.end = 0;
        Ok(())
    }

    /// The entries, including those of earlier rounds.
    pub(super) fn entries(&self) -> io::Result<EntryReader<'_>> {
        EntryReader::new(&self.file, 0)
    }

    /// The open file. It is compared with the one in the directory.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}
