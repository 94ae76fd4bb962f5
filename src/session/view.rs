//! The view: the transcript seen through its marks. Says of each entry what is shown of it and
//! what that costs; the renderer turns it into bytes and the policies measure it. Pure: same
//! transcript, same marks, same view. Never moves a mark.

mod edits;
mod parts;

use std::collections::HashMap;

pub use edits::edits;
pub use parts::{Part, Parts, parts};

use super::graph::{Delimiter, Episode, Kind};
use super::note::{Left, Note};
use super::transcript::{Entry, Item, Source, Transcript};
use super::{recall, stub, tombstone};
use crate::model::{EditKind, ItemKind, Kept, MESSAGE_TOKENS, Mark, Marks, Role};

/// How texts that the proxy writes are made and sized.
#[derive(Clone, Copy)]
pub struct Measure<'a> {
    /// Counts the tokens of a text.
    pub count: &'a dyn Fn(&str) -> u32,
    /// Makes a text one that stands in place of a result.
    pub note: &'a dyn Fn(String) -> Note,
    /// The ceiling in tokens, of which the ledger takes a twentieth at most.
    pub ceiling: u32,
    /// Writes what is left of a call, by the index of its item. The originals are the client's, so
    /// this is given.
    pub left: &'a dyn Fn(usize, Mark, &Kept) -> Left,
    /// The name of `recall`, where it is injected: only there may a text mention it.
    pub recall: Option<&'a str>,
}

/// The notes of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// By the item index of the call whose result they replace, or of the text that they stand for in
    /// its own place.
    pub results: HashMap<usize, Note>,
    /// By the item index of the call whose arguments they replace.
    pub arguments: HashMap<usize, Note>,
    /// The item index of the call whose result holds the ledger.
    pub host: Option<usize>,
}

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
        /// What stands in place of its text.
        line: Option<&'a str>,
        /// Whether its reasoning stays.
        reasoning: bool,
        /// Which of its calls stay, hidden ones counted.
        calls: Vec<bool>,
        /// The trimmed arguments of calls by their place among all.
        arguments: Vec<(usize, &'a str)>,
    },
    /// A result whose text is replaced.
    Note(&'a str),
}

/// The notes that marks call for, over the whole transcript.
#[must_use]
pub fn notes(transcript: &Transcript, marks: &Marks, measure: Measure<'_>) -> Notes {
    let mut notes = Notes::default();
    if marks.is_empty() {
        return notes;
    }
    for index in 0..transcript.items.len() {
        write_left(transcript, marks, index, measure, &mut notes);
    }
    for episode in &transcript.graph.episodes {
        note_episode(transcript, marks, episode, measure, &mut notes);
    }
    note_strays(transcript, marks, measure, &mut notes);
    note_ledger(transcript, marks, measure, &mut notes);
    notes
}

/// Writes what is left of one call or text anew, or takes it away where nothing is.
pub fn note_left(
    transcript: &Transcript,
    marks: &Marks,
    index: usize,
    measure: Measure<'_>,
    notes: &mut Notes,
) {
    if mark_of(transcript, marks, index) == Mark::Removed {
        let item = transcript.items.get(index);
        if item.is_some_and(is_lasting) {
            notes.results.remove(&index);
            notes.arguments.remove(&index);
        }
    }
    write_left(transcript, marks, index, measure, notes);
}

/// Whether something may be left of an item: it is a call of the client's or a text.
fn is_lasting(item: &Item) -> bool {
    match item.kind {
        ItemKind::Call => item.delimiter.is_none(),
        ItemKind::Text => true,
        ItemKind::System
        | ItemKind::User
        | ItemKind::Reasoning
        | ItemKind::Result
        | ItemKind::Opaque => false,
    }
}

