//! The text that a clip shows: a head line, what stays, and a line at each gap that says what is
//! missing there. A pure function of the original, the spans and the shape. Never chooses.

use std::fmt::Write as _;

use plimsoll_model::{ResultShape, grouped};

use super::lines::Span;
use super::scan::{Kind, Scan, sound};

/// The text that is shown in place of `original`. `id`, such as `bash:12`, is what the recall tool
/// takes, and `tokens` is the size of the original as people read it.
#[must_use]
pub fn written(
    id: &str,
    tokens: &str,
    shape: ResultShape,
    spans: &[(u32, u32)],
    original: &str,
) -> String {
    render(id, tokens, &Scan::of(shape, original), spans)
}

/// How many lines a text has.
pub fn total(text: &str) -> usize {
    let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let open = !text.is_empty() && !text.ends_with('\n');
    breaks.saturating_add(usize::from(open))
}

/// What is missing at one gap.
enum Gap<'a> {
    /// Bytes within a line, or a gap that no shape would make.
    Bytes(usize),
    Lines(usize),
    Matches {
        matches: usize,
        files: usize,
        name: &'a str,
        lines: usize,
    },
    Items(usize),
}

/// What is missing at all gaps.
#[derive(Default)]
struct Missing {
    bytes: usize,
    lines: usize,
    /// Matches, entries or items.
    units: usize,
}

/// Writes a clip of a text that has been read.
pub fn render(id: &str, tokens: &str, scan: &Scan<'_>, spans: &[Span]) -> String {
    let text = scan.lines.text();
    let mut body = String::new();
    let mut missing = Missing::default();
    let mut end = 0_usize;
    for (start, past) in sound(text, spans) {
        let (start, past) = (start as usize, past as usize);
        if start > end {
            mark(&mut body, scan, (end, start), &mut missing);
        }
        body.push_str(text.get(start..past).unwrap_or_default());
        end = past;
    }
    if end < text.len() {
        mark(&mut body, scan, (end, text.len()), &mut missing);
        // Nothing follows the last gap, so it needs no line break.
        body.pop();
    }
    let shown = shown(scan, &missing);
    format!("[clipped {id}, {tokens} tokens: {shown} shown]\n{body}")
}

/// Adds the line that stands at a gap.
fn mark(body: &mut String, scan: &Scan<'_>, (start, end): (usize, usize), missing: &mut Missing) {
    let gap = gap(scan, start, end);
    missing.add(&gap, end.saturating_sub(start));
    if !body.is_empty() && !body.ends_with('\n') {
        body.push('\n');
    }
    body.push_str("[… ");
    gap.write(body, scan);
    body.push_str("]\n");
}

fn gap<'a>(scan: &Scan<'a>, start: usize, end: usize) -> Gap<'a> {
    if let Kind::Json(items) = &scan.kind {
        let count = items.within(start, end);
        return count.map_or(Gap::Bytes(end.saturating_sub(start)), Gap::Items);
    }
    let ends = (scan.lines.beginning(start), scan.lines.beginning(end));
    let (Some(first), Some(past)) = ends else {
        return Gap::Bytes(end.saturating_sub(start));
    };
    let lines = past.saturating_sub(first);
    match &scan.kind {
        Kind::Search(search) => match search.within(first, past) {
            (0, ..) => Gap::Lines(lines),
            (matches, files, name) => Gap::Matches {
                matches,
                files,
                name,
                lines,
            },
        },
        Kind::Log(_) | Kind::Lines | Kind::Json(_) => Gap::Lines(lines),
    }
}

impl Missing {
    fn add(&mut self, gap: &Gap<'_>, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        let (lines, units) = match gap {
            Gap::Bytes(_) => (0, 0),
            Gap::Lines(lines) => (*lines, 0),
            Gap::Matches { matches, lines, .. } => (*lines, *matches),
            Gap::Items(items) => (0, *items),
        };
        self.lines = self.lines.saturating_add(lines);
        self.units = self.units.saturating_add(units);
    }
}

impl Gap<'_> {
    fn write(&self, out: &mut String, scan: &Scan<'_>) {
        let done = match self {
            Gap::Bytes(bytes) => write!(out, "{} left out", counted(*bytes, "byte", "bytes")),
            Gap::Lines(lines) => write!(out, "{} left out", counted(*lines, "line", "lines")),
            Gap::Items(items) => {
                let all = match &scan.kind {
                    Kind::Json(all) => all.count(),
                    _ => *items,
                };
                let all = counted(all, "item", "items");
                write!(out, "{} of {all} left out", grouped(*items))
            }
            Gap::Matches {
                matches,
                files,
                name,
                lines,
            } => {
                let done = write!(out, "{}", counted(*matches, "more match", "more matches"));
                if *files > 1 {
                    let _ = write!(out, " in {} files", grouped(*files));
                } else if !name.is_empty() {
                    let _ = write!(out, " in {name}");
                }
                beside(out, *matches, *lines);
                done
            }
        };
        // Writing to a string does not fail.
        let _ = done;
    }
}

/// Says how many lines a gap has where that is not the number of its units.
fn beside(out: &mut String, units: usize, lines: usize) {
    if units != lines {
        let _ = write!(out, " ({})", counted(lines, "line", "lines"));
    }
}

/// How much of a text is shown, such as `40 of 5,000 lines`.
fn shown(scan: &Scan<'_>, missing: &Missing) -> String {
    let of = |missing: usize, all: usize, name: &str| {
        let rest = all.saturating_sub(missing);
        format!("{} of {} {name}", grouped(rest), grouped(all))
    };
    let lines = scan.lines.count();
    match &scan.kind {
        Kind::Json(items) if missing.units > 0 => of(missing.units, items.count(), "items"),
        Kind::Search(search) if missing.units > 0 => of(missing.units, search.count(), "matches"),
        _ if missing.lines == 0 => of(missing.bytes, scan.lines.text().len(), "bytes"),
        _ => of(missing.lines, lines, "lines"),
    }
}

/// A number with its unit.
fn counted(number: usize, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_stands_at_the_gap() {
        let text = "one\ntwo\nthree\nfour";
        assert_eq!(
            written("bash:1", "9", ResultShape::Plain, &[(0, 4), (8, 14)], text),
            "[clipped bash:1, 9 tokens: 2 of 4 lines shown]\n\
             one\n[… 1 line left out]\nthree\n[… 1 line left out]"
        );
        assert_eq!(
            written("bash:1", "9", ResultShape::Plain, &[(0, 6), (10, 18)], text),
            "[clipped bash:1, 9 tokens: 14 of 18 bytes shown]\n\
             one\ntw\n[… 4 bytes left out]\nree\nfour"
        );
    }

    #[test]
    fn no_spans_make_it_panic() {
        let text = "äöü\nb\n";
        let wild = [
            vec![],
            vec![(1, 3), (0, 9)],
            vec![(9, 2)],
            vec![(0, 99), (3, 4)],
            vec![(7, 7), (8, 9)],
        ];
        for shape in [ResultShape::Plain, ResultShape::Json, ResultShape::Search] {
            for spans in &wild {
                assert!(written("a:1", "1", shape, spans, text).starts_with("[clipped a:1, "));
                assert!(written("a:1", "1", shape, spans, "").starts_with("[clipped a:1, "));
            }
        }
    }
}
