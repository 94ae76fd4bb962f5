//! Reads one raw value as one checked value, or refuses it and says what is allowed. Owns the
//! reading of single settings, and of a file that one names. Never knows where a value came from.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use globset::Glob;
use plimsoll_core::commit::Floor;
use plimsoll_core::policy::{Ladder, Policy};
use plimsoll_core::turn::sizes::{self, SizeError};
use plimsoll_core::turn::{Guidance, ProtectRecent};
use plimsoll_ingress::AdminToken;
use plimsoll_model::{Globs, caches};
use plimsoll_store::is_redis_url;
use plimsoll_tokens::Models;
use toml::Value;

use super::secret::Secret;
use super::settings::TenantKey;
use super::units;

/// The smallest limit of a store. An empty one takes a good part of it already.
const LEAST_STORE: usize = 64 << 20;

/// Reads one of a closed set of words.
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

/// Reads an address with its port. A port alone and `localhost` mean this machine, so that nothing
/// is opened to a network that was not named.
pub(super) fn address(value: Value) -> Result<SocketAddr, String> {
    let text = match &value {
        Value::Integer(port) => port.to_string(),
        Value::String(text) => text.trim().to_ascii_lowercase(),
        _ => return Err("must be an address like \"127.0.0.1:8787\"".to_owned()),
    };
    // A whole address is tried first, because the end of an IPv6 address looks like a port.
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", &text));
    match (host, port.parse()) {
        ("" | "localhost", Ok(port)) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        _ => Err(format!(
            "`{text}` is not an address; write one like \"{}\", or a port alone for this machine",
            meant(&text).unwrap_or_else(|| "127.0.0.1:8787".to_owned())
        )),
    }
}

/// The address that a text most likely means.
fn meant(text: &str) -> Option<String> {
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
    let bare = bare.split('/').next()?;
    if let Ok(address) = bare.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    let own = |host: &str| match host {
        "*" => Some("0.0.0.0".to_owned()),
        "localhost" => Some("127.0.0.1".to_owned()),
        _ => None,
    };
    if let Some(host) = own(bare) {
        return Some(format!("{host}:8787"));
    }
    if let Ok(host) = bare.trim_matches(['[', ']']).parse::<IpAddr>() {
        // Without brackets, the end of an IPv6 address may be meant as the port.
        let told = bare.rsplit_once(':').filter(|_| !bare.starts_with('['));
        let told = told.and_then(|(host, port)| {
            let host = host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = port.parse::<u16>().ok().filter(|port| *port > 999)?;
            Some(SocketAddr::from((host, port)))
        });
        return Some(told.unwrap_or_else(|| (host, 8787).into()).to_string());
    }
    let (host, port) = bare.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    Some(format!("{}:{port}", own(host)?))
}

/// Reads a duration.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
pub(super) fn duration(text: String) -> Result<Duration, String> {
    units::duration(&text)
}

/// Reads a duration greater than zero.
pub(super) fn timeout(text: String) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        Err("must be greater than zero".to_owned())
    } else {
        Ok(time)
    }
}

/// The longest time for which calls may be tried again. A body is held meanwhile.
const LONGEST_RETRY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads for how long calls are tried again: `off`, or a time.
pub(super) fn retry_for(text: String) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    let time = timeout(text).map_err(|error| format!("{error}; \"off\" never tries for a time"))?;
    if time > LONGEST_RETRY {
        return Err("must be at most \"24h\"".to_owned());
    }
    Ok(Some(time))
}

/// Reads statuses that may pass if a call is tried again.
pub(super) fn retry_statuses(list: Vec<u16>) -> Result<Vec<u16>, String> {
    let may_pass = |&status: &u16| status == 408 || status == 429 || (500..600).contains(&status);
    if list.iter().all(may_pass) {
        Ok(list)
    } else {
        Err("may hold 408, 429 and 5xx only".to_owned())
    }
}

