//! Why a table of models is refused. Owns the words. Never reads a table.

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
