//! The rows of a diff: its files, hunks and changed lines. A line of a hunk is known by the counts
//! in the head of its hunk, so a removed `-- comment` is no file name. Never applies a diff.

use super::lines::Lines;
use super::pick::{Plan, Wish};

/// A line of a diff is cut if it has more bytes.
const LONGEST: usize = 600;
/// So many lines before the first file stay, such as the head of a commit.
const PREFACE: usize = 12;

/// What one line of a diff is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The first line about a file.
    File,
    /// That a file is new, deleted, renamed or binary.
    Fate,
    /// Other lines about a file.
    Meta,
    Hunk,
    Added,
    Removed,
    Same,
    /// A line of the summary.
    Stat,
    Other,
}

/// Lines that a hunk still has to come, before and after the change.
#[derive(Clone, Copy, Default)]
struct Left {
    old: u32,
    new: u32,
}

/// The rows of a text that may be a diff.
pub fn rows(lines: &Lines<'_>) -> Vec<Row> {
    let mut out = Vec::with_capacity(lines.count());
    let mut left = Left::default();
    // Whether a file has been named whose `---` line is still to come.
    let mut named = false;
    for at in 0..lines.count() {
        let line = lines.get(at);
        let row = body(line, &mut left).unwrap_or_else(|| {
            left = hunk(line).unwrap_or_default();
            outside(line, lines.get(at.saturating_add(1)), &mut named)
        });
        out.push(row);
    }
    out
}

/// Reads a line inside a hunk. `None` if the hunk is over.
fn body(line: &str, left: &mut Left) -> Option<Row> {
    let first = line.as_bytes().first();
    if first == Some(&b'\\') {
        return Some(Row::Same);
    }
    if left.old == 0 && left.new == 0 {
        return None;
    }
    match first {
        Some(b'+') => {
            left.new = left.new.checked_sub(1)?;
            Some(Row::Added)
        }
        Some(b'-') => {
            left.old = left.old.checked_sub(1)?;
            Some(Row::Removed)
        }
        Some(b' ') | None => {
            left.old = left.old.saturating_sub(1);
            left.new = left.new.saturating_sub(1);
            Some(Row::Same)
        }
        Some(_) => None,
    }
}

/// The counts in `@@ -1,5 +1,7 @@`.
fn hunk(line: &str) -> Option<Left> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |range: &str| match range.split_once(',') {
        Some((_, count)) => count.parse().ok(),
        None => Some(1),
    };
    Some(Left {
        old: count(old)?,
        new: count(new)?,
    })
}

fn outside(line: &str, next: &str, named: &mut bool) -> Row {
    let starts = |list: &[&str]| list.iter().any(|prefix| line.starts_with(prefix));
    if hunk(line).is_some() {
        *named = false;
        return Row::Hunk;
    }
    if starts(&["diff --git ", "diff --cc ", "Index: "]) {
        *named = true;
        return Row::File;
    }
    if line.starts_with("--- ") && next.starts_with("+++ ") && !*named {
        return Row::File;
    }
    if starts(&[
        "--- ",
        "+++ ",
        "index ",
        "old mode ",
        "new mode ",
        "similarity ",
    ]) {
        return Row::Meta;
    }
    if starts(&[
        "new file",
        "deleted file",
        "rename ",
        "copy ",
        "Binary files ",
    ]) {
        return Row::Fate;
    }
    let text = line.trim_end();
    let bar = text.contains(" | ") && text.ends_with(['+', '-']);
    let total = text.contains(" changed, ") && text.contains(" file");
    if bar || total { Row::Stat } else { Row::Other }
}

/// Whether most lines belong to a diff.
pub fn is_diff(rows: &[Row]) -> bool {
    let has = |want: Row| rows.contains(&want);
    let others = rows.iter().filter(|row| **row == Row::Other).count();
    has(Row::Hunk) && has(Row::File) && others.saturating_mul(2) <= rows.len()
}

/// Lines that a run of rows adds and removes.
pub fn changes(rows: &[Row]) -> (usize, usize) {
    let count = |want: Row| rows.iter().filter(|row| **row == want).count();
    (count(Row::Added), count(Row::Removed))
}

/// Files, what became of them, hunk heads, the summary, then bodies from the first hunk on.
pub fn plan(rows: &[Row], mut wishes: Vec<Wish>) -> Plan {
    let of = |want: Row| {
        let rows = rows.iter().enumerate();
        rows.filter(move |(_, row)| **row == want)
            .map(|(at, _)| (at, at))
    };
    wishes.extend(of(Row::File));
    wishes.extend(of(Row::Fate));
    wishes.extend(of(Row::Hunk));
    wishes.extend(of(Row::Stat));
    let file = rows.iter().position(|row| *row == Row::File);
    let preface = file.unwrap_or_default().min(PREFACE);
    wishes.extend((0..preface).map(|at| (at, at)));
    wishes.extend(of(Row::Meta));
    Plan {
        wishes,
        head: 1,
        tail: 0,
        longest: LONGEST,
        gap: 36,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_line_of_dashes_is_no_file() {
        let text = "diff --git a/q.sql b/q.sql\nindex 1..2 100644\n--- a/q.sql\n+++ b/q.sql\n\
            @@ -1,3 +1,2 @@\n-- old\n--- a comment\n+++ b\n same\n\\ No newline at end of file\n";
        let rows = rows(&Lines::new(text));
        use Row::{Added, File, Hunk, Meta, Removed, Same};
        let want = [
            File, Meta, Meta, Meta, Hunk, Removed, Removed, Added, Same, Same,
        ];
        assert!(rows == want);
        assert_eq!(changes(&rows), (1, 2));
        assert!(is_diff(&rows));
    }

    #[test]
    fn a_summary_and_plain_heads_are_known() {
        let text = " a.rs | 12 +++--\n 1 file changed, 2 insertions(+)\n--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-a\n+b\n";
        let rows = rows(&Lines::new(text));
        assert!(rows[..3] == [Row::Stat, Row::Stat, Row::File]);
        assert!(is_diff(&rows));
    }
}
