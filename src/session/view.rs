//! The view: the transcript seen through its marks. Says of each entry what is shown of it and
//! what that costs; the renderer turns it into bytes and the policies measure it. Pure: same
//! transcript, same marks, same view. Never moves a mark.

use std::collections::HashMap;

use super::graph::{Delimiter, Episode, Kind};
use super::tombstone;
use super::transcript::{Entry, Item, Transcript};
use crate::model::{ItemKind, MESSAGE_TOKENS, Mark, Marks, Role};

/// What stands in place of a call's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The new text of the result.
    pub text: String,
    /// Its size in tokens.
    pub tokens: u32,
}

/// How texts that the proxy writes are worded and sized.
#[derive(Clone, Copy)]
pub struct Measure<'a> {
    /// Counts the tokens of a text.
    pub count: &'a dyn Fn(&str) -> u32,
    /// The ceiling in tokens, of which the ledger takes a twentieth at most.
    pub ceiling: u32,
    /// The name of `recall`, where it is injected: only there may a text mention it.
    pub recall: Option<&'a str>,
}

/// The notes of a view by the item index of the call whose result they replace.
pub type Notes = HashMap<usize, Note>;

/// What is shown of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// Nothing.
    Gone,
    /// The message as it stands in the transcript.
    Whole,
    /// An assistant message without some of its items.
    Less {
        /// Whether its text stays.
        text: bool,
        /// Whether its reasoning stays.
        reasoning: bool,
        /// Which of its calls stay, hidden ones counted.
        calls: Vec<bool>,
    },
    /// A result whose text is replaced.
    Note(&'a str),
}

/// The notes that marks call for, over the whole transcript.
#[must_use]
pub fn notes(transcript: &Transcript, marks: &Marks, measure: Measure<'_>) -> Notes {
    notes_and_host(transcript, marks, measure).0
}

/// The same, and the call whose result holds the ledger.
#[must_use]
pub fn notes_and_host(
    transcript: &Transcript,
    marks: &Marks,
    measure: Measure<'_>,
) -> (Notes, Option<usize>) {
    let mut notes = Notes::new();
    if marks.is_empty() {
        return (notes, None);
    }
    for episode in &transcript.graph.episodes {
        note_episode(transcript, marks, episode, measure, &mut notes);
    }
    note_strays(transcript, marks, measure, &mut notes);
    let host = note_ledger(transcript, marks, measure, &mut notes);
    (notes, host)
}

/// Writes the note of one episode anew, or takes it away where none is due.
pub fn note_episode(
    transcript: &Transcript,
    marks: &Marks,
    episode: &Episode,
    measure: Measure<'_>,
    notes: &mut Notes,
) {
    let Some(carrier) = episode.carrier else {
        return;
    };
    let mut put = |at: usize, text: String| {
        let tokens = (measure.count)(&text);
        notes.insert(at, Note { text, tokens });
    };
    match (mark_of(transcript, marks, carrier), episode.kind) {
        (Mark::Removed, _) => {
            notes.remove(&carrier);
        }
        (Mark::Folded, Kind::Expl | Kind::Implicit) => {
            put(carrier, tombstone::tombstone(transcript, marks, episode));
        }
        (_, Kind::Implicit) => {}
        // The line of what is gone stands where a pass marked its place.
        (mark, Kind::Expl | Kind::Act) => {
            let masked = |at: &usize| mark_of(transcript, marks, *at) == Mark::Masked;
            let (host, state) = match episode.end.filter(masked) {
                Some(end) => (end, "closed"),
                None if mark == Mark::Masked => (carrier, "opened"),
                None => return,
            };
            if let Some(text) = tombstone::stripped(transcript, marks, episode, state) {
                put(host, text);
            }
        }
    }
}

/// Writes the notes of calls that carried a tombstone before an edit of the client's moved the
/// bounds of their episode: what was evicted stays evicted.
fn note_strays(transcript: &Transcript, marks: &Marks, measure: Measure<'_>, notes: &mut Notes) {
    let folded = |item: &Item| item.kind == ItemKind::Call && marks.get(item.no) == Mark::Folded;
    for (index, item) in transcript.items.iter().enumerate() {
        if folded(item) && !notes.contains_key(&index) {
            let text = tombstone::stray(item);
            let tokens = (measure.count)(&text);
            notes.insert(index, Note { text, tokens });
        }
    }
}

