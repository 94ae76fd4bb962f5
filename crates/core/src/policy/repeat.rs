//! The rung `repeat`: a new result that is still shown in full further up becomes a pointer to it, and of
//! one that only grew or scrolled since, what is new is shown. Nothing is lost, and nothing that was sent
//! before changes. Never points at what is not shown.

use std::collections::{HashMap, HashSet};

use plimsoll_model::{ItemKind, ItemNo, Kept, Mark};

use super::ask::{Level, Policy, PolicyAsk};
use super::fresh;
use super::pass::Proposal;
use crate::session::index::ItemIndex;
use crate::session::overlap;
use crate::session::transcript::Item;

/// A result with fewer tokens than this is hardly longer than a pointer. One of which the first lines are
/// left out has to become so much shorter.
const FROM: u32 = 120;

/// With how many earlier results of its tool a new one is compared, to see whether it goes on from one.
const COMPARED: usize = 8;

/// Whole results by their size in tokens: only texts of the same size are compared, so that hardly
/// any others are read.
type BySize = HashMap<u32, Vec<ItemIndex>>;

/// Proposes a pointer for each new result whose text an earlier result still shows.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    let whole = whole(ask);
    // A result that becomes a pointer itself is nothing to point to.
    let mut pointing = HashSet::new();
    fresh::edit(ask, Policy::Repeat, Level::Repeat, |call| {
        if ask.view.marked().mark_of(call) != Mark::Live {
            return None;
        }
        // Without a length, versions that know no pointers show the result whole.
        let same = same(ask, &whole, &pointing, call).map(|same| Kept {
            same: Some(same),
            ..Kept::default()
        });
        let kept = same.or_else(|| grown(ask, &pointing, call))?;
        pointing.insert(call);
        Some(kept)
    })
}

/// The result of a call that is large enough, and its size in tokens.
fn sized(ask: &PolicyAsk<'_>, call: ItemIndex) -> Option<(ItemIndex, u32)> {
    let items = &ask.view.transcript().items;
    let result = items.get(call)?.pair?;
    let tokens = items.get(result)?.tokens;
    (tokens >= FROM).then_some((result, tokens))
}

/// The results that are as large as some new one and are shown whole.
fn whole(ask: &PolicyAsk<'_>) -> BySize {
    let transcript = ask.view.transcript();
    let due = fresh::calls(transcript).into_iter();
    let due: HashSet<u32> = due
        .filter_map(|call| sized(ask, call).map(|(_, tokens)| tokens))
        .collect();
    let mut whole = BySize::new();
    if due.is_empty() {
        return whole;
    }
    for (at, item) in transcript.items.indexed() {
        let result = item.kind == ItemKind::Result && due.contains(&item.tokens);
        if result && ask.view.is_whole(at) {
            whole.entry(item.tokens).or_default().push(at);
        }
    }
    whole
}

/// The call whose result still shows the text that the result of a new call has.
fn same(
    ask: &PolicyAsk<'_>,
    whole: &BySize,
    pointing: &HashSet<ItemIndex>,
    call: ItemIndex,
) -> Option<ItemNo> {
    let (result, tokens) = sized(ask, call)?;
    let text = (ask.originals)(result)?;
    // Hashes are remembered, so that few texts are read again.
    let hash = |at: ItemIndex| (ask.words)(at).and_then(|words| words.text());
    let wanted = hash(result);
    let equal = |at: ItemIndex| {
        let same = hash(at) == wanted;
        same && (ask.originals)(at).is_some_and(|other| *other == *text)
    };
    // The newest stays in view longest.
    let earlier = whole.get(&tokens)?.iter().rev();
    let mut earlier = earlier.filter(|at| **at < result);
    earlier.find_map(|at| anchor(ask, pointing, *at).filter(|_| equal(*at)))
}

/// What is shown of a result that begins with lines at the end of an earlier one of the same tool: the
/// other lines, and to which it points. Versions that know no such pointers show the result whole.
fn grown(ask: &PolicyAsk<'_>, pointing: &HashSet<ItemIndex>, call: ItemIndex) -> Option<Kept> {
    let (result, tokens) = sized(ask, call)?;
    let transcript = ask.view.transcript();
    let item = transcript.items.get(call)?;
    // What stands before a result that came as text is no line of its own.
    let plain = |at: ItemIndex| {
        transcript
            .items
            .get(at)
            .is_some_and(|it| it.front.is_none())
    };
    if !plain(result) {
        return None;
    }
    let text = (ask.originals)(result)?;
    let length = u32::try_from(text.len()).ok()?;
    // The newest stays in view longest.
    let earlier = transcript.items.indexed().rev();
    let earlier = earlier.skip_while(|(at, _)| *at >= result);
    let earlier = earlier.filter(|(_, it)| it.kind == ItemKind::Result && it.tokens >= FROM);
    let named = |it: &Item| it.name == item.name;
    let earlier = earlier.filter(|(_, it)| {
        let call = it.pair.and_then(|call| transcript.items.get(call));
        call.is_some_and(named)
    });
    let earlier = earlier.filter(|(at, _)| plain(*at) && ask.view.is_whole(*at));
    let earlier = earlier.filter_map(|(at, _)| Some((at, anchor(ask, pointing, at)?)));
    // The strings of most are known, so that few texts are read again.
    let opening = (ask.words)(result)?.all().first().copied();
    let opening = opening.filter(|word| word.span().end <= FROM as usize);
    let holds = |at: ItemIndex| {
        let words = opening.and_then(|word| Some((word, (ask.words)(at)?)));
        words.is_none_or(|(word, words)| words.strings().any(|one| one == word.hash()))
    };
    earlier.take(COMPARED).find_map(|(at, to)| {
        if !holds(at) {
            return None;
        }
        let before = (ask.originals)(at)?;
        let found = overlap::longest(&before, &text)?;
        let kept = Kept {
            same: Some(to),
            lines: vec![(u32::try_from(found.bytes).ok()?, length)],
            ..Kept::default()
        };
        // All of the earlier result stays in view as long as this one does, so most of it has to be of use.
        // A token has a byte at least.
        if found.bytes.saturating_mul(2) < before.len() || found.bytes < FROM as usize {
            return None;
        }
        let left = (ask.measure.left)(call, Mark::Clipped, &kept).result?;
        (left.tokens().saturating_add(FROM) <= tokens).then_some(kept)
    })
}

/// The number of the call of a result to which another may point. A pass may have to shorten the
/// result later, so it must be one that marks can shorten.
fn anchor(ask: &PolicyAsk<'_>, pointing: &HashSet<ItemIndex>, result: ItemIndex) -> Option<ItemNo> {
    let seen = ask.view.marked();
    let at = seen.transcript.items.get(result)?.pair?;
    let call = seen.transcript.items.get(at)?;
    let shows = seen.mark_of(at) == Mark::Live && !pointing.contains(&at);
    (shows && call.is_clients_call()).then_some(call.no)
}
