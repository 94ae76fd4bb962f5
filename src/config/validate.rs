//! From syntax to meaning: each raw setting is read, held to its limits and put in place of the
//! default. Owns all limits; never stops at the first problem.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use globset::Glob;
use toml::Value;

use super::problem::{Origin, Problem};
use super::raw::{RawBudget, RawConfig, RawDelimiter, RawServer, RawStore, RawTools, RawUpstream};
use super::secret::Secret;
use super::settings::{Backend, LogFormat, StoreSettings, TenantKey};
use super::{Config, units};
use crate::commit::Floor;
use crate::intercept::UsageMode;
use crate::pipeline::{
    Budget, Delimiter, Guidance, MIN_CEILING, Mode, ProtectRecent, ToolClasses, Unmet,
};
use crate::upstream::BaseUrl;
use crate::{ingress, upstream};

/// Reads a raw configuration. The problems are those found here; with one, the result is useless.
pub fn validate(raw: RawConfig, origins: &BTreeMap<String, Origin>) -> (Config, Vec<Problem>) {
    let mut check = Check {
        origins,
        problems: Vec::new(),
    };
    let mut config = Config::default();
    check.server(raw.server, &mut config.server);
    check.upstream(raw.upstream, &mut config.upstream);
    check.budget("budget", raw.budget, &mut config.budget);
    check.delimiter(raw.delimiter, &mut config.delimiter);
    check.tools(raw.tools, &mut config.tools);
    check.store(raw.store, &mut config.store);
    check.set("log.level", raw.log.level, &mut config.log.level, log_level);
    check.set(
        "log.format",
        raw.log.format,
        &mut config.log.format,
        |text| {
            word(
                &text,
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            )
        },
    );
    check.set("log.content", raw.log.content, &mut config.log.content, Ok);
    check.set("tenant.key", raw.tenant.key, &mut config.tenant, tenant_key);
    check.set(
        "metrics.models",
        raw.metrics.models,
        &mut config.metrics.models,
        globs,
    );
    check.set(
        "models.families",
        raw.models.families,
        &mut config.models.families,
        |text| Ok((!text.is_empty()).then(|| PathBuf::from(text))),
    );
    for (name, profile) in raw.profiles {
        let mut budget = config.budget.clone();
        check.budget(&format!("profiles.{name}"), profile, &mut budget);
        config.server.profiles.insert(name.clone());
        config.profiles.insert(name, budget);
    }
    (config, check.problems)
}

