//! Limits what the proxy keeps of hidden calls, and so sends with every later request. It limits an
//! answer before it is recorded, and records of earlier versions, which limited nothing or kept
//! arguments that are no object. Pure. Never runs a call.

use std::borrow::Cow;
use std::sync::Arc;

use super::memo::Reader;
use crate::dialect::answer::{Answer, Block, BlockKind, Call};
use crate::dialect::edit::{AssistantEdit, CallEdit};
use crate::intercept::bounds::{MOST, NOTHING, is_object, kept};
use crate::model::{Dialect, Effect, HiddenCall, HiddenTool, StoredHop, TurnRecord};
use crate::render::tools::Injected;
use crate::session::path::Path;

/// The most bytes of a provider's own fields of a call, such as signatures. If a call has more, all
/// of them are dropped.
const EXTRA: usize = 64 * 1024;

/// The most hidden calls that are kept of one answer.
pub(super) const CALLS: usize = 32;

/// The answer without the hidden calls that are too many, and those. Every later request would send them, and their
/// results, again.
pub(super) fn few(answer: &Answer) -> (Cow<'_, Answer>, Vec<&Call>) {
    let mut gone = vec![false; answer.calls.len()];
    let mut many = Vec::new();
    for (place, call) in answer.hidden_calls().skip(CALLS) {
        if let Some(slot) = gone.get_mut(place) {
            *slot = true;
            many.push(call);
        }
    }
    if many.is_empty() {
        return (Cow::Borrowed(answer), many);
    }
    // Where each call stands when those are gone.
    let mut next = 0..;
    let places: Vec<Option<usize>> = gone
        .iter()
        .map(|gone| if *gone { None } else { next.next() })
        .collect();
    let mut few = answer.clone();
    let mut kept = gone.iter().map(|gone| !gone);
    few.calls.retain(|_| kept.next().unwrap_or(true));
    // A thought goes with the call that it led to: some providers refuse one with nothing behind it.
    let mut behind = false;
    let mut blocks = Vec::with_capacity(few.blocks.len());
    for mut block in few.blocks.drain(..).rev() {
        match &mut block.kind {
            BlockKind::Call(place) => match places.get(*place) {
                Some(None) => behind = true,
                Some(Some(now)) => (*place, behind) = (*now, false),
                None => behind = false,
            },
            BlockKind::Reasoning => {}
            BlockKind::Text | BlockKind::Other => behind = false,
        }
        if !behind {
            blocks.push(block);
        }
    }
    blocks.reverse();
    few.blocks = blocks;
    (Cow::Owned(few), many)
}

/// The answer as it is kept, with its hidden calls limited.
pub(super) fn answer<'a>(
    dialect: Dialect,
    injected: &Injected,
    answer: &'a Answer,
) -> Cow<'a, Answer> {
    let mut out = Cow::Borrowed(answer);
    for (place, call) in answer.hidden_calls() {
        let tool = injected.of(&call.name).unwrap_or_default();
        let arguments = kept(tool, &call.arguments);
        let extra: usize = call
            .extra
            .iter()
            .map(|(key, raw)| key.len() + raw.len())
            .sum();
        if arguments.is_none() && extra <= EXTRA {
            continue;
        }
        let call = Call {
            arguments: arguments.unwrap_or_else(|| call.arguments.clone()),
            extra: if extra > EXTRA {
                Vec::new()
            } else {
                call.extra.clone()
            },
            ..call.clone()
        };
        replace(dialect, out.to_mut(), place, call);
    }
    out
}

/// Replaces a call in the list of calls and in the blocks of the message.
pub(super) fn replace(dialect: Dialect, answer: &mut Answer, place: usize, call: Call) {
    let of_call = |block: &&mut Block| block.kind == BlockKind::Call(place);
    if let Some(block) = answer.blocks.iter_mut().find(of_call) {
        block.raw = dialect.call_of(&call).into();
    }
    if let Some(slot) = answer.calls.get_mut(place) {
        *slot = call;
    }
}

/// The path with its records limited as this version limits what it writes; `None` if they are
/// already.
pub(super) fn path(dialect: Dialect, reader: &Reader<'_>, path: &Path) -> Option<Path> {
    if !path.entries.iter().any(|entry| is_over(&entry.record)) {
        return None;
    }
    let mut path = path.clone();
    for entry in path
        .entries
        .iter_mut()
        .filter(|entry| is_over(&entry.record))
    {
        let mut record = TurnRecord::clone(&entry.record);
        let names = [record.injected.clone(), record.recall.clone()];
        for hop in &mut record.hops {
            bound(dialect, reader, &names, hop);
        }
        entry.record = Arc::new(record);
    }
    Some(path)
}

fn is_over(record: &TurnRecord) -> bool {
    let mut calls = record.hops.iter().flat_map(|hop| &hop.calls);
    calls.any(is_unfit)
}

/// Whether a call was kept in a form that providers refuse, or larger than it can need.
fn is_unfit(call: &HiddenCall) -> bool {
    call.arguments.len() > MOST || !is_object(&call.arguments)
}

fn bound(
    dialect: Dialect,
    reader: &Reader<'_>,
    [delimiter, recall]: &[Option<String>; 2],
    hop: &mut StoredHop,
) {
    let mut edit = AssistantEdit::default();
    for call in hop.calls.iter_mut().filter(|call| is_unfit(call)) {
        let nothing = CallEdit {
            arguments: Some(NOTHING),
            ..CallEdit::default()
        };
        edit.arguments.push((call.place as usize, NOTHING));
        if let Some(bytes) = dialect.edit_call(call.bytes.as_bytes(), &nothing) {
            call.bytes = String::from_utf8_lossy(&bytes).into_owned();
        }
        call.arguments = NOTHING.to_owned();
        let name = match call.tool {
            HiddenTool::Delimiter => delimiter,
            HiddenTool::Recall => recall,
        };
        call.tokens = reader.call(name.as_deref().unwrap_or_default(), NOTHING);
        if let Effect::Ended {
            description: Some(description),
            ..
        } = &mut call.effect
        {
            description.truncate(description.floor_char_boundary(MOST));
        }
    }
    let message = hop
        .message
        .as_deref()
        .filter(|_| !edit.arguments.is_empty());
    if let Some(bytes) = message.and_then(|message| dialect.assistant(message.as_bytes(), &edit)) {
        hop.message = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
}
