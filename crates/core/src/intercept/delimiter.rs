//! The `delimiter` protocol (paper 000 §4.2, design §4): validates one call, decides what it does,
//! and writes its result. Pure. Never changes the graph, which follows from recorded effects.

use std::collections::{BTreeMap, HashSet};

use plimsoll_model::{DelimiterAction, Effect, ExplicitKind, label_set};
use serde_json::{Map, Value};

use crate::session::graph::{EpisodeKind, Graph};

/// The most characters of a name. Longer names are refused so that tombstones stay short.
const NAME_CHARS: usize = 120;
/// How many closed expl names an error lists.
const LISTED: usize = 20;

/// The names that a call is checked against. Each call of a message changes them for the next.
#[derive(Clone, Debug, Default)]
pub struct EpisodeNames {
    used: HashSet<String>,
    closed_expl: Vec<String>,
    open: Option<(String, ExplicitKind)>,
    done: HashSet<String>,
}

/// Settings of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Whether a start closes the episode that is open.
    pub auto_close: bool,
}

/// What a call did, and the text of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelimiterAnswer {
    /// What it did.
    pub effect: Effect,
    /// The result's text.
    pub result: String,
    /// The outcome's name in metrics.
    pub label: DelimiterOutcome,
}

label_set!(
    /// How a call ended, for metrics.
    #[derive(Hash)]
    DelimiterOutcome {
        /// It was taken.
        Ok => "ok",
        /// It started an act without a word of what that depends on, and was taken as if it depends on
        /// nothing.
        Undeclared => "undeclared",
        /// It was refused with a text that says why.
        Refused => "refused",
        /// It repeats an earlier call of its turn.
        Repeated => "repeated",
    }
);

/// A call that is not refused: what it does, what its result begins with, and how it is counted.
struct Taken {
    effect: Effect,
    said: String,
    label: DelimiterOutcome,
}

/// One `delimiter` call and its outcome, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct DelimiterCall {
    /// What it asks for.
    pub action: DelimiterAction,
    /// Whether it was taken.
    pub outcome: DelimiterOutcome,
}

