//! The parts of a model's window (paper 004 §2.3): an allocation for each, what of it is lent to whom
//! (§4.3), and a reserve and a margin that are lent to nobody. Never evicts anything: the ceiling that
//! follows from the window starts passes.

use plimsoll_model::{label_set, share_tokens};

use crate::session::view::{Part, Parts};

label_set!(
    /// A part of the window that has an allocation, in the order in which surplus is lent (paper 004
    /// §4.3). The paper names no place for the system prompt, so it is last.
    #[derive(Hash)]
    Partition {
        /// What user and model say, and the results of tools.
        Messages => "messages",
        /// What the proxy adds: schemas, guidance, and what was recalled.
        Auxiliary => "auxiliary",
        /// The client's tools.
        Tools => "tools",
        /// The client's system and developer messages.
        System => "system",
    }
);

const COUNT: usize = Partition::ALL.len();

/// Shares of the window, each in 0..=1 and together at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Partitions {
    /// The allocations, by [`Partition`].
    pub allocated: [f64; COUNT],
    /// What is kept for the answer.
    pub reserve: f64,
    /// What is kept for errors of estimates.
    pub margin: f64,
}

/// One part of a window, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionUse {
    /// What it takes.
    pub used: u64,
    /// What it may take: its allocation, with what was lent to it and without what it lends.
    pub allowed: u64,
}

/// What a request takes of each partition.
#[must_use]
pub fn partitioned(parts: &Parts) -> [u64; COUNT] {
    Partition::ALL.map(|partition| match partition {
        Partition::Messages => {
            parts.get(Part::User) + parts.get(Part::Calls) + parts.get(Part::Results)
        }
        Partition::Auxiliary => parts.get(Part::Own),
        Partition::Tools => parts.get(Part::Tools),
        Partition::System => parts.get(Part::System),
    })
}

impl Partitions {
    /// The share of one partition.
    pub fn share(&mut self, partition: Partition) -> &mut f64 {
        let [messages, auxiliary, tools, system] = &mut self.allocated;
        match partition {
            Partition::Messages => messages,
            Partition::Auxiliary => auxiliary,
            Partition::Tools => tools,
            Partition::System => system,
        }
    }

    /// Whether the window is parted at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.allocated.iter().any(|share| *share > 0.0)
    }

    /// The sum of all shares.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.allocated.iter().sum::<f64>() + self.reserve + self.margin
    }

    /// The tokens of a window that a request may take. What no share names is lent to nobody, as reserve
    /// and margin are.
    #[must_use]
    pub fn room(&self, window: u32) -> u32 {
        let allocated: u64 = self.allocations(u64::from(window)).iter().sum();
        u32::try_from(allocated).unwrap_or(u32::MAX)
    }

    /// Lends what parts don't take to those that take more, in the order of [`Partition`]. Together they
    /// are never allowed more than what is allocated.
    #[must_use]
    pub fn lend(&self, window: u64, used: [u64; COUNT]) -> [PartitionUse; COUNT] {
        let mut parts = self
            .allocations(window)
            .map(|allowed| PartitionUse { used: 0, allowed });
        for (part, used) in parts.iter_mut().zip(used) {
            part.used = used;
        }
        let surplus: u64 = parts
            .iter()
            .map(|part| part.allowed.saturating_sub(part.used))
            .sum();
        let mut left = surplus;
        for part in &mut parts {
            let lent = part.used.saturating_sub(part.allowed).min(left);
            part.allowed += lent;
            left -= lent;
        }
        // Whoever has most to spare by the order is asked last.
        let mut owed = surplus - left;
        for part in parts.iter_mut().rev() {
            let spared = part.allowed.saturating_sub(part.used).min(owed);
            part.allowed -= spared;
            owed -= spared;
        }
        parts
    }

    fn allocations(&self, window: u64) -> [u64; COUNT] {
        self.allocated.map(|share| share_tokens(window, share))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Table 1 of paper 004.
    const PUBLISHED: Partitions = Partitions {
        allocated: [0.547, 0.156, 0.094, 0.031],
        reserve: 0.125,
        margin: 0.047,
    };

    fn allowed(used: [u64; COUNT]) -> [u64; COUNT] {
        PUBLISHED.lend(100_000, used).map(|part| part.allowed)
    }

    #[test]
    fn surplus_goes_to_messages_first_then_to_what_is_auxiliary_then_to_tools() {
        assert_eq!(allowed([0; COUNT]), [54_700, 15_600, 9_400, 3_100]);
        // 15,600 and 9,400 and 3,100 are not taken.
        assert_eq!(allowed([80_000, 0, 0, 0]), [80_000, 2_800, 0, 0]);
        assert_eq!(allowed([90_000, 0, 0, 0]), [82_800, 0, 0, 0]);
        // What messages don't need is left to the others.
        assert_eq!(
            allowed([54_700, 20_000, 12_000, 0]),
            [54_700, 18_700, 9_400, 0]
        );
        assert_eq!(
            allowed([40_000, 15_600, 12_000, 5_000]),
            [50_200, 15_600, 12_000, 5_000]
        );
        assert_eq!(PUBLISHED.room(100_000), 82_800);
        assert!(PUBLISHED.is_on() && !Partitions::default().is_on());
        assert!((PUBLISHED.sum() - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn reserve_and_margin_are_never_lent(
            used in prop::array::uniform4(0_u64..200_000),
            window in 0_u64..400_000,
        ) {
            let parts = PUBLISHED.lend(window, used);
            let own = PUBLISHED.lend(window, [0; COUNT]).map(|part| part.allowed);
            let all = |parts: &[u64]| parts.iter().sum::<u64>();
            let allowed = parts.map(|part| part.allowed);
            prop_assert_eq!(all(&allowed), all(&own), "what is lent is somebody's");
            let needs = used.iter().zip(own).any(|(used, own)| *used > own);
            let over = parts.iter().any(|part| part.used > part.allowed);
            prop_assert_eq!(over, all(&used) > all(&own), "over only together");
            prop_assert!(needs || allowed == own, "nothing is lent without need");
            for (part, own) in parts.iter().zip(own) {
                prop_assert!(part.allowed >= part.used.min(own), "nobody lends what it takes");
            }
        }
    }
}