struct Check<'a> {
    origins: &'a BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn problem(&mut self, key: &str, message: &str) {
        let origin = self.origins.get(key).cloned().unwrap_or(Origin::Default);
        let message = format!("`{key}`: {message}");
        self.problems.push(Problem { origin, message });
    }

    /// Puts a given setting in place of the default, or notes why it can't be.
    fn set<R, T>(
        &mut self,
        key: &str,
        raw: Option<R>,
        slot: &mut T,
        read: impl FnOnce(R) -> Result<T, String>,
    ) {
        match raw.map(read) {
            Some(Ok(value)) => *slot = value,
            Some(Err(message)) => self.problem(key, &message),
            None => {}
        }
    }

    fn server(&mut self, raw: RawServer, server: &mut ingress::Config) {
        self.set("server.listen", raw.listen, &mut server.listen, address);
        self.set("server.admin", raw.admin, &mut server.admin, address);
        self.set(
            "server.body_cap",
            raw.body_cap,
            &mut server.body_cap,
            body_cap,
        );
        self.set("server.drain", raw.drain, &mut server.drain, |text| {
            units::duration(&text)
        });
        self.set(
            "server.max_in_flight",
            raw.max_in_flight,
            &mut server.max_in_flight,
            at_least_one,
        );
        if server.listen == server.admin && server.listen.port() != 0 {
            self.problem("server.admin", "must not be the address of `server.listen`");
        }
    }

    fn upstream(&mut self, raw: RawUpstream, up: &mut upstream::Config) {
        self.set(
            "upstream.base_url",
            raw.base_url,
            &mut up.base_url,
            |text| BaseUrl::parse(&text).map_err(|error| error.to_string()),
        );
        self.set(
            "upstream.connect_timeout",
            raw.connect_timeout,
            &mut up.connect_timeout,
            timeout,
        );
        self.set(
            "upstream.first_byte_timeout",
            raw.first_byte_timeout,
            &mut up.first_byte_timeout,
            timeout,
        );
        self.set(
            "upstream.idle_timeout",
            raw.idle_timeout,
            &mut up.idle_timeout,
            timeout,
        );
        self.set("upstream.retries", raw.retries, &mut up.retries, |n| {
            if n <= 10 {
                Ok(n)
            } else {
                Err("must be at most 10".to_owned())
            }
        });
        self.set(
            "upstream.retry_statuses",
            raw.retry_statuses,
            &mut up.retry_statuses,
            |list| {
                let fits = list
                    .iter()
                    .all(|&status| status == 408 || status == 429 || (500..600).contains(&status));
                if fits {
                    Ok(list)
                } else {
                    Err("may hold 408, 429 and 5xx only".to_owned())
                }
            },
        );
        self.set("upstream.pool_idle", raw.pool_idle, &mut up.pool_idle, Ok);
        self.set(
            "upstream.pool_idle_timeout",
            raw.pool_idle_timeout,
            &mut up.pool_idle_timeout,
            timeout,
        );
    }

    fn budget(&mut self, section: &str, raw: RawBudget, budget: &mut Budget) {
        let key = |name: &str| format!("{section}.{name}");
        self.set(&key("mode"), raw.mode, &mut budget.mode, |text| {
            word(&text, Mode::WORDS)
        });
        self.set(
            &key("ceiling"),
            raw.ceiling,
            &mut budget.ceiling,
            |tokens| {
                if tokens >= MIN_CEILING {
                    Ok(tokens)
                } else {
                    Err(format!("must be at least {MIN_CEILING} tokens"))
                }
            },
        );
        self.set(&key("floor"), raw.floor, &mut budget.floor, floor);
        self.set(
            &key("min_floor"),
            raw.min_floor,
            &mut budget.min_floor,
            fraction,
        );
        self.set(
            &key("protect_recent"),
            raw.protect_recent,
            &mut budget.protect_recent,
            protect_recent,
        );
        self.set(
            &key("implicit_tokens"),
            raw.implicit_tokens,
            &mut budget.implicit_tokens,
            |tokens| {
                if tokens >= 500 {
                    Ok(tokens)
                } else {
                    Err("must be at least 500 tokens".to_owned())
                }
            },
        );
        self.set(&key("unmet"), raw.unmet, &mut budget.unmet, |text| {
            word(
                &text,
                &[("surface", Unmet::Surface), ("refuse", Unmet::Refuse)],
            )
        });
        self.set(
            &key("strict_active"),
            raw.strict_active,
            &mut budget.strict_active,
            Ok,
        );
        if let ProtectRecent::Tokens(tokens) = budget.protect_recent
            && tokens >= budget.ceiling
        {
            self.problem(
                &key("protect_recent"),
                "must be below the ceiling, or nothing could be evicted",
            );
        }
    }

    fn delimiter(&mut self, raw: RawDelimiter, delimiter: &mut Delimiter) {
        self.set("delimiter.enabled", raw.enabled, &mut delimiter.enabled, Ok);
        self.set(
            "delimiter.auto_close",
            raw.auto_close,
            &mut delimiter.auto_close,
            Ok,
        );
        self.set("delimiter.hops", raw.hops, &mut delimiter.hops, |hops| {
            if (1..=64).contains(&hops) {
                Ok(hops)
            } else {
                Err("must be between 1 and 64".to_owned())
            }
        });
        self.set(
            "delimiter.guidance",
            raw.guidance,
            &mut delimiter.guidance,
            guidance,
        );
        self.set(
            "delimiter.heartbeat",
            raw.heartbeat,
            &mut delimiter.heartbeat,
            timeout,
        );
        self.set("delimiter.nudge", raw.nudge, &mut delimiter.nudge, Ok);
        self.set("delimiter.usage", raw.usage, &mut delimiter.usage, |text| {
            word(&text, &[("last", UsageMode::Last), ("sum", UsageMode::Sum)])
        });
        self.set(
            "delimiter.finish_cancelled",
            raw.finish_cancelled,
            &mut delimiter.finish_cancelled,
            Ok,
        );
    }

    fn tools(&mut self, raw: RawTools, tools: &mut ToolClasses) {
        self.set("tools.bulk", raw.bulk, &mut tools.bulk, globs);
        self.set("tools.read", raw.read, &mut tools.read, globs);
        self.set("tools.shell", raw.shell, &mut tools.shell, globs);
        self.set("tools.write", raw.write, &mut tools.write, globs);
    }

    fn store(&mut self, raw: RawStore, store: &mut StoreSettings) {
        self.set("store.backend", raw.backend, &mut store.backend, |text| {
            word(
                &text,
                &[("sled", Backend::Sled), ("memory", Backend::Memory)],
            )
        });
        self.set("store.path", raw.path, &mut store.path, |text| {
            if text.is_empty() {
                Err("must name a directory".to_owned())
            } else {
                Ok(PathBuf::from(text))
            }
        });
        self.set("store.wait", raw.wait, &mut store.wait, |text| {
            units::duration(&text)
        });
        self.set(
            "store.cache_mb",
            raw.cache_mb,
            &mut store.cache_mb,
            |size| {
                if (8..=65_536).contains(&size) {
                    Ok(size)
                } else {
                    Err("must be between 8 and 65536 MiB".to_owned())
                }
            },
        );
    }
}

