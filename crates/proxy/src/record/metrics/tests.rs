//! The names, labels and buckets that dashboards and alerts rely on, as data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use http::Method;
use plimsoll_core::commit::Trigger;
use plimsoll_core::intercept::delimiter::{self, DelimiterCall};
use plimsoll_core::policy::{Level, Policy};
use plimsoll_model::{
    DelimiterAction, EditKind, GuideReason, MissCause, RecallCall, RecallOutcome, SplitPlace,
};
use plimsoll_store::Health;
use plimsoll_tokens::ledger::Account;
use plimsoll_wire::request::Unmanaged;
use proptest::prelude::*;

use super::buckets::*;
use super::*;
use crate::record::tests::full_turn;
use crate::record::{
    Abort, AbortPhase, AbortSide, AcceptError, ConnectionCut, Evicted, FailedStage, Overhead,
    PassReport, Phase, Projection, RetryReason, StoreOp, Unrecorded,
};

mod dashboards;

/// A row of the page of metrics.
pub(super) struct Documented {
    /// Without the prefix.
    pub name: String,
    pub kind: String,
    pub labels: Vec<String>,
}

const PAGE_HEAD: &str = "# Metrics

<!-- Written by a test from crates/proxy/src/record/metrics: `PLIMSOLL_WRITE_DOCS=1 cargo test -p plimsoll-proxy metrics`. -->

All names begin with `plimsoll_`. What to look at, and what is good, stands in [`runbook.md`](runbook.md#what-to-watch). On Linux those of the
process stand beside them under the names that all programs use (`process_resident_memory_bytes` and six more). An open label has no
list of words that is known beforehand. The label `arm` is there while sessions are [split](start.md#which-of-two-settings-is-better).

| metric | type | labels | what it counts |
|---|---|---|---|
";

fn page_path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run/metrics.md")
}

/// The page as the table of metrics makes it.
fn page() -> String {
    let metrics = split();
    // Open labels have their first series with the first turn.
    metrics.observe(&full_turn());
    let mut page = PAGE_HEAD.to_owned();
    for family in metrics.registry.gather() {
        let Some(name) = family.name().strip_prefix("plimsoll_") else {
            continue;
        };
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        let first = &family.get_metric()[0];
        let labels = first
            .get_label()
            .iter()
            .map(|label| format!("`{}`", label.name()));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} |", family.help());
    }
    page
}

/// What the page says.
pub(super) fn documented() -> Vec<Documented> {
    let page = std::fs::read_to_string(page_path()).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let labels = cells[3].split(", ").filter(|label| !label.is_empty());
        Documented {
            name: cells[1].to_owned(),
            kind: cells[2].to_owned(),
            labels: labels
                .map(|label| label.trim_matches('`').to_owned())
                .collect(),
        }
    })
    .collect()
}

fn metrics() -> Metrics {
    Metrics::new(&["gpt-5", "claude-opus-5"], None).unwrap()
}

/// The metrics while a profile is tried.
fn split() -> Metrics {
    Metrics::new(&["gpt-5", "claude-opus-5"], Some("coding")).unwrap()
}

#[test]
fn a_turn_counts_in_the_arm_of_its_session_alone() {
    let (plain, split) = (metrics(), split());
    let drawn = |profile: &str, tried| {
        let profile = profile.to_owned();
        Some(SplitPlace { profile, tried })
    };
    // The second to last was drawn for another profile, before.
    let turns = [
        drawn("coding", true),
        drawn("coding", false),
        drawn("review", true),
        None,
    ];
    for split_of in &turns {
        let mut turn = full_turn();
        turn.split.clone_from(split_of);
        plain.observe(&turn);
        split.observe(&turn);
    }
    let (plain, split) = (samples(&plain), samples(&split));
    let ours = plain
        .iter()
        .filter(|(name, _)| name.starts_with("plimsoll_"));
    for (name, value) in ours {
        let of = |arm: &str| {
            let label = format!("arm=\"{arm}\"");
            let armed = match name.split_once('{') {
                Some((name, labels)) => format!("{name}{{{label},{labels}"),
                None => format!("{name}{{{label}}}"),
            };
            split.get(&armed).copied()
        };
        match ["tried", "base", "none"].map(of) {
            [Some(tried), Some(base), Some(none)] => {
                let off = [tried - value / 4.0, base - value / 4.0, none - value / 2.0];
                let most = 1e-9 * value.abs();
                assert!(off.iter().all(|off| off.abs() <= most), "{name}: {off:?}");
            }
            [None, None, None] => assert_eq!(split.get(name), Some(value), "{name}"),
            some => panic!("{name}: {some:?}"),
        }
    }
    assert!(split.len() > plain.len());
}

