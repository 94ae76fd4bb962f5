//! How early an item may go: its tier, and how far up the tiers a pass has come (design §5). Also which rules of
//! episodes hold. Never chooses what is evicted: `order` says which tier a step takes.

use std::collections::HashSet;
use std::sync::Arc;

use plimsoll_model::{ItemKind, MESSAGE_TOKENS, Mark, label_set};

use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::marked::Marked;
use crate::session::transcript::Transcript;

/// Items by index: a result counts as part of its call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemSet(Arc<HashSet<ItemIndex>>);

impl ItemSet {
    /// These items.
    #[must_use]
    pub fn new(items: HashSet<ItemIndex>) -> Self {
        Self(Arc::new(items))
    }

    /// These and others.
    #[must_use]
    pub fn with(mut self, others: Vec<ItemIndex>) -> Self {
        if !others.is_empty() {
            Arc::make_mut(&mut self.0).extend(others);
        }
        self
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an item is one of them.
    #[must_use]
    pub fn has(&self, item: ItemIndex) -> bool {
        !self.0.is_empty() && self.0.contains(&item)
    }
}

label_set!(
    /// How early an item may go, the earliest last. Items of the first four are protected by themselves; the others
    /// go as early as their episode, of which `Work::tier` says the tier. No tier is
    /// stored, so a move changes those of other items at once: an act that goes frees what it depended on.
    #[derive(PartialOrd, Ord)]
    Tier {
        /// It has a form that must stay, its policy's filter leaves it out, or it is prologue.
        Never => "never",
        /// It belongs to the newest assistant message or comes after it. No pass ever takes it.
        Newest => "newest",
        /// Somebody asked to keep it, or it was recalled to stay and its episode is open.
        Kept => "kept",
        /// It belongs to the last tokens of the view.
        Recent => "recent",
        /// It belongs to exploration that an act in view depends on.
        Depended => "depended",
        /// It belongs to an open episode.
        Open => "open",
        /// Nothing needs it.
        Free => "free",
    }
);

/// Which rules of episodes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Nothing goes of an open episode or of exploration that an act in view depends on.
    Strict,
    /// Calls and thoughts of both may go, the latter's calls only once a pass has come to them.
    Parts,
    /// None: the policy moves single items.
    Off,
}

/// Which items are protected.
#[derive(Clone, Debug)]
pub struct Protection {
    /// The first item of the newest assistant message.
    newest: ItemIndex,
    /// The first item of the protected tail.
    recent: ItemIndex,
    /// What somebody asked to keep.
    held: ItemSet,
    /// What the policy may not touch at all.
    spared: ItemSet,
    /// The first episode that is not part of the prologue.
    prologue: EpisodeIndex,
    rules: Rules,
    /// The first tier that may go now. All behind it may go too.
    from: Tier,
}

impl Protection {
    /// Protects the newest assistant message with everything after it, and at most the last
    /// `recent` raw tokens of what is shown.
    #[must_use]
    pub fn new(seen: Marked<'_>, recent: u32) -> Self {
        let Marked { transcript, marks } = seen;
        let newest = transcript
            .newest_answer()
            .map_or(transcript.items.end(), |entry| entry.items.start);
        let mut start = transcript.items.end();
        let mut left = recent;
        for (index, item) in transcript.items.indexed().rev() {
            // A result has the number of its call and is shown with it. The result of a tombstone
            // or of a trimmed call shows a few words only.
            let size = match (item.kind, marks.get(item.no)) {
                (ItemKind::Opaque | ItemKind::System | ItemKind::User, _)
                | (_, Mark::Live | Mark::Clipped | Mark::Masked)
                | (ItemKind::Call, Mark::Tombstone | Mark::Trimmed) => item.tokens + MESSAGE_TOKENS,
                (
                    ItemKind::Text | ItemKind::Reasoning | ItemKind::Result,
                    Mark::Tombstone | Mark::Trimmed,
                )
                | (_, Mark::Removed) => 0,
            };
            // The tail ends before the item that would exceed it.
            if size > left {
                break;
            }
            left -= size;
            start = index;
        }
        Self {
            newest,
            recent: start,
            held: ItemSet::default(),
            spared: ItemSet::default(),
            prologue: EpisodeIndex(0),
            rules: Rules::Parts,
            from: Tier::Open,
        }
    }

