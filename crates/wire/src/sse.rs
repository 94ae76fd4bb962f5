//! Server-sent events: bytes to frames and back. It owns the framing only: what a frame's data
//! means is nobody's business here, and no byte is changed, lost or moved on the way.
//!
//! A frame is everything up to and including the blank line that ends an event, so the frames of
//! a stream put behind one another are the stream. LF, CRLF and lone CR end lines, in any mixture
//! (WHATWG HTML, "Server-sent events"). A CR at the end of a read waits for the next byte, since
//! an LF may follow; a stream that uses lone CRs is therefore one byte late, and no other is.

use std::ops::Range;

use bytes::{Buf as _, Bytes, BytesMut};

/// Default cap on one event's bytes. A picture in 4K is one event of more than 20 MB.
pub const EVENT_CAP: usize = 256 << 20;

/// An event outgrew its cap. The stream can't be read on from here.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "the upstream sent an event of more than {cap} bytes, the most that is read; ask for less in one answer"
)]
pub struct TooLarge {
    /// The cap in bytes.
    pub cap: usize,
}

/// One event, or a comment or stray blank line that stood for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    raw: Bytes,
    data: Range<usize>,
    data_lines: usize,
    event: Range<usize>,
    whole: bool,
}

impl Frame {
    /// The frame that these bytes hold, its terminator included. Bytes behind the first terminator
    /// stay in the frame unread, so pass one frame's bytes only.
    #[must_use]
    pub fn of(raw: Bytes) -> Self {
        let mut scan = Scan::default();
        let whole = scan.walk(&raw, true).is_some();
        scan.frame(raw, whole)
    }

    /// The exact bytes as they came, terminator included.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The exact bytes, given up.
    #[must_use]
    pub fn into_raw(self) -> Bytes {
        self.raw
    }

    /// The data, its lines joined by LF; `None` if the frame has no data line (a comment, say).
    /// Data of one line is a slice of the frame.
    #[must_use]
    pub fn data(&self) -> Option<Bytes> {
        match self.data_lines {
            0 => None,
            1 => Some(self.raw.slice(self.data.clone())),
            _ => Some(self.joined()),
        }
    }

    /// Where the data lies in the raw bytes, if it is of one line.
    #[must_use]
    pub fn data_span(&self) -> Option<Range<usize>> {
        (self.data_lines == 1).then(|| self.data.clone())
    }

    /// The lines that are no data.
    pub(super) fn other_lines(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.raw).filter(|line| data_of(line).is_none())
    }

    /// The event's name as its last `event:` line says, empty if there is none.
    #[must_use]
    pub fn event(&self) -> &[u8] {
        self.raw.get(self.event.clone()).unwrap_or_default()
    }

    /// Whether the blank line that ends the event was there. Only the last frame of a stream,
    /// which [`Splitter::finish`] returns, can lack it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// This frame with its missing end of line and blank line put behind it.
    #[must_use]
    pub fn completed(self) -> Self {
        if self.whole {
            return self;
        }
        let mut raw = BytesMut::from(self.raw.as_ref());
        // Behind a CR the first LF is part of the same end of line.
        if raw.last() != Some(&b'\n') {
            raw.extend_from_slice(b"\n");
        }
        raw.extend_from_slice(b"\n");
        Self::of(raw.freeze())
    }

    /// This frame with other data: all other lines and the terminators stay as they are where
    /// the data was of one line and the new data is too.
    #[must_use]
    pub fn with_data(&self, data: &[u8]) -> Bytes {
        let mut raw = BytesMut::with_capacity(self.raw.len() + data.len());
        if self.data_lines == 1 && memchr::memchr2(b'\n', b'\r', data).is_none() {
            raw.extend_from_slice(self.raw.get(..self.data.start).unwrap_or_default());
            raw.extend_from_slice(data);
            raw.extend_from_slice(self.raw.get(self.data.end..).unwrap_or_default());
        } else {
            for line in lines(&self.raw).filter(|line| !line.is_empty() && data_of(line).is_none())
            {
                raw.extend_from_slice(line);
                raw.extend_from_slice(b"\n");
            }
            write_data(&mut raw, data);
        }
        raw.freeze()
    }

    fn joined(&self) -> Bytes {
        let mut joined = BytesMut::with_capacity(self.raw.len());
        for (count, line) in lines(&self.raw).filter_map(data_of).enumerate() {
            if count > 0 {
                joined.extend_from_slice(b"\n");
            }
            joined.extend_from_slice(line);
        }
        joined.freeze()
    }
}

/// An event of our own with this data, one `data:` line for each of its lines.
#[must_use]
pub fn event(data: &[u8]) -> Bytes {
    let mut raw = BytesMut::with_capacity(data.len() + 8);
    write_data(&mut raw, data);
    raw.freeze()
}

fn write_data(raw: &mut BytesMut, data: &[u8]) {
    for line in lines(data) {
        raw.extend_from_slice(b"data: ");
        raw.extend_from_slice(line);
        raw.extend_from_slice(b"\n");
    }
    raw.extend_from_slice(b"\n");
}

/// Lines without their ends; at least one, if only an empty one.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(strip_mark(bytes));
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = memchr::memchr2(b'\n', b'\r', text) else {
            rest = None;
            return Some(text);
        };
        let after = text.get(end..).unwrap_or_default();
        let skip = if after.starts_with(b"\r\n") { 2 } else { 1 };
        // Bytes that end with a line's end have no further, empty line behind it.
        rest = text.get(end + skip..).filter(|more| !more.is_empty());
        text.get(..end)
    })
}