/// One of a closed set of words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
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
fn address(text: String) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no address; write one like \"127.0.0.1:8787\""))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
fn timeout(text: String) -> Result<Duration, String> {
    let time = units::duration(&text)?;
    if time.is_zero() {
        Err("must be longer than nothing".to_owned())
    } else {
        Ok(time)
    }
}

fn at_least_one(number: usize) -> Result<usize, String> {
    if number >= 1 {
        Ok(number)
    } else {
        Err("must be at least 1".to_owned())
    }
}

fn body_cap(value: Value) -> Result<usize, String> {
    let size = match value {
        Value::Integer(bytes) => {
            usize::try_from(bytes).map_err(|_| "must not be negative".to_owned())?
        }
        Value::String(text) => units::bytes(&text)?,
        _ => return Err("must be bytes, or a size like \"64MiB\"".to_owned()),
    };
    if size >= 1024 {
        Ok(size)
    } else {
        Err("must be at least 1KiB".to_owned())
    }
}

fn fraction(part: f64) -> Result<f64, String> {
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
fn floor(value: Value) -> Result<Floor, String> {
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
fn protect_recent(value: Value) -> Result<ProtectRecent, String> {
    let tokens = value
        .as_integer()
        .and_then(|tokens| u32::try_from(tokens).ok());
    match (value.as_str(), tokens) {
        (Some("auto"), _) => Ok(ProtectRecent::Auto),
        (_, Some(tokens)) => Ok(ProtectRecent::Tokens(tokens)),
        _ => Err("must be \"auto\" or a number of tokens".to_owned()),
    }
}

fn guidance(value: Value) -> Result<Guidance, String> {
    match value {
        Value::Boolean(true) => Ok(Guidance::Standard),
        Value::Boolean(false) => Ok(Guidance::Off),
        Value::String(text) if !text.trim().is_empty() => Ok(Guidance::Text(text)),
        _ => Err("must be true, false or a text".to_owned()),
    }
}

fn globs(list: Vec<String>) -> Result<Vec<String>, String> {
    for pattern in &list {
        Glob::new(pattern).map_err(|error| format!("`{pattern}` is no glob: {}", error.kind()))?;
    }
    Ok(list)
}

fn log_level(text: String) -> Result<String, String> {
    let known = tracing_subscriber::EnvFilter::builder().parse(&text);
    known.map_err(|_| format!("`{text}` is no level; write error, warn, info, debug or trace"))?;
    Ok(text)
}

fn tenant_key(key: Secret) -> Result<TenantKey, String> {
    match key.expose().len() {
        0 => Ok(TenantKey::DataDirectory),
        1..32 => Err("must have at least 32 characters".to_owned()),
        _ => Ok(TenantKey::Given(key)),
    }
}
