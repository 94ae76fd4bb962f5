//! The unstreamed equal of the stream machine: reads a whole body into an [`Answer`], and writes
//! the one body that the client gets for several hops. It works on raw bytes: everything that it
//! has no reason to change stays as the upstream sent it.

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit};

use super::answer_builder::AnswerBuilder;
use super::beside_text;
use super::call_table::{CallTable, Visibility};
use super::signature_debts::SignatureDebts;
use super::wire::{Body, CallPlan, Chunk, ChunkSigns, Origin, RewritePlan, UsagePlan};
use crate::answer::{Answer, concat, is_cut, join, seam};
use crate::json;
use crate::names::Names;
use crate::unary::{TurnEnd, Unstreamed};

/// Reads a hop's body; `None` if it holds no choice with a message (an error body, say).
pub fn read(body: &Bytes, hidden: &Names) -> Option<Answer> {
    let chunk = Chunk::read(body, Body::Message, None)?;
    if !chunk.has_delta() || chunk.is_error() {
        return None;
    }
    let mut hop = AnswerBuilder::new(CallTable::new(hidden));
    hop.absorb(&chunk);
    hop.mark_done();
    hop.take_tokens(&chunk);
    hop.take_beside(&chunk, body);
    Some(hop.take_answer())
}

/// The body that the client gets: the texts of all hops joined, and their tokens, under the first
/// hop's id and time. A body has room for the speech of one hop: the last that spoke. The finish
/// reason is `stop` at the hop cap, else the last hop's.
pub fn compose(turn: &Unstreamed<'_>) -> Bytes {
    let (last, hops) = (turn.last, turn.hops);
    let Some(chunk) = Chunk::read(last, Body::Message, None) else {
        return last.clone();
    };
    let (calls, signs) = plan_calls(&chunk, turn.hidden);
    let hides = calls.contains(&CallPlan::Hide);
    if turn.is_last_alone() && !hides {
        return last.clone();
    }
    let plan = RewritePlan {
        calls: &calls,
        signs: Some(&signs),
        hides,
        ..RewritePlan::default()
    };
    let mut edits = chunk.delta_edits(&plan);
    // The tokens are those of all that was said, in its order.
    let mut earlier = turn.earlier().iter();
    if earlier.any(|hop| hop.tokens.iter().any(Option::is_some)) {
        let tokens: Vec<_> = hops.iter().map(|hop| &hop.tokens).collect();
        edits.extend(chunk.tokens_edit(&tokens, hides));
    } else {
        edits.extend(chunk.token_edit(&plan));
    }
    let mut earlier = turn.earlier().iter().rev();
    let speech = earlier.find_map(|hop| hop.audio.as_ref());
    edits.extend(speech.and_then(|audio| chunk.audio_edit(audio)));
    // The response is the first hop's, and its usage that of all hops.
    if hops.len() > 1 {
        let mut origin = Origin::default();
        if let Some(first) = Chunk::read(turn.first, Body::Message, None) {
            origin.learn(&first);
        }
        edits.extend(chunk.origin_edits(&origin));
    }
    let usage = turn.usage();
    let replaced = usage.iter().map(UsagePlan::Replace);
    edits.extend(replaced.flat_map(|plan| chunk.usage_edits(plan)));
    let line = turn.end.line();
    let texts = hops.iter().map(|hop| hop.text.as_str()).chain(line);
    let (text, own) = join(texts);
    if own > 0 || line.is_some() {
        edits.extend(chunk.content_edit(&text));
    }
    edits.extend(beside_edits(&chunk, hops));
    if turn.end != TurnEnd::Upstream {
        edits.extend(chunk.finish_edit("stop"));
    }
    json::splice(last, edits)
}

/// The edits that give the message what stood beside the texts of all hops, and what they refused.
fn beside_edits(chunk: &Chunk<'_>, hops: &[Answer]) -> Vec<Edit> {
    let (Some(message), [_, _, ..]) = (&chunk.delta, hops) else {
        return Vec::new();
    };
    let mut edits = Vec::new();
    let lists = beside_text::joined(hops, &begins(hops));
    for (key, list) in beside_text::LISTS.into_iter().zip(lists) {
        if !list.is_empty() {
            edits.push(message.set(key, &json::list(&list)));
        }
    }
    let refusals = hops.iter().map(|hop| hop.refusal.as_str());
    // A client of a stream reads its pieces as one, too.
    let (refusal, own) = concat(refusals);
    if own > 0 {
        edits.push(message.set("refusal", raw::quote(&refusal).as_bytes()));
    }
    edits
}

/// How many characters stand before the text of each hop in the text of all.
fn begins(hops: &[Answer]) -> Vec<usize> {
    let mut joined = String::new();
    let begins = hops.iter().map(|hop| {
        joined.push_str(seam(&joined, &hop.text));
        let begin = joined.chars().count();
        joined.push_str(&hop.text);
        begin
    });
    begins.collect()
}

/// What becomes of each call, by the rule by which the body was read, and what the calls that stay
/// get of those that go.
fn plan_calls(chunk: &Chunk<'_>, hidden: &Names) -> (Vec<CallPlan>, ChunkSigns) {
    let mut table = CallTable::new(hidden);
    let slots: Vec<usize> = chunk
        .calls
        .iter()
        .map(|part| table.absorb(chunk, part))
        .collect();
    table.settle(chunk.finish().as_deref().is_some_and(is_cut));
    let plan = |slot: &usize| match table.visibility(*slot) {
        Visibility::Hidden | Visibility::Withheld => CallPlan::Hide,
        Visibility::Visible | Visibility::Open => CallPlan::Keep,
    };
    let signs = SignatureDebts::default().pay(&table, chunk, &slots);
    (slots.iter().map(plan).collect(), signs)
}
