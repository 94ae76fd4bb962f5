//! The validated settings that no module of the edge owns, and their defaults. Owns shapes and
//! defaults; never reads a file or a variable.

use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use crate::pipeline::Mode;

/// The smallest ceiling that is accepted, in tokens.
pub use crate::pipeline::MIN_CEILING;

/// The ceiling, the floor and the rules of eviction.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// What is done with a conversation whose request names no mode.
    pub mode: Mode,
    /// The token budget that a request to the upstream may not exceed; at least [`MIN_CEILING`].
    pub ceiling: u32,
    /// Down to where a pass evicts.
    pub floor: Floor,
    /// The lowest floor that `auto` may choose, as a fraction of the ceiling in (0, 1].
    pub min_floor: f64,
    /// The newest tokens that are never eligible.
    pub protect_recent: ProtectRecent,
    /// Length of an implicit episode, in tokens.
    pub implicit_tokens: u32,
    /// What happens if the budget can't be met.
    pub unmet: Unmet,
    /// Whether the open episode is never touched, as the paper has it.
    pub strict_active: bool,
    /// Where episodes come from.
    pub annotate: Annotate,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            mode: Mode::Manage,
            ceiling: 80_000,
            floor: Floor::Auto,
            min_floor: 0.5,
            protect_recent: ProtectRecent::Auto,
            implicit_tokens: 8_000,
            unmet: Unmet::Surface,
            strict_active: false,
            annotate: Annotate::Explicit,
        }
    }
}

/// The low-water mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Floor {
    /// Chosen from the session's growth and the model's prices.
    Auto,
    /// Equal to the ceiling: evict no more than needed, as the paper does.
    Ceiling,
    /// A fraction of the ceiling in (0, 1].
    Fraction(f64),
}

/// How much of the tail is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectRecent {
    /// The smaller of 8,000 tokens and a fifth of the ceiling.
    Auto,
    /// So many tokens.
    Tokens(u32),
}

impl ProtectRecent {
    /// Tokens that are protected under `ceiling`, never more than the ceiling itself.
    #[must_use]
    pub fn tokens(self, ceiling: u32) -> u32 {
        match self {
            Self::Auto => (ceiling / 5).min(8_000),
            Self::Tokens(tokens) => tokens.min(ceiling),
        }
    }
}

/// What happens if the budget can't be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// Send the request and report it.
    Surface,
    /// Refuse the request.
    Refuse,
}

/// Where episodes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotate {
    /// From `delimiter` alone.
    Explicit,
    /// Acts are inferred from tool classes too.
    Inferred,
}

/// The hidden tool and the turns that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimiter {
    /// Whether the tool is injected.
    pub enabled: bool,
    /// Whether a start closes the open episode.
    pub auto_close: bool,
    /// Upstream calls in one turn, at least 1.
    pub hops: u32,
    /// The block that is appended to the system message.
    pub guidance: Guidance,
    /// Silence towards the client until a comment is sent.
    pub heartbeat: Duration,
    /// Whether results may carry a reminder.
    pub nudge: bool,
    /// Which usage the client reads.
    pub usage: UsageReport,
    /// Whether a turn goes on to its end when the client has gone.
    pub finish_cancelled: bool,
}

impl Default for Delimiter {
    fn default() -> Self {
        Self {
            enabled: true,
            auto_close: false,
            hops: 8,
            guidance: Guidance::Standard,
            heartbeat: Duration::from_secs(10),
            nudge: true,
            usage: UsageReport::Last,
            finish_cancelled: false,
        }
    }
}

/// The block that explains `delimiter` to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guidance {
    /// The built-in block.
    Standard,
    /// None; nothing of the client's is touched.
    Off,
    /// A text of the operator's.
    Text(String),
}

/// Which usage the client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageReport {
    /// Prompt tokens of the last hop: what agents read as the fill of their context.
    Last,
    /// Sums over all hops, for those who bill by them.
    Sum,
}

/// Globs on tool names, by class. Names are compared in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolClasses {
    /// Search and listing.
    pub bulk: Vec<String>,
    /// Reading files.
    pub read: Vec<String>,
    /// Running commands.
    pub shell: Vec<String>,
    /// Changing files.
    pub write: Vec<String>,
}

impl Default for ToolClasses {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self {
            bulk: list(&[
                "grep",
                "glob",
                "ls",
                "find",
                "search",
                "list",
                "list_*",
                "*_search",
                "search_*",
                "websearch",
                "webfetch",
                "web_fetch",
                "fetch",
                "codebase_search",
                "tool_search",
            ]),
            read: list(&[
                "read",
                "read_*",
                "view",
                "cat",
                "open",
                "open_file",
                "notebookread",
            ]),
            shell: list(&[
                "bash",
                "shell",
                "sh",
                "exec",
                "exec_command",
                "execute_*",
                "run",
                "run_*",
                "local_shell",
                "terminal",
                "container.exec",
            ]),
            write: list(&[
                "write",
                "write_*",
                "edit",
                "edit_*",
                "multiedit",
                "create",
                "create_*",
                "apply_patch",
                "patch",
                "str_replace*",
                "replace*",
                "insert*",
                "notebookedit",
            ]),
        }
    }
}

/// Where records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The backend.
    pub backend: Backend,
    /// The data directory.
    pub path: PathBuf,
    /// How long a final frame waits for its record.
    pub wait: Duration,
    /// Cache of the backend, in MiB.
    pub cache_mb: u32,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            backend: Backend::Sled,
            path: PathBuf::from("./data"),
            wait: Duration::from_millis(250),
            cache_mb: 48,
        }
    }
}

/// A store backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// On disk, in this process.
    Sled,
    /// Lost with the process.
    Memory,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A level, or directives by module.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
    /// Whether content may be logged.
    pub content: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
            content: false,
        }
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Where the key of the tenant hash comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantKey {
    /// Made at first start in the data directory.
    #[default]
    DataDirectory,
    /// Given; replicas that share a store must share it.
    Given(Secret),
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Globs on the model names that labels may hold; others are `other`.
    pub models: Vec<String>,
}

impl Default for Metrics {
    fn default() -> Self {
        let names = [
            "gpt-*",
            "o1*",
            "o3*",
            "o4*",
            "claude-*",
            "deepseek-*",
            "kimi-*",
            "qwen*",
            "glm-*",
            "gemini-*",
        ];
        Self {
            models: names.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Model families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    /// A file of further families, where there is one.
    pub families: Option<PathBuf>,
}