    /// For rungs that edit new results: they were never sent, so nothing protects them except a form
    /// that no edit could write back.
    #[must_use]
    pub fn of_entry() -> Self {
        Self {
            newest: ItemIndex(usize::MAX),
            recent: ItemIndex(usize::MAX),
            held: ItemSet::default(),
            spared: ItemSet::default(),
            prologue: EpisodeIndex(0),
            rules: Rules::Off,
            from: Tier::Kept,
        }
    }

    /// This protection, under which these calls go last too.
    #[must_use]
    pub fn holding(mut self, held: &ItemSet) -> Self {
        self.held = held.clone();
        self
    }

    /// This protection, under which these items may not be touched at all.
    #[must_use]
    pub fn sparing(mut self, spared: &ItemSet) -> Self {
        self.spared = spared.clone();
        self
    }

    /// This protection under these rules.
    #[must_use]
    pub fn under(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// This protection, under which nothing of the episodes before this one may be evicted.
    #[must_use]
    pub fn behind(mut self, prologue: EpisodeIndex) -> Self {
        self.prologue = prologue;
        self
    }

    /// Has items of a tier go from now on, and of all tiers behind it.
    pub fn open(&mut self, tier: Tier) {
        self.from = self.from.min(tier);
    }

    /// Has the rules of episodes hold no longer.
    pub fn lift_rules(&mut self) {
        self.rules = Rules::Off;
    }

    /// The rules that hold.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Whether calls of exploration that an act in view depends on may be evicted.
    #[must_use]
    pub fn frees_depended(&self) -> bool {
        self.rules != Rules::Strict && self.from <= Tier::Depended
    }

    /// Whether an episode is part of the prologue.
    #[must_use]
    pub fn is_prologue(&self, episode: EpisodeIndex) -> bool {
        episode < self.prologue
    }

    /// The tier of an item by itself; free if it goes as early as its episode. A call and its result have the
    /// same.
    #[must_use]
    pub fn tier(&self, transcript: &Transcript, item: ItemIndex) -> Tier {
        let one = transcript.items.get(item);
        let pair = one.and_then(|item| item.pair);
        let from = |first: ItemIndex| item >= first || pair.is_some_and(|pair| pair >= first);
        let in_set = |set: &ItemSet| set.has(item) || pair.is_some_and(|pair| set.has(pair));
        let stays = one.is_some_and(|item| item.stays);
        let episode = one.and_then(|item| item.episode);
        let prologue = episode.is_some_and(|at| self.is_prologue(at));
        if stays || prologue || in_set(&self.spared) {
            Tier::Never
        } else if from(self.newest) {
            Tier::Newest
        } else if in_set(&self.held) || is_pinned(transcript, item) {
            Tier::Kept
        } else if from(self.recent) {
            Tier::Recent
        } else {
            Tier::Free
        }
    }

    /// Whether an item may not be touched now. A call and its result are protected together.
    #[must_use]
    pub fn covers(&self, transcript: &Transcript, item: ItemIndex) -> bool {
        self.tier(transcript, item) < self.from
    }

    /// Whether an item belongs to the newest assistant message or comes after it. No pass ever frees
    /// those.
    #[must_use]
    pub fn is_newest(&self, item: ItemIndex) -> bool {
        item >= self.newest
    }

    /// Whether an item belongs to the protected tail.
    #[must_use]
    pub fn is_recent(&self, item: ItemIndex) -> bool {
        item >= self.recent.min(self.newest)
    }
}

/// Whether an item was recalled to stay and its episode is open.
fn is_pinned(transcript: &Transcript, item: ItemIndex) -> bool {
    let item = transcript.items.get(item).filter(|item| item.pinned);
    let episode = item.and_then(|item| transcript.graph.episodes.get(item.episode?));
    episode.is_some_and(|episode| !episode.closed)
}
