//! The metrics of money that finished turns move: what they cost, what the clients' own requests would have cost, and
//! what was saved. Never computes either: `tokens::ledger` does.

use plimsoll_tokens::ledger::Account;
use prometheus::Error;

use super::table::{Table, each};
use crate::record::labels::{CallRole, LedgerSide, LedgerTokens, SavedPart};
use crate::record::turn_report::TurnReport;

/// All that a split is not judged by.
pub(super) fn of_turns(t: &mut Table<'_>) -> Result<(), Error> {
    cost(t)?;
    projected(t)
}

/// What turns cost, in parts.
fn cost(t: &mut Table<'_>) -> Result<(), Error> {
    t.pairs(
        "ledger_tokens_total",
        "Tokens of all upstream calls (sent), of the clients' own requests if they had been forwarded as they were \
         (client), and of the views that watched turns would have sent (projected); input includes cache_read and \
         cache_write",
        ["side", "type"],
        |turn, add| {
            for side in LedgerSide::ALL {
                let Some((usage, ..)) = turn.side(side) else { continue };
                each(LedgerTokens::ALL, |kind| add(side, kind, kind.of(usage)));
            }
        },
    )?;
    // Units without a price have a metric of their own, so that the sum in dollars does not look complete.
    t.sums(
        "ledger_unpriced_units_total",
        "The part of ledger_units_total whose price in US dollars is not known",
        "side",
        |turn, add| {
            each_side(turn, |side, units, usd| {
                add(side, if usd.is_some() { 0.0 } else { units })
            })
        },
    )?;
    t.sums(
        "ledger_role_units_total",
        "The same as ledger_units_total of the side sent, by what calls were for: the session's work (main), hops that \
         only hidden calls answered (hidden), requests without tools (aside)",
        "role",
        |turn, add| each_role(turn, |role, units, _| add(role, units)),
    )?;
    t.sums(
        "ledger_role_usd_total",
        "The same in US dollars, where the model's price is known",
        "role",
        |turn, add| each_role(turn, |role, units, usd| add(role, usd * units)),
    )?;
    t.count(
        "unread_answers_total",
        "Answers that passed in a form or at a size that is not read, so that their cost is not known",
        |turn| u64::from(turn.unread),
    )
}

/// What watched turns would have saved.
fn projected(t: &mut Table<'_>) -> Result<(), Error> {
    saved(
        t,
        ["projected_saved_units", "projected_saved_usd"],
        "What watched turns would have saved so far if they were managed, as saved_units; none of it was saved",
        |turn| turn.projected.as_ref(),
    )?;
    t.counts(
        "projections_total",
        "Turns that were only watched, by how much is known about them as managed turns",
        "outcome",
        |turn, add| each(turn.projection, |projection| add(projection, 1)),
    )
}

/// What turns cost, what the clients' own requests would have cost, and what was saved.
pub(super) fn of_arms(t: &mut Table<'_>) -> Result<(), Error> {
    t.sums(
        "cost_usd_total",
        "Money paid to providers, in US dollars",
        "kind",
        |turn, add| {
            each(LedgerTokens::ALL, |kind| add(kind, turn.cost_usd(kind)));
        },
    )?;
    t.sums(
        "ledger_units_total",
        "What those tokens cost by the model's prices, in units of one plain input token",
        "side",
        |turn, add| each_side(turn, |side, units, _| add(side, units)),
    )?;
    t.sums(
        "ledger_usd_total",
        "What those tokens cost in US dollars, where the model's price is known",
        "side",
        |turn, add| {
            each_side(turn, |side, units, usd| {
                add(side, usd.unwrap_or_default() * units)
            })
        },
    )?;
    saved(
        t,
        ["saved_units", "saved_usd"],
        "What was saved so far, in units of one plain input token: net is evicted and breakpoints less rewritten and \
         hidden (the hidden tools: marks, recalls and their hops); unexplained is no part of it; may fall",
        |turn| turn.ledger.as_ref(),
    )
}

/// What an account of turns says was saved, in units and in US dollars.
fn saved(
    t: &mut Table<'_>,
    [units, usd]: [&str; 2],
    help: &str,
    of: fn(&TurnReport) -> Option<&Account>,
) -> Result<(), Error> {
    t.balances(units, help, "part", move |turn, add| {
        each_part(of(turn), |part, units, _| add(part, units));
    })?;
    t.balances(
        usd,
        "The same in US dollars, where the model's price is known",
        "part",
        move |turn, add| each_part(of(turn), |part, units, usd| add(part, usd * units)),
    )
}

/// Each side of the ledger with its units, and with the price of one in US dollars.
fn each_side(turn: &TurnReport, mut run: impl FnMut(LedgerSide, f64, Option<f64>)) {
    for side in LedgerSide::ALL {
        each(turn.side(side), |(_, cost, usd)| {
            run(side, cost.total(), usd)
        });
    }
}

/// Each role with its units, and with the price of one in US dollars, 0 if that is not known.
fn each_role(turn: &TurnReport, mut run: impl FnMut(CallRole, f64, f64)) {
    let Some(account) = &turn.ledger else { return };
    for role in CallRole::ALL {
        run(
            role,
            turn.role_units(role, account),
            account.usd.unwrap_or_default(),
        );
    }
}

/// Each part of what was saved, in the same way.
fn each_part(account: Option<&Account>, mut run: impl FnMut(SavedPart, f64, f64)) {
    let Some(account) = account else { return };
    for part in SavedPart::ALL {
        run(
            part,
            part.of(&account.parts),
            account.usd.unwrap_or_default(),
        );
    }
}