/// Writes what is left of one call or text, of which nothing is written yet.
fn write_left(
    transcript: &Transcript,
    marks: &Marks,
    index: usize,
    measure: Measure<'_>,
    notes: &mut Notes,
) {
    let item = transcript.items.get(index);
    let Some(item) = item.filter(|item| is_lasting(item)) else {
        return;
    };
    let mark = marks.get(item.no);
    match mark {
        Mark::Live => {}
        Mark::Removed => {
            if parts_users(transcript, item) {
                let id = recall::id(item);
                let text = stub::result(&id, item.tokens, Mark::Masked, &Kept::default(), "");
                let note = (measure.note)(text);
                // What is no longer than its line stays itself.
                if note.tokens() < item.tokens {
                    notes.results.insert(index, note);
                }
            }
        }
        Mark::Clipped | Mark::Masked | Mark::Folded => {
            let Some(kept) = marks.kept(item.no) else {
                return;
            };
            let left = (measure.left)(index, mark, kept);
            if let Some(note) = left.result {
                notes.results.insert(index, note);
            }
            let note = left.arguments;
            if let Some(note) = note.filter(|_| !transcript.without.has(EditKind::Arguments)) {
                notes.arguments.insert(index, note);
            }
        }
    }
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
        let text = fronted(transcript, at, text);
        notes.results.insert(at, (measure.note)(text));
    };
    match (mark_of(transcript, marks, carrier), episode.kind) {
        (Mark::Removed, _) => {
            notes.results.remove(&carrier);
        }
        (Mark::Folded, Kind::Expl | Kind::Implicit) => {
            let text = tombstone::tombstone(transcript, marks, episode);
            put(
                carrier,
                with_names(text, transcript, marks, episode, measure),
            );
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
                put(host, with_names(text, transcript, marks, episode, measure));
            }
        }
    }
}

/// A line of what is gone, and under it the strings that stood nowhere else than in that.
fn with_names(
    mut text: String,
    transcript: &Transcript,
    marks: &Marks,
    episode: &Episode,
    measure: Measure<'_>,
) -> String {
    let name = |index: &usize| {
        let item = transcript.items.get(*index)?;
        let kept = marks.kept(item.no)?;
        let removed = marks.get(item.no) == Mark::Removed;
        let left = removed.then(|| (measure.left)(*index, Mark::Removed, kept))?;
        left.names
    };
    for (place, names) in episode.items.iter().filter_map(name).enumerate() {
        text.push(if place == 0 { '\n' } else { ' ' });
        text.push_str(&names);
    }
    text
}

/// A text in place of the result of a call: one that came as text still begins as it did.
#[must_use]
pub fn fronted(transcript: &Transcript, call: usize, text: String) -> String {
    let result = transcript.items.get(call).and_then(|item| item.pair);
    let result = result.and_then(|at| transcript.items.get(at));
    match result.and_then(|result| result.front.as_ref()) {
        Some(front) => format!("{front}\n{text}"),
        None => text,
    }
}

/// Writes the notes of calls that carried a tombstone before an edit of the client's moved the
/// bounds of their episode: what was evicted stays evicted.
fn note_strays(transcript: &Transcript, marks: &Marks, measure: Measure<'_>, notes: &mut Notes) {
    let folded = |item: &Item| {
        let stood = marks.get(item.no) == Mark::Folded && marks.kept(item.no).is_none();
        stood && item.kind == ItemKind::Call
    };
    for (index, item) in transcript.items.iter().enumerate() {
        if folded(item) && !notes.results.contains_key(&index) {
            let text = fronted(transcript, index, tombstone::stray(item));
            let note = (measure.note)(text);
            notes.results.insert(index, note);
        }
    }
}

