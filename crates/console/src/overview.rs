//! The figures over all sessions and of the process. Owns their fields beside the sums, which `totals` adds up.

use serde_json::{Map, Value, json};

use super::totals::Totals;
use super::{Console, ConsoleError, known, money, rows};

/// The answer.
pub(super) fn overview(console: &Console) -> Result<Value, ConsoleError> {
    let app = &console.app;
    let mut totals = Totals::default();
    for store in [&app.store, &app.watched] {
        known::each_row(store, "", &mut |row| {
            totals.add(&row);
            totals.rows < rows::MOST_SORTED
        })?;
    }
    let counted = app.live.counted();
    let (p50, p99) = counted.own_ms.unzip();
    let mut shown = totals.shown();
    let more = json!({
        "over_sessions": totals.over_sessions,
        "over_now": totals.over_now,
        "process": {
            "since": console.began,
            "turns": counted.turns,
            "fail_open": named(&counted.fail_open),
            "unmanaged": named(&counted.unmanaged),
            "unrecorded": named(&counted.unrecorded),
            "failed": named(&app.failures.counted()),
            "beside": {
                "turns": counted.beside.turns,
                "prompt": counted.beside.account.sent.0,
                "cached": counted.beside.account.sent.1,
                "account": money::of_sums(&counted.beside),
            },
            "own_ms": {"p50": p50, "p99": p99},
        },
        "upstreams": [upstream(console)],
        "server": server(console),
    });
    if let Value::Object(more) = more {
        shown.extend(more);
    }
    Ok(Value::Object(shown))
}

pub(super) fn named(counts: &[(&'static str, u64)]) -> Map<String, Value> {
    let named = counts.iter();
    named
        .map(|(name, count)| ((*name).to_owned(), (*count).into()))
        .collect()
}

/// The upstream as the process has seen it.
pub(super) fn upstream(console: &Console) -> Value {
    let counted = console.app.live.counted();
    json!({
        "name": console.app.provider,
        "healthy": counted.healthy,
        "requests": counted.calls,
        "errors": counted.errors,
        "last_error": counted.last_error,
    })
}

fn server(console: &Console) -> Value {
    let app = &console.app;
    let agents = console.agents.get().cloned().unwrap_or_default();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "content": app.serving.shown.name(),
        "agents": agents,
        "stores_content": app.settings.base.content.of == plimsoll_core::turn::StoreContent::All,
        "now": app.now(),
    })
}
