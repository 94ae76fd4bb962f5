//! Context Window Lifecycle in the finer order: graduated eviction along the episode graph (paper
//! 000 §4.4, design §5). [`CLOSED`], [`HELD`] and [`LAST`] are that order, and one loop runs them; the
//! view is counted again after each step. Pure. Never touches what is protected.

use super::ask::{Level, Policy, PolicyAsk};
use super::levels::{Levels, STAGES, Stage};
use super::pass::{Proposal, conclude};
use super::plan::Move;
use super::thoughts::{self, Reach};
use super::work::Work;
use super::{last_resort, merge, open_episode};
use crate::model::{ItemKind, Mark};
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::{EpisodeIndex, Indexed, ItemIndex};
use crate::session::transcript::Item;

/// If a pass leaves more than one part in this many of the room between floor and ceiling filled,
/// it goes on to what open work needs. A higher number keeps less of that.
const HELD_PART: u64 = 12;

/// If a pass has to take what no other does, it makes room for so many answers: one that stops at the ceiling is followed
/// by another at the next answer, and each rewrites the cached prefix.
const ANSWERS: u64 = 8;

/// Closed work that nothing in view needs. The cost of the ledger is known only once it is written, so these steps
/// repeat until the target is met or nothing moves.
const CLOSED: [Row; 5] = [
    Row::new(
        Due::Always,
        DownTo::Floor,
        Step::Thoughts(Reach::BehindTheCut),
    ),
    Row::new(Due::Always, DownTo::Floor, Step::Results),
    Row::new(Due::Always, DownTo::Removal, Step::Episodes),
    Row::new(Due::Always, DownTo::Removal, Step::Lines),
    Row::new(Due::Always, DownTo::Removal, Step::Merge),
];

/// What open work needs: what the open episode did lasts without its results, so those go before what it declared
/// that it depends on.
const HELD: [Row; 4] = [
    Row::new(
        Due::FallsShort,
        DownTo::Floor,
        Step::Open(&[Stage::Superseded, Stage::Effects]),
    ),
    Row::new(Due::FallsShort, DownTo::Floor, Step::Depended),
    Row::new(Due::FallsShort, DownTo::Floor, Step::Open(&STAGES)),
    Row::new(Due::FallsShort, DownTo::Removal, Step::OpenCalls),
];

/// What goes only where all else is too little.
const LAST: [Row; 6] = [
    Row::new(Due::FallsShort, DownTo::Floor, Step::DependedCalls),
    // What results of these calls pointed to was held by them alone.
    Row::new(Due::FreedPointers, DownTo::Floor, Step::Again),
    Row::new(Due::FallsShort, DownTo::Floor, Step::DependedMarks),
    Row::new(Due::Unmet, DownTo::Answers, Step::Thoughts(Reach::All)),
    Row::new(Due::Unmet, DownTo::Answers, Step::MergeAll),
    Row::new(Due::Unmet, DownTo::Answers, Step::LastResort),
];

/// One step of the order: when it is taken, how far it goes, and what it does.
struct Row {
    due: Due,
    down_to: DownTo,
    step: Step,
}

impl Row {
    const fn new(due: Due, down_to: DownTo, step: Step) -> Self {
        Self { due, down_to, step }
    }
}

/// When a step is taken.
#[derive(Clone, Copy)]
enum Due {
    /// In each pass.
    Always,
    /// If the view would reach the ceiling again too soon.
    FallsShort,
    /// If the view would reach the ceiling again too soon, had pointers, and none of what they pointed to could go.
    FreedPointers,
    /// If the view is above the ceiling.
    Unmet,
}

/// The size at which a step stops.
#[derive(Clone, Copy)]
enum DownTo {
    /// The floor of the pass.
    Floor,
    /// The size down to which whole items go.
    Removal,
    /// The ceiling, less the room that some answers of the newest's size take.
    Answers,
}

