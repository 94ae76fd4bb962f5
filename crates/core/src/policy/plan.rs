//! A plan: moves of marks that were checked against the transcript. [`Plan::check`] is the only way
//! to make one, so no policy can evict user text, break the order of an episode or move a mark
//! left. No plan can split a call from its result: a result has no mark of its own and follows its
//! call. Never applies anything.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll_model::{ItemKind, ItemNo, Kept, Mark, Marks};

use super::protect::{Protection, Rules};
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

/// What breaks a kind of rule.
struct Broken {
    /// The first that does.
    error: PlanError,
    others: Vec<PlanError>,
}

impl Broken {
    fn unless_none(wrong: Vec<PlanError>) -> Result<(), Self> {
        let mut wrong = wrong.into_iter();
        wrong.next().map_or(Ok(()), |error| {
            let others = wrong.collect();
            Err(Self { error, others })
        })
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
        Self::tried(seen, protection, moves).map_err(|first| first.error)
    }

    /// The plan of all moves that break no rule, and why each of the others was dropped. What one
    /// policy gets wrong must not undo the rest. Moves that break a rule are dropped together, so that
    /// many of them don't cost many checks: what stays is checked again once for each kind of rule.
    #[must_use]
    pub fn judge(
        seen: Marked<'_>,
        protection: &Protection,
        mut moves: Vec<Move>,
    ) -> (Self, Vec<PlanError>) {
        let mut dropped = Vec::new();
        loop {
            match Self::tried(seen, protection, &moves) {
                Ok(plan) => return (plan, dropped),
                Err(broken) => {
                    let mut items = HashSet::new();
                    let all = std::iter::once(broken.error).chain(broken.others);
                    // All moves of an item go with the first that is wrong.
                    dropped.extend(all.filter(|error| items.insert(error.item())));
                    moves.retain(|one| !items.contains(&one.item));
                }
            }
        }
    }

    /// The plan of these moves, or what breaks the first kind of rule that is broken.
    fn tried(seen: Marked<'_>, protection: &Protection, moves: &[Move]) -> Result<Self, Broken> {
        let Marked { transcript, marks } = seen;
        // Rules of single items are checked move by move, those of whole episodes on the marks
        // after all moves.
        let mut after = marks.clone();
        let mut plan = Self::default();
        let mut wrong = Vec::new();
        for one in moves {
            match alone(seen, protection, one) {
                Ok(item) => {
                    after.raise(item.no, one.mark);
                    plan.moves.push((item.no, one.mark));
                    if let Some(kept) = &one.kept {
                        after.keep(item.no, Arc::clone(kept));
                        plan.kept.push((item.no, Kept::clone(kept)));
                    }
                }
                Err(error) => wrong.push(error),
            }
        }
        Broken::unless_none(wrong)?;
        let after = Marked::new(transcript, &after);
        if protection.rules() != Rules::Off {
            Broken::unless_none(episodes(after, protection, moves))?;
            Broken::unless_none(lost(seen, after, moves))?;
        }
        Broken::unless_none(pointers(after, moves))?;
        Ok(plan)
    }

    /// Adds the moves of another plan behind its own.
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

/// Checks the rules of single items. What else moves does not matter to them.
fn alone<'a>(seen: Marked<'a>, protection: &Protection, one: &Move) -> Result<&'a Item, PlanError> {
    let Marked { transcript, marks } = seen;
    let item = transcript
        .items
        .get(one.item)
        .ok_or(PlanError::Absent(one.item))?;
    let episode = evictable(item).and_then(|at| transcript.graph.episodes.get(at));
    let episode = episode.ok_or(PlanError::Fixed(one.item))?;
    is_showable(item, one, episode)?;
    if protection.rules() != Rules::Off {
        is_free(item, one, episode, protection)?;
    }
    let now = marks.get(item.no);
    // A mark that an item has already makes sense only if it changes what is left.
    if one.mark < now || (one.mark == now && one.kept.is_none()) {
        return Err(PlanError::Left(one.item));
    }
    if protection.covers(transcript, one.item) {
        return Err(PlanError::Protected(one.item));
    }
    Ok(item)
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
    if episode.closed || (protection.rules() != Rules::Strict && parts) {
        Ok(())
    } else {
        Err(PlanError::Open(one.item))
    }
}

