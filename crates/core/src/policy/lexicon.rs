//! Which distinctive strings the view shows, and how often: a string that occurs once would be lost
//! with its item. Chooses what is kept of a result. Never moves a mark.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use plimsoll_model::{Hashed, ItemKind, Kept, Mark, Word, Words, distinct};

use super::ask::{PolicyAsk, Text};
use super::work::Work;
use crate::session::index::{Indexed, ItemIndex};
use crate::session::note::Note;
use crate::session::stub;
use crate::session::transcript::Item;
use crate::session::view::Shown;

/// The largest share of a result's bytes that a skeleton keeps.
const SKELETON: f64 = 0.3;
/// The worth of a string that says where something is, such as a path.
const PLACE: f64 = 0.03;
/// The worth of any other string.
const WORD: f64 = 0.01;
/// The bytes that a line costs in addition to its own.
const LINE: f64 = 8.0;

/// The strings of a view while a pass changes it.
pub(super) struct Lexicon<'a> {
    originals: &'a dyn Fn(ItemIndex) -> Option<Text<'a>>,
    words: &'a dyn Fn(ItemIndex) -> Option<Arc<Words>>,
    /// In how many items each string is shown, by its hash.
    shown: HashMap<u64, u32, Hashed>,
    /// What each item shows.
    of: Indexed<ItemIndex, Shows>,
    /// Calls whose results were whole when the view was read, with the hash of each result.
    results: Vec<(ItemIndex, u64)>,
}

/// The strings that an item shows, each once.
#[derive(Clone, Default)]
pub(super) enum Shows {
    #[default]
    Nothing,
    /// The strings of a text as it was when the view was read.
    All(Arc<Words>),
    /// The strings that this pass left.
    Left(Vec<u64>),
}

impl Shows {
    fn distinct(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::All(words) => words.distinct(),
            Self::Left(strings) => strings.len(),
        }
    }

    /// Calls `to` with each string.
    fn each(&self, to: impl FnMut(u64)) {
        match self {
            Self::Nothing => {}
            Self::All(words) => words.strings().for_each(to),
            Self::Left(strings) => strings.iter().copied().for_each(to),
        }
    }
}

impl<'a> Lexicon<'a> {
    /// Reads the whole view. Texts that an earlier pass has read are not read again.
    pub fn new(ask: &PolicyAsk<'a>, work: &Work<'_>) -> Self {
        let items = &ask.view.transcript().items;
        let mut of: Indexed<ItemIndex, Shows> = items.iter().map(|_| Shows::Nothing).collect();
        let mut results = Vec::new();
        for ((index, item), slot) in items.indexed().zip(of.iter_mut()) {
            // What is not shown can hold no string for others.
            if is_gone(work, index, item) {
                continue;
            }
            // A note hides the original: only the strings of the note are shown.
            if let Some(note) = note(work, index, item) {
                *slot = Shows::All(note.words().clone());
                continue;
            }
            let Some(words) = (ask.words)(index) else {
                continue;
            };
            if let Some(text) = words.text()
                && is_whole_result(ask, work, item)
            {
                results.push((item.holder(index), text));
            }
            *slot = Shows::All(words);
        }
        let mut shown: HashMap<u64, u32, Hashed> = HashMap::default();
        // Room for all, so that the map never grows.
        shown.reserve(of.iter().map(Shows::distinct).sum());
        for own in &of {
            own.each(|string| *shown.entry(string).or_default() += 1);
        }
        Self {
            originals: ask.originals,
            words: ask.words,
            shown,
            of,
            results,
        }
    }

    /// The calls whose results occur again, word for word, later in the view that was read: nothing
    /// is lost with them.
    pub fn superseded(&self) -> HashSet<ItemIndex> {
        let mut later: HashSet<u64, Hashed> = HashSet::default();
        let newest_first = self.results.iter().rev();
        let again = newest_first.filter(|(_, text)| !later.insert(*text));
        again.map(|(call, _)| *call).collect()
    }

    /// Sets what an item shows.
    fn set(&mut self, item: ItemIndex, own: Shows) {
        own.each(|string| *self.shown.entry(string).or_default() += 1);
        if let Some(slot) = self.of.get_mut(item) {
            *slot = own;
        }
    }

    /// Removes what an item shows from the view, and returns it.
    pub fn hide(&mut self, item: ItemIndex) -> Shows {
        let own = self
            .of
            .get_mut(item)
            .map(std::mem::take)
            .unwrap_or_default();
        own.each(|string| {
            if let Some(count) = self.shown.get_mut(&string) {
                *count = count.saturating_sub(1);
            }
        });
        own
    }

    fn is_shown(&self, string: u64) -> bool {
        self.shown.get(&string).is_some_and(|count| *count > 0)
    }

    /// The strings of an item's original.
    fn original(&self, item: ItemIndex) -> Arc<Words> {
        (self.words)(item).unwrap_or_default()
    }

    /// Whether a string in the arguments of a call is long enough to cut. If so, the view shows what
    /// is left of them from now on.
    pub fn trim(&mut self, call: ItemIndex) -> bool {
        // No string of these is long enough, so the arguments need not be read.
        if let Some(Shows::All(words)) = self.of.get(call)
            && words.longest() <= stub::LONG
        {
            return false;
        }
        let Some(arguments) = (self.originals)(call) else {
            return false;
        };
        let cuts = stub::cuts(&arguments);
        if cuts.is_empty() {
            return false;
        }
        self.hide(call);
        let words = self.original(call);
        let left = outside(words.all(), &cuts);
        self.set(call, Shows::Left(distinct(left)));
        true
    }

