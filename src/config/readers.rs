//! One raw value to one checked value, with a refusal that says what is allowed. Owns the reading
//! of single settings; never knows where a value came from.

use std::net::SocketAddr;
use std::time::Duration;

use globset::Glob;
use toml::Value;

use super::secret::Secret;
use super::settings::TenantKey;
use super::units;
use crate::commit::Floor;
use crate::pipeline::{Guidance, ProtectRecent, caches};

/// One of a closed set of words.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let names: Vec<String> = words
                .iter()
                .map(|(name, _)| format!("\"{name}\""))
                .collect();
            format!("`{text}` is not one of {}", names.join(", "))
        })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
/// An address and port.
pub(super) fn address(text: String) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no address; write one like \"127.0.0.1:8787\""))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
/// A duration above zero.
pub(super) fn timeout(text: String) -> Result<Duration, String> {
    let time = units::duration(&text)?;
    if time.is_zero() {
        Err("must be longer than nothing".to_owned())
    } else {
        Ok(time)
    }
}

/// A count that may not be zero.
pub(super) fn at_least_one(number: usize) -> Result<usize, String> {
    if number >= 1 {
        Ok(number)
    } else {
        Err("must be at least 1".to_owned())
    }
}

/// Bytes, as a number or with a unit.
fn size(value: Value) -> Result<usize, String> {
    match value {
        Value::Integer(bytes) => {
            usize::try_from(bytes).map_err(|_| "must not be negative".to_owned())
        }
        Value::String(text) => units::bytes(&text),
        _ => Err("must be bytes, or a size like \"64MiB\"".to_owned()),
    }
}

/// The memory of all caches.
pub(super) fn cache_memory(value: Value) -> Result<usize, String> {
    let size = size(value)?;
    if size >= caches::LEAST {
        Ok(size)
    } else {
        Err("must be at least 4MiB".to_owned())
    }
}

/// The size of the largest body.
pub(super) fn body_cap(value: Value) -> Result<usize, String> {
    let size = size(value)?;
    if size >= 1024 {
        Ok(size)
    } else {
        Err("must be at least 1KiB".to_owned())
    }
}

/// A fraction in (0, 1].
pub(super) fn fraction(part: f64) -> Result<f64, String> {
    if part > 0.0 && part <= 1.0 {
        Ok(part)
    } else {
        Err("must be a fraction above 0 and at most 1".to_owned())
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
/// The low-water mark.
pub(super) fn floor(value: Value) -> Result<Floor, String> {
    let number = match &value {
        Value::Float(part) => Some(*part),
        Value::Integer(1) => Some(1.0),
        _ => None,
    };
    match (value.as_str(), number) {
        (Some("auto"), _) => Ok(Floor::Auto),
        (Some("ceiling"), _) => Ok(Floor::Ceiling),
        (_, Some(part)) => fraction(part).map(Floor::Fraction),
        _ => Err("must be \"auto\", \"ceiling\" or a fraction above 0 and at most 1".to_owned()),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
/// How much of the tail is protected.
pub(super) fn protect_recent(value: Value) -> Result<ProtectRecent, String> {
    let tokens = value
        .as_integer()
        .and_then(|tokens| u32::try_from(tokens).ok());
    match (value.as_str(), tokens) {
        (Some("auto"), _) => Ok(ProtectRecent::Auto),
        (_, Some(tokens)) => Ok(ProtectRecent::Tokens(tokens)),
        _ => Err("must be \"auto\" or a number of tokens".to_owned()),
    }
}

/// The block that explains `delimiter`.
pub(super) fn guidance(value: Value) -> Result<Guidance, String> {
    match value {
        Value::Boolean(true) => Ok(Guidance::Standard),
        Value::Boolean(false) => Ok(Guidance::Off),
        Value::String(text) if !text.trim().is_empty() => Ok(Guidance::Text(text)),
        _ => Err("must be true, false or a text".to_owned()),
    }
}

/// Globs, each compiled once to see that it is one.
pub(super) fn globs(list: Vec<String>) -> Result<Vec<String>, String> {
    for pattern in &list {
        Glob::new(pattern).map_err(|error| format!("`{pattern}` is no glob: {}", error.kind()))?;
    }
    Ok(list)
}

/// A level or directives, as the subscriber reads them.
pub(super) fn log_level(text: String) -> Result<String, String> {
    let known = tracing_subscriber::EnvFilter::builder().parse(&text);
    known.map_err(|_| format!("`{text}` is no level; write error, warn, info, debug or trace"))?;
    Ok(text)
}

/// A secret long enough to be one; empty means none is given.
pub(super) fn tenant_key(key: Secret) -> Result<TenantKey, String> {
    match key.expose().len() {
        0 => Ok(TenantKey::DataDirectory),
        1..32 => Err("must have at least 32 characters".to_owned()),
        _ => Ok(TenantKey::Given(key)),
    }
}
