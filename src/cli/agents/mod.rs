//! The agents that Plimsoll knows by name: how each is called, and which API it talks to by itself.
//! Owns the one list of them, which `run`, `setup`, `init` and `replay` share. Never starts or
//! changes one.

pub mod launch;
pub mod login;
pub mod places;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub use places::Environment;

/// The address of a proxy with default settings, without `/v1`.
pub const PROXY: &str = "http://127.0.0.1:8787";

/// An agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Agent {
    /// opencode
    Opencode,
    /// codex
    Codex,
    /// Claude Code
    Claude,
    /// pi
    Pi,
    /// Copilot CLI
    Copilot,
    /// mini-swe-agent
    Mini,
}

impl Agent {
    /// All of them, in the order of docs/use/agents.md.
    pub const ALL: [Self; 6] = [
        Self::Opencode,
        Self::Codex,
        Self::Claude,
        Self::Pi,
        Self::Copilot,
        Self::Mini,
    ];

    /// The name of its program, which is its name on our command line as well.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Opencode => "opencode",
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Pi => "pi",
            Self::Copilot => "copilot",
            Self::Mini => "mini",
        }
    }

    /// How it calls itself.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Copilot => "Copilot CLI",
            Self::Mini => "mini-swe-agent",
            Self::Opencode | Self::Codex | Self::Pi => self.program(),
        }
    }

    /// The API that it talks to, if there is only one for it.
    #[must_use]
    pub fn only_api(self) -> Option<Api> {
        match self {
            Self::Claude => Some(Api::Anthropic),
            Self::Codex => Some(Api::OpenAi),
            Self::Opencode | Self::Pi | Self::Copilot | Self::Mini => None,
        }
    }

    /// The agent that a program is, wherever it lies.
    #[must_use]
    pub fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_stem()?;
        Self::ALL
            .into_iter()
            .find(|agent| name == OsStr::new(agent.program()))
    }

    /// Where its program lies, if the search path has it.
    #[must_use]
    pub fn installed(self, environment: &Environment) -> Option<PathBuf> {
        let path = environment.os("PATH")?;
        std::env::split_paths(path)
            .map(|directory| directory.join(self.program()))
            .find(|file| is_executable(file))
    }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|at| at.is_file() && at.permissions().mode() & 0o111 != 0)
}

/// An API that agents talk to by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

impl Api {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// What agents call its provider.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// The URL that `/v1` stands for.
    #[must_use]
    pub fn url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com/v1",
        }
    }

    /// The variable that holds a key for it.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
        }
    }

    /// The API that agents call so.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }

    /// The API of which the environment has a key; OpenAI's if it has both or none.
    #[must_use]
    pub fn by_key(environment: &Environment) -> Self {
        let has = |api: Self| environment.text(api.key()).is_some();
        if has(Self::Anthropic) && !has(Self::OpenAi) {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_is_known_by_its_program() {
        for agent in Agent::ALL {
            let placed = Path::new("/usr/bin").join(agent.program());
            assert_eq!(Agent::of(placed.as_os_str()), Some(agent));
            let value = agent.to_possible_value().unwrap();
            assert_eq!(value.get_name(), agent.program());
        }
        assert_eq!(Agent::of(OsStr::new("sh")), None);
    }
}
