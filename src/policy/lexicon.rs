//! Which distinctive strings the view shows, and how often: what stands in one place only would be
//! lost with it. Chooses what is left of a result or of arguments. Never moves a mark.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::work::Work;
use super::{Ask, Read};
use crate::model::{Hashed, ItemKind, Kept, Mark, Words, distinct, hash, strings};
use crate::session::stub;
use crate::session::transcript::Item;
use crate::session::view::{self, Shown};

/// The part of a result's bytes that a skeleton keeps at most.
const SKELETON: f64 = 0.3;
/// The part of what is cut that an index takes at most.
const INDEX: f64 = 0.15;
/// Bytes that an index takes at most; names have about three a token.
const INDEX_BYTES: usize = 900;
/// The part of what is removed whole that its episode's tombstone names at most.
const NAMES: f64 = 0.05;
/// Bytes that a tombstone names at most.
const NAMES_BYTES: usize = 525;
/// What a string is worth that tells where something is: it holds a slash, a dot, an underscore, a
/// digit or an inner capital.
const LOCATOR: f64 = 0.03;
/// What any other string is worth.
const WORD: f64 = 0.01;
/// Bytes that a line costs beside its own.
const LINE: f64 = 8.0;

/// The strings of a view in the making.
pub(super) struct Lexicon<'a> {
    originals: &'a dyn Fn(usize) -> Option<Cow<'a, str>>,
    /// In how many items each string is shown, by its hash.
    shown: HashMap<u64, u32, Hashed>,
    /// What each item shows.
    of: Vec<Shows>,
    /// The calls whose results were whole when the view was read, with the hash of each.
    results: Vec<(usize, u64)>,
}

/// The strings that an item shows, each once.
#[derive(Clone, Default)]
pub(super) enum Shows {
    #[default]
    Nothing,
    /// Those of a text as it was when the view was read.
    All(Arc<Words>),
    /// Those that this pass left.
    Left(Vec<u64>),
}

impl Shows {
    fn strings(&self) -> &[u64] {
        match self {
            Self::Nothing => &[],
            Self::All(words) => words.strings(),
            Self::Left(strings) => strings,
        }
    }
}

impl<'a> Lexicon<'a> {
    /// Takes in the whole view. Texts that an earlier pass has read are not read again.
    pub fn new(ask: &Ask<'a>, work: &Work<'_>) -> Self {
        let mut of = vec![Shows::Nothing; ask.transcript.items.len()];
        let mut results = Vec::new();
        for ((index, item), slot) in ask.transcript.items.iter().enumerate().zip(&mut of) {
            let Some(read) = shown_text(work, index, item) else {
                continue;
            };
            let Some(words) = (ask.words)(read) else {
                continue;
            };
            if let (Read::Original(_), Some(text)) = (read, words.text())
                && is_whole_result(ask, work, item)
            {
                results.push((item.holder(index), text));
            }
            *slot = Shows::All(words);
        }
        let all = || of.iter().map(Shows::strings);
        let mut shown = HashMap::default();
        shown.reserve(all().map(<[u64]>::len).sum());
        for string in all().flatten() {
            *shown.entry(*string).or_default() += 1;
        }
        Self {
            originals: ask.originals,
            shown,
            of,
            results,
        }
    }

    /// The calls whose results stood word for word further on in the view that was read: nothing
    /// is lost with them.
    pub fn superseded(&self) -> HashSet<usize> {
        let mut later: HashSet<u64, Hashed> = HashSet::default();
        let newest_first = self.results.iter().rev();
        let again = newest_first.filter(|(_, text)| !later.insert(*text));
        again.map(|(call, _)| *call).collect()
    }

    /// Says what an item shows.
    fn set(&mut self, item: usize, own: Shows) {
        for string in own.strings() {
            *self.shown.entry(*string).or_default() += 1;
        }
        if let Some(slot) = self.of.get_mut(item) {
            *slot = own;
        }
    }

    /// Takes what an item shows out of the view, and gives it.
    pub fn hide(&mut self, item: usize) -> Shows {
        let own = self
            .of
            .get_mut(item)
            .map(std::mem::take)
            .unwrap_or_default();
        for string in own.strings() {
            if let Some(count) = self.shown.get_mut(string) {
                *count = count.saturating_sub(1);
            }
        }
        own
    }

    fn is_shown(&self, string: u64) -> bool {
        self.shown.get(&string).is_some_and(|count| *count > 0)
    }

