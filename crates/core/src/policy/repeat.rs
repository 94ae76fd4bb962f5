//! The rung `repeat`: a new result that is still shown in full further up becomes a pointer to it. Where an earlier
//! result shows some lines of a new one (it grew, scrolled, or was read again after an edit), only the others are
//! shown. Where an agent itself says so in place of a result, `unchanged` adds a line about what left. Nothing is lost,
//! and nothing that was sent before changes. Never points at what is not shown.

mod unchanged;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use plimsoll_model::{Hashed, ItemKind, ItemNo, Kept, Mark};

use super::ask::{Level, Policy, PolicyAsk};
use super::fresh;
use super::pass::Proposal;
use crate::session::index::ItemIndex;
use crate::session::{overlap, stub};
use unchanged::Referred;

pub use unchanged::SAID as SAID_UNCHANGED;

/// A result with fewer tokens than this is hardly longer than a pointer.
const FROM: u32 = 120;
/// A run of lines for which another line stands has at least so many bytes.
const RUN: usize = 200;
/// When a result becomes a pointer by lines, the earlier result, all that points there, and their calls have at most so
/// many tokens: a pass takes all of these or none.
const GROUP: u32 = 4_000;
/// Beside [`FROM`] tokens, such a pointer saves one token in so many of the earlier result and its call.
const OF_USE: u32 = 20;

/// How many earlier results are looked at for a new one, and with how many of these its lines are compared.
const LOOKED: usize = 64;
const COMPARED: usize = 4;
/// Behind how many other results one is found at most.
const BACK: usize = 256;
/// How many distinctive strings two results have in common at least before their lines are compared; of a result that
/// has few, half of them.
const STRINGS: usize = 8;
/// How many strings are looked up, and how many bytes are compared, for all new results of a request.
const ALL_STRINGS: usize = 1 << 20;
const ALL_BYTES: usize = 8 << 20;

/// Proposes a pointer for each new result of which an earlier result still shows the text, or some lines, and a line
/// for each that refers to what is not shown any more.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    let (mut shown, mut referred) = (ShownResults::new(ask), Referred::new(ask));
    fresh::edit(ask, Policy::Repeat, |call| {
        if ask.view.marked().mark_of(call) != Mark::Live {
            return None;
        }
        if let Some(kept) = referred.kept(call) {
            // Nothing points at a result with a line of its own.
            shown.pointing.insert(call);
            return Some((Level::Refers, kept));
        }
        let (to, kept) = shown.same(call).or_else(|| shown.shared(call))?;
        shown.add(to, call, &kept);
        Some((Level::Repeat, kept))
    })
}

/// The calls whose results the view shows and new results refer to, as to what stands further up.
#[must_use]
pub fn referred(ask: &PolicyAsk<'_>) -> Vec<ItemIndex> {
    let mut referred = Referred::new(ask);
    let calls = fresh::calls(ask.view.transcript()).into_iter();
    calls.filter_map(|call| referred.shown(call)).collect()
}

/// A result to which another one may point.
#[derive(Clone, Copy)]
struct Anchor {
    result: ItemIndex,
    call: ItemIndex,
    no: ItemNo,
}

/// The results to which new ones may point.
struct ShownResults<'p, 'a> {
    ask: &'p PolicyAsk<'a>,
    /// All that are shown whole, in order.
    whole: Vec<ItemIndex>,
    /// Those that are as large as some new one, by their size in tokens.
    sized: HashMap<u32, Vec<ItemIndex>>,
    /// Of the sizes that were asked for, the same by the hash of the text. Hashes are remembered, so that few texts are
    /// read again.
    alike: HashMap<u32, HashMap<Option<u64>, Vec<ItemIndex>>>,
    /// What points to the result of a call, and what those pointers take, in tokens.
    pointers: HashMap<ItemIndex, u32>,
    /// The calls whose new results become pointers. These are nothing to point to.
    pointing: HashSet<ItemIndex>,
    /// Calls as a pointer names them.
    named: HashMap<ItemIndex, String>,
    /// The results that are shown whole by the digest of their call, once that was asked for.
    called: Option<HashMap<u64, Vec<ItemIndex>>>,
    /// How much may still be looked up and compared.
    strings: usize,
    bytes: usize,
}

