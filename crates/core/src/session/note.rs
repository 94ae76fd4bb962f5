//! A text that replaces one of the client's, with its size and its strings. Immutable and shared:
//! it is written once and read by every view that shows it. Never knows where it is shown.

use std::sync::{Arc, OnceLock};

use plimsoll_model::Words;
use plimsoll_model::caches::Weigh;
use plimsoll_model::weight::{block, shared};

/// A text that replaces one of the client's.
#[derive(Clone, Debug)]
pub struct Note(Arc<NoteText>);

#[derive(Debug)]
struct NoteText {
    text: Box<str>,
    tokens: u32,
    words: OnceLock<Arc<Words>>,
}

impl Note {
    /// A text and the size in tokens of what it is part of: the text itself for a result, the whole
    /// call for arguments.
    #[must_use]
    pub fn new(text: String, tokens: u32) -> Self {
        Self(Arc::new(NoteText {
            text: text.into(),
            tokens,
            words: OnceLock::new(),
        }))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The size in tokens of the result, or of the whole call.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.0.tokens
    }

    /// Its distinctive strings, read on first use.
    #[must_use]
    pub fn words(&self) -> &Arc<Words> {
        self.0
            .words
            .get_or_init(|| Arc::new(Words::of(self.text())))
    }
}

impl PartialEq for Note {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text() && self.tokens() == other.tokens()
    }
}

impl Eq for Note {}

/// What is shown of a call of which a pass left a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// In place of its result.
    pub result: Option<Note>,
    /// In place of its arguments.
    pub arguments: Option<Note>,
}

impl Weigh for Note {
    /// Together with its strings, which may be read later. The shortest string has five characters and a separator, and
    /// each takes sixteen bytes.
    fn owned(&self) -> usize {
        let text = self.0.text.len();
        block(text) + block(text * 16 / 6 + 16) + shared::<NoteText>() + shared::<Words>()
    }
}

impl Weigh for Left {
    fn owned(&self) -> usize {
        let notes = self.result.iter().chain(&self.arguments);
        notes.map(Note::owned).sum()
    }
}
