//! Which evicted items were needed later: a later call asked for them again, or used words of them. Owns
//! what is told of it; the lab's anchors say what counts as needed. Never reads a view's bytes.

use std::collections::HashMap;

use plimsoll_model::ItemNo;
use plimsoll_model::caches::entry;
use serde_json::{Value, json};

use super::story::StoryItem;

/// How an item was needed.
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
    /// Whether this is told rather than another: the worse of two, and of equals the earlier.
    fn is_told_before(&self, other: &Self) -> bool {
        (self.how, other.turn) > (other.how, self.turn)
    }

    /// As JSON. Words are content.
    #[must_use]
    pub fn shown(&self, words: bool) -> Value {
        let how = match self.how {
            How::Held => "in view",
            How::Recalled => "recalled",
            How::ReadAgain => "read again",
            How::AskedAgain => "asked again",
            How::Missed => "missed",
        };
        json!({"how": how, "turn": self.turn, "word": self.word.as_ref().filter(|_| words)})
    }
}

/// What was needed of a session, by item: of each time under one mark the worst need, in the order of turns.
#[derive(Clone, Debug, Default)]
pub struct NeededLater(HashMap<ItemNo, Vec<Need>>);

impl NeededLater {
    /// Bytes of memory that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let needs = || self.0.values().flatten();
        let words = needs().filter_map(|need| need.word.as_ref());
        let words: usize = words.map(String::capacity).sum();
        let each = self.0.values().map(Vec::capacity).sum::<usize>() * size_of::<Need>();
        words + each + self.0.len() * entry::<ItemNo, Vec<Need>>()
    }

    /// Notes that an item was needed. Of what happened under one mark the worst counts, and of equals the
    /// first.
    pub fn note(&mut self, item: &StoryItem, need: Need) {
        let under = |turn: u32| item.marks.partition_point(|(at, _)| *at <= turn);
        let needs = self.0.entry(item.no).or_default();
        let same = needs
            .iter_mut()
            .find(|known| under(known.turn) == under(need.turn));
        match same {
            None => {
                let place = needs.partition_point(|known| known.turn <= need.turn);
                needs.insert(place, need);
            }
            Some(known) if need.is_told_before(known) => *known = need,
            Some(_) => {}
        }
    }

    /// How an item was needed, at any time.
    #[must_use]
    pub fn of(&self, no: ItemNo) -> Option<&Need> {
        self.since(no, 0)
    }

    /// How an item was needed in a turn or later. The turn is one in which its mark changed.
    #[must_use]
    pub fn since(&self, no: ItemNo, turn: u32) -> Option<&Need> {
        let needs = self.0.get(&no)?.iter().filter(|need| need.turn >= turn);
        needs.reduce(|told, need| {
            if need.is_told_before(told) {
                need
            } else {
                told
            }
        })
    }

    /// How many of the items that a pass moved were needed since its turn and not held.
    #[must_use]
    pub fn lost_of(&self, numbers: &[ItemNo], turn: u32) -> usize {
        let needs = numbers.iter().filter_map(|no| self.since(*no, turn));
        needs.filter(|need| need.how != How::Held).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::StoryRole;
    use plimsoll_model::Mark;

    fn need(how: How, turn: u32) -> Need {
        let word = None;
        Need { how, turn, word }
    }

    /// A pass answers for what was needed after it, and not for what was needed before.
    #[test]
    fn a_pass_is_told_of_what_was_needed_since() {
        let item = StoryItem {
            no: ItemNo(7),
            id: "c7".to_owned(),
            role: StoryRole::Call,
            tool: None,
            turn: 1,
            episode: None,
            tokens: None,
            marks: vec![(4, Mark::Masked), (9, Mark::Removed)],
            sizes: Vec::new(),
            recalled: false,
        };
        let mut needed = NeededLater::default();
        needed.note(&item, need(How::Held, 11));
        needed.note(&item, need(How::Missed, 6));
        needed.note(&item, need(How::ReadAgain, 5));
        needed.note(&item, need(How::Missed, 5));
        needed.note(&item, need(How::Held, 12));
        assert_eq!(needed.of(item.no), Some(&need(How::Missed, 5)));
        assert_eq!(needed.since(item.no, 4), Some(&need(How::Missed, 5)));
        assert_eq!(needed.since(item.no, 9), Some(&need(How::Held, 11)));
        assert_eq!(needed.since(item.no, 13), None);
        assert_eq!(needed.lost_of(&[item.no], 4), 1);
        assert_eq!(needed.lost_of(&[item.no], 9), 0);
    }
}
