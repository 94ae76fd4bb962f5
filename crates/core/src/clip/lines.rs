//! The lines of a text: where each begins and ends. Never looks at what a line says.

use memchr::memchr_iter;

/// A span of bytes, first to one past the last.
pub type Span = (u32, u32);

/// The lines of a text. A line has its line break; the last may have none.
pub struct Lines<'a> {
    text: &'a str,
    /// Where each line begins, then the length of the text.
    starts: Vec<u32>,
}

impl<'a> Lines<'a> {
    /// The lines of `text`. Nothing beyond 4 GiB is seen, so callers refuse such texts first.
    pub fn new(text: &'a str) -> Self {
        let mut starts = Vec::with_capacity(text.len() / 32 + 2);
        if !text.is_empty() {
            starts.push(0);
        }
        let ends = memchr_iter(b'\n', text.as_bytes()).map(|at| at.saturating_add(1));
        starts.extend(ends.map(narrow));
        let len = narrow(text.len());
        if starts.last() != Some(&len) {
            starts.push(len);
        }
        Self { text, starts }
    }

    pub fn text(&self) -> &'a str {
        self.text
    }

    /// How many lines there are. The last one counts whether or not it has a line break.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Where a line begins; the length of the text for a line that is not there.
    pub fn start(&self, line: usize) -> usize {
        let start = self.starts.get(line).copied();
        start.map_or(self.text.len(), |start| start as usize)
    }

    /// The bytes of a line with its line break.
    pub fn len(&self, line: usize) -> usize {
        self.start(line.saturating_add(1))
            .saturating_sub(self.start(line))
    }

    /// The text of a line without its line break.
    pub fn get(&self, line: usize) -> &'a str {
        let end = self.start(line.saturating_add(1));
        let whole = self.text.get(self.start(line)..end).unwrap_or_default();
        whole.trim_end_matches(['\n', '\r'])
    }

    /// The line that holds the byte at `at`.
    pub fn at(&self, at: usize) -> usize {
        let before = self.starts.partition_point(|start| *start as usize <= at);
        before.saturating_sub(1)
    }

    /// The line that begins at `at`; the number of lines if that is the end of the text.
    pub fn beginning(&self, at: usize) -> Option<usize> {
        let line = self.starts.binary_search(&narrow(at)).ok();
        if at == 0 && self.count() == 0 {
            return Some(0);
        }
        line
    }
}

/// An offset as it is kept in a span.
pub fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_and_without_a_last_break() {
        for (text, want) in [("", 0), ("a", 1), ("a\n", 1), ("a\r\nb", 2), ("\n\n\n", 3)] {
            let lines = Lines::new(text);
            assert_eq!(lines.count(), want, "{text:?}");
            let sum: usize = (0..want).map(|line| lines.len(line)).sum();
            assert_eq!(sum, text.len());
            assert_eq!(lines.beginning(text.len()), Some(want));
        }
        let lines = Lines::new("a\r\nbc");
        assert_eq!((lines.get(0), lines.get(1), lines.get(2)), ("a", "bc", ""));
        assert_eq!((lines.at(0), lines.at(2), lines.at(3)), (0, 0, 1));
        assert_eq!(lines.beginning(1), None);
    }
}
