//! What is known about each family of models: its encoding, window, prices and prompt cache.
//!
//! Owns the table, its look-up by the name of a model, and the reading of context-length errors.
//! Never keeps state and never guesses a window: what is not known is `None`. The data stands in
//! `config/models.toml`. A user's table of the same form is put over it.

mod overflow;
mod raw;

use std::sync::LazyLock;
use std::time::Duration;

use globset::GlobSet;

use super::{Encoding, Prices};
pub use overflow::ContextLengthError;
use overflow::Overflow;

static BUILTIN: LazyLock<Models> = LazyLock::new(|| {
    // A test holds that the table parses. If it did not, every model would be unknown.
    Models::parse(include_str!("../../../config/models.toml")).unwrap_or_default()
});

/// One part in this many of a context is left free if answer and prompt share it. Before the server
/// has reported anything, the count may be some per cent short, and the server's own template adds
/// to it.
const CONTEXT_MARGIN: u32 = 16;

/// Why a table of models was refused.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// It is not TOML of the right form. The text names the line.
    #[error("models: {0}")]
    Form(#[from] toml::de::Error),
    /// A pattern for names of models can't be read.
    #[error("models: family `{family}`: correct the pattern: {source}")]
    Glob {
        /// The family to which the pattern belongs.
        family: String,
        /// What is wrong with the pattern.
        source: globset::Error,
    },
    /// A family names a cache that the table does not define.
    #[error("models: family `{family}`: define `[caches.{cache}]` or use one that is defined")]
    Cache {
        /// The family.
        family: String,
        /// The name of the cache.
        cache: String,
    },
    /// A family says twice how much it takes.
    #[error("models: family `{0}`: give `window` or `context`, not both")]
    Both(String),
    /// A number is out of its range.
    #[error("models: family `{family}`: {what} must be a positive number")]
    Number {
        /// The family.
        family: String,
        /// The field.
        what: &'static str,
    },
    /// A pattern for context-length errors is empty, starts with a placeholder, or has two side by
    /// side.
    #[error("models: context-length pattern `{0}`: put text before each placeholder")]
    Pattern(String),
}

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
    /// What its tokens cost.
    pub prices: Prices,
    /// How its provider caches prompts.
    pub cache: CacheModel,
    /// Whether it must get its reasoning back with the calls that followed from it.
    pub reasoning_back: bool,
}

impl Default for Family {
    /// The family of a model that no table names.
    fn default() -> Self {
        Self {
            name: "other".to_owned(),
            encoding: Encoding::default(),
            window: None,
            context: None,
            prices: Prices::default(),
            cache: CacheModel::default(),
            reasoning_back: false,
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
struct FamilyTable {
    families: Vec<Family>,
    /// All patterns, in the order of the table.
    globs: GlobSet,
    /// The index of the family of each pattern.
    owners: Vec<usize>,
}

impl FamilyTable {
    fn family(&self, names: [&str; 2]) -> Option<&Family> {
        let matches = names.into_iter().flat_map(|name| self.globs.matches(name));
        self.families.get(*self.owners.get(matches.min()?)?)
    }
}

/// The tables of model families, with the user's before the built-in one.
#[derive(Clone, Debug, Default)]
pub struct Models {
    tables: Vec<FamilyTable>,
    unknown: Family,
    overflow: Overflow,
}

impl Models {
    /// The table that is part of the program.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Reads a table of the form of `config/models.toml`.
    ///
    /// # Errors
    /// [`ModelsError`] if the text is not such a table.
    pub fn parse(toml: &str) -> Result<Self, ModelsError> {
        raw::parse(toml)
    }

    /// This table with the user's rows and error patterns before its own, so that those win.
    #[must_use]
    pub fn overlay(mut self, user: Self) -> Self {
        let mut tables = user.tables;
        tables.append(&mut self.tables);
        Self {
            tables,
            unknown: self.unknown,
            overflow: user.overflow.before(self.overflow),
        }
    }

    /// The family of a model: the first row with a pattern that matches the name, or the name
    /// without its `provider/` prefixes. Case does not count. If there is none, a family about
    /// which nothing is known.
    #[must_use]
    pub fn family(&self, model: &str) -> &Family {
        let model = model.to_lowercase();
        let model = model.strip_prefix("ft:").unwrap_or(&model);
        let bare = model.rsplit('/').next().unwrap_or(model);
        let known = self
            .tables
            .iter()
            .find_map(|table| table.family([bare, model]));
        known.unwrap_or(&self.unknown)
    }

    /// Whether an upstream's answer says that the prompt is too long for the model, judged by its
    /// error code, or else by the table's patterns for messages. `None` for every other answer.
    #[must_use]
    pub fn context_length_error(&self, status: u16, body: &str) -> Option<ContextLengthError> {
        self.overflow.read(status, body)
    }
}

#[cfg(test)]
mod tests;
