//! The rung `repeat`: a new result that is still shown in full further up becomes a pointer to it.
//! Nothing is lost, and nothing that was sent before changes. Never points at what is not shown.

use std::collections::HashMap;
use std::sync::Arc;

use super::ask::{Level, Policy, PolicyAsk};
use super::fresh;
use super::pass::{Proposal, conclude};
use super::protect::Protection;
use super::work::Work;
use crate::model::{ItemKind, ItemNo, Kept, Mark};
use crate::session::index::ItemIndex;

/// A result with fewer tokens than this is hardly longer than a pointer.
const FROM: u32 = 120;

/// Proposes a pointer for each new result whose text an earlier result still shows.
pub(super) fn propose(ask: &PolicyAsk<'_>) -> Proposal {
    let mut work = Work::new(ask, Protection::of_entry());
    point(&mut work, ask);
    conclude(work, ask, Policy::Repeat)
}

fn point(work: &mut Work<'_>, ask: &PolicyAsk<'_>) {
    let due: Vec<Repeated> = fresh::calls(work.transcript)
        .into_iter()
        .filter_map(|call| Repeated::new(work, call))
        .collect();
    if due.is_empty() {
        return;
    }
    // Only texts of the same size in tokens are compared, so that hardly any others are read.
    let mut whole: HashMap<u32, Vec<ItemIndex>> = HashMap::new();
    for (at, item) in work.transcript.items.indexed() {
        let sized = due.iter().any(|one| one.tokens == item.tokens);
        if item.kind == ItemKind::Result && sized && ask.view.is_whole(at) {
            whole.entry(item.tokens).or_default().push(at);
        }
    }
    for one in due {
        let Some(text) = (ask.originals)(one.result) else {
            continue;
        };
        let hash = (ask.words)(one.result).and_then(|words| words.text());
        let earlier = whole.get(&one.tokens).into_iter().flatten();
        // The newest stays in view longest.
        let mut earlier = earlier.rev().filter(|at| **at < one.result);
        // Hashes are remembered, so that few texts are read again.
        let equal = |at: &&ItemIndex| {
            let other = (ask.words)(**at).and_then(|words| words.text());
            other == hash && (ask.originals)(**at).is_some_and(|other| *other == *text)
        };
        let same = earlier.find_map(|at| anchor(work, *at).filter(|_| equal(&at)));
        if let Some(same) = same {
            // Without a length, versions that know no pointers show the result whole.
            let kept = Kept {
                same: Some(same),
                ..Kept::default()
            };
            work.shrink(Level::Repeat, one.call, Mark::Clipped, Some(Arc::new(kept)));
        }
    }
}

/// A new result that is large enough.
#[derive(Clone, Copy)]
struct Repeated {
    call: ItemIndex,
    result: ItemIndex,
    tokens: u32,
}

impl Repeated {
    fn new(work: &Work<'_>, call: ItemIndex) -> Option<Self> {
        let result = work.item(call)?.pair?;
        let tokens = work.item(result)?.tokens;
        let due = tokens >= FROM && work.mark(call) == Mark::Live;
        due.then_some(Self {
            call,
            result,
            tokens,
        })
    }
}

/// The number of the call of a result to which another may point. A pass may have to shorten the
/// result later, so it must be one that marks can shorten.
fn anchor(work: &Work<'_>, result: ItemIndex) -> Option<ItemNo> {
    let at = work.item(result)?.pair?;
    let call = work.item(at)?;
    let shows = work.mark(at) == Mark::Live && !call.hidden && call.delimiter.is_none();
    shows.then_some(call.no)
}
