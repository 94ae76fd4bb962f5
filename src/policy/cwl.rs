//! Context Window Lifecycle in the finer order: graduated eviction along the episode graph (paper
//! 000 §4.4, design §5). Acts go before exploration, oldest first, level by level; the view is
//! counted again after each step. Pure. Never touches what is protected.

use super::ask::{Level, Policy, PolicyAsk};
use super::levels::Levels;
use super::open_episode;
use super::pass::{Proposal, conclude};
use super::plan::Move;
use super::work::Work;
use crate::model::{ItemKind, Mark};
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::{EpisodeIndex, Indexed, ItemIndex};
use crate::session::transcript::Item;

/// If a pass leaves more than one part in this many of the room between floor and ceiling filled,
/// it goes on to what open work needs. A higher number keeps less of that.
const HELD_PART: u64 = 12;

/// A pass in progress.
struct LevelsPass<'a> {
    work: Work<'a>,
    levels: Levels<'a>,
    ceiling: u64,
}

/// Proposes a pass down to the floor. If that frees too little to be worth a pass, it goes on to
/// what open work needs: it shortens results of exploration that an act in view depends on, then
/// removes calls inside an open episode, then whole calls of such exploration. The protected tail
/// of recent tokens goes before those, but only to meet the ceiling.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    let protection = ask.protection(ask.config.protect_recent);
    // The paper's rule: nothing of an open episode goes.
    let protection = if ask.config.strict_active {
        protection.with_open()
    } else {
        protection
    };
    let work = Work::new(ask, protection);
    let mut pass = LevelsPass {
        levels: Levels::new(ask, &work),
        work,
        ceiling: ask.target.ceiling,
    };
    pass.evict();
    if pass.unmet() {
        pass.work.protection = pass.work.protection.without_recent();
        pass.evict();
    }
    // Still too little: exploration that open work stands on goes as a whole.
    if pass.falls_short() {
        pass.strip_depended();
        // What its results pointed to was held by them alone.
        if pass.work.has_pointers() && pass.falls_short() {
            pass.evict();
        }
    }
    pass.merge_to_ceiling();
    conclude(pass.work, ask, Policy::Cwl)
}

impl<'a> LevelsPass<'a> {
    fn unmet(&self) -> bool {
        self.work.total() > self.ceiling
    }

    /// Whether the view would reach the ceiling again too soon. Such a pass rewrites the cached
    /// prefix for a few turns only, and the next passes would do the same as long as the same work
    /// is held. If the floor equals the ceiling this is [`LevelsPass::unmet`].
    fn falls_short(&self) -> bool {
        let floor = self.work.target;
        self.work.total() > floor + self.ceiling.saturating_sub(floor) / HELD_PART
    }

