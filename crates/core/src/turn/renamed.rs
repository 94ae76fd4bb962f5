//! Ids of recorded hidden calls for clients that rename the ids of theirs, as those do that make them fit
//! the next provider. Ours are renamed beside them, to a form that every provider takes, so that no call of
//! the client's meets one. Pure. Never changes a call of the client's, nor what is recorded.

use std::sync::Arc;

use memchr::memmem;
use plimsoll_model::raw::quote;
use plimsoll_model::{CallId, Digest, RecordId, Shape, StoredHop, TurnRecord};
use plimsoll_wire::Dialect;
use plimsoll_wire::edit::{AssistantEdit, CallEdit};

use crate::session::path::{Path, PathEntry};

/// What ids are made of.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The length that every provider takes: Mistral takes no other.
const LENGTH: usize = 9;

/// The path with new ids for the hidden calls of all turns from the first on in which the client renamed
/// its own; `None` if there are none. The ids follow from the records, so they are always the same.
pub(super) fn path(dialect: Dialect, path: &Path, shapes: &[Arc<Shape>]) -> Option<Path> {
    let first = path
        .entries
        .iter()
        .position(|entry| is_renamed(entry, shapes))?;
    let mut path = path.clone();
    for entry in path.entries.iter_mut().skip(first) {
        if entry.record.hops.iter().all(|hop| hop.calls.is_empty()) {
            continue;
        }
        let mut record = TurnRecord::clone(&entry.record);
        for (place, hop) in record.hops.iter_mut().enumerate() {
            rename(dialect, hop, |call| made(entry.id, place, call));
        }
        entry.record = Arc::new(record);
    }
    Some(path)
}

/// Whether the client has the calls of a turn under other ids than it got them.
fn is_renamed(entry: &PathEntry, shapes: &[Arc<Shape>]) -> bool {
    let Some(shape) = shapes.get(entry.position as usize) else {
        return false;
    };
    let (given, held) = (&entry.record.calls, &shape.calls);
    let mut pairs = given.iter().zip(held);
    given.len() == held.len()
        && pairs.clone().all(|((_, name), call)| *name == call.name)
        && pairs.any(|((id, _), call)| !id.0.is_empty() && *id != call.id)
}

/// An id that follows from the place of a call.
fn made(record: RecordId, hop: usize, call: usize) -> String {
    let place = [hop, call].map(|at| (at as u64).to_le_bytes()).concat();
    let digest = Digest::of(&[b"renamed", record.0.as_bytes(), &place]);
    let letters = digest.as_bytes().iter().take(LENGTH);
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len()).copied();
    letters.filter_map(letter).map(char::from).collect()
}

/// Gives the hidden calls of a hop new ids, in its message as well. A call that reasoning names keeps its
/// id, because only together are they valid.
fn rename(dialect: Dialect, hop: &mut StoredHop, new: impl Fn(usize) -> String) {
    let message = hop.message.take();
    let is_named = |id: &CallId| {
        let id = quote(&id.0);
        let message = message.as_deref().unwrap_or_default().as_bytes();
        memmem::find_iter(message, id.as_bytes()).count() > 1
    };
    let mut ids: Vec<(usize, String)> = Vec::new();
    for (at, call) in hop.calls.iter_mut().enumerate() {
        if call.signed || is_named(&call.id) {
            continue;
        }
        let id = new(at);
        let edit = CallEdit {
            id: Some(&id),
            ..CallEdit::default()
        };
        let Some(bytes) = dialect.edit_call(call.bytes.as_bytes(), &edit) else {
            continue;
        };
        call.bytes = String::from_utf8_lossy(&bytes).into_owned();
        call.id = CallId(id.clone());
        ids.push((call.place as usize, id));
    }
    let edit = AssistantEdit {
        ids: ids.iter().map(|(at, id)| (*at, id.as_str())).collect(),
        ..AssistantEdit::default()
    };
    hop.message = message.map(
        |message| match dialect.assistant(message.as_bytes(), &edit) {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => message,
        },
    );
}
