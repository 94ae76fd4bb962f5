//! `plimsoll setup AGENT`: leads an agent to the proxy by its own settings file, and back. Owns the
//! flags, the order of the steps, and what is said. Never starts an agent, and never writes a file
//! that it can't read.

mod files;
pub mod format;
mod plan;
mod record;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::agents::{Agent, Api, Environment, PROXY};
use format::{Edited, Format};
use plan::{Known, Plan};
use record::{Record, TakenBack};

/// Changes one setting in the agent's own file, so that it talks to the proxy, and says how to start
/// the proxy for it. Everything else in the file stays, byte for byte.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// The agent.
    #[arg(value_enum)]
    agent: Agent,
    /// Take back what setup changed. A file that nobody has changed since is again what it was, byte
    /// for byte; from others the setting alone is taken out.
    #[arg(long, conflicts_with_all = ["provider", "proxy"])]
    undo: bool,
    /// Show what would be changed, and change nothing.
    #[arg(long, visible_alias = "print")]
    dry_run: bool,
    /// The provider whose address is changed, as the agent calls it [default: the one that the agent
    /// is set to, or else of which there is a key].
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The proxy's URL, without /v1.
    #[arg(long, value_name = "URL", default_value = PROXY, value_parser = proxy)]
    proxy: String,
}

/// Changes the agent's settings, or takes the change back.
///
/// # Errors
/// If a file can't be read or written, or can't be edited without a risk. Nothing is changed then.
pub fn run(args: &SetupArgs) -> anyhow::Result<ExitCode> {
    let environment = Environment::process();
    let mut said = String::new();
    match args.agent.settings(&environment) {
        None if args.agent == Agent::Copilot => copilot(args, &environment, &mut said)?,
        None => anyhow::bail!("no home directory is known: set HOME"),
        Some(named) => {
            let work = Work {
                args,
                environment: &environment,
                file: files::behind_links(&named)?,
                format: Format::of(&named),
            };
            if args.undo {
                work.undo(&mut said)?;
            } else {
                work.set_up(&mut said)?;
            }
        }
    }
    std::io::stdout().lock().write_all(said.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// One agent and its file.
struct Work<'a> {
    args: &'a SetupArgs,
    environment: &'a Environment,
    file: PathBuf,
    format: Format,
}

impl Work<'_> {
    fn agent(&self) -> Agent {
        self.args.agent
    }

    fn at_file<T, E: Into<anyhow::Error>>(&self, result: Result<T, E>) -> anyhow::Result<T> {
        result
            .map_err(Into::into)
            .with_context(|| format!("{} was not changed", self.file.display()))
    }

    fn set_up(&self, said: &mut String) -> anyhow::Result<()> {
        let found = Settings::read(self.agent(), &self.file, self.format, self.environment);
        let Settings { now, noted, before } = self.at_file(found)?;
        let text = before.as_deref().unwrap_or_default();
        let known = Known {
            text,
            format: self.format,
            environment: self.environment,
            proxy: &self.args.proxy,
            provider: self.args.provider.as_deref(),
        };
        let Some(plan) = self.at_file(plan::plan(self.agent(), &known))? else {
            return Ok(());
        };
        let was = self.at_file(self.format.get(text, &plan.names()))?;
        let Edited { text: after, made } =
            self.at_file(self.format.set(text, &plan.names(), &plan.value))?;
        let file = self.file.display();
        if now.as_deref() == Some(after.as_str()) {
            writeln!(said, "{file} leads to {} already", plan.value)?;
        } else if self.args.dry_run {
            writeln!(said, "{file} would be changed:")?;
            show(now.as_deref().unwrap_or_default(), &after, said);
        } else {
            let mut record = Record::new(&self.file, before.as_deref(), &after, &plan);
            record = record.with_setting(was, made);
            if let Some(earlier) = noted {
                record.directories = earlier.directories;
            }
            self.write(record, &after)?;
            writeln!(said, "{file}: {} = {:?}", plan.path.join("."), plan.value)?;
        }
        self.next(&plan, said);
        Ok(())
    }

    /// The note comes first, so that whatever happens can be taken back.
    fn write(&self, mut record: Record, after: &str) -> anyhow::Result<()> {
        let made = files::make_directories(&self.file)?;
        record.directories.extend(made);
        record.keep(self.agent(), self.environment)?;
        files::replace(&self.file, after)
    }

    /// What to do next.
    fn next(&self, plan: &Plan, said: &mut String) {
        let agent = self.agent();
        if let Some(note) = plan.note {
            let _written = writeln!(said, "{note}");
        }
        let serve = serve_command(plan.upstream.as_deref(), &self.args.proxy);
        let _written = writeln!(said, "start the proxy:  {serve}");
        if plan.upstream.is_none() {
            let provider = &plan.provider;
            let _written = writeln!(
                said,
                "                  URL is the address that {provider} has without the proxy, with its /v1"
            );
        }
        let _written = writeln!(said, "then start {} as ever", agent.title());
        let _written = writeln!(
            said,
            "take it back:     plimsoll setup {} --undo",
            agent.program()
        );
    }

    fn undo(&self, said: &mut String) -> anyhow::Result<()> {
        let file = self.file.display();
        let Some(record) = Record::load(self.agent(), &self.file, self.environment)? else {
            writeln!(said, "{file}: setup has changed nothing here")?;
            return Ok(());
        };
        let now = files::read(&self.file)?;
        let back = record.take_back(self.format, now.as_deref());
        let back = back.with_context(|| {
            format!(
                "{file} was changed since and stays as it is; take the proxy's address out by hand"
            )
        })?;
        if self.args.dry_run {
            writeln!(said, "{file} would be changed:")?;
            let text = back.text.as_deref().unwrap_or_default();
            show(now.as_deref().unwrap_or_default(), text, said);
            return Ok(());
        }
        let TakenBack { text, others } = back;
        match &text {
            Some(text) if Some(text) != now.as_ref() => files::replace(&self.file, text)?,
            Some(_) => {}
            None => files::remove(&self.file, &record.directories)?,
        }
        record.forget(self.agent(), self.environment)?;
        match (others, text) {
            (Some(others), _) if others.is_empty() => {
                writeln!(said, "{file}: somebody has taken the setting out already")?;
            }
            (Some(others), _) => {
                writeln!(
                    said,
                    "{file}: the setting is {others:?} now, which setup did not write; it stays"
                )?;
            }
            (None, Some(_)) => writeln!(said, "{file} is without the proxy again")?,
            (None, None) => writeln!(said, "{file} is gone again")?,
        }
        Ok(())
    }
}