/// A stream may open with a byte order mark, which belongs to no line.
fn strip_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The data of a `data` line, if it is one.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    field(line, b"data")
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// How far a frame was read: offsets from the frame's first byte.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    line: usize,
    data: Range<usize>,
    data_lines: usize,
    event: Range<usize>,
}

impl Scan {
    /// Reads on and returns where the frame ends. `settled` says that no LF follows the bytes, so
    /// a CR at their end is an end of line for itself.
    fn walk(&mut self, bytes: &[u8], settled: bool) -> Option<usize> {
        loop {
            let Some(found) = memchr::memchr2(b'\n', b'\r', bytes.get(self.at..)?) else {
                self.at = bytes.len();
                return None;
            };
            let end = self.at + found;
            let next = match bytes.get(end..)? {
                [b'\r', b'\n', ..] => end + 2,
                [b'\r'] if !settled => {
                    self.at = end;
                    return None;
                }
                _ => end + 1,
            };
            let start = std::mem::replace(&mut self.line, next);
            self.at = next;
            if start == end {
                return Some(next);
            }
            self.note(bytes, start, end);
        }
    }

    fn note(&mut self, bytes: &[u8], start: usize, end: usize) {
        let line = bytes.get(start..end).unwrap_or_default();
        let line = if start == 0 { strip_mark(line) } else { line };
        if let Some(value) = data_of(line) {
            self.data = end - value.len()..end;
            self.data_lines += 1;
        } else if let Some(value) = field(line, b"event") {
            self.event = end - value.len()..end;
        }
    }

    fn frame(self, raw: Bytes, whole: bool) -> Frame {
        Frame {
            raw,
            data: self.data,
            data_lines: self.data_lines,
            event: self.event,
            whole,
        }
    }
}

/// Cuts a stream of bytes into frames, wherever the reads were cut. A frame that lies inside one
/// read is a slice of it; only what crosses reads is copied.
#[derive(Debug)]
pub struct Splitter {
    cap: usize,
    carry: BytesMut,
    chunk: Bytes,
    scan: Scan,
}

impl Splitter {
    /// A splitter at a stream's start that refuses events over `cap` bytes.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            carry: BytesMut::new(),
            chunk: Bytes::new(),
            scan: Scan::default(),
        }
    }

    /// Takes one read. Call [`Splitter::next_frame`] until it has no more.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            let mut both = BytesMut::from(self.chunk.as_ref());
            both.extend_from_slice(&chunk);
            self.chunk = both.freeze();
        }
    }

    /// The next whole frame, or `None` until more is pushed.
    ///
    /// # Errors
    /// [`TooLarge`] once an event outgrows the cap.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, TooLarge> {
        while !self.chunk.is_empty() {
            let whole = if self.carry.is_empty() {
                self.read_chunk()
            } else {
                self.read_carry()
            };
            let size = whole.as_ref().map_or(self.carry.len(), Bytes::len);
            if size > self.cap {
                return Err(TooLarge { cap: self.cap });
            }
            if let Some(raw) = whole {
                return Ok(Some(std::mem::take(&mut self.scan).frame(raw, true)));
            }
        }
        Ok(None)
    }

    /// How many bytes wait for the rest of their frame.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.carry.len()
    }

    /// What stands behind the last whole frame when the stream has ended. The splitter is then as
    /// new.
    pub fn finish(&mut self) -> Option<Frame> {
        let mut carry = self.carry.split();
        carry.extend_from_slice(&std::mem::take(&mut self.chunk));
        self.scan = Scan::default();
        if carry.is_empty() {
            return None;
        }
        let raw = carry.freeze();
        let mut scan = Scan::default();
        let whole = scan.walk(&raw, true).is_some();
        if !whole && scan.line < raw.len() {
            // The last line lacks its end, and is a line all the same.
            scan.note(&raw, scan.line, raw.len());
        }
        Some(scan.frame(raw, whole))
    }

    fn read_chunk(&mut self) -> Option<Bytes> {
        if let Some(end) = self.scan.walk(&self.chunk, false) {
            return Some(self.chunk.split_to(end));
        }
        self.carry
            .extend_from_slice(&std::mem::take(&mut self.chunk));
        None
    }

    /// Moves bytes over to the carry up to the next end of line, so that a frame ends where the
    /// carry ends.
    fn read_carry(&mut self) -> Option<Bytes> {
        let waiting = self.carry.last() == Some(&b'\r') && self.scan.at + 1 == self.carry.len();
        let take = match self.chunk.first() {
            Some(b'\n') if waiting => 1,
            _ if waiting => 0,
            _ => memchr::memchr2(b'\n', b'\r', &self.chunk).map_or(self.chunk.len(), |at| at + 1),
        };
        self.carry
            .extend_from_slice(self.chunk.get(..take).unwrap_or_default());
        self.chunk.advance(take);
        if self.chunk.is_empty() {
            // Even an empty slice would keep the buffer of the read in memory, until the next one.
            self.chunk = Bytes::new();
        }
        self.scan.walk(&self.carry, waiting)?;
        Some(self.carry.split().freeze())
    }
}

#[cfg(test)]
mod tests;
