//! What no pass may touch, whatever the episode (design §5): the newest assistant message with
//! everything after it, the last tokens of the view, and what was recalled to stay while its
//! episode is open. In the published order also the prologue and open episodes.

use std::collections::HashSet;
use std::sync::Arc;

use crate::model::{ItemKind, MESSAGE_TOKENS, Mark};
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
    /// Whether items that were recalled to stay, and those that are held, may be evicted.
    unpinned: bool,
    /// Whether exploration that an act in view depends on may be shortened.
    depended: bool,
    /// Whether the rules of episodes apply. They don't to policies that move single items.
    episodes: bool,
    /// Whether nothing of an open episode may be evicted, not even its calls.
    open: bool,
    /// The first episode that is not part of the prologue.
    prologue: EpisodeIndex,
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
            unpinned: false,
            depended: false,
            episodes: true,
            open: false,
            prologue: EpisodeIndex(0),
        }
    }

    /// This protection, under which these calls go last too.
    #[must_use]
    pub fn holding(&self, held: &ItemSet) -> Self {
        Self {
            held: held.clone(),
            ..self.clone()
        }
    }

    /// This protection, under which these items may not be touched at all.
    #[must_use]
    pub fn sparing(&self, spared: &ItemSet) -> Self {
        Self {
            spared: spared.clone(),
            ..self.clone()
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
            unpinned: true,
            depended: true,
            episodes: false,
            open: false,
            prologue: EpisodeIndex(0),
        }
    }

    /// This protection, under which nothing of an open episode may be evicted.
    #[must_use]
    pub fn with_open(&self) -> Self {
        Self {
            open: true,
            ..self.clone()
        }
    }

    /// This protection, under which nothing of the episodes before this one may be evicted.
    #[must_use]
    pub fn with_prologue(&self, prologue: EpisodeIndex) -> Self {
        Self {
            prologue,
            ..self.clone()
        }
    }

    /// This protection without the recent tail, what was recalled to stay and what is held. These are freed last,
    /// before a budget is reported unmet.
    #[must_use]
    pub fn without_recent(&self) -> Self {
        Self {
            newest: self.newest,
            recent: ItemIndex(usize::MAX),
            unpinned: true,
            ..self.clone()
        }
    }

    /// This protection, under which calls and results that an act in view depends on may be evicted.
    #[must_use]
    pub fn without_depended(&self) -> Self {
        Self {
            depended: true,
            ..self.clone()
        }
    }

    /// This protection for a policy that knows no episodes.
    #[must_use]
    pub fn without_episodes(&self) -> Self {
        Self {
            episodes: false,
            ..self.clone()
        }
    }

    /// Whether the rules of episodes apply.
    #[must_use]
    pub fn heeds_episodes(&self) -> bool {
        self.episodes
    }

    /// Whether nothing of an open episode may be evicted.
    #[must_use]
    pub fn holds_open(&self) -> bool {
        self.open
    }

    /// Whether calls of exploration that an act in view depends on may be evicted.
    #[must_use]
    pub fn frees_depended(&self) -> bool {
        self.depended
    }

    /// Whether an item may not be touched. A call and its result are protected together.
    #[must_use]
    pub fn covers(&self, transcript: &Transcript, item: ItemIndex) -> bool {
        // Both protect from an item to the end, so the earlier one counts.
        let from = self.newest.min(self.recent);
        let one = transcript.items.get(item);
        let pair = one.and_then(|item| item.pair);
        let recent = item >= from || pair.is_some_and(|pair| pair >= from);
        let stays = one.is_some_and(|item| item.stays);
        let episode = one.and_then(|item| item.episode);
        let prologue = episode.is_some_and(|at| at < self.prologue);
        let in_set = |set: &ItemSet| set.has(item) || pair.is_some_and(|pair| set.has(pair));
        let kept = || in_set(&self.held) || is_pinned(transcript, item);
        recent || stays || prologue || in_set(&self.spared) || (!self.unpinned && kept())
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
