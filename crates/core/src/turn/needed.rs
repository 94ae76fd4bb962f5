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
    Hashed, ItemKind, ItemNo, Kept, Mark, Marks, NeededCounts, RecallCall, ToolClass, Words, hash,
    lines,
};
use plimsoll_wire::answer::Answer;
use plimsoll_wire::message::call_digest;

use super::classes::Classes;
use super::memo::Reader;
use super::originals::Originals;
use super::state::{Prepared, TurnState};
use crate::session::index::ItemIndex;
use crate::session::stub;
use crate::session::transcript::{Item, Source};
use crate::session::view::{ShownText, View};

/// The most strings of what left a view that are looked for: those of the newest items. The text that they come from
/// has some twenty bytes for each.
const MOST_STRINGS: usize = 1 << 16;
/// About so many strings, and so many lines, tell what a pass leaves. Of a larger view a sample is taken.
const SAMPLE: u64 = 1 << 16;

/// What an answer says of the view that it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judged {
    /// What it needed of what had left the view.
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

/// The distinctive strings of what a view does not show as it came, by their hashes, in order.
#[derive(Debug, Default)]
pub struct GoneWords(Box<[u64]>);

impl Shared for GoneWords {
    fn weight(&self) -> usize {
        shared::<Self>() + block(size_of_val(&*self.0))
    }
}

/// Judges the view of a hop by its answer, whose recalls are these.
#[must_use]
pub fn judge(
    state: &TurnState,
    prepared: &Prepared,
    (answer, recalls): (&Answer, &[RecallCall]),
    reader: Reader<'_>,
    classes: &Classes,
) -> Judged {
    let view = &prepared.view;
    // Nothing ever left it, so nothing is needed.
    if view.marks().is_empty() {
        return Judged::default();
    }
    let looked = Looked {
        view,
        originals: state.originals(view.transcript(), None),
        reader,
    };
    let mut needed = looked.again(answer, classes);
    let brought = recalls.iter().filter(|recall| recall.tokens > 0);
    needed.recalled = count(brought.count());
    let calls = answer.visible_calls();
    let calls: Vec<Words> = calls
        .map(|(_, call)| stub::words(&call.arguments))
        .filter(|words| words.distinct() > 0)
        .collect();
    if !calls.is_empty() {
        looked.uses(&calls, &looked.gone(state), &mut needed);
    }
    let passed = prepared.pass.is_some();
    Judged {
        needed,
        kept: passed.then(|| looked.kept(&state.marks_before())),
    }
}

/// A view with what it was made of.
#[derive(Clone, Copy)]
struct Looked<'a> {
    view: &'a View,
    originals: Originals<'a>,
    reader: Reader<'a>,
}

