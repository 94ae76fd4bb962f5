//! Which evicted items were needed later: a later call asked for them again, or used words of them. Owns
//! what is told of it; the lab's anchors say what counts as needed. Never reads a view's bytes.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::model::ItemNo;
use crate::model::caches::entry;

/// How an item was needed.
#[cfg_attr(
    not(feature = "lab"),
    expect(dead_code, reason = "only the lab finds out")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A later call used words of it, and the view had them.
    Held,
    /// The model recalled it.
    Recalled,
    /// A tool that reads was called for the same again.
    ReadAgain,
    /// Another tool was.
    AskedAgain,
    /// A later call used words of it, and the view had them not.
    Missed,
}

/// That an item was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// How.
    pub how: How,
    /// The turn that needed it.
    pub turn: u32,
    /// A word of it that was used.
    pub word: Option<String>,
}

impl Need {
    /// As JSON. Words are content.
    #[must_use]
    pub fn shown(&self, words: bool) -> Value {
        let how = match self.how {
            How::Held => "held",
            How::Recalled => "recalled",
            How::ReadAgain => "read again",
            How::AskedAgain => "asked again",
            How::Missed => "missed",
        };
        json!({"how": how, "turn": self.turn, "word": self.word.as_ref().filter(|_| words)})
    }
}

/// What was needed of a session, by item.
#[derive(Clone, Debug, Default)]
pub struct NeededLater(pub HashMap<ItemNo, Need>);

impl NeededLater {
    /// Bytes of memory that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let words = self.0.values().filter_map(|need| need.word.as_ref());
        let words: usize = words.map(String::capacity).sum();
        words + self.0.len() * entry::<ItemNo, Need>()
    }

    /// How an item was needed.
    #[must_use]
    pub fn of(&self, no: ItemNo) -> Option<&Need> {
        self.0.get(&no)
    }

    /// How many of these were needed and not held.
    #[must_use]
    pub fn lost_of(&self, numbers: &[ItemNo]) -> usize {
        let needs = numbers.iter().filter_map(|no| self.of(*no));
        needs.filter(|need| need.how != How::Held).count()
    }
}
