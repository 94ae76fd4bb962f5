//! A text that a recall brings back, before it is cut to size, the places of originals in it, and their pictures.
//! Never knows where they come from.

use std::fmt::Write as _;

use plimsoll_model::{ItemNo, Original};

/// The most characters of a call in a heading; a longer call is part of the text.
const CALL_CHARS: usize = 400;

/// A text to bring back, whole or in part.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// How the result begins, before it describes its part.
    pub(super) head: String,
    /// Lines between the head and the text.
    pub(super) more: String,
    /// The text.
    pub(super) text: String,
    /// The originals in the text.
    originals: Vec<Original>,
    /// Parts of originals that are no text, as JSON. The text names each.
    pub(super) pictures: Vec<String>,
}

impl Document {
    /// An empty text under a head.
    pub(super) fn headed(head: String) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    /// Sets the call whose result it brings back. A short one is a heading; a long one may be cut like the text.
    pub(super) fn call(&mut self, call: &str) {
        if call.len() <= CALL_CHARS && !call.contains('\n') {
            self.more = match call.is_empty() {
                true => String::new(),
                false => format!("{call}\n"),
            };
        } else {
            self.text = format!("{call}\n");
        }
    }

    /// The places of the originals after so many more bytes.
    pub(super) fn shifted(&self, by: usize) -> Vec<Original> {
        let by = u32::try_from(by).unwrap_or(u32::MAX);
        let shift = |original: &Original| Original {
            start: original.start.saturating_add(by),
            end: original.end.saturating_add(by),
            ..*original
        };
        self.originals.iter().map(shift).collect()
    }

    pub(super) fn push(&mut self, no: ItemNo, original: &str) {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let start = self.text.len();
        self.text.push_str(original);
        self.originals.push(Original {
            item: no,
            start: place(start),
            end: place(self.text.len()),
        });
    }

    /// Adds the lines of an item that contain a text, which is in lower case, each with the item's id.
    pub(super) fn push_matches(&mut self, id: &str, call: &str, original: &str, wanted: &str) {
        for line in call.lines().chain(original.lines()) {
            if line.to_lowercase().contains(wanted) {
                let _ = writeln!(self.text, "{id}: {line}");
            }
        }
    }

    /// Begins a new line unless the text ends with one.
    pub(super) fn line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}
