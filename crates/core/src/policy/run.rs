//! The one loop that takes the steps of an order of eviction. Counts the view again after each move, and stops a step
//! as soon as the view is small enough. Never decides what comes first: [`Table`] does.

use plimsoll_model::ItemKind;

use super::ask::{Policy, PolicyAsk};
use super::levels::Levels;
use super::order::{ANSWERS, Again, Due, HELD_PART, Step, Table, Tail, Takes, Until};
use super::pass::{Proposal, conclude};
use super::protect::{Rules, Tier};
use super::work::Work;
use super::{baselines, episode_steps, last_resort, merge, paper, thoughts};
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;

/// Tokens at the tail that a summary leaves word for word, or a quarter of a small ceiling.
const VERBATIM: u64 = 8000;

/// A pass in progress.
struct Pass<'a> {
    ask: PolicyAsk<'a>,
    work: Work<'a>,
    /// The strings of the view, once a step needs them: reading them all costs.
    levels: Option<Levels<'a>>,
    /// Whether anything is protected that may go before a budget is reported unmet.
    spares: bool,
}

/// Proposes a pass of a policy, down to the floor unless the policy has none.
pub(super) fn propose(policy: Policy, ask: &PolicyAsk<'_>) -> Proposal {
    let table = Table::of(policy);
    let recent = match table.tail {
        Tail::Recent => ask.config.protect_recent,
        Tail::Verbatim => u32::try_from(VERBATIM.min(ask.target.ceiling / 4)).unwrap_or(u32::MAX),
        Tail::None => 0,
    };
    let mut pass = Pass {
        ask: *ask,
        work: Work::new(ask, ask.protection(recent, table.rules)),
        levels: None,
        spares: ask.spares(recent),
    };
    for step in table.rounds.iter().chain(table.last) {
        pass.take(step);
    }
    conclude(pass.work, ask, policy)
}

impl<'a> Pass<'a> {
    /// Takes a step if it is due, and again as long as that may bring more.
    fn take(&mut self, step: &Step) {
        if !self.is_due(step) {
            return;
        }
        self.work.protection.open(step.tier);
        loop {
            let before = self.work.moves.len();
            self.act(step);
            let again = match step.again {
                Again::Never => false,
                Again::Moves => self.is_above(step.until) && self.work.moves.len() > before,
                Again::FreesPointers => self.is_above(step.until) && self.work.frees_since(before),
            };
            if !again {
                return;
            }
        }
    }

    fn is_due(&self, step: &Step) -> bool {
        // The rule holds to the end.
        let needed = matches!(step.tier, Tier::Depended | Tier::Open);
        if needed && self.work.protection.rules() == Rules::Strict {
            return false;
        }
        match step.due {
            Due::Always => true,
            Due::FallsShort => self.falls_short(),
            Due::FreedPointers => self.work.has_pointers() && self.falls_short(),
            Due::Unmet => self.unmet(),
            Due::UnmetByTail => self.spares && self.unmet(),
        }
    }

    fn act(&mut self, step: &Step) {
        let until = step.until;
        match step.takes {
            Takes::Steps(steps) => steps.iter().for_each(|one| self.take(one)),
            Takes::Thoughts(reach) => thoughts::strip(self.down_to(until), reach),
            Takes::Results(stages) => {
                let episodes = self.episodes(step.tier);
                // Of what an act depends on no more goes than has to: one episode by all levels, then the next.
                let one_by_one = step.tier == Tier::Depended;
                let together = if one_by_one { 1 } else { episodes.len().max(1) };
                let (work, levels) = self.with_levels(until);
                for some in episodes.chunks(together) {
                    levels.strip(work, some, stages);
                }
            }
            Takes::Calls if step.tier == Tier::Open => {
                let episodes = self.episodes(step.tier);
                episode_steps::take_open_calls(self.down_to(until), &episodes);
            }
            Takes::Calls => {
                let episodes = self.episodes(step.tier);
                let (work, levels) = self.with_levels(until);
                episode_steps::take_calls(work, levels, &episodes);
            }
            Takes::Episodes => {
                let (work, levels) = self.with_levels(until);
                episode_steps::take_free(work, levels);
            }
            Takes::Texts => {
                let (work, levels) = self.with_levels(until);
                episode_steps::take_texts(work, levels);
            }
            Takes::Folds => {
                let episodes = self.episodes(step.tier);
                let (work, levels) = self.with_levels(until);
                episode_steps::fold(work, levels, &episodes);
            }
            Takes::Tombstones => merge::tombstones(self.down_to(until)),
            Takes::AllTombstones => merge::to_the_target(self.down_to(until)),
            Takes::LastResort => {
                let ceiling = self.ask.target.ceiling;
                last_resort::evict(self.down_to(until), ceiling);
            }
            Takes::EachEpisode(levels) => paper::walk(self.down_to(until), levels),
            Takes::Pairs => baselines::remove(self.down_to(until)),
            Takes::Stubs(pick) => baselines::clear(self.down_to(until), pick),
            Takes::Middles => {
                let ask = self.ask;
                baselines::mask(self.down_to(until), &ask);
            }
            Takes::TurnFolds => baselines::fold(self.down_to(until)),
            Takes::Turns => baselines::drop_turns(self.down_to(until)),
            Takes::ThreeTier => baselines::three_tier(self.down_to(until)),
        }
    }

