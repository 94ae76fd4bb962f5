//! The marks of a path: how each item is shown, by item number. A mark only ever moves right, and
//! this is the one place that moves it.

use super::{ItemNo, Mark};

/// Marks by item number; an item that was never marked is live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(Vec<Mark>);

impl Marks {
    /// The mark of an item.
    #[must_use]
    pub fn get(&self, item: ItemNo) -> Mark {
        self.0.get(item as usize).copied().unwrap_or_default()
    }

    /// Moves a mark right; a mark that stands further right already stays.
    pub fn raise(&mut self, item: ItemNo, mark: Mark) {
        let at = item as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, Mark::Live);
        }
        if let Some(slot) = self.0.get_mut(at) {
            *slot = mark.max(*slot);
        }
    }

    /// Applies the moves of a pass.
    pub fn apply(&mut self, moves: &[(ItemNo, Mark)]) {
        for (item, mark) in moves {
            self.raise(*item, *mark);
        }
    }

    /// All marks that are not live, in item order.
    pub fn iter(&self) -> impl Iterator<Item = (ItemNo, Mark)> + '_ {
        self.0
            .iter()
            .zip(0..)
            .filter(|(mark, _)| **mark != Mark::Live)
            .map(|(mark, item)| (item, *mark))
    }

    /// Whether nothing was ever evicted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
