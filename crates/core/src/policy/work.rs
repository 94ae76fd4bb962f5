//! The state of a pass in progress: marks that move, notes and sizes that follow, and the total
//! that is compared with the target after each step. Never chooses what is evicted.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use plimsoll_model::{ItemKind, Kept, Mark, ToolClass};

use super::ask::{EvictionSettings, Level, PolicyAsk};
use super::cut::STUB_FROM;
use super::plan::Move;
use super::protect::{Protection, Tier};
use super::thoughts::{self, Demand};
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::{EntryIndex, EpisodeIndex, ItemIndex};
use crate::session::measure::Measure;
use crate::session::transcript::{Item, Transcript};
use crate::session::view::View;

/// About the size of a call whose long arguments are trimmed.
const TRIMMED: u32 = 64;

/// What is left of a text or result that a bare line replaces.
pub(super) fn bare() -> Kept {
    Kept {
        of: Some(0),
        ..Kept::default()
    }
}

/// What was evicted at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Items whose marks moved.
    pub items: u32,
    /// Tokens that the view lost, less those of new notes.
    pub tokens: i64,
}

/// The newest step of a pass. No pass ends below its target by more than this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastStep {
    /// What the view lost, in tokens.
    pub freed: u64,
    /// The items that moved: those of one pair, of one group of results that point to one another, or of one episode.
    pub items: Vec<ItemIndex>,
}

/// The state of a pass in progress.
pub(super) struct Work<'a> {
    pub transcript: &'a Transcript,
    pub config: &'a EvictionSettings,
    pub measure: Measure<'a>,
    pub protection: Protection,
    /// Which thoughts its provider does without.
    pub demand: Demand,
    /// The view after the moves so far.
    pub view: View,
    pub moves: Vec<Move>,
    pub gone: BTreeMap<Level, Freed>,
    /// The calls whose results others point to, with the calls that do.
    pointers: BTreeMap<ItemIndex, Vec<ItemIndex>>,
    /// The calls whose results point to others, with the call that each points to.
    targets: HashMap<ItemIndex, ItemIndex>,
    /// The size of what is sent beside the transcript.
    fixed: u64,
    /// The size at which the pass stops.
    pub target: u64,
    /// The size and the number of moves when the view was last found above the target.
    above: Cell<(u64, usize)>,
}

impl<'a> Work<'a> {
    /// The state before the first step of a pass down to the floor.
    pub fn new(ask: &PolicyAsk<'a>, protection: Protection) -> Self {
        let pointers = ask.view.marked().pointers();
        let mut targets = HashMap::new();
        for (to, from) in &pointers {
            targets.extend(from.iter().map(|from| (*from, *to)));
        }
        Self {
            targets,
            transcript: ask.view.transcript(),
            config: ask.config,
            measure: ask.measure,
            protection,
            demand: Demand::new(ask.config.reasoning_back, ask.view.transcript()),
            view: ask.view.clone(),
            moves: Vec::new(),
            gone: BTreeMap::new(),
            pointers,
            fixed: ask.target.fixed,
            target: ask.target.floor,
            above: Cell::new((ask.view.size() + ask.target.fixed, 0)),
        }
    }

    /// The size of what would be sent now.
    pub fn total(&self) -> u64 {
        self.view.size() + self.fixed
    }

    pub fn met(&self) -> bool {
        let met = self.total() <= self.target;
        if !met {
            self.above.set((self.total(), self.moves.len()));
        }
        met
    }

    /// What was done since the view was last found above the target.
    pub fn last_step(&self) -> LastStep {
        let (size, moves) = self.above.get();
        let since = self.moves.iter().skip(moves);
        LastStep {
            freed: size.saturating_sub(self.total()),
            items: since.map(|one| one.item).collect(),
        }
    }

    pub fn mark(&self, item: ItemIndex) -> Mark {
        self.view.marked().mark_of(item)
    }

