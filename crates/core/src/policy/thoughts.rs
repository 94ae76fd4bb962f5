//! Thoughts as a level of their own: which of them a provider does without, and in which order they go. They go
//! before all other content of a view, because no work is in them (paper 000 §4.4, level 1). Never takes one that
//! must come back.

use plimsoll_model::{ItemKind, Mark, ReasoningBack, Role};

use super::ask::Level;
use super::cut::next_cut;
use super::order::Reach;
use super::protect::Rules;
use super::work::Work;
use crate::session::index::{EntryIndex, ItemIndex};
use crate::session::transcript::{Item, Transcript};

/// Which thoughts a provider does without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    back: ReasoningBack,
    /// The newest answer with calls.
    newest: Option<EntryIndex>,
    /// The newest message of the user.
    turn: EntryIndex,
}

impl Demand {
    /// What `back` says about a transcript.
    pub fn new(back: ReasoningBack, transcript: &Transcript) -> Self {
        let entries = || transcript.entries.indexed().rev();
        let calls = |items: &[Item]| items.iter().any(|item| item.kind == ItemKind::Call);
        let mut answers = entries().filter(|(_, entry)| entry.role == Role::Assistant);
        let newest = answers.find(|(_, entry)| calls(transcript.items_of(entry)));
        let mut users = entries().filter(|(_, entry)| entry.role == Role::User);
        Self {
            back,
            newest: newest.map(|(at, _)| at),
            turn: users.next().map_or(EntryIndex(0), |(at, _)| at),
        }
    }

    /// Whether a call keeps the thought of its message as long as it is shown itself.
    pub fn is_paired(self) -> bool {
        self.back.is_paired()
    }

    /// Whether the provider does without the thought of a message. `calls` says whether the message shows any.
    fn spares(self, entry: EntryIndex, calls: bool) -> bool {
        match self.back {
            ReasoningBack::None => true,
            ReasoningBack::Newest => self.newest != Some(entry) || !calls,
            ReasoningBack::Turn => entry < self.turn || !calls,
            ReasoningBack::Calls | ReasoningBack::Bound => !calls,
        }
    }
}

/// Takes thoughts until the target is met: those of closed work first, then the others, each oldest first. Those
/// before the cut go newest first, so that they break as little of the prefix as they can.
pub(super) fn strip(work: &mut Work<'_>, reach: Reach) {
    let needed = work.held_episodes();
    let is_held = |at: ItemIndex| {
        let episode = work.item(at).and_then(|item| item.episode);
        episode.is_some_and(|episode| needed.contains(&episode))
    };
    let mut free = free(work);
    if work.protection.rules() == Rules::Strict {
        free.retain(|at| !is_held(*at));
    }
    let cut = next_cut(work.view.marked()).unwrap_or(work.transcript.entries.end());
    let is_behind = |at: &ItemIndex| work.item(*at).is_some_and(|item| item.entry >= cut);
    let (behind, before): (Vec<ItemIndex>, Vec<ItemIndex>) =
        free.iter().partition(|at| is_behind(at));
    let all: u64 = free.iter().map(|at| work.freed(*at)).sum();
    let alone = work.total().saturating_sub(all) <= work.target;
    let (held, closed): (Vec<ItemIndex>, Vec<ItemIndex>) =
        behind.into_iter().partition(|at| is_held(*at));
    let before = before.into_iter().rev();
    let before = before.filter(|_| alone || reach == Reach::All);
    for thought in closed.into_iter().chain(held).chain(before) {
        if work.met() {
            return;
        }
        work.shrink(Level::Reasoning, thought, Mark::Removed, None);
    }
}

/// The thoughts that are shown and may go, oldest first.
fn free(work: &Work<'_>) -> Vec<ItemIndex> {
    let items = work.transcript.items.indexed();
    let thoughts = items.filter(|(_, item)| item.kind == ItemKind::Reasoning);
    let free = thoughts.filter(|(at, item)| {
        item.episode.is_some()
            && work.view.is_whole(*at)
            && !work.protected(*at)
            && may_go(work, item.entry)
    });
    free.map(|(at, _)| at).collect()
}

/// Whether the thought of a message may go from the view as it is now.
pub(super) fn may_go(work: &Work<'_>, entry: EntryIndex) -> bool {
    work.demand.spares(entry, work.shows_call(entry))
}