impl<'p, 'a> ShownResults<'p, 'a> {
    fn new(ask: &'p PolicyAsk<'a>) -> Self {
        let transcript = ask.view.transcript();
        let mut shown = Self {
            ask,
            whole: Vec::new(),
            sized: HashMap::new(),
            alike: HashMap::new(),
            pointers: HashMap::new(),
            pointing: HashSet::new(),
            named: HashMap::new(),
            called: None,
            strings: ALL_STRINGS,
            bytes: ALL_BYTES,
        };
        let due = fresh::calls(transcript).into_iter();
        let due: HashSet<u32> = due
            .filter_map(|call| shown.large(call).map(|(_, tokens)| tokens))
            .collect();
        if due.is_empty() {
            return shown;
        }
        for (at, item) in transcript.items.indexed() {
            if item.kind == ItemKind::Result && ask.view.is_whole(at) {
                shown.whole.push(at);
                if due.contains(&item.tokens) {
                    shown.sized.entry(item.tokens).or_default().push(at);
                }
            }
        }
        let notes = &ask.view.notes().results;
        for (to, from) in ask.view.marked().pointers() {
            // What a client's edit has laid bare counts as it is shown.
            let shows = |call: &ItemIndex| match notes.get(call) {
                Some(note) => note.tokens(),
                None => shown.tokens(transcript.items.get(*call).and_then(|call| call.pair)),
            };
            let taken = from
                .iter()
                .map(|call| shows(call) + shown.tokens(Some(*call)));
            let taken = taken.sum();
            shown.pointers.insert(to, taken);
        }
        shown
    }

    fn tokens(&self, item: Option<ItemIndex>) -> u32 {
        let item = item.and_then(|item| self.ask.view.transcript().items.get(item));
        item.map_or(0, |item| item.tokens)
    }

    /// The result of a call that is large enough, and its size in tokens.
    fn large(&self, call: ItemIndex) -> Option<(ItemIndex, u32)> {
        let result = self.ask.view.transcript().items.get(call)?.pair?;
        let tokens = self.tokens(Some(result));
        (tokens >= FROM).then_some((result, tokens))
    }

    /// A result to which that of a later call may point. A pass may have to shorten it later, so it must be one that
    /// marks can shorten.
    fn anchor(&self, result: ItemIndex, later: ItemIndex) -> Option<Anchor> {
        let seen = self.ask.view.marked();
        let call = seen.transcript.items.get(result)?.pair?;
        let item = seen.transcript.items.get(call)?;
        let shows = seen.mark_of(call) == Mark::Live && !self.pointing.contains(&call);
        (shows && call < later && item.is_clients_call()).then_some(Anchor {
            result,
            call,
            no: item.no,
        })
    }

    /// Notes that a new result becomes a pointer.
    fn add(&mut self, to: ItemIndex, call: ItemIndex, kept: &Kept) {
        let left = (self.ask.measure.left)(call, Mark::Clipped, kept).result;
        let left = left.map_or(0, |left| left.tokens()) + self.tokens(Some(call));
        *self.pointers.entry(to).or_default() += left;
        self.pointing.insert(call);
        // Those that are alike are looked through from the newest on.
        let Some((result, tokens)) = self.large(call) else {
            return;
        };
        let hash = (self.ask.words)(result).and_then(|words| words.text());
        let alike = self
            .alike
            .get_mut(&tokens)
            .and_then(|alike| alike.get_mut(&hash));
        if let Some(alike) = alike
            && let Ok(at) = alike.binary_search(&result)
        {
            alike.remove(at);
        }
    }

