//! The finer levels of the eviction order (design §5, "Finer levels"): results of all eligible
//! episodes before any call, text or episode. A skeleton keeps strings that occur nowhere else. Acts
//! come before exploration, oldest first. Never removes a whole item.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll_model::{ItemKind, Kept, Mark, ToolClass};

use super::ask::{Level, PolicyAsk};
use super::cut::{SKELETON_FROM, STUB_FROM};
use super::lexicon::Lexicon;
use super::order::Stage;
use super::plan::Move;
use super::work::{Work, bare};
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;

/// A call that may be shortened, with its result.
#[derive(Clone, Copy)]
struct Pair {
    call: ItemIndex,
    result: ItemIndex,
    /// The size of the original result.
    tokens: u32,
    /// Whether its effects last without its result.
    effects: bool,
    /// Whether its result points to another.
    points: bool,
}

impl Pair {
    /// `None` if it is no pair of the client's, is protected, or can't be shortened further.
    fn new(work: &Work<'_>, call: ItemIndex) -> Option<Self> {
        let protected = work.protected(call);
        Self::shortened(work, call).filter(|_| !protected)
    }

    /// The pair to whose result this one points: it goes behind its newest pointer.
    fn pointed_to(work: &Work<'_>, call: ItemIndex) -> Option<Self> {
        let to = work.points_to(call)?;
        let covered = work.protection.covers(work.transcript, to);
        Self::shortened(work, to).filter(|_| !covered)
    }

    fn shortened(work: &Work<'_>, call: ItemIndex) -> Option<Self> {
        let item = work.item(call)?;
        let result = item.pair?;
        let tokens = work.item(result)?.tokens;
        let pair = item.kind == ItemKind::Call && item.delimiter.is_none();
        let shown = work.mark(call) < Mark::Tombstone;
        (pair && shown).then_some(Self {
            call,
            result,
            tokens,
            effects: matches!(item.class, ToolClass::Shell | ToolClass::Write),
            points: work.is_pointer(call),
        })
    }
}

/// The pairs that may be shortened, in the order of these calls. A result and the pointers to it are
/// one item: the result follows its newest pointer, and if one of them has to stay, all of them stay.
fn pairs(work: &Work<'_>, calls: &[ItemIndex]) -> Vec<Pair> {
    let all: HashSet<ItemIndex> = if work.has_pointers() {
        calls.iter().copied().collect()
    } else {
        HashSet::new()
    };
    let mut free: HashMap<ItemIndex, bool> = HashMap::new();
    let mut pairs: Vec<Pair> = Vec::new();
    for call in calls {
        let Some(pair) = Pair::new(work, *call) else {
            continue;
        };
        if !pair.points {
            pairs.push(pair);
            continue;
        }
        let held = |other: &ItemIndex| {
            work.is_pointer(*other) && (!all.contains(other) || work.protected(*other))
        };
        let to = Pair::pointed_to(work, *call).filter(|to| all.contains(&to.call));
        let Some(to) = to else {
            continue;
        };
        let free = free
            .entry(to.call)
            .or_insert_with(|| !work.pointers_beside(*call).iter().any(held));
        if *free {
            pairs.extend([pair, to]);
        }
    }
    pairs
}

/// What earlier moves left of a call.
fn kept(work: &Work<'_>, call: ItemIndex) -> Arc<Kept> {
    let kept = work.item(call).and_then(|item| work.kept(item));
    kept.cloned().unwrap_or_default()
}

/// What the levels know about a view.
pub(super) struct Levels<'a> {
    lexicon: Lexicon<'a>,
    superseded: HashSet<ItemIndex>,
    ceiling: u64,
}

impl<'a> Levels<'a> {
    pub fn new(ask: &PolicyAsk<'a>, work: &Work<'a>) -> Self {
        let lexicon = Lexicon::new(ask, work);
        Self {
            superseded: lexicon.superseded(),
            lexicon,
            ceiling: ask.target.ceiling,
        }
    }

