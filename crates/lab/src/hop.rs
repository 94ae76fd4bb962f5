//! One hop of a session that is played: its planned answer as if it had been read from a stream, and the
//! messages that went up for it, with the places of breakpoints in them. Never decides what a model says.

use bytes::Bytes;
use plimsoll_core::policy;
use plimsoll_core::render::Breakpoints;
use plimsoll_core::session::index::EntryIndex;
use plimsoll_core::turn::state::{Prepared, TurnState};
use plimsoll_scripted::plan;
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Call, Reasoning};

/// The messages array of a prepared body. What stands before it is the client's but for the tools.
pub fn array(state: &TurnState, prepared: &Prepared) -> Bytes {
    let body = prepared.body.to_bytes();
    let request = &state.request;
    let tools = request.tools.place.clone().unwrap_or(0..0);
    let longer = match &state.tools {
        Some(front) if tools.end <= request.messages_span.start => front.len(),
        Some(_) | None => 0,
    };
    let start = request.messages_span.start + longer;
    let behind = request.body.len() - request.messages_span.end;
    // The tools always stand before the messages in the bodies that `drive` builds.
    let end = body.len().saturating_sub(behind);
    body.slice(start.min(end)..end)
}

/// A planned hop as if it had been read from a stream.
pub fn answer(hop: &plan::Hop, injected: Option<&str>) -> Answer {
    let call = |planned: &plan::PlannedCall| Call {
        id: planned.call.id.clone(),
        name: match injected {
            Some(name) if planned.hidden => name.to_owned(),
            Some(_) | None => planned.call.name.clone(),
        },
        arguments: planned.call.arguments.clone(),
        kind: "function".to_owned(),
        extra: Vec::new(),
        hidden: planned.hidden,
        complete: true,
    };
    let reasoning = (!hop.reasoning.is_empty()).then(|| {
        (
            "reasoning_content".to_owned(),
            Reasoning::Text(hop.reasoning.clone()),
        )
    });
    Answer {
        text: hop.text.clone(),
        reasoning: reasoning.into_iter().collect(),
        calls: hop.calls.iter().map(call).collect(),
        complete: true,
        ..Answer::default()
    }
}

/// What stands before the places where the proxy sets breakpoints that its provider does not set by itself, in tokens and
/// messages as they are sent.
pub fn marked(state: &TurnState, prepared: &Prepared) -> Vec<(u64, usize)> {
    let view = &prepared.view;
    let wanted = Breakpoints {
        max: 0,
        cuts: [None, policy::next_cut(view.marked())],
    };
    let places = wanted.places(Dialect::Chat, view.transcript()).into_iter();
    let before = |place: EntryIndex| {
        let sizes = view.transcript().entries.indexed().zip(view.sizes());
        let sizes = sizes.take_while(move |((at, _), _)| *at < place);
        let sent = sizes
            .map(|(_, size)| u64::from(*size))
            .filter(|size| *size > 0);
        let count = |(tokens, messages), size| (tokens + size, messages + 1);
        sent.fold((state.fixed, 0), count)
    };
    places.map(|(place, _)| before(place)).collect()
}