    /// Whether a result is the newest before another one that its call has brought: a pointer names that call and no
    /// more.
    fn is_newest_of_its_call(&mut self, anchor: Anchor, before: ItemIndex) -> bool {
        let items = &self.ask.view.transcript().items;
        let digest = |at: ItemIndex| {
            let call = items.get(at).and_then(|result| items.get(result.pair?));
            call.map_or(0, |call| call.digest)
        };
        let whole = &self.whole;
        let called = self.called.get_or_insert_with(|| {
            let mut called: HashMap<u64, Vec<ItemIndex>> = HashMap::new();
            for at in whole {
                called.entry(digest(*at)).or_default().push(*at);
            }
            called
        });
        let of = digest(anchor.result);
        let same = called.get(&of).filter(|_| of != 0);
        let same = same.map_or(&[][..], Vec::as_slice);
        let newer = same.iter().rev().filter(|at| **at < before);
        let mut newer = newer.take_while(|at| **at > anchor.result);
        let pair = |at: &ItemIndex| items.get(*at).and_then(|result| result.pair);
        newer.all(|at| pair(at).is_some_and(|call| self.pointing.contains(&call)))
    }

    /// Whether no call between a result and another one reads as the first one's does in a pointer, which says only how
    /// it begins.
    fn is_named_apart(&mut self, anchor: Anchor, before: ItemIndex) -> bool {
        let items = &self.ask.view.transcript().items;
        let past = self.whole.partition_point(|at| *at < before);
        let newer = self.whole.iter().take(past).rev();
        let newer = newer.take_while(|at| **at > anchor.result);
        let call = |at: &ItemIndex| items.get(*at).and_then(|result| result.pair);
        let newer: Vec<ItemIndex> = newer.filter_map(call).collect();
        let name = |call: ItemIndex| items.get(call).map(|call| &call.name);
        newer.into_iter().all(|call| {
            name(call) != name(anchor.call)
                || self.pointing.contains(&call)
                || self.named(call) != self.named(anchor.call)
        })
    }

    /// The call of an earlier result that still shows the text of a new one.
    fn same(&mut self, call: ItemIndex) -> Option<(ItemIndex, Kept)> {
        let (result, tokens) = self.large(call)?;
        let ask = self.ask;
        let hash = |at: ItemIndex| (ask.words)(at).and_then(|words| words.text());
        let sized = self.sized.get(&tokens)?;
        let alike = self.alike.entry(tokens).or_insert_with(|| {
            let mut alike: HashMap<_, Vec<ItemIndex>> = HashMap::new();
            for at in sized {
                alike.entry(hash(*at)).or_default().push(*at);
            }
            alike
        });
        // The newest stays in view longest.
        let alike = alike.get(&hash(result))?;
        let before = alike.partition_point(|at| *at < result);
        let before: Vec<ItemIndex> = alike
            .iter()
            .take(before)
            .rev()
            .take(LOOKED)
            .copied()
            .collect();
        let text = (ask.originals)(result)?;
        let equal = |at: ItemIndex| (ask.originals)(at).is_some_and(|other| *other == *text);
        let mut before = before.into_iter();
        let anchor = before.find_map(|at| self.anchor(at, call).filter(|_| equal(at)))?;
        if !self.is_newest_of_its_call(anchor, result) {
            return None;
        }
        // Without a length, all of it is the same.
        let same = Kept {
            same: Some(anchor.no),
            ..Kept::default()
        };
        Some((anchor.call, same))
    }

    /// The call of an earlier result that shows lines of a new one, and what of that is shown: the other lines. Of
    /// several earlier results that one by which most is left out.
    fn shared(&mut self, call: ItemIndex) -> Option<(ItemIndex, Kept)> {
        let (result, tokens) = self.large(call)?;
        if !self.is_plain(result) {
            return None;
        }
        let ask = self.ask;
        let text = (ask.originals)(result)?;
        let length = u32::try_from(text.len()).ok()?;
        let mut found = Vec::new();
        for anchor in self.alike(result, call)? {
            let Some(before) = (ask.originals)(anchor.result) else {
                continue;
            };
            self.bytes = self.bytes.checked_sub(before.len() + text.len())?;
            let runs = overlap::runs(&before, &text, RUN);
            if runs.is_empty() {
                continue;
            }
            let bytes: usize = runs.iter().map(Range::len).sum();
            let holds = before.len() / OF_USE as usize;
            found.push((bytes.saturating_sub(holds), anchor, runs));
        }
        found.sort_by_key(|(worth, ..)| Reverse(*worth));
        for (_, anchor, runs) in found {
            let newest = self.is_newest_of_its_call(anchor, result);
            if !newest || !self.is_named_apart(anchor, result) {
                continue;
            }
            let kept = Kept {
                of: Some(length),
                same: Some(anchor.no),
                lines: between(&runs, length),
                ..Kept::default()
            };
            let holds = self.tokens(Some(anchor.result)) + self.tokens(Some(anchor.call));
            let group = self.group(anchor, call);
            let Some(left) = (ask.measure.left)(call, Mark::Clipped, &kept).result else {
                continue;
            };
            let saved = tokens.saturating_sub(left.tokens());
            let fits = group.saturating_add(left.tokens()) <= GROUP;
            if fits && saved >= FROM.saturating_add(holds / OF_USE) {
                return Some((anchor.call, kept));
            }
        }
        None
    }

