//! The rung `keep`: finds the results that the policies behind it take last, because an operator names
//! their tools, files or texts, because they are failures, or because they are the newest (paper 001,
//! tier 2 and "Selective Tool Output Preservation"; paper 004 §5.1). Never keeps a request above its
//! ceiling.

use std::collections::{HashMap, HashSet};

use plimsoll_model::{Globs, ItemKind, ItemNo, Mark, Pins, share_tokens};

use super::files;
use super::memo::Reader;
use super::originals::Originals;
use crate::policy::ItemSet;
use crate::session::index::ItemIndex;
use crate::session::transcript::{Item, Transcript};
use crate::session::view::View;

/// What is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepSettings {
    /// Tools whose results are kept.
    pub tools: Globs,
    /// Names of files: what a call brought in whose arguments name one.
    pub files: Vec<String>,
    /// Which failures are kept.
    pub errors: KeepErrors,
    /// Texts: what holds one of them is kept.
    pub texts: Vec<String>,
    /// How many of the newest results are kept.
    pub newest: usize,
    /// The largest share of the ceiling, in 0..=0.5, that all of it may take.
    pub share: f64,
}

impl Default for KeepSettings {
    fn default() -> Self {
        Self {
            tools: Globs::default(),
            files: Vec::new(),
            errors: KeepErrors::Last,
            texts: Vec::new(),
            newest: 0,
            share: 0.1,
        }
    }
}

impl KeepSettings {
    /// Whether nothing is kept, so that nothing has to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.files.is_empty()
            && self.errors == KeepErrors::Off
            && self.texts.is_empty()
            && self.newest == 0
    }
}

/// Which failures are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepErrors {
    /// None.
    Off,
    /// The newest of each tool, unless the same call has succeeded since.
    #[default]
    Last,
    /// All, unless the same call has succeeded since.
    All,
}

impl KeepErrors {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("last", Self::Last), ("all", Self::All)];
}

/// The pinned items of a view that are held, how many pins are not, and the room that is left, in tokens.
/// The newest pins come first: over the share the oldest are let go. What a pass has evicted stays
/// evicted.
pub(super) fn pinned(
    settings: &KeepSettings,
    ceiling: u32,
    pins: &Pins,
    view: &View,
) -> (HashSet<ItemIndex>, u32, u32) {
    let room = share_tokens(ceiling.into(), settings.share);
    let mut room = u32::try_from(room).unwrap_or(u32::MAX);
    let (mut held, mut loosened) = (HashSet::new(), 0);
    if pins.is_empty() {
        return (held, loosened, room);
    }
    let (transcript, seen) = (view.transcript(), view.marked());
    let items = transcript.items.indexed();
    // A result has the number of its call, and goes with it.
    let items = items.filter(|(_, item)| item.kind != ItemKind::Result);
    let places: HashMap<ItemNo, ItemIndex> = items.map(|(at, item)| (item.no, at)).collect();
    for no in pins.items().iter().rev() {
        // The client may have left it out, and may bring it back.
        let Some((at, item)) = places
            .get(no)
            .and_then(|at| Some((*at, transcript.items.get(*at)?)))
        else {
            continue;
        };
        let size = size(transcript, item);
        if size > room || seen.mark_of(at) > Mark::Clipped {
            loosened += 1;
            continue;
        }
        room -= size;
        held.insert(at);
    }
    (held, loosened, room)
}

/// The tokens of an item, and of its result if it is a call.
fn size(transcript: &Transcript, item: &Item) -> u32 {
    let result = item.pair.and_then(|at| transcript.items.get(at));
    item.tokens + result.map_or(0, |result| result.tokens)
}

/// What is kept of a view, and how many results had to be let go because they were too much.
pub(super) fn held(
    settings: &KeepSettings,
    ceiling: u32,
    pins: &Pins,
    view: &View,
    originals: Originals<'_>,
    reader: Reader<'_>,
) -> (ItemSet, u32) {
    // What somebody pinned comes before what a rule keeps.
    let (mut held, mut loosened, mut room) = pinned(settings, ceiling, pins, view);
    if settings.is_empty() {
        return (ItemSet::new(held), loosened);
    }
    let calls: Vec<(ItemIndex, &Item)> = view.transcript().answered_calls().collect();
    let failed = failed(settings.errors, &calls, originals, reader);
    let first_newest = calls.len().saturating_sub(settings.newest);
    let seen = view.marked();
    // The newest first: what does not fit is let go, oldest first.
    for (place, (at, call)) in calls.iter().enumerate().rev() {
        // What a pass has evicted stays evicted.
        if seen.mark_of(*at) > Mark::Clipped || held.contains(at) {
            continue;
        }
        let kept = place >= first_newest
            || failed.contains(at)
            || settings.tools.match_name(&call.name)
            || files::names_one(&settings.files, *at, originals)
            || holds_text(settings, call, originals);
        if !kept {
            continue;
        }
        let size = size(view.transcript(), call);
        if size > room {
            loosened += 1;
            continue;
        }
        room -= size;
        held.insert(*at);
    }
    (ItemSet::new(held), loosened)
}

/// The calls that failed and have not succeeded since, evicted ones included: of each tool the newest,
/// or all.
fn failed(
    which: KeepErrors,
    calls: &[(ItemIndex, &Item)],
    originals: Originals<'_>,
    reader: Reader<'_>,
) -> HashSet<ItemIndex> {
    let mut out = HashSet::new();
    if which == KeepErrors::Off {
        return out;
    }
    // Walked from the newest on: what a call came to later decides.
    let (mut worked, mut seen) = (HashSet::new(), HashSet::new());
    for (at, call) in calls.iter().rev() {
        // A text is read once for all passes.
        let words = call.pair.and_then(|result| originals.words(reader, result));
        let failure = words.is_some_and(|words| words.is_failure());
        // A call that was written as text is like no other.
        if !failure {
            worked.extend((call.digest != 0).then_some(call.digest));
        } else if !worked.contains(&call.digest)
            && (which == KeepErrors::All || seen.insert(call.name.clone()))
        {
            out.insert(*at);
        }
    }
    out
}

fn holds_text(settings: &KeepSettings, call: &Item, originals: Originals<'_>) -> bool {
    if settings.texts.is_empty() {
        return false;
    }
    let text = call.pair.and_then(|result| originals.text(result));
    text.is_some_and(|text| {
        settings
            .texts
            .iter()
            .any(|wanted| text.contains(wanted.as_str()))
    })
}
