//! The unstreamed equal of a Messages stream: reads a whole body into an [`Answer`], and writes
//! the one body that the client gets for several hops. What it has no reason to change stays as
//! the upstream sent it.

use bytes::Bytes;

use super::events::ended;
use super::hop::Hop;
use super::usage;
use crate::dialect::answer::Answer;
use crate::dialect::stream::Spec;
use crate::dialect::stream::unary::Unstreamed;
use crate::model::raw::{self, Edit, Object};

/// Reads a hop's body; `None` if it is no message (an error body, say).
#[must_use]
pub fn read(body: &Bytes, spec: &Spec) -> Option<Answer> {
    let message = Object::parse(body).ok()?;
    let blocks = elements(&message)?;
    let mut hop = Hop::default();
    hop.begin(&message);
    for (at, block) in (0..).zip(blocks) {
        if let Ok(block) = Object::parse(block) {
            hop.open(at, &block, &spec.hidden);
            hop.close(at);
        }
    }
    if let Some(reason) = message.text("stop_reason") {
        hop.finish(reason.into_owned());
    }
    hop.stop();
    Some(hop.answer())
}

/// [`Unstreamed::compose`]: the blocks of all hops stand one behind the other. The stop reason is
/// `end_turn` at the hop cap, else the last hop's.
#[must_use]
pub fn compose(turn: &Unstreamed<'_>) -> Bytes {
    let Unstreamed {
        spec,
        first,
        last,
        closed,
        ..
    } = *turn;
    let Ok(message) = Object::parse(last) else {
        return last.clone();
    };
    let blocks = elements(&message).unwrap_or_default();
    let own: Vec<&[u8]> = blocks
        .iter()
        .copied()
        .filter(|block| !is_hidden(block, spec))
        .collect();
    let earlier = turn.earlier();
    if earlier.is_empty() && closed.is_none() && own.len() == blocks.len() {
        return last.clone();
    }
    let before = earlier.iter().flat_map(|hop| &hop.blocks);
    let before = before.map(|block| block.raw.as_ref());
    let before = before.filter(|block| !is_hidden(block, spec));
    let line = closed.flatten().map(|line| {
        let line = raw::quote(line);
        format!(r#"{{"type":"text","text":{line}}}"#)
    });
    let said: Vec<&[u8]> = before
        .chain(own)
        .chain(line.as_ref().map(String::as_bytes))
        .collect();
    let said = [b"[", said.join(b",".as_slice()).as_slice(), b"]"].concat();
    let mut edits: Vec<Edit> = vec![message.set("content", &said)];
    if !earlier.is_empty() {
        let first = Object::parse(first).ok();
        let id = first.as_ref().and_then(|first| first.raw("id"));
        edits.extend(id.map(|id| message.set("id", id)));
        edits.extend(turn.usage().map(|usage| usage::tell(&message, &usage)));
    }
    let whole = usage::splice(last, edits);
    match (closed, Object::parse(&whole)) {
        (Some(_), Ok(message)) => ended(&message),
        _ => whole,
    }
}

fn elements<'a>(message: &Object<'a>) -> Option<Vec<&'a [u8]>> {
    let content = message.raw("content")?;
    let spans = raw::array(content).ok()?.into_iter();
    Some(spans.filter_map(|span| content.get(span)).collect())
}

fn is_hidden(block: &[u8], spec: &Spec) -> bool {
    Object::parse(block).is_ok_and(|block| super::hop::is_hidden(&block, &spec.hidden))
}
