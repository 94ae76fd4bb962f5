//! What stays of the output of builds, tests and shells: how it ended, its totals, its errors with
//! their neighbours and tracebacks, then its head and tail. Never reads what it does not have to.

use memchr::memmem;

use super::lines::Lines;
use super::pick::{Plan, Wish, ends_first};
use super::severity::{SIGNS, Severity, severity};

/// A line of a log is cut if it has more bytes.
const LONGEST: usize = 1200;
/// A traceback is followed over so many lines.
const TRACE: usize = 120;
/// So many lines at the front of a traceback stay if the whole does not fit.
const TRACE_HEAD: usize = 4;
/// And so many at its end, where most languages name the cause.
const TRACE_TAIL: usize = 10;

/// So many ends and so many totals go before the errors.
const TOTALS: usize = 16;
/// So many warnings go before the head and the tail.
const WARNINGS: usize = 20;

/// The lines that say something, in the order of the text.
pub struct Told(pub Vec<(usize, Severity)>);

impl Told {
    /// Reads the lines that have a sign. All others are skipped at the speed of memory.
    pub fn of(lines: &Lines<'_>) -> Self {
        let bytes = lines.text().as_bytes();
        let mut found: Vec<usize> = Vec::new();
        for sign in SIGNS {
            let finder = memmem::Finder::new(sign);
            let mut at = 0;
            while let Some(hit) = bytes.get(at..).and_then(|rest| finder.find(rest)) {
                let line = lines.at(at.saturating_add(hit));
                found.push(line);
                // One sign a line is enough.
                at = lines.start(line.saturating_add(1));
            }
        }
        found.sort_unstable();
        found.dedup();
        let told = found
            .into_iter()
            .filter_map(|line| severity(lines.get(line)).map(|severity| (line, severity)));
        Self(told.collect())
    }

    pub fn of_kind(&self, want: Severity) -> Vec<usize> {
        let told = self.0.iter().filter(|(_, severity)| *severity == want);
        told.map(|(line, _)| *line).collect()
    }
}

/// What should stay of a log.
pub fn plan(lines: &Lines<'_>, told: &Told) -> Plan {
    let count = lines.count();
    let one = |line: usize| (line, line);
    let mut wishes: Vec<Wish> = Vec::new();
    // A log may end many commands, so only some ends and totals go before the errors.
    let exits = told.of_kind(Severity::Exit);
    let totals = told.of_kind(Severity::Summary);
    for told in [&exits, &totals] {
        wishes.extend(ends_first(told).take(TOTALS).map(one));
    }
    let traces = told.of_kind(Severity::Trace);
    let mut errors = told.of_kind(Severity::Error);
    errors.extend(&traces);
    errors.sort_unstable();
    wishes.extend(ends_first(&errors).map(one));
    wishes.extend(ends_first(&exits).chain(ends_first(&totals)).map(one));
    let ends = [0, count.saturating_sub(1), count.saturating_sub(2)];
    wishes.extend(ends.into_iter().map(one));
    let blocks: Vec<Wish> = traces
        .iter()
        .map(|line| (*line, trace_end(lines, *line)))
        .collect();
    wishes.extend(ends_first(&blocks));
    for (first, last) in ends_first(&blocks) {
        // Wishes for what is kept already cost nothing.
        wishes.push((first, last.min(first.saturating_add(TRACE_HEAD))));
        wishes.push((first.max(last.saturating_sub(TRACE_TAIL)), last));
    }
    for line in ends_first(&errors) {
        let before = line.checked_sub(1).map(one);
        let after = [1, 2].map(|step| one(line.saturating_add(step)));
        wishes.extend(before.into_iter().chain(after));
    }
    let warnings = told.of_kind(Severity::Warning);
    wishes.extend(ends_first(&warnings).take(WARNINGS).map(one));
    Plan {
        wishes,
        head: 1,
        tail: 2,
        longest: LONGEST,
        gap: 26,
    }
}

/// The last line of the traceback that begins at `first`: the lines that are indented, then the
/// line that names the error.
fn trace_end(lines: &Lines<'_>, first: usize) -> usize {
    let most = first
        .saturating_add(TRACE)
        .min(lines.count().saturating_sub(1));
    let indent = depth(lines.get(first));
    let python = lines.get(first).contains("Traceback");
    let mut last = first;
    for line in first.saturating_add(1)..=most {
        let text = lines.get(line);
        if text.trim().is_empty() {
            break;
        }
        last = line;
        if python && depth(text) <= indent {
            break;
        }
    }
    last
}

fn depth(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceback_ends_with_the_name_of_its_error() {
        let text = "a\nTraceback (most recent call last):\n  File \"a.py\", line 1\n    x()\nValueError: no\nb\n";
        let lines = Lines::new(text);
        let told = Told::of(&lines);
        assert_eq!(told.0, [(1, Severity::Trace), (4, Severity::Error)]);
        assert_eq!(trace_end(&lines, 1), 4);
    }
}
