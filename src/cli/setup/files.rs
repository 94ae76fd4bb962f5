//! Files of others: read and replaced as a whole. Owns what stays of a file that is replaced: its
//! mode, its owner, and the links that lead to it. Never writes half a file.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// How many links may lead from one to the next, as on Linux.
const MOST_LINKS: usize = 40;

/// The file that a path means, behind all links. It need not be there.
///
/// # Errors
/// If links lead in a circle.
pub fn behind_links(path: &Path) -> anyhow::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&at) {
            Ok(to) => at = at.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(at),
        }
    }
    anyhow::bail!("the links of {} lead in a circle", path.display())
}

/// The text of a file, if it is there.
///
/// # Errors
/// If it can't be read, or is no text.
pub fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes).ok();
            let text = text.with_context(|| format!("{} is no UTF-8 text", file.display()))?;
            Ok(Some(text))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("can't read {}", file.display())),
    }
}

/// Makes the directories above a file. Returns those that were not there, the outermost first.
///
/// # Errors
/// If one can't be made.
pub fn make_directories(file: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut missing: Vec<PathBuf> = file
        .ancestors()
        .skip(1)
        .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    for directory in &missing {
        let made = fs::create_dir(directory);
        made.with_context(|| format!("can't make {}", directory.display()))?;
    }
    Ok(missing)
}

/// Replaces a file, or makes it, in one step. A new file is for its owner alone.
///
/// # Errors
/// If it can't be written. It then is as it was.
pub fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    replaced(file, text)
        .with_context(|| format!("can't write {}; nothing was changed", file.display()))
}

fn replaced(file: &Path, text: &str) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new()
        .prefix(".plimsoll-")
        .tempfile_in(directory)?;
    new.write_all(text.as_bytes())?;
    match fs::metadata(file) {
        Ok(old) => {
            // Only root can hand a file to another owner, and nobody else meets one.
            if new.as_file().metadata()?.uid() != old.uid() {
                let (user, group) = (Some(old.uid()), Some(old.gid()));
                std::os::unix::fs::fchown(new.as_file(), user, group)?;
            }
            new.as_file().set_permissions(old.permissions())?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Removes a file, and those of the directories that are empty, the innermost first.
///
/// # Errors
/// If the file can't be removed.
pub fn remove(file: &Path, directories: &[PathBuf]) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("can't remove {}", file.display()));
        }
        Ok(()) | Err(_) => {}
    }
    for directory in directories.iter().rev() {
        // One that something was put into stays.
        if fs::remove_dir(directory).is_err() {
            break;
        }
    }
    Ok(())
}
