//! The console's paths at the admin listener: the page, its API, and the stream of events. Owns what a
//! browser must prove, and the headers of answers. Never makes an answer itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use plimsoll_console::{Console, ConsoleError, Query, Viewer, assets};
use serde_json::Value;
use tokio::sync::mpsc;

use super::admin::{Admin, answer};

/// The header with the token of the page.
const TOKEN: &str = "x-plimsoll-console";
/// What browsers say of the page that sends a request. No page can set it.
const FETCH_SITE: &str = "sec-fetch-site";
/// How it is fetched, and what for. No page can set these either.
const FETCH_MODE: &str = "sec-fetch-mode";
const FETCH_DEST: &str = "sec-fetch-dest";
/// What every answer says to a browser: no other site shows it or loads it, and it is of the type it says.
const APART: [(HeaderName, &str); 3] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];
/// How many lines wait for a reader.
const LINES: usize = 16;
/// How often a stream without events says that it is still there.
const BEAT: Duration = Duration::from_secs(15);

/// The console's routes.
pub(super) fn routes() -> Router<Admin> {
    Router::new()
        .route("/", get(page))
        .route("/{*file}", get(file))
        .route("/api/overview", get(overview))
        .route("/api/spend", get(spend))
        .route("/api/failures", get(listed(Console::failures)))
        .route("/api/sessions", get(listed(Console::sessions)))
        .route("/api/sessions/{session}", get(seen(Console::session)))
        .route("/api/sessions/{session}/turns", get(turns))
        .route(
            "/api/sessions/{session}/changes",
            get(seen(Console::changes)),
        )
        .route("/api/sessions/{session}/items", get(seen(Console::items)))
        .route("/api/sessions/{session}/items/{item}", get(item))
        .route("/api/sessions/{session}/passes/{turn}", get(pass))
        .route("/api/sessions/{session}/export", get(export))
        .route("/api/sessions/{session}/build", post(build))
        .route("/api/sessions/{session}/pin", post(noted(Console::pin)))
        .route("/api/sessions/{session}/unpin", post(noted(Console::unpin)))
        .route("/api/sessions/{session}/evict", post(noted(Console::evict)))
        .route(
            "/api/sessions/{session}/recall",
            post(noted(Console::recall)),
        )
        .route(
            "/api/sessions/{session}/withdraw",
            post(noted(Console::withdraw)),
        )
        .route("/api/sessions/{session}/whatif", post(what_if))
        .route("/api/events", get(events))
}

