//! What is told about a finished turn: metrics, one log line, and the response headers.
//!
//! Every stage returns facts; the pipeline gathers them in one [`Turn`], and only this module
//! makes numbers and lines of them. It never decides anything, never reads a message, and never
//! sees a credential: a `Turn` has no place for content or keys.

mod headers;
mod labels;
mod log;
mod metrics;
#[cfg(test)]
mod tests;
mod turn;

pub use headers::{FAIL_OPEN, Zone, response_headers};
pub use labels::{
    AbortPhase, AcceptError, Budget, ConnectionCut, CostKind, Label, LedgerSide, LedgerTokens,
    Phase, Projection, RetryReason, Route, SavedPart, Side, Stage, StoreOp, provider_name,
};
pub use log::log_turn;
pub use metrics::{InFlight, Metrics, MetricsError, log_lines_lost};
pub use turn::{Abort, Context, Evicted, Hop, Overhead, Pass, Turn, lossy};

/// Tells everybody who wants to know that a turn is finished: the metrics first, then the log.
pub fn finish(metrics: &Metrics, turn: &Turn) {
    metrics.observe(turn);
    log_turn(turn);
}