    /// Strips episodes, given oldest first, level by level until the target is met.
    pub fn strip(&mut self, work: &mut Work<'a>, episodes: &[&'a Episode], stages: &[Stage]) {
        let of_kind = |acts: bool| {
            let episodes = episodes.iter();
            episodes.filter(move |episode| (episode.kind == EpisodeKind::Act) == acts)
        };
        // What an act did lasts without its results, so acts come first.
        let all = of_kind(true).chain(of_kind(false));
        let items = all.flat_map(|episode| episode.items.iter().chain(&episode.bound));
        let items: Vec<ItemIndex> = items.copied().collect();
        let pairs = pairs(work, &items);
        // A level goes through all episodes before the next level begins.
        for stage in stages.iter().copied() {
            for pair in &pairs {
                if work.met() || (stage == Stage::Arguments && work.total() <= self.ceiling) {
                    return;
                }
                self.step(work, stage, *pair);
            }
        }
    }

    fn step(&mut self, work: &mut Work<'a>, stage: Stage, pair: Pair) {
        let Pair {
            call,
            tokens,
            effects,
            points,
            ..
        } = pair;
        // Its newest pointer may be spared by this level.
        if work.is_pointed_to(call) {
            return;
        }
        let mark = work.mark(call);
        match stage {
            // Only an untouched result is known to occur again.
            Stage::Superseded if mark == Mark::Live && self.superseded.contains(&call) => {
                self.stub(work, Level::Superseded, pair);
            }
            Stage::Effects if mark < Mark::Masked && effects => {
                self.stub(work, Level::Stub, pair);
            }
            // What it points to may leave a skeleton, but only once nothing points to it.
            Stage::Skeletons if points => {
                if !self.skeleton(work, pair) {
                    self.stub(work, Level::Stub, pair);
                }
            }
            // A skeleton is made of the original, so once at most.
            Stage::Skeletons if mark == Mark::Live && tokens >= SKELETON_FROM => {
                self.skeleton(work, pair);
            }
            Stage::Stubs if mark < Mark::Masked => {
                self.stub(work, Level::Stub, pair);
            }
            Stage::Arguments if mark < Mark::Tombstone => self.trim(work, call),
            Stage::Superseded
            | Stage::Effects
            | Stage::Skeletons
            | Stage::Stubs
            | Stage::Arguments => {}
        }
    }

    /// Leaves the skeleton of a result, and says whether it has one. Of a result that points to another, it
    /// is that of the lines that it adds.
    fn skeleton(&mut self, work: &mut Work<'a>, pair: Pair) -> bool {
        let known = kept(work, pair.call);
        // What a client's edit has laid bare is shown whole.
        let points = pair.points && work.view.notes().results.contains_key(&pair.call);
        let adds = points.then_some(&known.lines[..]);
        if adds.is_some_and(<[_]>::is_empty) {
            return false;
        }
        let kept = self.lexicon.skeleton(pair.result, adds);
        let kept = kept.map(Arc::new);
        let has = kept.is_some();
        if has {
            work.shrink(Level::Skeleton, pair.call, Mark::Clipped, kept);
        }
        has
    }

    fn stub(&mut self, work: &mut Work<'a>, level: Level, pair: Pair) {
        if pair.tokens >= STUB_FROM {
            self.lexicon.hide(pair.result);
            let trimmed = kept(work, pair.call).trimmed;
            let kept = Some(Arc::new(Kept { trimmed, ..bare() }));
            work.shrink(level, pair.call, Mark::Masked, kept);
        }
    }

    /// Replaces a text by a line: it has no call whose result could name what is gone, and
    /// providers that require user and assistant to alternate would refuse the list without it.
    pub fn line(&mut self, work: &mut Work<'a>, text: ItemIndex) {
        let Some(item) = work.item(text).filter(|_| work.is_line_due(text)) else {
            return;
        };
        self.lexicon.hide(text);
        work.shrink(Level::Stub, text, Mark::Masked, Some(Arc::new(bare())));
        // Providers demand reasoning back only with calls. Without calls in the message it goes
        // with the text.
        let transcript = work.transcript;
        let Some(entry) = transcript.entries.get(item.entry) else {
            return;
        };
        let is_call = |item: &Item| item.kind == ItemKind::Call;
        if transcript.items_of(entry).iter().any(is_call) {
            return;
        }
        for (at, item) in transcript.indexed_items_of(entry) {
            if item.kind == ItemKind::Reasoning && work.mark(at) < Mark::Removed && !work.met() {
                work.shrink(Level::Reasoning, at, Mark::Removed, None);
            }
        }
    }

    /// Takes the strings of the items that these moves remove out of the view. Trims the calls that
    /// become tombstones.
    pub fn fold(&mut self, work: &Work<'a>, moves: &mut [Move]) {
        for one in moves {
            let Some(item) = work.item(one.item) else {
                continue;
            };
            if one.mark == Mark::Removed {
                self.lexicon.hide(one.item);
                if let Some(pair) = item.pair {
                    self.lexicon.hide(pair);
                }
            }
            let written = item.delimiter.is_none() && !item.said;
            // The mark of a call that is trimmed does not tell a tombstone, so only the one that carries it without
            // being told is trimmed.
            let episode = work.episode(one.item);
            let first = episode.is_some_and(|episode| episode.carrier == Some(one.item));
            if one.mark == Mark::Tombstone && written && first {
                one.kept = self.trimmed(work, one.item);
            }
        }
    }

    /// What is kept of a call once its arguments are trimmed. `None` if no string of them is long
    /// enough to cut.
    fn trimmed(&mut self, work: &Work<'a>, call: ItemIndex) -> Option<Arc<Kept>> {
        let kept = kept(work, call);
        self.lexicon.trim(call).then(|| {
            Arc::new(Kept {
                trimmed: true,
                ..Kept::clone(&kept)
            })
        })
    }

    /// Trims the arguments of a call. The carrier of an implicit episode is left out: it is trimmed
    /// when it gets the tombstone.
    fn trim(&mut self, work: &mut Work<'a>, call: ItemIndex) {
        let item = work.item(call);
        // A call that was written as text has no arguments, and a bound message is never edited.
        if item.is_some_and(|item| item.said || item.bound) {
            return;
        }
        let episode = item.and_then(|item| work.transcript.graph.episodes.get(item.episode?));
        if episode.is_some_and(|episode| episode.carrier == Some(call)) {
            return;
        }
        if let Some(kept) = self.trimmed(work, call) {
            work.shrink(Level::Arguments, call, Mark::Trimmed, Some(kept));
        }
    }
}