/// The settings of an agent.
struct Settings {
    now: Option<String>,
    noted: Option<Record>,
    /// Without what an earlier setup put there, so that undo leads to what was there before the first one.
    before: Option<String>,
}

impl Settings {
    fn read(
        agent: Agent,
        file: &Path,
        format: Format,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let now = files::read(file)?;
        let noted = Record::load(agent, file, environment)?;
        let before = match &noted {
            Some(record) => record.take_back(format, now.as_deref())?.text,
            None => now.clone(),
        };
        Ok(Self { now, noted, before })
    }
}

/// The URL that the proxy's `/v1` has to stand for so that an agent is served, as [`run`] would tell it. `None` if its
/// settings can't be read or don't say it.
#[must_use]
pub fn upstream(agent: Agent, environment: &Environment) -> Option<String> {
    let Some(named) = agent.settings(environment) else {
        let api = Api::by_key(environment);
        return (agent == Agent::Copilot).then(|| api.url().to_owned());
    };
    let (file, format) = (files::behind_links(&named).ok()?, Format::of(&named));
    let settings = Settings::read(agent, &file, format, environment).ok()?;
    let known = Known {
        text: settings.before.as_deref().unwrap_or_default(),
        format,
        environment,
        proxy: PROXY,
        provider: None,
    };
    plan::plan(agent, &known).ok()??.upstream
}

/// Copilot CLI has no file for its provider: the lines that a shell has to read.
fn copilot(args: &SetupArgs, environment: &Environment, said: &mut String) -> anyhow::Result<()> {
    if args.undo {
        writeln!(
            said,
            "Copilot CLI reads its provider from variables alone: take the COPILOT_PROVIDER_* lines out of where you put them"
        )?;
        return Ok(());
    }
    let api = match args.provider.as_deref() {
        Some(named) => Api::named(named).context("give --provider openai or anthropic")?,
        None => Api::by_key(environment),
    };
    let proxy = &args.proxy;
    writeln!(
        said,
        "# Copilot CLI reads its provider from variables alone. Put these lines where your shell reads them:"
    )?;
    match api {
        Api::OpenAi => {
            writeln!(said, "export COPILOT_PROVIDER_BASE_URL={proxy}/v1")?;
            writeln!(said, "export COPILOT_PROVIDER_WIRE_API=responses")?;
        }
        Api::Anthropic => {
            writeln!(said, "export COPILOT_PROVIDER_BASE_URL={proxy}")?;
            writeln!(said, "export COPILOT_PROVIDER_TYPE=anthropic")?;
        }
    }
    writeln!(said, "export COPILOT_PROVIDER_API_KEY=\"${}\"", api.key())?;
    writeln!(said, "export COPILOT_MODEL=MODEL    # the name of a model")?;
    writeln!(
        said,
        "# start the proxy:  {}",
        serve_command(Some(api.url()), proxy)
    )?;
    Ok(())
}

/// The command that serves an agent. `None` stands for an upstream that the user has to name.
#[must_use]
pub fn serve_command(upstream: Option<&str>, proxy: &str) -> String {
    let mut command = "plimsoll serve".to_owned();
    match upstream {
        Some(url) if url == Api::OpenAi.url() => {}
        Some(url) => command += &format!(" --upstream {url}"),
        None => command += " --upstream URL",
    }
    if proxy != PROXY
        && let Some((_, address)) = proxy.split_once("://")
    {
        command += &format!(" --listen {address}");
    }
    command
}

/// Shows the lines in which two texts differ.
fn show(before: &str, after: &str, said: &mut String) {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after);
    let start = same.take_while(|(one, other)| one == other).count();
    let (before, after) = (before.get(start..), after.get(start..));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let same = before.iter().rev().zip(after.iter().rev());
    let end = same.take_while(|(one, other)| one == other).count();
    for (sign, lines) in [('-', before), ('+', after)] {
        for line in lines.iter().take(lines.len() - end) {
            let _written = writeln!(said, "{sign} {line}");
        }
    }
}

/// Reads the proxy's URL; its `/v1` may be there.
fn proxy(text: &str) -> Result<String, String> {
    let url = text.trim_end_matches('/');
    let url = url.strip_suffix("/v1").unwrap_or(url);
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    let plain = |rest: &str| !rest.is_empty() && !rest.contains(['"', '\'', ' ', '\\']);
    match rest {
        Some(rest) if plain(rest) => Ok(url.to_owned()),
        Some(_) | None => Err(format!("give a URL, like {PROXY}")),
    }
}

#[cfg(test)]
mod tests;