    fn episodes(&self) -> &'a Indexed<EpisodeIndex, Episode> {
        &self.work.transcript.graph.episodes
    }

    /// Evicts closed episodes and merges tombstones into the ledger. If that falls short, goes on
    /// to what an act in view depends on and to the open episode. The cost of the ledger is known
    /// only once it is written, so the first part repeats until the target is met or nothing moves.
    fn evict(&mut self) {
        loop {
            let before = self.work.moves.len();
            self.evict_in_order();
            // A result to which another one pointed may go once that is gone, which may have been
            // later in the order.
            if self.work.met() || !self.work.frees_since(before) {
                return;
            }
        }
    }

    fn evict_in_order(&mut self) {
        loop {
            let before = self.work.moves.len();
            self.strip_eligible();
            let floor = self.work.target;
            self.work.target = self.removal();
            // Whole items go only down to `removal`; results were stripped down to the floor.
            self.evict_closed();
            self.line_texts();
            merge_tombstones(&mut self.work);
            let met = self.work.met();
            self.work.target = floor;
            if met || self.work.moves.len() == before {
                break;
            }
        }
        if self.falls_short() && !self.work.config.strict_active {
            self.shorten_depended();
            self.strip_open();
        }
    }

    /// Shortens results inside the open episode, then removes whole calls. Unannotated work is cut
    /// into spans as it grows, so its open span is short and goes only to meet the ceiling.
    fn strip_open(&mut self) {
        let current = self.work.transcript.graph.current();
        let open = current.and_then(|at| self.episodes().get(at));
        let marked = open.is_some_and(|one| one.kind != EpisodeKind::Implicit);
        // Nothing to do if calls of closed work were spared only because of `removal`.
        if self.work.total() <= self.removal() || (!marked && !self.unmet()) {
            return;
        }
        if let Some(open) = open {
            self.levels.strip(&mut self.work, &[open]);
        }
        let floor = self.work.target;
        self.work.target = self.removal();
        open_episode::strip(&mut self.work);
        self.work.target = floor;
        // The last span that was stripped may have the newest tombstone, which holds the ledger.
        self.work.ledger();
    }

    /// The size down to which whole items are removed. It is above the floor by half of the results
    /// that are protected only now, because the next pass can strip those: a message with many
    /// large reads would otherwise drive everything before it out of view.
    fn removal(&self) -> u64 {
        let floor = self.work.target;
        let result = |(at, item): &(ItemIndex, &Item)| {
            item.kind == ItemKind::Result && self.work.protected(*at)
        };
        let items = self.work.transcript.items.indexed();
        let sizes = items.filter(result).map(|(_, item)| u64::from(item.tokens));
        (floor + sizes.sum::<u64>() / 2).clamp(floor, self.ceiling.max(floor))
    }

    /// Strips all eligible episodes by the finer levels.
    fn strip_eligible(&mut self) {
        let all = self.episodes().iter();
        let eligible: Vec<&Episode> = all.filter(|one| self.work.is_eligible(one)).collect();
        let expl = eligible.iter().filter(|one| one.is_expl());
        for episode in expl.filter(|_| !self.work.config.keep_reasoning) {
            if !self.work.met() {
                let moves = strip(&self.work, episode, Level::Reasoning);
                self.work.apply(episode, Level::Reasoning, moves);
            }
        }
        self.levels.strip(&mut self.work, &eligible);
    }

    /// Evicts acts, then exploration, each oldest first. An evicted act may free what it depended
    /// on; evicted exploration frees nothing. So one walk over each is enough.
    fn evict_closed(&mut self) {
        let episodes = self.episodes();
        // Acts have left their effects; they go first.
        for act in episodes.iter().filter(|one| one.kind == EpisodeKind::Act) {
            let before = self.work.moves.len();
            self.evict_one(act);
            let moved = self.work.moves.len() > before;
            // What the act depended on is stripped before it is evicted, like all else.
            if moved {
                let freed = act.dependencies.iter().filter_map(|at| episodes.get(*at));
                let freed: Vec<_> = freed.filter(|one| self.work.is_eligible(one)).collect();
                self.levels.strip(&mut self.work, &freed);
            }
        }
        for expl in episodes.iter().filter(|one| one.is_expl()) {
            self.evict_one(expl);
        }
    }

    /// Replaces texts of spans without calls by a line each, oldest first, before any of them is
    /// removed.
    fn line_texts(&mut self) {
        for episode in self.episodes().iter().filter(|one| one.carrier.is_none()) {
            if !self.work.met() && is_silent(&self.work, episode) {
                for item in &episode.items {
                    self.levels.line(&mut self.work, *item);
                }
            }
        }
    }

    fn evict_one(&mut self, episode: &'a Episode) {
        if self.work.met() || !self.work.is_eligible(episode) {
            return;
        }
        for level in [Level::Reasoning, Level::Bulk, Level::Intermediate] {
            if level == Level::Reasoning && (!episode.is_expl() || self.work.config.keep_reasoning)
            {
                continue;
            }
            let moves = strip(&self.work, episode, level);
            if level == Level::Reasoning {
                self.apply(episode, level, moves);
            } else {
                self.one_by_one(episode, level, moves);
            }
            if self.work.met() {
                return;
            }
        }
        let moves = self.work.remove(episode);
        self.apply(episode, Level::Episode, moves);
    }

    /// Applies the moves of a level one by one and stops as soon as the target is met. The first
    /// step also marks where the line of what is gone is shown.
    fn one_by_one(&mut self, episode: &'a Episode, level: Level, moves: Vec<Move>) {
        let (calls, mut first): (Vec<Move>, Vec<Move>) =
            moves.into_iter().partition(|one| one.mark == Mark::Removed);
        if calls.is_empty() {
            return self.apply(episode, level, first);
        }
        for call in calls {
            if self.work.met() {
                return;
            }
            let mut step = std::mem::take(&mut first);
            step.push(call);
            self.levels.fold(&self.work, &mut step);
            self.work.apply_part(episode, level, step);
        }
        self.work.line(episode, level);
    }

    fn apply(&mut self, episode: &'a Episode, level: Level, mut moves: Vec<Move>) {
        self.levels.fold(&self.work, &mut moves);
        self.work.apply(episode, level, moves);
    }

    /// Closed exploration that an act in view depends on.
    fn depended(&self) -> Vec<&'a Episode> {
        let held = |one: &&Episode| one.is_expl() && one.closed && !self.work.is_eligible(one);
        self.episodes().iter().filter(held).collect()
    }

    /// Shortens results of exploration that an act in view depends on. Its calls, its start and its
    /// description stay.
    fn shorten_depended(&mut self) {
        self.work.protection = self.work.protection.without_depended();
        for episode in self.depended() {
            self.levels.strip(&mut self.work, &[episode]);
        }
    }

    /// Removes whole calls of exploration that an act in view depends on, as the last resort. Its
    /// start, its description and the line of what is gone stay.
    fn strip_depended(&mut self) {
        self.work.protection = self.work.protection.without_depended();
        for episode in self.depended() {
            self.levels.strip(&mut self.work, &[episode]);
            for level in [Level::Bulk, Level::Intermediate] {
                if !self.work.met() {
                    let moves = strip(&self.work, episode, level);
                    self.apply(episode, level, moves);
                }
            }
        }
        // The last of these episodes may hold the ledger.
        self.work.ledger();
    }

    /// Merges tombstones, oldest first, if they alone are why the view is above the ceiling. If the
    /// view stays above it whatever is merged, their descriptions stay.
    fn merge_to_ceiling(&mut self) {
        if !self.unmet() {
            return;
        }
        let standing = standing(&self.work);
        let sizes = standing.iter().map(|one| tombstone_size(&self.work, one));
        let own: u64 = sizes.map(u64::from).sum();
        if self.work.total().saturating_sub(own) > self.ceiling {
            return;
        }
        for episode in standing {
            if self.unmet() {
                merge_unless_needed(&mut self.work, episode);
                self.work.ledger();
            }
        }
    }
}

