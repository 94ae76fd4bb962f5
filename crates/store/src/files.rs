//! Small files that are whole or absent, and the permissions of a data directory: only the owner
//! may read it. Never opens the engine's files and never follows a link.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Permissions for the owner alone.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The bit of a directory in which everybody may write, such as `/tmp`. Its permissions are not the
/// store's to change.
const STICKY_BIT: u32 = 0o1000;

/// The names that this program puts into a data directory.
const OWN_FILES: [&str; 17] = [
    "lock",
    "sled",
    "journal",
    "archive",
    "archive.new",
    "clean",
    "clean.new",
    "suspect",
    "suspect.new",
    "probe",
    "sweep.new",
    "swept",
    "dropped",
    "sealed",
    "sealed.new",
    "key.mark",
    "key.mark.new",
];
const KEY_FILE: &str = "tenant.key";
/// The file that keeps a data directory out of commits.
const IGNORE_FILE: &str = ".gitignore";

/// How the name of a store begins that was moved aside.
pub const QUARANTINE: &str = "quarantine-";

/// A free name below `dir` for a corrupt store.
pub(super) fn quarantine_path(dir: &Path) -> PathBuf {
    let free = |path: &PathBuf| !path.exists();
    let mut names = (1u32..).map(|n| dir.join(format!("{QUARANTINE}{n}")));
    names.find(free).unwrap_or_else(|| dir.join(QUARANTINE))
}

/// How many entries are read at most to measure a directory. The engine has a dozen files.
const ENTRIES_MEASURED: usize = 4096;

/// Makes creations and renames in a directory durable. Does nothing on a system that can't sync a
/// directory.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}

/// Makes a directory and its parents for the owner alone. One that exists stays as it is.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(dir)
}

/// Makes a data directory and its parents, if it is missing. A new one tells git that nothing in it is to be committed.
///
/// # Errors
/// The system's error.
pub fn make_data_directory(dir: &Path) -> io::Result<()> {
    if dir.exists() {
        return Ok(());
    }
    create_dir(dir)?;
    // The records matter more than this file. A disk that is full refuses it and takes them later.
    let _refused = open(&dir.join(IGNORE_FILE)).and_then(|mut file| file.write_all(b"*\n"));
    Ok(())
}

/// Opens a file to read and write. Makes it for the owner alone if it is missing.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(FILE_MODE)
        .open(path)
}

/// Opens an empty file for the owner alone.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Writes a file so that a reader finds either all of it or nothing, even after a crash.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = dir.join(format!("{name}.new"));
    let mut file = create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, dir.join(name))?;
    sync_dir(dir)
}

/// Removes a file durably. It is no error if the file is missing.
pub(super) fn remove(dir: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(name)) {
        Ok(()) => sync_dir(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// How many bytes the files below a directory hold. Follows no link and reads at most [`ENTRIES_MEASURED`]
/// entries.
pub(super) fn bytes(dir: &Path) -> u64 {
    let (mut folders, mut left, mut sum) = (vec![dir.to_owned()], ENTRIES_MEASURED, 0_u64);
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

/// How many bytes may still be written to the disk of a directory. 0 if the system does not say.
pub(super) fn free(dir: &Path) -> u64 {
    let told = rustix::fs::statvfs(dir);
    told.map_or(0, |told| told.f_bavail.saturating_mul(told.f_frsize))
}

/// Which files in a data directory others could read.
#[derive(Debug, Default)]
pub(super) struct Privacy {
    /// Files that are closed to others now.
    pub(super) mended: Vec<PathBuf>,
    /// Files that are still open to others, and why.
    pub(super) open: Vec<(PathBuf, String)>,
}

/// Closes a data directory, and the store's files in it, to everybody but the owner. A directory
/// that also holds other files keeps its permissions. Then only the store's own files are closed.
pub(super) fn close_to_others(dir: &Path) -> Privacy {
    let mut privacy = Privacy::default();
    let Ok(entries) = fs::read_dir(dir) else {
        return privacy;
    };
    // Only the store's own files are closed. Those of others are not its to change.
    let mut foreign = false;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_ours) {
            close_all(&entry.path(), &mut privacy);
        } else if name != IGNORE_FILE {
            // That one may be a project's, whose other files are beside it.
            foreign = true;
        }
    }
    let mode = fs::metadata(dir).map(|meta| meta.permissions().mode());
    let mode = mode.unwrap_or_default();
    if foreign || mode & STICKY_BIT != 0 {
        if mode & 0o077 != 0 {
            let why = "it holds other files, too; give the store a directory of its own";
            privacy.open.push((dir.to_owned(), why.to_owned()));
        }
    } else {
        close(dir, DIRECTORY_MODE, &mut privacy);
        close(&dir.join(IGNORE_FILE), FILE_MODE, &mut privacy);
    }
    privacy
}

/// Closes a file, or a directory with everything in it.
pub(super) fn close_all(path: &Path, privacy: &mut Privacy) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if meta.is_file() {
        close(path, FILE_MODE, privacy);
    } else if meta.is_dir() {
        close(path, DIRECTORY_MODE, privacy);
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries {
            close_all(&entry.path(), privacy);
        }
    }
}

