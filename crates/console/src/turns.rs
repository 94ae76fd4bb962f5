//! A session's turns as columns, and one turn as an event carries it. Owns their fields. Never reads
//! content.

use plimsoll_core::session::path::{Path, PathEntry};
use plimsoll_model::{CacheFacts, Effect, MissCause, StoredHop};
use serde_json::{Map, Value, json};

use super::error::ConsoleError;
use super::story::Story;
use super::{money, session};

/// The most turns of one answer.
const MOST_TURNS: usize = 5000;

/// The turns from one to another, both included; all if nothing is asked.
pub fn columns(path: &Path, from: Option<u32>, to: Option<u32>) -> Result<Value, ConsoleError> {
    let prologues = session::prologues(&Story::of(path), path);
    let fits = |(entry, _): &(&PathEntry, u64)| {
        let turn = entry.record.turn;
        from.is_none_or(|from| turn >= from) && to.is_none_or(|to| turn <= to)
    };
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        return Err(ConsoleError::parameter("`from` must not be above `to`"));
    }
    let entries = path.entries.iter().zip(prologues).filter(fits);
    let entries: Vec<(&PathEntry, u64)> = entries.take(MOST_TURNS).collect();
    let mut columns: Map<String, Value> = Map::new();
    for name in FIELDS {
        columns.insert(
            name.to_owned(),
            Value::Array(Vec::with_capacity(entries.len())),
        );
    }
    for (entry, prologue) in &entries {
        let Value::Object(turn) = one(entry, *prologue) else {
            continue;
        };
        for (name, value) in turn {
            if let Some(Value::Array(column)) = columns.get_mut(&name) {
                column.push(value);
            }
        }
    }
    let number =
        |entry: Option<&(&PathEntry, u64)>| entry.map_or(0, |(entry, _)| entry.record.turn);
    Ok(json!({
        "from": number(entries.first()),
        "to": number(entries.last()),
        "total": path.entries.len(),
        "columns": columns,
    }))
}

/// The columns.
const FIELDS: [&str; 19] = [
    "turn",
    "ended",
    "model",
    "in",
    "out",
    "budget",
    "floor",
    "prologue",
    "over",
    "hops",
    "passes",
    "recalled",
    "own_ms",
    "first_ms",
    "account",
    "request_ids",
    "fail_open",
    "cut",
    "missed",
];

/// One turn. `prologue` is what the system's text, tools and framing took of its view.
#[must_use]
pub fn one(entry: &PathEntry, prologue: u64) -> Value {
    let record = &entry.record;
    let facts = &record.facts;
    let ratio = ratio(entry);
    let hops: Vec<Value> = record.hops.iter().map(|one| hop(one, ratio)).collect();
    let recalled = record.hops.iter().flat_map(|hop| &hop.calls);
    let recalled: u32 = recalled
        .map(|call| match &call.effect {
            Effect::Recalled { tokens, .. } => *tokens,
            Effect::Started { .. } | Effect::Ended { .. } | Effect::Refused => 0,
        })
        .sum();
    let ids = facts.request_ids.iter();
    let ids: Vec<_> = ids.map(|id| (!id.is_empty()).then_some(id)).collect();
    json!({
        "turn": record.turn,
        "ended": record.ended,
        "model": record.model,
        "in": facts.tokens_in,
        "out": facts.tokens_out,
        "budget": facts.ceiling,
        "floor": facts.floor,
        "prologue": prologue,
        "over": facts.over,
        "hops": hops,
        "passes": record.hops.iter().filter(|hop| hop.is_passed()).count(),
        "recalled": recalled,
        "own_ms": millis(facts.own_us),
        "first_ms": facts.first_us.map(millis),
        "account": facts.account.as_ref().map(money::of_turn),
        "request_ids": ids,
        "fail_open": facts.fail_open,
        "cut": facts.cut,
        "missed": entry.missed().map(|(tokens, cache)| missed(tokens, cache)),
    })
}

/// Calibrated over counted tokens of a turn; 1 if nothing was sent.
#[must_use]
pub fn ratio(entry: &PathEntry) -> f64 {
    let sent = entry.record.hops.last().map_or(0, |hop| hop.estimate);
    let out = entry.record.facts.tokens_out;
    if sent == 0 || out == 0 {
        return 1.0;
    }
    plimsoll_proxy::record::lossy(out) / plimsoll_proxy::record::lossy(sent)
}

/// A count on the scale of the ceiling.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are far below 2^52 and the ratio is positive"
)]
pub fn scaled(tokens: u64, ratio: f64) -> u64 {
    (plimsoll_proxy::record::lossy(tokens) * ratio).round() as u64
}

fn hop(hop: &StoredHop, ratio: f64) -> Value {
    let usage = hop.usage;
    json!([
        scaled(hop.estimate, ratio),
        usage.map(|usage| usage.prompt),
        usage.map(|usage| usage.cached),
        usage.map(|usage| usage.completion),
    ])
}

fn millis(micros: u64) -> f64 {
    plimsoll_proxy::record::lossy(micros) / 1000.0
}

/// What the provider read anew, and why.
fn missed(tokens: u64, cache: &CacheFacts) -> Value {
    let expired = (cache.why() == MissCause::Expired).then_some(cache.idle);
    json!({
        "tokens": tokens,
        "cause": cache.why().name(),
        "idle_s": expired.map(|(idle, _)| idle),
        "lifetime_s": expired.map(|(_, lifetime)| lifetime),
        "message": cache.message,
        "said": cache.said,
    })
}
