//! The pure core of a turn, which `pipeline` drives over a network and `replay` over recorded
//! sessions. Never waits and never reads a store or a clock: records, shapes and the time are
//! arguments.
//!
//! A turn is a [`state::TurnState`], made of a request, its path and the terms under which it is
//! served (`settings`, `content`, `profiles`, `split`, `overrides`; [`sizes`] reads what they hold). In order:
//!
//! 1. [`memo`] parses and counts each message once; [`text_results`] finds results that came as text.
//! 2. [`state::TurnState::inject`] adds the hidden tools and their guidance.
//! 3. [`state::TurnState::prepare`] makes one hop: the view of the conversation (`session`) and its size
//!    (`tokens`); a pass, if `commit` says that one is due, by which `policy` evicts; the bytes (`render`).
//!    `originals` reads the client's texts for passes and for texts of the proxy.
//! 4. [`hidden::settle`] runs the hidden calls of an answer (`intercept` says what they mean) and turns it
//!    into the hop that is recorded. `recall` brings back what was evicted, also from histories that the client
//!    has `dropped`, and `brought` what an operator asked for; `bounded` limits what is kept of a call, and `renamed` gives it another id where a client
//!    renames its own.
//!    [`needed`] judges the view by the answer. A request for a summary may go up whole (`compaction`).
//! 5. [`ending::record`] makes the turn's record of all hops. [`told`] finds what it says for those who
//!    look at it later.

mod asked;
mod bounded;
mod brought;
mod cache_settings;
mod call_spans;
mod classes;
mod compaction;
mod content;
mod dropped;
pub mod ending;
mod files;
mod filter;
pub mod hidden;
mod keep;
#[cfg(test)]
mod laws;
pub mod memo;
pub mod needed;
mod originals;
mod overrides;
mod pins;
mod profiles;
mod recall;
mod renamed;
mod rungs;
mod settings;
pub mod silent_cut;
pub mod sizes;
mod split;
pub mod state;
pub mod text_results;
pub mod told;

pub use asked::{Ask, Asks, NamedAsk};
pub use brought::{NoExchange, may_speak};
pub use cache_settings::{CacheSettings, Diagnose, SetBreakpoints, Uncached};
pub use classes::{Classes, ToolClasses};
pub use compaction::{CompactionSettings, CompactionView};
pub use content::{ContentSettings, StoreContent};
pub use dropped::{Dropped, DroppedItem};
pub use filter::{FilterRole, RungSettings, RungTable};
pub use keep::{KeepErrors, KeepSettings};
pub use overrides::{AskedBudget, MIN_CEILING, Mode, Overrides};
pub use pins::{PinAsk, PinReport};
pub use profiles::{Envelope, Occasion, PAPER_PROFILE, Profile, Profiles};
pub use settings::{
    Budget, DelimiterSettings, Guidance, Offer, ProtectRecent, RecallSettings, Settings, Terms,
    TermsError, Thoughts, Unmet,
};
pub use split::{Joins, Split};
