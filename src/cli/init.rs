//! `plimsoll init`: writes a configuration from what is on this machine. Owns what it looks for and
//! the words of the file. Never writes the value of a key, and never replaces a file unasked.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::agents::{Agent, Api, Environment};
use super::output;
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
    let found = Found::on(&Environment::process());
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
    writeln!(said, "next:    plimsoll serve{config}")?;
    for agent in found.agents.iter().map(|(agent, _)| agent.program()) {
        writeln!(said, "         plimsoll setup {agent}")?;
    }
    std::io::stdout().lock().write_all(said.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is on this machine.
struct Found {
    /// The agents, each with where it was seen.
    agents: Vec<(Agent, PathBuf)>,
    /// The APIs of which the environment has a key.
    keys: Vec<Api>,
}

impl Found {
    fn on(environment: &Environment) -> Self {
        let seen = |agent: Agent| {
            let directory = agent.directory(environment);
            let seen = agent.installed(environment);
            seen.or_else(|| directory.filter(|directory| directory.is_dir()))
        };
        let agents = Agent::ALL.into_iter();
        let has = |api: &Api| environment.os(api.key()).is_some();
        Self {
            agents: agents
                .filter_map(|agent| Some((agent, seen(agent)?)))
                .collect(),
            keys: Api::ALL.into_iter().filter(has).collect(),
        }
    }

    /// The API that most of what was found talks to: that of the only key, else that of the only
    /// agents, else OpenAI's.
    fn api(&self) -> Api {
        if let [only] = self.keys.as_slice() {
            return *only;
        }
        let mut apis = self.agents.iter().map(|(agent, _)| agent.only_api());
        match apis.next().flatten() {
            Some(first) if apis.all(|api| api == Some(first)) => first,
            Some(_) | None => Api::OpenAi,
        }
    }

    fn summary(&self) -> String {
        let titles = self.agents.iter().map(|(agent, _)| agent.title());
        let keys = self.keys.iter().map(|api| api.key());
        format!("agents:  {}\nkeys:    {}\n", listed(titles), listed(keys))
    }

    /// The text of the file.
    fn file(&self) -> String {
        let mut text = String::from(HEAD);
        for (agent, seen) in &self.agents {
            // A path may hold what would end a comment.
            let seen = seen.display().to_string().replace(char::is_control, "?");
            let (title, program) = (agent.title(), agent.program());
            let _written = writeln!(text, "#   {title} ({seen}): plimsoll setup {program}");
        }
        if self.agents.is_empty() {
            text.push_str("#   none of those that Plimsoll knows by name\n");
        }
        text.push_str(SERVER);
        let api = self.api();
        for other in Api::ALL {
            let known = if self.keys.contains(&other) {
                "is set"
            } else {
                "is not set"
            };
            let sign = if other == api { "" } else { "# " };
            let _written = writeln!(
                text,
                "# {} {known} in the environment.\n{sign}base_url = \"{}\"",
                other.key(),
                other.url()
            );
        }
        text.push_str(REST);
        text
    }
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
# What is known about sessions is kept here; nobody else may read it. Relative to where the proxy is
# started.
path = \"./data\"
";

#[cfg(test)]
mod tests {
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

    #[test]
    fn agents_are_found_by_their_programs_and_their_directories() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".claude")).unwrap();
        let environment = [("HOME", home.path().as_os_str())].into_iter().collect();
        let found = Found::on(&environment);
        assert!(matches!(found.agents.as_slice(), [(Agent::Claude, _)]));
        assert_eq!(found.api(), Api::Anthropic, "it talks to that alone");
        assert!(found.file().contains("plimsoll setup claude"));
    }
}
