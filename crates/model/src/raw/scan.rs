//! The walk over JSON bytes that finds where values end. Accepts exactly what `serde_json` accepts
//! as a raw value, UTF-8 included, and never says why it refuses: whoever asks finds that out by a
//! slower walk.
//!
//! It is a walk of its own because it decides what a request costs. Strings are nearly all of a
//! body, so a string is searched for its end by vector instructions, and then looked at once for
//! control characters and for bytes outside ASCII; only a string that has any is held to UTF-8.
//! (Outside strings such a byte is no JSON.) A `RawValue` a message costs another pass over it.

use std::borrow::Cow;
use std::ops::Range;

/// A byte range into the slice that was parsed.
pub type Span = Range<usize>;

/// One member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key, decoded. A key with a lone surrogate stands as its raw text between the quotes.
    pub key: Cow<'a, str>,
    /// From the key's opening quote to the value's last byte.
    pub span: Span,
    /// The value alone, without white space around it.
    pub value: Span,
}

/// Strings with many escapes are searched eight bytes at a time: starting the wide search costs
/// more than that.
const WORD: usize = 8;

/// A walk over one slice.
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    /// The brackets that close what is open, innermost last. Kept between values, so that only
    /// the deepest one allocates.
    open: Vec<u8>,
    /// How many objects began in the values that were walked.
    objects: usize,
}

/// The elements of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    /// Where each lies, without white space around it.
    pub spans: Vec<Span>,
    /// How many objects stand in them, those inside other values included.
    pub objects: usize,
}