/// Reads a count greater than zero.
pub(super) fn at_least_one(number: usize) -> Result<usize, String> {
    if number >= 1 {
        Ok(number)
    } else {
        Err("must be at least 1".to_owned())
    }
}

/// What one may write for a size: a text, or a number as TOML has it.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // What is neither is refused in the words for any other text.
        number => number.to_string(),
    }
}

/// Reads a number of tokens that is not below `least`.
pub(super) fn at_least(least: u32, value: Value) -> Result<u32, String> {
    in_words(sizes::tokens(&written(&value), least))
}

/// Reads a number of tokens that is 0, for none, or not below `least`.
pub(super) fn none_or(least: u32, value: Value) -> Result<u32, String> {
    match sizes::tokens(&written(&value), 0) {
        Ok(0) => Ok(0),
        _ => at_least(least, value).map_err(|message| format!("{message}, or 0 for no limit")),
    }
}

/// The words for what is wrong with a size.
fn in_words<T>(size: Result<T, SizeError>) -> Result<T, String> {
    size.map_err(|error| error.to_string())
}

/// Reads policies: a list of names, or one text that joins them by `+`.
pub(super) fn ladder(value: Value) -> Result<Ladder, String> {
    let names = match &value {
        Value::String(text) => vec![text.as_str()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let all = value
        .as_array()
        .is_none_or(|list| list.len() == names.len());
    if names.is_empty() || !all {
        return Err("must be names of policies, like [\"repeat\", \"cwl\"]".to_owned());
    }
    Ladder::served(&names.join("+")).map_err(|error| error.to_string())
}

/// Reads the ceiling.
pub(super) fn ceiling(value: Value) -> Result<u32, String> {
    in_words(sizes::ceiling(&written(&value)))
}

/// Reads a number of bytes, as a number or with a unit.
pub(super) fn size(value: Value) -> Result<usize, String> {
    let bytes = match value {
        Value::Integer(bytes) => {
            usize::try_from(bytes).map_err(|_| "must not be negative".to_owned())?
        }
        Value::String(text) => units::bytes(&text)?,
        _ => return Err("must be bytes, or a size like \"64MiB\"".to_owned()),
    };
    if bytes >= 1024 {
        Ok(bytes)
    } else {
        Err("must be at least 1KiB".to_owned())
    }
}

/// Reads how long something is kept.
pub(super) fn age(text: String) -> Result<Option<Duration>, String> {
    if text == "forever" {
        return Ok(None);
    }
    match units::days(&text)? {
        // Within a day nothing is named again, so what is used every day would be removed.
        0 | 1 => Err("must be at least \"2d\", or \"forever\"".to_owned()),
        days => Ok(Some(Duration::from_secs(days * 24 * 60 * 60))),
    }
}

/// Reads how many bytes a store may take.
pub(super) fn store_bytes(value: Value) -> Result<Option<u64>, String> {
    if value == Value::Integer(0) || matches!(value.as_str(), Some("0" | "unlimited")) {
        return Ok(None);
    }
    match size(value) {
        Ok(bytes) if bytes >= LEAST_STORE => Ok(u64::try_from(bytes).ok()),
        Ok(_) => Err("must be at least 64MiB, or \"unlimited\"".to_owned()),
        Err(message) => Err(format!("{message}, or \"unlimited\"")),
    }
}

/// Reads how much one answer may say.
pub(super) fn answer_cap(value: Value) -> Result<usize, String> {
    match size(value)? {
        bytes if bytes >= 64 << 10 => Ok(bytes),
        _ => Err("must be at least 64KiB".to_owned()),
    }
}

/// Reads the memory of the backend's cache, in MiB.
pub(super) fn store_cache(size: u32) -> Result<u32, String> {
    match size {
        8..=65_536 => Ok(size),
        _ => Err("must be between 8 and 65536 MiB".to_owned()),
    }
}

/// Reads the memory of all caches.
pub(super) fn cache_memory(value: Value) -> Result<usize, String> {
    let size = size(value)?;
    if size >= caches::LEAST {
        Ok(size)
    } else {
        Err("must be at least 4MiB".to_owned())
    }
}

/// Reads a fraction in (0, 1].
pub(super) fn fraction(part: f64) -> Result<f64, String> {
    in_words(sizes::fraction(part))
}

/// Reads a share of something, which may be none of it.
pub(super) fn share(part: f64) -> Result<f64, String> {
    in_words(sizes::within(part))
}

/// Reads when the guidance comes in.
pub(super) fn guide_at(share: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(
            "must be a share of the budget from 0 (the first request) to 1 (the first pass)"
                .to_owned(),
        )
    }
}

/// Reads the floor.
pub(super) fn floor(value: Value) -> Result<Floor, String> {
    in_words(sizes::floor(&written(&value)))
}

/// Reads how much of the tail is protected.
pub(super) fn protect_recent(value: Value) -> Result<ProtectRecent, String> {
    if value.as_str() == Some("auto") {
        return Ok(ProtectRecent::Auto);
    }
    at_least(0, value)
        .map(ProtectRecent::Tokens)
        .map_err(|message| format!("{message}, or \"auto\""))
}

/// Reads the block that explains `delimiter`.
pub(super) fn guidance(value: Value) -> Result<Guidance, String> {
    match value {
        Value::Boolean(true) => Ok(Guidance::Standard),
        Value::Boolean(false) => Ok(Guidance::Off),
        Value::String(text) if !text.trim().is_empty() => Ok(Guidance::Text(text)),
        _ => Err("must be true, false or a text".to_owned()),
    }
}

/// Reads globs. Each one is compiled to check it.
pub(super) fn globs(list: Vec<String>) -> Result<Vec<String>, String> {
    for pattern in &list {
        Glob::new(pattern)
            .map_err(|error| format!("`{pattern}` is not a glob: {}", error.kind()))?;
    }
    Ok(list)
}

/// Reads globs on names, and compiles them.
pub(super) fn name_globs(list: Vec<String>) -> Result<Globs, String> {
    Globs::new(&list).map_err(|error| error.to_string())
}

/// Reads names of files.
pub(super) fn file_names(names: Vec<String>) -> Result<Vec<String>, String> {
    if names.iter().any(String::is_empty) {
        Err("a name of a file must not be empty".to_owned())
    } else {
        Ok(names)
    }
}

/// Reads the name of a policy that can have a filter.
pub(super) fn rung_policy(name: &str) -> Result<Policy, String> {
    let may = |policy: &&Policy| **policy != Policy::Keep && **policy != Policy::None;
    let policies = || Policy::SERVED.iter().filter(may);
    policies()
        .find(|policy| policy.name() == name)
        .copied()
        .ok_or_else(|| {
            let names: Vec<String> = policies()
                .map(|policy| format!("\"{}\"", policy.name()))
                .collect();
            format!("`{name}` is not one of {}", names.join(", "))
        })
}

/// Reads the path of a file of model families, and checks the file. Empty means that there is none.
pub(super) fn families(text: String) -> Result<Option<PathBuf>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(text);
    let table = std::fs::read_to_string(&path)
        .map_err(|error| format!("can't read {}: {error}", path.display()))?;
    Models::parse(&table).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some(path))
}

