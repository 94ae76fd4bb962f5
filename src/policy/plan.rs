//! A plan: moves of marks that were checked against the transcript. [`Plan::check`] is the only way
//! to make one, so no policy can evict user text, break the order of an episode or move a mark
//! left. No plan can split a call from its result: a result has no mark of its own and follows its
//! call. Never applies anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::protect::Protection;
use crate::model::{ItemKind, ItemNo, Kept, Mark, Marks};
use crate::session::graph::{DelimiterRole, Episode, EpisodeKind};
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::marked::Marked;
use crate::session::measure::Measure;
use crate::session::transcript::Item;
use crate::session::view::View;

/// A proposed move of one item's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The item.
    pub item: ItemIndex,
    /// The mark that it gets.
    pub mark: Mark,
    /// What is left of the item, unless it is removed whole.
    pub kept: Option<Arc<Kept>>,
}

impl Move {
    /// A move that leaves nothing of the item itself.
    #[must_use]
    pub fn whole(item: ItemIndex, mark: Mark) -> Self {
        Self {
            item,
            mark,
            kept: None,
        }
    }
}

/// Why moves are not a plan. Each is a mistake of a policy, never of a caller.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// No such item.
    #[error("item {0} is not in the transcript")]
    Absent(ItemIndex),
    /// The item is user, system or opaque content, or a result.
    #[error("item {0} has no mark of its own")]
    Fixed(ItemIndex),
    /// No view can show such an item with this mark.
    #[error("item {0} can't be shown with that mark")]
    Unshowable(ItemIndex),
    /// The mark is further right already.
    #[error("the mark of item {0} may only move right")]
    Left(ItemIndex),
    /// The item is protected.
    #[error("item {0} is protected")]
    Protected(ItemIndex),
    /// The item belongs to an expl on which an act in view depends.
    #[error("item {0} belongs to an episode with dependents in view")]
    Depended(ItemIndex),
    /// The item belongs to an open episode. Only calls of one may be evicted, and in the published
    /// order nothing.
    #[error("item {0} belongs to an open episode")]
    Open(ItemIndex),
    /// Text and `delimiter` calls may be evicted only together with their whole episode.
    #[error("item {0} may only go with the whole of its episode")]
    Part(ItemIndex),
    /// The description of the expl would be lost: no tombstone is left to hold the ledger.
    #[error("item {0} may only go while a tombstone stands")]
    Lost(ItemIndex),
    /// Another result points to this one, which has to stay whole as long as that is shown.
    #[error("item {0} is what another result points to")]
    PointedTo(ItemIndex),
}

impl PlanError {
    /// The item whose move breaks the rule.
    #[must_use]
    pub fn item(self) -> ItemIndex {
        match self {
            Self::Absent(item)
            | Self::Fixed(item)
            | Self::Unshowable(item)
            | Self::Left(item)
            | Self::Protected(item)
            | Self::Depended(item)
            | Self::Open(item)
            | Self::Part(item)
            | Self::Lost(item)
            | Self::PointedTo(item) => item,
        }
    }
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
        // Rules of single items are checked move by move, those of whole episodes on the marks
        // after all moves.
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
            // The same mark again makes sense only if it changes what is left.
            if one.mark < now || (one.mark == now && one.kept.is_none()) {
                return Err(PlanError::Left(one.item));
            }
            if protection.covers(transcript, one.item) {
                return Err(PlanError::Protected(one.item));
            }
            after.raise(item.no, one.mark);
            plan.moves.push((item.no, one.mark));
            if let Some(kept) = &one.kept {
                after.keep(item.no, Arc::clone(kept));
                plan.kept.push((item.no, Kept::clone(kept)));
            }
        }
        let after = Marked::new(transcript, &after);
        if protection.heeds_episodes() {
            episodes(after, protection, moves)?;
        }
        pointers(after, moves)?;
        Ok(plan)
    }

    /// The plan of all moves that break no rule, and why each of the others was dropped. What one
    /// policy gets wrong must not undo the rest.
    #[must_use]
    pub fn judge(
        seen: Marked<'_>,
        protection: &Protection,
        mut moves: Vec<Move>,
    ) -> (Self, Vec<PlanError>) {
        let mut dropped = Vec::new();
        loop {
            match Self::check(seen, protection, &moves) {
                Ok(plan) => return (plan, dropped),
                Err(error) => {
                    moves.retain(|one| one.item != error.item());
                    dropped.push(error);
                }
            }
        }
    }

    /// The same plan, followed by the moves of another.
    pub fn append(&mut self, other: Self) {
        self.moves.extend(other.moves);
        self.kept.extend(other.kept);
    }

    /// The moves by item number.
    #[must_use]
    pub fn moves(&self) -> &[(ItemNo, Mark)] {
        &self.moves
    }

    /// What is left of items that are not removed whole, by item number.
    #[must_use]
    pub fn kept(&self) -> &[(ItemNo, Kept)] {
        &self.kept
    }

    /// Marks after its moves.
    #[must_use]
    pub fn applied(&self, marks: &Marks) -> Marks {
        let mut marks = marks.clone();
        marks.apply(&self.moves, &self.kept);
        marks
    }

    /// A view after its moves.
    #[must_use]
    pub fn view(&self, before: &View, measure: Measure<'_>) -> View {
        let marks = self.applied(before.marks());
        View::new(before.shared(), Arc::new(marks), measure)
    }

    /// Whether nothing moves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }
}

