//! Who may use the admin listener: whoever has its token. Without one, whoever reaches a loopback address,
//! and on any other address nobody. Owns the token, the cookie that stands for it in a browser, and what
//! those are told who have neither. Never keeps, shows or logs what somebody sent in its place.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION,
    REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use plimsoll_console::ConsoleError;

use super::auth::bearer;
use super::console::refuse;
use super::seldom::Seldom;
use super::settings::ServerSettings;

/// What probes and Prometheus ask, and what has no content: it needs no token anywhere.
const FREE: [&str; 3] = ["/livez", "/readyz", "/metrics"];
/// Where a browser sends the token.
const LOGIN: &str = "/login";
/// The page that asks for it, or says that there is none.
const PAGE: &str = include_str!("login.html");
/// What that page may do: look as it does, and send its form.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";
/// The most bytes of a form, and how long they may take. Whoever sends it has proved nothing yet.
const FORM_BYTES: usize = 4 << 10;
const FORM_TIME: Duration = Duration::from_secs(10);

const WANTED: &str = "the admin listener wants its token: send it as `authorization: Bearer TOKEN`, or log in \
    at / in a browser; plimsoll's own commands take it from PLIMSOLL__ADMIN__TOKEN or the configuration";
const WRONG: &str = "this is not the admin token: it is the one with which the process was started, from \
    PLIMSOLL__ADMIN__TOKEN, admin.token or admin.token_file";
const UNSET: &str = "other machines can reach this admin listener and it has no token, so it shows and changes \
    nothing: set PLIMSOLL__ADMIN__TOKEN to at least 32 characters (`openssl rand -hex 32`) and start the process \
    again, or let server.admin be an address of loopback";

/// What is demanded of whoever uses the admin listener. Printing it does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

impl AdminToken {
    /// Wraps a token, which can stand in a header.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(token.to_owned())
    }

    /// The token, for a command that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// What the admin listener demands.
pub(super) struct AccessGuard {
    rule: Rule,
    wrong: Mutex<Seldom>,
}

enum Rule {
    /// Only this machine gets here.
    Anybody,
    /// Others get here, and nobody can prove anything.
    Nobody,
    Holder(Holder),
}

/// What proves that somebody has the token. Both are compared as hashes, which takes equally long
/// wherever they differ.
struct Holder {
    token: blake3::Hash,
    /// What a browser gets in its place. None if the system gave no random bytes.
    cookie: Option<Cookie>,
}

struct Cookie {
    /// Browsers send a cookie to all ports of a host, so each listener has its own name.
    name: String,
    /// A random text of this process: nobody learns the token from it, and a restart ends it.
    text: String,
    hash: blake3::Hash,
}

impl AccessGuard {
    /// The guard of a listener that is bound to an address. Says in the log if nobody gets in.
    pub(super) fn new(settings: &ServerSettings, bound: SocketAddr) -> Arc<Self> {
        let here = settings.admin.ip().to_canonical().is_loopback();
        let rule = match &settings.admin_token {
            Some(token) => Rule::Holder(Holder {
                token: blake3::hash(token.expose().as_bytes()),
                cookie: Cookie::new(bound.port()),
            }),
            None if here => Rule::Anybody,
            None => {
                tracing::warn!(
                    admin = %settings.admin,
                    "other machines can reach the admin listener and it has no token: the console and /api answer 403 until PLIMSOLL__ADMIN__TOKEN is set, and /livez, /readyz and /metrics go on"
                );
                Rule::Nobody
            }
        };
        Arc::new(Self {
            rule,
            wrong: Mutex::default(),
        })
    }

    /// Says now and then that wrong tokens are sent.
    fn note_wrong(&self) {
        if let Some(refused) = self.wrong.lock().note() {
            tracing::warn!(refused, "the admin listener was sent a wrong token");
        }
    }
}

impl Holder {
    fn is_token(&self, sent: &[u8]) -> bool {
        blake3::hash(sent) == self.token
    }