    /// The stub of a result: an index of the strings that stand nowhere else.
    pub fn stub(&mut self, result: usize, kept: &Kept) -> Kept {
        self.hide(result);
        let text = (self.originals)(result).unwrap_or_default();
        let index = self.index(result, &text, &whole(&text));
        Kept {
            of: Some(offset(text.len())),
            lines: Vec::new(),
            index,
            trimmed: kept.trimmed.clone(),
        }
    }

    /// Shortened arguments with an index of the strings that were cut out and stand nowhere else.
    /// `None` where nothing is long enough to cut.
    pub fn trim(&mut self, call: usize, kept: &Kept) -> Option<Kept> {
        // No string in these can be long enough, so they need not be read.
        if let Some(Shows::All(words)) = self.of.get(call)
            && words.bytes() <= stub::LONG
        {
            return None;
        }
        let arguments = (self.originals)(call)?;
        let cuts = stub::cuts(&arguments);
        if cuts.is_empty() {
            return None;
        }
        self.hide(call);
        let text = stub::flat(&arguments);
        let outside = |at: usize| !cuts.iter().any(|cut| cut.contains(&at));
        let own = strings(&text).filter(|(at, _)| outside(*at));
        let own = distinct(own.map(|(_, string)| hash(string)).collect());
        self.set(call, Shows::Left(own));
        let index = self.index(call, &text, &cuts);
        Some(Kept {
            trimmed: Some(index),
            ..kept.clone()
        })
    }

    /// What a tombstone names of an item that goes, whose texts are hidden by now: the strings that
    /// stand nowhere else. `size` is that of the original in bytes, `used` what the tombstone names
    /// already. `None` where nothing is worth a name.
    pub fn names(&mut self, item: usize, parts: Parts, size: usize, used: usize) -> Option<Kept> {
        let mut left = share(size, NAMES).min(NAMES_BYTES.saturating_sub(used));
        if left == 0 {
            return None;
        }
        let text = (self.originals)(parts.text).unwrap_or_default();
        let arguments = (self.originals)(item).filter(|_| parts.call);
        let trimmed = arguments.map(|arguments| {
            let arguments = stub::flat(&arguments);
            self.choose(item, &arguments, &whole(&arguments), left)
        });
        left = left.saturating_sub(named(trimmed.iter().flatten()));
        let index = self.choose(item, &text, &whole(&text), left);
        let kept = Kept {
            of: Some(offset(text.len())),
            lines: Vec::new(),
            index,
            trimmed,
        };
        (names_bytes(&kept) > 0).then_some(kept)
    }

    /// The index of what is cut out of an item, beside what else it shows.
    fn index(&mut self, item: usize, text: &str, cuts: &[Range<usize>]) -> Vec<(u32, u32)> {
        let size: usize = cuts.iter().map(ExactSizeIterator::len).sum();
        let budget = share(size, INDEX).min(INDEX_BYTES);
        self.choose(item, text, cuts, budget)
    }

    /// Chooses the strings inside the cuts that stand nowhere else, those that tell a place first,
    /// and shows them as the item's.
    fn choose(
        &mut self,
        item: usize,
        text: &str,
        cuts: &[Range<usize>],
        budget: usize,
    ) -> Vec<(u32, u32)> {
        let mut chosen = Chosen {
            budget,
            ..Chosen::default()
        };
        let mut words = Vec::new();
        for cut in cuts {
            let inside = text.get(cut.clone()).unwrap_or_default();
            for (at, string) in strings(inside) {
                if !chosen.fits(string) {
                    continue;
                }
                if is_locator(string) {
                    chosen.add(self, cut.start + at, string);
                } else {
                    words.push((cut.start + at, string));
                }
            }
        }
        for (at, string) in words {
            if chosen.fits(string) {
                chosen.add(self, at, string);
            }
        }
        let mut spans = chosen.spans;
        spans.sort_unstable();
        for key in &chosen.keys {
            *self.shown.entry(*key).or_default() += 1;
        }
        if let Some(slot) = self.of.get_mut(item) {
            let mut own = slot.strings().to_vec();
            own.extend(chosen.keys);
            *slot = Shows::Left(own);
        }
        spans
    }

