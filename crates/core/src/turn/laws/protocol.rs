//! What the calls of `delimiter` come to: the graph behind a turn is that of its valid calls in
//! order, whatever was refused before and however often it was said.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::properties::config;
use super::say::{Say, call, hop, text};
use super::sim::Sim;
use crate::session::graph::EpisodeKind;

/// The protocol as the paper states it: one rule a line, nothing remembered but names.
#[derive(Debug, Default)]
struct Oracle {
    /// Name, whether an act, whether closed.
    episodes: Vec<(String, bool, bool)>,
}

impl Oracle {
    fn run(&mut self, arguments: &Value) {
        let open = self.episodes.iter().position(|(_, _, closed)| !closed);
        let name = arguments["name"].as_str();
        match (arguments["action"].as_str(), open) {
            (Some("start"), None) => {
                let name = name.unwrap_or_default();
                let act = arguments["type"] == "act";
                let on = arguments["dependencies"].as_array();
                let on = on.map_or(&[][..], Vec::as_slice);
                let closed = |on: &Value| {
                    let mut all = self.episodes.iter();
                    all.any(|(name, act, closed)| on == name && !act && *closed)
                };
                let fresh = self.episodes.iter().all(|(used, ..)| used != name);
                if fresh && on.iter().all(closed) && (act || on.is_empty()) {
                    self.episodes.push((name.to_owned(), act, false));
                }
            }
            (Some("end"), Some(open)) => {
                let (own, act, _) = &self.episodes[open];
                let named = name.is_none_or(|name| name == own);
                // An act needs no description, and one that comes with it says nothing.
                if named && (*act || !arguments["description"].is_null()) {
                    self.episodes[open].2 = true;
                }
            }
            _ => {}
        }
    }
}

fn arguments() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    prop_oneof![
        3 => name().prop_map(|name| json!({"action": "start", "name": name, "type": "expl"})),
        2 => name().prop_map(|name| json!({"action": "start", "name": name, "type": "act"})),
        2 => (name(), name()).prop_map(|(name, on)| json!(
            {"action": "start", "name": name, "type": "act", "dependencies": [on]}
        )),
        4 => Just(json!({"action": "end", "description": "seen"})),
        3 => Just(json!({"action": "end"})),
        1 => name().prop_map(|name| json!({"action": "end", "name": name})),
        1 => Just(json!({"action": "go"})),
    ]
}

/// One turn: hidden calls, now and then a new hop between two, work or text at the end.
fn turn() -> impl Strategy<Value = (Vec<(Value, bool)>, bool)> {
    let said = prop::collection::vec((arguments(), prop::bool::weighted(0.3)), 0..9);
    (said, any::<bool>())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_graph_is_that_of_the_valid_calls_in_order(
        turns in prop::collection::vec(turn(), 1..5),
    ) {
        let (mut sim, mut oracle) = (Sim::new(), Oracle::default());
        for (calls, works) in turns {
            let mut said: Vec<Say> = Vec::new();
            for (arguments, ends) in calls {
                oracle.run(&arguments);
                said.push(Say::Delimit(arguments));
                said.extend(ends.then(hop));
            }
            said.push(if works { call("bash", 5) } else { text(3) });
            sim.turn(said);
            sim.user(2);
            let (_, prepared) = sim.look();
            let episodes = prepared.view.transcript().graph.episodes.iter();
            let marked = episodes.filter(|episode| episode.kind != EpisodeKind::Implicit);
            let graph: Vec<_> = marked
                .map(|episode| (episode.name.clone(), episode.kind == EpisodeKind::Act, episode.closed))
                .collect();
            prop_assert_eq!(&graph, &oracle.episodes);
        }
    }
}
