//! Asks a process that serves to do something with its store, at its admin port. Owns the request and
//! how an answer is read. Never opens a store.

use anyhow::Context as _;
use http::Method;
use serde_json::Value;

use super::health::{AdminPort, silent};

/// What the process at an admin address answers.
///
/// # Errors
/// If the address is none, if the admin token would leave this machine, if nobody answers there, or what the process
/// refuses.
pub(super) fn ask(
    admin: &str,
    (method, path): (Method, &str),
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let port = AdminPort::proving(None, Some(admin.to_owned()))?;
    let url = port.url(path);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let body = body.map(Value::to_string);
    let (status, text) = runtime
        .block_on(sent(&port, method, path, body))
        .map_err(|_| silent(&url))?;
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
    port: &AdminPort,
    method: Method,
    path: &str,
    body: Option<String>,
) -> reqwest::Result<(http::StatusCode, String)> {
    // No limit: reading a large store takes minutes, and an interrupt ends the command.
    let mut request = port.request(method, path)?;
    if let Some(body) = body {
        request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body);
    }
    let response = request.send().await?;
    Ok((response.status(), response.text().await?))
}
