//! What may be evicted and in which order: pure functions from a view to moves of marks. `order` has the order of
//! each policy as a table, and `run` takes its steps. Steps never import each other, never decide when a pass
//! happens (`commit` does), and reach a view only through [`Plan::check`].

mod admit;
mod ask;
mod asked;
mod baselines;
mod cut;
mod episode_steps;
mod fresh;
mod ladder;
mod last_resort;
mod levels;
mod lexicon;
mod loop_guard;
mod merge;
mod order;
mod paper;
mod partitions;
mod pass;
mod plan;
mod protect;
mod repeat;
mod run;
mod thoughts;
mod work;
mod zone;

pub use ask::{AdmitSettings, EvictionSettings, Level, Order, Policy, PolicyAsk, Target, Text};
pub use asked::evict_asked;
pub use cut::next_cut;
pub use fresh::brings_results;
pub use ladder::{Ladder, LadderError, Rung, When};
pub use loop_guard::{Repetition, newest_repetition};
pub use partitions::{Partition, PartitionUse, Partitions, partitioned};
pub use pass::{Pinned, Proposal};
pub use plan::{Move, Plan, PlanError};
pub use protect::{ItemSet, Protection, Rules};
pub use repeat::{SAID_UNCHANGED, referred};
pub use work::{Freed, LastStep};
pub use zone::Zone;

/// Proposes what a policy would do with a view: a pass, or an edit of new results.
#[must_use]
pub fn propose(policy: Policy, ask: &PolicyAsk<'_>) -> Proposal {
    match policy {
        Policy::Repeat => repeat::propose(ask),
        Policy::Admit => admit::propose(ask),
        Policy::LoopGuard => loop_guard::propose(ask),
        Policy::Cwl if ask.config.order == Order::Paper => run::propose(Policy::CwlPaper, ask),
        Policy::Cwl
        | Policy::CwlPaper
        | Policy::None
        | Policy::Keep
        | Policy::Recency
        | Policy::OldestTurn
        | Policy::ToolPrune
        | Policy::ToolMaskPrune
        | Policy::Hybrid
        | Policy::ThreeTier
        | Policy::KeepRecent
        | Policy::Compaction => run::propose(policy, ask),
    }
}
