//! The fast path: a frame that differs from the one before only inside one string needs no
//! parsing. A shape is the frame that was parsed last, with holes in the place of that string and
//! of OpenAI's padding. A frame that fits is the same JSON with another string in the hole, so what
//! was found out about the first frame holds for it too. It decides nothing itself.

use std::ops::Range;

use bytes::Bytes;

use super::json;

/// Where the string of a fitting frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sink {
    /// The text.
    Text,
    /// The refusal.
    Refusal,
    /// The reasoning field with this place in the hop's list.
    Reasoning(usize),
    /// The arguments of the call in this slot.
    Arguments(usize),
}

/// A frame with holes.
#[derive(Debug)]
pub(super) struct FrameShape {
    frame: Bytes,
    /// The literal bytes before the first hole, between the two, and after the last; without
    /// padding the middle is empty.
    literals: [Range<usize>; 3],
    order: HoleOrder,
    /// Where the string goes.
    pub(super) sink: Sink,
    /// Whether fitting frames go to the client.
    pub(super) passes: bool,
}

#[derive(Debug, Clone, Copy)]
enum HoleOrder {
    Alone,
    BeforePadding,
    BehindPadding,
}

impl FrameShape {
    /// The shape of a frame whose string and padding stand at these spans of its raw bytes.
    pub(super) fn of(
        frame: &Bytes,
        hole: Range<usize>,
        padding: Option<Range<usize>>,
        sink: Sink,
        passes: bool,
    ) -> Self {
        let end = frame.len();
        let (order, literals) = match padding {
            None => (HoleOrder::Alone, [0..hole.start, 0..0, hole.end..end]),
            Some(pad) if pad.start >= hole.end => (
                HoleOrder::BeforePadding,
                [0..hole.start, hole.end..pad.start, pad.end..end],
            ),
            Some(pad) => (
                HoleOrder::BehindPadding,
                [0..pad.start, pad.end..hole.start, hole.end..end],
            ),
        };
        // A copy, so that the shape doesn't keep a whole read alive.
        Self {
            frame: Bytes::copy_from_slice(frame),
            literals,
            order,
            sink,
            passes,
        }
    }

    /// The string of a frame that fits, as it stands between its quotes.
    pub(super) fn read<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let [first, middle, last] = &self.literals;
        let bytes = |literal: &Range<usize>| self.frame.get(literal.clone()).unwrap_or_default();
        let (one, rest) = cut_string(frame.strip_prefix(bytes(first))?)?;
        let last = bytes(last);
        if let HoleOrder::Alone = self.order {
            return (rest == last).then_some(one);
        }
        let (two, rest) = cut_string(rest.strip_prefix(bytes(middle))?)?;
        let string = if let HoleOrder::BehindPadding = self.order {
            two
        } else {
            one
        };
        (rest == last).then_some(string)
    }
}

/// Cuts before the quote that ends a string.
fn cut_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(json::end_of_string(bytes, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(frame: &str, hole: &str, padding: Option<&str>) -> FrameShape {
        let span = |part: &str| {
            let start = frame.find(part).unwrap();
            start..start + part.len()
        };
        FrameShape::of(
            &Bytes::copy_from_slice(frame.as_bytes()),
            span(hole),
            padding.map(span),
            Sink::Text,
            true,
        )
    }

    #[test]
    fn only_the_holes_may_differ() {
        let plain = shape(r#"{"a":"HOLE","b":1}"#, "HOLE", None);
        let cases = [
            (r#"{"a":"x","b":1}"#, Some("x")),
            (r#"{"a":"","b":1}"#, Some("")),
            (r#"{"a":"x\"y\\","b":1}"#, Some(r#"x\"y\\"#)),
            (r#"{"a":"x","b":12}"#, None),
            (r#"{"a":"x","c":"","b":1}"#, None),
            (r#"{"a":"x\","b":1}"#, None),
            (r#"{"a":"x"#, None),
            (r#"{"a":"x\"#, None),
        ];
        for (frame, want) in cases {
            assert_eq!(
                plain.read(frame.as_bytes()),
                want.map(str::as_bytes),
                "{frame}"
            );
        }
    }

    #[test]
    fn padding_stands_on_either_side() {
        let behind = shape(r#"{"p":"PAD","a":"HOLE"}"#, "HOLE", Some("PAD"));
        assert_eq!(behind.read(br#"{"p":"zzzzz","a":"x"}"#), Some(&b"x"[..]));
        let before = shape(r#"{"a":"HOLE","p":"PAD"}"#, "HOLE", Some("PAD"));
        assert_eq!(before.read(br#"{"a":"x","p":""}"#), Some(&b"x"[..]));
        assert_eq!(before.read(br#"{"a":"x","q":""}"#), None);
    }
}