/// What a step takes.
#[derive(Clone, Copy)]
enum Step {
    /// Thoughts.
    Thoughts(Reach),
    /// Results of closed work, level by level.
    Results,
    /// Calls of closed work, then its episodes whole; acts before exploration, each oldest first.
    Episodes,
    /// Texts of spans without calls; a line is left of each.
    Lines,
    /// Tombstones, into the ledger.
    Merge,
    /// Results inside the open episode, by these levels.
    Open(&'static [Stage]),
    /// Calls inside the open episode.
    OpenCalls,
    /// Results of exploration that an act in view depends on. Its calls, its start and its description stay.
    Depended,
    /// Calls of exploration that an act in view depends on. Its start and its description stay.
    DependedCalls,
    /// What such exploration shows beside its description, where a thought must stay with each of its marks.
    DependedMarks,
    /// All the steps before [`LAST`] once more.
    Again,
    /// Tombstones, whatever room they take.
    MergeAll,
    /// All but what no pass may touch.
    LastResort,
}

impl Step {
    /// Whether it takes what open work needs, which `strict_active` keeps.
    const fn takes_needed(self) -> bool {
        match self {
            Self::Thoughts(_)
            | Self::Results
            | Self::Episodes
            | Self::Lines
            | Self::Merge
            | Self::Again
            | Self::MergeAll => false,
            Self::Open(_)
            | Self::OpenCalls
            | Self::Depended
            | Self::DependedCalls
            | Self::DependedMarks
            | Self::LastResort => true,
        }
    }
}

/// A pass in progress.
struct LevelsPass<'a> {
    work: Work<'a>,
    levels: Levels<'a>,
    floor: u64,
    ceiling: u64,
}

/// Proposes a pass down to the floor. The protected tail of recent tokens goes only to meet the ceiling.
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
        floor: ask.target.floor,
        ceiling: ask.target.ceiling,
    };
    pass.evict();
    if pass.unmet() {
        pass.work.protection = pass.work.protection.without_recent();
        pass.evict();
    }
    pass.run(&LAST);
    conclude(pass.work, ask, Policy::Cwl)
}

impl<'a> LevelsPass<'a> {
    /// Evicts closed work, then what open work needs.
    fn evict(&mut self) {
        loop {
            let before = self.work.moves.len();
            loop {
                let before = self.work.moves.len();
                self.run(&CLOSED);
                if self.work.total() <= self.removal() || self.work.moves.len() == before {
                    break;
                }
            }
            self.run(&HELD);
            // A result to which another one pointed may go once that is gone, which may have been
            // later in the order.
            if self.work.met() || !self.work.frees_since(before) {
                return;
            }
        }
    }

    /// Takes these steps, those that are due.
    fn run(&mut self, rows: &[Row]) {
        for row in rows {
            // The paper's rule holds to the end.
            let is_off = self.work.config.strict_active && row.step.takes_needed();
            if !is_off && self.is_due(row.due) {
                self.work.target = match row.down_to {
                    DownTo::Floor => self.floor,
                    DownTo::Removal => self.removal(),
                    DownTo::Answers => self.answers(),
                };
                self.take(row.step);
                self.work.target = self.floor;
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Thoughts(reach) => thoughts::strip(&mut self.work, reach),
            Step::Results => self.strip_eligible(),
            Step::Episodes => self.evict_closed(),
            Step::Lines => self.line_texts(),
            Step::Merge => merge::tombstones(&mut self.work),
            Step::Open(stages) => self.strip_open(stages),
            Step::OpenCalls => self.strip_open_calls(),
            Step::Depended => self.shorten_depended(),
            Step::DependedCalls => self.strip_depended(),
            Step::DependedMarks => self.fold_depended(),
            Step::Again => self.evict(),
            Step::MergeAll => merge::to_the_target(&mut self.work),
            Step::LastResort => last_resort::evict(&mut self.work, self.ceiling),
        }
    }

    fn is_due(&self, due: Due) -> bool {
        match due {
            Due::Always => true,
            Due::FallsShort => self.falls_short(),
            Due::FreedPointers => self.work.has_pointers() && self.falls_short(),
            Due::Unmet => self.unmet(),
        }
    }

    fn unmet(&self) -> bool {
        self.work.total() > self.ceiling
    }

    /// Whether the view would reach the ceiling again too soon. Such a pass rewrites the cached
    /// prefix for a few turns only, and the next passes would do the same as long as the same work
    /// is held. If the floor equals the ceiling this is [`LevelsPass::unmet`].
    fn falls_short(&self) -> bool {
        self.work.total() > self.floor + self.ceiling.saturating_sub(self.floor) / HELD_PART
    }

    fn episodes(&self) -> &'a Indexed<EpisodeIndex, Episode> {
        &self.work.transcript.graph.episodes
    }

