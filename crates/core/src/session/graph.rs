//! The episode graph (paper 000 §4.3): explicit episodes, which the agent opened and closed, and
//! implicit ones, which are cut from unannotated work. The graph only grows; it never evicts
//! anything.

use std::collections::HashMap;

use plimsoll_model::{Effect, ExplicitKind};

use super::index::{EpisodeIndex, Indexed, ItemIndex};

/// What an episode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpisodeKind {
    /// Exploration that the agent marked.
    Expl,
    /// Action that the agent marked.
    Act,
    /// Unannotated content: exploratory with unknown dependencies.
    Implicit,
}

/// One vertex of the graph.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Its name; empty for an implicit one, whose name follows from its first item.
    pub name: String,
    /// Its type.
    pub kind: EpisodeKind,
    /// The expl episodes that it depends on.
    pub dependencies: Vec<EpisodeIndex>,
    /// The act episodes that depend on it.
    pub dependents: Vec<EpisodeIndex>,
    /// The start call, which carries its tombstone; an implicit one's first call. [`super::marked::Marked::carrier`]
    /// says which call of an implicit one carries its tombstone.
    pub carrier: Option<ItemIndex>,
    /// The call that closed it.
    pub end: Option<ItemIndex>,
    /// Whether it is closed.
    pub closed: bool,
    /// What was learned.
    pub description: Option<String>,
    /// Its texts, reasoning and calls in order, `delimiter` calls included. Results go with their
    /// calls and are not listed.
    pub items: Vec<ItemIndex>,
    /// Calls of messages that must never be edited. Only their results may be shown in part.
    pub bound: Vec<ItemIndex>,
    /// Raw tokens of its items, results included. Reasoning is left out: clients drop it between
    /// turns, and a cut that depended on it would move.
    pub tokens: u32,
}

impl Episode {
    fn new(name: String, kind: EpisodeKind) -> Self {
        Self {
            name,
            kind,
            dependencies: Vec::new(),
            dependents: Vec::new(),
            carrier: None,
            end: None,
            closed: false,
            description: None,
            items: Vec::new(),
            bound: Vec::new(),
            tokens: 0,
        }
    }

    /// Whether it is exploration, marked or not.
    #[must_use]
    pub fn is_expl(&self) -> bool {
        matches!(self.kind, EpisodeKind::Expl | EpisodeKind::Implicit)
    }
}

/// The graph over one transcript.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// All episodes in order of their first items.
    pub episodes: Indexed<EpisodeIndex, Episode>,
    names: HashMap<String, EpisodeIndex>,
    open: Option<EpisodeIndex>,
    implicit: Option<EpisodeIndex>,
}

/// What a `delimiter` call means on this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelimiterRole {
    /// It opened this episode.
    Start(EpisodeIndex),
    /// It closed this episode.
    End(EpisodeIndex),
    /// It closed an episode whose start is not on the path, so it is left out.
    Stray,
}

impl Graph {
    /// The explicit episode that is open.
    #[must_use]
    pub fn open(&self) -> Option<&Episode> {
        self.open.and_then(|index| self.episodes.get(index))
    }

    /// The explicit episode that is open, else the implicit one at the tail.
    #[must_use]
    pub fn current(&self) -> Option<EpisodeIndex> {
        self.open.or(self.implicit)
    }

    /// An explicit episode by name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Episode> {
        self.names
            .get(name)
            .and_then(|index| self.episodes.get(*index))
    }

    /// Names of all closed expl episodes in order.
    pub fn closed_expl(&self) -> impl Iterator<Item = &str> {
        self.episodes
            .iter()
            .filter(|episode| episode.kind == EpisodeKind::Expl && episode.closed)
            .map(|episode| episode.name.as_str())
    }

    /// Adds what a recorded `delimiter` call did. Nothing is validated again: a call that was
    /// refused stays refused and marks nothing, and an `end` whose start is gone is stray.
    pub fn take(&mut self, effect: &Effect) -> Option<DelimiterRole> {
        Some(match effect {
            Effect::Refused | Effect::Recalled { .. } => return None,
            Effect::Started {
                name,
                kind,
                dependencies,
            } => {
                // With `auto_close` a start ends the episode before it.
                self.close_open(None);
                self.end_implicit();
                DelimiterRole::Start(self.start(name, *kind, dependencies))
            }
            Effect::Ended { name, description } => {
                // The start may have left the path with an edit of the client.
                let open = self.open().is_some_and(|episode| episode.name == *name);
                match (open, self.open) {
                    (true, Some(index)) => {
                        self.close_open(description.clone());
                        DelimiterRole::End(index)
                    }
                    _ => DelimiterRole::Stray,
                }
            }
        })
    }

    /// Adds calls whose items are not in the transcript yet. The episodes that they begin stay
    /// open, even if one of these calls closes them.
    pub fn foresee<'a>(&mut self, effects: impl Iterator<Item = &'a Effect>) {
        let known = self.episodes.len();
        for effect in effects {
            self.take(effect);
        }
        for episode in self.episodes.iter_mut().skip(known) {
            episode.closed = false;
        }
    }

    fn start(&mut self, name: &str, kind: ExplicitKind, dependencies: &[String]) -> EpisodeIndex {
        let kind = match kind {
            ExplicitKind::Expl => EpisodeKind::Expl,
            ExplicitKind::Act => EpisodeKind::Act,
        };
        let mut episode = Episode::new(name.to_owned(), kind);
        // A dependency whose episode left the path has nothing to protect any more.
        let known = dependencies
            .iter()
            .filter_map(|name| self.names.get(name).copied());
        episode.dependencies = known.collect();
        let index = self.episodes.end();
        for dependency in &episode.dependencies {
            if let Some(expl) = self.episodes.get_mut(*dependency) {
                expl.dependents.push(index);
            }
        }
        self.episodes.push(episode);
        self.names.insert(name.to_owned(), index);
        self.open = Some(index);
        index
    }

    fn close_open(&mut self, description: Option<String>) {
        let open = self.open.take();
        if let Some(episode) = open.and_then(|index| self.episodes.get_mut(index)) {
            episode.closed = true;
            episode.description = description;
        }
    }

    /// Ends the implicit episode at the tail: at a user message, or where an explicit one starts.
    pub fn end_implicit(&mut self) {
        let ended = self.implicit.take();
        if let Some(episode) = ended.and_then(|index| self.episodes.get_mut(index)) {
            episode.closed = true;
        }
    }

    /// Cuts the implicit episode once it is long enough; called before each assistant message. A
    /// cut looks only backwards, so an earlier cut never changes.
    pub fn before_assistant(&mut self, implicit_tokens: u32) {
        let long = self
            .implicit
            .and_then(|index| self.episodes.get(index))
            .is_some_and(|episode| episode.tokens >= implicit_tokens);
        if long {
            self.end_implicit();
        }
    }

    /// The episode of an unmarked item that is added now. An implicit one begins if none is open.
    pub fn place(&mut self) -> EpisodeIndex {
        if let Some(index) = self.open.or(self.implicit) {
            return index;
        }
        let implicit = Episode::new(String::new(), EpisodeKind::Implicit);
        *self.implicit.insert(self.episodes.push(implicit))
    }
}
