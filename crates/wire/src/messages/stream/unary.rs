//! The unstreamed equal of a Messages stream: reads a whole body into an [`Answer`], and writes the
//! one body that the client gets for several hops. Everything that it has no reason to change stays
//! as the upstream sent it.

use bytes::Bytes;
use plimsoll_model::raw::{Edit, Object};

use super::answer_builder::{self, AnswerBuilder};
use super::events::ended;
use super::usage;
use crate::answer::Answer;
use crate::blocks::shown;
use crate::json;
use crate::names::Names;
use crate::unary::{TurnEnd, Unstreamed};

/// Reads a hop's body; `None` if it is no message (an error body, say).
pub fn read(body: &Bytes, hidden: &Names) -> Option<Answer> {
    let message = Object::parse(body).ok()?;
    let blocks = json::array(message.raw("content")?)?;
    let mut hop = AnswerBuilder::default();
    hop.begin(&message);
    for (at, block) in (0..).zip(blocks) {
        if let Ok(block) = Object::parse(block) {
            hop.open(at, &block, hidden);
            hop.close(at);
        }
    }
    if let Some(reason) = message.text("stop_reason") {
        hop.finish(reason.into_owned());
    }
    hop.stop();
    Some(hop.answer())
}

/// The body that the client gets: the blocks of all hops in order, under the first hop's id. The
/// stop reason is `end_turn` at the hop cap, else the last hop's.
pub fn compose(turn: &Unstreamed<'_>) -> Bytes {
    let last = turn.last;
    let Ok(message) = Object::parse(last) else {
        return last.clone();
    };
    let visible = |block: &&[u8]| {
        let block = Object::parse(block);
        !block.is_ok_and(|block| answer_builder::meant(&block, turn.hidden).is_some())
    };
    let blocks = || json::elements(message.raw("content").unwrap_or_default());
    let own: Vec<&[u8]> = blocks().filter(visible).collect();
    if turn.is_last_alone() && own.len() == blocks().count() {
        return last.clone();
    }
    let earlier = turn.earlier();
    let before = earlier.iter().flat_map(|hop| shown::of_answer(hop, false));
    let before: Vec<Bytes> = before.collect();
    let line = turn.end.line().map(|line| json::text_part("text", line));
    let line = line.as_ref().map(String::as_bytes);
    let before = before.iter().map(Bytes::as_ref);
    let content: Vec<&[u8]> = before.chain(own).chain(line).collect();
    let mut edits: Vec<Edit> = vec![message.set("content", &json::list(&content))];
    if !earlier.is_empty() {
        let first = Object::parse(turn.first).ok();
        let id = first.as_ref().and_then(|first| first.raw("id"));
        edits.extend(id.map(|id| message.set("id", id)));
    }
    edits.extend(turn.usage().map(|usage| usage::tell(&message, &usage)));
    let whole = json::splice(last, edits);
    match (turn.end, Object::parse(&whole)) {
        (TurnEnd::HopCap { .. }, Ok(message)) => ended(&message),
        _ => whole,
    }
}
