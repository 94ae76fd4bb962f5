//! The matches of a search: `path:line:text` with its context lines, and matches under a heading.
//! Never reads what a match says.

use std::collections::{HashMap, HashSet};

use super::lines::Lines;
use super::pick::{Plan, Wish};

/// A path is looked for in so many bytes of a line.
const LONGEST_PATH: usize = 260;
/// The first matches of each file come before any context.
const FIRST: u32 = 3;
/// A line of a search is cut if it has more bytes.
const LONGEST: usize = 400;

/// So many lines at the end may be a total.
const ENDS: usize = 2;

/// What one line of a search is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A match, with the number of its file.
    Match(u32),
    /// A line beside a match.
    Context,
    /// The heading above the matches of a file.
    Heading,
    Other,
}

/// The rows of a search and the files that they name.
pub struct Search<'a> {
    pub rows: Vec<Row>,
    pub files: Vec<&'a str>,
}

impl<'a> Search<'a> {
    pub fn of(lines: &Lines<'a>) -> Self {
        let mut files = Files::default();
        let mut rows = Vec::with_capacity(lines.count());
        let mut heading = "";
        for at in 0..lines.count() {
            let line = lines.get(at);
            let row = match hit(line) {
                Some(Hit::Match(path)) => Row::Match(files.number(path)),
                Some(Hit::Context) => Row::Context,
                // Under a heading, or in one file, only the number stands before the text.
                None => match short(line) {
                    Some(true) => Row::Match(files.number(heading)),
                    Some(false) => Row::Context,
                    None if is_heading(lines, at) => {
                        heading = line;
                        Row::Heading
                    }
                    None => Row::Other,
                },
            };
            rows.push(row);
        }
        Self {
            rows,
            files: files.names,
        }
    }

    /// Matches, files and the name of the file if it is one, in a run of lines.
    pub fn within(&self, first: usize, past: usize) -> (usize, usize, &'a str) {
        let rows = self.rows.get(first..past).unwrap_or_default();
        let mut seen = HashSet::new();
        let (mut matches, mut last) = (0_usize, None);
        for row in rows {
            let Row::Match(file) = row else { continue };
            matches = matches.saturating_add(1);
            if last != Some(*file) {
                seen.insert(*file);
                last = Some(*file);
            }
        }
        let name = last.and_then(|file| self.files.get(file as usize));
        (matches, seen.len(), name.copied().unwrap_or_default())
    }

    /// All matches.
    pub fn count(&self) -> usize {
        let is_match = |row: &&Row| matches!(row, Row::Match(_));
        self.rows.iter().filter(is_match).count()
    }

    /// Every file with its first match, then the next matches of each, then what stands beside them.
    pub fn plan(&self, mut wishes: Vec<Wish>) -> Plan {
        let mut ranks = vec![0_u32; self.files.len()];
        let mut matches: Vec<(u32, usize)> = Vec::new();
        let mut heading = None;
        for (at, row) in self.rows.iter().enumerate() {
            match row {
                Row::Heading => heading = Some(at),
                Row::Match(file) => {
                    let Some(rank) = ranks.get_mut(*file as usize) else {
                        continue;
                    };
                    // A heading goes where the first match of its file goes.
                    if let Some(heading) = heading.take() {
                        matches.push((*rank, heading));
                    }
                    matches.push((*rank, at));
                    *rank = rank.saturating_add(1);
                }
                Row::Context | Row::Other => {}
            }
        }
        matches.sort_by_key(|one| one.0);
        // A head or a total of the search, such as `Found 30 errors`.
        let last = self.rows.len().saturating_sub(ENDS);
        let ends = std::iter::once(0).chain(last.max(1)..self.rows.len());
        let other = |at: &usize| self.rows.get(*at) == Some(&Row::Other);
        wishes.extend(ends.filter(other).map(|at| (at, at)));
        let early = matches.partition_point(|one| one.0 < FIRST);
        let (early, late) = matches.split_at_checked(early).unwrap_or((&matches, &[]));
        wishes.extend(early.iter().map(|one| (one.1, one.1)));
        for (_, at) in early {
            let near = [at.checked_sub(1), at.checked_add(1)];
            let beside = |at: &usize| self.rows.get(*at) == Some(&Row::Context);
            wishes.extend(near.into_iter().flatten().filter(beside).map(|at| (at, at)));
        }
        wishes.extend(late.iter().map(|one| (one.1, one.1)));
        let names: usize = self.files.iter().map(|name| name.len()).sum();
        let name = names.checked_div(self.files.len()).unwrap_or_default();
        Plan {
            wishes,
            head: 1,
            tail: 0,
            longest: LONGEST,
            gap: name.saturating_add(28),
        }
    }
}

/// The files of a search, numbered as they come.
#[derive(Default)]
struct Files<'a> {
    names: Vec<&'a str>,
    numbers: HashMap<&'a str, u32>,
    /// The last one asked for: most matches follow one of the same file.
    last: Option<(&'a str, u32)>,
}

impl<'a> Files<'a> {
    fn number(&mut self, name: &'a str) -> u32 {
        if let Some((last, number)) = self.last
            && last == name
        {
            return number;
        }
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        self.last = Some((name, number));
        number
    }
}

/// A line that names its file.
pub enum Hit<'a> {
    Match(&'a str),
    Context,
}

