//! Context Window Lifecycle in the finer order: graduated eviction along the episode graph (paper
//! 000 §4.4, design §5). Acts before exploration, oldest first, level by level, re-counting after each
//! step. Pure; never touches what [`Protection`] covers.

use std::sync::Arc;

use super::levels::Levels;
use super::pass::{Proposal, conclude};
use super::plan::{Move, PlanError};
use super::work::Work;
use super::{Ask, Level, Protection, open};
use crate::model::{ItemKind, Mark};
use crate::session::graph::{Episode, Kind};
use crate::session::transcript::Item;

/// A pass goes on to what is held where it would leave more than one part in so many of the room between
/// floor and ceiling filled. A higher number keeps fewer of the lines that open work needs.
const HELD_PART: u64 = 6;

/// A pass in the making.
struct Pass<'a> {
    work: Work<'a>,
    levels: Levels<'a>,
    ceiling: u64,
}

/// Proposes a pass down to the floor. What is held goes where all else frees too little for a pass to
/// pay: results of exploration that an act in view depends on are shortened, then calls inside an open
/// episode go, then whole calls of such exploration. The tail of recent tokens goes before those, and
/// for the ceiling alone.
///
/// # Errors
/// [`PlanError`] if the moves break a rule, which is a mistake in here.
pub(super) fn propose(ask: &Ask<'_>) -> Result<Proposal, PlanError> {
    let protection = Protection::new(ask.view.marked(), ask.config.protect_recent);
    let protection = if ask.config.strict_active {
        protection.with_open()
    } else {
        protection
    };
    let work = Work::new(ask, protection);
    let mut pass = Pass {
        levels: Levels::new(ask, &work),
        work,
        ceiling: ask.target.ceiling,
    };
    pass.evict();
    if pass.unmet() {
        pass.work.protection = pass.work.protection.without_recent();
        pass.evict();
    }
    if pass.falls_short() {
        pass.strip_depended();
    }
    conclude(pass.work, ask)
}

impl<'a> Pass<'a> {
    fn unmet(&self) -> bool {
        self.work.total() > self.ceiling
    }

    /// Whether the view would be back at the ceiling too soon: so far from the floor a pass rewrites a
    /// prefix for the few turns until the next one, and does so again and again while the same work is
    /// held. With the floor at the ceiling this is [`Pass::unmet`].
    fn falls_short(&self) -> bool {
        let floor = self.work.target;
        self.work.total() > floor + self.ceiling.saturating_sub(floor) / HELD_PART
    }

    fn episodes(&self) -> &'a [Episode] {
        &self.work.transcript.graph.episodes
    }

    /// Everything closed and the ledger; then, where that falls short, what an act in view depends on
    /// and the open episode. What the ledger costs or frees is only known once it is written, so that
    /// part goes round until the target is met or nothing moves any more.
    fn evict(&mut self) {
        loop {
            let before = self.work.moves.len();
            self.strip_eligible();
            let floor = self.work.target;
            self.work.target = self.removal();
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

    /// Results inside the open episode, then whole calls. Unannotated work is cut into spans as it
    /// grows, so that it holds nothing for long: what stands open of it goes for the ceiling alone.
    fn strip_open(&mut self) {
        let current = self.work.transcript.graph.current();
        let open = current.and_then(|at| self.episodes().get(at));
        let marked = open.is_some_and(|one| one.kind != Kind::Implicit);
        // At or below where whole items are removed, calls of closed work may still stand.
        if self.work.total() <= self.removal() || (!marked && !self.unmet()) {
            return;
        }
        if let Some(open) = open {
            self.levels.strip(&mut self.work, &[open]);
        }
        let floor = self.work.target;
        self.work.target = self.removal();
        open::strip(&mut self.work);
        self.work.target = floor;
        // What was stripped last may hold the newest tombstone, which the ledger moves to.
        self.work.ledger();
    }

    /// Down to where whole items are removed. They are spared half of what is protected only now and
    /// can be stripped by the next pass: one message of many large reads would else take everything
    /// before it out of view.
    fn removal(&self) -> u64 {
        let floor = self.work.target;
        let result =
            |(at, item): &(usize, &Item)| item.kind == ItemKind::Result && self.work.protected(*at);
        let items = self.work.transcript.items.iter().enumerate();
        let sizes = items.filter(result).map(|(_, item)| u64::from(item.tokens));
        (floor + sizes.sum::<u64>() / 2).clamp(floor, self.ceiling.max(floor))
    }

    /// The finer levels over all that is eligible.
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

    /// Acts first, then exploration, each oldest first. Evicting an act may free what it depended
    /// on; evicting exploration frees nothing, so one walk over each is enough.
    fn evict_closed(&mut self) {
        let episodes = self.episodes();
        for act in episodes.iter().filter(|one| one.kind == Kind::Act) {
            let before = self.work.moves.len();
            self.evict_one(act);
            let moved = self.work.moves.len() > before;
            // What the act depended on is stripped before it goes, as all else was.
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

    /// Texts of spans without calls, oldest first: each leaves a line in its own place, before any of
    /// them goes whole.
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

    /// Stops as soon as it may inside a level, too. Where the line of what is gone stands goes with
    /// the first.
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
            self.levels.fold(&self.work, episode, &mut step);
            self.work.apply_part(episode, level, step);
        }
        self.work.line(episode, level);
    }

    fn apply(&mut self, episode: &'a Episode, level: Level, mut moves: Vec<Move>) {
        self.levels.fold(&self.work, episode, &mut moves);
        self.work.apply(episode, level, moves);
    }

    /// Exploration that an act in view depends on.
    fn depended(&self) -> Vec<&'a Episode> {
        let held = |one: &&Episode| one.is_expl() && one.closed && !self.work.is_eligible(one);
        self.episodes().iter().filter(held).collect()
    }

    /// Shortens the results of exploration that an act in view depends on: what stands nowhere else
    /// stays, and so do its calls, its start and its description.
    fn shorten_depended(&mut self) {
        self.work.protection = self.work.protection.without_depended();
        for episode in self.depended() {
            self.levels.strip(&mut self.work, &[episode]);
        }
    }

    /// The last that is freed: whole calls of exploration that an act in view depends on. Its start,
    /// its description and the line of what is gone stay.
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
        // The last of these may hold the ledger.
        self.work.ledger();
    }
}

