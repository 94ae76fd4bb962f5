//! Which setting of an agent leads to the proxy, and where its requests would go without it. Owns
//! the choice of the provider whose address is changed. Never edits anything.

use anyhow::{Context as _, bail};

use super::format::{Format, FormatError};
use crate::cli::agents::login::{CHATGPT, Login, UNTRIED};
use crate::cli::agents::{Agent, Api, Environment};

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The names that lead to it.
    pub path: Vec<String>,
    /// What it becomes.
    pub value: String,
    /// The URL that the proxy's `/v1` has to stand for. `None` if nothing says where the requests
    /// of this provider go.
    pub upstream: Option<String>,
    /// The provider, as the agent calls it.
    pub provider: String,
    /// What the user has to know of this way.
    pub note: Option<&'static str>,
}

impl Plan {
    /// The path as it is handed to [`Format`].
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }
}

/// What is known where a plan is made.
pub struct Known<'a> {
    /// The settings file as it is.
    pub text: &'a str,
    /// Its form.
    pub format: Format,
    /// The variables.
    pub environment: &'a Environment,
    /// The proxy's URL without `/v1`.
    pub proxy: &'a str,
    /// The provider that the user named.
    pub provider: Option<&'a str>,
}

/// The setting of an agent. `None` if it has none in a file.
///
/// # Errors
/// If the file can't be read, or the agent has no such provider.
pub fn plan(agent: Agent, known: &Known<'_>) -> anyhow::Result<Option<Plan>> {
    if let (Some(only), Some(named)) = (agent.only_api(), known.provider)
        && agent != Agent::Codex
        && named != only.name()
    {
        bail!("{} talks to {} only", agent.title(), only.name());
    }
    let plan = match agent {
        Agent::Opencode => known.opencode()?,
        Agent::Codex => known.codex()?,
        Agent::Claude => {
            let path = ["env", "ANTHROPIC_BASE_URL"];
            known.setting(&path, "anthropic", Address::Server)?
        }
        Agent::Pi => known.pi()?,
        Agent::Copilot => return Ok(None),
        Agent::Mini => known.mini()?,
    };
    Ok(Some(plan))
}

/// What an agent takes as an address: one that ends with `/v1`, or the server's, to which it adds
/// that itself.
#[derive(Clone, Copy)]
enum Address {
    Version,
    Server,
}

impl Address {
    fn of(self, proxy: &str) -> String {
        match self {
            Self::Version => format!("{proxy}/v1"),
            Self::Server => proxy.to_owned(),
        }
    }

    /// The URL that `/v1` stands for if this address is the agent's.
    fn upstream(self, address: &str) -> String {
        let address = address.trim_end_matches('/');
        match self {
            Self::Version => address.to_owned(),
            Self::Server => format!("{address}/v1"),
        }
    }
}

impl Known<'_> {
    fn get(&self, path: &[&str]) -> Result<Option<String>, FormatError> {
        self.format.get(self.text, path)
    }

    /// The setting at a path, which holds an address.
    fn setting(&self, path: &[&str], provider: &str, address: Address) -> anyhow::Result<Plan> {
        let before = self.get(path)?;
        // What leads to the proxy already says nothing about where requests go.
        let own = before.filter(|before| !before.starts_with(self.proxy));
        let own = own.map(|own| address.upstream(&own));
        Ok(Plan {
            path: path.iter().map(|name| (*name).to_owned()).collect(),
            value: address.of(self.proxy),
            upstream: own.or_else(|| Some(Api::named(provider)?.url().to_owned())),
            provider: provider.to_owned(),
            note: None,
        })
    }

    /// The provider that the user named, or that the agent's own choice of a model begins with, or
    /// of which there is a key.
    fn provider(&self, chosen: Option<String>) -> String {
        let named = self.provider.map(str::to_owned);
        named
            .or(chosen)
            .unwrap_or_else(|| Api::by_key(self.environment).name().to_owned())
    }

    fn opencode(&self) -> anyhow::Result<Plan> {
        let provider = self.provider(self.get(&["model"])?.as_deref().and_then(first));
        let path = ["provider", &provider, "options", "baseURL"];
        self.setting(&path, &provider, Address::Version)
    }

    /// Its own provider has a setting of the file itself. Others have theirs in their table.
    fn codex(&self) -> anyhow::Result<Plan> {
        let profile = match self.get(&["profile"])? {
            Some(profile) => self.get(&["profiles", &profile, "model_provider"])?,
            None => None,
        };
        let chosen = match profile {
            Some(chosen) => Some(chosen),
            None => self.get(&["model_provider"])?,
        };
        let named = self.provider.map(str::to_owned).or(chosen);
        let provider = named.unwrap_or_else(|| "openai".to_owned());
        if provider == "openai" {
            let plan = self.setting(&["openai_base_url"], &provider, Address::Version)?;
            return Ok(self.with_login(plan));
        }
        let path = ["model_providers", provider.as_str(), "base_url"];
        let there = self.get(&path)?;
        there.with_context(|| {
            format!("codex uses the provider {provider:?}, and no base_url of it is in the file; name another by --provider, or add it")
        })?;
        self.setting(&path, &provider, Address::Version)
    }

    /// Without an address of the user's own, codex chooses one by its login.
    fn with_login(&self, plan: Plan) -> Plan {
        let is_default = plan.upstream.as_deref() == Some(Api::OpenAi.url());
        if !is_default || Login::kept(self.environment) != Login::ChatGpt {
            return plan;
        }
        Plan {
            upstream: Some(CHATGPT.to_owned()),
            note: Some(UNTRIED),
            ..plan
        }
    }

    /// Its models file holds addresses; another one names the provider that it begins with.
    fn pi(&self) -> anyhow::Result<Plan> {
        let directory = Agent::Pi.directory(self.environment);
        let settings =
            directory.and_then(|at| std::fs::read_to_string(at.join("settings.json")).ok());
        let chosen =
            settings.and_then(|text| Format::Json.get(&text, &["defaultProvider"]).ok()?);
        let provider = self.provider(chosen);
        let path = ["providers", provider.as_str()];
        let api = self.get(&[path.as_slice(), &["api"]].concat())?;
        let anthropic = match api.as_deref() {
            Some(api) => api == "anthropic-messages",
            None => provider == Api::Anthropic.name(),
        };
        let address = if anthropic {
            Address::Server
        } else {
            Address::Version
        };
        self.setting(
            &[path.as_slice(), &["baseUrl"]].concat(),
            &provider,
            address,
        )
    }

    /// Its library reads one variable for each API.
    fn mini(&self) -> anyhow::Result<Plan> {
        let model = self.environment.text("MSWEA_MODEL_NAME").map(str::to_owned);
        let model = match model {
            Some(model) => Some(model),
            None => self.get(&["MSWEA_MODEL_NAME"])?,
        };
        let provider = self.provider(model.as_deref().and_then(first));
        match Api::named(&provider) {
            Some(Api::OpenAi) => self.setting(&["OPENAI_API_BASE"], &provider, Address::Version),
            Some(Api::Anthropic) => {
                self.setting(&["ANTHROPIC_API_BASE"], &provider, Address::Server)
            }
            None => bail!(
                "mini-swe-agent has no address that is known here for the provider {provider:?}: give --provider openai or anthropic, or set api_base in its model_kwargs"
            ),
        }
    }
}