/// Reads a line that begins with a path.
pub fn hit(line: &str) -> Option<Hit<'_>> {
    if let Some(path) = before_number(line, b':') {
        return Some(Hit::Match(path));
    }
    if before_number(line, b'-').is_some() {
        return Some(Hit::Context);
    }
    // A search without line numbers. Only a path with a folder is told from other text.
    let (path, text) = colon(line)?;
    let sure = path.contains('/') && !path.contains(' ') && is_path(path);
    (sure && !text.starts_with('/') && !text.is_empty()).then_some(Hit::Match(path))
}

/// The path before `:12:`, or `-12-` in a context line.
fn before_number(line: &str, mark: u8) -> Option<&str> {
    let head = line.get(..line.floor_char_boundary(LONGEST_PATH))?;
    let bytes = head.as_bytes();
    for at in memchr::memchr_iter(mark, bytes).take(8) {
        let rest = bytes.get(at.saturating_add(1)..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 && rest.get(digits) == Some(&mark) {
            let path = head.get(..at)?;
            if is_path(path) {
                return Some(path);
            }
        }
        // A path has no colon but that of a drive.
        if mark == b':' && at > 1 {
            return None;
        }
    }
    None
}

/// Splits a line at its first colon that does not belong to a drive.
fn colon(line: &str) -> Option<(&str, &str)> {
    let head = line.get(..line.floor_char_boundary(LONGEST_PATH))?;
    let from = if head.as_bytes().get(1) == Some(&b':') {
        2
    } else {
        0
    };
    let at = from + head.get(from..)?.find(':')?;
    Some((line.get(..at)?, line.get(at.saturating_add(1)..)?))
}

/// `12:text` is a match and `12-text` is context.
pub fn short(line: &str) -> Option<bool> {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = line.len().saturating_sub(rest.len());
    if digits == 0 || digits > 9 {
        return None;
    }
    let rest = rest.as_bytes();
    let mark = *rest.first()?;
    // A time or a day has two more digits and the mark again.
    let two = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit);
    if two(1) && two(2) && rest.get(3) == Some(&mark) {
        return None;
    }
    match mark {
        b':' => Some(true),
        b'-' => Some(false),
        _ => None,
    }
}

/// Whether a line is a path and a match without path follows.
fn is_heading(lines: &Lines<'_>, at: usize) -> bool {
    let line = lines.get(at);
    is_path(line) && !line.contains(' ') && short(lines.get(at.saturating_add(1))).is_some()
}

/// Whether a text reads as the path of a file.
pub fn is_path(text: &str) -> bool {
    let odd =
        |c: char| c.is_control() || matches!(c, '"' | '{' | '}' | '=' | ';' | '<' | '>' | '|');
    let letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    if !letter || text.len() > LONGEST_PATH || text.starts_with([' ', '[']) || text.contains(odd) {
        return false;
    }
    if text.contains(['/', '\\']) {
        return !text.contains("  ") && !text.contains(": ") && !text.contains("://");
    }
    if text.contains([' ', '(', ')', ',', '*']) {
        return false;
    }
    let plain = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '-');
    let (stem, end) = text.rsplit_once('.').unwrap_or((text, ""));
    let ending = end.starts_with(|c: char| c.is_ascii_alphabetic())
        && end.len() <= 10
        && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
    ending || (stem.len() == text.len() && text.len() > 2 && text.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_searches_are_told_from_other_lines() {
        let path = |line: &'static str| match hit(line) {
            Some(Hit::Match(path)) => path,
            Some(Hit::Context) => "-",
            None => "",
        };
        for (line, want) in [
            ("src/a.rs:12:fn main() {", "src/a.rs"),
            ("a.rs:12:5:x", "a.rs"),
            ("Makefile:3:all:", "Makefile"),
            ("C:\\src\\a.rs:12:x", "C:\\src\\a.rs"),
            ("src/foo-12-bar/x.go-35-\ttext", "-"),
            ("src/a.rs:fn main()", "src/a.rs"),
            ("12:30:01 INFO start", ""),
            ("2026-11-23T12:30:01 start", ""),
            ("2024/01/01 12:30:01 start", ""),
            ("[12.a:30:01] start", ""),
            ("http://a.b/c", ""),
            ("    let a = b:12:c", ""),
            ("error: no", ""),
        ] {
            assert_eq!(path(line), want, "{line}");
        }
    }

    #[test]
    fn a_time_is_no_line_number() {
        for (line, want) in [
            ("12:text", Some(true)),
            ("12-text", Some(false)),
            ("12:30:01 start", None),
            ("2026-11-23 start", None),
            ("12 text", None),
            ("text", None),
        ] {
            assert_eq!(short(line), want, "{line}");
        }
    }

    #[test]
    fn headings_name_the_matches_below() {
        let text = "src/a.rs\n3:one\n4-two\n\nsrc/b.rs\n9:three\n";
        let search = Search::of(&Lines::new(text));
        assert_eq!(search.files, ["src/a.rs", "src/b.rs"]);
        assert_eq!(search.within(0, 6), (2, 2, "src/b.rs"));
        assert_eq!(search.within(0, 3), (1, 1, "src/a.rs"));
        assert!(search.rows[2] == Row::Context && search.rows[4] == Row::Heading);
    }
}
