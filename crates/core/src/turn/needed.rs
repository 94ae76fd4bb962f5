//! Judges a view by the answer that came: what the answer needed of what had left the view, because its calls use
//! strings of that, ask for the same again, or recall it. And what a pass left of what it found in view. So a budget
//! is measured as it is served (papers 003 and 004 §10 measure it afterwards). Never changes a view, and no decision
//! depends on it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use plimsoll_model::caches::Shared;
use plimsoll_model::weight::{block, shared};
use plimsoll_model::{
    Effect, Hashed, ItemKind, ItemNo, Mark, Marks, NeededCounts, StoredHop, ToolClass, Words, hash,
    lines,
};
use plimsoll_wire::answer::Answer;
use plimsoll_wire::message::call_digest;

use super::memo::Reader;
use super::originals::Originals;
use super::state::{HopContext, Prepared, TurnState};
use crate::session::index::ItemIndex;
use crate::session::stub;
use crate::session::transcript::Item;
use crate::session::view::{ShownText, View};

/// The most strings of what left a view that are looked for: those of the newest items. They take eight bytes each,
/// and the text that they come from has some twenty bytes for each.
const MOST_STRINGS: usize = 1 << 16;

/// What an answer says of the view that it was given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judged {
    /// What the answer needed of what had left its view.
    pub needed: NeededCounts,
    /// What the pass before it left in view, if there was one.
    pub kept: Option<PassKept>,
}

/// What a pass left in view, as shares from 0 to 1 of what it found there as it came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassKept {
    /// Of the distinctive strings.
    pub strings: f64,
    /// Of the lines with at least 12 characters.
    pub lines: f64,
}

/// The distinctive strings of what is not in view as it came, by their hashes, in order.
#[derive(Debug, Default)]
pub struct GoneWords {
    /// All of them.
    gone: Box<[u64]>,
    /// Those of them that the view had nowhere else when this was made.
    lost: Box<[u64]>,
    /// The first item that came after that.
    next: ItemNo,
}

impl Shared for GoneWords {
    fn weight(&self) -> usize {
        shared::<Self>() + block(size_of_val(&*self.gone)) + block(size_of_val(&*self.lost))
    }
}

/// Judges the view of a hop by its answer, which has come. `hop` is that answer as it is recorded.
#[must_use]
pub fn judge(
    state: &TurnState,
    prepared: &Prepared,
    answer: &Answer,
    hop: &StoredHop,
    tools: &HopContext<'_>,
) -> Judged {
    let view = &prepared.view;
    // Nothing ever left it, so nothing is needed.
    if view.marks().is_empty() {
        return Judged::default();
    }
    let originals = state.originals(view.transcript(), None);
    let mut needed = NeededCounts {
        recalled: recalled(hop),
        ..again(view, answer, tools)
    };
    let calls = answer.visible_calls();
    let calls: Vec<Words> = calls
        .map(|(_, call)| stub::words(&call.arguments))
        .filter(|words| words.distinct() > 0)
        .collect();
    if !calls.is_empty() {
        let gone = gone_words(state, view, originals, tools.reader);
        uses(&calls, &gone, view, (originals, tools.reader), &mut needed);
    }
    let passed = prepared.pass.is_some();
    let kept = || kept(&state.marks_before(), view, originals, tools.reader);
    Judged {
        needed,
        kept: passed.then(kept),
    }
}

/// Items that recalls of a hop brought back.
fn recalled(hop: &StoredHop) -> u32 {
    let brought = hop.calls.iter().map(|call| match &call.effect {
        Effect::Recalled { originals, .. } => originals.len(),
        Effect::Started { .. } | Effect::Ended { .. } | Effect::Refused => 0,
    });
    u32::try_from(brought.sum::<usize>()).unwrap_or(u32::MAX)
}

/// Visible calls that repeat a call whose result is no longer in view.
fn again(view: &View, answer: &Answer, tools: &HopContext<'_>) -> NeededCounts {
    let calls = answer.visible_calls();
    let calls: Vec<(u64, &str)> = calls
        .map(|(_, call)| (call_digest(&call.name, &call.arguments), &*call.name))
        .collect();
    let made: HashSet<u64> = calls.iter().map(|(digest, _)| *digest).collect();
    let gone = |(index, item): &(ItemIndex, &Item)| {
        let same = item.kind == ItemKind::Call && !item.hidden && made.contains(&item.digest);
        same && !view.tells_all(*index)
    };
    let mut counts = NeededCounts::default();
    if made.is_empty() {
        return counts;
    }
    let items = view.transcript().items.indexed();
    let gone: HashSet<u64> = items.filter(gone).map(|(_, item)| item.digest).collect();
    for (_, name) in calls.iter().filter(|(digest, _)| gone.contains(digest)) {
        match tools.classes.of(name) {
            ToolClass::Read => counts.read_again += 1,
            ToolClass::Bulk | ToolClass::Shell | ToolClass::Write | ToolClass::Unknown => {
                counts.asked_again += 1;
            }
        }
    }
    counts
}

/// Counts the strings of calls that stand in what is gone: held, if the view has them all the same.
fn uses(
    calls: &[Words],
    gone: &GoneWords,
    view: &View,
    (originals, reader): (Originals<'_>, Reader<'_>),
    counts: &mut NeededCounts,
) {
    // What came since may show again what was lost. It is read only if something lost is used.
    let mut since: Option<HashSet<u64, Hashed>> = None;
    for string in calls.iter().flat_map(Words::strings) {
        if gone.gone.binary_search(&string).is_err() {
            continue;
        }
        let is_lost = gone.lost.binary_search(&string).is_ok() && {
            let since = since.get_or_insert_with(|| newer(gone.next, view, originals, reader));
            !since.contains(&string)
        };
        if is_lost {
            counts.missed += 1;
        } else {
            counts.held += 1;
        }
    }
}

