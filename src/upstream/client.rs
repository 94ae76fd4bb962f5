//! The connections to the upstream: sends a request and waits for the first byte. Owns connections
//! and timeouts. Never reads a body, follows a redirect, keeps a cookie or decompresses.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::body::{self, ResponseBody, UploadProgress, WatchedUpload};
use super::error::UpstreamError;
use super::outbound::{Outbound, Payload};
use super::retry::{RetryCause, Tries};
use super::settings::UpstreamSettings;

/// How many bytes of one answer an HTTP/2 upstream may send ahead of its reader. They wait in
/// memory.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same for all answers on one connection. This is more than they can need together: an answer
/// that nobody reads would otherwise hold up all others on the connection.
const CONNECTION_WINDOW: u32 = 1 << 30;

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
            if settings.base_url.is_plain() {
                // Nothing is encrypted, so a system without certificates will do.
                http = http.tls_certs_only([]);
            }
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

    pub(super) async fn attempt(
        &self,
        outbound: Outbound,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
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
