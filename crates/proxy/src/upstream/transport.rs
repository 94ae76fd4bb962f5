//! The HTTP client that carries a call. Owns which one that is, and the settings of its connections.
//! Never reads a body.
//!
//! An upstream without TLS and without a proxy before it is reached by hyper's client, whose reads can be
//! bounded. All else goes by reqwest: a read by HTTP/1 over TLS is a record, of at most 16 KB, by HTTP/2 the
//! window is the bound, and reqwest knows proxies.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, HeaderValue};
use http::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Body;
use tokio::net::TcpStream;
use tower::timeout::Timeout;
use tower::util::{BoxCloneSyncService, MapRequest, MapRequestLayer};

use super::error::UpstreamError;
use super::settings::UpstreamSettings;
use super::target::BaseUrl;

/// How many bytes of one answer a plain HTTP/1 upstream may send ahead of its reader, and how many the head
/// of an answer may have. They wait in memory. A long body that is sent is also written by so many bytes.
///
/// Hyper's default is 408 KiB, with which a flood of a thousand answers takes more than twice as much memory.
const BUFFER_BYTES: usize = 64 << 10;

/// How many bytes of one answer an HTTP/2 upstream may send ahead of its reader. They wait in
/// memory.
const STREAM_WINDOW: u32 = 256 << 10;

/// How many bytes all answers on one connection may have ahead of their readers. This is more than they can need
/// together: an answer that nobody reads would otherwise hold up all others on the connection.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A connection that is silent for so long is probed.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How often it is probed before it counts as lost, and at what interval.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// A connection breaks if the other side has not acknowledged bytes for so long.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// A kept connection that dies so soon after a call went out was dead before, and the upstream never saw the
/// call. Later, it may have been at work on it.
const DEAD_AT_ONCE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Whether a connection was begun for the call in hand. If none was, it goes by one that was kept.
    static DIALED: Cell<bool>;
}

/// Notes that a connection is begun. It is made by the task that needs it, unless another call does first.
fn dialed<R>(request: R) -> R {
    let _by_nobody = DIALED.try_with(|dialed| dialed.set(true));
    request
}

/// Makes a connection without TLS.
type PlainConnector = BoxCloneSyncService<Uri, TokioIo<TcpStream>, tower::BoxError>;

/// Carries calls to the upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Transport {
    /// HTTP/1 without TLS, straight to the upstream.
    Plain(Arc<Client<PlainConnector, Body>>),
    /// TLS, a proxy, or both.
    Reqwest(reqwest::Client),
}

impl Transport {
    /// Makes the client. Opens no connection yet.
    ///
    /// # Errors
    /// Any of reqwest, if TLS can't be set up.
    pub(super) fn new(settings: &UpstreamSettings, proxies: &Matcher) -> reqwest::Result<Self> {
        let base = &settings.base_url;
        // A proxy from the environment can't reach the addresses of this machine.
        let direct = base.is_loopback() || !intercepted(base, proxies);
        if base.is_plain() && direct {
            return Ok(Self::Plain(Arc::new(plain(settings))));
        }
        // Installing a second provider fails, which does no harm: the first stays.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder();
        if direct {
            http = http.no_proxy();
        }
        #[cfg(target_os = "linux")]
        {
            http = http.tcp_user_timeout(UNACKNOWLEDGED);
        }
        let http = http
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .tcp_nodelay(true)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(PROBE_INTERVAL)
            .tcp_keepalive_retries(PROBES)
            .connect_timeout(settings.connect_timeout)
            .connector_layer(MapRequestLayer::new(dialed))
            .pool_max_idle_per_host(settings.pool_idle)
            .pool_idle_timeout(settings.pool_idle_timeout)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build()?;
        Ok(Self::Reqwest(http))
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// [`UpstreamError`] if no response began.
    pub(super) async fn execute(
        &self,
        request: reqwest::Request,
    ) -> Result<Response<Body>, UpstreamError> {
        let begun = Instant::now();
        let answered = DIALED.scope(Cell::new(false), async {
            let outcome = self.exchange(request).await;
            let was_kept = !DIALED.with(Cell::get);
            outcome.map_err(|error| {
                if was_kept && begun.elapsed() <= DEAD_AT_ONCE {
                    error
                } else {
                    error.of_busy_connection()
                }
            })
        });
        answered.await
    }

    async fn exchange(&self, request: reqwest::Request) -> Result<Response<Body>, UpstreamError> {
        match self {
            Self::Plain(client) => {
                let request = Request::<Body>::try_from(request);
                let mut request = request.map_err(|error| UpstreamError::of(&error))?;
                // So does reqwest, and the upstream sees the same request from both.
                let any = HeaderValue::from_static("*/*");
                request.headers_mut().entry(ACCEPT).or_insert(any);
                let response = client.request(request).await;
                let response = response.map_err(|error| UpstreamError::of_plain(&error))?;
                Ok(response.map(Body::wrap))
            }
            Self::Reqwest(client) => {
                let response = client.execute(request).await;
                let response = response.map_err(|error| UpstreamError::of(&error))?;
                Ok(response.into())
            }
        }
    }
}

/// Whether a proxy stands before the upstream.
fn intercepted(base: &BaseUrl, proxies: &Matcher) -> bool {
    let uri: Result<Uri, _> = base.as_str().parse();
    uri.is_ok_and(|uri| proxies.intercept(&uri).is_some())
}

fn plain(settings: &UpstreamSettings) -> Client<PlainConnector, Body> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(PROBE_INTERVAL));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    // This limit is shared out among the addresses of a host, so that the second is tried too. The one around
    // it also holds for the look-up of the host.
    tcp.set_connect_timeout(Some(settings.connect_timeout));
    let connector = Timeout::new(tcp, settings.connect_timeout);
    over(settings, BoxCloneSyncService::new(connector))
}