/// The strings that the items from this number on show.
fn newer(
    next: ItemNo,
    view: &View,
    originals: Originals<'_>,
    reader: Reader<'_>,
) -> HashSet<u64, Hashed> {
    let mut strings = HashSet::default();
    let newest_first = view.transcript().items.indexed().rev();
    for (index, _) in newest_first.take_while(|(_, item)| item.no >= next) {
        if let Some(words) = shown_words(view, index, originals, reader) {
            strings.extend(words.strings());
        }
    }
    strings
}

/// The strings of what the view shows of an item.
fn shown_words(
    view: &View,
    index: ItemIndex,
    originals: Originals<'_>,
    reader: Reader<'_>,
) -> Option<Arc<Words>> {
    match view.text_of(index) {
        ShownText::Whole => originals.words(reader, index),
        ShownText::Note(note) => Some(Arc::clone(note.words())),
        ShownText::Gone => None,
    }
}

/// The strings of what is gone from a view. Made once for all turns between two moves of its marks.
fn gone_words(
    state: &TurnState,
    view: &View,
    originals: Originals<'_>,
    reader: Reader<'_>,
) -> Arc<GoneWords> {
    let make = || find_gone(view, originals, reader);
    // The numbers of items say nothing without the conversation, which its first record names.
    match state.path.entries.first() {
        Some(first) => reader.gone(&(first.id, Moved(view.marks())), make),
        None => Arc::new(make()),
    }
}

/// Marks as far as they take something out of view.
struct Moved<'a>(&'a Marks);

impl Moved<'_> {
    /// Whether all that an item says stands in view under its mark: it is whole, has a line below it, or points to the
    /// same text.
    fn tells_all(&self, item: ItemNo) -> bool {
        let mark = self.0.get(item);
        let entered = || self.0.kept(item).filter(|kept| kept.is_entered(mark));
        mark == Mark::Live || entered().is_some_and(|kept| kept.shape.is_none())
    }
}

impl Hash for Moved<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (item, mark) in self.0.iter().filter(|(item, _)| !self.tells_all(*item)) {
            state.write_u64(u64::from(item.0) << 8 | mark as u64);
        }
    }
}

fn find_gone(view: &View, originals: Originals<'_>, reader: Reader<'_>) -> GoneWords {
    let (transcript, moved) = (view.transcript(), Moved(view.marks()));
    let mut shown: HashSet<u64, Hashed> = HashSet::default();
    let mut gone: Vec<u64> = Vec::new();
    let mut next = ItemNo(0);
    for (index, item) in transcript.items.indexed().rev() {
        next = next.max(item.no.plus(1));
        if let Some(words) = shown_words(view, index, originals, reader) {
            shown.extend(words.strings());
        }
        let holder = transcript.items.get(item.holder(index));
        let tells_all = holder.is_none_or(|holder| moved.tells_all(holder.no));
        if !tells_all && gone.len() < MOST_STRINGS && view.text_of(index) != ShownText::Whole {
            let words = originals.words(reader, index);
            let room = MOST_STRINGS - gone.len();
            gone.extend(words.iter().flat_map(|words| words.strings()).take(room));
        }
    }
    gone.sort_unstable();
    gone.dedup();
    let lost = gone.iter().filter(|string| !shown.contains(string));
    GoneWords {
        lost: lost.copied().collect(),
        gone: gone.into(),
        next,
    }
}

/// What of that which stood in view as it came, before some marks moved, a view still shows in whatever place.
fn kept(before: &Marks, view: &View, originals: Originals<'_>, reader: Reader<'_>) -> PassKept {
    let (mut strings, mut of_lines) = (Stood::default(), Stood::default());
    let transcript = view.transcript();
    let mut notes = Vec::new();
    for (index, item) in transcript.items.indexed() {
        let shown = view.text_of(index);
        let holder = transcript.items.get(item.holder(index));
        let stood = holder.is_none_or(|holder| before.get(holder.no) == Mark::Live);
        let stands = shown == ShownText::Whole;
        if let ShownText::Note(note) = shown {
            notes.push(note);
        }
        if stands || stood {
            let words = originals.words(reader, index);
            let words = words.iter().flat_map(|words| words.strings());
            words.for_each(|string| strings.stood(string, stands));
            if let Some(text) = originals.text(index) {
                let text = match item.kind {
                    ItemKind::Call => stub::plain(&text),
                    _ => Cow::Borrowed(&**text),
                };
                lines(&text).for_each(|line| of_lines.stood(hash(line), stands));
            }
        }
    }
    // A note may show what stood in another place, so all of that is known before any is read.
    for note in notes {
        note.words()
            .strings()
            .for_each(|string| strings.stands(string));
        lines(note.text()).for_each(|line| of_lines.stands(hash(line)));
    }
    PassKept {
        strings: strings.share(),
        lines: of_lines.share(),
    }
}

/// What stood in view before a pass, by hash, and whether it still does.
#[derive(Default)]
struct Stood(HashMap<u64, bool, Hashed>);

impl Stood {
    fn stood(&mut self, one: u64, stands: bool) {
        *self.0.entry(one).or_default() |= stands;
    }

    fn stands(&mut self, one: u64) {
        if let Some(stands) = self.0.get_mut(&one) {
            *stands = true;
        }
    }

    /// The share that still stands; all, if there was nothing.
    fn share(&self) -> f64 {
        let stands = self.0.values().filter(|stands| **stands).count();
        if self.0.is_empty() {
            return 1.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a view has far fewer than 2^52")]
        let share = stands as f64 / self.0.len() as f64;
        share
    }
}
