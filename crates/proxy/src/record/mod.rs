//! What the proxy says about a turn: metrics, one line in the log, and the response headers.
//!
//! Every stage returns facts, and the pipeline gathers them in one [`TurnReport`]. Owns how these
//! facts become numbers, lines and headers. Never decides anything, never reads a message, and never
//! sees a credential, because a `TurnReport` has no place for content or keys.

mod headers;
mod labels;
mod log;
mod metrics;
#[cfg(test)]
mod tests;
mod turn_report;

pub use headers::{FAIL_OPEN, response_headers};
pub use labels::{
    AbortPhase, AbortSide, AcceptError, Budget, CallRole, ConnectionCut, FailedStage, Label,
    LedgerSide, LedgerTokens, Phase, Projection, RetryReason, Route, SavedPart, Serves, StoreOp,
    StoreTrip, Unrecorded, provider_name, serves,
};
pub use log::log_turn;
pub use metrics::{InFlight, Metrics, MetricsError, log_lines_lost};
pub use turn_report::{
    Abort, Context, Evicted, HopReport, Overhead, PassReport, TurnReport, lossy,
};

/// Reports a finished turn: to the metrics first, and then to the log.
pub fn finish(metrics: &Metrics, turn: &TurnReport) {
    metrics.observe(turn);
    log_turn(turn);
}
