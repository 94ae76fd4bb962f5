//! Decides where a scripted model annotates, from the tools that it is about to use and a seed.
//!
//! Owns the choices: episodes that follow the work, stretches without any, annotations beside
//! visible calls and alone, and some that are wrong. It never changes what was recorded.

use serde_json::Value;

use super::forgets::Forgets;
use super::model::{Kind, Model};
use super::{Hop, PlannedCall, TOOL, end, start};
use crate::rng::Rng;
use crate::script::Call;
use crate::trace::{Answer, Recording};

/// The recorded answer as a hop.
pub(super) fn recorded(answer: &Answer) -> Hop {
    Hop {
        text: answer.text.clone(),
        reasoning: answer.reasoning.clone(),
        calls: answer
            .calls
            .iter()
            .map(|call| PlannedCall {
                call: call.clone(),
                hidden: false,
            })
            .collect(),
    }
}

/// The hops of every turn, annotated from `first` on.
pub(super) fn turns(
    recording: &Recording,
    seed: u64,
    first: usize,
    undeclared: usize,
) -> Vec<Vec<Hop>> {
    let mut rng = Rng::from_text(&recording.id, seed);
    let tag = rng.next() % 0x00ff_ffff;
    let mut writer = Writer {
        rng,
        forgets: Forgets::new(recording, undeclared),
        tag,
        model: Model::default(),
        age: 0,
        limit: 4,
        quiet: 0,
        count: 0,
    };
    let answers = recording.turns.iter().map(|turn| &turn.answer);
    answers
        .enumerate()
        .map(|(turn, answer)| match turn < first {
            true => vec![recorded(answer)],
            false => writer.turn(turn, answer),
        })
        .collect()
}

struct Writer {
    rng: Rng,
    forgets: Forgets,
    /// Makes the ids of this session's annotations its own.
    tag: u64,
    model: Model,
    /// Turns since the open episode was opened, and how many it is to last.
    age: usize,
    limit: usize,
    /// Turns that are still to go without annotations.
    quiet: usize,
    count: usize,
}

/// The annotations of a turn: those that stand alone in hops of their own, and those beside the
/// recorded calls.
#[derive(Default)]
struct Drafts {
    alone: Vec<Vec<Value>>,
    beside: Vec<Value>,
}

impl Writer {
    fn turn(&mut self, turn: usize, answer: &Answer) -> Vec<Hop> {
        self.age += 1;
        let drafts = self.draft(answer);
        let mut hops = Vec::new();
        for values in &drafts.alone {
            let mut hop = Hop::default();
            for (place, value) in values.iter().enumerate() {
                hop.calls.push(self.call(value, (turn, hops.len()), place));
            }
            self.speak(&mut hop, answer);
            hops.push(hop);
        }
        let mut last = recorded(answer);
        let at = self.seam(last.calls.len());
        let number = hops.len();
        let beside = drafts.beside.iter().enumerate();
        let calls: Vec<PlannedCall> = beside
            .map(|(place, value)| self.call(value, (turn, number), place))
            .collect();
        last.calls.splice(at..at, calls);
        hops.push(last);
        hops
    }

    /// Where annotations stand among the recorded calls: mostly before all of them.
    fn seam(&mut self, calls: usize) -> usize {
        match self.rng.below(10) {
            0 => calls,
            1 if calls > 1 => 1,
            _ => 0,
        }
    }

    /// Some hops say something beside their annotations. A text that begins with white space is
    /// left alone, so that the blank line between two hops' texts is never in doubt.
    fn speak(&mut self, hop: &mut Hop, answer: &Answer) {
        let joins = !answer.text.starts_with(char::is_whitespace);
        if joins && self.rng.chance(25) {
            hop.text = format!("Noting where this stands ({}).", self.count);
        }
        if !answer.reasoning.is_empty() && self.rng.chance(50) {
            hop.reasoning = "First the notes are to be put in order.".to_owned();
        }
    }

    fn draft(&mut self, answer: &Answer) -> Drafts {
        let mut drafts = Drafts::default();
        if self.quiet > 0 {
            self.quiet -= 1;
            return drafts;
        }
        let kind = kind_of(&answer.calls);
        let mut closing = self.closing(kind, answer);
        let opening = self.opening(kind, answer);
        if closing.is_empty() && opening.is_empty() {
            return drafts;
        }
        if answer.calls.is_empty() {
            drafts.alone.push(closing);
            return drafts;
        }
        match self.rng.below(100) {
            0..60 => {
                closing.extend(opening);
                drafts.beside = closing;
            }
            60..75 => {
                closing.extend(opening);
                drafts.alone.push(closing);
            }
            75..85 => drafts.alone.extend([closing, opening]),
            _ => {
                drafts.alone.push(closing);
                drafts.beside = opening;
            }
        }
        drafts.alone.retain(|values| !values.is_empty());
        drafts
    }

    /// The annotations that close the open episode, if it is time for that. They are applied to
    /// the model at once, so that what opens the next one builds on them.
    fn closing(&mut self, kind: Option<Kind>, answer: &Answer) -> Vec<Value> {
        let Some(open) = self.model.open().map(|open| open.kind) else {
            let stray = self
                .rng
                .chance(3)
                .then(|| end(Some("nothing was open here")));
            return stray.into_iter().map(|value| self.applied(value)).collect();
        };
        let turned = kind.is_some_and(|kind| kind != open);
        let said = answer.calls.is_empty() && self.rng.chance(70);
        if !(turned || said || self.age >= self.limit) {
            return Vec::new();
        }
        let description = self.description();
        let (right, wrong) = match open {
            Kind::Expl => (end(Some(&description)), end(None)),
            Kind::Act => (end(None), end(Some("an action has no description"))),
        };
        let mut values = Vec::new();
        if self.rng.chance(4) {
            values.push(self.applied(wrong));
        }
        values.push(self.applied(right.clone()));
        if self.rng.chance(2) {
            values.push(self.applied(right));
        }
        values
    }

