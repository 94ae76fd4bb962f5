//! The calls to the upstream: sends a request and waits for the first byte. Owns when a call is given up
//! or made again. Never reads a body, follows a redirect, keeps a cookie or decompresses.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, Response};
use hyper_util::client::proxy::matcher::Matcher;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::body::{self, ResponseBody, UploadProgress, WatchedUpload};
use super::error::UpstreamError;
use super::headers::codings;
use super::outbound::{Outbound, Payload};
use super::retry::{Call, RetryCause, RetryUntil, Tries};
use super::settings::UpstreamSettings;
use super::transport::Transport;

/// The header that stands beside the token of a ChatGPT login, and beside no key.
const CHATGPT_ACCOUNT: &str = "chatgpt-account-id";

/// Why the client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("can't set up TLS or the resolver: {0}; check the system's certificates")]
pub struct SetupError(#[from] reqwest::Error);

/// The connections to the upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UpstreamClient {
    transport: Transport,
    /// Makes a connection for each call. Set up when one is first needed, and absent if that fails.
    anew: Arc<OnceLock<Option<Transport>>>,
    settings: Arc<UpstreamSettings>,
}

impl UpstreamClient {
    /// Makes the client. Opens no connection yet.
    ///
    /// # Errors
    /// [`SetupError`] if TLS can't be set up.
    pub fn new(settings: UpstreamSettings) -> Result<Self, SetupError> {
        let transport = Transport::new(&settings, &Matcher::from_env())?;
        Ok(Self {
            transport,
            anew: Arc::default(),
            settings: Arc::new(settings),
        })
    }

    /// How long an upstream that is down is tried again, if that has a time of its own.
    #[must_use]
    pub fn retry_time(&self) -> Option<Duration> {
        self.settings.retry_for
    }

    /// Whether a request carries the token of a ChatGPT login, and would show it to the OpenAI API. Without
    /// the proxy its client sends it to ChatGPT alone.
    #[must_use]
    pub fn is_misled(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(CHATGPT_ACCOUNT) && self.settings.base_url.is_openai()
    }

    /// The URL for a client's path.
    ///
    /// # Errors
    /// [`UpstreamError::Path`] if the path would leave the base.
    pub fn target(&self, asked: &http::uri::PathAndQuery) -> Result<Url, UpstreamError> {
        self.settings.base_url.join(asked)
    }

    /// Until when calls that begin now are tried again, if the settings give that a time.
    #[must_use]
    pub fn retry_until(&self) -> RetryUntil {
        self.retry_time().map(|time| Instant::now() + time)
    }

    /// Sends a request and waits for the head of the response. Every answer of the upstream is a
    /// response, even an error, and its headers are not filtered yet. Dropping the future or the
    /// body cancels the request. Several calls may share the time for retries, which ends at `until`
    /// ([`Self::retry_until`]). `told` is called before each retry.
    ///
    /// # Errors
    /// [`UpstreamError`] if no response began after the retries that the settings allow.
    pub async fn send(
        &self,
        outbound: Outbound,
        until: RetryUntil,
        told: impl FnMut(RetryCause) + Send,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let told = Mutex::new(told);
        let tries = Tries::new(&self.settings, until, &told);
        let attempt = tower::service_fn(|call: Call| {
            let transport = if call.anew {
                self.anew()
            } else {
                &self.transport
            };
            self.attempt_by(transport, call.outbound)
        });
        let call = Call {
            outbound,
            anew: false,
        };
        tower::retry::Retry::new(tries, attempt).oneshot(call).await
    }

    /// The client that keeps no connections.
    fn anew(&self) -> &Transport {
        let made = self.anew.get_or_init(|| {
            let settings = UpstreamSettings {
                pool_idle: 0,
                ..UpstreamSettings::clone(&self.settings)
            };
            Transport::new(&settings, &Matcher::from_env()).ok()
        });
        made.as_ref().unwrap_or(&self.transport)
    }

    pub(super) async fn attempt(
        &self,
        outbound: Outbound,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        self.attempt_by(&self.transport, outbound).await
    }

    async fn attempt_by(
        &self,
        transport: &Transport,
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
        let mut sending = std::pin::pin!(transport.execute(request));
        let limit = self.settings.first_byte_timeout;
        // Only silence counts against the upstream, so the time of an upload does not.
        let response = loop {
            let deadline = progress.last() + limit;
            tokio::select! {
                outcome = &mut sending => break outcome.map_err(|error| {
                    // The upstream is not to blame for a body that its sender did not finish.
                    let fault = progress.fault();
                    fault.map_or(error, UpstreamError::Upload)
                })?,
                () = tokio::time::sleep_until(deadline) => {
                    // An upload that has moved since postpones the deadline.
                    if progress.last() + limit <= Instant::now() {
                        return Err(UpstreamError::FirstByteTimeout);
                    }
                }
            }
        };
        let packed = !codings(response.headers()).is_empty();
        Ok(response.map(|body| ResponseBody::new(body, packed, &self.settings)))
    }
}
