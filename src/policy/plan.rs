//! A plan: moves of marks that were checked against the transcript. [`Plan::check`] is the only
//! way to one, so that no policy can touch a user, break an episode's order or move a mark left.
//! A pair can't be split by any plan: a result has no mark of its own and follows its call. Never
//! applies anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::protect::Protection;
use crate::model::{ItemKind, ItemNo, Kept, Mark};
use crate::session::graph::{Delimiter, Episode};
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::marked::Marked;
use crate::session::transcript::Item;

/// A proposed move of one item's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The item's index in the transcript.
    pub item: ItemIndex,
    /// The mark that it gets.
    pub mark: Mark,
    /// What is left of a call that is not taken out whole.
    pub kept: Option<Arc<Kept>>,
}

impl Move {
    /// A move after which nothing of the item's own is left.
    #[must_use]
    pub fn whole(item: ItemIndex, mark: Mark) -> Self {
        Self {
            item,
            mark,
            kept: None,
        }
    }
}

/// Why moves are no plan. Each is a mistake of a policy, never of a caller.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// No such item.
    #[error("item {0} is not in the transcript")]
    Absent(ItemIndex),
    /// The item is user, system or opaque content, or a result, which follows its call.
    #[error("item {0} has no mark of its own")]
    Fixed(ItemIndex),
    /// No view shows such an item with such a mark.
    #[error("item {0} can't be shown with that mark")]
    Unshowable(ItemIndex),
    /// The mark stands further right already.
    #[error("the mark of item {0} may only move right")]
    Left(ItemIndex),
    /// The item is protected.
    #[error("item {0} is protected")]
    Protected(ItemIndex),
    /// The item belongs to an expl on which an act in view depends.
    #[error("item {0} belongs to an episode with dependents in view")]
    Depended(ItemIndex),
    /// The item belongs to an open episode, of which only calls may go, and in the published order
    /// nothing.
    #[error("item {0} belongs to an open episode")]
    Open(ItemIndex),
    /// Text and `delimiter` exchanges go with the whole of their episode only.
    #[error("item {0} may only go with the whole of its episode")]
    Part(ItemIndex),
    /// The description of the expl would be lost: no tombstone is left to hold the ledger.
    #[error("item {0} may only go while a tombstone stands")]
    Lost(ItemIndex),
}

/// Checked moves by item number, ready to be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    moves: Vec<(ItemNo, Mark)>,
    kept: Vec<(ItemNo, Kept)>,
}

impl Plan {
    /// Checks moves against the transcript, its marks and what is protected.
    ///
    /// # Errors
    /// [`PlanError`] for the first move that breaks a rule.
    pub fn check(
        seen: Marked<'_>,
        protection: &Protection,
        moves: &[Move],
    ) -> Result<Self, PlanError> {
        let Marked { transcript, marks } = seen;
        let mut after = marks.clone();
        let mut plan = Self::default();
        for one in moves {
            let item = transcript
                .items
                .get(one.item)
                .ok_or(PlanError::Absent(one.item))?;
            let episode = evictable(item).and_then(|at| transcript.graph.episodes.get(at));
            let episode = episode.ok_or(PlanError::Fixed(one.item))?;
            is_showable(item, one, episode)?;
            if protection.heeds_episodes() {
                is_free(item, one, episode, protection)?;
            }
            let now = marks.get(item.no);
            if one.mark < now || (one.mark == now && one.kept.is_none()) {
                return Err(PlanError::Left(one.item));
            }
            // What is gone has nothing left to protect; its names go with the tombstone they stand in.
            if now < Mark::Removed && protection.covers(transcript, one.item) {
                return Err(PlanError::Protected(one.item));
            }
            after.raise(item.no, one.mark);
            plan.moves.push((item.no, one.mark));
            let kept = one.kept.as_ref().map(|kept| Kept::clone(kept));
            plan.kept.extend(kept.map(|kept| (item.no, kept)));
        }
        if protection.heeds_episodes() {
            episodes(Marked::new(transcript, &after), protection, moves)?;
        }
        Ok(plan)
    }

    /// The moves by item number.
    #[must_use]
    pub fn moves(&self) -> &[(ItemNo, Mark)] {
        &self.moves
    }