/// Writes the ledger into the oldest surviving tombstone once any tombstone was merged, and gives
/// the call whose result holds it.
pub fn note_ledger(
    transcript: &Transcript,
    marks: &Marks,
    measure: Measure<'_>,
    notes: &mut Notes,
) -> Option<usize> {
    let (host, gone) = ledger(transcript, marks)?;
    let own = tombstone::ledger(transcript, marks, &gone, measure);
    let tokens = (measure.count)(&own);
    notes.insert(host, Note { text: own, tokens });
    Some(host)
}

/// The lines of the ledger that did not fit into the view, newest first.
#[must_use]
pub fn ledger_rest(transcript: &Transcript, marks: &Marks, measure: Measure<'_>) -> Vec<String> {
    ledger(transcript, marks).map_or_else(Vec::new, |(_, gone)| {
        tombstone::ledger_rest(transcript, marks, &gone, measure)
    })
}

/// The call that holds the ledger and the episodes that it names, oldest first; `None` before
/// anything was merged or where no tombstone survives. Told by marks that only a pass moves, never
/// by what is closed: the ledger must not change between passes.
fn ledger(transcript: &Transcript, marks: &Marks) -> Option<(usize, Vec<usize>)> {
    let host = ledger_host(transcript, marks)?;
    let mut merged = false;
    let mut gone = Vec::new();
    for (index, episode) in transcript.graph.episodes.iter().enumerate() {
        if episode.carrier == Some(host) {
            gone.push(index);
        } else if leaves_nothing(transcript, marks, episode) {
            merged |= episode.is_expl();
            gone.push(index);
        }
    }
    merged.then_some((host, gone))
}

/// The call that would hold the ledger: the carrier of the oldest tombstone.
#[must_use]
pub fn ledger_host(transcript: &Transcript, marks: &Marks) -> Option<usize> {
    let mut carriers = transcript
        .graph
        .episodes
        .iter()
        .filter(|episode| episode.is_expl())
        .filter_map(|episode| episode.carrier);
    carriers.find(|at| mark_of(transcript, marks, *at) == Mark::Folded)
}

/// Whether nothing in the view names an episode: its start is gone, or the first item of an
/// implicit one that has no tombstone.
fn leaves_nothing(transcript: &Transcript, marks: &Marks, episode: &Episode) -> bool {
    let removed = |at: usize| mark_of(transcript, marks, at) == Mark::Removed;
    let folded = |at: usize| mark_of(transcript, marks, at) == Mark::Folded;
    match episode.kind {
        Kind::Expl | Kind::Act => episode.carrier.is_some_and(removed),
        Kind::Implicit => {
            let mut lasting = episode.items.iter();
            let first = lasting.find(|at| !is_reasoning(transcript, **at));
            first.is_some_and(|at| removed(*at)) && !episode.carrier.is_some_and(folded)
        }
    }
}

/// Whether an episode is evicted: an act wholly, an expl up to its tombstone.
#[must_use]
pub fn is_removed(transcript: &Transcript, marks: &Marks, episode: &Episode) -> bool {
    // What can still grow is never removed, not even where a client's edit opened it again.
    episode.closed
        && episode.items.iter().rev().all(|item| {
            let mark = mark_of(transcript, marks, *item);
            mark == Mark::Removed
                || (mark == Mark::Folded && Some(*item) == episode.carrier)
                || is_reasoning(transcript, *item)
        })
}

/// Reasoning alone is no content: a message never stands for it.
fn is_reasoning(transcript: &Transcript, item: usize) -> bool {
    let item = transcript.items.get(item);
    item.is_some_and(|item| item.kind == ItemKind::Reasoning)
}

/// The mark of an item by its index.
#[must_use]
pub fn mark_of(transcript: &Transcript, marks: &Marks, item: usize) -> Mark {
    transcript
        .items
        .get(item)
        .map_or(Mark::Live, |item| marks.get(item.no))
}