/// A client over connections that something makes.
fn over(settings: &UpstreamSettings, connector: PlainConnector) -> Client<PlainConnector, Body> {
    let connector = BoxCloneSyncService::new(MapRequest::new(connector, dialed));
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.pool_idle_timeout)
        .pool_max_idle_per_host(settings.pool_idle)
        .http1_max_buf_size(BUFFER_BYTES)
        .build(connector)
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::Method;
    use reqwest::Url;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    /// Whether calls to an address go by hyper's client, where the environment names a proxy or none.
    fn is_plain(base: &str, proxies: &Matcher) -> bool {
        let settings = UpstreamSettings {
            base_url: BaseUrl::parse(base).unwrap(),
            ..UpstreamSettings::default()
        };
        matches!(
            Transport::new(&settings, proxies).unwrap(),
            Transport::Plain(_)
        )
    }

    #[test]
    fn only_what_goes_straight_and_without_tls_is_bounded_here() {
        let none = Matcher::builder().build();
        let some = Matcher::builder().all("http://proxy:3128").no("inside");
        let some = some.build();
        let https = Matcher::builder().https("http://proxy:3128").build();
        for (base, without, with) in [
            ("http://127.0.0.1:8000/v1", true, true),
            ("http://localhost/v1", true, true),
            ("http://[::1]:8000/v1", true, true),
            ("http://models:8000/v1", true, false),
            ("http://inside:8000/v1", true, true),
            ("https://models/v1", false, false),
            ("https://127.0.0.1/v1", false, false),
        ] {
            assert_eq!(is_plain(base, &none), without, "{base}");
            assert_eq!(is_plain(base, &https), without, "{base}");
            assert_eq!(is_plain(base, &some), with, "{base}");
        }
    }

    /// What a call comes to whose connection something makes.
    async fn called(connector: PlainConnector) -> UpstreamError {
        let client = over(&UpstreamSettings::default(), connector);
        let url = Url::parse("http://models/v1").unwrap();
        let transport = Transport::Plain(Arc::new(client));
        let request = reqwest::Request::new(Method::GET, url);
        transport.execute(request).await.unwrap_err()
    }

    #[tokio::test]
    async fn connections_that_fail_say_whether_they_came_late() {
        type Made = Result<TokioIo<TcpStream>, io::Error>;
        let silent = service_fn(|_: Uri| std::future::pending::<Made>());
        let silent = Timeout::new(silent, Duration::from_millis(10));
        let late = called(BoxCloneSyncService::new(silent)).await;
        assert!(matches!(late, UpstreamError::ConnectTimeout), "{late}");

        let told = |kind: io::ErrorKind| {
            let told = service_fn(move |_: Uri| async move { Made::Err(kind.into()) });
            called(BoxCloneSyncService::new(
                told.map_err(tower::BoxError::from),
            ))
        };
        let late = told(io::ErrorKind::TimedOut).await;
        assert!(matches!(late, UpstreamError::ConnectTimeout), "{late}");
        let refused = told(io::ErrorKind::ConnectionRefused).await;
        let UpstreamError::Connect { cause } = refused else {
            panic!("{refused}")
        };
        assert_eq!(cause, "connection refused");
    }
}