    /// The skeleton of a result: the lines whose strings stand nowhere else. `None` where there
    /// are none, or none that fits; then nothing changes.
    pub fn skeleton(&mut self, result: usize) -> Option<Kept> {
        let text = (self.originals)(result)?;
        let before = self.hide(result);
        let lines = self.lines(&text);
        if lines.is_empty() {
            self.set(result, before);
            return None;
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut own = Vec::new();
        for line in lines {
            own.extend(line.keys.iter().map(|(key, _)| *key));
            match runs.last_mut() {
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

    /// The lines to keep, in order: by the worth of their own strings to their length.
    fn lines(&self, text: &str) -> Vec<Line> {
        let mut scored = self.scored(text);
        scored.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.start.cmp(&b.start)));
        let budget = share(text.len(), SKELETON);
        let mut seen: HashSet<u64, Hashed> = HashSet::default();
        let mut used = 0;
        scored.retain(|line| {
            let cost = line.end - line.start + 2;
            if used + cost > budget {
                return false;
            }
            // A line whose strings other chosen lines show adds nothing.
            let mut adds = false;
            for (key, _) in line.keys.iter().filter(|(_, own)| *own) {
                adds |= seen.insert(*key);
            }
            used += if adds { cost } else { 0 };
            adds
        });
        scored.sort_unstable_by_key(|line| line.start);
        scored
    }

    /// The lines that are worth anything, in order.
    fn scored(&self, text: &str) -> Vec<Line> {
        let mut scored = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let mut worth = 0.0;
            let mut keys = Vec::new();
            for (_, string) in strings(line) {
                let key = hash(string);
                let own = !self.is_shown(key);
                if own {
                    worth += if is_locator(string) { LOCATOR } else { WORD };
                }
                keys.push((key, own));
            }
            let end = start + line.len();
            if worth > 0.0 {
                scored.push(Line {
                    score: worth / (float(line.len()) + LINE),
                    start,
                    end,
                    keys,
                });
            }
            start = end;
        }
        scored
    }
}

/// A line of a result.
struct Line {
    score: f64,
    start: usize,
    end: usize,
    /// The hashes of its strings, and whether each stands nowhere else.
    keys: Vec<(u64, bool)>,
}

/// Strings that are named after what held them is gone.
#[derive(Default)]
struct Chosen {
    budget: usize,
    used: usize,
    spans: Vec<(u32, u32)>,
    keys: HashSet<u64, Hashed>,
}

impl Chosen {
    fn fits(&self, string: &str) -> bool {
        self.used + string.len() < self.budget
    }

    /// Takes a string that stands nowhere else, once.
    fn add(&mut self, lexicon: &Lexicon<'_>, at: usize, string: &str) {
        let key = hash(string);
        if !lexicon.is_shown(key) && self.keys.insert(key) {
            self.used += string.len() + 1;
            self.spans.push((offset(at), offset(at + string.len())));
        }
    }
}

/// The text that the view shows of an item.
fn shown_text<'w>(work: &'w Work<'_>, index: usize, item: &Item) -> Option<Read<'w>> {
    let call = item.holder(index);
    let (notes, marked) = match item.kind {
        ItemKind::System | ItemKind::User | ItemKind::Opaque => (None, false),
        ItemKind::Text | ItemKind::Reasoning => (None, true),
        ItemKind::Call => (Some(&work.notes.arguments), true),
        ItemKind::Result => (Some(&work.notes.results), true),
    };
    if marked && work.mark(call) == Mark::Removed {
        return None;
    }
    let note = notes.and_then(|notes| notes.get(&call));
    Some(note.map_or(Read::Original(index), |note| Read::Note(&note.text)))
}

/// Where an item's texts stand.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// The item that has the text: a call's result, or the item itself.
    pub text: usize,
    /// Whether the item has arguments, too.
    pub call: bool,
}

/// Bytes that a tombstone shows of what is left of an item.
pub(super) fn names_bytes(kept: &Kept) -> usize {
    named(kept.index.iter().chain(kept.trimmed.iter().flatten()))
}

fn named<'s>(spans: impl Iterator<Item = &'s (u32, u32)>) -> usize {
    spans.map(|(start, end)| (end - start + 1) as usize).sum()
}

/// The whole of a text as the one cut.
fn whole(text: &str) -> [Range<usize>; 1] {
    std::array::from_fn(|_| 0..text.len())
}

/// Whether an item is a result that is shown as it came.
fn is_whole_result(ask: &Ask<'_>, work: &Work<'_>, item: &Item) -> bool {
    let entry = ask.transcript.entries.get(item.entry);
    let whole =
        |entry| view::shown_of(ask.transcript, &work.marks, &work.notes, entry) == Shown::Whole;
    item.kind == ItemKind::Result && entry.is_some_and(whole)
}

fn is_locator(string: &str) -> bool {
    let inner = string.bytes().skip(1).any(|byte| byte.is_ascii_uppercase());
    let lower = string.bytes().any(|byte| byte.is_ascii_lowercase());
    let mark = |byte: u8| matches!(byte, b'/' | b'.' | b'_' | b'0'..=b'9');
    string.bytes().any(mark) || (inner && lower)
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
