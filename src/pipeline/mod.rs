//! The life of a request. [`turn`] serves a managed one, and [`forward`] all others. Owns the order
//! of the stages and everything that waits. What a turn decides in between belongs to the `turn`
//! module. Never parses HTTP, and never decides what an error looks like.
//!
//! The request half, up to the first hop:
//!
//! 1. `standing` decides how far the caller is trusted with what was recorded.
//! 2. `open` decodes the request (`dialect`), and reads and counts its messages (`turn::known`). If the
//!    request names what was said before, `refer` reads that from the store.
//! 3. `find` looks up the path of records behind it, in memory first and then through `history`.
//! 4. `turn::hop` prepares the first hop: injection, size, a pass if one is due, bytes.
//!
//! The response half, hop after hop:
//!
//! 5. `serve` sends the first hop and hands on what the upstream accepts. `send` tries another view if
//!    one was refused, and `learned` keeps what a refusal taught.
//! 6. `drive` reads a stream, `unary` a whole body. If all calls of a hop are hidden, `managed` has them
//!    answered (`turn::hidden`) and prepares the next hop, which both of them send.
//! 7. `finish` writes the record that `turn::ending` makes, the content (`stored_content`), and the keys
//!    that lead to them. The end of the answer waits for that.
//! 8. `reporter` gathers the facts of all stages and hands them to `record`.

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
pub use windows::Windows;

use open::Opened;

/// Serves one managed request, which is a turn.
///
/// # Errors
/// [`ProxyError`] if the caller gets an answer of the proxy's own.
pub async fn turn(
    app: &Arc<App>,
    request: TurnRequest,
    report: Report,
) -> Result<Response<Body>, ProxyError> {
    let (identity, purpose) = (request.identity, request.purpose);
    // The request half is pure apart from look-ups, and those are waited for only so long.
    let answer = match open::open(app, request, report).await? {
        // The response half goes from hop to hop until the answer is whole.
        Opened::Managed(turn) => {
            let sending = AssertUnwindSafe(serve::first(app, *turn)).catch_unwind();
            // A panic in the response half costs this turn, and not the connection.
            let gone = |_| Err(ProxyError::Middle("panic"));
            sending.await.unwrap_or_else(gone)
        }
        // The client's bytes are sent as they came, and the answer is read as it passes.
        Opened::Watched(turn) => watch::forward(app, *turn).await,
        Opened::Untouched { request, report } => forward(app, *request, *report).await,
    };
    if let Ok(response) = &answer {
        standing::answered(app, &identity, purpose, response.status());
    }
    answer
}
