//! Every rule of Prometheus', with its fault and without one: it fires in an hour made bad and not
//! in a good one. The figures are a real proxy's, and `promtool` judges.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use super::dashboard::{Scrape, bounds, deployed, has, run, scrapes, spread, text};
use super::words;

/// Minutes of an hour, its first and its last one included.
const MINUTES: usize = 61;
/// When a fault sets in.
const FAULT: usize = 20;

/// What a fault does to a series: it grows so much a minute, or it reads so much.
#[derive(Clone, Copy)]
enum Fault {
    Grows(f64),
    Reads(f64),
    /// It reads another number every minute.
    Changes,
    /// It grows by one, a few minutes before the end.
    Once,
}

/// What happens to the series that hold all the words.
type Faults = &'static [(&'static [&'static str], Fault)];

/// The rule that has to fire, and what makes it.
const FAULTS: &[(&str, Faults)] = &[
    ("PlimsollDown", &[(&["up{"], Fault::Reads(0.0))]),
    (
        "PlimsollFailOpen",
        &[(&["fail_open_total", "\"dialect\""], Fault::Grows(0.2))],
    ),
    (
        "PlimsollStoreFails",
        &[(&["unrecorded_total", "\"failed\""], Fault::Grows(10.0))],
    ),
    (
        "PlimsollRecordsLate",
        &[(&["unrecorded_total", "\"late\""], Fault::Grows(10.0))],
    ),
    (
        "PlimsollBudgetUnmet",
        &[(&["budget_unmet_total"], Fault::Grows(0.2))],
    ),
    (
        "PlimsollBudgetTooSmall",
        &[(&["needed_total", "\"missed\""], Fault::Grows(10.0))],
    ),
    (
        "PlimsollOverBudget",
        &[
            (&["budget_ratio_count"], Fault::Grows(10.0)),
            (&["budget_ratio_bucket", "\"+Inf\""], Fault::Grows(10.0)),
        ],
    ),
    (
        "PlimsollStreamsBreak",
        &[(
            &["stream_aborts_total", "\"body\"", "\"upstream\""],
            Fault::Grows(10.0),
        )],
    ),
    (
        "PlimsollUpstreamFails",
        &[(&["upstream_requests_total", "\"503\""], Fault::Grows(10.0))],
    ),
    (
        "PlimsollRefuses",
        &[(&["http_requests_total", "\"503\""], Fault::Grows(10.0))],
    ),
    (
        "PlimsollDescriptorsRunOut",
        &[(&["process_open_fds"], Fault::Reads(1e9))],
    ),
    (
        "PlimsollRestarts",
        &[(&["process_start_time_seconds"], Fault::Changes)],
    ),
    (
        "PlimsollRecordsLost",
        &[(&["store_lost_total"], Fault::Reads(1.0))],
    ),
    (
        "PlimsollLogLinesLost",
        &[(&["log_lines_lost_total"], Fault::Grows(1.0))],
    ),
    (
        "PlimsollStoreNotDurable",
        &[(&["store_durable"], Fault::Reads(0.0))],
    ),
    (
        "PlimsollDiskNearlyFull",
        &[(&["store_free_bytes"], Fault::Reads(1e6))],
    ),
    (
        "PlimsollCacheShareCollapsed",
        &[(&["plimsoll_tokens_total", "\"input\""], Fault::Grows(1e5))],
    ),
    (
        "PlimsollCostsMore",
        &[(&["ledger_units_total", "\"sent\""], Fault::Grows(1e5))],
    ),
    (
        "PlimsollOverheadHigh",
        &[
            (
                &["overhead_seconds_bucket", "\"total\"", "\"+Inf\""],
                Fault::Grows(100.0),
            ),
            (
                &["overhead_seconds_count", "\"total\""],
                Fault::Grows(100.0),
            ),
        ],
    ),
    (
        "PlimsollUnmanaged",
        &[(&["unmanaged_total", "\"n\""], Fault::Grows(10.0))],
    ),
    (
        "PlimsollCountsWrong",
        &[
            (&["estimate_ratio_bucket", "\"+Inf\""], Fault::Grows(10.0)),
            (&["estimate_ratio_count"], Fault::Grows(10.0)),
        ],
    ),
];

/// What no rule fires for: one record of a quiet hour that was late, and one that was refused.
const QUIET: Faults = &[
    (&["unrecorded_total", "\"late\""], Fault::Once),
    (&["unrecorded_total", "\"failed\""], Fault::Once),
];

/// What no rule fires for: so few of many turns that nobody has to look.
const HARMLESS: Faults = &[
    (&["unrecorded_total", "\"late\""], Fault::Grows(0.05)),
    (
        &[
            "http_requests_total",
            "\"POST\"",
            "\"chat_completions\"",
            "\"200\"",
        ],
        Fault::Grows(100.0),
    ),
];

/// The series of an hour as `promtool` reads them, with a fault in it.
fn series(hour: &[&Scrape], fault: Faults) -> String {
    let mut lines = String::new();
    let all = hour.last().unwrap();
    let met = |(words, _): &(&[&str], Fault)| {
        all.keys()
            .any(|name| words.iter().all(|word| name.contains(word)))
    };
    assert!(fault.iter().all(met), "a fault that meets no series");
    for name in all.keys() {
        let own = |(words, _): &&(&[&str], Fault)| words.iter().all(|word| name.contains(word));
        let fault = fault.iter().find(own).map(|(_, fault)| *fault);
        writeln!(lines, "      - series: '{name}'\n        values: '").unwrap();
        lines.truncate(lines.trim_end().len());
        for (minute, scrape) in hour.iter().enumerate() {
            // A series that an event made has no value before it.
            let Some(value) = scrape.get(name) else {
                lines.push_str("_ ");
                continue;
            };
            let value: f64 = value.parse().unwrap();
            let since = minute.saturating_sub(FAULT) as f64;
            let value = match fault {
                Some(Fault::Grows(by)) => value + by * since,
                Some(Fault::Reads(other)) if since > 0.0 => other,
                Some(Fault::Changes) => value + since,
                Some(Fault::Once) if minute + 8 > MINUTES => value + 1.0,
                Some(Fault::Reads(_) | Fault::Once) | None => value,
            };
            write!(lines, "{value} ").unwrap();
        }
        lines.truncate(lines.trim_end().len());
        lines.push_str("'\n");
    }
    lines
}

/// One test of `promtool`'s: which of the rules fire at the end of such an hour.
fn case(hour: &[&Scrape], fault: Faults, expect: &[(&str, usize)]) -> String {
    let mut case = format!(
        "  - interval: 1m\n    input_series:\n{}    promql_expr_test:\n",
        series(hour, fault)
    );
    for (rule, fires) in expect {
        let asks = format!(
            "clamp_max(count(ALERTS{{alertname=\"{rule}\",alertstate=\"firing\"}}) or vector(0), 1)"
        );
        write!(
            case,
            "      - expr: '{asks}'\n        eval_time: 1h\n        exp_samples:\n          \
             - labels: '{{}}'\n            value: {fires}\n"
        )
        .unwrap();
    }
    case
}

#[tokio::test]
async fn every_rule_fires_for_its_fault_and_none_without_one() {
    let rules = text("prometheus/rules.yml");
    let named = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let named: BTreeSet<&str> = named.collect();
    let faults: BTreeSet<&str> = FAULTS.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(named, faults, "each rule has the fault that it is for");
    bounds(&rules);
    if !has("promtool") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let scrapes = scrapes().await;
    let calm: Vec<&Scrape> = spread(&scrapes.calm, MINUTES).collect();
    let none: Vec<(&str, usize)> = FAULTS.iter().map(|(rule, _)| (*rule, 0)).collect();
    let mut cases = case(&calm, &[], &none);
    // The end of the eventful hour, where all series are, stands still but for the fault.
    let bad = vec![scrapes.eventful.last().unwrap(); MINUTES];
    cases.push_str(&case(&bad, HARMLESS, &none));
    cases.push_str(&case(&bad, QUIET, &none));
    for (rule, fault) in FAULTS {
        cases.push_str(&case(&bad, fault, &[(*rule, 1)]));
    }
    let file = directory.path().join("tests.yml");
    let rules = deployed("prometheus/rules.yml");
    let head = format!(
        "rule_files:\n  - {}\nevaluation_interval: 1m\ntests:\n",
        rules.display()
    );
    fs::write(&file, head + &cases).unwrap();
    for (words, file) in [
        (["check", "rules"], &rules),
        (["check", "config"], &deployed("prometheus/prometheus.yml")),
        (["test", "rules"], &file),
    ] {
        run("promtool", &[words[0].as_ref(), words[1].as_ref(), file]);
    }
}

#[test]
fn every_rule_leads_to_a_place_that_is_there() {
    let rules = text("prometheus/rules.yml");
    let count = |word: &str| rules.matches(word).count();
    assert_eq!(count("runbook_url: "), count("- alert: "));
    let mut lines = rules.lines();
    for place in lines
        .by_ref()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: "))
    {
        let (page, anchor) = place.split_once('#').unwrap();
        let page = fs::read_to_string(deployed("..").join(page)).unwrap();
        assert!(words::anchors(&page).contains(anchor), "{place}");
    }
}