/// The moves that strip an episode at a level: reasoning, calls of search and listing tools, or all
/// other calls. Results go with their calls.
fn strip(work: &Work<'_>, episode: &Episode, level: Level) -> Vec<Move> {
    work.strip(episode, |item| match level {
        Level::Reasoning => item.kind == ItemKind::Reasoning,
        Level::Bulk => item.kind == ItemKind::Call && work.is_bulk(item),
        Level::Intermediate => item.kind == ItemKind::Call && !work.is_bulk(item),
        Level::Repeat
        | Level::Clip
        | Level::Loop
        | Level::Superseded
        | Level::Stub
        | Level::Skeleton
        | Level::Arguments
        | Level::Asked
        | Level::Episode
        | Level::Open
        | Level::Ledger => false,
    })
}

/// Merges tombstones into the ledger once they take more than a tenth of the ceiling. Merges spans
/// without calls too, oldest first, if the target can't be met otherwise. The newest tombstone
/// stays and holds the ledger, and so does the tombstone of an expl that an act in view depends on.
fn merge_tombstones(work: &mut Work<'_>) {
    let transcript = work.transcript;
    if work.view.marked().ledger_host().is_none() {
        return;
    }
    let standing = standing(work);
    let size: u32 = standing
        .iter()
        .map(|episode| tombstone_size(work, episode))
        .sum();
    // Few tombstones are kept; many cost more than the ledger.
    if size > work.measure.ceiling / 10 {
        for episode in standing {
            merge_unless_needed(work, episode);
        }
    }
    for episode in &transcript.graph.episodes {
        if !work.met() && is_silent(work, episode) {
            merge(work, episode);
        }
    }
    work.ledger();
}

/// The episodes of which nothing but a tombstone is shown, oldest first.
fn standing<'a>(work: &Work<'a>) -> Vec<&'a Episode> {
    let seen = work.view.marked();
    let all = work.transcript.graph.episodes.iter();
    let folded = |one: &&Episode| seen.tombstone(one).is_some() && seen.is_removed(one);
    all.filter(folded).collect()
}

/// Merges an episode unless its tombstone holds the ledger, or an act in view depends on it.
fn merge_unless_needed(work: &mut Work<'_>, episode: &Episode) {
    let seen = work.view.marked();
    let holds = seen
        .ledger_host()
        .is_none_or(|host| episode.carrier == Some(host));
    if !holds && !seen.has_dependents(episode) {
        merge(work, episode);
    }
}

/// The tokens of a tombstone: its call and the result that holds its text.
fn tombstone_size(work: &Work<'_>, episode: &Episode) -> u32 {
    let item = episode.carrier.and_then(|at| work.item(at));
    item.map_or(0, |item| {
        item.tokens + work.result_entry(item).map_or(0, |at| work.size(at))
    })
}

/// Removes what is left of an episode. From now on the ledger names it.
fn merge(work: &mut Work<'_>, episode: &Episode) {
    if work.holds_protected(episode) {
        return;
    }
    let due = episode.items.iter();
    let due = due.filter(|index| work.mark(**index) != Mark::Removed);
    let moves = due.map(|index| Move::whole(*index, Mark::Removed));
    let moves = moves.collect();
    work.apply(episode, Level::Ledger, moves);
}

/// Whether an episode is a closed span without calls whose text is still shown.
fn is_silent(work: &Work<'_>, episode: &Episode) -> bool {
    episode.kind == EpisodeKind::Implicit
        && episode.closed
        && episode.carrier.is_none()
        && !work.view.marked().is_removed(episode)
}
