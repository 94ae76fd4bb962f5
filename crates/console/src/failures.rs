//! Requests that failed, newest first: what their client got, which calls were made, and what was said. Owns the
//! fields, and that a look at what upstreams said is logged. Never has more than the process keeps in memory.

use plimsoll_proxy::pipeline::{FailedCall, Failure};
use plimsoll_proxy::record::{FailedStage, RetryReason};
use serde_json::{Value, json};

use super::looks::Viewer;
use super::query::Query;
use super::{Console, ConsoleError, known, overview};

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
    let shown: Vec<Value> = found.iter().map(|one| one_of(one)).collect();
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

/// One of them.
fn one_of(failure: &Failure) -> Value {
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
        // One that has only failed is not in the list.
        "listed": failure.turn > 1,
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
