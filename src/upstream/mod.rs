//! One call to the upstream: sends it, waits for the first byte and passes the body on. Owns
//! connections, timeouts and retries, which only happen before the first byte. Never reads a body,
//! follows a redirect, keeps a cookie or decompresses.

mod body;
mod error;
mod headers;
mod listing;
mod retry;
mod target;

use std::sync::Arc;
use std::time::Duration;

use crate::model::Rope;
use http::{HeaderMap, Method, Response};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::Instant;
use tower::ServiceExt as _;

pub use body::{ResponseBody, Upload};
pub use error::{BodyError, UploadFault, UpstreamError};
pub use headers::{OWN_PREFIX, is_sent, to_client, to_upstream};
pub use listing::ListingError;
pub use retry::{LONGEST_WAIT, RetryCause, retry_after};
pub use target::{BaseUrl, BaseUrlError};

use body::{UploadProgress, WatchedUpload};
use retry::Tries;

/// How many bytes of one answer an HTTP/2 upstream may send ahead of its reader. They wait in
/// memory.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same for all answers on one connection. This is more than they can need together: an answer
/// that nobody reads would otherwise hold up all others on the connection.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Where requests go, and how long they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The base URL for which the proxy's `/v1` stands.
    pub base_url: BaseUrl,
    /// How long connecting may take, including TLS.
    pub connect_timeout: Duration,
    /// How long the upstream may take from the last byte sent to the first byte received.
    pub first_byte_timeout: Duration,
    /// How long a response may be silent.
    pub idle_timeout: Duration,
    /// How often a call is tried again before its first byte.
    pub retries: u32,
    /// Statuses that are retried as well. None by default.
    pub retry_statuses: Vec<u16>,
    /// How many idle connections are kept per host.
    pub pool_idle: usize,
    /// How long an idle connection is kept.
    pub pool_idle_timeout: Duration,
    /// Whether the upstream is asked about models that no table lists.
    pub ask_models: bool,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            base_url: BaseUrl::default(),
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(15 * 60),
            idle_timeout: Duration::from_secs(5 * 60),
            retries: 2,
            retry_statuses: Vec::new(),
            pool_idle: 256,
            pool_idle_timeout: Duration::from_secs(90),
            ask_models: true,
        }
    }
}

/// A request to the upstream. Its headers must have passed [`to_upstream`].
#[derive(Debug)]
pub struct Outbound {
    /// The client's method.
    pub method: Method,
    /// The address, from [`UpstreamClient::target`].
    pub url: Url,
    /// The headers. The connection adds host and length.
    pub headers: HeaderMap,
    /// The body.
    pub payload: Payload,
}

/// The body of a request to the upstream.
#[derive(Debug)]
pub enum Payload {
    /// A body that is held whole, so the request can be sent again.
    Whole(Rope),
    /// A body that is streamed from the client, so the request is sent only once.
    Streamed(Upload),
}

/// Why the client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("can't set up TLS or the resolver: {0}; check the system's certificates")]
pub struct SetupError(#[from] reqwest::Error);

/// The connections to the upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UpstreamClient {
    http: reqwest::Client,
    settings: Arc<UpstreamSettings>,
}

impl UpstreamClient {
    /// Makes the client. Opens no connection yet.
    ///
    /// # Errors
    /// [`SetupError`] if TLS can't be set up.
    pub fn new(settings: UpstreamSettings) -> Result<Self, SetupError> {
        // Installing a second provider fails, which does no harm: the first stays.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder();
        if settings.base_url.is_loopback() {
            // A proxy from the environment can't reach the addresses of this machine.
            http = http.no_proxy();
        }
        let http = http
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(60))
            .connect_timeout(settings.connect_timeout)
            .pool_max_idle_per_host(settings.pool_idle)
            .pool_idle_timeout(settings.pool_idle_timeout)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build()?;
        Ok(Self {
            http,
            settings: Arc::new(settings),
        })
    }

    /// The URL for a client's path.
    ///
    /// # Errors
    /// [`UpstreamError::Path`] if the path would leave the base.
    pub fn target(&self, asked: &http::uri::PathAndQuery) -> Result<Url, UpstreamError> {
        self.settings.base_url.join(asked)
    }

    /// Sends a request and waits for the head of the response. Every answer of the upstream is a
    /// response, even an error, and its headers are not filtered yet. Dropping the future or the
    /// body cancels the request. `told` is called before each retry.
    ///
    /// # Errors
    /// [`UpstreamError`] if no response began after the retries that the settings allow.
    pub async fn send(
        &self,
        outbound: Outbound,
        told: impl FnMut(RetryCause) + Send,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let told = Mutex::new(told);
        let tries = Tries::new(&self.settings, &told);
        let attempt = tower::service_fn(|outbound| self.attempt(outbound));
        tower::retry::Retry::new(tries, attempt)
            .oneshot(outbound)
            .await
    }

    async fn attempt(&self, outbound: Outbound) -> Result<Response<ResponseBody>, UpstreamError> {
        let mut request = reqwest::Request::new(outbound.method, outbound.url);
        *request.headers_mut() = outbound.headers;
        let progress = UploadProgress::new();
        *request.body_mut() = match outbound.payload {
            Payload::Whole(rope) => (!rope.is_empty()).then(|| body::whole(rope)),
            Payload::Streamed(upload) => {
                let watched = WatchedUpload::new(upload, progress.clone());
                Some(reqwest::Body::wrap(watched))
            }
        };
        let mut sending = std::pin::pin!(self.http.execute(request));
        let limit = self.settings.first_byte_timeout;
        // Only silence counts against the upstream, so the time of an upload does not.
        let response = loop {
            let deadline = progress.last() + limit;
            tokio::select! {
                outcome = &mut sending => break outcome.map_err(|error| {
                    // The upstream is not to blame for a body that its sender did not finish.
                    let fault = progress.fault();
                    fault.map_or_else(|| UpstreamError::of(&error), UpstreamError::Upload)
                })?,
                () = tokio::time::sleep_until(deadline) => {
                    // An upload that has moved since postpones the deadline.
                    if progress.last() + limit <= Instant::now() {
                        return Err(UpstreamError::FirstByteTimeout);
                    }
                }
            }
        };
        let idle = self.settings.idle_timeout;
        Ok(Response::<reqwest::Body>::from(response).map(|body| ResponseBody::new(body, idle)))
    }
}
