//! Errors of the proxy's own, before a format gives them its shape.

use bytes::Bytes;
use plimsoll_model::raw;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSide {
    /// The caller's.
    Caller,
    /// The upstream's, in the middle of an answer.
    Upstream,
    /// The server's, the proxy's or the upstream's.
    Server,
}

/// An error of the proxy's own.
#[derive(Clone, Copy, Debug)]
pub struct ErrorText<'a> {
    /// The HTTP status that it goes with.
    pub status: u16,
    /// Whose fault it is.
    pub side: ErrorSide,
    /// What went wrong and what to do about it.
    pub message: &'a str,
    /// The part of the request that it is about.
    pub param: Option<&'a str>,
    /// A word for programs.
    pub code: &'a str,
}

/// An error in the shape of Chat Completions and Responses.
pub fn openai_error(error: &ErrorText<'_>) -> Bytes {
    let kind = match error.side {
        ErrorSide::Caller => "invalid_request_error",
        ErrorSide::Upstream => "upstream_error",
        ErrorSide::Server => "server_error",
    };
    let (message, code) = (raw::quote(error.message), raw::quote(error.code));
    let param = error.param.map_or_else(|| "null".to_owned(), raw::quote);
    Bytes::from(format!(
        r#"{{"error":{{"message":{message},"type":"{kind}","param":{param},"code":{code}}}}}"#
    ))
}
