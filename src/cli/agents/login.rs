//! With what codex is logged in, and where its requests may go for that. Owns the reading of the file in
//! which it keeps its login. Never keeps, shows or sends what is in it.

use std::ffi::{OsStr, OsString};

use serde_json::Value;

use super::{Agent, Api, Environment};

/// Where codex sends its requests if it is logged in with ChatGPT. No other server is meant to see its token.
pub const CHATGPT: &str = "https://chatgpt.com/backend-api/codex";

/// With what codex is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// With a key of the API.
    Key,
    /// With an account of ChatGPT, or a token that stands for one.
    ChatGpt,
    /// Not at all, or in a place that is not read, such as the system's keyring.
    Unknown,
}

impl Login {
    /// The login that codex has kept in its file.
    #[must_use]
    pub fn kept(environment: &Environment) -> Self {
        let file = Agent::Codex.directory(environment);
        let text = file.and_then(|at| std::fs::read_to_string(at.join("auth.json")).ok());
        text.map_or(Self::Unknown, |text| Self::of(&text))
    }

    /// The login of such a file. Without a mode, which older versions do not write, a key comes first.
    fn of(text: &str) -> Self {
        let Ok(kept) = serde_json::from_str::<Value>(text) else {
            return Self::Unknown;
        };
        let has = |field: &str| kept.get(field).is_some_and(|value| !value.is_null());
        match kept.get("auth_mode").and_then(Value::as_str) {
            Some("apikey") => Self::Key,
            // It talks to Amazon with that one.
            Some(mode) if mode.starts_with("bedrock") => Self::Unknown,
            Some(_) => Self::ChatGpt,
            None if has("OPENAI_API_KEY") => Self::Key,
            None if has("tokens") => Self::ChatGpt,
            None => Self::Unknown,
        }
    }

    /// The login that a command of codex's uses. Without a screen it takes a key from a variable first.
    #[must_use]
    pub fn used(rest: &[OsString], environment: &Environment) -> Self {
        let first = rest.first().and_then(|first| first.to_str());
        if matches!(first, Some("exec" | "e")) && environment.os("CODEX_API_KEY").is_some() {
            return Self::Key;
        }
        Self::kept(environment)
    }
}

/// What `setup` says to somebody who is logged in with ChatGPT.
pub const UNTRIED: &str = "codex is logged in with ChatGPT, so its requests have to go to \
    https://chatgpt.com/backend-api/codex, and the proxy refuses to send its token to the OpenAI API. Nobody \
    has tried this way to its end: the proxy passes no cookies on, and ChatGPT may ask for them. If it fails, \
    log codex in with a key of the OpenAI API";

/// What the user has to know before a command sends the token of a ChatGPT login to an upstream. `None` if it
/// is no such command.
#[must_use]
pub fn note(
    program: &OsStr,
    rest: &[OsString],
    environment: &Environment,
    upstream: &str,
) -> Option<String> {
    let chatgpt = Agent::of(program) == Some(Agent::Codex)
        && Login::used(rest, environment) == Login::ChatGpt;
    if !chatgpt {
        return None;
    }
    if upstream == CHATGPT {
        return Some(UNTRIED.to_owned());
    }
    if upstream == Api::OpenAi.url() {
        return Some(format!(
            "codex is logged in with ChatGPT, and its token is not for {upstream}: the proxy refuses its requests. \
             Give --upstream {CHATGPT}, or log codex in with a key of the OpenAI API"
        ));
    }
    Some(format!(
        "codex is logged in with ChatGPT, and its token goes to {upstream}, as you have chosen"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_tells_a_key_from_an_account() {
        for (text, wanted) in [
            (
                r#"{"auth_mode": "apikey", "OPENAI_API_KEY": "sk-1"}"#,
                Login::Key,
            ),
            (
                r#"{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {"access_token": "ey"}}"#,
                Login::ChatGpt,
            ),
            // A mode comes before what else is there.
            (
                r#"{"auth_mode": "chatgpt", "OPENAI_API_KEY": "sk-1", "tokens": {}}"#,
                Login::ChatGpt,
            ),
            (r#"{"auth_mode": "chatgptAuthTokens"}"#, Login::ChatGpt),
            (r#"{"auth_mode": "bedrockApiKey"}"#, Login::Unknown),
            (r#"{"OPENAI_API_KEY": "sk-1", "tokens": {}}"#, Login::Key),
            (
                r#"{"OPENAI_API_KEY": null, "tokens": {"access_token": "ey"}}"#,
                Login::ChatGpt,
            ),
            ("{}", Login::Unknown),
            ("no JSON", Login::Unknown),
        ] {
            assert_eq!(Login::of(text), wanted, "{text}");
        }
    }
}
