//! One call to the upstream: sends it, waits for the first byte and passes the body on. Owns
//! connections, timeouts and retries, which only happen before the first byte. Never reads a body,
//! follows a redirect, keeps a cookie or decompresses.

mod body;
mod client;
mod error;
mod headers;
mod listing;
mod outbound;
mod retry;
mod settings;
mod target;
mod transport;

pub use body::{ResponseBody, Upload};
pub use client::{SetupError, UpstreamClient};
pub use error::{BodyError, UploadFault, UpstreamError};
pub use headers::{OWN_PREFIX, codings, is_sent, to_client, to_next_call, to_upstream, to_view};
pub use listing::{ListingError, MIN_WINDOW};
pub use outbound::{Outbound, Payload};
pub use retry::{LONGEST_WAIT, RetryCause, RetryUntil, retry_after, wait_before};
pub use settings::UpstreamSettings;
pub use target::{BaseUrl, BaseUrlError};