    pub fn item(&self, item: ItemIndex) -> Option<&'a Item> {
        self.transcript.items.get(item)
    }

    /// Whether an item may not be touched now: it is protected, or another result points to it.
    pub fn protected(&self, item: ItemIndex) -> bool {
        self.protection.covers(self.transcript, item) || self.is_pointed_to(item)
    }

    /// Whether there were any pointers when the pass began.
    pub fn has_pointers(&self) -> bool {
        !self.pointers.is_empty()
    }

    /// Whether moves since there were `before` of them may have freed a result that others pointed
    /// to, and that a policy has passed by meanwhile.
    pub fn frees_since(&self, before: usize) -> bool {
        self.has_pointers() && self.moves.len() > before
    }

    /// Whether a result that is shown points to the result of this call. Both are one item, as old
    /// as the newest pointer, so that no pointer ever points at what is gone.
    pub fn is_pointed_to(&self, call: ItemIndex) -> bool {
        let pointers = self.pointers.get(&call);
        pointers.is_some_and(|pointers| pointers.iter().any(|at| self.is_pointer(*at)))
    }

    /// Whether a call's result is shown as a pointer, alone or with the lines that it adds.
    pub fn is_pointer(&self, call: ItemIndex) -> bool {
        let kept = self.item(call).and_then(|item| self.kept(item));
        self.mark(call) == Mark::Clipped && kept.is_some_and(|kept| kept.same.is_some())
    }

    /// The calls whose results point where this call's result does, itself included.
    pub fn pointers_beside(&self, call: ItemIndex) -> &[ItemIndex] {
        let to = self.targets.get(&call);
        to.and_then(|to| self.pointers.get(to))
            .map_or(&[], Vec::as_slice)
    }

    /// The call to whose result this call's result points.
    pub fn points_to(&self, call: ItemIndex) -> Option<ItemIndex> {
        self.targets.get(&call).copied()
    }

    /// Whether a call and its result belong to the bulk level: by the class of the tool, or by size
    /// if no list names the tool.
    pub fn is_bulk(&self, item: &Item) -> bool {
        match item.class {
            ToolClass::Bulk => true,
            ToolClass::Read | ToolClass::Shell | ToolClass::Write => false,
            ToolClass::Unknown => {
                let result = self.result(item);
                result.is_some_and(|result| result.tokens > self.config.bulk_above)
            }
        }
    }

    /// Moves the mark of one item, or changes what is left of it, and recounts the messages that
    /// this changes.
    pub fn shrink(&mut self, level: Level, item: ItemIndex, mark: Mark, kept: Option<Arc<Kept>>) {
        let before = self.total();
        let one = Move { item, mark, kept };
        let mut touched = Vec::with_capacity(2);
        self.put(&one, &mut touched);
        // An item that is not in the transcript moves nothing.
        if !touched.is_empty() {
            self.recount(touched);
            self.account(level, 1, before);
            self.moves.push(one);
        }
    }

    /// Shows an item as a move says, and adds the messages that this changes to `touched`.
    fn put(&mut self, one: &Move, touched: &mut Vec<EntryIndex>) {
        let Some(item) = self.item(one.item) else {
            return;
        };
        self.view
            .shrink(one.item, one.mark, one.kept.clone(), self.measure);
        touched.push(item.entry);
        touched.extend(self.result_entry(item));
    }

    fn account(&mut self, level: Level, items: usize, before: u64) {
        let after = self.total();
        let gone = self.gone.entry(level).or_default();
        gone.items += u32::try_from(items).unwrap_or(u32::MAX);
        gone.tokens += i64::try_from(before).unwrap_or(0) - i64::try_from(after).unwrap_or(0);
    }

    /// Applies moves of one episode, writes its line again, and recounts what this changes.
    pub fn apply(&mut self, episode: &Episode, level: Level, moves: Vec<Move>) {
        if !moves.is_empty() {
            self.raise(level, moves);
            self.line(episode, level);
        }
    }

    /// Applies some of an episode's moves. Doesn't write its line if the target can't be met yet whatever the line
    /// says: the caller writes it after the last part, by [`Work::line`].
    pub fn apply_part(&mut self, episode: &Episode, level: Level, moves: Vec<Move>) {
        self.raise(level, moves);
        let hosts = self.line_entries(episode);
        // If the rest alone is too much, no line can change that, and writing one costs a count.
        let lines: u64 = hosts.iter().map(|at| u64::from(self.size(*at))).sum();
        if self.total().saturating_sub(lines) <= self.target {
            self.line(episode, level);
        }
    }

    /// Applies moves without writing a line.
    pub fn raise(&mut self, level: Level, moves: Vec<Move>) {
        let before = self.total();
        let mut touched: Vec<EntryIndex> = Vec::with_capacity(moves.len() * 2);
        for one in &moves {
            self.put(one, &mut touched);
        }
        self.recount(touched);
        self.account(level, moves.len(), before);
        self.moves.extend(moves);
    }

    /// Writes the line of what is gone of an episode again, and recounts what this changes.
    pub fn line(&mut self, episode: &Episode, level: Level) {
        let before = self.total();
        self.view.note_episode(episode, self.measure);
        self.recount(self.line_entries(episode));
        self.account(level, 0, before);
    }

    /// Writes the lines of all episodes again.
    pub fn lines(&mut self) {
        for episode in &self.transcript.graph.episodes {
            self.line(episode, Level::Episode);
        }
        self.ledger();
    }

    /// The messages in which the line of an episode may be.
    fn line_entries(&self, episode: &Episode) -> Vec<EntryIndex> {
        let carrier = self.view.marked().carrier(episode);
        let hosts = [carrier, episode.end].into_iter().flatten();
        let items = hosts.filter_map(|host| self.item(host));
        let mut entries: Vec<EntryIndex> =
            items.filter_map(|item| self.result_entry(item)).collect();
        entries.dedup();
        entries
    }

    /// Writes the ledger again, and recounts the messages that hold it now and held it before.
    pub fn ledger(&mut self) {
        let before = self.view.notes().host;
        if let Some(episode) = before.and_then(|host| self.episode(host)) {
            self.view.note_episode(episode, self.measure);
        }
        self.view.note_ledger(self.measure);
        let hosts = [before, self.view.notes().host].into_iter().flatten();
        let touched = hosts
            .filter_map(|host| self.item(host))
            .filter_map(|item| self.result_entry(item));
        let touched = touched.collect();
        self.recount(touched);
    }

    /// The episode of an item.
    pub fn episode(&self, item: ItemIndex) -> Option<&'a Episode> {
        let episode = self.item(item)?.episode?;
        self.transcript.graph.episodes.get(episode)
    }

    /// The most that the view can lose with a call: the call's message and the result's.
    pub fn most(&self, call: ItemIndex) -> u64 {
        let Some(item) = self.item(call) else {
            return 0;
        };
        let result = self.result_entry(item).map_or(0, |entry| self.size(entry));
        u64::from(self.size(item.entry)) + u64::from(result)
    }

    /// Whether an item is a thought that must come back as long as its message keeps a call. If none stays, the
    /// message goes with its thought.
    pub fn is_demanded(&self, item: ItemIndex) -> bool {
        let item = self.item(item);
        item.is_some_and(|item| {
            item.kind == ItemKind::Reasoning
                && (self.demand.is_paired() || !thoughts::may_go(self, item.entry))
        })
    }

    /// Whether a message shows a call.
    pub fn shows_call(&self, entry: EntryIndex) -> bool {
        let items = self.transcript.entries.get(entry);
        let mut items = items
            .into_iter()
            .flat_map(|entry| self.transcript.items_of(entry));
        items.any(|item| {
            item.kind == ItemKind::Call && self.view.marks().get(item.no) < Mark::Removed
        })
    }

    /// The tier of an episode under the marks as they are now.
    pub fn tier(&self, episode: &Episode) -> Tier {
        if !episode.closed {
            Tier::Open
        } else if self.view.marked().has_dependents(episode) {
            Tier::Depended
        } else {
            Tier::Free
        }
    }

    /// The episodes that others need.
    pub fn held_episodes(&self) -> HashSet<EpisodeIndex> {
        let episodes = self.transcript.graph.episodes.indexed();
        let held = episodes.filter(|(_, one)| self.tier(one) != Tier::Free);
        held.map(|(at, _)| at).collect()
    }

    /// The tokens that the view shows of one thought.
    pub fn freed(&self, thought: ItemIndex) -> u64 {
        u64::from(self.view.tokens_of(thought))
    }

    /// The result of a call, or the call of a result.
    pub fn result(&self, call: &Item) -> Option<&'a Item> {
        call.pair.and_then(|pair| self.item(pair))
    }

    pub fn result_entry(&self, call: &Item) -> Option<EntryIndex> {
        self.result(call).map(|result| result.entry)
    }

    /// What earlier moves left of an item.
    pub fn kept(&self, item: &Item) -> Option<&Arc<Kept>> {
        self.view.marks().kept(item.no)
    }

    /// The tokens of a message as it is shown now.
    pub fn size(&self, entry: EntryIndex) -> u32 {
        self.view.sizes().get(entry).copied().unwrap_or(0)
    }

    fn recount(&mut self, mut touched: Vec<EntryIndex>) {
        touched.sort_unstable();
        touched.dedup();
        for at in touched {
            self.view.recount(at);
        }
    }

    /// Whether an episode may be evicted (paper 000 §4.4): it is closed, something of it is left,
    /// and every act that depends on it is evicted.
    pub fn is_eligible(&self, episode: &Episode) -> bool {
        let removed = || self.view.marked().is_removed(episode);
        (!episode.bound.is_empty() || !removed()) && self.tier(episode) == Tier::Free
    }

    /// The call that carries the tombstone of an episode, or will: of an implicit one that of which the least has
    /// to stay. A call that must keep its thought is as heavy as both.
    pub fn carrier(&self, episode: &Episode) -> Option<ItemIndex> {
        let now = self.view.marked().carrier(episode)?;
        if episode.kind != EpisodeKind::Implicit || self.mark(now) >= Mark::Tombstone {
            return Some(now);
        }
        let items = episode.items.iter().copied();
        let may = |at: &ItemIndex| {
            let call = self.item(*at).filter(|item| item.kind == ItemKind::Call);
            call.is_some_and(|item| item.pair.is_some() && item.delimiter.is_none() && !item.whole)
                && self.mark(*at) < Mark::Tombstone
                && !self.protected(*at)
        };
        // The arguments of the first call are trimmed when it gets the tombstone. Those of another one stay, because
        // its mark alone tells that it carries one.
        let weigh = |at: ItemIndex| match at == now {
            true => {
                self.kept_thought(at) + self.item(at).map_or(0, |item| item.tokens.min(TRIMMED))
            }
            false => self.carried(at),
        };
        let weights = items.filter(may).map(|at| (weigh(at), at));
        weights.min().map_or(Some(now), |(_, at)| Some(at))
    }

    /// What the view keeps of a message of which one call is left, in tokens.
    pub fn carried(&self, call: ItemIndex) -> u32 {
        self.item(call).map_or(0, |item| item.tokens) + self.kept_thought(call)
    }

    /// What the view keeps of the thought of a call's message as long as the call is shown, in tokens.
    pub fn kept_thought(&self, call: ItemIndex) -> u32 {
        let entry = self.item(call).map(|item| item.entry);
        let entry = entry.and_then(|at| self.transcript.entries.get(at));
        let items = entry.into_iter();
        let items = items.flat_map(|entry| self.transcript.spoken_of(entry));
        let thoughts = items.filter(|(at, _)| self.is_demanded(*at));
        thoughts.map(|(at, _)| self.view.tokens_of(at)).sum()
    }

    /// The moves that remove the items of an episode that a level covers, unless they are
    /// protected. The first call of an implicit episode becomes its tombstone, which has the line
    /// of what is gone.
    pub fn strip(&self, episode: &Episode, covers: impl Fn(&Item) -> bool) -> Vec<Move> {
        let carrier = self
            .carrier(episode)
            .filter(|_| episode.kind == EpisodeKind::Implicit);
        // Nothing goes if the line of what is gone can't be shown.
        if carrier.is_some_and(|at| self.mark(at) < Mark::Tombstone && self.protected(at)) {
            return Vec::new();
        }
        let covered = |at: ItemIndex| self.item(at).filter(|item| covers(item));
        let mut moves: Vec<Move> = Vec::new();
        let mut due = carrier.and_then(covered).is_some();
        for index in &episode.items {
            let Some(item) = covered(*index) else {
                continue;
            };
            let stays = item.delimiter.is_some() || Some(*index) == carrier;
            if !stays && self.mark(*index) < Mark::Removed && !self.protected(*index) {
                moves.push(Move::whole(*index, Mark::Removed));
                // Only a call leaves something to name; reasoning alone needs no line.
                due |= item.kind == ItemKind::Call;
            }
        }
        if let Some(carrier) = carrier.filter(|at| due && self.mark(*at) < Mark::Tombstone) {
            moves.push(Move::whole(carrier, Mark::Tombstone));
        }
        if !moves.is_empty() {
            moves.extend(self.line_holder(episode));
        }
        moves
    }

    /// The moves that remove a whole episode: nothing is left of an act, and the tombstone of an
    /// expl. Empty if any of it is protected, and for a span without calls, which can have no
    /// tombstone.
    pub fn remove(&self, episode: &Episode) -> Vec<Move> {
        if self.holds_protected(episode) || (episode.is_expl() && episode.carrier.is_none()) {
            return Vec::new();
        }
        let carrier = self.carrier(episode);
        let mark = |index: ItemIndex| {
            if episode.is_expl() && Some(index) == carrier {
                Mark::Tombstone
            } else {
                Mark::Removed
            }
        };
        let due =
            |index: &&ItemIndex| self.mark(**index) < mark(**index) && !self.is_demanded(**index);
        let items = episode.items.iter().filter(due);
        items
            .map(|index| Move::whole(*index, mark(*index)))
            .collect()
    }

    /// The move that replaces a text by a bare line. A span without calls has no result that could
    /// name what is gone, and some providers require user and assistant to alternate. `None` if the
    /// item is no such text, was replaced already, or is shorter than the line.
    pub fn leave_line(&self, index: ItemIndex) -> Option<Move> {
        self.is_line_due(index).then(|| Move {
            item: index,
            mark: Mark::Masked,
            kept: Some(Arc::new(bare())),
        })
    }

    /// Whether an item is a text that a line may replace.
    pub fn is_line_due(&self, index: ItemIndex) -> bool {
        let due = |item: &Item| item.kind == ItemKind::Text && item.tokens >= STUB_FROM;
        self.item(index).is_some_and(due)
            && self.mark(index) == Mark::Live
            && !self.protected(index)
    }

    /// Whether anything that an episode still shows is protected.
    pub fn holds_protected(&self, episode: &Episode) -> bool {
        let mut items = episode.items.iter();
        items.any(|index| self.mark(*index) != Mark::Removed && self.protected(*index))
    }

    /// The move that marks the call whose result has the line of what is gone: the `end` of an
    /// explicit episode, else its start. Once marked it stays there, so that a later `end` changes
    /// nothing before it.
    pub fn line_holder(&self, episode: &Episode) -> Option<Move> {
        if episode.kind == EpisodeKind::Implicit {
            return None;
        }
        let places = || [episode.end, episode.carrier].into_iter().flatten();
        if places().any(|at| self.mark(at) >= Mark::Masked) {
            return None;
        }
        let at = places().find(|at| !self.protected(*at))?;
        Some(Move::whole(at, Mark::Masked))
    }
}
