//! Tells the shape of a result from its text. Never asks which tool gave it, and never clips.

use plimsoll_model::ResultShape;

use super::json::Items;
use super::lines::Lines;
use super::log::Told;
use super::scan::{Kind, Scan};
use super::search::{self, Hit, Search};
use super::severity::{Severity, is_fine};

/// So many lines are looked at in each of three places.
const WINDOW: usize = 200;
/// A line is looked at up to this byte.
const SEEN: usize = 1000;

/// Reads a text and tells its shape.
pub fn detect(text: &str) -> (ResultShape, Scan<'_>) {
    let lines = Lines::new(text);
    let (shape, kind) = kind(&lines);
    (shape, Scan { lines, kind })
}

/// So many lines beside each match, on the mean, are what was asked for, such as six on either side: the search is then a way
/// to read.
const READING: usize = 12;

/// Whether a search shows so much of what stands around its matches that it was made to read that.
pub fn is_reading(search: &str) -> bool {
    let seen = Seen::of(&Lines::new(search));
    let beside = seen
        .contexts
        .saturating_add(seen.short.saturating_sub(seen.colons));
    let matches = seen.matches.saturating_add(seen.colons);
    matches > 0 && beside >= matches.saturating_mul(READING)
}

fn kind<'a>(lines: &Lines<'a>) -> (ResultShape, Kind<'a>) {
    if let Some(items) = Items::of(lines.text()) {
        return (ResultShape::Json, Kind::Json(items));
    }
    let seen = Seen::of(lines);
    if seen.is_numbered() && !seen.is_search_of_one_file() {
        return (ResultShape::Plain, Kind::Lines);
    }
    if seen.is_search() {
        return (ResultShape::Search, Kind::Search(Search::of(lines)));
    }
    let told = Told::of(lines);
    if seen.is_log(lines, &told) {
        return (ResultShape::Log, Kind::Log(Some(told)));
    }
    (ResultShape::Plain, Kind::Lines)
}

/// What the sampled lines are.
#[derive(Default)]
struct Seen {
    lines: usize,
    matches: usize,
    /// Matches without a path, and all lines with a number but no path.
    colons: usize,
    short: usize,
    contexts: usize,
    headings: usize,
    /// Lines that begin with the number after that of the line before.
    numbered: usize,
    code: usize,
    /// Headings, lists, tables and fences.
    markdown: usize,
    /// Lines about tests that run or pass.
    fine: usize,
}

impl Seen {
    /// Samples the front, the middle and the end.
    fn of(lines: &Lines<'_>) -> Self {
        let count = lines.count();
        let mut seen = Self::default();
        let mut from = 0;
        for place in [
            0,
            (count / 2).saturating_sub(WINDOW / 2),
            count.saturating_sub(WINDOW),
        ] {
            let first = place.max(from);
            let past = first.saturating_add(WINDOW).min(count);
            let mut last = None;
            for at in first..past {
                seen.add(lines, at, &mut last);
            }
            from = past;
        }
        seen
    }

    fn add(&mut self, lines: &Lines<'_>, at: usize, last: &mut Option<u64>) {
        let whole = lines.get(at);
        let line = whole
            .get(..whole.floor_char_boundary(SEEN))
            .unwrap_or(whole);
        let text = line.trim();
        if text.is_empty() || text == "--" || is_wrapper(text) {
            return;
        }
        let one = |yes: bool| usize::from(yes);
        self.lines = self.lines.saturating_add(1);
        match search::hit(line) {
            Some(Hit::Match(_)) => self.matches = self.matches.saturating_add(1),
            Some(Hit::Context) => self.contexts = self.contexts.saturating_add(1),
            None => {
                let short = search::short(line).is_some();
                self.colons = self
                    .colons
                    .saturating_add(one(search::short(line) == Some(true)));
                let heading = search::is_path(line)
                    && search::short(lines.get(at.saturating_add(1))).is_some();
                self.short = self.short.saturating_add(one(short));
                self.headings = self.headings.saturating_add(one(heading && !short));
            }
        }
        let number = number(text);
        let next = last.map(|last| last.saturating_add(1));
        self.numbered = self
            .numbered
            .saturating_add(one(number.is_some() && number == next));
        *last = number.or(*last);
        let marks = [
            "# ", "## ", "### ", "```", "- ", "* ", "**", "1. ", "2. ", "3. ", "| ",
        ];
        let marked = marks.iter().any(|mark| text.starts_with(mark));
        self.markdown = self.markdown.saturating_add(one(marked));
        self.fine = self.fine.saturating_add(one(is_fine(text)));
        self.code = self
            .code
            .saturating_add(one(text.ends_with(['{', '}', ';', ','])));
    }

    /// How many of a hundred lines `count` are.
    fn share(&self, count: usize) -> usize {
        let hundred = count.saturating_mul(100);
        hundred.checked_div(self.lines).unwrap_or_default()
    }

    /// Whether it is a file with line numbers: they count up one by one.
    fn is_numbered(&self) -> bool {
        self.lines >= 4 && self.share(self.numbered) >= 60
    }

    /// Whether it is a search of one file with context: `12:match` and `13-context`.
    fn is_search_of_one_file(&self) -> bool {
        self.colons > 0 && self.short > self.colons && self.share(self.short) >= 90
    }

    fn is_search(&self) -> bool {
        if self.is_search_of_one_file() {
            return true;
        }
        let long = self.matches.saturating_add(self.contexts);
        let short = self.short.saturating_add(self.headings);
        let all = self.share(long.saturating_add(short));
        let matches = self.matches > 0 || self.headings > 0 || self.share(self.colons) >= 60;
        matches && self.lines >= 2 && all >= 60
    }

    /// Whether lines say how something ended or failed, and the text is no source.
    fn is_log(&self, lines: &Lines<'_>, told: &Told) -> bool {
        let count = |want: Severity| {
            let told = told.0.iter();
            told.filter(|(_, severity)| *severity == want).count()
        };
        let totals = count(Severity::Summary);
        let (traces, errors) = (count(Severity::Trace), count(Severity::Error));
        let bad = errors.saturating_add(count(Severity::Warning));
        let dense = bad > 0 && bad.saturating_mul(30) >= self.lines;
        // A harness may tell the code of whatever ran, so only a failure says something.
        let failed = |line: &usize| {
            lines
                .get(*line)
                .contains(|c: char| ('1'..='9').contains(&c))
        };
        let sure = totals > 0
            || traces > 0
            || self.share(self.fine) >= 10
            || told.of_kind(Severity::Exit).iter().any(failed);
        let source = self.share(self.code) >= 25;
        // A report in prose may quote failures.
        self.share(self.markdown) < 15 && (sure || (dense && !source))
    }
}

/// Whether a line is only the frame that a harness puts around an output.
fn is_wrapper(text: &str) -> bool {
    let tag = text.starts_with('<') && text.ends_with('>') && !text.contains(' ');
    let signs = ["Exit code", "(Results are truncated"];
    tag || signs.iter().any(|sign| text.starts_with(sign))
}

/// The number that begins a line of a numbered file.
fn number(text: &str) -> Option<u64> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let marked = rest.is_empty() || rest.starts_with(['\t', '→', ':', '|', ' ', '-']);
    let digits = text.get(..text.len().saturating_sub(rest.len()))?;
    marked.then(|| digits.parse().ok()).flatten()
}
