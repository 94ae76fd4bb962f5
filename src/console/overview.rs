//! The figures over all sessions. Owns how they are added up. Dollars of several models add up, and
//! units of theirs do not.

use serde_json::{Map, Value, json};

use super::{Console, ConsoleError, known, money, rows};
use crate::model::{SessionRow, TurnAccount};

/// What was added up over the list.
#[derive(Default)]
struct Totals {
    /// Rows, those of branches included.
    rows: usize,
    sessions: usize,
    turns: u64,
    over: u64,
    over_sessions: u64,
    over_now: u64,
    unpriced: u64,
    accounts: u64,
    /// In dollars.
    priced: Option<TurnAccount>,
    observed: Observed,
    sent: (u64, u64),
    client: (u64, u64),
}

/// The same of sessions that are only watched: what managing would have come to.
#[derive(Default)]
struct Observed {
    sessions: u64,
    turns: u64,
    accounts: u64,
    priced: Option<TurnAccount>,
}

impl Totals {
    fn add(&mut self, row: &SessionRow) {
        self.rows += 1;
        self.sessions += usize::from(!row.branch);
        if rows::is_watched(row) {
            self.observe(row);
            return;
        }
        let Some(sums) = row.sums else {
            self.unpriced += 1;
            return;
        };
        self.turns += u64::from(sums.turns);
        self.over += u64::from(sums.over);
        self.over_sessions += u64::from(sums.over > 0);
        self.over_now += u64::from(row.sizes.is_some_and(|sizes| sizes.over));
        let account = sums.account;
        self.sent = (self.sent.0 + account.sent.0, self.sent.1 + account.sent.1);
        self.client = (
            self.client.0 + account.client.0,
            self.client.1 + account.client.1,
        );
        if account.usd.is_none() || sums.accounts == 0 {
            self.unpriced += 1;
            return;
        }
        self.accounts += u64::from(sums.accounts);
        let priced = self.priced.get_or_insert_default();
        priced.add(&account.in_dollars());
    }

    /// Adds a session that was sent as it came.
    fn observe(&mut self, row: &SessionRow) {
        self.observed.sessions += u64::from(!row.branch);
        let Some(sums) = row.sums else { return };
        self.observed.turns += u64::from(sums.turns);
        let account = sums.account;
        for side in [&mut self.sent, &mut self.client] {
            *side = (side.0 + account.client.0, side.1 + account.client.1);
        }
        if account.usd.is_some() && sums.accounts > 0 {
            self.observed.accounts += u64::from(sums.accounts);
            let priced = self.observed.priced.get_or_insert_default();
            priced.add(&account.in_dollars());
        }
    }
}

/// Accounts of several models.
fn in_dollars(priced: Option<&TurnAccount>, turns: u64) -> Value {
    json!({
        "usd": priced.map(|sum| money::money(sum, 1.0)),
        "units": Value::Null,
        "turns": turns,
    })
}

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
    let observed = &totals.observed;
    let counted = app.live.counted();
    let (p50, p99) = counted.own_ms.unzip();
    Ok(json!({
        "sessions": totals.sessions,
        "turns": totals.turns,
        "over": totals.over,
        "over_sessions": totals.over_sessions,
        "over_now": totals.over_now,
        "saved": in_dollars(totals.priced.as_ref(), totals.accounts),
        "observed": {
            "sessions": observed.sessions,
            "turns": observed.turns,
            "projected": in_dollars(observed.priced.as_ref(), observed.accounts),
        },
        "unpriced": totals.unpriced,
        "prompt": totals.sent.0,
        "cached": totals.sent.1,
        "whole_prompt": totals.client.0,
        "whole_cached": totals.client.1,
        "process": {
            "since": console.began,
            "turns": counted.turns,
            "fail_open": named(&counted.fail_open),
            "unmanaged": named(&counted.unmanaged),
            "unrecorded": named(&counted.unrecorded),
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
    }))
}

fn named(counts: &[(&'static str, u64)]) -> Map<String, Value> {
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
        "stores_content": app.settings.base.content == crate::turn::StoreContent::All,
        "lab": cfg!(feature = "lab"),
        "now": app.now(),
    })
}