    /// The annotations that open the next episode.
    fn opening(&mut self, kind: Option<Kind>, answer: &Answer) -> Vec<Value> {
        let Some(kind) = kind.filter(|_| !answer.calls.is_empty() && self.model.open().is_none())
        else {
            return Vec::new();
        };
        if self.rng.chance(7) {
            self.quiet = 3 + self.rng.below(15);
            return Vec::new();
        }
        self.count += 1;
        let name = self.name(kind, answer);
        let dependencies = self.dependencies();
        let mut values = Vec::new();
        if self.rng.chance(6) {
            let used = self
                .model
                .episodes
                .last()
                .map(|episode| episode.name.clone());
            let wrong = match (kind, used) {
                (Kind::Act, _) => start(&name, kind, &["expl-that-never-was".to_owned()]),
                (Kind::Expl, Some(used)) => start(&used, kind, &[]),
                (Kind::Expl, None) => Value::Object(serde_json::Map::new()),
            };
            values.push(self.applied(wrong));
        }
        let right = self.forgets.applied(start(&name, kind, &dependencies));
        values.push(self.applied(right));
        self.age = 0;
        self.limit = match kind {
            Kind::Expl => 2 + self.rng.below(9),
            Kind::Act => 1 + self.rng.below(6),
        };
        values
    }

    fn applied(&mut self, value: Value) -> Value {
        self.model.annotate(&value.to_string(), (0, 0));
        value
    }

    fn name(&self, kind: Kind, answer: &Answer) -> String {
        let prefix = match kind {
            Kind::Expl => "expl",
            Kind::Act => "act",
        };
        let tool = answer
            .calls
            .first()
            .map_or("work", |call| call.name.as_str());
        format!(
            "{prefix}-{:03}-{}-{:06x}",
            self.count,
            plain(tool, 24).to_lowercase(),
            self.tag
        )
    }

    /// Its beginning is unlike that of any other description, so that it can be looked for.
    fn description(&mut self) -> String {
        let number = self.model.episodes.len();
        let mut text = format!(
            "Finding {number:03} of {:06x}: the code was read and its callers are known; what \
             matters here is how the parts fit together.",
            self.tag
        );
        for _ in 0..self.rng.below(6) {
            text.push_str(" Each part keeps its own state and is told of changes by events.");
        }
        text
    }

    /// Up to three of the newest closed explorations; some actions are trivial and have none.
    fn dependencies(&mut self) -> Vec<String> {
        let newest: Vec<String> = self
            .model
            .closed()
            .iter()
            .rev()
            .take(4)
            .map(|name| (*name).to_owned())
            .collect();
        if self.rng.chance(15) {
            return Vec::new();
        }
        newest
            .into_iter()
            .filter(|_| self.rng.chance(60))
            .take(3)
            .collect()
    }

    fn call(&self, value: &Value, (turn, hop): (usize, usize), place: usize) -> PlannedCall {
        let id = format!("call_h{:06x}t{turn}h{hop}c{place}", self.tag);
        PlannedCall {
            call: Call::new(id, TOOL, value.to_string()),
            hidden: true,
        }
    }
}

/// The kind of work that calls are: an action as soon as one of them writes; `None` where they
/// are neither (lists of tasks, sub-agents, thoughts).
pub(super) fn kind_of(calls: &[Call]) -> Option<Kind> {
    let mut found = None;
    for call in calls {
        match kind_of_call(call) {
            Some(Kind::Act) => return Some(Kind::Act),
            Some(Kind::Expl) => found = Some(Kind::Expl),
            None => {}
        }
    }
    found
}

fn kind_of_call(call: &Call) -> Option<Kind> {
    const ACTS: [&str; 9] = [
        "edit", "write", "patch", "create", "update", "book_", "cancel", "save", "delete",
    ];
    const LOOKS: [&str; 9] = [
        "read", "grep", "glob", "ls", "find", "search", "get_", "list", "query",
    ];
    const SHELLS: [&str; 5] = ["bash", "terminal", "powershell", "shell", "exec"];
    const WRITES: [&str; 12] = [
        "sed -i",
        " > ",
        " >> ",
        "<<",
        "git commit",
        "git add",
        "mkdir ",
        "rm ",
        "mv ",
        "cp ",
        "install",
        "touch ",
    ];
    let name = call.name.to_lowercase();
    let has = |list: &[&str], text: &str| list.iter().any(|word| text.contains(word));
    if name.starts_with("task") || name.starts_with("todo") {
        None
    } else if has(&SHELLS, &name) {
        let writes = has(&WRITES, &call.arguments);
        Some(if writes { Kind::Act } else { Kind::Expl })
    } else if has(&ACTS, &name) {
        Some(Kind::Act)
    } else if has(&LOOKS, &name) {
        Some(Kind::Expl)
    } else {
        None
    }
}

/// The letters and digits of a text, at most so many.
fn plain(text: &str, most: usize) -> String {
    text.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(most)
        .collect()
}