    /// Whether a request has the token or the cookie. `None` if it brings no token at all. A browser behind
    /// a reverse proxy may have a login for that, which stands where a token would, beside its cookie.
    fn proven(&self, headers: &HeaderMap) -> Option<bool> {
        let sent = headers.get(AUTHORIZATION);
        let is_token = |sent: &HeaderValue| self.is_token(bearer(sent.as_bytes()).trim_ascii());
        if sent.is_some_and(is_token) || self.has_cookie(headers) {
            return Some(true);
        }
        // A cookie of an earlier process is no attempt to get in.
        sent.map(|_| false)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let Some(cookie) = &self.cookie else {
            return false;
        };
        let all = headers.get_all(COOKIE).iter();
        let all = all.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = all.flat_map(|cookies| cookies.split(';'));
        pairs.any(|pair| {
            let named = pair.trim().split_once('=');
            named.is_some_and(|(name, value)| {
                name == cookie.name && blake3::hash(value.as_bytes()) == cookie.hash
            })
        })
    }

    /// Gives a browser that has the token a cookie, and brings it to the console.
    async fn log_in(&self, guard: &AccessGuard, body: Body) -> Response {
        let read = tokio::time::timeout(FORM_TIME, to_bytes(body, FORM_BYTES)).await;
        let form = read.ok().and_then(Result::ok).unwrap_or_default();
        let sent = form.strip_prefix(b"token=").unwrap_or_default();
        if !self.is_token(sent.trim_ascii()) {
            guard.note_wrong();
            return page(StatusCode::UNAUTHORIZED, "This is not the token.");
        }
        let set = self.cookie.as_ref().and_then(Cookie::set);
        let Some(set) = set else {
            let message =
                "the system gave no random bytes: send the token as `authorization: Bearer TOKEN`";
            return refuse(&ConsoleError::new(503, "no_random_bytes", message));
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SEE_OTHER;
        let headers = response.headers_mut();
        headers.insert(LOCATION, HeaderValue::from_static("/"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(SET_COOKIE, set);
        response
    }
}

impl Cookie {
    fn new(port: u16) -> Option<Self> {
        let mut random = [0_u8; 32];
        let source = rustls::crypto::ring::default_provider().secure_random;
        source.fill(&mut random).ok()?;
        let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self {
            name: format!("plimsoll-admin-{port}"),
            hash: blake3::hash(text.as_bytes()),
            text,
        })
    }

    /// The header that gives it to a browser, until that ends. No script of a page can read it, and no
    /// page of another site has it sent.
    fn set(&self) -> Option<HeaderValue> {
        let Self { name, text, .. } = self;
        let set = format!("{name}={text}; Path=/; HttpOnly; SameSite=Strict");
        HeaderValue::from_str(&set).ok()
    }
}

/// Lets through what may be asked, and answers the rest, even for paths that do not exist.
pub(super) async fn checked(
    State(guard): State<Arc<AccessGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let (path, method) = (request.uri().path(), request.method());
    if FREE.contains(&path) {
        return next.run(request).await;
    }
    let is_page = path == "/" && matches!(*method, Method::GET | Method::HEAD);
    let holder = match &guard.rule {
        Rule::Anybody => return next.run(request).await,
        Rule::Nobody if is_page => return page(StatusCode::FORBIDDEN, UNSET),
        Rule::Nobody => return refuse(&ConsoleError::new(403, "admin_token_unset", UNSET)),
        Rule::Holder(holder) => holder,
    };
    if path == LOGIN && *method == Method::POST {
        return holder.log_in(&guard, request.into_body()).await;
    }
    let message = match holder.proven(request.headers()) {
        Some(true) => return next.run(request).await,
        Some(false) => {
            guard.note_wrong();
            WRONG
        }
        None if is_page => return page(StatusCode::UNAUTHORIZED, ""),
        None => WANTED,
    };
    let mut response = refuse(&ConsoleError::new(401, "admin_token_wanted", message));
    let scheme = HeaderValue::from_static("Bearer realm=\"plimsoll\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    response
}

/// The page in place of the console. It has a form where a token could help.
fn page(status: StatusCode, told: &str) -> Response {
    let form = if status == StatusCode::UNAUTHORIZED {
        "ask"
    } else {
        "tell"
    };
    let page = PAGE.replacen("CLASS", form, 1).replacen("TOLD", told, 1);
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = status;
    let fixed = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        // Without a referrer a browser would send the form without the page's origin.
        (REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}
