//! Runs of whole lines of a text that stand in an earlier one as well: of a log that grew, a screen that scrolled, a
//! file that is read again after an edit. Pure functions of the two texts, in time that grows with their length
//! alone. Never says whether a run is worth anything.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;

/// Longer texts have no runs, in bytes.
pub const LONGEST: usize = 256 << 10;
/// The most runs of a text. Each one is looked up in the earlier text by itself.
const MOST: usize = 32;
/// At how many places of the earlier text a line is looked for.
const TRIES: usize = 4;
/// How many lines before a common line are looked at, to see whether they are common too.
const BACK: usize = 16;

/// The runs of lines of the newer text that have at least so many bytes and stand in the earlier one, in order, as
/// places in bytes. Each line of a run ends with a line break.
#[must_use]
pub fn runs(earlier: &str, newer: &str, least: usize) -> Vec<Range<usize>> {
    if earlier.len().max(newer.len()) > LONGEST {
        return Vec::new();
    }
    let old: Vec<&str> = lines(earlier).collect();
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in old.iter().enumerate() {
        let places = places.entry(line).or_default();
        if places.len() < TRIES {
            places.push(at);
        }
    }
    let new: Vec<&str> = newer.split_inclusive('\n').collect();
    let mut starts = vec![0];
    starts.extend(new.iter().scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    // What has no line break is shown, so that nobody has to guess whether it had one.
    let new: Vec<&str> = new
        .iter()
        .filter_map(|line| line.strip_suffix('\n'))
        .collect();
    let start = |line: usize| starts.get(line).copied().unwrap_or(newer.len());
    let (mut found, mut at, mut past) = (Vec::new(), 0, 0);
    while let Some(line) = new.get(at) {
        let tried = places.get(line).into_iter().flatten();
        let rest = new.get(at..).unwrap_or_default();
        let tried = tried.map(|place| (alike(old.get(*place..).unwrap_or_default(), rest), *place));
        let Some((length, place)) = tried.max_by_key(|(length, place)| (*length, Reverse(*place)))
        else {
            at += 1;
            continue;
        };
        let before = (at - past).min(place).min(BACK);
        let back = (1..=before).take_while(|back| old.get(place - back) == new.get(at - back));
        let run = start(at - back.count())..start(at + length);
        at += length;
        if run.len() >= least {
            found.push(run);
            past = at;
        }
    }
    found.sort_by_key(|run: &Range<usize>| Reverse(run.len()));
    found.truncate(MOST);
    found.sort_by_key(|run| run.start);
    found
}

/// How many lines two texts begin with alike.
fn alike(old: &[&str], new: &[&str]) -> usize {
    old.iter()
        .zip(new)
        .take_while(|(old, new)| old == new)
        .count()
}

/// Where a run of lines stands in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many lines stand before it.
    pub before: usize,
    /// How many lines it has.
    pub lines: usize,
}

/// A text in which runs of lines are looked up.
pub struct Earlier {
    /// The text between line breaks.
    text: String,
    /// How many lines it has.
    pub lines: usize,
}

impl Earlier {
    /// The text to look in.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        Self {
            text: ["\n", text, end].concat(),
            lines: lines(text).count(),
        }
    }

    /// Where a run of lines, each with its line break, stands first.
    #[must_use]
    pub fn place(&self, run: &str) -> Option<Place> {
        if !run.ends_with('\n') {
            return None;
        }
        let at = memmem::find(self.text.as_bytes(), ["\n", run].concat().as_bytes())?;
        let before = self.text.get(..at).unwrap_or_default();
        Some(Place {
            before: count(before),
            lines: count(run),
        })
    }
}