    /// The tokens that stay in view as long as a new result points to an earlier one, without what is left of the new.
    fn group(&self, anchor: Anchor, call: ItemIndex) -> u32 {
        let beside = self.pointers.get(&anchor.call).copied().unwrap_or_default();
        let all = [Some(anchor.result), Some(anchor.call), Some(call)];
        let all = all.map(|item| self.tokens(item)).into_iter();
        all.fold(beside, u32::saturating_add)
    }

    /// Whether nothing stands before the lines of a result: what stands before one that came as text is no line of it.
    fn is_plain(&self, result: ItemIndex) -> bool {
        let result = self.ask.view.transcript().items.get(result);
        result.is_some_and(|result| result.front.is_none())
    }

    /// The earlier results to which a new one may point and that have most strings in common with it. The newest come
    /// first where several have as many, because they stay in view longest.
    fn alike(&mut self, result: ItemIndex, call: ItemIndex) -> Option<Vec<Anchor>> {
        let words = (self.ask.words)(result)?;
        let strings: HashSet<u64, Hashed> = words.strings().collect();
        let least = strings.len().div_ceil(2).min(STRINGS);
        let before = self.whole.partition_point(|at| *at < result);
        let before = self.whole.iter().take(before).rev().take(BACK);
        let fits = |at: &ItemIndex| (FROM..=GROUP).contains(&self.tokens(Some(*at)));
        let before: Vec<ItemIndex> = before.copied().filter(fits).take(LOOKED).collect();
        let mut found = Vec::new();
        for at in before {
            let anchor = self.anchor(at, call).filter(|_| self.is_plain(at));
            let anchor = anchor.filter(|anchor| self.group(*anchor, call) < GROUP);
            let Some((anchor, words)) = anchor.zip((self.ask.words)(at)) else {
                continue;
            };
            self.strings = self.strings.checked_sub(words.all().len())?;
            let shared = words.strings().filter(|one| strings.contains(one)).count();
            if shared >= least {
                found.push((shared, anchor));
            }
        }
        found.sort_by_key(|(shared, _)| Reverse(*shared));
        let found = found.into_iter().map(|(_, anchor)| anchor);
        Some(found.take(COMPARED).collect())
    }

    /// As much as a pointer says of a call: its name, and how its arguments begin.
    fn named(&mut self, call: ItemIndex) -> String {
        let ask = self.ask;
        let named = self.named.entry(call).or_insert_with(|| {
            let item = ask.view.transcript().items.get(call);
            let name = item.map_or("", |item| &*item.name);
            let arguments = (ask.originals)(call);
            let arguments = arguments.as_deref().map_or("", |text| stub::begins(text));
            stub::begins(&format!("{name} {arguments}")).to_owned()
        });
        named.clone()
    }
}

/// What of a text stands between runs of it, as places in bytes. Where one run follows another the place is empty.
fn between(runs: &[Range<usize>], length: u32) -> Vec<(u32, u32)> {
    // The length fits, and so does any place before it.
    let place = |at: usize| u32::try_from(at).unwrap_or(length);
    let mut lines = Vec::new();
    let mut end = 0;
    for run in runs {
        let start = place(run.start);
        if start > 0 {
            lines.push((end, start));
        }
        end = place(run.end);
    }
    if end < length {
        lines.push((end, length));
    }
    lines
}
