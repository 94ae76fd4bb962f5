//! What one rung of a ladder may touch, and how far down it evicts, where an operator says so for that
//! rung alone (paper 004 §8). Never runs a rung.

use std::collections::{BTreeMap, HashSet};

use plimsoll_model::{Globs, ItemKind, share_tokens};

use super::files;
use super::originals::Originals;
use crate::policy::{ItemSet, Policy, Target};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;
use crate::session::view::View;

/// Whose content a rung may touch. A user's is never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterRole {
    /// The model's: its texts and its reasoning.
    Assistant,
    /// The tools': calls with their results.
    Tool,
}

impl FilterRole {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("assistant", Self::Assistant), ("tool", Self::Tool)];
}

/// What an operator sets for one rung.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RungSettings {
    /// The tools whose calls it may touch, with their results. None: those of any tool.
    pub tools: Globs,
    /// Names of files: it may touch calls whose arguments name one of them. None: any call.
    pub files: Vec<String>,
    /// Whose content it may touch. None: anybody's.
    pub roles: Vec<FilterRole>,
    /// The share of the ceiling, in (0, 1], down to which it evicts. None: down to the floor.
    pub floor: Option<f64>,
}

/// What is set for the rungs of a ladder, by policy.
pub type RungTable = BTreeMap<Policy, RungSettings>;

impl RungSettings {
    /// The target of a pass of this rung.
    #[must_use]
    pub(super) fn target(&self, asked: Target) -> Target {
        let own = self.floor.map(|share| share_tokens(asked.ceiling, share));
        Target {
            floor: own.unwrap_or(asked.floor),
            ..asked
        }
    }

    /// The items of a view that the rung may not touch.
    pub(super) fn spared(&self, view: &View, originals: Originals<'_>) -> ItemSet {
        if self.tools.is_empty() && self.files.is_empty() && self.roles.is_empty() {
            return ItemSet::default();
        }
        let items = view.transcript().items.indexed();
        let spared: HashSet<ItemIndex> = items
            .filter(|(at, item)| self.spares(*at, item, originals))
            .map(|(at, _)| at)
            .collect();
        ItemSet::new(spared)
    }

    fn spares(&self, at: ItemIndex, item: &Item, originals: Originals<'_>) -> bool {
        let may = |role| self.roles.is_empty() || self.roles.contains(&role);
        // A filter on calls leaves out all that is no call.
        let any_call = self.tools.is_empty() && self.files.is_empty();
        match item.kind {
            ItemKind::Text | ItemKind::Reasoning => !may(FilterRole::Assistant) || !any_call,
            ItemKind::Call if item.is_clients_call() => {
                let tool = self.tools.is_empty() || self.tools.match_name(&item.name);
                let file = || self.files.is_empty() || files::names_one(&self.files, at, originals);
                !may(FilterRole::Tool) || !tool || !file()
            }
            // A result goes with its call. The proxy's own calls are no client's content.
            ItemKind::Call
            | ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Opaque => false,
        }
    }
}
