//! What annotations mean: a plain model of the `delimiter` protocol, in array order.
//!
//! Owns the truth that audits compare with. Written from the protocol's rules and from nothing
//! else, so that it can contradict the code under test.

use serde_json::Value;

use super::Hop;

/// The kind of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Exploration.
    Expl,
    /// Action.
    Act,
}

/// A point in a session: the turn and the hop in it, from 0.
pub type Point = (usize, usize);

/// One episode as a correct `delimiter` sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Episode {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The closed explorations that an action depends on.
    pub dependencies: Vec<String>,
    /// Where it was opened.
    pub start: Point,
    /// Where it was closed, if it was.
    pub end: Option<Point>,
    /// What the end of an exploration says of it.
    pub description: Option<String>,
    /// The visible calls inside of it.
    pub calls: Vec<String>,
}

/// The state of the protocol between two calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    /// All episodes so far; only the last may be open.
    pub(super) episodes: Vec<Episode>,
}

impl Model {
    pub(super) fn open(&self) -> Option<&Episode> {
        self.episodes.last().filter(|episode| episode.end.is_none())
    }

    /// The names of the closed explorations, in order.
    pub(super) fn closed(&self) -> Vec<&str> {
        self.episodes
            .iter()
            .filter(|episode| episode.kind == Kind::Expl && episode.end.is_some())
            .map(|episode| episode.name.as_str())
            .collect()
    }

    /// One annotation. Returns whether it is valid; if not, nothing changed.
    pub(super) fn annotate(&mut self, arguments: &str, at: Point) -> bool {
        let fields: Value = serde_json::from_str(arguments).unwrap_or_default();
        match text(&fields, "action") {
            Some("start") => self.start(&fields, at),
            Some("end") => self.end(&fields, at),
            _ => false,
        }
    }

    fn start(&mut self, fields: &Value, at: Point) -> bool {
        let kind = match text(fields, "type") {
            Some("expl") => Kind::Expl,
            Some("act") => Kind::Act,
            _ => return false,
        };
        let Some(name) = text(fields, "name").filter(|name| !name.is_empty()) else {
            return false;
        };
        let dependencies: Vec<String> = fields
            .get("dependencies")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        let closed = self.closed();
        let known = dependencies
            .iter()
            .all(|name| closed.contains(&name.as_str()));
        let fresh = self.episodes.iter().all(|episode| episode.name != name);
        let valid = known && fresh && self.open().is_none();
        if valid {
            self.episodes.push(Episode {
                name: name.to_owned(),
                kind,
                dependencies,
                start: at,
                end: None,
                description: None,
                calls: Vec::new(),
            });
        }
        valid
    }

    fn end(&mut self, fields: &Value, at: Point) -> bool {
        let description = text(fields, "description").filter(|text| !text.is_empty());
        let Some(open) = self
            .episodes
            .last_mut()
            .filter(|episode| episode.end.is_none())
        else {
            return false;
        };
        let valid = match open.kind {
            Kind::Expl => description.is_some(),
            Kind::Act => description.is_none(),
        };
        if valid {
            open.end = Some(at);
            open.description = description.map(str::to_owned);
        }
        valid
    }

    /// A visible call belongs to the episode that is open at its place.
    pub(super) fn call(&mut self, id: &str) {
        if let Some(open) = self
            .episodes
            .last_mut()
            .filter(|episode| episode.end.is_none())
        {
            open.calls.push(id.to_owned());
        }
    }
}

/// The episodes of a session's hops.
pub(super) fn episodes(turns: &[Vec<Hop>]) -> Vec<Episode> {
    let mut model = Model::default();
    for (turn, hops) in turns.iter().enumerate() {
        for (number, hop) in hops.iter().enumerate() {
            for planned in &hop.calls {
                if planned.hidden {
                    model.annotate(&planned.call.arguments, (turn, number));
                } else {
                    model.call(&planned.call.id);
                }
            }
        }
    }
    model.episodes
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}