/// The provider in a name like `openai/gpt-5`.
fn first(model: &str) -> Option<String> {
    let (provider, _) = model.split_once('/')?;
    Some(provider.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(agent: Agent, format: Format, text: &str, pairs: &[(&str, &str)]) -> String {
        let known = Known {
            text,
            format,
            environment: &pairs.iter().copied().collect(),
            proxy: "http://p:1",
            provider: None,
        };
        match plan(agent, &known) {
            Ok(Some(plan)) => {
                let upstream = plan.upstream.as_deref().unwrap_or("?");
                format!("{} = {} to {upstream}", plan.path.join("."), plan.value)
            }
            Ok(None) => "nothing".to_owned(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn the_provider_that_an_agent_uses_is_led_to_the_proxy() {
        let (json, toml, env) = (Format::Json, Format::Toml, Format::DotEnv);
        let key = ("ANTHROPIC_API_KEY", "k");
        let openai = "to https://api.openai.com/v1";
        let anthropic = "to https://api.anthropic.com/v1";
        for (agent, format, text, pairs, wanted) in [
            (Agent::Opencode, json, "{}", &[][..], format!("provider.openai.options.baseURL = http://p:1/v1 {openai}")),
            (Agent::Opencode, json, "{}", &[key], format!("provider.anthropic.options.baseURL = http://p:1/v1 {anthropic}")),
            (Agent::Opencode, json, r#"{"model": "anthropic/x"}"#, &[], format!("provider.anthropic.options.baseURL = http://p:1/v1 {anthropic}")),
            (Agent::Opencode, json, r#"{"model": "mine/x", "provider": {"mine": {"options": {"baseURL": "http://m/v1"}}}}"#, &[], "provider.mine.options.baseURL = http://p:1/v1 to http://m/v1".to_owned()),
            (Agent::Opencode, json, r#"{"model": "mine/x"}"#, &[], "provider.mine.options.baseURL = http://p:1/v1 to ?".to_owned()),
            (Agent::Codex, toml, "", &[key], format!("openai_base_url = http://p:1/v1 {openai}")),
            (Agent::Codex, toml, "openai_base_url = \"http://o/v1/\"", &[], "openai_base_url = http://p:1/v1 to http://o/v1".to_owned()),
            (Agent::Codex, toml, "model_provider = \"m\"\n[model_providers.m]\nbase_url = \"http://m/v1\"", &[], "model_providers.m.base_url = http://p:1/v1 to http://m/v1".to_owned()),
            (Agent::Codex, toml, "profile = \"a\"\n[profiles.a]\nmodel_provider = \"m\"\n[model_providers.m]\nbase_url = \"http://m/v1\"", &[], "model_providers.m.base_url = http://p:1/v1 to http://m/v1".to_owned()),
            (Agent::Codex, toml, "model_provider = \"ollama\"", &[], "codex uses the provider \"ollama\", and no base_url of it is in the file; name another by --provider, or add it".to_owned()),
            (Agent::Claude, json, "", &[], format!("env.ANTHROPIC_BASE_URL = http://p:1 {anthropic}")),
            (Agent::Claude, json, r#"{"env": {"ANTHROPIC_BASE_URL": "http://gate"}}"#, &[], "env.ANTHROPIC_BASE_URL = http://p:1 to http://gate/v1".to_owned()),
            (Agent::Pi, json, "{}", &[], format!("providers.openai.baseUrl = http://p:1/v1 {openai}")),
            (Agent::Pi, json, "{}", &[key], format!("providers.anthropic.baseUrl = http://p:1 {anthropic}")),
            (Agent::Mini, env, "MSWEA_MODEL_NAME='anthropic/x'", &[], format!("ANTHROPIC_API_BASE = http://p:1 {anthropic}")),
            (Agent::Mini, env, "", &[], format!("OPENAI_API_BASE = http://p:1/v1 {openai}")),
            (Agent::Copilot, env, "", &[], "nothing".to_owned()),
        ] {
            assert_eq!(of(agent, format, text, pairs), wanted, "{agent:?} {text}");
        }
    }
}
