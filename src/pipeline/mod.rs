//! The life of a request. [`turn`] names the halves of a managed one; [`forward`] is for everything else.
//! Owns the order, and all that waits; what a turn decides meanwhile is `turn`'s. Never parses HTTP nor
//! decides how an error looks.
//!
//! The request half, up to the first hop:
//!
//! 1. `standing` says how far the caller is trusted with what was recorded.
//! 2. `open` decodes the request (`dialect`), reads and counts its messages (`turn::memo`), and where it
//!    names what was said before, `refer` reads that.
//! 3. `find` looks up the path of records behind it, in memory, then through `history`.
//! 4. `turn::state` prepares the first hop: injection, size, a pass where one is due, bytes.
//!
//! The response half, hop after hop:
//!
//! 5. `serve` sends the first hop through `send`, which tries another view where ours was refused, and hands
//!    on what is accepted; `learned` keeps what a refusal taught.
//! 6. `drive` reads a stream, `unary` a whole body. Where all calls of a hop are hidden, `managed` has them
//!    answered (`turn::hidden`) and prepares the next hop, which both send.
//! 7. `finish` writes the record that `turn::ending` makes, its content (`content`), and the keys that lead
//!    to it; the answer's end waits for that.
//! 8. `report` has gathered the facts of all stages, and hands them to `record`.

mod accepted;
mod active;
mod app;
mod books;
mod content;
mod drive;
mod error;
pub mod find;
mod finish;
mod incoming;
mod learned;
mod managed;
mod open;
mod opening;
mod pass;
mod place;
mod refer;
mod report;
mod request;
mod send;
mod serve;
mod settings;
mod standing;
mod unary;
mod watch;
mod windows;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use futures_util::FutureExt as _;
use http::Response;

pub use accepted::Accepted;
pub use active::Active;
pub use app::App;
pub use error::{Class, ProxyError, Side};
pub use learned::Learned;
pub use pass::forward;
pub use report::Report;
pub use request::{Identity, Session, Standing, TurnRequest, Untouched};
pub use settings::{ServingSettings, StreamSettings};
pub use windows::Windows;

use open::Opened;

/// Serves one managed request: a turn.
///
/// # Errors
/// [`ProxyError`] where the caller gets an answer of ours instead of the upstream's.
pub async fn turn(
    app: &Arc<App>,
    request: TurnRequest,
    report: Report,
) -> Result<Response<Body>, ProxyError> {
    let (identity, purpose) = (request.identity, request.purpose);
    // One half is pure but for a look-up, which is waited for only so long.
    let answer = match open::open(app, request, report).await? {
        // The other goes from hop to hop until the answer is whole.
        Opened::Managed(turn) => {
            let sending = AssertUnwindSafe(serve::first(app, *turn)).catch_unwind();
            // A mistake of ours behind the upstream's answer costs this turn, not the connection.
            let gone = |_| Err(ProxyError::Middle("panic"));
            sending.await.unwrap_or_else(gone)
        }
        // The client's bytes go up, and its answer is read on its way.
        Opened::Watched(turn) => watch::forward(app, *turn).await,
        Opened::Untouched { request, report } => forward(app, *request, *report).await,
    };
    if let Ok(response) = &answer {
        standing::answered(app, &identity, purpose, response.status());
    }
    answer
}