/// How many line breaks a text has.
fn count(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// The lines of a text without their line breaks. A carriage return is part of its line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split_inclusive('\n');
    lines.map(|line| line.strip_suffix('\n').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The runs of a text, and where each stands in the earlier one: lines before, and lines.
    fn found(earlier: &str, newer: &str, least: usize) -> Vec<(Range<usize>, usize, usize)> {
        let before = Earlier::new(earlier);
        let placed = |run: Range<usize>| {
            let place = before.place(&newer[run.clone()]).unwrap();
            (run, place.before, place.lines)
        };
        runs(earlier, newer, least)
            .into_iter()
            .map(placed)
            .collect()
    }

    #[test]
    fn a_text_that_grew_scrolled_or_was_edited_has_runs_of_the_earlier_one() {
        for (earlier, newer, expect) in [
            // It grew, whether or not the earlier one ended with a line break.
            ("a\nb\n", "a\nb\nc\n", vec![(0..4, 0, 2)]),
            ("a\nb", "a\nb\nc", vec![(0..4, 0, 2)]),
            // It scrolled.
            ("a\nb\nc\n", "b\nc\nd", vec![(0..4, 1, 2)]),
            // The prompt was written on.
            ("a\nb\n$ ", "a\nb\n$ ls\nc", vec![(0..4, 0, 2)]),
            // A line of it was changed, left out, or put in.
            ("a\nb\nc\n", "a\nx\nc\n", vec![(0..2, 0, 1), (4..6, 2, 1)]),
            ("a\nb\nc\n", "a\nc\n", vec![(0..2, 0, 1), (2..4, 2, 1)]),
            ("a\nb\n", "a\nx\nb\n", vec![(0..2, 0, 1), (4..6, 1, 1)]),
            // A part of it, or all.
            ("a\nb\nc\nd\n", "b\nc\n", vec![(0..4, 1, 2)]),
            ("a\nb\n", "a\nb\n", vec![(0..4, 0, 2)]),
            // What has no line break is no part of a run.
            ("a\nb\nc", "b\nc", vec![(0..2, 1, 1)]),
            ("a\n", "a", vec![]),
            // What ends in the midst of a line is no line.
            ("az\nzb\n", "a\nb\n", vec![]),
            // The longest place counts, and of those the first.
            ("a\nx\na\nb\n", "a\nb\n", vec![(0..4, 2, 2)]),
            ("a\na\na\n", "a\na\n", vec![(0..4, 0, 2)]),
            ("}\n}\nx\n", "y\n}\nx\n", vec![(2..6, 1, 2)]),
            // A carriage return is part of its line.
            ("a\r\nb\r\n", "a\r\nb\nc", vec![(0..3, 0, 1)]),
            ("ä\nö\n", "ä\nö\nü", vec![(0..6, 0, 2)]),
            ("\n\n", "\n\n\nx", vec![(0..2, 0, 2), (2..3, 0, 1)]),
            ("", "a\nb\n", vec![]),
            ("a\nb", "", vec![]),
        ] {
            assert_eq!(found(earlier, newer, 1), expect, "{earlier:?} {newer:?}");
        }
        assert_eq!(found("a\nb\nc\n", "a\nx\nb\nc\n", 3), [(4..8, 1, 2)]);
        // Lines before a run belong to it where they are common too.
        let braces = "}\n".repeat(6);
        let edited = found(&format!("{braces}x\n"), "y\n}\n}\nx\n", 5);
        assert_eq!(edited, [(2..8, 4, 3)]);
    }

    #[test]
    fn lines_that_stand_nowhere_have_no_place() {
        let earlier = Earlier::new("ab\nb\n\nc");
        assert_eq!(earlier.lines, 4);
        for (run, expect) in [
            ("ab\nb\n", Some((0, 2))),
            ("b\n", Some((1, 1))),
            ("\n", Some((2, 1))),
            ("c\n", Some((3, 1))),
            ("\nc\n", Some((2, 2))),
            ("c\n\n", None),
            ("b\nc\n", None),
            ("ab", None),
            ("", None),
        ] {
            let place = earlier.place(run).map(|place| (place.before, place.lines));
            assert_eq!(place, expect, "{run:?}");
        }
    }

    /// Texts whose lines repeat again and again are the worst case of a search that begins anew at each
    /// place: this test would take hours with one.
    #[test]
    fn equal_lines_are_read_once() {
        let (same, long) = ("\n".repeat(120 << 10), "abc\n".repeat(30 << 10));
        for text in [&same, &long] {
            let newer = format!("{text}x\n{text}");
            let all = [0..text.len(), text.len() + 2..newer.len()];
            assert_eq!(runs(text, &newer, 100), all);
            let parts = format!("{}x\n", &text[..400]).repeat(600);
            assert_eq!(runs(text, &parts, 500), [] as [Range<usize>; 0]);
            assert_eq!(runs(text, &parts, 100).len(), MOST);
            assert!(runs(&text.repeat(3), text, 1).is_empty());
        }
    }

    proptest! {
        /// What is shown between the runs, and the lines of the earlier text in their places, are the newer text.
        #[test]
        fn nothing_is_lost(
            earlier in "([ab$]{0,3}\n){0,9}[ab$]{0,3}",
            newer in "([ab$]{0,3}\n){0,9}[ab$]{0,3}",
            least in 1_usize..6,
        ) {
            let mut text = String::new();
            let mut shown = 0;
            for (run, before, lines) in found(&earlier, &newer, least) {
                prop_assert!(run.len() >= least && run.start >= shown);
                text.push_str(&newer[shown..run.start]);
                let old = earlier.lines().skip(before).take(lines);
                text.extend(old.flat_map(|line| [line, "\n"]));
                shown = run.end;
            }
            text.push_str(&newer[shown..]);
            prop_assert_eq!(text, newer);
        }

        /// What a text has whole in common with the earlier one is one run.
        #[test]
        fn a_part_of_the_earlier_text_is_one_run(
            earlier in prop::collection::vec("[a-z]{6}", 1..20),
            from in 0_usize..19,
            to in 1_usize..20,
        ) {
            let (from, to) = (from.min(earlier.len() - 1), to.min(earlier.len()));
            let part: String = earlier.get(from..to).unwrap_or_default()
                .iter().flat_map(|line| [line, "\n"]).collect();
            let all = format!("{}\n", earlier.join("\n"));
            let expect: Vec<Range<usize>> = (!part.is_empty()).then_some(0..part.len()).into_iter().collect();
            prop_assert_eq!(runs(&all, &part, 1), expect);
        }
    }
}
