//! The marks of a path: how each item is shown, by item number, and what a pass chose to leave of
//! it. A mark only ever moves right, and this is the one place that moves it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::weight::{list, shared};
use super::{ItemNo, Mark};

/// What a pass chose to leave of a call and its result, as spans of bytes of the originals: the
/// choice depends on what else was in view then, so it is kept with the mark. The text itself is
/// not, since the client resends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    /// The length of the original result in bytes; none where the result stays whole. Where it
    /// differs the client has edited its copy, and no span holds any more.
    pub of: Option<u32>,
    /// Runs of whole lines of the result that stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<(u32, u32)>,
    /// Strings of the result that are named after it is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub index: Vec<(u32, u32)>,
    /// Strings of what is cut out of the call's arguments, once they are trimmed. Spans are of the
    /// arguments' texts as [`crate::session::stub::flat`] joins them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trimmed: Option<Vec<(u32, u32)>>,
}

/// Marks by item number; an item that was never marked is live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    marks: Vec<Mark>,
    kept: BTreeMap<ItemNo, Arc<Kept>>,
    /// What all of `kept` takes.
    weight: usize,
}

/// What a place in the map takes: nodes are half full at worst.
const PLACE: usize = 32;

impl Marks {
    /// The mark of an item.
    #[must_use]
    pub fn get(&self, item: ItemNo) -> Mark {
        self.marks.get(item as usize).copied().unwrap_or_default()
    }

    /// What is left of an item that is shown in part.
    #[must_use]
    pub fn kept(&self, item: ItemNo) -> Option<&Arc<Kept>> {
        self.kept.get(&item)
    }

    /// Moves a mark right; a mark that stands further right already stays.
    pub fn raise(&mut self, item: ItemNo, mark: Mark) {
        let at = item as usize;
        if at >= self.marks.len() {
            self.marks.resize(at + 1, Mark::Live);
        }
        if let Some(slot) = self.marks.get_mut(at) {
            *slot = mark.max(*slot);
        }
        if mark == Mark::Removed {
            self.drop_kept(item);
        }
    }

    fn drop_kept(&mut self, item: ItemNo) {
        if let Some(kept) = self.kept.remove(&item) {
            self.weight = self.weight.saturating_sub(weight(&kept));
        }
    }

    /// Says what is left of an item. What is removed may leave strings that its episode's tombstone
    /// names.
    pub fn keep(&mut self, item: ItemNo, kept: Arc<Kept>) {
        self.drop_kept(item);
        if *kept != Kept::default() {
            self.weight += weight(&kept);
            self.kept.insert(item, kept);
        }
    }

    /// Applies the moves of a pass.
    pub fn apply(&mut self, moves: &[(ItemNo, Mark)], kept: &[(ItemNo, Kept)]) {
        for (item, mark) in moves {
            self.raise(*item, *mark);
        }
        for (item, kept) in kept {
            self.keep(*item, Arc::new(kept.clone()));
        }
    }

    /// All marks that are not live, in item order.
    pub fn iter(&self) -> impl Iterator<Item = (ItemNo, Mark)> + '_ {
        self.marks
            .iter()
            .zip(0..)
            .filter(|(mark, _)| **mark != Mark::Live)
            .map(|(mark, item)| (item, *mark))
    }

    /// What is left of the items that are shown in part, in item order.
    pub fn iter_kept(&self) -> impl Iterator<Item = (ItemNo, &Arc<Kept>)> + '_ {
        self.kept.iter().map(|(item, kept)| (*item, kept))
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn weight(&self) -> usize {
        list(&self.marks) + self.weight
    }

    /// Whether nothing was ever evicted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

/// What is left of an item, with its place.
fn weight(kept: &Kept) -> usize {
    shared::<Kept>() + kept.owned() + PLACE
}
