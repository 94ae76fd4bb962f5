//! A short journal before the engine: a group is durable as soon as it stands here, for the price
//! of one write and one fdatasync. The archive and the engine are brought up to it when nobody
//! waits or it is full, and then the journal begins anew.
//!
//! Owns the file `journal`: 64 KB that are written once, so that later writes change no metadata.
//! Entries ([`super::entry`]) stand one behind the other from the front, one for each group; what is
//! behind the last is left over from earlier rounds, or zero, and does no harm: its groups are known.
//! It never drops an entry that the archive might still miss: only [`Journal::rewind`] does, and its
//! caller has made the archive durable before.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::super::Batch;
use super::super::files;
use super::entry::{Reader, Stamp, seal};

pub(super) const NAME: &str = "journal";
/// As much as is ever behind in the archive: some forty turns. A group that has no room left goes
/// to the archive at once.
const SIZE: usize = 64 << 10;

/// The open journal.
pub(super) struct Journal {
    file: File,
    end: usize,
}

impl Journal {
    /// Opens or makes the journal of a data directory. It takes nothing until it is rewound.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let file = files::open(&dir.join(NAME))?;
        let length = file.metadata()?.len();
        if length < SIZE as u64 {
            let missing = usize::try_from(SIZE as u64 - length).unwrap_or(SIZE);
            (&file).seek(SeekFrom::Start(length))?;
            (&file).write_all(&vec![0; missing])?;
            file.sync_all()?;
            files::sync_dir(dir)?;
        }
        Ok(Self { file, end: SIZE })
    }

    /// Writes a group and waits until it is durable. Says no, and does nothing, where it has no
    /// room.
    pub(super) fn append(&mut self, stamp: &Stamp, group: &[Batch]) -> io::Result<bool> {
        let at = self.end as u64;
        let Some(entry) = seal(at, SIZE - self.end, stamp, group) else {
            return Ok(false);
        };
        (&self.file).seek(SeekFrom::Start(at))?;
        (&self.file).write_all(&entry)?;
        self.file.sync_data()?;
        self.end += entry.len();
        Ok(true)
    }

    /// Begins anew, because all entries are in the archive. Writes nothing: the next entry
    /// overwrites the first.
    pub(super) fn rewind(&mut self) {
        self.end = 0;
    }

    /// The entries, those of earlier rounds among them.
    pub(super) fn entries(&self) -> io::Result<Reader<'_>> {
        Reader::new(&self.file, 0)
    }

    /// All bytes, for a reader of an older form.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&self.file).seek(SeekFrom::Start(0))?;
        (&self.file).take(SIZE as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The open file, to tell whether it is still the one in the directory.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}
