//! Annotations that follow from the tools that an answer uses: between two user messages,
//! exploration until the first call that writes, then an action that depends on it, and so on.
//!
//! Owns that rule. It never adds a hop and never changes what was recorded.

use serde_json::Value;

use super::annotate::{kind_of, recorded};
use super::model::Kind;
use super::{Hop, PlannedCall, TOOL, end, start};
use crate::script::Call;
use crate::trace::Recording;

/// The hops of every turn: one each.
pub(super) fn turns(recording: &Recording) -> Vec<Vec<Hop>> {
    let mut writer = Writer::default();
    let turns = recording.turns.iter().enumerate();
    turns
        .map(|(number, turn)| {
            let asked = turn.before.iter().any(|said| said.role == "user");
            vec![writer.turn(number, asked, recorded(&turn.answer), &turn.answer.calls)]
        })
        .collect()
}

#[derive(Default)]
struct Writer {
    open: Option<Kind>,
    /// Explorations that were closed since the user spoke.
    explored: Vec<String>,
    count: usize,
}

impl Writer {
    fn turn(&mut self, turn: usize, asked: bool, mut hop: Hop, calls: &[Call]) -> Hop {
        // Without a visible call beside them, annotations would be a hop of their own.
        if calls.is_empty() {
            return hop;
        }
        let kind = kind_of(calls);
        let turned = kind.is_some() && kind != self.open;
        let mut values = Vec::new();
        if asked || turned {
            values.extend(self.close());
        }
        if asked {
            self.explored.clear();
        }
        if self.open.is_none()
            && let Some(kind) = kind
        {
            values.push(self.begin(kind));
        }
        let added = values.iter().enumerate().map(|(place, value)| PlannedCall {
            call: Call::new(format!("call_i{turn}c{place}"), TOOL, value.to_string()),
            hidden: true,
        });
        hop.calls.splice(0..0, added);
        hop
    }

    fn close(&mut self) -> Option<Value> {
        match self.open.take()? {
            Kind::Act => Some(end(None)),
            Kind::Expl => {
                self.explored.push(name(Kind::Expl, self.count));
                Some(end(Some("looked around before the next change")))
            }
        }
    }

    fn begin(&mut self, kind: Kind) -> Value {
        self.count += 1;
        self.open = Some(kind);
        start(&name(kind, self.count), kind, &self.explored)
    }
}

fn name(kind: Kind, count: usize) -> String {
    match kind {
        Kind::Expl => format!("look-{count}"),
        Kind::Act => format!("change-{count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;

    #[test]
    fn exploration_ends_at_the_first_write_and_the_change_depends_on_it() {
        let call = |name: &str, id: &str| {
            format!(
                r#"{{"role":"assistant","content":"","tool_calls":[{{"id":"{id}","function":{{"name":"{name}","arguments":"{{}}"}}}}]}}"#
            )
        };
        let user = r#"{"role":"user","content":"go"}"#.to_owned();
        let lines = [
            user.clone(),
            call("Read", "a"),
            call("Grep", "b"),
            call("Edit", "c"),
            call("TodoWrite", "d"),
            user,
            call("Write", "e"),
            call("Read", "f"),
        ];
        let recording = Recording::parse(&lines.join("\n")).unwrap();
        let plan = Plan::inferred(&recording);
        let shown: Vec<(String, Vec<String>, bool)> = plan
            .episodes
            .iter()
            .map(|e| (e.name.clone(), e.dependencies.clone(), e.end.is_some()))
            .collect();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                ("look-1".to_owned(), names(&[]), true),
                ("change-2".to_owned(), names(&["look-1"]), true),
                ("change-3".to_owned(), names(&[]), true),
                ("look-4".to_owned(), names(&[]), false),
            ]
        );
        let census = plan.census();
        assert_eq!((census.invalid, census.hidden_hops), (0, 0));
    }
}