/// Writes the ledger into the newest tombstone once any tombstone was merged, and gives
/// the call whose result holds it.
pub fn note_ledger(
    transcript: &Transcript,
    marks: &Marks,
    measure: Measure<'_>,
    notes: &mut Notes,
) {
    let ledger = ledger(transcript, marks);
    notes.host = ledger.as_ref().map(|(host, _)| *host);
    if let Some((host, gone)) = ledger {
        let own = tombstone::ledger(transcript, marks, &gone, measure);
        let own = fronted(transcript, host, own);
        notes.results.insert(host, (measure.note)(own));
    }
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

/// The call that would hold the ledger: the carrier of the newest tombstone, because it changes with
/// each pass that removes something, and what stands before it stays in the provider's cache.
#[must_use]
pub fn ledger_host(transcript: &Transcript, marks: &Marks) -> Option<usize> {
    let mut carriers = transcript
        .graph
        .episodes
        .iter()
        .filter(|episode| episode.is_expl())
        .filter_map(|episode| episode.carrier);
    carriers.rfind(|at| mark_of(transcript, marks, *at) == Mark::Folded)
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
/// and a `delimiter` call whose episode is not on the path is left out. An upstream that refuses
/// results of another text is shown no call that has one, and one that refuses hidden calls none of
/// those.
fn shown(transcript: &Transcript, marks: &Marks, item: &Item) -> bool {
    let mark = marks.get(item.no);
    match item.kind {
        ItemKind::Text | ItemKind::Reasoning => mark != Mark::Removed,
        ItemKind::Call => {
            let refused = if item.hidden {
                transcript.without.has(EditKind::Hidden)
            } else {
                mark != Mark::Live && !item.bound && transcript.without.has(EditKind::Results)
            };
            item.delimiter != Some(Delimiter::Stray) && mark != Mark::Removed && !refused
        }
        ItemKind::Result | ItemKind::System | ItemKind::User | ItemKind::Opaque => true,
    }
}

/// Whether an item of a message that stands is shown: by its mark, or because the upstream refuses
/// the message without it, or with it. Text that is gone comes back beside calls only: alone it would
/// be the whole message.
fn stays(transcript: &Transcript, marks: &Marks, item: &Item, called: bool) -> bool {
    let demanded = match item.kind {
        ItemKind::Reasoning
            if transcript.without.has(EditKind::HopReasoning) && is_hop(transcript, item) =>
        {
            return false;
        }
        ItemKind::Reasoning => transcript.without.has(EditKind::Reasoning),
        ItemKind::Text => called && transcript.without.has(EditKind::Text),
        ItemKind::Call
        | ItemKind::Result
        | ItemKind::System
        | ItemKind::User
        | ItemKind::Opaque => false,
    };
    // What is shown is asked first: nearly all is, and what parts users is told by its neighbours.
    demanded || shown(transcript, marks, item) || parts_users(transcript, item)
}

/// Whether a text is all that stands between two messages of the user's role: the answer behind a result
/// that came as text, and before what the user says next. Some providers take user and assistant in turns
/// only, so something of it stays.
fn parts_users(transcript: &Transcript, item: &Item) -> bool {
    let entry = |at: Option<usize>| transcript.entries.get(at?);
    let items = |entry: &Entry| {
        transcript
            .items
            .get(entry.items.clone())
            .unwrap_or_default()
    };
    let (before, behind) = (item.entry.checked_sub(1), item.entry.checked_add(1));
    let said = |entry: &Entry| items(entry).iter().any(|item| item.front.is_some());
    let calls = |entry: &Entry| items(entry).iter().any(|item| item.kind == ItemKind::Call);
    item.kind == ItemKind::Text
        && item.tokens > 0
        && entry(before).is_some_and(said)
        && entry(behind).is_some_and(|entry| entry.role == Role::User)
        && entry(Some(item.entry)).is_some_and(|entry| !calls(entry))
}

/// Whether an item stands in the message of a hop that the client never saw.
fn is_hop(transcript: &Transcript, item: &Item) -> bool {
    let entry = transcript.entries.get(item.entry);
    entry.is_some_and(|entry| matches!(entry.source, Source::Hop { .. }))
}

/// Whether text that is gone of a message comes back beside any call of it that is shown.
fn is_called(transcript: &Transcript, marks: &Marks, items: &[Item]) -> bool {
    let mut calls = items.iter().filter(|item| item.kind == ItemKind::Call);
    transcript.without.has(EditKind::Text) && calls.any(|item| shown(transcript, marks, item))
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
                .results
                .get(&call)
                .map_or(Shown::Whole, |note| Shown::Note(note.text())),
        },
        Role::Assistant => assistant(transcript, marks, notes, entry.items.start, items),
    }
}

