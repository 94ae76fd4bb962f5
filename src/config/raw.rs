//! The configuration as it is written: syntax only. Owns the names of all settings. Never holds a
//! default or a meaning. `config/plimsoll.toml` says what each setting does.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

use super::profiles::RawProfile;
use super::secret::Secret;

/// All sections. A setting that is missing is `None`, and one that is unknown is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Listening and limits.
    pub server: RawServer,
    /// Who may use the admin listener.
    pub admin: RawAdmin,
    /// Where requests go.
    pub upstream: RawUpstream,
    /// The ceiling and what holds it.
    pub budget: RawBudget,
    /// What passes take last.
    pub keep: RawKeep,
    /// What the policy `admit` clips.
    pub admit: RawAdmit,
    /// How the model's window is parted.
    pub partitions: RawPartitions,
    /// What single policies may touch.
    pub rungs: BTreeMap<String, RawRung>,
    /// The hidden tool that marks episodes.
    pub delimiter: RawDelimiter,
    /// The hidden tool that brings back what was evicted.
    pub recall: RawRecall,
    /// What is done to use the provider's cache.
    pub cache: RawCache,
    /// Globs on the names of tools, by class.
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
    /// What the console shows.
    pub console: RawConsole,
    /// Named sections over those of turns.
    pub profiles: BTreeMap<String, RawProfile>,
}

/// `[server]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawServer {
    /// The address and port for agents.
    pub listen: Option<Value>,
    /// The address and port for metrics and health.
    pub admin: Option<Value>,
    /// The size of the largest body that is read whole, in bytes or with a unit.
    pub body_cap: Option<Value>,
    /// How many bytes the bodies of all requests may take.
    pub body_budget: Option<Value>,
    /// How long any body is waited for.
    pub body_wait: Option<String>,
    /// How many bytes of a body earn it another second.
    pub body_rate: Option<Value>,
    /// How long a body is waited for at most.
    pub body_timeout: Option<String>,
    /// How long a client may read nothing although bytes wait for it.
    pub write_timeout: Option<String>,
    /// How much memory all caches may take, in bytes or with a unit.
    pub cache_memory: Option<Value>,
    /// How long requests may go on after SIGTERM.
    pub drain: Option<String>,
    /// How many requests are served at once.
    pub max_in_flight: Option<usize>,
    /// Further hosts that requests may name.
    pub hosts: Option<Vec<String>>,
    /// Origins of pages that may use the proxy.
    pub origins: Option<Vec<String>>,
}

/// `[admin]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawAdmin {
    /// What is demanded of whoever uses the listener. Nothing if empty.
    pub token: Option<Secret>,
    /// A file with the same. None if empty.
    pub token_file: Option<String>,
}

/// `[upstream]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawUpstream {
    /// The base URL for which the proxy's `/v1` stands.
    pub base_url: Option<String>,
    /// How long connecting may take.
    pub connect_timeout: Option<String>,
    /// How long the upstream may take from the last byte sent to the first byte received.
    pub first_byte_timeout: Option<String>,
    /// How long a response may be silent.
    pub idle_timeout: Option<String>,
    /// How often a call is tried again before its first byte.
    pub retries: Option<u32>,
    /// Statuses that are retried as well.
    pub retry_statuses: Option<Vec<u16>>,
    /// `off`, or how long an upstream that is down is tried again.
    pub retry_for: Option<String>,
    /// How many idle connections are kept per host.
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
    /// Whether the paper's rule holds for episodes that never end.
    pub strict_active: Option<bool>,
    /// `keep_until_refused` or `strip`.
    pub thoughts: Option<String>,
    /// A share.
    pub thought_value: Option<f64>,
    /// Names of policies as a list, or as one text joined by `+`.
    #[serde(alias = "policy")]
    pub policies: Option<Value>,
    /// `levels` or `paper`.
    pub order: Option<String>,
    /// In profiles only. See `[delimiter]`.
    pub offer: Option<String>,
    /// In profiles only. See `[delimiter]`.
    pub guide_at: Option<f64>,
}

/// `[keep]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawKeep {
    /// Tools whose results are kept.
    pub tools: Option<Vec<String>>,
    /// Names of files whose contents are kept.
    pub files: Option<Vec<String>>,
    /// `off`, `last` or `all`.
    pub errors: Option<String>,
    /// Texts by which a result is kept.
    pub texts: Option<Vec<String>>,
    /// How many of the newest results are kept.
    pub newest: Option<usize>,
    /// The largest share of the ceiling that all of it may take.
    pub share: Option<f64>,
}

