//! A strict reader of written clips: checks that what is shown and what is said to be left out are
//! the original together. It counts for itself and shares no code with the clip.

use plimsoll_core::clip::Clip;
use plimsoll_model::ResultShape;

/// A count that is no simple share of the bytes: letters, digits, signs and white space differ.
pub fn tokens(text: &str) -> u32 {
    let kind = |c: char| match c {
        c if c.is_alphabetic() => 0,
        c if c.is_numeric() => 1,
        c if c.is_whitespace() => 2,
        _ => 3,
    };
    let mut out = 0_usize;
    let (mut last, mut run) = (9, 0_usize);
    let mut end = |last: u8, run: usize| match last {
        0 => out += run.div_ceil(6),
        1 => out += run.div_ceil(3),
        2 => out += usize::from(run > 1),
        3 => out += run.div_ceil(2),
        _ => {}
    };
    for c in text.chars() {
        let now = kind(c);
        if now == last {
            run += 1;
        } else {
            end(last, run);
            (last, run) = (now, 1);
        }
    }
    end(last, run);
    u32::try_from(out).unwrap()
}

/// The lines of a text; the last need not end.
pub fn lines(text: &str) -> usize {
    text.split_inclusive('\n').count()
}

/// The lines that name something.
fn entries(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

/// The numbers of a text, without the commas between their thousands.
fn numbers(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    let mut digits = String::new();
    for c in text.chars().chain([' ']) {
        match c {
            '0'..='9' => digits.push(c),
            ',' if !digits.is_empty() => {}
            _ => out.extend(std::mem::take(&mut digits).parse::<usize>().ok()),
        }
    }
    out
}

/// Reads a written clip. Panics if anything in it is not so.
pub fn read(text: &str, clip: &Clip, written: &str) {
    let (head, mut rest) = written.split_once('\n').unwrap_or((written, ""));
    let prefix = "[clipped bash:12, 8.1k tokens: ";
    let said = head.strip_prefix(prefix).unwrap().strip_suffix(" shown]");
    let said = said.unwrap_or_else(|| panic!("{head}"));
    let (mut missing, mut bytes, mut lines_missing) = (0, 0, 0);
    let mut end = 0;
    let whole = text.len();
    let spans = clip
        .spans
        .iter()
        .map(|span| (span.0 as usize, span.1 as usize));
    for (start, past) in spans.chain([(whole, whole)]) {
        assert!(
            start >= end && past >= start && past <= whole,
            "span out of order"
        );
        assert!(start < past || start == whole, "empty span");
        if start > end {
            let gap = &text[end..start];
            rest = rest
                .strip_prefix('\n')
                .filter(|_| !text[..end].ends_with('\n') && end > 0)
                .unwrap_or(rest);
            let (marker, after) = rest.split_once('\n').unwrap_or((rest, ""));
            let marker = marker
                .strip_prefix("[… ")
                .and_then(|it| it.strip_suffix(']'));
            let marker = marker.unwrap_or_else(|| panic!("no marker at {end}: {rest:.200}"));
            let (units, gone, rows) = missing_at(text, clip.shape, (end, start), gap, marker);
            missing += units;
            bytes += gone;
            lines_missing += rows;
            rest = after;
        }
        let kept = &text[start..past];
        rest = rest
            .strip_prefix(kept)
            .unwrap_or_else(|| panic!("not verbatim: {start}..{past}"));
        end = past;
    }
    assert_eq!(rest, "", "text after the end");
    let [shown, all] = numbers(said)[..] else {
        panic!("{said}")
    };
    let unit = said.rsplit(' ').next().unwrap();
    let (real, gone) = match unit {
        "bytes" => (whole, bytes),
        "lines" => (lines(text), lines_missing),
        "entries" => (entries(text), missing),
        // The total is checked by who knows the text; here it has to add up.
        "matches" | "items" => (shown + missing, missing),
        _ => panic!("{said}"),
    };
    assert_eq!((all, shown + gone), (real, all), "{said}");
}

/// Checks one marker against its gap. Gives the units, bytes and lines that it says are missing.
fn missing_at(
    text: &str,
    shape: ResultShape,
    (start, end): (usize, usize),
    gap: &str,
    marker: &str,
) -> (usize, usize, usize) {
    let before = marker.split(" in ").next().unwrap();
    let said = numbers(before);
    let first = said[0];
    let is_start = |at: usize| at == 0 || text[..at].ends_with('\n');
    let whole_lines = is_start(start) && (end == text.len() || is_start(end));
    if marker.contains(" byte") {
        assert!(!whole_lines || shape == ResultShape::Json, "{marker}");
        assert!(
            shape == ResultShape::Json || !gap.contains('\n'),
            "a gap over lines in bytes"
        );
        assert_eq!(first, gap.len(), "{marker}");
        return (0, gap.len(), 0);
    }
    if marker.contains(" item") {
        assert_eq!(first, json_items(gap), "{marker}");
        return (first, 0, 0);
    }
    assert!(whole_lines, "{marker} at {start}..{end}");
    let rows = lines(gap);
    // A match or an entry that is not a line each says the lines too.
    let said_rows = match marker
        .rsplit_once(" (")
        .filter(|it| it.1.ends_with("line)") || it.1.ends_with("lines)"))
    {
        Some((_, rows)) => numbers(rows)[0],
        None => first,
    };
    assert_eq!(said_rows, rows, "{marker}");
    if marker.contains("entr") {
        assert_eq!(first, entries(gap));
        return (first, 0, rows);
    }
    if marker.contains("more match") {
        let seen = gap.lines().filter(|line| line.contains(':')).count();
        assert!(first >= 1 && first <= seen, "{marker}");
        return (first, 0, rows);
    }
    if let Some((_, changes)) = marker.split_once(": +") {
        let changes = numbers(changes);
        let count = |sign: char| gap.lines().filter(|line| line.starts_with(sign)).count();
        assert!(
            changes[0] <= count('+') && changes[1] <= count('-'),
            "{marker}"
        );
    }
    (0, 0, rows)
}

/// How many items a piece of JSON has.
fn json_items(gap: &str) -> usize {
    let inner = gap.trim().trim_end_matches(',');
    for (open, close) in [("[", "]"), ("{", "}")] {
        let whole = format!("{open}{inner}{close}");
        match serde_json::from_str(&whole) {
            Ok(serde_json::Value::Array(items)) => return items.len(),
            Ok(serde_json::Value::Object(items)) => return items.len(),
            _ => {}
        }
    }
    let values = serde_json::Deserializer::from_str(inner).into_iter::<serde_json::Value>();
    values
        .inspect(|value| assert!(value.is_ok(), "no item: {gap:.200}"))
        .count()
}