impl Looked<'_> {
    /// Visible calls that ask for the same as a call whose newest result is no longer in view.
    fn again(self, answer: &Answer, classes: &Classes) -> NeededCounts {
        let calls = answer.visible_calls();
        let calls: Vec<(u64, &str)> = calls
            .map(|(_, call)| (call_digest(&call.name, &call.arguments), &*call.name))
            .collect();
        // Whether each of these calls was made, and its newest result has left.
        let mut left: HashMap<u64, Option<bool>, Hashed> =
            calls.iter().map(|(digest, _)| (*digest, None)).collect();
        let mut counts = NeededCounts::default();
        if left.is_empty() {
            return counts;
        }
        for (index, item) in self.view.transcript().items.indexed().rev() {
            if item.kind == ItemKind::Call
                && !item.hidden
                && let Some(left) = left.get_mut(&item.digest)
            {
                left.get_or_insert_with(|| {
                    item.pair.is_some_and(|result| self.has_left(result, index))
                });
            }
        }
        for (digest, name) in calls {
            if left.get(&digest).copied().flatten() != Some(true) {
                continue;
            }
            match classes.of(name) {
                ToolClass::Read => counts.read_again += 1,
                ToolClass::Bulk | ToolClass::Shell | ToolClass::Write | ToolClass::Unknown => {
                    counts.asked_again += 1;
                }
            }
        }
        counts
    }

    /// Whether the view does not show the text of an item as it came, nor points to the same text elsewhere.
    fn has_left(self, index: ItemIndex, holder: ItemIndex) -> bool {
        self.view.text_of(index) != ShownText::Whole && {
            let items = &self.view.transcript().items;
            let holder = items.get(holder).map(|holder| holder.no);
            !holder.is_some_and(|holder| stands(self.view.marks(), holder))
        }
    }

    /// Counts the strings of calls that stand in what is gone: held, if the view shows them all the same.
    fn uses(self, calls: &[Words], gone: &GoneWords, counts: &mut NeededCounts) {
        let is_gone = |string: &u64| gone.0.binary_search(string).is_ok();
        let used = calls.iter().flat_map(Words::strings).filter(is_gone);
        let used: Vec<u64> = used.collect();
        let mut missing: HashSet<u64, Hashed> = used.iter().copied().collect();
        // What is used stands near the end most often.
        for (index, _) in self.view.transcript().items.indexed().rev() {
            if missing.is_empty() {
                break;
            }
            if let Some(words) = self.shown(index) {
                words.strings().for_each(|string| {
                    missing.remove(&string);
                });
            }
        }
        let missed = used
            .iter()
            .filter(|string| missing.contains(string))
            .count();
        counts.missed = count(missed);
        counts.held = count(used.len() - missed);
    }

    /// The strings of what the view shows of an item.
    fn shown(self, index: ItemIndex) -> Option<Arc<Words>> {
        match self.view.text_of(index) {
            ShownText::Whole => self.words(index),
            ShownText::Note(note) => Some(Arc::clone(note.words())),
            ShownText::Gone => None,
        }
    }

    /// The strings of an item as it came.
    fn words(self, index: ItemIndex) -> Option<Arc<Words>> {
        let words = self.originals.words(self.reader, index);
        words.or_else(|| self.originals.other_words(self.reader, index))
    }

    /// The strings of what is gone from the view. Found once for all answers between two moves of its marks.
    fn gone(self, state: &TurnState) -> Arc<GoneWords> {
        let transcript = self.view.transcript();
        let marks = self.view.marks();
        let moved = |item: &&Item| marks.get(item.no) != Mark::Live;
        let newest = transcript.items.iter().rev().find(moved);
        let entry = newest.and_then(|item| transcript.entries.get(item.entry));
        let before = entry.and_then(|entry| state.heads.get(covered(state, entry.source)));
        match before {
            Some(before) => {
                let key = (before, Moved(marks), transcript.without);
                self.reader.gone(&key, || self.find_gone())
            }
            None => Arc::new(self.find_gone()),
        }
    }

    fn find_gone(self) -> GoneWords {
        let mut gone: HashSet<u64, Hashed> = HashSet::default();
        for (index, item) in self.view.transcript().items.indexed().rev() {
            if !self.has_left(index, item.holder(index)) {
                continue;
            }
            for string in self.words(index).iter().flat_map(|words| words.strings()) {
                if gone.len() == MOST_STRINGS {
                    break;
                }
                gone.insert(string);
            }
            if gone.len() == MOST_STRINGS {
                break;
            }
        }
        let mut gone: Vec<u64> = gone.into_iter().collect();
        gone.sort_unstable();
        GoneWords(gone.into())
    }

    /// What of that which stood in view as it came, before some marks moved, the view still shows in whatever place.
    fn kept(self, before: &Marks) -> PassKept {
        let (items, view) = (&self.view.transcript().items, self.view);
        // Of what came with this request the model had seen nothing before it was clipped.
        let stood = |holder: ItemNo| {
            let entered = view.marks().kept(holder);
            let entered = entered.is_some_and(|kept| kept.is_entered(view.marks().get(holder)));
            stands(before, holder) && (!entered || stands(view.marks(), holder))
        };
        let tokens: u64 = items.iter().map(|item| u64::from(item.tokens)).sum();
        let (mut strings, mut of_lines) = (Sample::of(tokens), Sample::of(tokens));
        let mut notes = Vec::new();
        for (index, item) in items.indexed() {
            let shown = view.text_of(index);
            let whole = shown == ShownText::Whole;
            if let ShownText::Note(note) = shown {
                notes.push(note);
            }
            let holder = items.get(item.holder(index));
            if !whole && !holder.is_none_or(|holder| stood(holder.no)) {
                continue;
            }
            let words = self.words(index);
            let words = words.iter().flat_map(|words| words.strings());
            words.for_each(|string| strings.stood(string, whole));
            if let Some(text) = self.originals.text(index) {
                let text = match item.kind {
                    ItemKind::Call => stub::plain(&text),
                    _ => Cow::Borrowed(&**text),
                };
                lines(&text).for_each(|line| of_lines.stood(hash(line), whole));
            }
        }
        // A note may show what stood in another place, so all of that is known before any is read.
        for note in notes {
            note.words()
                .strings()
                .for_each(|string| strings.shown(string));
            lines(note.text()).for_each(|line| of_lines.shown(hash(line)));
        }
        PassKept {
            strings: strings.share(),
            lines: of_lines.share(),
        }
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Whether all that an item says stands in view under its mark: it is whole, has a line below it, or points to the same
/// text.
fn stands(marks: &Marks, item: ItemNo) -> bool {
    let mark = marks.get(item);
    let same = |kept: &Arc<Kept>| kept.is_entered(mark) && kept.shape.is_none();
    mark == Mark::Live || marks.kept(item).is_some_and(same)
}

/// How many of the client's messages stand before the end of an entry.
fn covered(state: &TurnState, source: Source) -> usize {
    match source {
        Source::Client(message) | Source::LastHop { message, .. } => message + 1,
        Source::Hop { step, .. } | Source::HiddenResult { step, .. } => {
            let entry = state.path.entries.get(step);
            entry.map_or(state.heads.len() - 1, |entry| entry.position as usize)
        }
        Source::Guidance => state.heads.len() - 1,
    }
}

/// Marks as far as they take something out of view.
struct Moved<'a>(&'a Marks);