    /// What is left of items that are not taken out whole, by item number.
    #[must_use]
    pub fn kept(&self) -> &[(ItemNo, Kept)] {
        &self.kept
    }

    /// Whether nothing moves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }
}

/// The episode of an item that has a mark of its own.
fn evictable(item: &Item) -> Option<EpisodeIndex> {
    match item.kind {
        ItemKind::Text | ItemKind::Reasoning | ItemKind::Call => item.episode,
        ItemKind::System | ItemKind::User | ItemKind::Result | ItemKind::Opaque => None,
    }
}

/// Whether the view knows the mark on such an item.
fn is_showable(item: &Item, one: &Move, episode: &Episode) -> Result<(), PlanError> {
    let holder = matches!(
        item.delimiter,
        Some(Delimiter::Start(_) | Delimiter::End(_))
    );
    let carrier = episode.is_expl() && episode.carrier == Some(one.item);
    let partly = is_call(item) && one.kept.is_some();
    // A text that no call's result could speak for is a line in its own place.
    let line = item.kind == ItemKind::Text && one.kept.is_some() && episode.carrier.is_none();
    let showable = match one.mark {
        Mark::Live => false,
        Mark::Clipped => partly,
        Mark::Masked => holder || partly || line,
        Mark::Tombstone => carrier,
        Mark::Trimmed => partly && !item.bound,
        Mark::Removed => !item.bound,
    };
    if showable {
        Ok(())
    } else {
        Err(PlanError::Unshowable(one.item))
    }
}

/// Whether an open episode's rules allow the move: of one only calls may go, or nothing.
fn is_free(
    item: &Item,
    one: &Move,
    episode: &Episode,
    protection: &Protection,
) -> Result<(), PlanError> {
    let line = one.mark == Mark::Masked && item.kind != ItemKind::Text;
    if episode.closed || (!protection.holds_open() && (is_call(item) || line)) {
        Ok(())
    } else {
        Err(PlanError::Open(one.item))
    }
}

/// A call to a tool of the client's.
fn is_call(item: &Item) -> bool {
    item.kind == ItemKind::Call && item.delimiter.is_none()
}

/// The rules of whole episodes, each judged once as it stands after the moves.
fn episodes(after: Marked<'_>, protection: &Protection, moves: &[Move]) -> Result<(), PlanError> {
    let mut blocked: BTreeSet<EpisodeIndex> = BTreeSet::new();
    let mut seen: BTreeSet<EpisodeIndex> = BTreeSet::new();
    let mut parts: BTreeSet<EpisodeIndex> = BTreeSet::new();
    let mut merges = None;
    for one in moves {
        let Some(item) = after.transcript.items.get(one.item) else {
            continue;
        };
        let Some((at, episode)) = item
            .episode
            .and_then(|at| Some((at, after.transcript.graph.episodes.get(at)?)))
        else {
            continue;
        };
        if seen.insert(at) {
            if after.has_dependents(episode) {
                blocked.insert(at);
            }
            if !is_whole(after, episode) {
                parts.insert(at);
            }
        }
        // Its start, its text and its description stay in any case.
        let spared = protection.frees_depended() && (one.mark <= Mark::Masked || is_call(item));
        if blocked.contains(&at) && !spared {
            return Err(PlanError::Depended(one.item));
        }
        let with_all =
            one.mark > Mark::Masked && (item.kind == ItemKind::Text || item.delimiter.is_some());
        if with_all && parts.contains(&at) {
            return Err(PlanError::Part(one.item));
        }
        if one.mark == Mark::Removed && episode.is_expl() && episode.carrier == Some(one.item) {
            merges = merges.or(Some(one.item));
        }
    }
    match merges {
        Some(item) if after.ledger_host().is_none() => Err(PlanError::Lost(item)),
        Some(_) | None => Ok(()),
    }
}

/// Whether all of an episode is gone, up to its tombstone and reasoning, which stands for nothing.
fn is_whole(seen: Marked<'_>, episode: &Episode) -> bool {
    let tombstone = seen.tombstone(episode);
    episode.items.iter().all(|index| {
        let item = seen.transcript.items.get(*index);
        item.is_none_or(|item| {
            item.kind == ItemKind::Reasoning
                || tombstone == Some(*index)
                || seen.marks.get(item.no) == Mark::Removed
        })
    })
}