/// Samples by their name and labels as written; the labels' order is the encoder's.
fn samples(metrics: &Metrics) -> BTreeMap<String, f64> {
    let text = metrics.render().unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn the_page_of_metrics_says_what_there_is() {
    let page = page();
    if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
        std::fs::write(page_path(), &page).unwrap();
    }
    let written = std::fs::read_to_string(page_path()).unwrap_or_default();
    assert_eq!(
        written, page,
        "docs/run/metrics.md is not of this table; its second line says how to write it"
    );
}

#[test]
fn a_turn_moves_each_metric_by_its_facts() {
    let metrics = metrics();
    metrics.observe(&full_turn());
    let samples = samples(&metrics);
    for (sample, expect) in [
        (
            r#"http_requests_total{method="POST",route="chat_completions",status="200"}"#,
            1.0,
        ),
        ("http_request_duration_seconds_sum", 2.5),
        ("time_to_first_token_seconds_sum", 0.4),
        (
            r#"upstream_requests_total{model="gpt-5",provider="openai",status="200"}"#,
            1.0,
        ),
        (
            r#"upstream_requests_total{model="gpt-5",provider="openai",status="none"}"#,
            1.0,
        ),
        ("upstream_duration_seconds_count", 2.0),
        (r#"overhead_seconds_count{phase="parse"}"#, 1.0),
        (r#"overhead_seconds_sum{phase="total"}"#, 0.0007),
        (r#"retries_total{reason="connect"}"#, 1.0),
        (r#"stream_aborts_total{phase="body",side="client"}"#, 1.0),
        (r#"tokens_total{model="gpt-5",type="input"}"#, 1_500.0),
        (r#"tokens_total{model="gpt-5",type="output"}"#, 75.0),
        (r#"tokens_total{model="gpt-5",type="cache_read"}"#, 600.0),
        (r#"tokens_total{model="gpt-5",type="cache_write"}"#, 300.0),
        (r#"tokens_total{model="gpt-5",type="reasoning"}"#, 25.0),
        (r#"context_tokens_sum{stage="in"}"#, 100_000.0),
        (r#"context_tokens_sum{stage="out"}"#, 70_000.0),
        ("context_budget_ratio_count", 1.0),
        ("context_budget_ratio_sum", 0.875),
        ("token_estimate_ratio_count", 1.0),
        ("token_estimate_ratio_sum", 1.25),
        (r#"delimiter_calls_total{action="start",outcome="ok"}"#, 1.0),
        ("hidden_hops_sum", 1.0),
        (r#"passes_total{trigger="budget"}"#, 1.0),
        (r#"passes_above_floor_total{trigger="budget"}"#, 1.0),
        (r#"passes_declined_total{trigger="cold"}"#, 1.0),
        (
            r#"evicted_tokens_total{level="bulk",policy="cwl"}"#,
            20_000.0,
        ),
        (r#"evicted_items_total{level="episode",policy="cwl"}"#, 4.0),
        ("prefix_breaks_total", 1.0),
        ("prologue_changes_total", 1.0),
        (r#"context_part_tokens_sum{part="results"}"#, 40_000.0),
        (r#"context_part_tokens_sum{part="own"}"#, 0.0),
        (r#"context_tool_tokens_sum{class="read"}"#, 40_000.0),
        (r#"context_tool_tokens_count{class="shell"}"#, 1.0),
        (r#"context_part_tokens_count{part="own"}"#, 1.0),
        ("cache_hit_ratio_sum", 0.4),
        (r#"cost_usd_total{kind="input"}"#, 0.001_2),
        (r#"cost_usd_total{kind="output"}"#, 0.000_75),
        (r#"cost_usd_total{kind="cache_read"}"#, 0.000_12),
        (r#"ledger_tokens_total{side="sent",type="input"}"#, 1_500.0),
        (
            r#"ledger_tokens_total{side="client",type="cache_read"}"#,
            8_000.0,
        ),
        (r#"ledger_units_total{side="sent"}"#, 1_410.0),
        (r#"ledger_usd_total{side="client"}"#, 0.004_4),
        (r#"saved_units{part="net"}"#, 790.0),
        (r#"saved_usd{part="evicted"}"#, 0.002),
        (r#"saved_usd{part="net"}"#, 0.001_58),
        ("budget_unmet_total", 1.0),
        (r#"recall_total{outcome="ok"}"#, 1.0),
        ("recalled_tokens_total", 900.0),
        ("refetch_total", 3.0),
        (r#"needed_total{how="in_view"}"#, 11.0),
        (r#"needed_total{how="missed"}"#, 3.0),
        (r#"needed_total{how="read_again"}"#, 2.0),
        (r#"needed_total{how="asked_again"}"#, 1.0),
        (r#"needed_total{how="recalled"}"#, 4.0),
        ("pass_strings_kept_ratio_sum", 0.75),
        ("pass_lines_kept_ratio_count", 1.0),
        (r#"fail_open_total{stage="store"}"#, 1.0),
        (r#"unmanaged_total{why="conversation"}"#, 1.0),
        (r#"unrecorded_total{why="late"}"#, 1.0),
    ] {
        let found = samples.get(&format!("plimsoll_{sample}"));
        let close = found.is_some_and(|found| (found - expect).abs() < 1e-9);
        assert!(close, "{sample}: {found:?}, not {expect}");
    }
}

/// Turns that have one of everything that a label of a closed set can be.
fn all_kinds() -> Vec<TurnReport> {
    let mut turns = Vec::new();
    let mut with = |change: &dyn Fn(&mut TurnReport)| {
        let mut turn = full_turn();
        change(&mut turn);
        turns.push(turn);
    };
    for stage in FailedStage::ALL {
        with(&|turn| turn.fail_open = Some(stage));
    }
    for why in Unmanaged::ALL {
        with(&|turn| turn.unmanaged = Some(why));
    }
    for why in Unrecorded::ALL {
        with(&|turn| turn.unrecorded = Some(why));
    }
    with(&|turn| turn.retries = RetryReason::ALL.to_vec());
    for reason in GuideReason::ALL {
        with(&|turn| turn.guided = Some(reason));
    }
    with(&|turn| turn.learned = EditKind::ALL.into_iter().collect());
    with(&|turn| turn.was_cut = true);
    for projection in Projection::ALL {
        with(&|turn| {
            (turn.projection, turn.projected) = (Some(projection), turn.ledger);
        });
    }
    let unpriced = |account: Option<Account>| {
        account.map(|account| Account {
            usd: None,
            ..account
        })
    };
    with(&|turn| {
        turn.ledger = unpriced(turn.ledger);
        turn.projected = turn.ledger;
    });
    for cause in MissCause::ALL {
        with(&|turn| (turn.cache.cause, turn.cache.left) = (Some(cause), 900_000));
    }
    with(&|turn| {
        turn.unread = true;
        turn.aside = true;
    });
    for side in AbortSide::ALL {
        for phase in AbortPhase::ALL {
            with(&|turn| turn.abort = Some(Abort { side, phase }));
        }
    }
    let of = |(action, outcome)| DelimiterCall { action, outcome };
    let calls = DelimiterAction::ALL
        .into_iter()
        .flat_map(|action| delimiter::DelimiterOutcome::ALL.map(|outcome| of((action, outcome))));
    let calls: Vec<DelimiterCall> = calls.collect();
    with(&|turn| turn.delimiter_calls.clone_from(&calls));
    let recalls = RecallOutcome::ALL.map(|outcome| RecallCall { outcome, tokens: 1 });
    with(&|turn| turn.recalls = recalls.to_vec());
    for trigger in Trigger::ALL {
        for policy in Policy::ALL {
            let evicted = Level::ALL.map(|level| Evicted {
                policy,
                level,
                tokens: 1,
                items: 1,
            });
            let evicted = evicted.to_vec();
            with(&|turn| {
                turn.hops[0].declined = Some(trigger);
                turn.hops[0].dropped = vec![policy];
                turn.hops[0].pass = Some(PassReport {
                    trigger,
                    above_floor: true,
                    evicted: evicted.clone(),
                });
            });
        }
    }
    turns
}

#[test]
fn no_event_makes_a_series() {
    let metrics = metrics();
    let names = |metrics: &Metrics| -> BTreeSet<String> { samples(metrics).into_keys().collect() };
    let start = names(&metrics);
    for turn in all_kinds() {
        metrics.observe(&turn);
    }
    for op in StoreOp::ALL {
        metrics.observe_store(op, Duration::ZERO);
    }
    let trips = Health {
        read_trips: 1,
        write_trips: 1,
        ..Health::default()
    };
    metrics.set_store(&trips, true);
    for why in AcceptError::ALL {
        metrics.accept_failed(why);
    }
    for why in ConnectionCut::ALL {
        metrics.connection_cut(why);
    }
    let new: Vec<String> = (&names(&metrics) - &start).into_iter().collect();
    // Open are statuses and methods, and what a provider's models answered.
    let open = |name: &String| {
        ["http_requests_total", "upstream_requests_total"]
            .iter()
            .any(|open| name.starts_with(&format!("plimsoll_{open}{{")))
    };
    assert!(new.iter().all(open), "{new:#?}");
    // Or nothing was played: each of them has been counted by now.
    let samples = samples(&metrics);
    let still = samples.iter().filter(|(name, value)| {
        let closed = name.contains("_total{") && !open(name) && !name.contains("tokens_total{m");
        closed && **value == 0.0
    });
    assert_eq!(still.collect::<Vec<_>>(), [] as [(&String, &f64); 0]);
}

#[test]
fn a_forwarded_request_is_no_managed_turn() {
    let metrics = metrics();
    metrics.observe(&TurnReport::new(Route::Forward, Method::GET));
    let samples = samples(&metrics);
    for (sample, expect) in [
        (
            r#"http_requests_total{method="GET",route="forward",status="none"}"#,
            1.0,
        ),
        ("hidden_hops_count", 0.0),
        (r#"context_tokens_count{stage="out"}"#, 0.0),
        (r#"overhead_seconds_count{phase="total"}"#, 0.0),
        ("cache_hit_ratio_count", 0.0),
        ("time_to_first_token_seconds_count", 0.0),
        ("budget_unmet_total", 0.0),
    ] {
        assert_eq!(
            samples.get(&format!("plimsoll_{sample}")),
            Some(&expect),
            "{sample}"
        );
    }
}

#[test]
fn only_listed_models_and_standard_methods_become_labels() {
    let metrics = metrics();
    for (model, method) in [
        ("gpt-5", "GET"),
        ("gpt-5-mini", "BREW"),
        ("GPT-5", "get"),
        ("", "PUT"),
    ] {
        let mut turn = full_turn();
        turn.model = model.into();
        turn.method = Method::from_bytes(method.as_bytes()).unwrap();
        metrics.observe(&turn);
    }
    let samples = samples(&metrics);
    let tokens = |model: &str| {
        samples
            .get(&format!(
                r#"plimsoll_tokens_total{{model="{model}",type="input"}}"#
            ))
            .copied()
    };
    assert_eq!(tokens("gpt-5"), Some(1_500.0));
    assert_eq!(tokens("other"), Some(4_500.0));
    let requests = |method: &str| {
        let labels = format!(r#"method="{method}",route="chat_completions",status="200""#);
        samples
            .get(&format!("plimsoll_http_requests_total{{{labels}}}"))
            .copied()
    };
    let methods = ["GET", "PUT", "other", "BREW", "get"].map(requests);
    assert_eq!(methods, [Some(1.0), Some(1.0), Some(2.0), None, None]);
}

#[test]
fn buckets_span_what_the_conventions_say_and_rise() {
    for (buckets, first, last) in [
        (OVERHEAD_BUCKETS, 50e-6, 1.0),
        (UPSTREAM_BUCKETS, 0.005, 900.0),
        (FIRST_TOKEN_BUCKETS, 0.001, 300.0),
        (TOKEN_BUCKETS, 1.0, 4_194_304.0),
        (SHARE_BUCKETS, 0.0, 1.0),
        (RATIO_BUCKETS, 0.5, 3.0),
        (HOP_BUCKETS, 0.0, 8.0),
        (CEILING_BUCKETS, 0.1, 5.0),
    ] {
        assert_eq!((buckets[0], buckets[buckets.len() - 1]), (first, last));
        assert!(buckets.is_sorted_by(|low, high| low < high), "{buckets:?}");
    }
    let powers: Vec<f64> = (0..12).map(|n| 4_f64.powi(n)).collect();
    assert_eq!(TOKEN_BUCKETS, powers);
}

#[test]
fn a_value_on_an_edge_falls_below_it() {
    let metrics = metrics();
    let mut turn = full_turn();
    turn.overhead = Overhead::default();
    turn.overhead.add(Phase::Parse, Duration::from_micros(50));
    metrics.observe(&turn);
    metrics.observe_store(StoreOp::Commit, Duration::from_nanos(50_001));
    let samples = samples(&metrics);
    for (sample, expect) in [
        (
            r#"overhead_seconds_bucket{phase="parse",le="0.00005"}"#,
            1.0,
        ),
        (r#"store_op_seconds_bucket{op="commit",le="0.00005"}"#, 0.0),
        (r#"store_op_seconds_bucket{op="commit",le="0.0001"}"#, 1.0),
    ] {
        assert_eq!(
            samples.get(&format!("plimsoll_{sample}")),
            Some(&expect),
            "{sample}"
        );
    }
}

#[test]
fn gauges_follow_and_flights_end_on_every_path() {
    let metrics = metrics();
    metrics.set_sessions_active(7);
    metrics.set_ceiling(80_000);
    let read = |name: &str| samples(&metrics)[&format!("plimsoll_{name}")];
    assert_eq!(
        (read("sessions_active"), read("budget_tokens")),
        (7.0, 80_000.0)
    );
    let first = metrics.in_flight();
    let second = metrics.in_flight();
    assert_eq!(read("in_flight_requests"), 2.0);
    drop(first);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = second;
        panic!("a stage");
    }));
    assert!(panicked.is_err());
    assert_eq!(read("in_flight_requests"), 0.0);
}

proptest! {
    /// Whatever a client names, the only model labels are the listed ones and `other`.
    #[test]
    fn no_request_makes_a_label(models in prop::collection::vec(".{0,40}", 1..20)) {
        let metrics = metrics();
        for model in models {
            let mut turn = full_turn();
            turn.model = model;
            metrics.observe(&turn);
        }
        for sample in samples(&metrics).keys() {
            if let Some((_, rest)) = sample.split_once("model=\"") {
                let label = rest.split_once('"').unwrap().0;
                prop_assert!(["gpt-5", "claude-opus-5", "other"].contains(&label), "{}", sample);
            }
        }
    }
}
