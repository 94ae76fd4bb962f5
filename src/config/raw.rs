//! The configuration as it is written: syntax only. Owns the names of all settings; never holds a
//! default or a meaning. What each setting does stands in `config/plimsoll.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

use super::secret::Secret;

/// All sections. A missing setting is `None`; an unknown one is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Listening and limits.
    pub server: RawServer,
    /// Where requests go.
    pub upstream: RawUpstream,
    /// The ceiling and what holds it.
    pub budget: RawBudget,
    /// The hidden tool that marks episodes.
    pub delimiter: RawDelimiter,
    /// The hidden tool that brings back what was evicted.
    pub recall: RawRecall,
    /// What is done for the provider's cache.
    pub cache: RawCache,
    /// Globs on tool names, by class.
    pub tools: RawTools,
    /// Where records are kept.
    pub store: RawStore,
    /// What is logged.
    pub log: RawLog,
    /// How credentials are hashed.
    pub tenant: RawTenant,
    /// What is measured.
    pub metrics: RawMetrics,
    /// Model families.
    pub models: RawModels,
    /// Named overrides of `budget`.
    pub profiles: BTreeMap<String, RawBudget>,
}

/// `[server]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawServer {
    /// Address and port for agents.
    pub listen: Option<Value>,
    /// Address and port for metrics and health.
    pub admin: Option<Value>,
    /// Size of the largest body that is read whole; bytes or text with a unit.
    pub body_cap: Option<Value>,
    /// Bytes that the bodies of all requests may take.
    pub body_budget: Option<Value>,
    /// How long a body may be waited for, whatever came of it.
    pub body_wait: Option<String>,
    /// Bytes of a body that earn it a second more.
    pub body_rate: Option<Value>,
    /// How long a body may be waited for at most.
    pub body_timeout: Option<String>,
    /// How long a client may read nothing of what waits for it.
    pub write_timeout: Option<String>,
    /// Memory of what is remembered between requests; bytes or text with a unit.
    pub cache_memory: Option<Value>,
    /// How long requests may go on after SIGTERM.
    pub drain: Option<String>,
    /// Requests at once.
    pub max_in_flight: Option<usize>,
    /// Further hosts by which the proxy may be asked for.
    pub hosts: Option<Vec<String>>,
    /// Origins of pages that may use the proxy.
    pub origins: Option<Vec<String>>,
}

/// `[upstream]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawUpstream {
    /// What `/v1` of the proxy stands for.
    pub base_url: Option<String>,
    /// Until a connection stands.
    pub connect_timeout: Option<String>,
    /// From the last byte sent to the first received.
    pub first_byte_timeout: Option<String>,
    /// Between two reads of a response.
    pub idle_timeout: Option<String>,
    /// Further tries before the first byte.
    pub retries: Option<u32>,
    /// Statuses that are retried too.
    pub retry_statuses: Option<Vec<u16>>,
    /// Idle connections kept per host.
    pub pool_idle: Option<usize>,
    /// How long an idle connection is kept.
    pub pool_idle_timeout: Option<String>,
    /// Whether the upstream is asked how much a model takes.
    pub ask_models: Option<bool>,
}

/// `[budget]` and each of `[profiles.NAME]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawBudget {
    /// `manage`, `observe` or `off`.
    pub mode: Option<String>,
    /// Tokens.
    pub ceiling: Option<Value>,
    /// `auto`, `ceiling` or a fraction.
    pub floor: Option<Value>,
    /// A fraction.
    pub min_floor: Option<f64>,
    /// `auto` or tokens.
    pub protect_recent: Option<Value>,
    /// Tokens.
    pub implicit_tokens: Option<Value>,
    /// `surface` or `refuse`.
    pub unmet: Option<String>,
    /// The paper's rule for episodes that never end.
    pub strict_active: Option<bool>,
    /// A policy's name.
    pub policy: Option<String>,
    /// `levels` or `paper`.
    pub order: Option<String>,
    /// In profiles only: as in `[delimiter]`.
    pub offer: Option<String>,
    /// In profiles only: as in `[delimiter]`.
    pub guide_at: Option<f64>,
}

/// `[delimiter]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawDelimiter {
    /// Whether the tool is injected.
    pub enabled: Option<bool>,
    /// `start` or `line`.
    pub offer: Option<String>,
    /// A share of the ceiling, 0 included.
    pub guide_at: Option<f64>,
    /// Whether a start closes the open episode.
    pub auto_close: Option<bool>,
    /// Upstream calls in one turn.
    pub hops: Option<u32>,
    /// `true`, `false` or a text.
    pub guidance: Option<Value>,
    /// Silence until a comment is sent.
    pub heartbeat: Option<String>,
    /// Whether results may carry a reminder.
    pub nudge: Option<bool>,
    /// `last` or `sum`.
    pub usage: Option<String>,
    /// Whether a stream is read on when its client has gone.
    pub finish_cancelled: Option<bool>,
}

/// `[recall]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRecall {
    /// Whether the tool is injected.
    pub enabled: Option<bool>,
}

/// `[cache]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawCache {
    /// `auto` or `off`.
    pub breakpoints: Option<String>,
}

/// `[tools]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTools {
    /// Search and listing.
    pub bulk: Option<Vec<String>>,
    /// Reading files.
    pub read: Option<Vec<String>>,
    /// Running commands.
    pub shell: Option<Vec<String>>,
    /// Changing files.
    pub write: Option<Vec<String>>,
    /// How user messages begin that are results.
    pub text_results: Option<Vec<String>>,
    /// An agent whose results come as text.
    pub profile: Option<String>,
}

/// `[store]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawStore {
    /// `sled` or `memory`.
    pub backend: Option<String>,
    /// The data directory.
    pub path: Option<String>,
    /// How long a final frame waits for its record.
    pub wait: Option<String>,
    /// How long a request waits to be found.
    pub read_wait: Option<String>,
    /// MiB.
    pub cache_mb: Option<u32>,
    /// `off`, `asked` or `all`.
    pub content: Option<String>,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawLog {
    /// A level, or directives by module.
    pub level: Option<String>,
    /// `text` or `json`.
    pub format: Option<String>,
}

/// `[tenant]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTenant {
    /// The key of the keyed hash; empty: made in the data directory.
    pub key: Option<Secret>,
    /// Headers that hold credentials.
    pub headers: Option<Vec<String>>,
    /// Parameters of the query that do.
    pub query: Option<Vec<String>>,
    /// Whether a token's claims may stand for it.
    pub claims: Option<bool>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawMetrics {
    /// Globs on the model names that labels may hold.
    pub models: Option<Vec<String>>,
}

/// `[models]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawModels {
    /// A file of further model families; empty: none.
    pub families: Option<String>,
}
