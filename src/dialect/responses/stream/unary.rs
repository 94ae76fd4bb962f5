//! Unstreamed Responses responses: reads a whole body into an [`Answer`], and writes the one body
//! that the client gets for several hops. What it has no reason to change stays as the upstream
//! sent it.

use bytes::Bytes;

use super::item::{self, Item, Kind};
use super::node::splice;
use super::own::Line;
use super::response::Response;
use crate::dialect::answer::{Answer, Verdict, is_cut};
use crate::dialect::stream::Spec;
use crate::dialect::stream::unary::Unstreamed;

/// Reads a hop's body; `None` if it holds no response (an error body, say).
#[must_use]
pub fn read(body: &Bytes, spec: &Spec) -> Option<Answer> {
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
    response.tell(&mut answer);
    let items: Vec<Bytes> = response
        .items()
        .iter()
        .map(|raw| share(body, raw))
        .collect();
    let cut = answer.finish.as_deref().is_none_or(is_cut);
    item::tell(&mut answer, &items, &spec.hidden, cut);
    Some(answer)
}

/// [`Unstreamed::compose`]: the output holds the items of all hops; id and time are the first hop's, and
/// what it repeats of the request is as the client sent that. Where nothing was hidden, but something
/// injected, these are the last hop's bytes but for the latter.
#[must_use]
pub fn compose(turn: &Unstreamed<'_>) -> Bytes {
    let Unstreamed {
        spec,
        first,
        last,
        hops,
        closed,
        ..
    } = *turn;
    let Some(response) = Response::of_body(last) else {
        return last.clone();
    };
    let mut edits = response.echo_edits(spec);
    let several = hops.len() > 1;
    let origin = Response::of_body(first).map(|first| first.origin());
    let origin = origin.unwrap_or_default();
    if several {
        edits.extend(response.origin_edits(&origin));
        let usage = turn.usage();
        edits.extend(usage.iter().flat_map(|usage| response.usage_edits(usage)));
    }
    let own: Vec<Bytes> = response
        .items()
        .iter()
        .map(|raw| share(last, raw))
        .collect();
    let mut items: Vec<Bytes> = Vec::new();
    for earlier in turn.earlier() {
        let blocks: Vec<Bytes> = earlier
            .blocks
            .iter()
            .map(|block| block.raw.clone())
            .collect();
        items.extend(shown(&blocks, spec, earlier.verdict()));
    }
    let verdict = hops.last().map_or(Verdict::Done, Answer::verdict);
    items.extend(shown(&own, spec, verdict));
    let line = closed.flatten().map(|text| Line::new(&origin.id(), text));
    items.extend(line.map(|line| line.item()));
    if items != own {
        edits.push(response.output_edit(&items));
    }
    if edits.is_empty() {
        return last.clone();
    }
    splice(last, edits)
}

/// The items of a hop that the client sees. Reasoning must never stand without what it led to, so
/// a hop of hidden calls alone, or one that failed, shows only such reasoning as something visible
/// follows.
fn shown(items: &[Bytes], spec: &Spec, verdict: Verdict) -> Vec<Bytes> {
    let read: Vec<Option<Item<'_>>> = items.iter().map(|raw| Item::read(raw)).collect();
    let hidden = |item: &Item<'_>| item.names(&spec.hidden);
    let plain = |item: &Item<'_>| item.kind() != Kind::Reasoning && !hidden(item);
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

/// Bytes that lie in a body, as a part of it.
fn share(body: &Bytes, raw: &[u8]) -> Bytes {
    body.slice_ref(raw)
}
