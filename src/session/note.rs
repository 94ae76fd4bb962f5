//! A text that stands in place of one of the client's, with what is known of it. Immutable and
//! shared: it is written once and read by every view that shows it. Never says where it stands.

use std::sync::{Arc, OnceLock};

use crate::model::Words;
use crate::model::weight::{block, shared};

/// A text that stands in place of one of the client's.
#[derive(Clone, Debug)]
pub struct Note(Arc<Written>);

#[derive(Debug)]
struct Written {
    text: Box<str>,
    tokens: u32,
    words: OnceLock<Arc<Words>>,
}

impl Note {
    /// A text with the size in tokens of what it stands in: of a result its text, of arguments the
    /// whole call.
    #[must_use]
    pub fn new(text: String, tokens: u32) -> Self {
        Self(Arc::new(Written {
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

    /// The size in tokens of what it stands in.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.0.tokens
    }

    /// Bytes of memory that it takes with its strings, read or not: they may be read later. The
    /// shortest of them is five characters and stands behind another one, and each takes sixteen.
    #[must_use]
    pub fn weight(&self) -> usize {
        let text = self.0.text.len();
        block(text) + block(text * 16 / 6 + 16) + shared::<Written>() + shared::<Words>()
    }

    /// Its distinctive strings, which are read when they are first asked for.
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

/// What stands for a call of which a pass left a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// In place of its result.
    pub result: Option<Note>,
    /// In place of its arguments.
    pub arguments: Option<Note>,
    /// What its episode's tombstone names of it once it is removed.
    pub names: Option<Arc<str>>,
}

impl Left {
    /// Bytes of memory that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let notes = self.result.iter().chain(&self.arguments);
        let names = self.names.as_ref().map_or(0, |names| names.len() + 16);
        notes.map(Note::weight).sum::<usize>() + block(names)
    }
}
