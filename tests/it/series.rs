//! No event makes a time series: whatever can be counted stands at zero from the start, because
//! `increase()` does not see a series' first value.

use std::collections::BTreeSet;

use super::hour::Hour;

/// Labels whose values are not known before they are met: what the client or the upstream says.
const OPEN: [&str; 3] = ["status=", "model=", "method="];

/// So many looks at the metrics take more than a second of processor time.
const LOOKS: usize = 20_000;

/// The series of a text by name and labels.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let named = lines.filter_map(|line| line.rsplit_once(' '));
    named.map(|(name, _)| name.to_owned()).collect()
}

/// The value of the series whose name and labels are these.
#[track_caller]
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(' ')
    });
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// The sizes of what was sent, of the process and of its store are told.
#[track_caller]
fn sizes(start: &str, end: &str) {
    let ratio = |labels: &str| {
        value(
            end,
            &format!("plimsoll_context_budget_ratio_bucket{{le=\"{labels}\"}}"),
        )
    };
    let sent = value(end, "plimsoll_context_budget_ratio_count");
    // One a hop, and each of them under the line: passes came, and nothing here can't be evicted.
    assert_eq!(ratio("1"), sent);
    assert!(sent >= 18.0 && ratio("0.5") < sent, "{sent}");
    assert_eq!(value(start, "plimsoll_context_budget_ratio_count"), 0.0);
    // The results by the class of their tool are the results, but for what each is rounded by.
    let classes = ["bulk", "read", "shell", "write", "unknown"];
    let classes = classes.map(|class| {
        let name = format!("plimsoll_context_tool_tokens_sum{{class=\"{class}\"}}");
        value(end, &name)
    });
    let results = value(end, "plimsoll_context_part_tokens_sum{part=\"results\"}");
    let all: f64 = classes.iter().sum();
    assert!(
        (all - results).abs() <= 5.0 * sent,
        "{classes:?}, {results}"
    );
    assert!(results > 1_000.0 && classes.iter().any(|tokens| *tokens < 0.5));
    assert!(value(end, "plimsoll_store_bytes") > 1_000.0);
    if cfg!(target_os = "linux") {
        for name in [
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_threads",
            "process_start_time_seconds",
        ] {
            assert!(value(start, name) > 0.0, "{name}");
        }
        assert!(cpu(end) > cpu(start));
    }
}

/// The processor time of the process.
fn cpu(text: &str) -> f64 {
    value(text, "process_cpu_seconds_total")
}

#[tokio::test]
async fn no_event_makes_a_series_that_was_not_there_at_the_start() {
    let hour = Hour::begin().await;
    let start = hour.shown().await;
    let agent = hour.work(true, &mut async |_: &Hour| {}).await;
    hour.events(agent, &mut async |_: &Hour| {}).await;
    let mut end = hour.shown().await;
    // Processor time is told in whole seconds, and telling it takes some.
    for _ in 0..LOOKS {
        if cfg!(not(target_os = "linux")) || cpu(&end) > cpu(&start) {
            break;
        }
        end = hour.shown().await;
    }
    sizes(&start, &end);
    let new: Vec<String> = (&series(&end) - &series(&start))
        .into_iter()
        .filter(|name| !OPEN.iter().any(|label| name.contains(label)))
        .collect();
    assert!(new.is_empty(), "\n{}", new.join("\n"));
    // Or what is compared above would be nothing.
    let moved = |name: &str| {
        let value = |text: &str| {
            let lines = text.lines().filter(|line| line.starts_with(name));
            let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
            values.sum::<f64>()
        };
        value(&end) > value(&start)
    };
    let still: Vec<&str> = [
        "plimsoll_passes_total",
        "plimsoll_evicted_tokens_total",
        "plimsoll_evicted_items_total",
        "plimsoll_delimiter_calls_total",
        "plimsoll_recall_total",
        "plimsoll_retries_total",
        "plimsoll_stream_aborts_total",
        "plimsoll_fail_open_total",
        "plimsoll_unmanaged_total",
    ]
    .into_iter()
    .filter(|name| !moved(name))
    .collect();
    assert!(still.is_empty(), "nothing happened to {still:?}");
}

#[tokio::test]
async fn what_goes_up_as_the_client_made_it_is_counted_over_the_line() {
    let hour = Hour::begin().await;
    let agent = hour.work(false, &mut async |_: &Hour| {}).await;
    let answer = agent.told("refuse").ask().await.whole();
    assert_eq!(answer.header("x-plimsoll-fail-open"), "refused");
    let shown = hour.shown().await;
    let bucket = "plimsoll_context_budget_ratio_bucket{le=\"1\"}";
    let all = value(&shown, "plimsoll_context_budget_ratio_count");
    assert_eq!(all - value(&shown, bucket), 1.0, "{shown}");
}
