//! The vocabulary that all crates share: ids, items, marks, raw JSON, usage and turn records. Does no IO, and stands on
//! no other crate of the project.

pub mod cache_miss;
pub mod caches;
mod choice;
mod edits;
mod erased;
mod facts;
mod failure;
mod globs;
mod guide;
pub mod hours;
mod ids;
mod item;
mod labels;
mod marks;
mod needed;
mod numbers;
mod pins;
pub mod raw;
mod record;
pub mod room;
mod rope;
mod session_row;
mod strings;
mod thoughts;
mod turn_facts;
mod turns;
mod usage;
pub mod weight;
mod words;

pub use cache_miss::{CacheFacts, MissCause};
pub use caches::CacheName;
pub use choice::{Arm, Choice, SplitPlace};
pub use edits::{EditKind, Edits};
pub use erased::Erased;
pub use facts::{DelimiterAction, GuideReason, RecallCall, RecallOutcome};
pub use failure::is_failure;
pub use globs::{GlobError, Globs};
pub use guide::{Given, Guide};
pub use hours::HourSums;
pub use ids::{CallId, Digest, Head, RecordId, Scope, TenantId, blob_id, dated_id, is_id_of};
pub use item::{
    CALL_TOKENS, CallShape, Handed, ItemKind, ItemNo, MESSAGE_TOKENS, Role, Shape, ToolClass,
};
pub use labels::LabelSet;
pub use marks::{Kept, Mark, Marks, ResultShape, StoredMark};
pub use needed::{Need, NeededCounts};
pub use numbers::{grouped, share_tokens};
pub use pins::{MOST_PINS, PinMove, PinOutcome, Pins};
pub use record::{
    BoundTo, Content, Effect, ExplicitKind, HiddenCall, HiddenTool, Original, Parent, Said,
    Snapshot, SnapshotEntry, StoredHop, TurnRecord,
};
pub use rope::Rope;
pub use session_row::{RowSizes, SessionRow};
pub use strings::{LINE, lines, strings, tells_place};
pub use thoughts::{ReasoningBack, ReasoningRead, ThoughtRules};
pub use turn_facts::{Held, ItemSize, PassFacts, TurnAccount, TurnFacts, TurnSums};
pub use turns::Turns;
pub use usage::Usage;
pub use words::{Hashed, Word, Words, distinct, hash};

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::path::Path;

    /// Holds a stored value to the bytes of its fixture, both ways.
    pub(super) fn is_fixture<T>(name: &str, value: &T)
    where
        T: Debug + PartialEq + serde::Serialize + serde::de::DeserializeOwned,
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/records");
        let path = path.join(format!("{name}.bin"));
        let written = rmp_serde::to_vec_named(value).unwrap();
        let fixture = std::fs::read(path).unwrap();
        assert_eq!(written, fixture, "{name}");
        assert_eq!(
            rmp_serde::from_slice::<T>(&fixture).unwrap(),
            *value,
            "{name}"
        );
    }
}
