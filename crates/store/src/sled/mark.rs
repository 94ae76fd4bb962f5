//! The file with the mark of the tenant key. It stands in the directory, and not in the engine, which may
//! have to be set aside. Owns that file. Never holds a key.

use std::fs;
use std::io;

use super::super::error::StoreError;
use super::super::files;
use super::super::key_mark::{self, Claim, KeyMark};
use super::open::DataDirectory;

/// The file.
pub(super) const FILE_NAME: &str = "key.mark";

impl DataDirectory {
    /// The mark that is there.
    pub(super) fn key_mark(&self) -> Result<Option<KeyMark>, StoreError> {
        match fs::read_to_string(self.dir().join(FILE_NAME)) {
            Ok(text) => Ok(KeyMark::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error("reading the mark of the tenant key in")(error)),
        }
    }

    /// Writes a mark where there is none, or none of records. Returns whether the records are of another
    /// key. Without a mark nothing is written.
    pub(super) fn claim(
        &self,
        mark: Option<KeyMark>,
        holds_records: bool,
    ) -> Result<bool, StoreError> {
        let Some(mark) = mark else {
            return Ok(false);
        };
        match mark.judge(self.key_mark()?, holds_records) {
            Claim::Own => Ok(false),
            Claim::Other => Ok(true),
            Claim::Free => {
                let text = format!("{mark}\n");
                files::write_whole(self.dir(), FILE_NAME, text.as_bytes())
                    .map_err(self.error("writing the mark of the tenant key in"))?;
                Ok(false)
            }
        }
    }

    /// What is said where they are.
    pub(super) fn other_key(&self) -> String {
        key_mark::other_key(&format!("remove {}", self.dir().join(FILE_NAME).display()))
    }
}
