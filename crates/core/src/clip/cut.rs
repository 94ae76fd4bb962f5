//! Where a line may be cut: between characters, and never inside the sequence that sets a colour.
//! Never chooses which line is cut.

use super::lines::{Lines, Span, narrow};

/// A colour sequence longer than this is taken for text.
const LONGEST_ESCAPE: usize = 64;

/// The two pieces of a line that stay if about `keep` of its bytes may: two thirds of them at its
/// front, one third at its end. `None` if the line would stay whole.
pub fn pieces(lines: &Lines<'_>, line: usize, keep: usize) -> Option<(Span, Span)> {
    let (text, start) = (lines.text(), lines.start(line));
    let end = start.saturating_add(lines.len(line));
    let back = keep / 3;
    let front = keep.saturating_sub(back);
    let first = before(text, start.saturating_add(front)).max(start);
    // The line break belongs to the piece at the end.
    let content = start.saturating_add(lines.get(line).len());
    let last = after(text, end.saturating_sub(back).min(content));
    if first >= last || last >= end || first <= start {
        return None;
    }
    Some(((narrow(start), narrow(first)), (narrow(last), narrow(end))))
}

/// The last place at or before `at` where the text may end.
fn before(text: &str, at: usize) -> usize {
    let at = text.floor_char_boundary(at);
    escape(text, at).map_or(at, |(start, _)| start)
}

/// The first place at or after `at` where the text may begin.
fn after(text: &str, at: usize) -> usize {
    let at = text.ceil_char_boundary(at);
    escape(text, at).map_or(at, |(_, end)| end)
}

/// The escape sequence that `at` would split.
fn escape(text: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let from = at.saturating_sub(LONGEST_ESCAPE);
    let start = from.saturating_add(memchr::memrchr(0x1b, bytes.get(from..at)?)?);
    let body = start.saturating_add(2);
    if bytes.get(start.saturating_add(1)) != Some(&b'[') {
        return None;
    }
    let rest = bytes.get(body..)?;
    let rest = rest.get(..LONGEST_ESCAPE).unwrap_or(rest);
    let last = rest.iter().position(|byte| (0x40..0x7f).contains(byte))?;
    let end = body.saturating_add(last).saturating_add(1);
    (end > at).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cut_splits_a_character_or_a_colour() {
        let line = "ä\u{1b}[38;2;144;144;144mroter Text\u{1b}[0m ü".repeat(40);
        let lines = Lines::new(&line);
        for keep in 6..900 {
            let Some((front, back)) = pieces(&lines, 0, keep) else {
                continue;
            };
            let kept = [
                line.get(..front.1 as usize).unwrap(),
                line.get(back.0 as usize..).unwrap(),
            ];
            for piece in kept {
                let opened = piece.matches("\u{1b}[").count();
                assert_eq!(opened, piece.matches('m').count(), "{keep} {piece:?}");
                assert_eq!(opened, piece.matches('\u{1b}').count());
            }
        }
    }

    #[test]
    fn a_short_line_is_not_cut_and_a_break_stays_with_the_end() {
        assert_eq!(pieces(&Lines::new("abc\n"), 0, 90), None);
        let (front, back) = pieces(&Lines::new("abcdefghijklmnop\r\n"), 0, 6).unwrap();
        assert_eq!((front, back), ((0, 4), (16, 18)));
    }
}