/// Whether the view shows the original of an item: of a call its arguments and its result.
#[must_use]
pub fn is_whole(transcript: &Transcript, marks: &Marks, notes: &Notes, index: usize) -> bool {
    let Some(item) = transcript.items.get(index) else {
        return false;
    };
    let call = item.holder(index);
    let entry = transcript.entries.get(item.entry);
    if item.kind == ItemKind::Reasoning
        && entry.is_some_and(|entry| shown_of(transcript, marks, notes, entry) == Shown::Gone)
    {
        // A message without text and calls is not shown, whatever reasoning it has.
        return false;
    }
    if matches!(item.kind, ItemKind::Text | ItemKind::Reasoning) {
        let items = entry.and_then(|entry| transcript.items.get(entry.items.clone()));
        let called = is_called(transcript, marks, items.unwrap_or_default());
        let noted = own_note(notes, index, item).is_some();
        return !noted && stays(transcript, marks, item, called);
    }
    let noted = notes.results.contains_key(&call) || notes.arguments.contains_key(&call);
    !noted && call_shown(transcript, marks, call)
}

fn call_shown(transcript: &Transcript, marks: &Marks, call: usize) -> bool {
    transcript
        .items
        .get(call)
        .is_some_and(|item| shown(transcript, marks, item))
}

fn assistant<'a>(
    transcript: &Transcript,
    marks: &Marks,
    notes: &'a Notes,
    first: usize,
    items: &[Item],
) -> Shown<'a> {
    let is_called = is_called(transcript, marks, items);
    let kept = |item: &Item| stays(transcript, marks, item, is_called);
    let trimmed = |at: usize| notes.arguments.get(&at);
    let whole = |(at, item): (usize, &Item)| kept(item) && own_note(notes, at, item).is_none();
    if (first..).zip(items).all(whole) {
        return Shown::Whole;
    }
    let called = |(_, item): &(usize, &Item)| item.kind == ItemKind::Call && !item.said;
    let all = || (first..).zip(items).filter(called);
    let calls: Vec<bool> = all().map(|(_, item)| kept(item)).collect();
    let arguments = all()
        .enumerate()
        .filter(|(_, (_, item))| kept(item))
        .filter_map(|(place, (at, _))| Some((place, trimmed(at)?.text())))
        .collect();
    let has = |kind| items.iter().any(|item| item.kind == kind && kept(item));
    let said = items.iter().any(|item| item.said && kept(item));
    let text = said || has(ItemKind::Text) || has(ItemKind::Opaque);
    let mut texts = (first..).zip(items);
    let line = texts.find(|(_, item)| item.kind == ItemKind::Text && kept(item));
    let line = line.and_then(|(at, item)| own_note(notes, at, item));
    if !text && !calls.contains(&true) {
        return Shown::Gone;
    }
    Shown::Less {
        text,
        line: line.map(Note::text),
        reasoning: has(ItemKind::Reasoning),
        calls,
        arguments,
    }
}

/// What stands in place of a part of an assistant message: of a call its arguments, or of a text.
fn own_note<'a>(notes: &'a Notes, at: usize, item: &Item) -> Option<&'a Note> {
    match item.kind {
        ItemKind::Call => notes.arguments.get(&at),
        ItemKind::Text => notes.results.get(&at),
        ItemKind::System
        | ItemKind::User
        | ItemKind::Reasoning
        | ItemKind::Result
        | ItemKind::Opaque => None,
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
                .results
                .get(&call)
                .map_or_else(|| sum(items.iter()), |note| MESSAGE_TOKENS + note.tokens()),
        },
        Role::Assistant => {
            let first = entry.items.start;
            let is_called = is_called(transcript, marks, items);
            let (mut whole, mut standing, mut shown) = (true, false, 0);
            for (at, item) in (first..).zip(items) {
                if !stays(transcript, marks, item, is_called) {
                    whole = false;
                    continue;
                }
                standing |= matches!(
                    item.kind,
                    ItemKind::Call | ItemKind::Text | ItemKind::Opaque
                );
                shown += own_note(notes, at, item).map_or(item.tokens, Note::tokens);
            }
            if whole || standing {
                MESSAGE_TOKENS + shown
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