    /// The open episode, if it may be touched now. Unannotated work is cut into spans as it grows, so
    /// its open span is short and goes only to meet the ceiling, unless thoughts make it large.
    fn open(&self) -> Option<&'a Episode> {
        // Nothing to do if calls of closed work were spared only because of `removal`.
        if self.work.total() <= self.removal() {
            return None;
        }
        let open = self.episodes().get(self.work.transcript.graph.current()?)?;
        let marked = open.kind != EpisodeKind::Implicit;
        (marked || self.unmet() || self.is_thoughtful(open)).then_some(open)
    }

    /// Whether thoughts of an episode that have to stay take more than the room that a pass makes.
    fn is_thoughtful(&self, episode: &Episode) -> bool {
        let thoughts = episode
            .items
            .iter()
            .filter(|at| self.work.is_demanded(**at));
        let sizes = thoughts.map(|at| self.work.freed(*at));
        sizes.sum::<u64>() > self.ceiling.saturating_sub(self.floor)
    }

    fn strip_open(&mut self, stages: &[Stage]) {
        if let Some(open) = self.open() {
            self.levels.strip(&mut self.work, &[open], stages);
        }
    }

    fn strip_open_calls(&mut self) {
        if self.open().is_some() {
            open_episode::strip(&mut self.work);
            // The last span that was stripped may have the newest tombstone, which holds the ledger.
            self.work.ledger();
        }
    }

    /// The size down to which whole items are removed. It is above the floor by half of the results
    /// that are protected only now, because the next pass can strip those: a message with many
    /// large reads would otherwise drive everything before it out of view.
    fn removal(&self) -> u64 {
        let result = |(at, item): &(ItemIndex, &Item)| {
            item.kind == ItemKind::Result && self.work.protected(*at)
        };
        let items = self.work.transcript.items.indexed();
        let sizes = items.filter(result).map(|(_, item)| u64::from(item.tokens));
        let spared = sizes.sum::<u64>() / 2;
        (self.floor + spared).clamp(self.floor, self.ceiling.max(self.floor))
    }

    /// The size that leaves room for some answers of the newest's size.
    fn answers(&self) -> u64 {
        let newest = self.work.transcript.newest_answer();
        let newest = newest.map_or(0, |entry| self.work.view.body_size(entry));
        let room = ANSWERS * u64::from(newest);
        self.ceiling
            .saturating_sub(room)
            .clamp(self.floor, self.ceiling.max(self.floor))
    }

    /// Strips all eligible episodes by the finer levels.
    fn strip_eligible(&mut self) {
        let all = self.episodes().iter();
        let eligible: Vec<&Episode> = all.filter(|one| self.work.is_eligible(one)).collect();
        self.levels.strip(&mut self.work, &eligible, &STAGES);
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
                self.levels.strip(&mut self.work, &freed, &STAGES);
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
            if !self.work.met() && merge::is_silent(&self.work, episode) {
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
        for level in [Level::Bulk, Level::Intermediate] {
            let moves = strip(&self.work, episode, level);
            self.one_by_one(episode, level, moves);
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

    fn shorten_depended(&mut self) {
        self.work.protection = self.work.protection.without_depended();
        for episode in self.depended() {
            self.levels.strip(&mut self.work, &[episode], &STAGES);
        }
    }

    fn strip_depended(&mut self) {
        self.shorten_depended();
        for episode in self.depended() {
            for level in [Level::Bulk, Level::Intermediate] {
                if !self.work.met() {
                    let moves = strip(&self.work, episode, level);
                    self.one_by_one(episode, level, moves);
                }
            }
        }
        // The last of these episodes may hold the ledger.
        self.work.ledger();
    }

    /// Leaves one message of each such exploration, with its description: two marks keep the thoughts of two.
    fn fold_depended(&mut self) {
        for episode in self.depended() {
            let mut marks = [episode.carrier, episode.end].into_iter().flatten();
            let told = episode
                .carrier
                .is_some_and(|at| self.work.mark(at) < Mark::Removed);
            if told && !self.work.met() && marks.any(|at| self.work.kept_thought(at) > 0) {
                let moves = self.work.remove(episode);
                self.apply(episode, Level::Episode, moves);
            }
        }
        // The last of these episodes may have the newest tombstone, which holds the ledger.
        self.work.ledger();
    }
}

/// The moves that strip an episode at a level: calls of search and listing tools, or all other
/// calls. Results go with their calls.
fn strip(work: &Work<'_>, episode: &Episode, level: Level) -> Vec<Move> {
    let bulk = level == Level::Bulk;
    work.strip(episode, |item| {
        item.kind == ItemKind::Call && work.is_bulk(item) == bulk
    })
}
