//! The provider's other paths: models, embeddings, echoes and a slow stream, for pass-through.
//!
//! Owns their bodies. It never judges a request.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use serde_json::{Value, json};

use crate::received::Watch;
use crate::send;
use crate::wire::Step;

/// Answers a request of a path other than Chat Completions:
/// `/v1/models`, `/v1/embeddings`, `/v1/echo` (the request as JSON), `/v1/mirror` (its body as it
/// is), `/v1/slow?pieces=5&every_ms=20` (numbered lines); 404 for the rest.
pub(crate) fn answer(parts: &Parts, body: &Bytes, watch: Watch) -> Response {
    let response = match parts.uri.path() {
        "/v1/models" => send::json(200, models().into()),
        "/v1/embeddings" => send::json(200, embeddings(body).into()),
        "/v1/echo" => send::json(200, echo(parts, body).into()),
        "/v1/mirror" => mirror(parts, body),
        "/v1/slow" => return send::steps(slow(parts), true, 0, watch),
        path => {
            let text = format!("Invalid URL ({} {path})", parts.method);
            send::json(404, send::error(&text).into())
        }
    };
    watch.finish();
    response
}

fn models() -> String {
    let model =
        |id: &str| json!({"id": id, "object": "model", "created": 1, "owned_by": "scripted"});
    json!({"object": "list", "data": [model("scripted-1"), model("scripted-2")]}).to_string()
}

/// Each input is embedded as its length and comes back beside it.
fn embeddings(body: &Bytes) -> String {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let inputs = match request.get("input") {
        Some(Value::Array(inputs)) => inputs.clone(),
        Some(input) => vec![input.clone()],
        None => Vec::new(),
    };
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let length = input.as_str().map_or(0, str::len);
            json!({"object": "embedding", "index": index, "embedding": [length], "input": input})
        })
        .collect();
    let usage = json!({"prompt_tokens": inputs.len(), "total_tokens": inputs.len()});
    json!({"object": "list", "data": data, "model": request.get("model"), "usage": usage})
        .to_string()
}

fn echo(parts: &Parts, body: &Bytes) -> String {
    let headers: Vec<Value> = parts
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    json!({
        "method": parts.method.as_str(),
        "path": parts.uri.path(),
        "query": parts.uri.query(),
        "headers": headers,
        "body": String::from_utf8_lossy(body),
        "bytes": body.len(),
    })
    .to_string()
}

fn mirror(parts: &Parts, body: &Bytes) -> Response {
    let mut response = Response::new(Body::from(body.clone()));
    for name in [http::header::CONTENT_TYPE, http::header::CONTENT_ENCODING] {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn slow(parts: &Parts) -> VecDeque<Step> {
    let query = parts.uri.query().unwrap_or_default();
    let setting = |name: &str, default: u64| {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(default)
    };
    let every = Duration::from_millis(setting("every_ms", 20));
    (0..setting("pieces", 5))
        .flat_map(|piece| {
            let line = Bytes::from(format!("data: {piece}\n\n"));
            [Step::Send(line), Step::Wait(every)]
        })
        .collect()
}