/// Reads a secret that is long enough. Empty means that none is given.
pub(super) fn tenant_key(key: Secret) -> Result<TenantKey, String> {
    match key.expose().len() {
        0 => Ok(TenantKey::DataDirectory),
        1..32 => Err("must have at least 32 characters".to_owned()),
        _ => Ok(TenantKey::Given(key)),
    }
}

/// Reads a key that seals what is stored. Empty means that nothing is sealed.
pub(super) fn seal_key(key: Secret) -> Result<Option<Secret>, String> {
    Ok(match tenant_key(key)? {
        TenantKey::Given(key) => Some(key),
        TenantKey::DataDirectory => None,
    })
}

/// Reads the token of the admin listener. Empty means that there is none. Who writes a secret into a file
/// most often ends it with a line break.
pub(super) fn admin_token(token: Secret) -> Result<Option<AdminToken>, String> {
    let token = Secret::new(token.expose().trim());
    if !token.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("is sent in a header, so it must have no spaces and ASCII alone".to_owned());
    }
    Ok(seal_key(token)?.map(|token| AdminToken::new(token.expose())))
}

/// Reads the key of callers of `[compress]`. Empty means that there is none.
pub(super) fn caller_key(key: Secret) -> Result<Option<Secret>, String> {
    let token = admin_token(key)?;
    Ok(token.map(|token| Secret::new(token.expose())))
}