fn close(path: &Path, wanted: u32, privacy: &mut Privacy) {
    let Ok(meta) = fs::metadata(path) else {
        return;
    };
    let mode = meta.permissions().mode();
    if mode & 0o077 == 0 {
        return;
    }
    match fs::set_permissions(path, Permissions::from_mode(wanted)) {
        Ok(()) => privacy.mended.push(path.to_owned()),
        // A draft that has been renamed since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => privacy.open.push((path.to_owned(), error.to_string())),
    }
}

fn is_ours(name: &str) -> bool {
    OWN_FILES.contains(&name)
        || name.starts_with(KEY_FILE)
        || name.starts_with(QUARANTINE)
        // Drafts of the key, from a start that was killed.
        || name.starts_with(".tmp")
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
        for n in 0..ENTRIES_MEASURED {
            fs::write(dir.join(format!("a/b/{n}")), "x").unwrap();
        }
        assert!(bytes(dir) <= 3_210 + ENTRIES_MEASURED as u64, "it ends");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_wide_directory_is_closed_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("quarantine-1/blobs")).unwrap();
        fs::write(data.join("quarantine-1/db"), "text").unwrap();
        fs::write(data.join("tenant.key"), "key").unwrap();
        for path in ["", "quarantine-1", "quarantine-1/blobs"] {
            fs::set_permissions(data.join(path), Permissions::from_mode(0o755)).unwrap();
        }
        for path in ["quarantine-1/db", "tenant.key"] {
            fs::set_permissions(data.join(path), Permissions::from_mode(0o644)).unwrap();
        }
        let privacy = close_to_others(&data);
        assert_eq!((privacy.mended.len(), privacy.open.len()), (5, 0));
        for path in ["", "quarantine-1", "quarantine-1/blobs"] {
            assert_eq!(mode(&data.join(path)), 0o700, "{path}");
        }
        for path in ["quarantine-1/db", "tenant.key"] {
            assert_eq!(mode(&data.join(path)), 0o600, "{path}");
        }
        assert!(close_to_others(&data).mended.is_empty());
    }

    #[test]
    fn a_directory_of_others_keeps_its_mode_and_their_files_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        fs::set_permissions(data, Permissions::from_mode(0o755)).unwrap();
        for name in ["lock", "letter.txt"] {
            fs::write(data.join(name), "").unwrap();
            fs::set_permissions(data.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        std::os::unix::fs::symlink(data.join("letter.txt"), data.join("suspect")).unwrap();
        let privacy = close_to_others(data);
        assert_eq!(privacy.mended, [data.join("lock")]);
        assert_eq!(privacy.open.len(), 1);
        assert_eq!(mode(data), 0o755);
        assert_eq!(mode(&data.join("letter.txt")), 0o644);
    }
}
