//! A report as JSON: `{"policies": […], "sessions": […]}`, one object for each policy with the
//! same figures in both. Owns the names of the figures; never computes one.

use serde_json::{Value, json};

use super::outcome::{Outcome, Report, SessionOutcome};
use super::trace::Tools;
use super::{Options, Share};
use crate::commit::Floor;

/// The whole report.
#[must_use]
pub fn report(report: &Report, options: &Options) -> Value {
    let policies: Vec<Value> = report
        .policies()
        .iter()
        .map(|(name, outcome)| policy(name, outcome))
        .collect();
    let sessions: Vec<Value> = report.sessions.iter().map(session).collect();
    json!({
        "policies": policies,
        "sessions": sessions,
        "settings": settings(options),
        "sessions_left_out": report.short,
    })
}

/// A floor as it is configured.
#[must_use]
pub fn floor(floor: Floor) -> Value {
    match floor {
        Floor::Auto => json!("auto"),
        Floor::Ceiling => json!("ceiling"),
        Floor::Fraction(fraction) => json!(fraction),
    }
}

fn settings(options: &Options) -> Value {
    json!({
        "ceilings": options.ceilings,
        "floor": floor(options.floor),
        "annotate": options.annotate.name(),
        "min_tokens": options.min_tokens,
        "prices": options.pricing.name,
    })
}

fn session(session: &SessionOutcome) -> Value {
    let policies: Vec<Value> = session
        .policies
        .iter()
        .map(|played| policy(&played.policy, &played.outcome()))
        .collect();
    let tools = match session.tools {
        Tools::Recorded => "recorded",
        Tools::Derived => "derived",
        Tools::None => "none",
    };
    json!({
        "name": session.name,
        "tokens": session.tokens,
        "tools": tools,
        "policies": policies,
    })
}

/// The figures of one policy. `cost` is in units of one plain input token, `usd` the same in dollars
/// or null where a price is not known, times in microseconds,
/// shares in 0..=1; a share of nothing is 1 where something is kept, else 0. The shares' own
/// counts and the interval stand beside them.
#[must_use]
pub fn policy(name: &str, outcome: &Outcome) -> Value {
    let (low, high) = outcome.no_impact().wilson();
    json!({
        "name": name,
        "requests": outcome.requests,
        "tokens_sent": outcome.sent,
        "peak": outcome.peak,
        "over_ceiling": outcome.over,
        "prune_rate": outcome.prune_rate(),
        "passes": outcome.passes,
        "passes_above_floor": outcome.shallow,
        "runs_above_floor": outcome.runs,
        "prefix_breaks": outcome.breaks,
        "cached_share": outcome.cached_share(),
        "cost": outcome.cost,
        "usd": outcome.dollars(),
        "retention_visible": outcome.visible.kept(),
        "retention_recoverable": outcome.recoverable.kept(),
        "retention_lines": outcome.lines.kept(),
        "retention_passages": outcome.passages.kept(),
        "no_impact_rate": outcome.no_impact().kept(),
        "refetches": outcome.refetches,
        "us_per_request": outcome.micros(),
        "extra_requests": outcome.extra,
        "no_impact_low": low,
        "no_impact_high": high,
        "anchors": counts(outcome.visible),
        "anchors_recoverable": counts(outcome.recoverable),
        "lines": counts(outcome.lines),
        "thoughts": {"ended": outcome.thoughts.part, "thought": outcome.thoughts.whole},
    })
}

fn counts(share: Share) -> Value {
    json!({"kept": share.part, "needed": share.whole})
}
