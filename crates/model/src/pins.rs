//! Pins: what somebody asked to keep in view, by item number, a call for its result. Records hold every
//! move, and a conversation keeps its pins when an edit drops the record that says so. Never decides
//! whether there is room for them.

use serde::{Deserialize, Serialize};

use super::weight::list;
use super::{ItemNo, label_set};

/// The most pins of a conversation. A further one takes the place of the oldest.
pub const MOST_PINS: usize = 64;

/// A pin that a turn set or lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PinMove {
    /// The item is pinned, as the newest.
    Set(ItemNo),
    /// The item is pinned no longer.
    Lift(ItemNo),
}

label_set!(
    /// What became of a pin that somebody asked for.
    #[derive(Hash)]
    PinOutcome {
        /// It holds from this turn on.
        Set => "set",
        /// It was lifted.
        Lifted => "lifted",
        /// It names nothing of this conversation.
        Unknown => "unknown",
    }
);

/// The pinned items of a conversation, the oldest pin first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(Vec<ItemNo>);

impl Pins {
    /// Those of a snapshot, the oldest first.
    #[must_use]
    pub fn new(items: Vec<ItemNo>) -> Self {
        let mut pins = Self(items);
        pins.bound();
        pins
    }

    /// Applies what a turn moved, in order.
    pub fn apply(&mut self, moves: &[PinMove]) {
        for one in moves {
            let (PinMove::Set(item) | PinMove::Lift(item)) = *one;
            self.0.retain(|pinned| *pinned != item);
            if matches!(one, PinMove::Set(_)) {
                self.0.push(item);
                self.bound();
            }
        }
    }

    fn bound(&mut self) {
        let over = self.0.len().saturating_sub(MOST_PINS);
        self.0.drain(..over);
    }

    /// The fewest moves that make these of those `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<PinMove> {
        let gone = before.0.iter().filter(|item| !self.0.contains(item));
        let lifts = gone.copied().map(PinMove::Lift);
        let left = before.0.iter().filter(|item| self.0.contains(item));
        // Whoever is still in its place needs no move; all behind the first that is not are set again.
        let same = left
            .zip(&self.0)
            .take_while(|(before, now)| before == now)
            .count();
        let sets = self.0.iter().skip(same).copied().map(PinMove::Set);
        lifts.chain(sets).collect()
    }

    /// The items, the oldest pin first.
    #[must_use]
    pub fn items(&self) -> &[ItemNo] {
        &self.0
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn weight(&self) -> usize {
        list(&self.0)
    }

    /// Whether nothing is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pins_are_set_lifted_and_bounded() {
        let mut pins = Pins::default();
        let set = |no| PinMove::Set(ItemNo(no));
        pins.apply(&[set(1), set(2), set(3), set(1)]);
        assert_eq!(pins.items(), [2, 3, 1].map(ItemNo), "set again is newest");
        pins.apply(&[PinMove::Lift(ItemNo(3)), PinMove::Lift(ItemNo(9))]);
        assert_eq!(pins.items(), [2, 1].map(ItemNo));
        let many: Vec<PinMove> = (10..100).map(set).collect();
        pins.apply(&many);
        assert_eq!(pins.items().len(), MOST_PINS);
        assert_eq!(pins.items().last(), Some(&ItemNo(99)));
        let list = (0..200).map(ItemNo).collect();
        assert_eq!(Pins::new(list).items().len(), MOST_PINS);
    }

    proptest! {
        #[test]
        fn what_moved_leads_from_the_pins_before_to_those_after(
            before in prop::collection::vec((any::<bool>(), 0_u32..80), 0..90),
            moved in prop::collection::vec((any::<bool>(), 0_u32..80), 0..20),
        ) {
            let moves = |list: &[(bool, u32)]| -> Vec<PinMove> {
                let one = |(set, no): &(bool, u32)| {
                    let make = if *set { PinMove::Set } else { PinMove::Lift };
                    make(ItemNo(*no))
                };
                list.iter().map(one).collect()
            };
            let mut pins = Pins::default();
            pins.apply(&moves(&before));
            let mut after = pins.clone();
            after.apply(&moves(&moved));
            let since = after.since(&pins);
            prop_assert!(since.len() <= 2 * MOST_PINS);
            pins.apply(&since);
            prop_assert_eq!(&pins, &after);
            prop_assert_eq!(after.since(&pins), vec![]);
        }
    }
}
