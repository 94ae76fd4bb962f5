//! Things that wait and have owners: each owner's in the order in which they came, and the owners in
//! turn, so that nobody waits for all that somebody else has brought. Owns that order. Never waits
//! itself, and bounds nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Things that wait, by their owners.
#[derive(Debug)]
pub struct Turns<K, T> {
    /// What each owner has, with the cost of each thing. An owner that has nothing has no entry.
    lanes: HashMap<K, VecDeque<(usize, T)>>,
    /// The owners that have something. It is the first one's turn.
    order: VecDeque<K>,
    /// How much a turn may cost.
    most: usize,
    /// How much this turn has cost.
    spent: usize,
    /// How many things there are.
    len: usize,
}

impl<K: Copy + Eq + Hash, T> Turns<K, T> {
    /// Makes an empty one. A turn is over when it has cost `most`, or when its owner has nothing left.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            order: VecDeque::new(),
            most,
            spent: 0,
            len: 0,
        }
    }

    /// Adds a thing behind all others of its owner.
    pub fn put(&mut self, owner: K, cost: usize, thing: T) {
        let lane = self.lanes.entry(owner).or_default();
        if lane.is_empty() {
            self.order.push_back(owner);
        }
        lane.push_back((cost, thing));
        self.len += 1;
    }

    /// Takes the next thing of the owner whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        self.take_kept(|_| true)
    }

    /// Takes the next thing that is to be kept. What is dropped before it costs its owner nothing.
    pub fn take_kept(&mut self, keep: impl Fn(&T) -> bool) -> Option<T> {
        loop {
            let owner = *self.order.front()?;
            let lane = self.lanes.get_mut(&owner)?;
            let (cost, thing) = lane.pop_front()?;
            let is_done = lane.is_empty();
            let kept = keep(&thing);
            self.len -= 1;
            if kept {
                self.spent += cost;
            }
            if is_done {
                self.lanes.remove(&owner);
            }
            if is_done || self.spent >= self.most {
                self.spent = 0;
                self.order.pop_front();
                self.order.extend((!is_done).then_some(owner));
            }
            if kept {
                return Some(thing);
            }
        }
    }

    /// How many things wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops the things that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let turn = self.order.front().copied();
        for lane in self.lanes.values_mut() {
            lane.retain(|(_, thing)| keep(thing));
        }
        self.lanes.retain(|_, lane| !lane.is_empty());
        self.order.retain(|owner| self.lanes.contains_key(owner));
        self.len = self.lanes.values().map(VecDeque::len).sum();
        if self.order.front().copied() != turn {
            self.spent = 0;
        }
    }

    /// The first thing of each owner.
    pub fn firsts(&self) -> impl Iterator<Item = &T> {
        let lanes = self.lanes.values();
        lanes.filter_map(|lane| lane.front().map(|(_, thing)| thing))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(turns: &mut Turns<u8, usize>) -> Vec<usize> {
        std::iter::from_fn(|| turns.take()).collect()
    }

    #[test]
    fn owners_take_turns_that_cost_about_the_same() {
        let mut turns = Turns::new(4);
        let owned = [
            (1, 4),
            (1, 3),
            (1, 1),
            (1, 1),
            (2, 2),
            (2, 2),
            (2, 2),
            (3, 9),
        ];
        for (thing, (owner, cost)) in owned.into_iter().enumerate() {
            turns.put(owner, cost, thing);
        }
        assert_eq!(all(&mut turns), [0, 4, 5, 7, 1, 2, 6, 3]);
        assert!(turns.lanes.is_empty() && turns.order.is_empty() && turns.is_empty());
        turns.put(1, 1, 8);
        assert_eq!(turns.firsts().collect::<Vec<_>>(), [&8]);
    }

    #[test]
    fn what_is_dropped_ends_its_owners_turn_if_nothing_is_left() {
        let mut turns = Turns::new(2);
        for (thing, owner) in [1, 1, 2, 2, 2, 3].into_iter().enumerate() {
            turns.put(owner, 1, thing);
        }
        assert_eq!(turns.take(), Some(0));
        turns.retain(|thing| ![1, 3].contains(thing));
        assert_eq!(turns.len(), 3);
        assert_eq!(all(&mut turns), [2, 4, 5]);
        assert!(turns.is_empty());
    }

    #[test]
    fn what_is_passed_over_is_no_turn() {
        let mut turns = Turns::new(1);
        for (thing, owner) in [1, 1, 1, 2, 2, 2, 3, 1].into_iter().enumerate() {
            turns.put(owner, 1, thing);
        }
        let mut take = || turns.take_kept(|thing| ![1, 6].contains(thing));
        let taken: Vec<usize> = std::iter::from_fn(&mut take).collect();
        assert_eq!(taken, [0, 3, 2, 4, 7, 5]);
        assert!(turns.is_empty() && turns.lanes.is_empty());
    }

    proptest! {
        /// Nothing is lost, each owner's things come in their order, and who comes waits for no more
        /// than a turn of each other owner.
        #[test]
        fn nobody_waits_for_all_of_anothers(
            things in proptest::collection::vec((0..4u8, 1..6usize), 0..40),
            most in 1..8usize,
        ) {
            let mut turns = Turns::new(most);
            for (thing, (owner, cost)) in things.iter().enumerate() {
                turns.put(*owner, *cost, thing);
            }
            // Whoever comes last has one thing.
            turns.put(9, 1, things.len());
            let mut out = all(&mut turns);
            let before = out.iter().position(|thing| *thing == things.len()).unwrap();
            for owner in 0..4 {
                let of = |thing: &&usize| things[**thing].0 == owner;
                let costs: usize = out[..before].iter().filter(of).map(|thing| things[*thing].1).sum();
                // The thing that ends a turn may cost more than what is left of it.
                prop_assert!(costs < most + 6);
                prop_assert!(out.iter().filter(|thing| **thing < things.len()).filter(of).is_sorted());
            }
            out.sort_unstable();
            prop_assert_eq!(out, (0..=things.len()).collect::<Vec<_>>());
        }
    }
}
