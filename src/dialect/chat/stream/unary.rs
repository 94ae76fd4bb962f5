//! The unstreamed equal of the stream machine: reads a whole body into an [`Answer`], and writes
//! the one body that the client gets for several hops. It works on raw bytes: what it has no
//! reason to change stays as the upstream sent it.

use bytes::Bytes;

use super::Spec;
use super::answer::{Answer, join};
use super::calls::{Fate, Table};
use super::hop::Hop;
use super::owed::{Owed, Signs};
use super::wire::{self, Body, CallFate, Chunk, Origin, Plan, Told};
use crate::dialect::stream::unary::Unstreamed;

/// Reads a hop's body; `None` if it holds no choice with a message (an error body, say).
#[must_use]
pub fn read(body: &Bytes, spec: &Spec) -> Option<Answer> {
    let chunk = Chunk::read(body, Body::Message, None)?;
    if !chunk.has_body() || chunk.is_error() {
        return None;
    }
    let mut hop = Hop::new(Table::new(&spec.hidden));
    hop.absorb(&chunk);
    hop.mark_done();
    hop.take_tokens(&chunk);
    Some(hop.take_answer())
}

/// [`Unstreamed::compose`]: the texts of all hops are joined, and their tokens; id and time are the
/// first hop's. A body has room for the speech of one hop: the last that spoke. The finish reason is
/// `stop` at the hop cap, else the last hop's.
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
    let Some(chunk) = Chunk::read(last, Body::Message, None) else {
        return last.clone();
    };
    let (fates, signs) = fates(&chunk, spec);
    let several = hops.len() > 1;
    if !several && closed.is_none() && !fates.contains(&CallFate::Hide) {
        return last.clone();
    }
    let plan = Plan {
        calls: &fates,
        signs: Some(&signs),
        hides: fates.contains(&CallFate::Hide),
        ..Plan::keep()
    };
    let mut edits = chunk.said_edits(&plan);
    let earlier = turn.earlier();
    if earlier.iter().any(|hop| hop.tokens.is_some()) {
        let lists: Vec<&Bytes> = hops.iter().filter_map(|hop| hop.tokens.as_ref()).collect();
        edits.extend(chunk.tokens_edit(&lists, plan.hides));
    } else {
        edits.extend(chunk.token_edit(&plan));
    }
    let spoken = earlier.iter().rev().find_map(|hop| hop.audio.as_ref());
    edits.extend(spoken.and_then(|audio| chunk.audio_edit(audio)));
    if several {
        let mut origin = Origin::default();
        if let Some(first) = Chunk::read(first, Body::Message, None) {
            origin.learn(&first);
        }
        edits.extend(chunk.origin_edits(&origin));
        edits.extend(
            turn.usage()
                .iter()
                .flat_map(|usage| chunk.usage_edits(Told::These(usage))),
        );
    }
    let line = closed.flatten();
    let texts = hops.iter().map(|hop| hop.text.as_str()).chain(line);
    let (text, own) = join(texts);
    if own > 0 || line.is_some() {
        edits.extend(chunk.content_edit(&text));
    }
    if closed.is_some() {
        edits.extend(chunk.finish_edit("stop"));
    }
    wire::splice(last, edits)
}

/// What becomes of each call, by the same rule by which it was read, and what others get of those
/// that go.
fn fates(chunk: &Chunk<'_>, spec: &Spec) -> (Vec<CallFate>, Signs) {
    let mut table = Table::new(&spec.hidden);
    let slots: Vec<usize> = chunk
        .calls
        .iter()
        .map(|part| table.absorb(chunk, part))
        .collect();
    table.settle(chunk.finish().as_deref().is_some_and(super::answer::is_cut));
    let fate = |slot: &usize| match table.fate(*slot) {
        Fate::Hidden | Fate::Withheld => CallFate::Hide,
        Fate::Visible | Fate::Open => CallFate::Keep,
    };
    let signs = Owed::default().pay(&table, chunk, &slots);
    (slots.iter().map(fate).collect(), signs)
}