/// `[admit]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawAdmit {
    /// The largest result that is shown whole, in tokens. 0: no limit.
    pub tokens: Option<Value>,
    /// The largest result that is shown whole, in lines.
    pub lines: Option<u32>,
    /// The largest result that is shown whole, in bytes or with a unit.
    pub bytes: Option<Value>,
    /// Whether results of reads are clipped too.
    pub reads: Option<bool>,
    /// Tools whose results are never clipped.
    pub except: Option<Vec<String>>,
}

/// `[partitions]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawPartitions {
    /// A share of the window.
    pub system: Option<f64>,
    /// A share of the window.
    pub tools: Option<f64>,
    /// A share of the window.
    pub messages: Option<f64>,
    /// A share of the window.
    pub auxiliary: Option<f64>,
    /// A share of the window.
    pub reserve: Option<f64>,
    /// A share of the window.
    pub margin: Option<f64>,
}

/// `[rungs.NAME]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRung {
    /// Tools that it may touch.
    pub tools: Option<Vec<String>>,
    /// Names of files: it may touch calls that name one.
    pub files: Option<Vec<String>>,
    /// `assistant`, `tool`.
    pub roles: Option<Vec<String>>,
    /// A fraction of the ceiling.
    pub floor: Option<f64>,
}

/// `[delimiter]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawDelimiter {
    /// Whether the tool is injected.
    pub enabled: Option<bool>,
    /// `start` or `line`.
    pub offer: Option<String>,
    /// A share of the ceiling. 0 is allowed.
    pub guide_at: Option<f64>,
    /// Whether a start closes the open episode.
    pub auto_close: Option<bool>,
    /// How many upstream calls a turn may have.
    pub hops: Option<u32>,
    /// `true`, `false` or a text.
    pub guidance: Option<Value>,
    /// How long a stream may be silent before a comment is sent.
    pub heartbeat: Option<String>,
    /// Whether results may carry a reminder.
    pub nudge: Option<bool>,
    /// `last` or `sum`.
    pub usage: Option<String>,
    /// Whether a stream is read on after its client has gone.
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
    /// `wait` or `pass`.
    pub none: Option<String>,
    /// `off` or `after_miss`.
    pub diagnose: Option<String>,
}

/// `[tools]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTools {
    /// Tools that search or list.
    pub bulk: Option<Vec<String>>,
    /// Tools that read files.
    pub read: Option<Vec<String>>,
    /// Tools that run commands.
    pub shell: Option<Vec<String>>,
    /// Tools that change files.
    pub write: Option<Vec<String>>,
    /// How user messages begin that are results.
    pub text_results: Option<Vec<String>>,
    /// The agent whose results come as text.
    pub profile: Option<String>,
}

/// `[store]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawStore {
    /// `sled`, `memory` or `redis`.
    pub backend: Option<String>,
    /// The data directory.
    pub path: Option<String>,
    /// The URLs of servers, with commas between.
    pub url: Option<Secret>,
    /// What the names of all keys begin with.
    pub prefix: Option<String>,
    /// How many replicas must have a write.
    pub replicas: Option<u8>,
    /// How long a final frame waits for its record.
    pub wait: Option<String>,
    /// How long a request waits for its look-up.
    pub read_wait: Option<String>,
    /// MiB.
    pub cache_mb: Option<u32>,
    /// Bytes, as a number or with a unit.
    pub answer_cap: Option<Value>,
    /// `off`, `asked` or `all`.
    pub content: Option<String>,
    /// How long records are kept, in days, or `forever`.
    pub keep_records: Option<String>,
    /// How long content is kept, in days, or `forever`.
    pub keep_content: Option<String>,
    /// Bytes, as a number or with a unit; 0 or `unlimited` for no limit.
    pub max_bytes: Option<Value>,
    /// The directory below which a live server writes snapshots. None if empty.
    pub snapshots: Option<String>,
    /// The key under which values are sealed. If empty, they are not.
    pub seal_key: Option<Secret>,
    /// Keys under which values were sealed before, with commas between.
    pub seal_key_previous: Option<Secret>,
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
    /// The key of the keyed hash. If empty, one is made in the data directory.
    pub key: Option<Secret>,
    /// Headers that hold credentials.
    pub headers: Option<Vec<String>>,
    /// Parameters of the query that hold credentials.
    pub query: Option<Vec<String>>,
    /// Whether the claims of a token may stand for it.
    pub claims: Option<bool>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawMetrics {
    /// Globs on the names of models that labels may hold.
    pub models: Option<Vec<String>>,
}

/// `[console]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConsole {
    /// `auto`, `live`, `stored` or `off`.
    pub content: Option<String>,
}

/// `[models]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawModels {
    /// A file with further model families. None if empty.
    pub families: Option<String>,
}
