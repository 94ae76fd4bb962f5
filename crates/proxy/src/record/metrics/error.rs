//! Why the metrics could not be set up. Owns the words. Never registers one.

/// Why the metrics could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// Two metrics share a name, or a name or label is malformed. This module has a mistake.
    #[error("the metrics could not be registered; report this as a bug")]
    Register(#[from] prometheus::Error),
    /// An entry in the list of models is neither a name nor a glob.
    #[error("{glob} is neither the name of a model nor a glob; correct it in metrics.models")]
    Model {
        /// The entry.
        glob: String,
        /// What is wrong with it.
        source: globset::Error,
    },
}