impl EpisodeNames {
    /// The names of a graph.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let explicit = graph
            .episodes
            .iter()
            .filter(|episode| episode.kind != EpisodeKind::Implicit);
        Self {
            used: explicit.map(|episode| episode.name.clone()).collect(),
            closed_expl: graph.closed_expl().map(str::to_owned).collect(),
            open: graph.open().map(|episode| {
                let kind = match episode.kind {
                    EpisodeKind::Act => ExplicitKind::Act,
                    EpisodeKind::Expl | EpisodeKind::Implicit => ExplicitKind::Expl,
                };
                (episode.name.clone(), kind)
            }),
            done: HashSet::new(),
        }
    }

    /// Remembers a call of an earlier hop of the turn, so that the same call is answered as done.
    pub fn note(&mut self, arguments: &str) {
        self.done.insert(arguments.to_owned());
    }

    /// Runs one call. `context` is what the result of a successful call says about the budget.
    /// Repeated calls are judged again: one that was refused may be valid by now, and so may one
    /// that was accepted, such as the `end` of a second act.
    pub fn run(&mut self, arguments: &str, protocol: Protocol, context: &str) -> DelimiterAnswer {
        match self.effect(arguments, protocol) {
            Err(_) if self.done.contains(arguments) => refused(
                DelimiterOutcome::Repeated,
                "already done; go on with the work".to_owned(),
            ),
            Err(why) => refused(DelimiterOutcome::Refused, why),
            Ok(Taken {
                effect,
                said,
                label,
            }) => {
                self.apply(&effect);
                self.done.insert(arguments.to_owned());
                DelimiterAnswer {
                    effect,
                    result: format!("{said} · {context}"),
                    label,
                }
            }
        }
    }

    fn effect(&self, arguments: &str, protocol: Protocol) -> Result<Taken, String> {
        let fields = fields(arguments)?;
        match text(&fields, "action")? {
            Some("start") => self.start(&fields, protocol),
            Some("end") => self.end(&fields),
            _ => Err("set action to \"start\" or \"end\"".to_owned()),
        }
    }

    fn start(&self, fields: &Map<String, Value>, protocol: Protocol) -> Result<Taken, String> {
        let name = text(fields, "name")?
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let name = name.ok_or("give the episode a name to start it")?;
        if name.chars().count() > NAME_CHARS {
            return Err(format!(
                "give a shorter name: at most {NAME_CHARS} characters"
            ));
        }
        let kind = match text(fields, "type")? {
            Some("expl") => ExplicitKind::Expl,
            Some("act") => ExplicitKind::Act,
            _ => return Err("set type to \"expl\" (gathering) or \"act\" (doing)".to_owned()),
        };
        if let Some((open, _)) = self.open.as_ref().filter(|_| !protocol.auto_close) {
            return Err(format!(
                "end \"{open}\" first: one episode is open at a time"
            ));
        }
        // Tombstones and dependencies are told by name, so a name is used once.
        if self.used.contains(name) {
            return Err(format!("choose another name: \"{name}\" was used already"));
        }
        // Only what is closed can be built on.
        let dependencies = self.dependencies(fields, kind)?;
        let label = match (kind, declared(fields)) {
            (ExplicitKind::Act, None) => DelimiterOutcome::Undeclared,
            (ExplicitKind::Act, Some(_)) | (ExplicitKind::Expl, _) => DelimiterOutcome::Ok,
        };
        Ok(Taken {
            said: format!("opened {} \"{name}\"", kind_name(kind)),
            label,
            effect: Effect::Started {
                name: name.to_owned(),
                kind,
                dependencies,
            },
        })
    }

    fn dependencies(
        &self,
        fields: &Map<String, Value>,
        kind: ExplicitKind,
    ) -> Result<Vec<String>, String> {
        let given = match declared(fields) {
            None => &[][..],
            Some(Value::Array(names)) => names.as_slice(),
            Some(_) => return Err("give dependencies as a list of names".to_owned()),
        };
        // Only an act has dependencies. Those of an expl do no harm and are dropped.
        if kind == ExplicitKind::Expl {
            return Ok(Vec::new());
        }
        let mut known: BTreeMap<&str, ()> = BTreeMap::new();
        let mut names = Vec::with_capacity(given.len());
        for value in given {
            let name = value
                .as_str()
                .ok_or("give dependencies as a list of names")?;
            if !self.closed_expl.iter().any(|closed| closed == name) {
                return Err(self.unknown(name));
            }
            if known.insert(name, ()).is_none() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn unknown(&self, name: &str) -> String {
        if self.closed_expl.is_empty() {
            return format!(
                "\"{name}\" is no closed expl episode; there is none yet, so start with dependencies []"
            );
        }
        let newest: Vec<&str> = self
            .closed_expl
            .iter()
            .rev()
            .take(LISTED)
            .map(String::as_str)
            .collect();
        format!(
            "\"{name}\" is no closed expl episode; closed are: {}",
            newest.join(", ")
        )
    }

    fn end(&self, fields: &Map<String, Value>) -> Result<Taken, String> {
        let Some((name, kind)) = self.open.clone() else {
            return Err("nothing is open: go on, or start an episode".to_owned());
        };
        if let Some(named) = text(fields, "name")?.filter(|named| *named != name) {
            return Err(format!(
                "\"{named}\" is not open; end without a name closes \"{name}\""
            ));
        }
        let description = text(fields, "description")?
            .map(str::trim)
            .filter(|d| !d.is_empty());
        let said = format!("closed {} \"{name}\"", kind_name(kind));
        let description = match (kind, description) {
            (ExplicitKind::Expl, None) => {
                return Err("add a description of what you learned to end an expl".to_owned());
            }
            // Some models describe every end. Refusing that would leave their acts open, so the
            // description of an act is dropped.
            (ExplicitKind::Act, _) => None,
            (ExplicitKind::Expl, Some(description)) => Some(description.to_owned()),
        };
        Ok(Taken {
            effect: Effect::Ended { name, description },
            said,
            label: DelimiterOutcome::Ok,
        })
    }

    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Started { name, kind, .. } => {
                self.close();
                self.used.insert(name.clone());
                self.open = Some((name.clone(), *kind));
            }
            Effect::Ended { .. } => self.close(),
            Effect::Recalled { .. } | Effect::Refused => {}
        }
    }

    fn close(&mut self) {
        if let Some((name, ExplicitKind::Expl)) = self.open.take() {
            self.closed_expl.push(name);
        }
    }
}

fn refused(label: DelimiterOutcome, result: String) -> DelimiterAnswer {
    DelimiterAnswer {
        effect: Effect::Refused,
        result,
        label,
    }
}

fn kind_name(kind: ExplicitKind) -> &'static str {
    match kind {
        ExplicitKind::Expl => "expl",
        ExplicitKind::Act => "act",
    }
}

/// What a start says that it depends on; none if it leaves that out.
fn declared(fields: &Map<String, Value>) -> Option<&Value> {
    fields.get("dependencies").filter(|given| !given.is_null())
}

fn fields(arguments: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err("send the arguments as a JSON object with an action".to_owned()),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("send {key} as text")),
    }
}

#[cfg(test)]
mod tests;
