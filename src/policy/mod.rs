//! What may be evicted and in which order: pure functions from a view to moves of marks. Policies
//! never import each other, never decide when a pass happens (`commit` does), and reach a view
//! only through [`Plan::check`].

mod admit;
mod ask;
mod asked;
mod baselines;
mod cut;
mod cwl;
mod fresh;
mod ladder;
mod last_resort;
mod levels;
mod lexicon;
mod loop_guard;
mod merge;
mod open_episode;
mod paper;
mod partitions;
mod pass;
mod plan;
mod protect;
mod repeat;
mod thoughts;
mod work;
mod zone;

pub use ask::{AdmitSettings, EvictionSettings, Level, Order, Policy, PolicyAsk, Target, Text};
pub use asked::{AskedItem, evict_asked};
pub use cut::next_cut;
pub use fresh::brings_results;
pub use ladder::{Ladder, LadderError, Rung, When};
pub use loop_guard::{Repetition, newest_repetition};
pub use partitions::{Partition, PartitionUse, Partitions, partitioned};
pub use pass::{Pinned, Proposal};
pub use plan::{Move, Plan, PlanError};
pub use protect::{ItemSet, Protection};
pub use work::{Freed, LastStep};
pub use zone::Zone;

/// Proposes what a policy would do with a view: a pass, or an edit of new results.
#[must_use]
pub fn propose(policy: Policy, ask: &PolicyAsk<'_>) -> Proposal {
    match policy {
        Policy::Repeat => repeat::propose(ask),
        Policy::Admit => admit::propose(ask),
        Policy::LoopGuard => loop_guard::propose(ask),
        Policy::Cwl => match ask.config.order {
            Order::Levels => cwl::propose(ask),
            Order::Paper => paper::propose(ask),
        },
        Policy::CwlPaper => paper::propose(ask),
        Policy::None
        | Policy::Keep
        | Policy::Recency
        | Policy::OldestTurn
        | Policy::ToolPrune
        | Policy::ToolMaskPrune
        | Policy::Hybrid
        | Policy::ThreeTier
        | Policy::KeepRecent
        | Policy::Compaction => baselines::propose(policy, ask),
    }
}