/// The episode of an item; `None` if the item has no mark of its own.
fn evictable(item: &Item) -> Option<EpisodeIndex> {
    match item.kind {
        ItemKind::Text | ItemKind::Reasoning | ItemKind::Call => item.episode,
        ItemKind::System | ItemKind::User | ItemKind::Result | ItemKind::Opaque => None,
    }
}

/// Checks that the view can show such an item with this mark.
fn is_showable(item: &Item, one: &Move, episode: &Episode) -> Result<(), PlanError> {
    let holder = matches!(
        item.delimiter,
        Some(DelimiterRole::Start(_) | DelimiterRole::End(_))
    );
    // Any call of an implicit episode may carry its tombstone.
    let carrier = match episode.kind {
        EpisodeKind::Implicit => is_call(item),
        EpisodeKind::Expl => episode.carrier == Some(one.item),
        EpisodeKind::Act => false,
    };
    let partly = is_call(item) && one.kept.is_some();
    // A text without calls can be replaced by a line.
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

/// Checks the rules of open episodes: only calls and thoughts of one may be evicted, or nothing.
fn is_free(
    item: &Item,
    one: &Move,
    episode: &Episode,
    protection: &Protection,
) -> Result<(), PlanError> {
    let line = one.mark == Mark::Masked && item.kind != ItemKind::Text;
    let parts = is_call(item) || line || item.kind == ItemKind::Reasoning;
    if episode.closed || (!protection.holds_open() && parts) {
        Ok(())
    } else {
        Err(PlanError::Open(one.item))
    }
}

/// Whether an item is a call to a tool of the client.
fn is_call(item: &Item) -> bool {
    item.kind == ItemKind::Call && item.delimiter.is_none()
}

/// Checks the rules of whole episodes, each once, as they are after the moves.
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
        // Each episode is judged once, however many of its items move.
        if seen.insert(at) {
            if after.has_dependents(episode) {
                blocked.insert(at);
            }
            if !is_whole(after, episode) {
                parts.insert(at);
            }
        }
        // Thoughts are no work, and calls may be evicted all the same if the pass frees depended-on
        // exploration; its description stays, if need be in a tombstone.
        let thought = item.kind == ItemKind::Reasoning && !protection.holds_open();
        let shortened = one.mark <= Mark::Masked || is_call(item);
        let told = || after.tombstone(episode).is_some() && is_whole(after, episode);
        let spared = thought || (protection.frees_depended() && (shortened || told()));
        if blocked.contains(&at) && !spared {
            return Err(PlanError::Depended(one.item));
        }
        // Text and `delimiter` calls tell what an episode was about, so they go last.
        let with_all =
            one.mark > Mark::Masked && (item.kind == ItemKind::Text || item.delimiter.is_some());
        if with_all && parts.contains(&at) {
            return Err(PlanError::Part(one.item));
        }
        if one.mark == Mark::Removed
            && episode.is_expl()
            && after.carrier(episode) == Some(one.item)
        {
            merges = merges.or(Some(one.item));
        }
    }
    match merges {
        // A merged expl is named only by the ledger, which needs a tombstone to stand in.
        Some(item) if after.ledger_host().is_none() => Err(PlanError::Lost(item)),
        Some(_) | None => Ok(()),
    }
}

/// Checks that every result to which another points stays whole.
fn pointers(after: Marked<'_>, moves: &[Move]) -> Result<(), PlanError> {
    let pointed = after.pointers();
    if pointed.is_empty() {
        return Ok(());
    }
    for one in moves {
        if pointed.contains_key(&one.item) && after.mark_of(one.item) != Mark::Live {
            return Err(PlanError::PointedTo(one.item));
        }
    }
    Ok(())
}

/// Whether all of an episode is evicted, except its tombstone and reasoning, which stands for
/// nothing.
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
