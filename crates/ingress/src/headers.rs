//! What the headers of a request ask of the proxy. Owns their names and the values that are
//! allowed. Never changes a header and never repeats a value.

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName};
use plimsoll_core::policy::Ladder;
use plimsoll_core::turn::{Mode, Overrides, PinAsk, Profiles, sizes};
use plimsoll_model::Scope;
use plimsoll_proxy::pipeline::{ProxyError, SessionHeaders};
use plimsoll_proxy::upstream::OWN_PREFIX;

/// The name of the session.
pub const SESSION: &str = "x-plimsoll-session";
/// The name of the parent session.
pub const PARENT: &str = "x-plimsoll-parent";
/// `manage`, `observe` or `off`.
pub const MODE: &str = "x-plimsoll-mode";
/// A number of tokens such as `40000` or `40k`, or a share of the model's window such as `40%`.
pub const BUDGET: &str = "x-plimsoll-budget";
/// The name of a profile in the configuration.
pub const PROFILE: &str = "x-plimsoll-profile";
/// The names of policies, joined by `+`.
pub const POLICY: &str = "x-plimsoll-policy";
/// `on` or `off`.
pub const RECALL: &str = "x-plimsoll-recall";
/// What is to be kept in view: `newest`, `none`, or ids.
pub const PIN: &str = "x-plimsoll-pin";
/// `now` asks the model to mark its work from this request on.
pub const GUIDE: &str = "x-plimsoll-guide";

/// All of them.
const KNOWN: [&str; 9] = [
    SESSION, PARENT, MODE, BUDGET, PROFILE, POLICY, RECALL, PIN, GUIDE,
];

/// The words for a switch.
const SWITCH: &[(&str, bool)] = &[("on", true), ("off", false)];

/// The only word for a time.
const NOW: &[(&str, ())] = &[("now", ())];

/// The longest name of a session, in bytes.
const MAX_ID: usize = 256;

/// Joins a session with a thread. No header value can hold this character, so no two pairs collide.
const JOINT: char = '\u{1f}';

/// How one agent names its session.
struct SessionSignal {
    session: &'static str,
    children: Children,
}

