//! Accounts as the console shows them, in dollars and in units of a plain input token. Owns their
//! fields. Never computes a cost: records have it from `tokens::ledger`.

use plimsoll_model::{TurnAccount, TurnSums};
use serde_json::{Value, json};

/// The account of one turn.
#[must_use]
pub fn of_turn(account: &TurnAccount) -> Value {
    accounts(account, 1, false)
}

/// The account of several turns. None if none of them has one.
#[must_use]
pub fn of_sums(sums: &TurnSums) -> Option<Value> {
    (sums.accounts > 0).then(|| accounts(&sums.account, sums.accounts, sums.mixed))
}

fn accounts(account: &TurnAccount, turns: u32, mixed: bool) -> Value {
    let usd = account.usd.map(|usd| money(account, usd));
    // Units of unlike models don't add up.
    let units = (!mixed).then(|| money(account, 1.0));
    json!({"usd": usd, "units": units, "turns": turns})
}

/// The parts of an account at a price of a unit.
#[must_use]
pub fn money(account: &TurnAccount, price: f64) -> Value {
    json!({
        "net": account.net() * price,
        "not_sent": account.evicted * price,
        "rewrites": account.rewritten * price,
        "hidden": account.annotated * price,
        "breakpoints": account.breakpoints * price,
        "unexplained": account.unexplained * price,
        "whole": account.whole * price,
        "paid": account.paid * price,
    })
}
