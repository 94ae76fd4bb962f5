//! Where a command puts what it has to say: files that a flag names, and the terminal. Owns who may read such a
//! file, and that a text which others wrote can't steer the terminal. Never decides what is written.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;

/// A number of things: `1 session`, `2 sessions`, `2 passes`.
pub fn counted(number: &dyn Display, one: &str) -> String {
    let number = number.to_string();
    let ending = match number.as_str() {
        "1" => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {one}{ending}")
}

/// Permissions for the owner alone.
const OWNER_ONLY: u32 = 0o600;

/// Writes a file that a flag named.
pub fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| cannot(file))
}

/// Writes what was recorded to a file that a flag named. Nobody but the owner may read it, as it is in the
/// store that it comes from. A file that others could read is closed to them first.
pub fn write_recorded(file: &Path, text: &str) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        let mut open = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(OWNER_ONLY)
            .open(file)?;
        // A pipe or a device is not the command's to close.
        let meta = open.metadata()?;
        if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
            open.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
        }
        open.write_all(text.as_bytes())
    };
    written().with_context(|| cannot(file))
}

/// Whether a file can be written that a flag named, before a command works for it. What it holds stays, and where there was
/// none there is none afterwards.
///
/// # Errors
/// The system's error.
pub fn can_write(file: &Path) -> anyhow::Result<()> {
    // Whoever opens a pipe waits until somebody reads it.
    if std::fs::metadata(file).is_ok_and(|meta| !meta.is_file()) {
        return Ok(());
    }
    let mut new = OpenOptions::new();
    let new = new
        .create_new(true)
        .append(true)
        .mode(OWNER_ONLY)
        .open(file);
    let tried = match new {
        Ok(_) => std::fs::remove_file(file),
        // What a link leads to that is not there yet is found out when it is written.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !file.exists() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(file).map(drop)
        }
        Err(error) => Err(error),
    };
    tried.with_context(|| cannot(file))
}

fn cannot(file: &Path) -> String {
    format!("can't write {}", file.display())
}

/// Prints lines whose words others wrote, such as names of models.
///
/// # Errors
/// The system's error.
pub fn print(text: &str) -> io::Result<()> {
    io::stdout().lock().write_all(harmless(text).as_bytes())
}

/// Lines that a terminal shows and does not obey: every control character but the newline is written out.
#[must_use]
pub fn harmless(lines: &str) -> Cow<'_, str> {
    written_out(lines, |one| one != '\n')
}

/// A text that a terminal shows and does not obey, and that stays on its line: newlines are written out as well.
#[must_use]
pub fn harmless_word(text: &str) -> Cow<'_, str> {
    written_out(text, |_| true)
}

fn written_out(text: &str, also: fn(char) -> bool) -> Cow<'_, str> {
    let steers = |one: char| (one.is_control() || is_direction(one)) && also(one);
    if !text.contains(steers) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        if steers(one) {
            let _ = write!(plain, "{}", one.escape_default());
        } else {
            plain.push(one);
        }
    }
    plain.into()
}

/// Whether a character turns the direction of what follows, which shows a line in another order.
const fn is_direction(one: char) -> bool {
    matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        for (text, lines, word) in [
            ("gpt-5 é 模型", "gpt-5 é 模型", "gpt-5 é 模型"),
            (
                "a\x1b]0;x\x07b",
                "a\\u{1b}]0;x\\u{7}b",
                "a\\u{1b}]0;x\\u{7}b",
            ),
            ("a\u{9b}2Jb\x7f", "a\\u{9b}2Jb\\u{7f}", "a\\u{9b}2Jb\\u{7f}"),
            ("one\ntwo\r", "one\ntwo\\r", "one\\ntwo\\r"),
            ("a\u{202e}b", "a\\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!((&*harmless(text), &*harmless_word(text)), (lines, word));
        }
    }

    #[test]
    fn what_was_recorded_is_for_the_owner_alone_even_where_a_file_was_open() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (new, open) = (directory.path().join("new"), directory.path().join("open"));
        std::fs::write(&open, "before").unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o666)).unwrap();
        for file in [&new, &open] {
            write_recorded(file, "text").unwrap();
            assert_eq!(
                (mode(file), std::fs::read_to_string(file).unwrap().as_str()),
                (0o600, "text")
            );
        }
        // What is no file is written to and stays as it is.
        write_recorded(Path::new("/dev/null"), "text").unwrap();
    }
}
