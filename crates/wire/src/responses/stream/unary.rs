//! Unstreamed Responses responses: reads a whole body into an [`Answer`], and writes the one body
//! that the client gets for several hops. Everything that it has no reason to change stays as the
//! upstream sent it.

use bytes::Bytes;

use super::output_item::{self, OutputItem};
use super::proxy_events::ProxyMessage;
use super::response::{Echo, Response};
use crate::answer::{Answer, Verdict, is_cut};
use crate::blocks::events::Visibility;
use crate::blocks::shown;
use crate::json;
use crate::names::Names;
use crate::unary::Unstreamed;

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
    let earlier = earlier.flat_map(|hop| shown::of_answer(hop, true));
    let mut output: Vec<Bytes> = earlier.collect();
    // The answer of a long body was not taken apart, so what is shown of the last hop is read from its body.
    let verdict = hops.last().map_or(Verdict::Done, Answer::verdict);
    let visible = own.iter().map(|item| {
        let read = OutputItem::read(item);
        let visibility = read.map_or(Visibility::Shown, |read| read.visibility(turn.hidden));
        (visibility, item)
    });
    output.extend(shown::of_blocks(visible, verdict));
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
