//! How an agent that `run` starts is told the address of the proxy: by variables of its own, or by
//! arguments. Owns what each is told. Never changes a file of an agent.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};

use serde_json::json;
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::login::{self, Login};
use super::{Agent, Api, Environment, PROXY};
use crate::cli::setup::format::Format;

/// pi's commands for its own upkeep, which know no extension.
const PI_UPKEEP: [&str; 6] = ["install", "remove", "uninstall", "update", "list", "config"];

/// Where Claude Code's settings hold its address.
const CLAUDE_BASE: [&str; 2] = ["env", "ANTHROPIC_BASE_URL"];
/// The address of Copilot CLI's provider.
const COPILOT_BASE: &str = "COPILOT_PROVIDER_BASE_URL";
/// Which API that provider has.
const COPILOT_TYPE: &str = "COPILOT_PROVIDER_TYPE";

/// The agent's command, and what has to stay until it has ended.
pub struct Launch {
    /// What is started.
    pub command: Command,
    /// What the user has to know, if the agent does not take what it is told.
    pub note: Option<String>,
    _extension: Option<NamedTempFile>,
}

/// The command of an agent, or of any other program, which is told the proxy's address in every way
/// that an agent is known to read. `base` is the proxy's URL without `/v1`.
///
/// # Errors
/// If a file that pi is given can't be written.
pub fn launch(
    program: &OsStr,
    rest: &[OsString],
    base: &str,
    environment: &Environment,
) -> io::Result<Launch> {
    let mut command = Command::new(program);
    let v1 = format!("{base}/v1");
    command
        // The proxy's own secrets are none of the agent's.
        .env_remove("PLIMSOLL__ADMIN__TOKEN")
        .env_remove("PLIMSOLL__TENANT__KEY")
        .env_remove("PLIMSOLL__STORE__SEAL_KEY")
        .env("OPENAI_BASE_URL", &v1)
        .env("OPENAI_API_BASE", &v1)
        .env("ANTHROPIC_BASE_URL", base);
    let (mut extension, mut note) = (None, None);
    match Agent::of(program) {
        // codex reads no variable. A setting on its command line wins over its file.
        Some(Agent::Codex) => {
            command.arg("-c").arg(format!("openai_base_url={v1:?}"));
        }
        // opencode reads its configuration from this variable.
        Some(Agent::Opencode) => {
            let at = json!({"options": {"baseURL": v1}});
            let config = json!({"provider": {"openai": at, "anthropic": at}});
            command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
        }
        // pi reads its models file alone, or what an extension says.
        Some(Agent::Pi) if !is_upkeep(rest) => {
            let file = pi_extension(base)?;
            command.arg("-e").arg(file.path());
            extension = Some(file);
            note = pi_note(environment);
        }
        // The variables in Claude Code's settings come before those of its process, and an argument
        // comes before both.
        Some(Agent::Claude) if !rest.iter().any(|rest| rest == "--settings") => {
            if setting(Agent::Claude, &CLAUDE_BASE, environment).is_some() {
                let settings = json!({"env": {"ANTHROPIC_BASE_URL": base}});
                command.arg("--settings").arg(settings.to_string());
            }
        }
        Some(Agent::Copilot) => copilot(&mut command, base, environment),
        // Its library takes this one before the other of Anthropic's.
        Some(Agent::Mini) => {
            command.env("ANTHROPIC_API_BASE", base);
        }
        Some(Agent::Claude | Agent::Pi) | None => {}
    }
    command.args(rest);
    Ok(Launch {
        command,
        note,
        _extension: extension,
    })
}

/// A text in an agent's own settings, if they can be read.
fn setting(agent: Agent, path: &[&str], environment: &Environment) -> Option<String> {
    let file = agent.settings(environment)?;
    let text = std::fs::read_to_string(&file).ok()?;
    Format::of(&file).get(&text, path).ok()?
}

/// pi's models file comes before its extensions.
fn pi_note(environment: &Environment) -> Option<String> {
    let led = Api::ALL.iter().find_map(|api| {
        let to = setting(
            Agent::Pi,
            &["providers", api.name(), "baseUrl"],
            environment,
        )?;
        Some((api.name(), to))
    });
    let (provider, to) = led?;
    Some(format!(
        "pi's models.json leads {provider} to {to}, which comes before this proxy: start that one, or take it out (plimsoll setup pi --undo)"
    ))
}

fn is_upkeep(rest: &[OsString]) -> bool {
    let first = rest.first().and_then(|first| first.to_str());
    first.is_some_and(|first| PI_UPKEEP.contains(&first))
}

/// An extension that moves pi's own providers. Their models and keys stay as they are.
fn pi_extension(base: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("plimsoll-")
        .suffix(".js")
        .tempfile()?;
    let (openai, anthropic) = (json!(format!("{base}/v1")), json!(base));
    write!(
        file,
        "export default function (pi) {{\n  \
         pi.registerProvider(\"openai\", {{ baseUrl: {openai} }});\n  \
         pi.registerProvider(\"anthropic\", {{ baseUrl: {anthropic} }});\n}}\n"
    )?;
    file.flush()?;
    Ok(file)
}

