//! A report as JSON: `{"policies": […], "sessions": […]}`, one object for each policy with the
//! same figures in both. Owns the names of the figures; never computes one.

use plimsoll_core::commit::Floor;
use plimsoll_model::ReasoningBack;
use serde_json::{Value, json};

use super::outcome::{Outcome, Played, PolicyRun, Report, SessionOutcome};
use super::trace::Tools;
use super::{Options, Share};

/// The whole report.
#[must_use]
pub fn report(report: &Report, options: &Options) -> Value {
    let policies: Vec<Value> = report
        .policies()
        .iter()
        .map(|(name, outcome)| policy(name, outcome))
        .collect();
    let think = options.think.is_some();
    let one = |one| session(one, think);
    let sessions: Vec<Value> = report.sessions.iter().map(one).collect();
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
        Floor::Ceiling => json!("budget"),
        Floor::Fraction(fraction) => json!(fraction),
    }
}

fn settings(options: &Options) -> Value {
    let mut settings = json!({
        "budgets": options.ceilings,
        "floor": floor(options.floor),
        "annotate": options.annotate.name(),
        "min_tokens": options.min_tokens,
        "prices": options.pricing.name,
    });
    if let (Some(think), Some(settings)) = (options.think, settings.as_object_mut()) {
        let think = json!({"tokens": think.tokens, "spread": think.spread});
        settings.insert("think".to_owned(), think);
        let rule = options.pricing.family.reasoning_back;
        let mut words = ReasoningBack::WORDS.iter();
        let word = words.find(|(_, one)| *one == rule).map(|(word, _)| word);
        settings.insert("family".to_owned(), json!(word));
    }
    settings
}

/// A session, with its single plays where answers were given thoughts.
fn session(session: &SessionOutcome, plays: bool) -> Value {
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
    let mut told = json!({
        "name": session.name,
        "tokens": session.tokens,
        "tools": tools,
        "policies": policies,
    });
    if let (true, Some(told)) = (plays, told.as_object_mut()) {
        let of = |played: &Played| {
            played
                .runs
                .iter()
                .map(|run| play(&played.policy, run))
                .collect::<Vec<_>>()
        };
        let plays: Vec<Value> = session.policies.iter().flat_map(of).collect();
        told.insert("plays".to_owned(), json!(plays));
    }
    told
}

/// One policy at one ceiling on one session. Sizes are in tokens. `kept` is what of a request no pass may take;
/// `came_in` is what the client's conversation grew by up to a pass since the one before.
fn play(policy: &str, run: &PolicyRun) -> Value {
    let outcome = &run.outcome;
    let over = run.over.iter().map(|over| {
        json!({
            "request": over.request,
            "sent": over.sent,
            "kept": over.kept,
            "kept_over": over.kept > u64::from(run.ceiling),
            "thoughts": over.thoughts,
        })
    });
    let passes = run.passes.iter().map(|pass| {
        json!({
            "request": pass.request,
            "trigger": pass.trigger.name(),
            "came_in": pass.came_in,
            "before": pass.before,
            "floor": pass.floor,
            "after": pass.after,
            "last": pass.last,
            "unmet": pass.unmet,
        })
    });
    json!({
        "policy": policy,
        "budget": run.ceiling,
        "requests": outcome.requests,
        "extra_requests": outcome.extra,
        "came_in": run.series.iter().map(|point| point.client).max(),
        "tokens_sent": outcome.sent,
        "mean_view": outcome.mean_view(),
        "cost": outcome.cost,
        "cost_of_thoughts": outcome.thinking,
        "anchors": counts(outcome.visible),
        "lines": counts(outcome.lines),
        "passages": counts(outcome.passages),
        "thoughts": {"ended": outcome.thoughts.part, "thought": outcome.thoughts.whole},
        "over": over.collect::<Vec<_>>(),
        "passes": passes.collect::<Vec<_>>(),
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
        "over_budget": outcome.over,
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
