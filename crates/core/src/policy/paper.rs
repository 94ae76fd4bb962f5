//! The published order: Algorithm 1 of paper 000 (§4.4), line by line, each with its number.
//! `docs/evidence/papers.md` says what we add. The order has its levels. Never evicts anything of an open episode, of the
//! prologue, or of exploration that an act in view depends on.

use plimsoll_model::{ItemKind, ToolClass};

use super::ask::Level;
use super::plan::Move;
use super::thoughts;
use super::work::Work;
use crate::session::graph::{Episode, EpisodeKind};
use crate::session::index::EpisodeIndex;
use crate::session::transcript::Item;

/// A walk over the episodes.
struct Walk<'w, 'a> {
    work: &'w mut Work<'a>,
    /// The episodes that are not evicted yet, oldest first.
    graph: Vec<EpisodeIndex>,
}

/// Runs Algorithm 1 by these levels. The budget is the target, which in the published order is the ceiling.
pub(super) fn walk(work: &mut Work<'_>, by: &[Level]) {
    let graph = graph(work);
    Walk { work, graph }.run(by);
}

impl Walk<'_, '_> {
    fn run(&mut self, by: &[Level]) {
        let transcript = self.work.transcript;
        // Whether the ledger has to be written again. At first it has, because one that another order
        // or an edit of the client left moves to the newest tombstone.
        let mut outdated = true;
        // 1: while countTokens(episodeGraph) > tokenBudget do
        while !self.work.met() {
            // 2–5: if candidates.isEmpty() then break: nothing safe is left to evict
            let Some(target) = self.target() else {
                break;
            };
            let Some(episode) = transcript.graph.episodes.get(target) else {
                break;
            };
            // 7: for level in [STRIP_REASONING, STRIP_BULK_OUTPUT, STRIP_INTERMEDIATE,
            //    REMOVE_EPISODE] do
            for level in by.iter().copied() {
                // 8: if level is applicable to target.type then
                if !self.is_applicable(level, episode) {
                    continue;
                }
                // 9: strip target at level: remove content
                let moves = self.moves(level, episode);
                outdated |= !moves.is_empty();
                self.work.apply(episode, level, moves);
                if std::mem::take(&mut outdated) {
                    self.work.ledger();
                }
                // 10–12: if countTokens(episodeGraph) ≤ tokenBudget then return
                if self.work.met() {
                    return;
                }
            }
            // An evicted episode is removed from the graph (§4.3: "compression removes nodes").
            self.graph.retain(|at| *at != target);
        }
    }

    /// Line 6: the oldest act among the candidates, or the oldest expl if there is no act.
    fn target(&self) -> Option<EpisodeIndex> {
        let is_act = |at: &EpisodeIndex| {
            let episode = self.work.transcript.graph.episodes.get(*at);
            episode.is_some_and(|episode| episode.kind == EpisodeKind::Act)
        };
        let oldest_first = || self.graph.iter().copied();
        // Whether an episode is an act is cheap to tell, so it is asked first.
        oldest_first()
            .find(|at| is_act(at) && self.is_candidate(*at))
            .or_else(|| oldest_first().find(|at| self.is_candidate(*at)))
    }

    /// Line 2.
    fn is_candidate(&self, at: EpisodeIndex) -> bool {
        let Some(episode) = self.work.transcript.graph.episodes.get(at) else {
            return false;
        };
        // episode.isClosed and not episode.isActive, which are one here
        episode.closed
            // and not episode.isPrologue
            && !self.work.protection.is_prologue(at)
            // and all dependents of episode are fully evicted
            && !self.work.view.marked().has_dependents(episode)
    }

    /// Line 8: only exploration is stripped of reasoning.
    fn is_applicable(&self, level: Level, episode: &Episode) -> bool {
        level != Level::Reasoning || episode.is_expl()
    }

    /// Line 9: what each level covers (§4.4, "Within the selected episode").
    fn moves(&self, level: Level, episode: &Episode) -> Vec<Move> {
        let work = &*self.work;
        let call = |item: &Item| item.kind == ItemKind::Call;
        match level {
            // "Extended chain-of-thought content", but for what the provider demands back
            Level::Reasoning => work.strip(episode, |item| {
                item.kind == ItemKind::Reasoning && thoughts::may_go(work, item.entry)
            }),
            // "Large, enumerable tool outputs — search results, directory listings"
            Level::Bulk => work.strip(episode, |item| call(item) && work.is_bulk(item)),
            // "Smaller tool interactions — file reads, bash commands and their outputs"
            Level::Intermediate => work.strip(episode, |item| {
                call(item) && !work.is_bulk(item) && item.class != ToolClass::Write
            }),
            // "the episode is removed in its entirety"
            Level::Episode if episode.is_expl() && episode.carrier.is_none() => {
                let texts = episode.items.iter();
                texts.filter_map(|at| work.leave_line(*at)).collect()
            }
            Level::Episode => work.remove(episode),
            Level::Repeat
            | Level::Clip
            | Level::Loop
            | Level::Refers
            | Level::Superseded
            | Level::Stub
            | Level::Skeleton
            | Level::Arguments
            | Level::Asked
            | Level::Open
            | Level::Ledger => Vec::new(),
        }
    }
}

/// The episodes that are not evicted.
fn graph(work: &Work<'_>) -> Vec<EpisodeIndex> {
    let episodes = work.transcript.graph.episodes.indexed();
    let standing = episodes.filter(|(_, one)| !work.view.marked().is_removed(one));
    standing.map(|(at, _)| at).collect()
}
