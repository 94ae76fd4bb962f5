//! The items of a JSON text, and which of them stay: the first and the last. Never looks into an
//! item.

use super::brackets;
use super::lines::{Span, narrow};
use super::pick::Budget;

/// The items of the container that is cut.
pub struct Items {
    /// Each item, without the comma behind it.
    spans: Vec<Span>,
}

impl Items {
    /// `None` if the text is not JSON, or if no container holds most of it in items that are all
    /// smaller than half of it.
    pub fn of(text: &str) -> Option<Self> {
        let first = text.trim_ascii_start().as_bytes().first();
        if !matches!(first, Some(b'{' | b'[')) {
            return None;
        }
        brackets::items(text).map(|spans| Self { spans })
    }

    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// How many items lie in a gap; `None` if the gap cuts one of them in two, or holds none.
    pub fn within(&self, start: usize, end: usize) -> Option<usize> {
        let first = self.spans.partition_point(|item| item.0 as usize <= start);
        let before = first.checked_sub(1).and_then(|at| self.spans.get(at));
        let first = match before {
            Some(item) if item.0 as usize == start => first.saturating_sub(1),
            Some(item) if item.1 as usize > start => return None,
            Some(_) | None => first,
        };
        let past = self.spans.partition_point(|item| item.1 as usize <= end);
        let next = self.spans.get(past);
        if next.is_some_and(|item| (item.0 as usize) < end) {
            return None;
        }
        past.checked_sub(first).filter(|count| *count > 0)
    }

    /// Keeps the first items and the last ones, two to one. `None` if not even the first fits.
    pub fn pick(&self, text: &str, budget: Budget, gap: usize) -> Option<Vec<Span>> {
        let (first, last) = (self.spans.first()?, self.spans.last()?);
        let outside = text.len().saturating_sub(len((first.0, last.1)));
        let mut room = budget.bytes.checked_sub(outside)?.checked_sub(gap)?;
        let (mut low, mut high) = (0_usize, self.spans.len());
        let (mut head, mut tail) = (0_usize, 0_usize);
        while low < high {
            let front = low == 0 || head <= tail.saturating_mul(2);
            let at = if front { low } else { high.saturating_sub(1) };
            let cost = len(*self.spans.get(at)?).saturating_add(2);
            let Some(rest) = room.checked_sub(cost) else {
                break;
            };
            room = rest;
            if front {
                low = low.saturating_add(1);
                head = head.saturating_add(cost);
            } else {
                high = high.saturating_sub(1);
                tail = tail.saturating_add(cost);
            }
        }
        if low == 0 {
            return None;
        }
        if low == high {
            return Some(vec![(0, narrow(text.len()))]);
        }
        let front = self.end_of(text, low.saturating_sub(1))?;
        let back = self.start_of(text, high)?;
        Some(vec![(0, narrow(front)), (narrow(back), narrow(text.len()))])
    }

    /// The end of an item with its comma and the line break behind it.
    fn end_of(&self, text: &str, item: usize) -> Option<usize> {
        let end = self.spans.get(item)?.1 as usize;
        let rest = text.get(end..)?;
        let after = rest.strip_prefix(',').unwrap_or(rest);
        let after = after.strip_prefix('\r').unwrap_or(after);
        let after = after.strip_prefix('\n').unwrap_or(after);
        Some(text.len().saturating_sub(after.len()))
    }

    /// The start of an item with the white space before it on its line. Past the last item it is
    /// the end of that one.
    fn start_of(&self, text: &str, item: usize) -> Option<usize> {
        let Some(span) = self.spans.get(item) else {
            return self.spans.last().map(|last| last.1 as usize);
        };
        let before = text.get(..span.0 as usize)?;
        let line = before.trim_end_matches([' ', '\t']);
        let start = if line.ends_with('\n') { line } else { before };
        Some(start.len())
    }
}

fn len(span: Span) -> usize {
    span.1.saturating_sub(span.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Vec<&str> {
        let spans = Items::of(text).map(|items| items.spans).unwrap_or_default();
        let get = |span: Span| text.get(span.0 as usize..span.1 as usize).unwrap();
        spans.into_iter().map(get).collect()
    }

    #[test]
    fn the_outermost_large_container_is_found() {
        assert_eq!(items("[1, 22 ,3,4]"), ["1", "22", "3", "4"]);
        let nested = r#"{"n":4,"rows":[{"a":"x,]"},{"a":"\"}"},[7,8],{"a":1}],"m":[]}"#;
        assert_eq!(
            items(nested),
            [r#"{"a":"x,]"}"#, r#"{"a":"\"}"}"#, "[7,8]", r#"{"a":1}"#]
        );
        let map = r#"{"a":{"v":1},"b":{"v":2},"c":{"v":3},"d":{"v":4}}"#;
        assert_eq!(items(map).first(), Some(&r#""a":{"v":1}"#));
    }

    #[test]
    fn json_lines_are_items() {
        let text = "{\"a\":1}\n{\"a\":2}\n\n{\"a\":[3,4]}\n{\"a\":5}\n";
        assert_eq!(items(text).len(), 4);
        assert_eq!(items(text)[2], "{\"a\":[3,4]}");
    }

    #[test]
    fn what_is_no_json_or_has_no_items_gives_none() {
        for text in [
            "",
            "[1,2,3",
            "[1,2,3,4]]",
            "[1,2,3,4}",
            "[a,b,c,d]",
            "{}{}",
            "[[[[]]]]",
            "\"a\",\"b\",\"c\",\"d\"",
            "{\"body\":\"aaaaaaaaaaaaaaaaaaaaaaaaaa\",\"a\":1,\"b\":2,\"c\":3}",
            "[\"",
            "[\"\\",
        ] {
            assert!(Items::of(text).is_none(), "{text}");
        }
    }

    #[test]
    fn gaps_count_whole_items_only() {
        let items = Items::of("[11,22,33,44,55]").unwrap();
        assert_eq!(items.within(4, 10), Some(2));
        assert_eq!(items.within(5, 10), None);
        assert_eq!(items.within(4, 8), None);
        assert_eq!(items.within(0, 16), Some(5));
        assert_eq!(items.within(3, 4), None);
    }
}
