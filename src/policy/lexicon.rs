//! Which distinctive strings the view shows, and how often: what stands in one place only would be
//! lost with it. Chooses what is left of a result or of arguments. Never moves a mark.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::Ask;
use super::work::Work;
use crate::model::{ItemKind, Kept, Mark, strings};
use crate::session::stub;
use crate::session::transcript::Item;
use crate::session::view::{self, Shown};
use xxhash_rust::xxh3::xxh3_64;

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
    shown: HashMap<u64, u32>,
    /// The strings that each item shows, each once.
    of: HashMap<usize, Vec<u64>>,
    /// The calls whose results were whole when the view was read, with the hash of each.
    results: Vec<(usize, u64)>,
}

impl<'a> Lexicon<'a> {
    /// Reads the whole view.
    pub fn new(ask: &Ask<'a>, work: &Work<'_>) -> Self {
        let mut lexicon = Self {
            originals: ask.originals,
            shown: HashMap::new(),
            of: HashMap::new(),
            results: Vec::new(),
        };
        for (index, item) in ask.transcript.items.iter().enumerate() {
            let call = item.holder(index);
            let note = match item.kind {
                ItemKind::Result => work.notes.results.get(&call),
                ItemKind::Call => work.notes.arguments.get(&call),
                ItemKind::System
                | ItemKind::User
                | ItemKind::Text
                | ItemKind::Reasoning
                | ItemKind::Opaque => None,
            };
            let removed = match item.kind {
                ItemKind::System | ItemKind::User | ItemKind::Opaque => false,
                ItemKind::Text | ItemKind::Reasoning | ItemKind::Call | ItemKind::Result => {
                    work.mark(call) == Mark::Removed
                }
            };
            if removed {
                continue;
            }
            match note {
                Some(note) => lexicon.show(index, &note.text),
                None => {
                    if let Some(text) = lexicon.original(index, item.kind) {
                        lexicon.show(index, &text);
                        if is_whole_result(ask, work, item) && !text.is_empty() {
                            lexicon.results.push((call, hash(&text)));
                        }
                    }
                }
            }
        }
        lexicon
    }

    /// The calls whose results stood word for word further on in the view that was read: nothing
    /// is lost with them.
    pub fn superseded(&self) -> HashSet<usize> {
        let mut later = HashSet::new();
        let newest_first = self.results.iter().rev();
        let again = newest_first.filter(|(_, text)| !later.insert(*text));
        again.map(|(call, _)| *call).collect()
    }

    /// The original text of an item; of a call its arguments' texts.
    fn original(&self, index: usize, kind: ItemKind) -> Option<Cow<'a, str>> {
        let text = (self.originals)(index)?;
        if kind != ItemKind::Call {
            return Some(text);
        }
        Some(match text {
            Cow::Borrowed(text) => stub::flat(text),
            Cow::Owned(text) => Cow::Owned(stub::flat(&text).into_owned()),
        })
    }

    fn show(&mut self, item: usize, text: &str) {
        self.set(
            item,
            strings(text).map(|(_, string)| hash(string)).collect(),
        );
    }

    /// Says what an item shows.
    fn set(&mut self, item: usize, mut own: Vec<u64>) {
        own.sort_unstable();
        own.dedup();
        for string in &own {
            *self.shown.entry(*string).or_default() += 1;
        }
        self.of.insert(item, own);
    }

    /// Takes what an item shows out of the view.
    pub fn hide(&mut self, item: usize) {
        for string in self.of.remove(&item).unwrap_or_default() {
            if let Some(count) = self.shown.get_mut(&string) {
                *count = count.saturating_sub(1);
            }
        }
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
        let arguments = (self.originals)(call)?;
        let cuts = stub::cuts(&arguments);
        if cuts.is_empty() {
            return None;
        }
        self.hide(call);
        let text = stub::flat(&arguments);
        let outside = |at: usize| !cuts.iter().any(|cut| cut.contains(&at));
        let own = strings(&text).filter(|(at, _)| outside(*at));
        self.set(call, own.map(|(_, string)| hash(string)).collect());
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
        let mut chosen: Vec<(usize, &str, u64)> = Vec::new();
        let mut seen = HashSet::new();
        let mut used = 0;
        for locators in [true, false] {
            for cut in cuts {
                let inside = text.get(cut.clone()).unwrap_or_default();
                for (at, string) in strings(inside) {
                    let key = hash(string);
                    let fits = used + string.len() < budget;
                    if is_locator(string) == locators
                        && fits
                        && !self.is_shown(key)
                        && seen.insert(key)
                    {
                        used += string.len() + 1;
                        chosen.push((cut.start + at, string, key));
                    }
                }
            }
        }
        chosen.sort_unstable_by_key(|(at, _, _)| *at);
        let keys: Vec<u64> = chosen.iter().map(|(_, _, key)| *key).collect();
        for key in &keys {
            *self.shown.entry(*key).or_default() += 1;
        }
        self.of.entry(item).or_default().extend(keys);
        let span = |(at, string, _): &(usize, &str, u64)| (offset(*at), offset(at + string.len()));
        chosen.iter().map(span).collect()
    }

    /// The skeleton of a result: the lines whose strings stand nowhere else. `None` where there
    /// are none, or none that fits; then nothing changes.
    pub fn skeleton(&mut self, result: usize) -> Option<Kept> {
        let text = (self.originals)(result)?;
        let before = self.of.get(&result).cloned().unwrap_or_default();
        self.hide(result);
        let lines = self.lines(&text);
        if lines.is_empty() {
            self.set(result, before);
            return None;
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut own = Vec::new();
        for (start, end) in lines {
            let line = text.get(start..end).unwrap_or_default();
            own.extend(strings(line).map(|(_, string)| hash(string)));
            match runs.last_mut() {
                Some(run) if run.1 as usize == start => run.1 = offset(end),
                _ => runs.push((offset(start), offset(end))),
            }
        }
        self.set(result, own);
        Some(Kept {
            of: Some(offset(text.len())),
            lines: runs,
            ..Kept::default()
        })
    }

    /// The lines to keep, in order: by the worth of their own strings to their length.
    fn lines(&self, text: &str) -> Vec<(usize, usize)> {
        let mut scored = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let own = |(_, string): &(usize, &str)| !self.is_shown(hash(string));
            let worth: f64 = strings(line)
                .filter(own)
                .map(|(_, string)| if is_locator(string) { LOCATOR } else { WORD })
                .sum();
            if worth > 0.0 {
                scored.push((
                    worth / (float(line.len()) + LINE),
                    start,
                    start + line.len(),
                ));
            }
            start += line.len();
        }
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let budget = share(text.len(), SKELETON);
        let (mut used, mut seen) = (0, HashSet::new());
        let mut chosen = Vec::new();
        for (_, start, end) in scored {
            let line = text.get(start..end).unwrap_or_default();
            let cost = line.len() + 2;
            if used + cost > budget {
                continue;
            }
            // A line whose strings other chosen lines show adds nothing.
            let keys = strings(line).map(|(_, string)| hash(string));
            let new: Vec<u64> = keys.filter(|key| !self.is_shown(*key)).collect();
            if new.iter().all(|key| seen.contains(key)) {
                continue;
            }
            seen.extend(new);
            used += cost;
            chosen.push((start, end));
        }
        chosen.sort_unstable();
        chosen
    }
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

fn hash(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
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
