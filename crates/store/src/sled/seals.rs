//! Which keys a data directory needs: the file `sealed`, with the names of keys, one in a line. It is
//! written before anything is sealed, and holds one name or none after everything was sealed anew.
//! Owns that file. Never holds a key.

use std::fs;
use std::io;

use super::super::error::StoreError;
use super::super::files;
use super::super::sealing::{KeyName, Seals};
use super::open::DataDirectory;

/// The file. It stands in the directory, and not in the engine, which may have to be set aside.
pub(super) const FILE_NAME: &str = "sealed";

impl DataDirectory {
    /// Refuses keys with which a part of what is stored could not be read. Notes a new one.
    pub(super) fn admit(&self, seals: &Seals) -> Result<(), StoreError> {
        let mut names = self.key_names()?;
        StoreError::unless_given(seals, &names)?;
        match seals.current() {
            Some(name) if !names.contains(&name) => {
                names.push(name);
                self.write_names(&names)
            }
            _ => Ok(()),
        }
    }

    /// Notes that nothing needs another key than that of now.
    pub(super) fn note_keys(&self, seals: &Seals) -> Result<(), StoreError> {
        let names: Vec<KeyName> = seals.current().into_iter().collect();
        if names == self.key_names()? {
            return Ok(());
        }
        self.write_names(&names)
    }

    fn key_names(&self) -> Result<Vec<KeyName>, StoreError> {
        let text = match fs::read_to_string(self.dir().join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(self.error("reading the names of keys in"))?,
        };
        Ok(text.lines().filter_map(KeyName::parse).collect())
    }

    fn write_names(&self, names: &[KeyName]) -> Result<(), StoreError> {
        let text: String = names.iter().map(|name| format!("{name}\n")).collect();
        files::write_whole(self.dir(), FILE_NAME, text.as_bytes())
            .map_err(self.error("writing the names of keys in"))
    }
}