impl Hash for Moved<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Of thousands of marks each is one byte, and most stand for an item that is whole.
        let mut folded = 0_u64;
        for (item, mark) in self.0.iter() {
            let one = u64::from(item.0) << 8 | mark as u64;
            folded = (folded.rotate_left(5) ^ one).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        state.write_u64(folded);
        for (item, kept) in self.0.iter_kept() {
            if !stands(self.0, item) {
                item.hash(state);
                kept.hash(state);
            }
        }
    }
}

/// What stood in view before a pass, by hash, and whether it still does. Of a large view a sample by hash.
struct Sample {
    known: HashMap<u64, bool, Hashed>,
    /// Bits that are zero in the middle of each hash of the sample.
    mask: u64,
}

impl Sample {
    /// A sample of a view with so many tokens. It has fewer strings and lines than tokens.
    fn of(tokens: u64) -> Self {
        let parts = (tokens / SAMPLE).checked_next_power_of_two().unwrap_or(1);
        Self {
            known: HashMap::default(),
            mask: parts.max(1) - 1,
        }
    }

    fn stood(&mut self, one: u64, stands: bool) {
        // A map of hashes places by the low bits.
        if (one >> 24) & self.mask == 0 {
            *self.known.entry(one).or_default() |= stands;
        }
    }

    fn shown(&mut self, one: u64) {
        if let Some(stands) = self.known.get_mut(&one) {
            *stands = true;
        }
    }

    /// The share that still stands; all, if there was nothing.
    fn share(&self) -> f64 {
        if self.known.is_empty() {
            return 1.0;
        }
        let stands = self.known.values().filter(|stands| **stands).count();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a sample has far fewer than 2^52"
        )]
        let share = stands as f64 / self.known.len() as f64;
        share
    }
}