    /// The skeleton of a result, or of some runs of its lines: the lines whose strings occur nowhere else. `None` if
    /// no line has any, or none fits; then nothing changes.
    pub fn skeleton(&mut self, result: ItemIndex, of: Option<&[(u32, u32)]>) -> Option<Kept> {
        let text = (self.originals)(result)?;
        let words = self.original(result);
        let before = self.hide(result);
        let all = [(0, offset(text.len()))];
        let lines = self.lines(&text, words.all(), of.unwrap_or(&all));
        if lines.is_empty() {
            // Nothing is worth keeping, so the result is shown as it was.
            self.set(result, before);
            return None;
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut own = Vec::new();
        for line in lines {
            let words = words.all().get(line.words).unwrap_or_default();
            own.extend(words.iter().map(|word| word.hash()));
            match runs.last_mut() {
                // Adjacent lines are one run.
                Some(run) if run.1 as usize == line.start => run.1 = offset(line.end),
                _ => runs.push((offset(line.start), offset(line.end))),
            }
        }
        self.set(result, Shows::Left(distinct(own)));
        Some(Kept {
            of: Some(offset(text.len())),
            lines: runs,
            ..Kept::default()
        })
    }

    /// The lines to keep, in order. They are chosen by the worth of their strings per byte.
    fn lines(&self, text: &str, words: &[Word], of: &[(u32, u32)]) -> Vec<ScoredLine> {
        // Only words that occur nowhere else; `None` for all others.
        let own = |word: &Word| (!self.is_shown(word.hash())).then_some(*word);
        let own: Vec<Option<Word>> = words.iter().map(own).collect();
        let mut scored = scored(text, words, &own);
        let mut runs = of.iter().peekable();
        scored.retain(|line| {
            while runs
                .next_if(|(_, end)| *end as usize <= line.start)
                .is_some()
            {}
            runs.peek()
                .is_some_and(|(start, _)| *start as usize <= line.start)
        });
        scored.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.start.cmp(&b.start)));
        let bytes: usize = of
            .iter()
            .map(|(start, end)| end.saturating_sub(*start) as usize)
            .sum();
        let budget = share(bytes, SKELETON);
        let mut seen: HashSet<u64, Hashed> = HashSet::default();
        let mut used = 0;
        scored.retain(|line| {
            let cost = line.end - line.start + 2;
            if used + cost > budget {
                return false;
            }
            // A line adds nothing if chosen lines already have its strings.
            let mut adds = false;
            for word in own.get(line.words.clone()).into_iter().flatten().flatten() {
                adds |= seen.insert(word.hash());
            }
            used += if adds { cost } else { 0 };
            adds
        });
        scored.sort_unstable_by_key(|line| line.start);
        scored
    }
}

/// The lines with strings of worth, in order. `own` has the words that occur nowhere else.
fn scored(text: &str, words: &[Word], own: &[Option<Word>]) -> Vec<ScoredLine> {
    let mut scored = Vec::new();
    let (mut start, mut first) = (0, 0);
    while first < words.len() && start < text.len() {
        let rest = text.as_bytes().get(start..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest).map_or(text.len(), |at| start + at + 1);
        let rest = words.get(first..).unwrap_or_default();
        let last = first + rest.partition_point(|word| word.span().start < end);
        let mut worth = 0.0;
        for word in own.get(first..last).into_iter().flatten().flatten() {
            worth += if word.is_place() { PLACE } else { WORD };
        }
        if worth > 0.0 {
            scored.push(ScoredLine {
                score: worth / (float(end - start) + LINE),
                start,
                end,
                words: first..last,
            });
        }
        (start, first) = (end, last);
    }
    scored
}

/// The strings that no cut touches, by their hashes.
fn outside(words: &[Word], cuts: &[Range<usize>]) -> Vec<u64> {
    let touches = |word: &Word, cut: &Range<usize>| {
        let span = word.span();
        cut.start < span.end && span.start < cut.end
    };
    let whole = |word: &&Word| !cuts.iter().any(|cut| touches(word, cut));
    words.iter().filter(whole).map(|word| word.hash()).collect()
}

/// A line of a result.
struct ScoredLine {
    score: f64,
    start: usize,
    end: usize,
    /// The words of the result that are in it.
    words: Range<usize>,
}

/// Whether the view shows nothing of an item.
fn is_gone(work: &Work<'_>, index: ItemIndex, item: &Item) -> bool {
    match item.kind {
        ItemKind::System | ItemKind::User | ItemKind::Opaque => false,
        ItemKind::Text | ItemKind::Reasoning | ItemKind::Call | ItemKind::Result => {
            work.mark(item.holder(index)) == Mark::Removed
        }
    }
}

/// The text that the view shows instead of an item.
fn note<'w>(work: &'w Work<'_>, index: ItemIndex, item: &Item) -> Option<&'w Note> {
    let notes = match item.kind {
        ItemKind::Call => &work.view.notes().arguments,
        ItemKind::Result | ItemKind::Text => &work.view.notes().results,
        ItemKind::System | ItemKind::User | ItemKind::Opaque | ItemKind::Reasoning => return None,
    };
    notes.get(&item.holder(index))
}

/// Whether an item is a result that is shown unedited.
fn is_whole_result(ask: &PolicyAsk<'_>, work: &Work<'_>, item: &Item) -> bool {
    let entry = ask.view.transcript().entries.get(item.entry);
    let whole = |entry| work.view.shown_of(entry) == Shown::Whole;
    item.kind == ItemKind::Result && entry.is_some_and(whole)
}

/// Texts are far below 4 GiB: a body is capped long before.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "texts are far below 2^52 bytes")]
fn float(value: usize) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length is a length"
)]
fn share(of: usize, part: f64) -> usize {
    (float(of) * part) as usize
}