/// Whether an item is shown. Only text, reasoning and calls have marks; a result follows its call,
/// and a `delimiter` call whose episode is not on the path is left out.
fn shown(marks: &Marks, item: &Item) -> bool {
    match item.kind {
        ItemKind::Text | ItemKind::Reasoning => marks.get(item.no) != Mark::Removed,
        ItemKind::Call => {
            item.delimiter != Some(Delimiter::Stray) && marks.get(item.no) != Mark::Removed
        }
        ItemKind::Result | ItemKind::System | ItemKind::User | ItemKind::Opaque => true,
    }
}

/// What is shown of an entry.
#[must_use]
pub fn shown_of<'a>(
    transcript: &Transcript,
    marks: &Marks,
    notes: &'a Notes,
    entry: &Entry,
) -> Shown<'a> {
    let items = transcript
        .items
        .get(entry.items.clone())
        .unwrap_or_default();
    match entry.role {
        Role::System | Role::User | Role::Other => Shown::Whole,
        Role::Tool => match items.first().and_then(|item| item.pair) {
            None => Shown::Whole,
            Some(call) if !call_shown(transcript, marks, call) => Shown::Gone,
            Some(call) => notes
                .get(&call)
                .map_or(Shown::Whole, |note| Shown::Note(&note.text)),
        },
        Role::Assistant => assistant(marks, items),
    }
}

fn call_shown(transcript: &Transcript, marks: &Marks, call: usize) -> bool {
    transcript
        .items
        .get(call)
        .is_some_and(|item| shown(marks, item))
}

fn assistant<'a>(marks: &Marks, items: &[Item]) -> Shown<'a> {
    let kept = |item: &Item| shown(marks, item);
    if items.iter().all(kept) {
        return Shown::Whole;
    }
    let calls: Vec<bool> = items
        .iter()
        .filter(|item| item.kind == ItemKind::Call)
        .map(kept)
        .collect();
    let has = |kind| items.iter().any(|item| item.kind == kind && kept(item));
    let text = has(ItemKind::Text) || has(ItemKind::Opaque);
    if !text && !calls.contains(&true) {
        return Shown::Gone;
    }
    Shown::Less {
        text,
        reasoning: has(ItemKind::Reasoning),
        calls,
    }
}

/// The size of an entry as shown, in tokens.
#[must_use]
pub fn tokens(transcript: &Transcript, marks: &Marks, notes: &Notes, entry: &Entry) -> u32 {
    let items = transcript
        .items
        .get(entry.items.clone())
        .unwrap_or_default();
    match entry.role {
        Role::System | Role::User | Role::Other => sum(items.iter()),
        Role::Tool => match items.first().and_then(|item| item.pair) {
            None => sum(items.iter()),
            Some(call) if !call_shown(transcript, marks, call) => 0,
            Some(call) => notes
                .get(&call)
                .map_or_else(|| sum(items.iter()), |note| MESSAGE_TOKENS + note.tokens),
        },
        Role::Assistant => {
            let kept = |item: &&Item| shown(marks, item);
            let whole = items.iter().all(|item| kept(&item));
            let standing = items.iter().filter(kept).any(|item| {
                matches!(
                    item.kind,
                    ItemKind::Call | ItemKind::Text | ItemKind::Opaque
                )
            });
            if whole || standing {
                sum(items.iter().filter(kept))
            } else {
                0
            }
        }
    }
}

fn sum<'a>(items: impl Iterator<Item = &'a Item>) -> u32 {
    MESSAGE_TOKENS + items.map(|item| item.tokens).sum::<u32>()
}

/// The size of every entry as shown, in tokens, and their sum.
#[must_use]
pub fn sizes(transcript: &Transcript, marks: &Marks, notes: &Notes) -> (Vec<u32>, u64) {
    let sizes: Vec<u32> = transcript
        .entries
        .iter()
        .map(|entry| tokens(transcript, marks, notes, entry))
        .collect();
    let total = sizes.iter().map(|size| u64::from(*size)).sum();
    (sizes, total)
}
