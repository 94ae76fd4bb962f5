//! One family of models, and the table of several. Owns what is known of a family and how a name
//! finds it. Never reads the form in which a table is written.

use std::time::Duration;

use globset::GlobSet;
use plimsoll_model::{ReasoningBack, ReasoningRead};

use crate::encoding::Encoding;
use crate::price::Prices;

/// One part in this many of a context is left free if answer and prompt share it. Before the server
/// has reported anything, the count may be some per cent short, and the server's own template adds
/// to it.
const CONTEXT_MARGIN: u32 = 16;

/// How a provider caches prompts, as far as it decides what a change of the prefix costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheModel {
    /// Exact prefixes are cached without being asked for, in steps.
    Automatic {
        /// By how many tokens a cached prefix grows.
        step: u32,
        /// After how long without a request the cache is cold.
        ttl: Duration,
    },
    /// Prefixes are cached at breakpoints.
    Breakpoints {
        /// How many breakpoints one request may have.
        max: u32,
        /// After how long without a request the cache is cold.
        ttl: Duration,
        /// How many content blocks before a breakpoint a cached prefix may end and still be found.
        /// `None` if the provider states no limit.
        look_back: Option<u32>,
        /// Whether the provider sets a breakpoint of its own at the newest message.
        implicit: bool,
    },
    /// Nothing is cached.
    None,
}

impl Default for CacheModel {
    fn default() -> Self {
        Self::Automatic {
            step: 128,
            ttl: Duration::from_secs(3600),
        }
    }
}

/// A family of models that share everything that is listed here.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name. It may be the label of a metric, because it comes from a table and not from a
    /// request.
    pub name: String,
    /// The encoding by which its tokens are counted.
    pub encoding: Encoding,
    /// How many prompt tokens the model accepts. `None` if unknown.
    pub window: Option<u32>,
    /// How many tokens prompt and answer may have together, if only that is known.
    pub context: Option<u32>,
    /// At how many tokens its server was seen to cut prompts without a word. No table says this.
    pub cut: Option<u32>,
    /// What its tokens cost.
    pub prices: Prices,
    /// How its provider caches prompts.
    pub cache: CacheModel,
    /// Which reasoning of a history must come back.
    pub reasoning_back: ReasoningBack,
    /// Which reasoning of a history its model reads.
    pub reasoning_read: ReasoningRead,
    /// Whether its model takes a system message among the others, in Messages and in Responses.
    pub system_among: bool,
    /// Whether the user's own table lists it.
    pub by_user: bool,
}

impl Default for Family {
    /// The family of a model that no table names.
    fn default() -> Self {
        Self {
            name: "other".to_owned(),
            encoding: Encoding::default(),
            window: None,
            context: None,
            cut: None,
            prices: Prices::default(),
            cache: CacheModel::default(),
            reasoning_back: ReasoningBack::None,
            reasoning_read: ReasoningRead::All,
            system_among: false,
            by_user: false,
        }
    }
}

impl Family {
    /// How many prompt tokens a model takes beside an answer of at most `output` tokens. `None` if
    /// that is not known. If the answer alone would fill the context, `output` is ignored: a server
    /// that takes such a request cuts the answer, and reserves nothing for it.
    #[must_use]
    pub fn prompt(&self, output: Option<u64>) -> Option<u32> {
        if self.window.is_some() {
            return self.window;
        }
        let context = self.context?;
        let whole = context - context / CONTEXT_MARGIN;
        let left = u64::from(whole).checked_sub(output.unwrap_or_default());
        let left = left.and_then(|left| u32::try_from(left).ok());
        Some(left.filter(|left| *left > 0).unwrap_or(whole))
    }

    /// Whether nothing is known about how much it takes.
    #[must_use]
    pub fn is_unmeasured(&self) -> bool {
        self.window.is_none() && self.context.is_none()
    }
}

/// The families of one table. One automaton holds all their patterns, because each request looks
/// one up.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyTable {
    pub(super) families: Vec<Family>,
    /// All patterns, in the order of the table.
    pub(super) globs: GlobSet,
    /// The index of the family of each pattern.
    pub(super) owners: Vec<usize>,
}

impl FamilyTable {
    pub(super) fn family(&self, names: [&str; 2]) -> Option<&Family> {
        let matches = names.into_iter().flat_map(|name| self.globs.matches(name));
        self.families.get(*self.owners.get(matches.min()?)?)
    }
}