    /// The state of the pass, which stops at this size from now on.
    fn down_to(&mut self, until: Until) -> &mut Work<'a> {
        self.work.target = self.size(until);
        &mut self.work
    }

    /// The same with the strings of the view. Thoughts may have gone before they are read: no string is in those.
    fn with_levels(&mut self, until: Until) -> (&mut Work<'a>, &mut Levels<'a>) {
        self.work.target = self.size(until);
        let levels = self.levels.take();
        let levels = levels.unwrap_or_else(|| Levels::new(&self.ask, &self.work));
        (&mut self.work, self.levels.insert(levels))
    }

    fn size(&self, until: Until) -> u64 {
        let (floor, ceiling) = (self.ask.target.floor, self.ask.target.ceiling);
        match until {
            Until::Floor => floor,
            Until::Removal => self.removal(),
            Until::Answers => self.answers(),
            Until::Ceiling => ceiling,
            Until::Half => floor + self.work.total().saturating_sub(floor) / 2,
            Until::Nothing => 0,
        }
    }

    /// Whether the view is larger than it should be. Where it has to reach the floor, what is done from here on is
    /// told as the newest step.
    fn is_above(&mut self, until: Until) -> bool {
        match until {
            Until::Floor => !self.down_to(until).met(),
            Until::Removal | Until::Answers | Until::Ceiling | Until::Half | Until::Nothing => {
                self.work.total() > self.size(until)
            }
        }
    }

    fn unmet(&self) -> bool {
        self.work.total() > self.ask.target.ceiling
    }

    fn falls_short(&self) -> bool {
        let (floor, ceiling) = (self.ask.target.floor, self.ask.target.ceiling);
        self.work.total() > floor + ceiling.saturating_sub(floor) / HELD_PART
    }

    /// The episodes of a tier that a step takes now, oldest first.
    fn episodes(&self, tier: Tier) -> Vec<&'a Episode> {
        let all = self.work.transcript.graph.episodes.iter();
        match tier {
            Tier::Open => self.open().into_iter().collect(),
            Tier::Depended => {
                let held =
                    |one: &&Episode| one.is_expl() && one.closed && !self.work.is_eligible(one);
                all.filter(held).collect()
            }
            Tier::Never | Tier::Newest | Tier::Kept | Tier::Recent | Tier::Free => {
                all.filter(|one| self.work.is_eligible(one)).collect()
            }
        }
    }

    /// The open episode, if it may be touched now. Unannotated work is cut into spans as it grows, so
    /// its open span is short and goes only to meet the ceiling, unless thoughts make it large.
    fn open(&self) -> Option<&'a Episode> {
        // Nothing to do if calls of closed work were spared only because of `removal`.
        if self.work.total() <= self.removal() {
            return None;
        }
        let graph = &self.work.transcript.graph;
        let open = graph.episodes.get(graph.current()?)?;
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
        let target = self.ask.target;
        sizes.sum::<u64>() > target.ceiling.saturating_sub(target.floor)
    }

    /// See [`Until::Removal`].
    fn removal(&self) -> u64 {
        let result = |(at, item): &(ItemIndex, &Item)| {
            item.kind == ItemKind::Result && self.work.protected(*at)
        };
        let items = self.work.transcript.items.indexed();
        let sizes = items.filter(result).map(|(_, item)| u64::from(item.tokens));
        let spared = sizes.sum::<u64>() / 2;
        let (floor, ceiling) = (self.ask.target.floor, self.ask.target.ceiling);
        (floor + spared).clamp(floor, ceiling.max(floor))
    }

    /// See [`Until::Answers`].
    fn answers(&self) -> u64 {
        let newest = self.work.transcript.newest_answer();
        let newest = newest.map_or(0, |entry| self.work.view.body_size(entry));
        let room = ANSWERS * u64::from(newest);
        let (floor, ceiling) = (self.ask.target.floor, self.ask.target.ceiling);
        ceiling
            .saturating_sub(room)
            .clamp(floor, ceiling.max(floor))
    }
}
