//! Small files that must be whole or absent. It never opens the engine's own files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Entries that a look at a directory's size goes through at most: the engine has a dozen files.
const ENTRIES: usize = 4096;

/// Makes creations and renames in a directory durable. Systems that can't sync a directory
/// are not asked to.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}

/// Writes a file so that a reader finds all of it or nothing, also after a crash.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = dir.join(format!("{name}.new"));
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, dir.join(name))?;
    sync_dir(dir)
}

/// Removes a file durably; one that is not there is no error.
pub(super) fn remove(dir: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(name)) {
        Ok(()) => sync_dir(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Bytes of the files below a directory, as far as they can be seen and [`ENTRIES`] goes. No link
/// is followed.
pub(super) fn bytes(dir: &Path) -> u64 {
    let (mut folders, mut left, mut sum) = (vec![dir.to_owned()], ENTRIES, 0_u64);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.take(left) {
            left -= 1;
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) if found.is_file() => sum = sum.saturating_add(found.len()),
                Ok(_) | Err(_) => {}
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_all_files_below() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        assert_eq!(bytes(&dir.join("absent")), 0);
        fs::create_dir_all(dir.join("a/b")).unwrap();
        for (name, length) in [("one", 10), ("a/two", 200), ("a/b/three", 3_000)] {
            fs::write(dir.join(name), vec![0; length]).unwrap();
        }
        assert_eq!(bytes(dir), 3_210);
        for n in 0..ENTRIES {
            fs::write(dir.join(format!("a/b/{n}")), "x").unwrap();
        }
        assert!(bytes(dir) <= 3_210 + ENTRIES as u64, "it ends");
    }
}
