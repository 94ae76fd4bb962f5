//! Sums over rows of the list of sessions. Owns how they are added up. Dollars of several models add up, and
//! units of theirs do not. Never reads a row itself.

use plimsoll_model::{SessionRow, TurnAccount};
use serde_json::{Map, Value, json};

use super::{money, rows};

/// What was added up.
#[derive(Default)]
pub struct Totals {
    /// Rows, those of branches included.
    pub rows: usize,
    sessions: usize,
    turns: u64,
    over: u64,
    /// Sessions with a turn above the ceiling.
    pub over_sessions: u64,
    /// Sessions whose newest turn is one.
    pub over_now: u64,
    /// Passes of managed sessions.
    pub passes: u64,
    /// Their hidden hops.
    pub hops: u64,
    /// Their recalls.
    pub recalls: u64,
    unpriced: u64,
    accounts: u64,
    /// In dollars.
    priced: Option<TurnAccount>,
    observed: Observed,
    sent: (u64, u64),
    client: (u64, u64),
}

/// What managing would have come to in sessions that are only watched.
#[derive(Default)]
struct Observed {
    sessions: u64,
    turns: u64,
    accounts: u64,
    priced: Option<TurnAccount>,
}

impl Totals {
    /// Adds a row.
    pub fn add(&mut self, row: &SessionRow) {
        self.rows += 1;
        self.sessions += usize::from(!row.branch);
        if rows::is_watched(row) {
            self.observe(row);
            return;
        }
        let sums = &row.sums;
        self.turns += u64::from(sums.turns);
        self.over += u64::from(sums.over);
        self.over_sessions += u64::from(sums.over > 0);
        self.over_now += u64::from(row.sizes.over);
        self.passes += u64::from(sums.passes);
        self.hops += u64::from(sums.hops);
        self.recalls += u64::from(sums.recalls);
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
        let sums = &row.sums;
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

    /// The sums that every answer over several sessions has.
    #[must_use]
    pub fn shown(&self) -> Map<String, Value> {
        let observed = &self.observed;
        let shown = json!({
            "sessions": self.sessions,
            "turns": self.turns,
            "over": self.over,
            "saved": in_dollars(self.priced.as_ref(), self.accounts),
            "observed": {
                "sessions": observed.sessions,
                "turns": observed.turns,
                "projected": in_dollars(observed.priced.as_ref(), observed.accounts),
            },
            "unpriced": self.unpriced,
            "prompt": self.sent.0,
            "cached": self.sent.1,
            "whole_prompt": self.client.0,
            "whole_cached": self.client.1,
        });
        match shown {
            Value::Object(fields) => fields,
            _ => Map::new(),
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
