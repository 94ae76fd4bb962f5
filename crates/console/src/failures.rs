//! Requests that failed, newest first: what their client got, which calls were made, and what was said. Owns the
//! fields, and that a look at what upstreams said is logged. Never has more than the process keeps in memory.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_proxy::pipeline::{FailedCall, Failure};
use plimsoll_proxy::record::{FailedStage, RetryReason};
use serde_json::{Value, json};

use super::looks::Viewer;
use super::query::Query;
use super::{Console, ConsoleError, known, overview, rows};

/// The most failures of a page.
const MOST: usize = 5_000;
/// How many there are if nobody says.
const SOME: usize = 100;

/// A page of them.
pub(super) fn page(console: &Console, viewer: Viewer, query: &str) -> Result<Value, ConsoleError> {
    let mut query = Query::read(query)?;
    let session = query.take("session");
    let session = session.map(|name| known::read_name(&name)).transpose()?;
    let limit = query.number("limit", 1, MOST)?.unwrap_or(SOME);
    let below = query.cursor()?;
    query.end("failures")?;
    let app = &console.app;
    let (found, more) = app.failures.newest(session.as_deref(), below, limit);
    let listed = listed(console, &found)?;
    let shown: Vec<Value> = found.iter().map(|one| one_of(one, &listed)).collect();
    let next = found.last().filter(|_| more);
    for told in found.iter().filter(|one| one.cause.said.is_some()) {
        console.looks.note(&told.session, viewer);
    }
    Ok(json!({
        "since": console.began,
        "failed": overview::named(&app.failures.counted()),
        "failures": shown,
        "next": next.map(|one| one.number.to_string()),
        "content": app.serving.shown.name(),
    }))
}

/// Which of their sessions the list has: one that has only failed is not in it.
fn listed(
    console: &Console,
    found: &[Arc<Failure>],
) -> Result<HashMap<String, bool>, ConsoleError> {
    let names = found.iter().map(|one| &one.session);
    let names = names.filter(|name| !name.is_empty());
    let mut listed: HashMap<String, bool> = names.map(|name| (name.clone(), false)).collect();
    let mut left = listed.len();
    for store in [&console.app.store, &console.app.watched] {
        let mut seen = 0_usize;
        if left == 0 {
            break;
        }
        known::each_row(store, "", &mut |row| {
            seen += 1;
            if let Some(known) = listed.get_mut(&row.session)
                && !std::mem::replace(known, true)
            {
                left -= 1;
            }
            left > 0 && seen < rows::MOST_SORTED
        })?;
    }
    Ok(listed)
}

/// One of them.
fn one_of(failure: &Failure, listed: &HashMap<String, bool>) -> Value {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let call = |call: &FailedCall| {
        json!({
            "status": call.status.map(|status| status.as_u16()),
            "request_id": call.request_id,
        })
    };
    let retried = failure.retried.iter().copied().map(RetryReason::name);
    json!({
        "number": failure.number,
        "at": failure.at,
        "tenant": text(&failure.tenant),
        "session": text(&failure.session),
        "listed": listed.get(&failure.session).copied().unwrap_or(false),
        "turn": (failure.turn > 0).then_some(failure.turn),
        "model": text(&failure.model),
        "route": failure.route.name(),
        "kind": failure.kind.name(),
        "status": failure.status.as_u16(),
        "calls": failure.calls.iter().map(call).collect::<Vec<Value>>(),
        "retried": retried.collect::<Vec<&str>>(),
        "fail_open": failure.fail_open.map(FailedStage::name),
        "own": failure.cause.own,
        "code": failure.cause.code,
        "said": failure.cause.said,
    })
}
