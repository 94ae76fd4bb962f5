//! What may be evicted and in which order: pure functions from a view to moves of marks. Policies
//! never import each other, never decide when a pass happens (`commit` does), and reach a view
//! only through [`Plan::check`].

pub mod cwl;
mod open;
mod plan;
mod protect;
mod work;

pub use plan::{Move, Plan, PlanError};
pub use protect::Protection;

/// Settings of the eviction order.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Raw tokens at the tail that no pass touches while anything else can go.
    pub protect_recent: u32,
    /// The paper's rule: nothing inside an open episode ever goes.
    pub strict_active: bool,
    /// Whether reasoning stays with its calls because the model family demands it back.
    pub keep_reasoning: bool,
    /// Result size in tokens above which a tool that no list names counts as bulk.
    pub bulk_above: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protect_recent: 8000,
            strict_active: false,
            keep_reasoning: false,
            bulk_above: 2000,
        }
    }
}

/// The level at which something went (paper 000 §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Reasoning traces of an expl.
    Reasoning,
    /// Calls and results of search and listing tools.
    Bulk,
    /// All other calls and results.
    Intermediate,
    /// The whole episode.
    Episode,
    /// Calls and results inside an episode that never ends.
    Open,
    /// Tombstones merged into the ledger.
    Ledger,
}

impl Level {
    /// All levels in order.
    pub const ALL: [Self; 6] = [
        Self::Reasoning,
        Self::Bulk,
        Self::Intermediate,
        Self::Episode,
        Self::Open,
        Self::Ledger,
    ];

    /// The level's name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning",
            Self::Bulk => "bulk",
            Self::Intermediate => "intermediate",
            Self::Episode => "episode",
            Self::Open => "open",
            Self::Ledger => "ledger",
        }
    }
}