/// Keeps pages of other sites from what stands here: refuses what they have a browser fetch, and says with
/// every answer that none of them may show it in a frame or load it. A link to the console is followed.
/// Programs say nothing of sites, and are served.
pub(super) async fn kept_apart(request: Request, next: Next) -> Response {
    let mut response = if is_foreign(&request) {
        let message =
            "a page of another site may not read this: open the console in a tab of its own";
        refuse(&ConsoleError::new(403, "foreign_site", message))
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in APART {
        // The page itself has a stricter policy.
        let entry = headers.entry(name);
        entry.or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whether another site's page sends a request, and the guard of origins has not judged it. A link or a
/// typed address opens a page in a tab, where the site that has the link can't read it.
fn is_foreign(request: &Request) -> bool {
    let headers = request.headers();
    let says = |name: &str, word: &str| {
        let mut values = headers.get_all(name).iter();
        values.any(|value| value.as_bytes().eq_ignore_ascii_case(word.as_bytes()))
    };
    let opens = *request.method() == Method::GET
        && says(FETCH_MODE, "navigate")
        && says(FETCH_DEST, "document")
        && !request.uri().path().starts_with("/api/");
    says(FETCH_SITE, "cross-site") && !headers.contains_key(ORIGIN) && !opens
}

/// Refuses what a browser asks to change without the token of the page. A page of another site, or of
/// another program of this machine, can send such a request, but can't read the token.
pub(super) async fn proven(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let reads = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    let browser = headers.contains_key(ORIGIN) || headers.contains_key(FETCH_SITE);
    let token = headers.get(TOKEN).and_then(|token| token.to_str().ok());
    if reads || !browser || console.admits(token) {
        return next.run(request).await;
    }
    let message = "this page has no token of the process that serves now: load it again";
    refuse(&ConsoleError::new(403, "no_token", message))
}

pub(super) fn refuse(error: &ConsoleError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(status, &error.body())
}

/// Asks the console something. That may wait for a disk, so it runs off the async workers.
async fn told<T: Send + 'static>(
    admin: Admin,
    ask: impl FnOnce(&Console) -> Result<T, ConsoleError> + Send + 'static,
) -> Result<T, Response> {
    let console = Arc::clone(&admin.probes.console);
    let told = tokio::task::spawn_blocking(move || ask(&console)).await;
    let failed = |_| {
        let message = "the answer could not be made; the log says why";
        ConsoleError::new(500, "failed", message)
    };
    told.map_err(failed)
        .flatten()
        .map_err(|error| refuse(&error))
}

/// Answers what the console reads.
async fn asked(
    admin: Admin,
    ask: impl FnOnce(&Console) -> Result<Value, ConsoleError> + Send + 'static,
) -> Response {
    match told(admin, ask).await {
        Ok(value) => unstored(answer(StatusCode::OK, &value)),
        Err(refused) => refused,
    }
}

/// An answer that no cache keeps: it is of the moment, and may hold content.
fn unstored(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

async fn page(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    asset(&admin, "", &headers)
}

async fn file(
    State(admin): State<Admin>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Response {
    asset(&admin, &file, &headers)
}

/// A file of the page.
fn asset(admin: &Admin, path: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = assets::find(path, admin.probes.console.token()) else {
        let message = format!("nothing is at /{path}: the console is at /");
        return refuse(&ConsoleError::new(404, "not_found", message));
    };
    let fixed = [
        (CONTENT_SECURITY_POLICY, assets::POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    let known = headers.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let same = asset.tag.is_some() && asset.tag.as_deref() == known;
    let body = if same {
        Body::empty()
    } else {
        Body::from(Bytes::from(asset.bytes.into_owned()))
    };
    let mut response = Response::new(body);
    if same {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let own = response.headers_mut();
    for (name, value) in fixed {
        own.insert(name, HeaderValue::from_static(value));
    }
    own.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    // A file is asked for again each time, and answered with its tag alone. The page holds a token.
    let caching = if asset.tag.is_some() {
        "no-cache"
    } else {
        "no-store"
    };
    own.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    if let Some(tag) = asset.tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        own.insert(ETAG, tag);
    }
    response
}

async fn overview(State(admin): State<Admin>) -> Response {
    asked(admin, Console::overview).await
}

async fn spend(State(admin): State<Admin>, uri: Uri) -> Response {
    asked(admin, move |console| {
        console.spend(Query::read(uri.query().unwrap_or_default())?)
    })
    .await
}

/// Lists what the viewer may see, as the query asks.
fn listed(
    ask: fn(&Console, Viewer, &str) -> Result<Value, ConsoleError>,
) -> impl Fn(State<Admin>, Extension<Viewer>, Uri) -> BoxFuture<'static, Response> + Clone {
    move |State(admin), Extension(viewer), uri| {
        Box::pin(asked(admin, move |console| {
            ask(console, viewer, uri.query().unwrap_or_default())
        }))
    }
}

/// Shows the viewer something of a session.
fn seen(
    ask: fn(&Console, Viewer, &str, Query) -> Result<Value, ConsoleError>,
) -> impl Fn(State<Admin>, Extension<Viewer>, Path<String>, Uri) -> BoxFuture<'static, Response> + Clone
{
    move |State(admin), Extension(viewer), Path(session), uri| {
        Box::pin(of_session(
            admin,
            session,
            uri,
            move |console, name, query| ask(console, viewer, name, query),
        ))
    }
}

/// Asks something of a session.
async fn of_session(
    admin: Admin,
    session: String,
    uri: Uri,
    ask: impl FnOnce(&Console, &str, Query) -> Result<Value, ConsoleError> + Send + 'static,
) -> Response {
    asked(admin, move |console| {
        let query = Query::read(uri.query().unwrap_or_default())?;
        ask(console, &session, query)
    })
    .await
}

async fn turns(State(admin): State<Admin>, Path(session): Path<String>, uri: Uri) -> Response {
    of_session(admin, session, uri, Console::turns).await
}

async fn item(
    State(admin): State<Admin>,
    Extension(viewer): Extension<Viewer>,
    Path((session, item)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    of_session(admin, session, uri, move |console, name, query| {
        console.item(viewer, name, &item, query)
    })
    .await
}

async fn pass(
    State(admin): State<Admin>,
    Extension(viewer): Extension<Viewer>,
    Path((session, turn)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    of_session(admin, session, uri, move |console, name, query| {
        query.end("a pass")?;
        console.pass(viewer, name, &turn)
    })
    .await
}

/// A session as a file.
async fn export(
    State(admin): State<Admin>,
    Extension(viewer): Extension<Viewer>,
    Path(session): Path<String>,
    uri: Uri,
) -> Response {
    let written = told(admin, move |console| {
        Query::read(uri.query().unwrap_or_default())?.end("export")?;
        console.export(viewer, &session)
    })
    .await;
    let mut response = match written {
        Ok(text) => unstored(Response::new(Body::from(text))),
        Err(refused) => return refused,
    };
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The largest body of a question, in bytes.
const ASKED_BYTES: usize = 256 << 10;

/// The body of a question, if it is not too large.
async fn question(body: Body) -> Result<Bytes, Response> {
    let read = to_bytes(body, ASKED_BYTES).await;
    read.map_err(|_| refuse(&ConsoleError::new(413, "bad_body", "send at most 256 KiB")))
}

/// Asks for something that waits for a turn of the session, or takes it back.
fn noted(
    ask: fn(&Console, &str, &[u8]) -> Result<Value, ConsoleError>,
) -> impl Fn(State<Admin>, Path<String>, Uri, Body) -> BoxFuture<'static, Response> + Clone {
    move |State(admin), Path(session), uri, body| {
        Box::pin(async move {
            let body = match question(body).await {
                Ok(body) => body,
                Err(refused) => return refused,
            };
            let mut response = of_session(admin, session, uri, move |console, name, query| {
                query.end("what is asked of a session")?;
                ask(console, name, &body)
            })
            .await;
            if response.status() == StatusCode::OK {
                *response.status_mut() = StatusCode::ACCEPTED;
            }
            response
        })
    }
}

async fn build(
    State(admin): State<Admin>,
    Extension(viewer): Extension<Viewer>,
    Path(session): Path<String>,
    uri: Uri,
    body: Body,
) -> Response {
    let body = match question(body).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    of_session(admin, session, uri, move |console, name, query| {
        query.end("build")?;
        console.build(viewer, name, &body)
    })
    .await
}

/// Plays a session under other lines, and answers a line of JSON for each as it comes. One is played at a
/// time, on a thread of its own, and stops when nobody reads on.
async fn what_if(
    State(admin): State<Admin>,
    Extension(viewer): Extension<Viewer>,
    Path(session): Path<String>,
    uri: Uri,
    body: Body,
) -> Response {
    let body = match question(body).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let Ok(turn) = Arc::clone(&admin.lab).try_lock_owned() else {
        let message = "another session is being played: ask again when that is done";
        return refuse(&ConsoleError::new(429, "busy", message));
    };
    let (lines, mut read) = mpsc::channel::<Bytes>(LINES);
    let console = Arc::clone(&admin.probes.console);
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        Query::read(uri.query().unwrap_or_default())?.end("whatif")?;
        console.what_if(viewer, &session, &body, &mut |line| {
            let line = Bytes::from(format!("{line}\n"));
            lines.blocking_send(line).is_ok()
        })
    });
    // A refusal comes before the first line, and gets its own status.
    let Some(first) = read.recv().await else {
        return match work.await {
            Ok(Err(error)) => refuse(&error),
            Ok(Ok(())) | Err(_) => {
                let message = "the session could not be played; the log says why";
                refuse(&ConsoleError::new(500, "failed", message))
            }
        };
    };
    let rest = stream::unfold((read, work), |(mut read, work)| async move {
        Some((read.recv().await?, (read, work)))
    });
    let lines = stream::iter([first])
        .chain(rest)
        .map(Ok::<Bytes, Infallible>);
    let mut response = unstored(Response::new(Body::from_stream(lines)));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The stream of what happens. The system cuts a reader that takes nothing for long.
async fn events(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let Some(events) = admin.probes.console.listen(last) else {
        let message = "too many pages listen already: close one";
        return refuse(&ConsoleError::new(429, "busy", message));
    };
    let draining = admin.draining.clone();
    let frames = stream::unfold((Some(events), true), move |(events, first)| {
        let draining = draining.clone();
        async move {
            let mut events = events?;
            if first {
                // The head is sent with the first bytes, so that the page knows that it listens.
                return Some((
                    Bytes::from_static(b"retry: 1000\n\n"),
                    (Some(events), false),
                ));
            }
            let frame = tokio::select! {
                frame = events.next() => Bytes::from(frame?),
                () = tokio::time::sleep(BEAT) => Bytes::from_static(b": still here\n\n"),
                () = draining.cancelled() => return None,
            };
            Some((frame, (Some(events), false)))
        }
    });
    let frames = frames.map(Ok::<Bytes, Infallible>);
    let mut response = unstored(Response::new(Body::from_stream(frames)));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
