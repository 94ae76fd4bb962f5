//! Unstreamed Responses responses: reads a whole body into an [`Answer`], and writes the one body
//! that the client gets for several hops. Everything that it has no reason to change stays as the
//! upstream sent it.

use bytes::Bytes;

use super::output_item::{self, OutputItem};
use super::proxy_events::ProxyMessage;
use super::response::{Echo, Response};
use crate::dialect::answer::{Answer, Verdict, is_cut};
use crate::dialect::blocks::Piece;
use crate::dialect::json;
use crate::dialect::names::Names;
use crate::dialect::unary::Unstreamed;

/// Reads a hop's body; `None` if it holds no response (an error body, say).
pub fn read(body: &Bytes, hidden: &Names) -> Option<Answer> {
    let response = Response::of_body(body)?;
    let mut answer = Answer {
        finish: response.finish(),
        ..Answer::default()
    };
    answer.complete = answer.finish.is_some();
    if !answer.complete {
        let error = response.error().unwrap_or(b"{}");
        answer.error = Some(Bytes::copy_from_slice(error));
    }
    response.add_to(&mut answer);
    let cut = answer.finish.as_deref().is_none_or(is_cut);
    output_item::add_to(&mut answer, &items(&response, body), hidden, cut);
    Some(answer)
}

/// The body that the client gets: the output holds the items of all hops, id and time are the first
/// hop's, and what the response repeats of the request is as the client sent it. If tools were only
/// injected and none was called, these are the last hop's bytes but for those repetitions.
pub fn compose(turn: &Unstreamed<'_>, echo: &Echo) -> Bytes {
    let (last, hops) = (turn.last, turn.hops);
    let Some(response) = Response::of_body(last) else {
        return last.clone();
    };
    let origin = Response::of_body(turn.first).map(|first| first.origin());
    let origin = origin.unwrap_or_default();
    let own = items(&response, last);
    let earlier = turn.earlier().iter();
    let mut output: Vec<Bytes> = earlier.flat_map(|hop| hop.shown_blocks(true)).collect();
    // The answer of a long body was not taken apart, so what is shown of the last hop is read from its body.
    let verdict = hops.last().map_or(Verdict::Done, Answer::verdict);
    output.extend(shown(&own, turn.hidden, verdict));
    let line = turn.end.line();
    output.extend(line.map(|text| ProxyMessage::new(&origin.id(), text).item()));
    let differs = output != own;
    let origin = Some(&origin).filter(|_| hops.len() > 1);
    let output = differs.then_some(output.as_slice());
    let edits = response.own_edits((turn.hidden, echo), turn.usage().as_ref(), origin, output);
    if edits.is_empty() {
        return last.clone();
    }
    json::splice(last, edits)
}

/// The items of a response's output, as parts of its body.
fn items(response: &Response<'_>, body: &Bytes) -> Vec<Bytes> {
    let items = response.items().into_iter();
    items.map(|item| body.slice_ref(item)).collect()
}

/// The items of a hop that the client sees. Reasoning must never stand without what it led to. So a
/// hop of hidden calls alone, or one that failed, shows only the reasoning that something visible
/// follows.
fn shown(items: &[Bytes], names: &Names, verdict: Verdict) -> Vec<Bytes> {
    let read: Vec<Option<OutputItem<'_>>> = items.iter().map(|raw| OutputItem::read(raw)).collect();
    let hidden = |item: &OutputItem<'_>| item.names(names);
    let plain = |item: &OutputItem<'_>| item.kind() != Piece::Reasoning && !hidden(item);
    let end = match verdict {
        Verdict::HiddenOnly | Verdict::Broken => read
            .iter()
            .rposition(|item| item.as_ref().is_none_or(plain))
            .map_or(0, |last| last + 1),
        Verdict::Done | Verdict::Mixed | Verdict::Cut => items.len(),
    };
    let visible = read.iter().map(|item| !item.as_ref().is_some_and(hidden));
    let both = items.iter().zip(visible).take(end);
    both.filter(|(_, visible)| *visible)
        .map(|(raw, _)| raw.clone())
        .collect()
}
