//! Answers the hidden calls of one hop and turns its answer into the hop that is recorded. Pure;
//! never sends anything.

use super::hop::{Prepared, State};
use super::known::Reader;
use crate::intercept::delimiter::{Label, Names, Outcome};
use crate::intercept::{Answer, Call, Reasoning};
use crate::model::{CallId, Effect, HiddenCall, Hop};
use crate::record::DelimiterCall;
use crate::session::tombstone::thousands;

/// Which part of a hop's message the record must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it: the client never sees this hop.
    Message,
    /// Its hidden calls: the client resends the rest.
    HiddenCalls,
}

/// The hop that an answer makes, its hidden calls run, and what to count of them.
#[must_use]
pub fn settle(
    state: &State,
    prepared: &Prepared,
    answer: &Answer,
    keep: Keep,
    reader: &Reader<'_>,
) -> (Hop, Vec<DelimiterCall>) {
    let mut names = Names::of(&prepared.transcript.graph);
    for call in state.pending.iter().flat_map(|hop| &hop.calls) {
        names.note(&call.arguments);
    }
    let said = context(state, prepared);
    let nudge = nudge(state, prepared);
    let mut counted = Vec::new();
    let mut calls: Vec<HiddenCall> = Vec::new();
    for (place, call) in answer.hidden_calls() {
        let outcome = names.run(&call.arguments, state.terms.protocol, &said);
        counted.push(count(call, &outcome));
        calls.push(hidden(call, place, outcome, reader));
    }
    if let (Some(nudge), Some(last)) = (nudge, calls.last_mut()) {
        last.result = format!("{}\n{nudge}", last.result);
        last.result_tokens = reader.count(&last.result);
        last.nudge = true;
    }
    let reasoning = answer
        .reasoning
        .iter()
        .map(|(_, reasoning)| match reasoning {
            Reasoning::Text(text) => reader.count(text),
            Reasoning::Items(raw) => std::str::from_utf8(raw).map_or(0, |raw| reader.count(raw)),
        });
    let message = answer.message();
    let (marks, kept) = state.moved();
    let hop = Hop {
        message: (keep == Keep::Message).then(|| String::from_utf8_lossy(&message).into_owned()),
        text: reader.count(&answer.text) + reader.count(&answer.refusal),
        reasoning: reasoning.sum(),
        calls,
        marks,
        kept,
        estimate: prepared.estimate,
        usage: answer.usage,
    };
    (hop, counted)
}

fn hidden(call: &Call, place: usize, outcome: Outcome, reader: &Reader<'_>) -> HiddenCall {
    HiddenCall {
        id: CallId(call.id.clone()),
        place: u32::try_from(place).unwrap_or(u32::MAX),
        bytes: call.json(),
        arguments: call.arguments.clone(),
        tokens: reader.call(&call.name, &call.arguments),
        result_tokens: reader.count(&outcome.result),
        result: outcome.result,
        effect: outcome.effect,
        nudge: false,
    }
}

fn count(call: &Call, outcome: &Outcome) -> DelimiterCall {
    let action = match (&outcome.effect, outcome.label) {
        (Effect::Started { .. }, _) => "start",
        (Effect::Ended { .. }, _) => "end",
        (Effect::Refused, _) if call.arguments.contains("\"start\"") => "start",
        (Effect::Refused, _) if call.arguments.contains("\"end\"") => "end",
        (Effect::Refused, _) => "other",
    };
    let outcome = match outcome.label {
        Label::Ok => "ok",
        Label::Refused => "refused",
        Label::Repeated => "repeated",
    };
    DelimiterCall { action, outcome }
}

/// What the success line says of the budget: `context 61k/80k`.
fn context(state: &State, prepared: &Prepared) -> String {
    let size = u32::try_from(prepared.calibrated(prepared.estimate)).unwrap_or(u32::MAX);
    format!(
        "context {}/{}",
        thousands(size),
        thousands(state.terms.ceiling)
    )
}

/// The reminder that is due when unannotated or open content passes half the ceiling, at most
/// once between passes.
fn nudge(state: &State, prepared: &Prepared) -> Option<&'static str> {
    let passed = prepared.pass.is_some();
    let given = state.path.newest().is_some_and(|record| record.nudged) && !passed;
    let earlier = state
        .pending
        .iter()
        .flat_map(|hop| &hop.calls)
        .any(|call| call.nudge);
    if !state.terms.nudge || given || earlier {
        return None;
    }
    let graph = &prepared.transcript.graph;
    let shown = |episode: &&crate::session::graph::Episode| {
        !crate::session::view::is_removed(&prepared.transcript, &state.marks, episode)
    };
    let loose: u64 = graph
        .episodes
        .iter()
        .filter(|episode| !episode.closed || episode.name.is_empty())
        .filter(shown)
        .map(|episode| u64::from(episode.tokens))
        .sum();
    (prepared.calibrated(loose) * 2 > u64::from(state.terms.ceiling)).then_some(
        "over half of the context is outside closed episodes: end what is done, and keep episodes short",
    )
}
