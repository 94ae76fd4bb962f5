//! Where agents keep their settings and their sessions, by the variables that each of them reads.
//! Owns these places. Never reads what lies there.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::Agent;

/// The variables of the process, or of a test.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Those of this process.
    #[must_use]
    pub fn process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// A variable that is set to something.
    #[must_use]
    pub fn os(&self, name: &str) -> Option<&OsStr> {
        let value = self.0.get(OsStr::new(name)).map(OsString::as_os_str);
        value.filter(|value| !value.is_empty())
    }

    /// A variable that is set to something, if that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.os(name)?.to_str()
    }

    /// A variable that names a directory or a file. What begins with `~/` is below the home, and
    /// what is relative is below the working directory, as the agents take it.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let named = Path::new(self.os(name)?);
        if let Ok(below) = named.strip_prefix("~") {
            return Some(self.home()?.join(below));
        }
        std::path::absolute(named).ok()
    }

    fn home(&self) -> Option<PathBuf> {
        self.os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute())
    }

    /// The directory of a variable, or else a place below the home.
    fn directory(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        self.path(variable)
            .or_else(|| Some(self.home()?.join(below_home)))
    }

    /// A directory of the XDG specification, which wants absolute paths.
    fn xdg(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let named = self.os(variable).map(PathBuf::from);
        named
            .filter(|path| path.is_absolute())
            .or_else(|| Some(self.home()?.join(below_home)))
    }

    /// Where notes of ours are kept, as `run` keeps its records there.
    #[must_use]
    pub fn state(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_STATE_HOME", ".local/state")?.join("plimsoll"))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// The files of opencode's settings in one directory. It reads all of them, and the last one wins.
const OPENCODE: [&str; 3] = ["config.json", "opencode.json", "opencode.jsonc"];

impl Agent {
    /// The directory in which it keeps its settings. `None` if no variable says where that is.
    #[must_use]
    pub fn directory(self, environment: &Environment) -> Option<PathBuf> {
        let config = || environment.xdg("XDG_CONFIG_HOME", ".config");
        match self {
            Self::Opencode => match environment.path("OPENCODE_CONFIG_DIR") {
                Some(named) => Some(named),
                None => Some(config()?.join("opencode")),
            },
            Self::Codex => environment.directory("CODEX_HOME", ".codex"),
            Self::Claude => environment.directory("CLAUDE_CONFIG_DIR", ".claude"),
            Self::Pi => environment.directory("PI_CODING_AGENT_DIR", ".pi/agent"),
            Self::Copilot => environment.directory("COPILOT_HOME", ".copilot"),
            Self::Mini => match environment.path("MSWEA_GLOBAL_CONFIG_DIR") {
                Some(named) => Some(named),
                None if cfg!(target_os = "macos") => {
                    let home = environment.home()?;
                    Some(home.join("Library/Application Support/mini-swe-agent"))
                }
                None => Some(config()?.join("mini-swe-agent")),
            },
        }
    }

    /// The file that says which address it talks to. `None` if it has no such file, or no variable
    /// says where that is.
    #[must_use]
    pub fn settings(self, environment: &Environment) -> Option<PathBuf> {
        let directory = self.directory(environment)?;
        match self {
            Self::Opencode => environment.path("OPENCODE_CONFIG").or_else(|| {
                let mut there = OPENCODE.iter().rev().map(|name| directory.join(name));
                let found = there.find(|file| file.symlink_metadata().is_ok());
                found.or_else(|| Some(directory.join("opencode.json")))
            }),
            Self::Codex => Some(directory.join("config.toml")),
            Self::Claude => Some(directory.join("settings.json")),
            Self::Pi => Some(directory.join("models.json")),
            Self::Copilot => None,
            Self::Mini => Some(directory.join(".env")),
        }
    }

    /// Where it keeps what was said. `None` if it keeps nothing that Plimsoll reads, or no variable
    /// says where.
    #[must_use]
    pub fn sessions(self, environment: &Environment) -> Option<PathBuf> {
        match self {
            Self::Opencode => {
                let data = environment.xdg("XDG_DATA_HOME", ".local/share")?;
                Some(data.join("opencode"))
            }
            Self::Codex => Some(self.directory(environment)?.join("sessions")),
            Self::Claude => Some(self.directory(environment)?.join("projects")),
            Self::Pi => match environment.path("PI_CODING_AGENT_SESSION_DIR") {
                Some(named) => Some(named),
                None => Some(self.directory(environment)?.join("sessions")),
            },
            Self::Copilot | Self::Mini => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_say_where_settings_are() {
        let home = ("HOME", "/h");
        for (agent, pairs, wanted) in [
            (
                Agent::Opencode,
                &[home][..],
                "/h/.config/opencode/opencode.json",
            ),
            (
                Agent::Opencode,
                &[home, ("XDG_CONFIG_HOME", "/x")],
                "/x/opencode/opencode.json",
            ),
            (
                Agent::Opencode,
                &[home, ("XDG_CONFIG_HOME", "x")],
                "/h/.config/opencode/opencode.json",
            ),
            (
                Agent::Opencode,
                &[home, ("OPENCODE_CONFIG", "/o/mine.jsonc")],
                "/o/mine.jsonc",
            ),
            (
                Agent::Opencode,
                &[home, ("OPENCODE_CONFIG_DIR", "/o")],
                "/o/opencode.json",
            ),
            (Agent::Codex, &[home], "/h/.codex/config.toml"),
            (
                Agent::Codex,
                &[home, ("CODEX_HOME", "/c")],
                "/c/config.toml",
            ),
            (
                Agent::Codex,
                &[home, ("CODEX_HOME", "")],
                "/h/.codex/config.toml",
            ),
            (
                Agent::Codex,
                &[home, ("CODEX_HOME", "~/c")],
                "/h/c/config.toml",
            ),
            (Agent::Claude, &[home], "/h/.claude/settings.json"),
            (
                Agent::Claude,
                &[("CLAUDE_CONFIG_DIR", "/c")],
                "/c/settings.json",
            ),
            (Agent::Pi, &[home], "/h/.pi/agent/models.json"),
            (
                Agent::Pi,
                &[home, ("PI_CODING_AGENT_DIR", "/p")],
                "/p/models.json",
            ),
            (Agent::Mini, &[("MSWEA_GLOBAL_CONFIG_DIR", "/m")], "/m/.env"),
        ] {
            let environment: Environment = pairs.iter().copied().collect();
            let found = agent.settings(&environment);
            assert_eq!(found, Some(PathBuf::from(wanted)), "{agent:?} {pairs:?}");
        }
        assert_eq!(Agent::Codex.settings(&Environment::default()), None);
    }

    #[test]
    fn of_the_files_of_opencode_the_one_that_wins_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().as_os_str();
        let environment: Environment = [("OPENCODE_CONFIG_DIR", root)].into_iter().collect();
        for name in OPENCODE {
            std::fs::write(directory.path().join(name), "{}").unwrap();
            let found = Agent::Opencode.settings(&environment);
            assert_eq!(found, Some(directory.path().join(name)));
        }
    }
}
