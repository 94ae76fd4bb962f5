//! `plimsoll init`: writes a configuration from what is on this machine. Owns what it looks for and
//! the words of the file. Never writes the value of a key, and never replaces a file unasked.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::agents::{Agent, Api, Environment};
use super::{output, setup};
use crate::config::{Config, DEFAULT_FILE};

/// Writes a configuration file with what was found on this machine: agents, and names of keys in the
/// environment. The values of keys are neither read nor written.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The file [default: config/plimsoll.toml, which `serve` reads by itself].
    file: Option<PathBuf>,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
}

/// Writes the file, checks it, and says what to do next.
///
/// # Errors
/// If the file is there already, or can't be written.
pub fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let file = args.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
    anyhow::ensure!(
        args.force || file.symlink_metadata().is_err(),
        "{} is there already: give another name, or replace it with --force",
        file.display()
    );
    let environment = Environment::process();
    let found = Found::on(&environment);
    let directory = file.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(directory) = directory {
        let made = std::fs::create_dir_all(directory);
        made.with_context(|| format!("can't make {}", directory.display()))?;
    }
    output::write(file, &found.file())?;
    // A file that `serve` would refuse is a mistake of ours, and is better told here.
    Config::check(file)?;
    let mut said = format!("wrote {}\n{}", file.display(), found.summary());
    let config = match &args.file {
        Some(file) => format!(" --config {}", file.display()),
        None => String::new(),
    };
    said += &found.next(&config, &environment);
    std::io::stdout().lock().write_all(said.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is on this machine.
struct Found {
    agents: Vec<FoundAgent>,
    /// The APIs of which the environment has a key.
    keys: Vec<Api>,
}

/// An agent of this machine.
struct FoundAgent {
    agent: Agent,
    /// Where it was seen.
    seen: PathBuf,
    /// The upstream that it needs, if its settings say it.
    upstream: Option<String>,
}

impl Found {
    fn on(environment: &Environment) -> Self {
        let found = |agent: Agent| {
            let directory = agent.directory(environment);
            let seen = agent.installed(environment);
            let seen = seen.or_else(|| directory.filter(|directory| directory.is_dir()))?;
            let upstream = setup::upstream(agent, environment);
            Some(FoundAgent {
                agent,
                seen,
                upstream,
            })
        };
        let has = |api: &Api| environment.os(api.key()).is_some();
        Self {
            agents: Agent::ALL.into_iter().filter_map(found).collect(),
            keys: Api::ALL.into_iter().filter(has).collect(),
        }
    }

    /// The upstreams that are needed, each with its agents. The first is that of the file: it serves most agents,
    /// and of those that serve as many it is the one with a key. Without agents it is that of the only key, else OpenAI's.
    fn upstreams(&self) -> Vec<(String, Vec<Agent>)> {
        let mut all: Vec<(String, Vec<Agent>)> = Vec::new();
        for FoundAgent {
            agent, upstream, ..
        } in &self.agents
        {
            let Some(url) = upstream else { continue };
            match all.iter_mut().find(|(known, _)| known == url) {
                Some((_, agents)) => agents.push(*agent),
                None => all.push((url.clone(), vec![*agent])),
            }
        }
        let has_key = |url: &str| self.keys.iter().any(|api| api.url() == url);
        all.sort_by_key(|(url, agents)| Reverse((agents.len(), has_key(url))));
        if all.is_empty() {
            let api = match self.keys.as_slice() {
                [only] => *only,
                _ => Api::OpenAi,
            };
            all.push((api.url().to_owned(), Vec::new()));
        }
        all
    }

    /// What to type next: the file serves the agents of its upstream, and each further upstream has a proxy of its own.
    fn next(&self, config: &str, environment: &Environment) -> String {
        let mut next = String::new();
        for (number, (url, agents)) in self.upstreams().iter().enumerate() {
            let names = listed(agents.iter().map(|agent| agent.title()));
            let (mut serve, mut proxy) = (format!("plimsoll serve{config}"), String::new());
            if number == 0 {
                next += "next:    ";
            } else {
                let data = beside(environment, number);
                let (listen, admin) = (8787 + number, 9187 + number);
                serve += &format!(
                    " --upstream {url} --listen 127.0.0.1:{listen} --admin 127.0.0.1:{admin} --data {data}"
                );
                proxy = format!(" --proxy http://127.0.0.1:{listen}");
                next += &format!(
                    "beside:  one proxy has one upstream, so a second one leads {names} to {url}:\n         "
                );
            }
            next += &format!("{serve}\n");
            for agent in agents {
                next += &format!("         plimsoll setup {}{proxy}\n", agent.program());
            }
        }
        for found in self.agents.iter().filter(|found| found.upstream.is_none()) {
            next += &format!(
                "         plimsoll setup {}    (which says what upstream it needs)\n",
                found.agent.program()
            );
        }
        next
    }

    fn summary(&self) -> String {
        let titles = self.agents.iter().map(|found| found.agent.title());
        let keys = self.keys.iter().map(|api| api.key());
        format!("agents:  {}\nkeys:    {}\n", listed(titles), listed(keys))
    }

    /// The text of the file.
    fn file(&self) -> String {
        let mut text = String::from(HEAD);
        for FoundAgent { agent, seen, .. } in &self.agents {
            // A path may hold what would end a comment.
            let seen = seen.display().to_string().replace(char::is_control, "?");
            let (title, program) = (agent.title(), agent.program());
            let _written = writeln!(text, "#   {title} ({seen}): plimsoll setup {program}");
        }
        if self.agents.is_empty() {
            text.push_str("#   none of those that Plimsoll knows by name\n");
        }
        text.push_str(SERVER);
        let upstreams = self.upstreams();
        let url = upstreams.first().map_or("", |(url, _)| url.as_str());
        for other in Api::ALL {
            let known = if self.keys.contains(&other) {
                "is set"
            } else {
                "is not set"
            };
            let sign = if other.url() == url { "" } else { "# " };
            let _written = writeln!(
                text,
                "# {} {known} in the environment.\n{sign}base_url = \"{}\"",
                other.key(),
                other.url()
            );
        }
        if Api::ALL.iter().all(|api| api.url() != url) {
            let _written = writeln!(
                text,
                "# As the agents' own settings say.\nbase_url = {}",
                toml::Value::from(url)
            );
        }
        text.push_str(REST);
        text
    }
}

/// A data directory for a further proxy.
fn beside(environment: &Environment, number: usize) -> String {
    let name = format!("serve-{}", number + 1);
    let state = environment.state().unwrap_or_default();
    state.join(name).display().to_string()
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return "none found".to_owned();
    }
    names.join(", ")
}