/// How an agent distinguishes the conversations of its sub-agents from its own.
enum Children {
    /// It has no sub-agents, or does not distinguish them.
    Untold,
    /// They share its session. Only they have a name of their own, in this header.
    Named(&'static str),
    /// They share its session. Every conversation is a thread, and a child names the thread of its
    /// parent.
    Threads {
        own: &'static str,
        parent: &'static str,
    },
    /// They have sessions of their own, and name the session of their parent in this header.
    Sessions(&'static str),
}

/// What real agents send. The first that is found counts.
const SIGNALS: [SessionSignal; 5] = [
    // Claude Code.
    SessionSignal {
        session: "x-claude-code-session-id",
        children: Children::Named("x-claude-code-agent-id"),
    },
    // codex.
    SessionSignal {
        session: "session-id",
        children: Children::Threads {
            own: "thread-id",
            parent: "x-codex-parent-thread-id",
        },
    },
    // opencode.
    SessionSignal {
        session: "x-session-id",
        children: Children::Sessions("x-parent-session-id"),
    },
    SessionSignal {
        session: "x-session-affinity",
        children: Children::Sessions("x-parent-session-id"),
    },
    // pi, in the responses dialect.
    SessionSignal {
        session: "session_id",
        children: Children::Untold,
    },
];

/// What a request sets for itself.
///
/// # Errors
/// [`ProxyError::Header`] if one of Plimsoll's headers is there twice or has a value that is not
/// allowed.
pub fn overrides(headers: &HeaderMap, profiles: &Profiles) -> Result<Overrides, ProxyError> {
    Ok(Overrides {
        mode: read(headers, MODE, |text| word(text, Mode::WORDS))?,
        budget: read(headers, BUDGET, |text| {
            sizes::budget(text).map_err(|error| error.to_string())
        })?,
        profile: read(headers, PROFILE, |text| profile(text, profiles))?,
        ladder: read(headers, POLICY, |text| {
            Ladder::served(text).map_err(|error| error.to_string())
        })?,
        recall: read(headers, RECALL, |text| word(text, SWITCH))?,
        guide: read(headers, GUIDE, |text| word(text, NOW))?.is_some(),
        pins: read(headers, PIN, PinAsk::read)?.unwrap_or_default(),
    })
}

/// A header that is named as one of Plimsoll's and is none, most likely because of a slip of the pen.
#[must_use]
pub fn unknown(headers: &HeaderMap) -> Option<&HeaderName> {
    let ours = |name: &&HeaderName| name.as_str().starts_with(OWN_PREFIX);
    let mut ours = headers.keys().filter(ours);
    ours.find(|name| !KNOWN.contains(&name.as_str()) && name.as_str().len() <= MAX_ID)
}

/// The header that was most likely meant by such a name.
#[must_use]
pub fn meant(name: &str) -> &'static str {
    let mut nearest = KNOWN;
    nearest.sort_by_key(|known| strsim::damerau_levenshtein(name, known));
    nearest.first().copied().unwrap_or(SESSION)
}

/// What the headers say about the session. Plimsoll's header comes first, and then what agents
/// send. The agent's threads are held apart even under Plimsoll's header, or sub-agents that run at
/// once would be one conversation.
///
/// # Errors
/// [`ProxyError::Header`] if one of Plimsoll's headers is there twice or has a value that is not
/// allowed. A header of an agent is never refused.
pub fn session(headers: &HeaderMap) -> Result<SessionHeaders, ProxyError> {
    let own = read(headers, SESSION, id)?;
    let parent = read(headers, PARENT, id)?;
    let told = SIGNALS
        .iter()
        .find_map(|signal| Some((&signal.children, sent(headers, signal.session)?)));
    let (explicit, parent_of_agent) = match told {
        Some((children, session)) => children.place(headers, own.as_deref(), session),
        None => (own, None),
    };
    Ok(SessionHeaders {
        explicit: explicit.map(Scope),
        parent: parent.or(parent_of_agent).map(Scope),
    })
}

impl Children {
    /// The scope of a conversation and of its parent. `own` is the session in Plimsoll's header,
    /// `told` the one in the agent's.
    fn place(
        &self,
        headers: &HeaderMap,
        own: Option<&str>,
        told: &str,
    ) -> (Option<String>, Option<String>) {
        let session = own.unwrap_or(told);
        let within = |thread: &str| format!("{session}{JOINT}{thread}");
        let (place, parent) = match self {
            Self::Untold => (None, None),
            Self::Named(name) => match sent(headers, name) {
                Some(name) => (Some(within(name)), Some(session.to_owned())),
                None => (None, None),
            },
            Self::Threads { own, parent } => {
                let thread = |name| sent(headers, name).map(within);
                (thread(own), thread(parent))
            }
            Self::Sessions(parent) => {
                let parent = sent(headers, parent);
                match own {
                    // The parent may have a parent itself, which nothing tells. So all of them are
                    // named in the same way.
                    Some(_) => (Some(within(told)), parent.map(within)),
                    None => (None, parent.map(str::to_owned)),
                }
            }
        };
        (place.or_else(|| Some(session.to_owned())), parent)
    }
}

/// The agent's name and version, as it sends them; empty if it sends none.
#[must_use]
pub fn agent(headers: &HeaderMap) -> &str {
    sent(headers, USER_AGENT.as_str()).unwrap_or_default()
}

/// The value of an agent's header, if it is usable text.
fn sent<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get(name)?
        .to_str()
        .ok()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// The value of one of Plimsoll's headers, read by `parse`. The error of `parse` says what is
/// allowed.
fn read<T>(
    headers: &HeaderMap,
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, ProxyError> {
    let refuse = |allowed: String| ProxyError::Header { name, allowed };
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    // Two values may come from two sources, and it is not known which of them is meant.
    if values.next().is_some() {
        return Err(refuse("must be sent once".to_owned()));
    }
    let text = value
        .to_str()
        .map_err(|_| refuse("must be plain ASCII text".to_owned()))?;
    parse(text.trim()).map(Some).map_err(refuse)
}

fn id(text: &str) -> Result<String, String> {
    let fits =
        (1..=MAX_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "must have 1 to {MAX_ID} visible ASCII characters without spaces"
        ))
    }
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("must be {}", names.join(", "))
    })
}

fn profile(text: &str, profiles: &Profiles) -> Result<String, String> {
    if profiles.has(text) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = profiles.names().collect();
    Err(format!("must be one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests;
