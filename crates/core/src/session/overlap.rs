//! Where a text goes on from an earlier one: a log that grew, or a screen that scrolled. The first lines of
//! the newer text are then lines at the end of the earlier one. Whole lines only. Pure functions of the two
//! texts, in time that grows with their length alone. Never says whether an overlap is worth anything.

/// How many of the last lines of the earlier text may be left out: on a screen the line of the prompt is
/// written on, and so may be a line of state below it.
const LOOSE: usize = 2;

/// The lines that two texts share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// How many lines there are.
    pub lines: usize,
    /// How many bytes of the newer text they are, with their line breaks.
    pub bytes: usize,
    /// How many lines stand before them in the earlier text.
    pub before: usize,
    /// How many lines the earlier text has.
    pub of: usize,
}

/// The longest overlap of two texts. At least the last line of the newer text is never part of it, so each
/// line that is part of it ends with a line break there.
#[must_use]
pub fn longest(earlier: &str, newer: &str) -> Option<Overlap> {
    let mut pattern: Vec<&str> = lines(newer).collect();
    pattern.pop();
    let all: Vec<&str> = lines(earlier).collect();
    // An overlap is no longer than the newer text.
    let from = all
        .len()
        .saturating_sub(pattern.len().saturating_add(LOOSE));
    let borders = borders(&pattern);
    let mut best: Option<Overlap> = None;
    let mut matched = 0;
    for (at, line) in all.iter().enumerate().skip(from) {
        matched = advance(&pattern, &borders, matched, line);
        let rest = all.len().saturating_sub(at).saturating_sub(1);
        // Of overlaps of one length the last counts, as `at` finds it.
        if rest <= LOOSE && matched > 0 && best.is_none_or(|best| best.lines <= matched) {
            let shared = pattern.iter().take(matched);
            best = Some(Overlap {
                lines: matched,
                bytes: shared.map(|line| line.len().saturating_add(1)).sum(),
                before: at.saturating_add(1).saturating_sub(matched),
                of: all.len(),
            });
        }
    }
    best
}

/// The overlap that has so many bytes of the newer text. `None` if the texts have none, or none any more.
#[must_use]
pub fn at(earlier: &str, newer: &str, bytes: usize) -> Option<Overlap> {
    let (shared, rest) = newer.split_at_checked(bytes)?;
    let both = !rest.is_empty() && !earlier.is_empty();
    let text = shared.strip_suffix('\n').filter(|_| both)?;
    let mut end = earlier.strip_suffix('\n').unwrap_or(earlier);
    for _ in 0..=LOOSE {
        let before = end.strip_suffix(text);
        if let Some(before) = before.filter(|text| text.is_empty() || text.ends_with('\n')) {
            return Some(Overlap {
                lines: lines(shared).count(),
                bytes,
                before: lines(before).count(),
                of: lines(earlier).count(),
            });
        }
        (end, _) = end.rsplit_once('\n')?;
    }
    None
}

/// The lines of a text without their line breaks. A carriage return is part of its line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split_inclusive('\n');
    lines.map(|line| line.strip_suffix('\n').unwrap_or(line))
}

/// For each line of a text, how many lines up to it are also its first ones (Knuth, Morris and Pratt).
fn borders(pattern: &[&str]) -> Vec<usize> {
    let mut borders = Vec::with_capacity(pattern.len());
    let mut matched = 0;
    for (at, line) in pattern.iter().enumerate() {
        if at > 0 {
            matched = advance(pattern, &borders, matched, line);
        }
        borders.push(matched);
    }
    borders
}

