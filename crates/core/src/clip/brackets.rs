//! Finds the container that holds most of a JSON text, and where its items lie. Values one after
//! another, as in JSON lines, are items too. A scanner of brackets and strings, not a parser: it
//! never builds a value.

use memchr::memchr2;

use super::lines::{Span, narrow};

/// A container with fewer items is not worth a cut.
const FEWEST: usize = 4;
/// Containers below this depth are not looked at.
const DEEPEST: usize = 5;

/// The items of the outermost container that holds most of the text in small items, each without
/// the comma behind it. `None` if there is none, or if the text can't be JSON.
pub fn items(text: &str) -> Option<Vec<Span>> {
    let found = Scanner::new(text, None).run()?;
    Scanner::new(text, Some(found)).run_items()
}

/// A container: where its items begin and how deep they are; `start` is 0 at depth 0.
#[derive(Clone, Copy)]
struct Container {
    start: usize,
    depth: usize,
}

/// An open container of which the items are counted.
struct Open {
    start: usize,
    items: usize,
    /// Where the current item begins, if one has begun.
    item: Option<usize>,
    largest: usize,
}

impl Open {
    const fn new(start: usize) -> Self {
        Self {
            start,
            items: 0,
            item: None,
            largest: 0,
        }
    }
}

/// One walk over the text. Without a target it finds the container; with one it notes its items.
struct Scanner<'a> {
    text: &'a str,
    /// The closing bracket of each open container.
    closers: Vec<u8>,
    /// The open containers down to the deepest that are looked at; the text itself is the first.
    open: Vec<Open>,
    found: Option<Container>,
    target: Option<Container>,
    items: Vec<Span>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str, target: Option<Container>) -> Self {
        Self {
            text,
            closers: Vec::new(),
            open: vec![Open::new(0)],
            found: None,
            target,
            items: Vec::new(),
        }
    }

    fn run(mut self) -> Option<Container> {
        self.walk()?;
        self.found
    }

    fn run_items(mut self) -> Option<Vec<Span>> {
        self.walk()?;
        (!self.items.is_empty()).then_some(self.items)
    }

    /// Walks over the text. `None` if it can't be JSON.
    fn walk(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        // Where the last token ended.
        let mut end = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {
                    at = at.saturating_add(1);
                    continue;
                }
                b'"' => {
                    self.begin(at);
                    at = string_end(bytes, at)?;
                }
                b'{' | b'[' => {
                    self.begin(at);
                    at = at.saturating_add(1);
                    self.push(*byte, at);
                }
                b'}' | b']' => {
                    self.pop(*byte, end)?;
                    at = at.saturating_add(1);
                    if self.closers.is_empty() {
                        self.finish(at);
                    }
                }
                b',' => {
                    if self.closers.is_empty() {
                        return None;
                    }
                    self.finish(end);
                    at = at.saturating_add(1);
                }
                b':' => at = at.saturating_add(1),
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                    // A text of bare words is not worth a clip of its own.
                    if self.closers.is_empty() {
                        return None;
                    }
                    self.begin(at);
                    at = scalar_end(bytes, at)?;
                }
                _ => return None,
            }
            end = at;
        }
        if !self.closers.is_empty() {
            return None;
        }
        self.judge(0, 0, self.text.len());
        Some(())
    }

    /// The deepest looked-at container that is open now, with its depth.
    fn current(&mut self) -> Option<(usize, &mut Open)> {
        let depth = self.closers.len();
        self.open.get_mut(depth).map(|open| (depth, open))
    }

    fn begin(&mut self, at: usize) {
        if let Some((_, open)) = self.current() {
            open.item.get_or_insert(at);
        }
    }

    /// Ends the current item at `end`.
    fn finish(&mut self, end: usize) {
        let target = self.target;
        let Some((depth, open)) = self.current() else {
            return;
        };
        let Some(start) = open.item.take() else {
            return;
        };
        open.items = open.items.saturating_add(1);
        open.largest = open.largest.max(end.saturating_sub(start));
        let wanted = target.is_some_and(|one| one.start == open.start && one.depth == depth);
        if wanted {
            self.items.push((narrow(start), narrow(end)));
        }
    }

    fn push(&mut self, bracket: u8, start: usize) {
        let closer = if bracket == b'{' { b'}' } else { b']' };
        self.closers.push(closer);
        let depth = self.closers.len();
        if depth <= DEEPEST {
            self.open.truncate(depth);
            self.open.push(Open::new(start));
        }
    }

    fn pop(&mut self, bracket: u8, end: usize) -> Option<()> {
        self.finish(end);
        if self.closers.last() != Some(&bracket) {
            return None;
        }
        let depth = self.closers.len();
        if let Some(start) = self.open.get(depth).map(|open| open.start) {
            self.judge(depth, start, end);
            self.open.truncate(depth);
        }
        self.closers.pop();
        Some(())
    }

    /// Takes a container that has just ended if it holds most of the text in small items. The
    /// outermost such container ends last.
    fn judge(&mut self, depth: usize, start: usize, end: usize) {
        let Some(open) = self.open.get(depth) else {
            return;
        };
        let size = end.saturating_sub(start);
        let most = size.saturating_mul(10) >= self.text.len().saturating_mul(6);
        let small = open.largest.saturating_mul(2) <= size;
        if most && small && open.items >= FEWEST {
            self.found = Some(Container { start, depth });
        }
    }
}

/// One past the closing quote of the string that opens at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut from = at.saturating_add(1);
    loop {
        let stop = from.saturating_add(memchr2(b'"', b'\\', bytes.get(from..)?)?);
        if bytes.get(stop) == Some(&b'"') {
            return Some(stop.saturating_add(1));
        }
        from = stop.saturating_add(2);
    }
}

/// One past the end of a number, `true`, `false` or `null`.
fn scalar_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let len = rest
        .iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(rest.len());
    let word = rest.get(..len)?;
    let digit = matches!(word.first(), Some(b'-' | b'0'..=b'9'));
    let number = digit
        && word
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
    let name = matches!(word, b"true" | b"false" | b"null");
    (number || name).then_some(at.saturating_add(len))
}
