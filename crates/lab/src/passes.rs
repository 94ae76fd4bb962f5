//! The passes of a policy on a session, and what of them is told. Owns what counts as stopping above the
//! floor. Never decides when a pass is made.

use plimsoll_core::commit::Trigger;
use plimsoll_core::policy::Level;
use plimsoll_model::{ItemNo, Mark};

use super::outcome::Point;

/// Turns within which three passes above the floor are a run.
const RUN: usize = 10;

/// One pass as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The request before which it was made, from 1.
    pub request: usize,
    /// Why.
    pub trigger: Trigger,
    /// Tokens of the view before it.
    pub before: u64,
    /// Tokens of the view behind it.
    pub after: u64,
    /// The floor that it was to reach.
    pub floor: u64,
    /// Tokens that its last step took.
    pub last: u64,
    /// Whether it left the view above the ceiling.
    pub unmet: bool,
    /// Which marks it moved.
    pub moves: Vec<(ItemNo, Mark)>,
    /// Items and tokens that went, by level.
    pub gone: Vec<(Level, u32, i64)>,
}

/// What of a pass is told in a report, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassSizes {
    /// The request before which it was made, from 1.
    pub request: usize,
    /// Why.
    pub trigger: Trigger,
    /// What the client's conversation grew by since the pass before it.
    pub came_in: u64,
    /// The view before it.
    pub before: u64,
    /// The floor that it was to reach.
    pub floor: u64,
    /// The view behind it.
    pub after: u64,
    /// What its last step took.
    pub last: u64,
    /// Whether it left the view above the ceiling.
    pub unmet: bool,
}

/// The passes as they are told, of a session whose requests had these sizes.
pub(super) fn sizes(passes: &[Passed], series: &[Point]) -> Vec<PassSizes> {
    let mut before = 0;
    let size = |pass: &Passed| {
        let client = pass.request.checked_sub(1).and_then(|at| series.get(at));
        let client = client.map_or(before, |point| point.client);
        let came_in = client.saturating_sub(before);
        before = client;
        PassSizes {
            request: pass.request,
            trigger: pass.trigger,
            came_in,
            before: pass.before,
            floor: pass.floor,
            after: pass.after,
            last: pass.last,
            unmet: pass.unmet,
        }
    };
    passes.iter().map(size).collect()
}

/// How many passes stopped above the floor, and how many of them were the third of their kind within
/// ten turns, all three with the ceiling met.
pub(super) fn shallow(passes: &[Passed]) -> (u64, u64) {
    let above: Vec<&Passed> = passes.iter().filter(|one| one.after > one.floor).collect();
    let is_run = |three: &&[&Passed]| match three {
        [first, middle, last] => {
            last.request - first.request < RUN && ![first, middle, last].iter().any(|one| one.unmet)
        }
        _ => false,
    };
    let runs = above.windows(3).filter(is_run).count();
    (above.len() as u64, runs as u64)
}