/// How many of the first lines of a text end with this line, where so many ended with the line before it.
fn advance(pattern: &[&str], borders: &[usize], mut matched: usize, line: &str) -> usize {
    loop {
        if pattern.get(matched) == Some(&line) {
            return matched.saturating_add(1);
        }
        let Some(shorter) = matched.checked_sub(1).and_then(|last| borders.get(last)) else {
            return 0;
        };
        matched = *shorter;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines, bytes, lines before and all lines of the longest overlap.
    fn found(earlier: &str, newer: &str) -> Option<(usize, usize, usize, usize)> {
        let found = longest(earlier, newer)?;
        Some((found.lines, found.bytes, found.before, found.of))
    }

    #[test]
    fn a_text_that_grew_or_scrolled_begins_as_the_earlier_one_ends() {
        for (earlier, newer, expect) in [
            // It grew, whether or not the earlier one ended with a line break.
            ("a\nb\n", "a\nb\nc\n", Some((2, 4, 0, 2))),
            ("a\nb", "a\nb\nc", Some((2, 4, 0, 2))),
            // It scrolled.
            ("a\nb\nc\n", "b\nc\nd", Some((2, 4, 1, 3))),
            // The prompt was written on.
            ("a\nb\n$ ", "a\nb\n$ ls\nc", Some((2, 4, 0, 3))),
            ("x\na\nb\n$\n", "a\nb\n$ ls\nc", Some((2, 4, 1, 4))),
            ("a\n$ \n\n", "a\n$ ls\nc", Some((1, 2, 0, 3))),
            // What ends too early, or in the midst of a line, is no end.
            ("a\n1\n2\n3\n", "a\nb\n", None),
            ("za\nb\n", "a\nb\nc\n", None),
            ("a\nbz", "a\nb\nc", Some((1, 2, 0, 2))),
            // One line of the newer text is always shown.
            ("a\nb\nc\n", "b\nc\n", Some((1, 2, 1, 3))),
            ("a\nb\n", "a\nb\n", Some((1, 2, 0, 2))),
            ("a", "a\n", None),
            ("a\n", "a", None),
            // The longest counts, and of those the last.
            ("a\na\na\n", "a\na\nb", Some((2, 4, 1, 3))),
            ("\n\n\n\n", "\n\nx", Some((2, 2, 2, 4))),
            // A carriage return is part of its line.
            ("a\r\nb", "a\r\nb\r\nc", Some((1, 3, 0, 2))),
            ("a\r\nb\r\n", "a\r\nb\r\nc", Some((2, 6, 0, 2))),
            ("ä\nö\n", "ä\nö\nü", Some((2, 6, 0, 2))),
            ("", "a\nb", None),
            ("a\nb", "", None),
        ] {
            assert_eq!(found(earlier, newer), expect, "{earlier:?} {newer:?}");
        }
    }

    #[test]
    fn an_overlap_that_is_no_more_is_not_found() {
        assert!(at("a\nb\n", "a\nb\nc", 4).is_some());
        for (earlier, newer, bytes) in [
            ("a\nB\n", "a\nb\nc", 4),
            ("a\nb\n", "a\nb\nc", 3),
            ("a\nb\n", "a\nb\nc", 0),
            ("a\nb\n", "a\nb\n", 4),
            ("a\nb\n", "a\nb\nc", 99),
            ("ab\nb\n", "b\nb\nc", 4),
            ("ä\n", "ä\nb", 1),
            ("", "a\nb", 2),
        ] {
            assert_eq!(
                at(earlier, newer, bytes),
                None,
                "{earlier:?} {newer:?} {bytes}"
            );
        }
    }

    /// Texts whose lines repeat again and again are the worst case of a search that begins anew at each
    /// place: this test would take hours with one.
    #[test]
    fn a_megabyte_of_equal_lines_is_read_once() {
        let (same, long) = ("\n".repeat(1 << 20), "abc\n".repeat(1 << 18));
        for text in [&same, &long] {
            let newer = format!("{text}x\n{text}");
            assert_eq!(longest(text, &newer).map(|one| one.bytes), Some(text.len()));
            let ends = format!("{text}y\ny\ny\n");
            assert_eq!(longest(&ends, &newer), None);
        }
    }

    proptest! {
        /// Against a search that tries all lengths, over texts of few different lines.
        #[test]
        fn the_longest_is_what_trying_all_lengths_finds(
            earlier in "[ab\n]{0,14}",
            newer in "[ab\n]{0,14}",
        ) {
            let all = (0..=newer.len()).rev().filter_map(|bytes| at(&earlier, &newer, bytes));
            prop_assert_eq!(longest(&earlier, &newer), all.into_iter().next());
        }

        /// The earlier text and the rest give the newer one.
        #[test]
        fn nothing_is_lost(
            earlier in "([ab$]{0,3}\n){0,9}[ab$]{0,3}",
            from in 0_usize..9,
            more in "[ab$]{0,3}(\n[ab$]{0,3}){0,5}",
        ) {
            let kept: String = earlier.split_inclusive('\n').skip(from).collect();
            let newer = format!("{kept}{more}");
            if let Some(found) = longest(&earlier, &newer) {
                let shared = earlier.split('\n').skip(found.before).take(found.lines);
                let shared: String = shared.flat_map(|line| [line, "\n"]).collect();
                prop_assert_eq!(&format!("{shared}{}", &newer[found.bytes..]), &newer);
                prop_assert_eq!(at(&earlier, &newer, found.bytes), Some(found));
                prop_assert_eq!(earlier.lines().count(), found.of);
            }
        }
    }
}