const HEAD: &str = "\
# Plimsoll's settings, written by `plimsoll init`. What is left out has its default, and so has
# everything here that is no address. `plimsoll check FILE` reports mistakes. Flags and PLIMSOLL__SECTION__KEY
# variables come before this file.
#
# Agents that were found:
";

const SERVER: &str = "
[server]
# Where agents connect: http://127.0.0.1:8787/v1, or without the /v1 if they add that themselves.
listen = \"127.0.0.1:8787\"
# Metrics and health, for this machine.
admin = \"127.0.0.1:9187\"

[upstream]
# What /v1 of the proxy stands for. Each request carries the agent's own key; put none here. One proxy
# has one upstream: start a second one, with another --listen, --admin and --data, for another.
";

const REST: &str = "
[budget]
# The most tokens of a request. A pass evicts finished work when the next request would be larger.
tokens = 80000
# \"observe\" changes nothing and reports what managing would save.
mode = \"manage\"

[store]
# What is known about sessions is kept here; nobody else may read it. If empty, in plimsoll/serve below
# $XDG_STATE_HOME or ~/.local/state.
path = \"\"
";

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn every_file_is_valid_and_holds_no_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plimsoll.toml");
        for (pairs, wanted) in [
            (&[][..], Api::OpenAi),
            (&[("OPENAI_API_KEY", "secret-1")], Api::OpenAi),
            (&[("ANTHROPIC_API_KEY", "secret-1")], Api::Anthropic),
            (
                &[
                    ("ANTHROPIC_API_KEY", "secret-1"),
                    ("OPENAI_API_KEY", "secret-2"),
                ],
                Api::OpenAi,
            ),
        ] {
            let text = Found::on(&pairs.iter().copied().collect()).file();
            assert!(!text.contains("secret"), "{text}");
            std::fs::write(&file, &text).unwrap();
            let config = Config::check(&file).unwrap();
            assert_eq!(config.upstream.base_url.as_str(), wanted.url(), "{pairs:?}");
        }
    }

    /// What is found where agents keep these files below their home.
    fn found(files: &[(&str, &str)], key: Option<&str>) -> (Found, String) {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = home.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let mut pairs = vec![("HOME", home.path().as_os_str())];
        pairs.extend(key.map(|key| (key, OsStr::new("k"))));
        let environment = pairs.into_iter().collect();
        let found = Found::on(&environment);
        let next = found.next("", &environment);
        (found, next)
    }

    const CLAUDE: (&str, &str) = (".claude/settings.json", "{}");
    const CODEX: (&str, &str) = (".codex/config.toml", "");

    #[test]
    fn agents_are_found_by_their_directories_and_have_their_own_upstream() {
        let other = Some("OPENAI_API_KEY");
        let (found, next) = found(&[CLAUDE], other);
        assert!(found.file().contains("plimsoll setup claude"));
        let base = "\nbase_url = \"https://api.anthropic.com/v1\"";
        assert!(found.file().contains(base), "whatever keys there are");
        assert_eq!(
            next,
            "next:    plimsoll serve\n         plimsoll setup claude\n"
        );
    }

    #[test]
    fn a_second_upstream_has_a_proxy_of_its_own() {
        for (key, first, second) in [
            (None, "codex", "claude"),
            (Some("ANTHROPIC_API_KEY"), "claude", "codex"),
        ] {
            let (_, next) = found(&[CLAUDE, CODEX], key);
            let lines: Vec<_> = next.lines().map(str::trim).collect();
            assert_eq!(lines[0], "next:    plimsoll serve", "{next}");
            assert_eq!(lines[1], format!("plimsoll setup {first}"));
            assert!(lines[3].contains("--listen 127.0.0.1:8788"), "{next}");
            assert!(lines[3].ends_with("/plimsoll/serve-2"), "{next}");
            let setup = format!("plimsoll setup {second} --proxy http://127.0.0.1:8788");
            assert_eq!(lines[4], setup);
        }
    }

    #[test]
    fn an_address_of_an_agents_own_is_its_upstream() {
        let own = "model_provider = \"m\"\n[model_providers.m]\nbase_url = \"http://m/v1\"";
        let (found, _) = found(&[(CODEX.0, own)], None);
        let file = found.file();
        assert!(file.contains("\nbase_url = \"http://m/v1\""), "{file}");
        assert!(file.parse::<toml::Table>().is_ok(), "{file}");
    }
}
