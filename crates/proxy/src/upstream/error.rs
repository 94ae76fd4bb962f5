//! Why an upstream gave no response. Owns the causes and their messages. Never holds the query of a
//! URL, a header or a body, because these carry keys and content.

use std::error::Error;
use std::{io, iter};

use tower::timeout::error::Elapsed;

/// Why no response came from the upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The path can't be put under the base URL.
    #[error("the path can't be forwarded; send it without `.` or `..` segments")]
    Path,
    /// There was no connection: it was refused, the host is unknown or unreachable, or TLS failed.
    #[error("can't connect to the upstream ({cause}); check upstream.base_url and the network")]
    Connect {
        /// What the system or TLS reported.
        cause: String,
    },
    /// There was no connection within `upstream.connect_timeout`.
    #[error(
        "the upstream did not accept a connection in time; try again, or raise upstream.connect_timeout"
    )]
    ConnectTimeout,
    /// No byte came within `upstream.first_byte_timeout`.
    #[error("the upstream sent nothing in time; try again, or raise upstream.first_byte_timeout")]
    FirstByteTimeout,
    /// The client's own body failed while it was sent.
    #[error(transparent)]
    Upload(UploadFault),
    /// The connection broke, or something other than HTTP came, before a response began.
    #[error("the upstream broke off before it answered ({cause}); try again")]
    Broken {
        /// What the connection reported.
        cause: String,
    },
    /// A connection that earlier calls had used ended as soon as this one went out, and no answer came.
    #[error("the upstream closed an idle connection ({cause}); try again")]
    Dropped {
        /// What the connection reported.
        cause: String,
    },
}

impl UpstreamError {
    /// Classifies an error of reqwest. Keeps only the innermost cause, because the client's own text
    /// names the URL.
    pub(super) fn of(error: &reqwest::Error) -> Self {
        if error.is_builder() {
            return Self::Path;
        }
        Self::told(error, error.is_connect(), error.is_timeout())
    }

    /// Classifies an error of hyper's client.
    pub(super) fn of_plain(error: &hyper_util::client::legacy::Error) -> Self {
        let late = causes(error).any(|cause| {
            let system = cause.downcast_ref::<io::Error>();
            cause.is::<Elapsed>() || system.is_some_and(|it| it.kind() == io::ErrorKind::TimedOut)
        });
        Self::told(error, error.is_connect(), late)
    }

    fn told(error: &(dyn Error + 'static), connecting: bool, late: bool) -> Self {
        match (connecting, late) {
            (true, true) => Self::ConnectTimeout,
            (true, false) => Self::Connect { cause: root(error) },
            (false, _) if causes(error).any(is_end) => Self::Dropped { cause: root(error) },
            (false, _) => Self::Broken { cause: root(error) },
        }
    }

    /// This error where the connection may have died of something else than its idleness.
    pub(super) fn of_busy_connection(self) -> Self {
        match self {
            Self::Dropped { cause } => Self::Broken { cause },
            other => other,
        }
    }
}

/// Why a client's body stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadFault {
    /// The client broke off, or did not send a valid body.
    #[error("the body did not arrive whole; send it again")]
    Broken,
    /// The client sent too slowly.
    #[error(
        "the body came too slowly; send it faster, or raise server.body_wait or server.body_timeout"
    )]
    Late,
}

/// Why a response's body stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Nothing came within `upstream.idle_timeout`.
    #[error(
        "the upstream fell silent in the middle of its answer; raise upstream.idle_timeout if that is normal"
    )]
    Idle,
    /// Nothing of the answer itself came behind its head within `upstream.first_byte_timeout`.
    #[error(
        "the upstream began an answer and said nothing in time; raise upstream.first_byte_timeout if that is normal"
    )]
    Unbegun,
    /// It is not packed as its headers say.
    #[error("the upstream's answer is not packed as its content-encoding says")]
    Coding,
    /// The connection broke in the middle.
    #[error("the upstream broke off in the middle of its answer ({cause})")]
    Cut {
        /// What the connection reported.
        cause: String,
    },
}

impl BodyError {
    pub(super) fn cut(error: &reqwest::Error) -> Self {
        Self::Cut { cause: root(error) }
    }
}

/// Whether a cause says that the connection ended, and not that something came which is no answer.
fn is_end(cause: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
    };
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    }
    let ends = [
        BrokenPipe,
        ConnectionAborted,
        ConnectionReset,
        NotConnected,
        UnexpectedEof,
    ];
    let system = cause.downcast_ref::<io::Error>();
    system.is_some_and(|error| ends.contains(&error.kind()))
}

/// What an error says of its causes, the outermost first.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(error.source(), |&cause| cause.source())
}

/// The innermost cause, which names neither a URL nor a header.
fn root(error: &(dyn Error + 'static)) -> String {
    let cause = causes(error).last().map(ToString::to_string);
    cause.unwrap_or_else(|| "connection failed".to_owned())
}