/// Whether an item is a call to a tool of the client.
fn is_call(item: &Item) -> bool {
    item.kind == ItemKind::Call && item.delimiter.is_none()
}

/// What is known of an episode after the moves. It is judged once, however many of its items move.
struct Judged {
    /// Whether an act in view depends on it.
    blocked: bool,
    /// Whether all of it goes.
    whole: bool,
    /// Whether all of it goes but a tombstone, which keeps its description.
    told: bool,
}

/// The moves that break a rule of whole episodes, as these are after all moves.
fn episodes(after: Marked<'_>, protection: &Protection, moves: &[Move]) -> Vec<PlanError> {
    let mut judged: HashMap<EpisodeIndex, Judged> = HashMap::new();
    let mut wrong = Vec::new();
    for one in moves {
        let Some((item, at, episode)) = of_episode(after, one) else {
            continue;
        };
        let judged = judged.entry(at).or_insert_with(|| {
            let whole = is_whole(after, episode);
            Judged {
                blocked: after.has_dependents(episode),
                whole,
                told: whole && after.tombstone(episode).is_some(),
            }
        });
        // Thoughts are no work, and calls may be evicted all the same if the pass frees depended-on
        // exploration; its description stays, if need be in a tombstone.
        let thought = item.kind == ItemKind::Reasoning && protection.rules() != Rules::Strict;
        let shortened = one.mark <= Mark::Masked || is_call(item);
        let spared = thought || (protection.frees_depended() && (shortened || judged.told));
        // Text and `delimiter` calls tell what an episode was about, so they go last.
        let with_all =
            one.mark > Mark::Masked && (item.kind == ItemKind::Text || item.delimiter.is_some());
        if judged.blocked && !spared {
            wrong.push(PlanError::Depended(one.item));
        } else if with_all && !judged.whole {
            wrong.push(PlanError::Part(one.item));
        }
    }
    wrong
}

/// The moves after which no tombstone is left to hold the ledger, which alone names a merged expl. One of
/// them is enough if that brings a tombstone back, so only that one is wrong then.
fn lost(before: Marked<'_>, after: Marked<'_>, moves: &[Move]) -> Vec<PlanError> {
    let merges = |one: &&Move| {
        one.mark == Mark::Removed
            && of_episode(after, one).is_some_and(|(_, _, episode)| {
                episode.is_expl() && after.carrier(episode) == Some(one.item)
            })
    };
    let merges: Vec<&Move> = moves.iter().filter(merges).collect();
    if merges.is_empty() || after.ledger_host().is_some() {
        return Vec::new();
    }
    let stood = merges
        .iter()
        .find(|one| before.mark_of(one.item) == Mark::Tombstone);
    let lost = |one: &&Move| PlanError::Lost(one.item);
    stood.map_or_else(|| merges.iter().map(lost).collect(), |one| vec![lost(one)])
}

/// The item of a move, and its episode.
fn of_episode<'a>(seen: Marked<'a>, one: &Move) -> Option<(&'a Item, EpisodeIndex, &'a Episode)> {
    let item = seen.transcript.items.get(one.item)?;
    let at = item.episode?;
    Some((item, at, seen.transcript.graph.episodes.get(at)?))
}

/// The moves of results to which others point, which have to stay whole.
fn pointers(after: Marked<'_>, moves: &[Move]) -> Vec<PlanError> {
    let pointed = after.pointers();
    if pointed.is_empty() {
        return Vec::new();
    }
    let broken =
        |one: &&Move| pointed.contains_key(&one.item) && after.mark_of(one.item) != Mark::Live;
    let broken = moves.iter().filter(broken);
    broken.map(|one| PlanError::PointedTo(one.item)).collect()
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