/// Copilot CLI talks to a provider of the user's own once it has an address. It is given the key of
/// the API, unless it has one already; it asks for a model itself.
fn copilot(command: &mut Command, base: &str, environment: &Environment) {
    let api = copilot_api(environment);
    let address = match api {
        Api::OpenAi => format!("{base}/v1"),
        Api::Anthropic => base.to_owned(),
    };
    command.env(COPILOT_BASE, address);
    let own = ["API_KEY", "API_KEY_COMMAND", "BEARER_TOKEN"];
    let mut own = own.iter().map(|name| format!("COPILOT_PROVIDER_{name}"));
    if let Some(key) = environment.os(api.key())
        && own.all(|name| environment.os(&name).is_none())
    {
        command.env("COPILOT_PROVIDER_API_KEY", key);
    }
}

fn copilot_api(environment: &Environment) -> Api {
    match environment.text(COPILOT_TYPE) {
        Some("anthropic") => Api::Anthropic,
        Some(_) | None => Api::OpenAi,
    }
}

/// Where the requests of this command would go without the proxy, if that is not OpenAI's API.
#[must_use]
pub fn upstream(program: &OsStr, rest: &[OsString], environment: &Environment) -> Option<String> {
    let agent = Agent::of(program)?;
    let anthropic = || Some(Api::Anthropic.url().to_owned());
    match agent {
        Agent::Claude => anthropic(),
        Agent::Codex => {
            let chatgpt = Login::used(rest, environment) == Login::ChatGpt;
            chatgpt.then(|| login::CHATGPT.to_owned())
        }
        Agent::Copilot => {
            let api = copilot_api(environment);
            // Where `setup` pointed it to is no upstream.
            let own = environment.text(COPILOT_BASE);
            let own = own.filter(|own| !own.starts_with(PROXY));
            let own = own.map(|own| match api {
                Api::OpenAi => own.to_owned(),
                // Its address is the server's, and /v1 of the proxy stands for what is below that.
                Api::Anthropic => format!("{}/v1", own.trim_end_matches('/')),
            });
            own.or_else(|| (api == Api::Anthropic).then(anthropic)?)
        }
        Agent::Opencode | Agent::Pi => names_anthropic(rest).then(anthropic)?,
        Agent::Mini => {
            let model = environment.text("MSWEA_MODEL_NAME").unwrap_or_default();
            let named = names_anthropic(rest) || model.starts_with("anthropic/");
            named.then(anthropic)?
        }
    }
}

/// Whether arguments choose a model or a provider of Anthropic's.
fn names_anthropic(rest: &[OsString]) -> bool {
    let name = Api::Anthropic.name();
    let is = |value: &str| value.split('/').next() == Some(name);
    let mut before = "";
    for argument in rest.iter().map(|rest| rest.to_str().unwrap_or_default()) {
        let (flag, value) = argument.split_once('=').unwrap_or((before, argument));
        let flag = flag
            .strip_prefix('-')
            .map(|flag| flag.trim_start_matches('-'));
        if matches!(flag, Some("m" | "model" | "provider")) && is(value) {
            return true;
        }
        before = argument;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream_of(line: &str, pairs: &[(&str, &str)]) -> Option<String> {
        let mut words = line.split(' ').map(OsString::from);
        let program = words.next().unwrap();
        let rest: Vec<_> = words.collect();
        upstream(&program, &rest, &pairs.iter().copied().collect())
    }

    #[test]
    fn requests_go_where_they_would_without_the_proxy() {
        let anthropic = Some("https://api.anthropic.com/v1");
        for (line, pairs, wanted) in [
            ("claude -p hello", &[][..], anthropic),
            ("codex exec hello", &[], None),
            ("opencode run hello", &[], None),
            ("opencode run -m anthropic/claude-x hello", &[], anthropic),
            ("opencode run --model=anthropic/claude-x", &[], anthropic),
            ("opencode run -m openai/anthropic", &[], None),
            ("pi --provider anthropic -p hello", &[], anthropic),
            ("pi -p anthropic", &[], None),
            ("mini -m anthropic/claude-x", &[], anthropic),
            (
                "mini",
                &[("MSWEA_MODEL_NAME", "anthropic/claude-x")],
                anthropic,
            ),
            ("copilot", &[], None),
            (
                "copilot",
                &[("COPILOT_PROVIDER_TYPE", "anthropic")],
                anthropic,
            ),
            (
                "copilot",
                &[("COPILOT_PROVIDER_BASE_URL", "http://h/v1")],
                Some("http://h/v1"),
            ),
            (
                "copilot",
                &[("COPILOT_PROVIDER_BASE_URL", "http://127.0.0.1:8787/v1")],
                None,
            ),
            ("sh -m anthropic/claude-x", &[], None),
        ] {
            let found = upstream_of(line, pairs);
            assert_eq!(found.as_deref(), wanted, "{line} {pairs:?}");
        }
    }
}
