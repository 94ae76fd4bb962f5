//! What is said in a soak, whatever the dialect: conversations as lists of entries, and the answers
//! that the provider plans for each place of one. Never knows how any of it looks on the wire.

use std::collections::HashSet;
use std::fmt;

use plimsoll_scripted::rng::Rng;

/// The header that tells the provider where a request stands.
pub const PLACE: &str = "x-soak-place";
/// The header that names the hidden calls which the request has to show.
pub const EXPECTS: &str = "x-soak-expects";
/// What the id of every hidden call begins with, and nothing else that a client may see.
pub const HIDDEN: &str = "hid";
/// The only tool that the client brings.
pub const TOOL: &str = "bash";

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    User(String),
    Said(Reply),
    Result { id: String, text: String },
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
}

/// What a request asks, as its provider understands it.
#[derive(Debug, Default)]
pub struct Asked {
    pub entries: Vec<Entry>,
    pub tools: Vec<String>,
}

/// One try of one turn of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub session: u32,
    pub turn: u32,
    pub attempt: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.session, self.turn, self.attempt)
    }
}

impl Place {
    /// The place that a header names.
    pub fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split('x').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self {
            session: next()?,
            turn: next()?,
            attempt: next()?,
        })
    }

    /// Choices that are the same in each run; `of` keeps two kinds of choice at one place apart.
    pub fn rng(self, of: &str) -> Rng {
        Rng::from_text(&format!("{self}{of}"), 1)
    }

    /// What the id of each hidden call of this place begins with.
    pub fn hidden(self) -> String {
        format!("{HIDDEN}{self}x")
    }

    /// What the provider answers in a hop. Without hidden tools there is one hop.
    pub fn reply(self, hop: usize, offered: bool) -> Reply {
        let visible = |text: &str| Reply {
            text: format!("{text} {self}."),
            calls: vec![Call {
                id: format!("run{self}x{hop}"),
                name: TOOL.to_owned(),
                arguments: format!(r#"{{"command":"step {}"}}"#, self.turn),
            }],
        };
        if !offered {
            return visible("Without marks, step");
        }
        // A try again plans the same kind of turn.
        let plan = Self { attempt: 0, ..self }.rng("plan").below(4);
        let lone = |call: Call| Reply {
            text: String::new(),
            calls: vec![call],
        };
        match (plan, hop) {
            (0, 0) => {
                let mut reply = visible("Marked beside step");
                reply.calls.insert(0, self.delimiter(hop));
                reply
            }
            (1 | 3, 0) => lone(self.delimiter(hop)),
            (3, 1) => lone(self.hidden_call(hop, "recall", r#"{"what":"bash:999"}"#.to_owned())),
            (3, _) => Reply {
                text: format!("Step {self} needs no tool."),
                calls: Vec::new(),
            },
            _ => visible("On with step"),
        }
    }

    fn delimiter(self, hop: usize) -> Call {
        let arguments = if self.turn.is_multiple_of(2) {
            format!(
                r#"{{"action":"start","name":"part {}","type":"expl"}}"#,
                self.turn
            )
        } else {
            format!(
                r#"{{"action":"end","description":"found {} in part {}"}}"#,
                self.session, self.turn
            )
        };
        self.hidden_call(hop, "delimiter", arguments)
    }

    fn hidden_call(self, hop: usize, name: &str, arguments: String) -> Call {
        Call {
            id: format!("{}{hop}", self.hidden()),
            name: name.to_owned(),
            arguments,
        }
    }
}

impl Asked {
    /// The first rule of providers that the conversation breaks.
    pub fn fault(&self) -> Option<String> {
        let mut names = HashSet::new();
        if let Some(twice) = self.tools.iter().find(|name| !names.insert(name.as_str())) {
            return Some(format!("two tools are named {twice}"));
        }
        let mut awaited: Vec<&str> = Vec::new();
        let mut ids = HashSet::new();
        for entry in &self.entries {
            match entry {
                Entry::Result { id, .. } => {
                    let Some(at) = awaited.iter().position(|call| call == id) else {
                        return Some(format!("{id} has a result and no call before it"));
                    };
                    awaited.remove(at);
                    continue;
                }
                Entry::User(_) | Entry::Said(_) if !awaited.is_empty() => {
                    return Some(format!("{awaited:?} have no result"));
                }
                Entry::User(_) => {}
                Entry::Said(said) => {
                    for call in &said.calls {
                        if call.id.is_empty() || !ids.insert(call.id.as_str()) {
                            return Some(format!("the call id {:?} is no id of its own", call.id));
                        }
                        let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments);
                        if !arguments.is_ok_and(|arguments| arguments.is_object()) {
                            return Some(format!("{} has arguments that are no object", call.id));
                        }
                        awaited.push(&call.id);
                    }
                }
            }
        }
        (!awaited.is_empty()).then(|| format!("{awaited:?} have no result at the end"))
    }

    /// The ids of all hidden calls that the conversation shows.
    pub fn hidden(&self) -> Vec<&str> {
        let said = self.entries.iter().filter_map(|entry| match entry {
            Entry::Said(said) => Some(&said.calls),
            Entry::User(_) | Entry::Result { .. } => None,
        });
        let ids = said.flatten().map(|call| call.id.as_str());
        ids.filter(|id| id.starts_with(HIDDEN)).collect()
    }
}
