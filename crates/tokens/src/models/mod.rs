//! What is known about each family of models: its encoding, window, prices and prompt cache.
//!
//! Owns the table, its look-up by the name of a model, and the reading of context-length errors.
//! Never keeps state and never guesses a window: what is not known is `None`. The data stands in
//! `config/models.toml`. A user's table of the same form is put over it.

mod error;
mod family;
mod overflow;
mod raw;

use std::sync::LazyLock;

pub use error::ModelsError;
use family::FamilyTable;
pub use family::{CacheModel, Family};
pub use overflow::ContextLengthError;
use overflow::Overflow;

static BUILTIN: LazyLock<Models> = LazyLock::new(|| {
    // A test holds that the table parses. If it did not, every model would be unknown.
    Models::parse(include_str!("../../../../config/models.toml")).unwrap_or_default()
});

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
        let (table, overflow) = raw::parse(toml)?;
        Ok(Self {
            tables: vec![table],
            unknown: Family::default(),
            overflow,
        })
    }

    /// This table with the user's rows and error patterns before its own, so that those win.
    #[must_use]
    pub fn overlay(mut self, user: Self) -> Self {
        let mut tables = user.tables;
        let families = tables.iter_mut().flat_map(|table| &mut table.families);
        families.for_each(|family| family.by_user = true);
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
