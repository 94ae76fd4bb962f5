//! The pure core of a turn: what `pipeline` drives over a network and `replay` over recorded sessions.
//! Never waits, never reads a store or a clock: records, shapes and the time are given.
//!
//! A turn is a [`hop::State`], made of a request, its path and the terms under which it is served
//! (`settings`, `overrides`). In order:
//!
//! 1. [`known`] parses and counts each message once; `texts` finds results that came as text.
//! 2. [`hop::State::inject`] puts in the hidden tools and their guidance.
//! 3. [`hop::State::prepare`] makes one hop: the transcript, its size, a pass where one is due, the
//!    bytes. What a pass or a text of ours needs of the originals, `original` reads.
//! 4. [`hidden::settle`] turns an answer into the hop that is recorded, its hidden calls run: `recall`
//!    brings back what was evicted, and `kept` bounds what is kept.
//! 5. [`ending::record`] makes the turn's record of all hops.

mod classes;
pub mod ending;
pub mod hidden;
pub mod hop;
mod kept;
pub mod known;
#[cfg(test)]
mod laws;
mod original;
mod overrides;
mod recall;
mod settings;
pub mod texts;

pub use classes::{Classes, GlobError, ToolClasses};
pub use overrides::{AskedBudget, MIN_CEILING, Mode, Overrides, tokens};
pub use settings::{
    Budget, Cache, Delimiter, Guidance, Offer, PAPER_PROFILE, ProtectRecent, Recall,
    SetBreakpoints, Settings, StoreContent, Terms, TermsError, Unmet,
};