/// An object's members, and the elements of the array under the key that was asked for.
pub(super) type Members<'a> = (Vec<Member<'a>>, Option<Elements>);

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            open: Vec::new(),
            objects: 0,
        }
    }

    /// Splits the object that is all of the bytes, and the array under `split` into its elements.
    pub(super) fn members(&mut self, split: Option<&str>) -> Option<Members<'a>> {
        let mut members = Vec::with_capacity(8);
        let mut elements = None;
        let mut at = self.expect(self.space(0), b'{')?;
        if self.byte(at) == Some(b'}') {
            return self.ends(at + 1).then_some((members, elements));
        }
        loop {
            let (key_span, start) = self.key(at)?;
            let key = decode_key(self.bytes.get(key_span.clone())?);
            let end = if split == Some(key.as_ref()) && self.byte(start) == Some(b'[') {
                let before = self.objects;
                let (spans, end) = self.array(start)?;
                let objects = self.objects - before;
                elements = Some(Elements { spans, objects });
                end
            } else {
                if split == Some(key.as_ref()) {
                    elements = None;
                }
                self.value(start)?
            };
            members.push(Member {
                key,
                span: key_span.start..end,
                value: start..end,
            });
            match self.comma(end, b'}')? {
                Next::At(next) => at = next,
                Next::Closed(end) => return self.ends(end).then_some((members, elements)),
            }
        }
    }

    /// Splits the array that is all of the bytes.
    pub(super) fn elements(&mut self) -> Option<Vec<Span>> {
        let (spans, end) = self.array(self.space(0))?;
        self.ends(end).then_some(spans)
    }

    /// The elements of the array at `at`, and its end.
    fn array(&mut self, at: usize) -> Option<(Vec<Span>, usize)> {
        let mut spans = Vec::new();
        let mut at = self.expect(at, b'[')?;
        if self.byte(at) == Some(b']') {
            return Some((spans, at + 1));
        }
        loop {
            let end = self.value(at)?;
            spans.push(at..end);
            match self.comma(end, b']')? {
                Next::At(next) => at = next,
                Next::Closed(end) => return Some((spans, end)),
            }
        }
    }

    /// The end of the value at `at`, however deep it is.
    fn value(&mut self, mut at: usize) -> Option<usize> {
        self.open.clear();
        loop {
            let first = self.byte(at)?;
            at = match first {
                b'"' => self.string(at + 1)?,
                b'{' | b'[' => {
                    self.objects += usize::from(first == b'{');
                    // In ASCII both closing brackets come two after the opening ones.
                    let close = first + 2;
                    at = self.space(at + 1);
                    if self.byte(at) != Some(close) {
                        self.open.push(close);
                        if close == b'}' {
                            at = self.key(at)?.1;
                        }
                        continue;
                    }
                    at + 1
                }
                b't' => self.word(at, b"true")?,
                b'f' => self.word(at, b"false")?,
                b'n' => self.word(at, b"null")?,
                _ => self.number(at)?,
            };
            loop {
                let Some(close) = self.open.last().copied() else {
                    return Some(at);
                };
                match self.comma(at, close)? {
                    Next::Closed(end) => {
                        self.open.pop();
                        at = end;
                    }
                    Next::At(next) => {
                        at = if close == b'}' {
                            self.key(next)?.1
                        } else {
                            next
                        };
                        break;
                    }
                }
            }
        }
    }

    /// Reads what follows a value inside brackets that `close` closes.
    #[inline]
    fn comma(&self, at: usize, close: u8) -> Option<Next> {
        let at = self.space(at);
        match self.byte(at)? {
            b',' => Some(Next::At(self.space(at + 1))),
            byte if byte == close => Some(Next::Closed(at + 1)),
            _ => None,
        }
    }

    /// The span of the key at `at`, quotes included, and where its value starts.
    #[inline]
    fn key(&self, at: usize) -> Option<(Span, usize)> {
        if self.byte(at)? != b'"' {
            return None;
        }
        let end = self.string(at + 1)?;
        Some((at..end, self.expect(self.space(end), b':')?))
    }

    /// The place after the closing quote of the string whose opening quote is before `from`.
    #[inline]
    fn string(&self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            at = self.quote_or_backslash(at)?;
            if self.byte(at) == Some(b'"') {
                break;
            }
            at += match self.byte(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                b'u' => {
                    let digits = self.bytes.get(at + 2..at + 6)?;
                    // Whether it is half of a pair of surrogates is left to the decoder.
                    digits.iter().all(u8::is_ascii_hexdigit).then_some(6)?
                }
                _ => return None,
            };
        }
        is_text(self.bytes.get(from..at)?).then_some(at + 1)
    }

    #[inline]
    fn quote_or_backslash(&self, at: usize) -> Option<usize> {
        let rest = self.bytes.get(at..)?;
        if let Some(word) = rest.first_chunk::<WORD>() {
            let word = u64::from_le_bytes(*word);
            let hit = zero_bytes(word ^ every(b'"')) | zero_bytes(word ^ every(b'\\'));
            if hit != 0 {
                // At most seven.
                return Some(at + (hit.trailing_zeros() / u8::BITS) as usize);
            }
        }
        Some(at + memchr::memchr2(b'"', b'\\', rest)?)
    }

    fn word(&self, at: usize, word: &[u8]) -> Option<usize> {
        let end = at + word.len();
        (self.bytes.get(at..end)? == word).then_some(end)
    }

    fn number(&self, at: usize) -> Option<usize> {
        let at = at + usize::from(self.byte(at)? == b'-');
        let mut end = self.digits(at)?;
        if self.byte(at) == Some(b'0') && end > at + 1 {
            return None;
        }
        if self.byte(end) == Some(b'.') {
            end = self.digits(end + 1)?;
        }
        if matches!(self.byte(end), Some(b'e' | b'E')) {
            let signed = matches!(self.byte(end + 1), Some(b'+' | b'-'));
            end = self.digits(end + 1 + usize::from(signed))?;
        }
        Some(end)
    }

    /// The end of the digits at `at`, of which there must be one.
    fn digits(&self, at: usize) -> Option<usize> {
        let rest = self.bytes.get(at..)?;
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then_some(at + count)
    }

    /// The place after the byte at `at` and the white space that follows, if it is this byte.
    #[inline]
    fn expect(&self, at: usize, byte: u8) -> Option<usize> {
        (self.byte(at)? == byte).then(|| self.space(at + 1))
    }

    #[inline]
    fn space(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            at += 1;
        }
        at
    }

    fn ends(&self, at: usize) -> bool {
        self.space(at) == self.bytes.len()
    }

    #[inline]
    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }
}

/// What follows a value.
enum Next {
    /// A comma, and the place after it.
    At(usize),
    /// The closing bracket, and the place after it.
    Closed(usize),
}

/// A word of eight times this byte.
const fn every(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

/// A word whose lowest set bit is the highest of the first byte that is zero.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(every(1)) & !word & every(0x80)
}

/// Whether bytes between quotes have no control character and are UTF-8. Written without a branch
/// until the end, so that the compiler makes vector instructions of it.
#[inline]
fn is_text(inside: &[u8]) -> bool {
    let (chunks, rest) = inside.as_chunks::<32>();
    // The rest is made a chunk too, with spaces, which change neither finding.
    let mut last = [b' '; 32];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let (mut least, mut all) = (last, last);
    for chunk in chunks {
        for ((least, all), byte) in least.iter_mut().zip(&mut all).zip(chunk) {
            *least = (*least).min(*byte);
            *all |= byte;
        }
    }
    let least = least.into_iter().fold(u8::MAX, u8::min);
    let all = all.into_iter().fold(0, |a, b| a | b);
    least >= b' ' && (all.is_ascii() || simdutf8::basic::from_utf8(inside).is_ok())
}

/// The key that these bytes with their quotes spell.
fn decode_key(raw: &[u8]) -> Cow<'_, str> {
    let raw = std::str::from_utf8(raw).unwrap_or_default();
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(inner), Cow::Owned)
}
