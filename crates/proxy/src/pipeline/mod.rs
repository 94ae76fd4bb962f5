//! The life of a request. `ingress` calls [`turn`] for a managed one, and [`forward`] for all others.
//! Owns the order of the stages and everything that waits. What a turn decides in between belongs to
//! the module [`plimsoll_core::turn`]. Never parses HTTP, and never decides what an error looks like.
//!
//! The request half, up to the first hop. `open` runs it:
//!
//! 1. `standing` decides how far the caller is trusted with what was recorded.
//! 2. `decoded` has `dialect` decode the request and sets its terms, and `turn::memo` reads and counts its
//!    messages. If the request names what was said before, `refer` reads that from the store.
//! 3. `find` looks up the path of records behind it, in memory first and then through `history`, as `counted` asks. `split_place`
//!    tells what a session that begins is served under while sessions are split.
//! 4. `turn::state` injects the hidden tools and prepares the first hop: view, size, a pass if one is due,
//!    bytes.
//!
//! `opening` decides on which threads these steps run and how long they are waited for; `record_place`
//! says under which tenant and session the turn will be recorded.
//!
//! The response half, hop after hop:
//!
//! 5. `serve` sends the first hop and hands on what the upstream accepts. `send` tries another view if
//!    one was refused, and `learned` keeps what a refusal taught.
//!    While the upstream is down, `while_down` begins a streamed response with heartbeats.
//! 6. `incoming` tells what kind of body came. `drive` reads a stream, `unary` a whole body, both with
//!    `dialect::stream`. If all calls of a hop are hidden, `managed_turn` has them answered (`turn::hidden`)
//!    and prepares the next hop, which `later_hop` sends for both of them.
//! 7. `finish` writes the record that `turn::ending` makes, the content (`stored_content`), and the keys
//!    that lead to them. The end of the answer waits for that.
//! 8. `reporter` gathers the facts of all stages, and `ledger_input` those for the ledger; `record` gets
//!    them.
//!
//! A request in the mode `observe` is forwarded and only watched (`watch`); of every other that is forwarded the usage is
//! read as the answer passes (`forward`, `listen`). Requests share the [`App`]:
//! among it, what the process knows of windows (`windows`), of credentials and of models that bind their
//! thoughts (`proven`), of sessions in use (`active_sessions`), of their newest requests (`bodies`), what changed in them (`changed`) and what clients `dropped`, of what
//! an operator asked of them (`asked`), and of sessions that were erased while turns were under way
//! (`erasing`). `live` tells those who look on what happens, and `failures` keeps for them what failed.

mod active_sessions;
mod app;
mod asked;
mod bodies;
mod branch;
mod changed;
mod counted;
mod decoded;
mod drive;
mod dropped;
mod erasing;
mod error;
mod failures;
pub mod find;
mod finish;
mod forward;
mod incoming;
mod kept_headers;
mod later_hop;
mod learned;
mod ledger_input;
mod listen;
mod live;
mod managed_turn;
mod open;
mod opening;
mod proven;
mod record_place;
mod refer;
mod reporter;
mod request;
mod request_ids;
mod send;
mod serve;
mod settings;
mod split_place;
mod standing;
mod stored_content;
mod unary;
mod unpack;
mod watch;
mod while_down;
mod windows;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use futures_util::FutureExt as _;
use http::Response;
use plimsoll_wire::Purpose;

pub use active_sessions::ActiveSessions;
pub use app::App;
pub use asked::{Asked, TooManyAsks};
pub use bodies::{Bodies, LiveBody};
pub use changed::Change;
pub use dropped::Histories;
pub use erasing::{Began, Erasing};
pub use error::{Fault, Interruption, ProxyError, ServingLimit};
pub use failures::{FailedCall, Failure, FailureCause, FailureKind, Failures};
pub use forward::forward;
pub use kept_headers::KeptHeaders;
pub use learned::Learned;
pub use live::{Counted, Happened, Listening, Live, LiveEvent};
pub use proven::Proven;
pub use reporter::Reporter;
pub use request::{Identity, SessionHeaders, Standing, TurnRequest, Untouched};
pub use settings::{ServingSettings, ShownContent, StreamSettings};
pub use windows::Windows;

use managed_turn::ManagedTurn;
use open::Opened;

/// Serves one managed request, which is a turn.
///
/// # Errors
/// [`ProxyError`] if the caller gets an answer of the proxy's own.
pub async fn turn(
    app: &Arc<App>,
    request: TurnRequest,
    reporter: Reporter,
) -> Result<Response<Body>, ProxyError> {
    let (identity, purpose) = (request.identity, request.purpose);
    // The request half is pure apart from look-ups, and those are waited for only so long. It is boxed, and
    // so is what seldom happens later: the caller's task would otherwise keep room for all of it until the
    // upstream answers.
    let answer = match Box::pin(open::open(app, request, reporter)).await? {
        // The response half goes from hop to hop until the answer is whole.
        Opened::Managed(turn) => {
            // What waits for an upstream that is down may outlast the patience of its client.
            let waits = turn.state.request.stream && app.upstream.retry_time().is_some();
            let (dialect, failing) = (turn.state.request.dialect, turn.failing.clone());
            let sending = respond(Arc::clone(app), turn);
            if waits {
                return while_down::answer(app, failing, dialect, Box::pin(sending)).await;
            }
            return sending.await;
        }
        // The client's bytes are sent as they came, and the answer is read as it passes.
        Opened::Watched(turn) => watch::forward(app, turn).await,
        Opened::Untouched { request, reporter } => forward(app, *request, *reporter).await,
    };
    noted(app, &identity, purpose, answer)
}

/// The response half. Owns what it needs, because a response may begin before it has one.
async fn respond(app: Arc<App>, turn: Box<ManagedTurn>) -> Result<Response<Body>, ProxyError> {
    let (identity, purpose) = (turn.request.identity, turn.request.purpose);
    let sending = AssertUnwindSafe(serve::first(&app, turn)).catch_unwind();
    // A panic in the response half costs this turn, and not the connection.
    let gone = |_| Err(ProxyError::panicked());
    let answer = sending.await.unwrap_or_else(gone);
    noted(&app, &identity, purpose, answer)
}

/// Notes whose credentials the upstream has accepted.
fn noted(
    app: &App,
    identity: &Identity,
    purpose: Purpose,
    answer: Result<Response<Body>, ProxyError>,
) -> Result<Response<Body>, ProxyError> {
    if let Ok(response) = &answer {
        standing::answered(app, identity, purpose, response.status());
    }
    answer
}
