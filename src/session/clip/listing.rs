//! The entries of a listing: `ls`, `find` and `tree`. An entry belongs to a group, which is its
//! folder. Never looks at a file system.

use std::collections::HashMap;

use super::lines::Lines;
use super::pick::{Plan, Wish};

/// The first entries of each group come before the rest.
const FIRST: u32 = 3;
/// So many lines of the head stay first of all.
const HEAD: usize = 8;
/// More first entries than this are not looked for: no limit would hold them.
const WISHES: usize = 50_000;
/// An entry is cut if it has more bytes.
const LONGEST: usize = 300;

/// Whether a line reads as an entry of a listing.
pub fn is_entry(line: &str) -> bool {
    let (depth, name) = branch(line);
    if name.is_empty() || name.len() > LONGEST {
        return false;
    }
    if is_long_form(name) {
        return true;
    }
    // The letters of `git status --short`.
    let name = name
        .strip_prefix(['M', 'A', 'D', 'R', '?', 'U'])
        .map(|rest| rest.trim_start_matches(['M', 'D', '?', 'U']))
        .and_then(|rest| rest.strip_prefix(' '))
        .unwrap_or(name);
    let spaces = name.bytes().filter(|byte| *byte == b' ').count();
    let shown = name.contains('/') || depth > 0;
    let plain = |c: char| c.is_alphanumeric() || "._@+-~/\\*:#$%[]()&',".contains(c);
    let letter = name.contains(|c: char| c.is_alphabetic());
    spaces <= usize::from(shown)
        && letter
        && name.chars().all(|c| plain(c) || (c == ' ' && shown))
        && !name.ends_with(['(', ','])
        && !name.contains("()")
}

/// Whether a line is an entry of `ls -l`.
fn is_long_form(line: &str) -> bool {
    let mode = line.as_bytes().get(..10).unwrap_or_default();
    let rights = mode.get(1..).unwrap_or_default();
    matches!(
        mode.first(),
        Some(b'-' | b'd' | b'l' | b'c' | b'b' | b's' | b'p')
    ) && rights.iter().all(|byte| b"rwxsStT-".contains(byte))
}

/// The width of the branches that `tree` draws before a name, and the name.
fn branch(line: &str) -> (usize, &str) {
    let drawn = |c: char| matches!(c, '│' | '├' | '└' | '─' | '|' | '`' | '\u{a0}' | ' ' | '\t');
    let name = line.trim_start_matches(drawn);
    // `|-- name` and `+-- name`.
    let name = name.trim_start_matches("-- ").trim_start_matches("+-- ");
    let before = line.get(..line.len().saturating_sub(name.len()));
    (before.unwrap_or_default().chars().count(), name.trim_end())
}

/// Gives each line the number of its group.
struct Groups<'a> {
    folders: HashMap<&'a str, u32>,
    /// The open branches of a tree: their width and their group.
    branches: Vec<(usize, u32)>,
    /// The group below the last heading of `ls -R`.
    heading: u32,
    next: u32,
}

impl<'a> Groups<'a> {
    fn of(&mut self, line: &'a str) -> u32 {
        let (width, name) = branch(line);
        if width > 0 && !line.starts_with([' ', '\t']) || !self.branches.is_empty() {
            return self.branch(width);
        }
        if name.ends_with(':') {
            self.heading = self.fresh();
            return self.heading;
        }
        let Some((folder, _)) = name.trim_end_matches('/').rsplit_once('/') else {
            return self.heading;
        };
        let next = self.next;
        let number = *self.folders.entry(folder).or_insert(next);
        if number == next {
            self.next = next.saturating_add(1);
        }
        number
    }

    /// The group of a name in a tree: all names of the same width below one parent.
    fn branch(&mut self, width: usize) -> u32 {
        while self.branches.last().is_some_and(|last| last.0 > width) {
            self.branches.pop();
        }
        match self.branches.last() {
            Some(last) if last.0 == width => last.1,
            Some(_) | None => {
                let group = self.fresh();
                self.branches.push((width, group));
                group
            }
        }
    }

    fn fresh(&mut self) -> u32 {
        let group = self.next;
        self.next = group.saturating_add(1);
        group
    }
}

/// The head, the last line, the first entries of each folder, then all from the head on.
pub fn plan(lines: &Lines<'_>, mut wishes: Vec<Wish>) -> Plan {
    let count = lines.count();
    wishes.extend((0..HEAD.min(count)).map(|at| (at, at)));
    wishes.extend(count.checked_sub(1).map(|at| (at, at)));
    let mut groups = Groups {
        folders: HashMap::new(),
        branches: Vec::new(),
        heading: 0,
        next: 1,
    };
    let mut ranks: Vec<u32> = Vec::new();
    let mut firsts: Vec<(u32, usize)> = Vec::new();
    for at in 0..count {
        let line = lines.get(at);
        if line.trim().is_empty() {
            continue;
        }
        let group = groups.of(line) as usize;
        if ranks.len() <= group {
            ranks.resize(group.saturating_add(1), 0);
        }
        let Some(rank) = ranks.get_mut(group).filter(|rank| **rank < FIRST) else {
            continue;
        };
        firsts.push((*rank, at));
        *rank = rank.saturating_add(1);
        if firsts.len() >= WISHES {
            break;
        }
    }
    firsts.sort_by_key(|one| one.0);
    wishes.extend(firsts.iter().map(|one| (one.1, one.1)));
    Plan {
        wishes,
        head: 1,
        tail: 0,
        longest: LONGEST,
        gap: 28,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_from_text() {
        for line in [
            "src/main.rs",
            "./a/b c.txt",
            "│   ├── lib.rs",
            "|-- src",
            "drwxr-xr-x  5 dev dev 4096 Jan 1 12:00 src",
            "Cargo.toml",
            " M src/main.rs",
            "./src:",
        ] {
            assert!(is_entry(line), "{line}");
        }
        for line in [
            "",
            "let a = b;",
            "It is a text.",
            "foo(",
            "}",
            "1234",
            "a = b",
        ] {
            assert!(!is_entry(line), "{line}");
        }
    }

    #[test]
    fn each_folder_is_a_group() {
        let text = "a/1\na/2\nb/1\na/3\n";
        let mut groups = Groups {
            folders: HashMap::new(),
            branches: Vec::new(),
            heading: 0,
            next: 1,
        };
        let got: Vec<u32> = text.lines().map(|line| groups.of(line)).collect();
        assert_eq!(got, [1, 1, 2, 1]);
        let tree = ["├── a", "│   ├── x", "│   └── y", "└── b", "    └── x"];
        let got: Vec<u32> = tree.iter().map(|line| groups.of(line)).collect();
        assert_eq!(got, [3, 4, 4, 3, 5]);
    }
}
