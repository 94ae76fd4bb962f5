//! Asks a process that serves to do something with its store, at its admin port. Owns the request and
//! how an answer is read. Never opens a store.

use anyhow::Context as _;
use http::Method;
use serde_json::Value;

use super::health::reached_at;
use super::serve;
use crate::config::{Config, Flags};

/// What the process at an admin address answers.
///
/// # Errors
/// If the address is none, if nobody answers there, or what the process refuses.
pub(super) fn ask(
    admin: &str,
    (method, path): (Method, &str),
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let flags = Flags {
        admin: Some(admin.to_owned()),
        ..Flags::default()
    };
    let config = Config::load(&flags, serve::variables())?;
    let url = format!("http://{}{path}", reached_at(config.server.admin));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let body = body.map(Value::to_string);
    let (status, text) = runtime
        .block_on(sent(method, &url, body))
        .with_context(|| {
            format!("{url} does not answer: give the admin address of the process that serves")
        })?;
    let answer: Value = serde_json::from_str(&text)
        .with_context(|| format!("{url} is no admin port of plimsoll: it answered {status}"))?;
    if status.is_success() {
        return Ok(answer);
    }
    let message = answer.pointer("/error/message").and_then(Value::as_str);
    anyhow::bail!(
        "{}",
        message.unwrap_or("the process refused and did not say why")
    )
}

async fn sent(
    method: Method,
    url: &str,
    body: Option<String>,
) -> reqwest::Result<(http::StatusCode, String)> {
    // No limit: reading a large store takes minutes, and an interrupt ends the command.
    let mut request = super::health::client()?.request(method, url);
    if let Some(body) = body {
        request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body);
    }
    let response = request.send().await?;
    Ok((response.status(), response.text().await?))
}