/// Reads keys that name their tenants, like `team=KEY`, with commas between them. A key is never shown.
pub(super) fn caller_keys(keys: Secret) -> Result<Vec<(String, Secret)>, String> {
    let pairs = keys.expose().split(',').map(str::trim);
    let pair = |pair: &str| {
        let (tenant, key) = pair.split_once('=').unwrap_or_default();
        let key = caller_key(Secret::new(key)).map_err(|told| format!("each key {told}"))?;
        key.filter(|_| !tenant.is_empty())
            .map(|key| (tenant.to_owned(), key))
            .ok_or_else(|| {
                "must be pairs of a tenant and its key, like \"team=KEY,other=KEY\"".to_owned()
            })
    };
    pairs.filter(|pair| !pair.is_empty()).map(pair).collect()
}

/// Reads an address, or none.
pub(super) fn listen_or_none(value: Value) -> Result<Option<SocketAddr>, String> {
    match value.as_str() {
        Some("") => Ok(None),
        _ => address(value).map(Some),
    }
}

/// Reads the name of a header.
pub(super) fn header_name(name: String) -> Result<http::HeaderName, String> {
    let name = name.trim().to_ascii_lowercase();
    http::HeaderName::try_from(name)
        .map_err(|_| "must be the name of a header, like \"x-plimsoll-tenant\"".to_owned())
}

/// Reads the token of the admin listener from a file. Empty means that there is no file.
pub(super) fn admin_token_file(path: String) -> Result<Option<AdminToken>, String> {
    if path.is_empty() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("can't read {path}: {error}"))?;
    match admin_token(Secret::new(text)) {
        Ok(None) => Err(format!("{path} is empty; write a token into it")),
        Ok(token) => Ok(token),
        Err(told) => Err(format!("the token in {path} {told}")),
    }
}

/// Reads keys with commas between them.
pub(super) fn seal_keys(keys: Secret) -> Result<Vec<Secret>, String> {
    let keys = keys.expose().split(',').map(str::trim).map(Secret::new);
    let keys: Result<Vec<_>, String> = keys.map(seal_key).collect();
    let keys = keys.map_err(|told| format!("each key {told}"))?;
    Ok(keys.into_iter().flatten().collect())
}

/// Reads the URLs of servers, with commas between them. What is wrong with one is said without
/// showing it, because it may hold a password.
pub(super) fn server_urls(urls: Secret) -> Result<Vec<Secret>, String> {
    let urls = urls.expose().split(',').map(str::trim);
    let urls: Vec<&str> = urls.filter(|url| !url.is_empty()).collect();
    match urls.iter().position(|url| !is_redis_url(url)) {
        Some(at) => Err(format!(
            "number {} is not a URL like redis://user:password@host:6379/0, or rediss:// for TLS",
            at + 1
        )),
        None => Ok(urls.into_iter().map(Secret::new).collect()),
    }
}

/// Reads what the names of keys begin with.
pub(super) fn key_prefix(prefix: String) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(allowed) {
        Ok(prefix)
    } else {
        Err("must have 1 to 64 letters, digits or any of - _ . :".to_owned())
    }
}