/// The moves that strip an episode at a level: reasoning, calls of search and listing tools with
/// their results, or all other calls with theirs.
fn strip(work: &Work<'_>, episode: &Episode, level: Level) -> Vec<Move> {
    work.strip(episode, |item| match level {
        Level::Reasoning => item.kind == ItemKind::Reasoning,
        Level::Bulk => item.kind == ItemKind::Call && work.is_bulk(item),
        Level::Intermediate => item.kind == ItemKind::Call && !work.is_bulk(item),
        Level::Superseded
        | Level::Stub
        | Level::Skeleton
        | Level::Arguments
        | Level::Episode
        | Level::Open
        | Level::Ledger => false,
    })
}

/// Merges tombstones into the ledger once they pass a tenth of the ceiling, and spans without
/// calls, oldest first, where the target can't be met otherwise. The newest survivor holds the
/// ledger. The tombstone of an expl with dependents in view stays.
fn merge_tombstones(work: &mut Work<'_>) {
    let transcript = work.transcript;
    let folded = |episode: &&Episode| {
        let carrier = episode.carrier.filter(|_| episode.is_expl());
        carrier.is_some_and(|at| work.mark(at) == Mark::Folded)
            && work.view.marked().is_removed(episode)
    };
    let standing: Vec<&Episode> = transcript.graph.episodes.iter().filter(folded).collect();
    let Some(host) = work.view.marked().ledger_host() else {
        return;
    };
    let size: u32 = standing
        .iter()
        .map(|episode| tombstone_size(work, episode))
        .sum();
    if size > work.measure.ceiling / 10 {
        for episode in standing {
            let holds = episode.carrier == Some(host);
            if !holds && !work.view.marked().has_dependents(episode) {
                merge(work, episode);
            }
        }
    }
    for episode in &transcript.graph.episodes {
        if !work.met() && is_silent(work, episode) {
            merge(work, episode);
        }
    }
    work.ledger();
}

/// The tokens of a tombstone: its call and the result that holds its text.
fn tombstone_size(work: &Work<'_>, episode: &Episode) -> u32 {
    let item = episode.carrier.and_then(|at| work.item(at));
    item.map_or(0, |item| {
        item.tokens + work.result_entry(item).map_or(0, |at| work.size(at))
    })
}

/// Takes what is left of an episode out of the view: the ledger speaks for it, and names nothing of
/// what is gone.
fn merge(work: &mut Work<'_>, episode: &Episode) {
    if work.holds_protected(episode) {
        return;
    }
    let due = |index: &usize| {
        let no = work.item(*index)?.no;
        let kept = work.view.marks().kept(no).is_some().then(Arc::default);
        let due = work.mark(*index) != Mark::Removed || kept.is_some();
        due.then_some(Move {
            item: *index,
            mark: Mark::Removed,
            kept,
        })
    };
    let moves = episode.items.iter().filter_map(due).collect();
    work.apply(episode, Level::Ledger, moves);
}

/// A closed span without calls that still shows its text.
fn is_silent(work: &Work<'_>, episode: &Episode) -> bool {
    episode.kind == Kind::Implicit
        && episode.closed
        && episode.carrier.is_none()
        && !work.view.marked().is_removed(episode)
}
