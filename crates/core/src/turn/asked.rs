//! What an operator asked of the session of a turn, and the part of a pass that does it: named items go
//! before anything that a policy chooses. Never decides which items an operator may name (`console` says that
//! when they ask); what a rule holds when the pass comes stays.

use plimsoll_model::ItemKind;

use super::originals::OwnTexts;
use super::pins::PinAsk;
use super::state::TurnState;
use crate::commit::Trigger;
use crate::policy::{EvictionSettings, ItemSet, Level, Policy, Proposal, Target, evict_asked};
use crate::session::ids;
use crate::session::transcript::{Item, Transcript};
use crate::session::view::View;

/// One thing that is asked of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A pin, with the session's next turn.
    Pin(PinAsk),
    /// The eviction of an item or of an episode. A pass is made for it now, or it waits for the next one.
    Evict(NamedAsk),
    /// That an original comes back into view, with the next turn now, or with that of the next pass.
    Bring(NamedAsk),
    /// A pass down to the floor, with the session's next turn.
    Pass,
}

/// What an ask names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAsk {
    /// An id as a view shows it, such as `read:12`, or the name of an episode.
    pub name: String,
    /// Whether it is done now. Else it waits for the next pass.
    pub now: bool,
}

/// What waits for a turn of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// What is to be pinned, or no longer.
    pub pins: Vec<PinAsk>,
    /// What is to be evicted.
    pub evictions: Vec<NamedAsk>,
    /// What is to be brought back.
    pub recalls: Vec<NamedAsk>,
    /// Whether a pass down to the floor is to happen before its first hop.
    pub pass: bool,
    /// The number of the newest; 0 if nothing waits.
    pub newest: u64,
    /// Whether a pass of the turn has judged the evictions, so that they wait no longer.
    pub judged: bool,
    /// Whether the first of the turn's hops is an exchange that was asked for.
    pub brought: bool,
}

impl TurnState {
    /// Takes in what waits for the session.
    pub fn ask(&mut self, asks: Asks) {
        self.pin_asks.extend(asks.pins.iter().cloned());
        *self.asks = asks;
    }

    /// Whether evictions wait that no pass of this turn has judged.
    pub(super) fn awaits_pass(&self) -> bool {
        !self.asks.judged && !self.asks.evictions.is_empty()
    }

    /// Whether a pass is to be made for one of them.
    pub(super) fn evicts_now(&self) -> bool {
        self.awaits_pass() && self.asks.evictions.iter().any(|ask| ask.now)
    }

    /// What a pass would do: first what is named, then what the ladder chooses. A pass that happens only
    /// because something is named takes nothing else.
    pub(super) fn proposed(
        &self,
        written: &OwnTexts<'_>,
        trigger: Trigger,
        view: &View,
        config: &EvictionSettings,
        target: Target,
    ) -> Proposal {
        let first = self.named_first(written, view, config, target);
        let whole = self.asks.pass && view.size() + target.fixed > target.floor;
        if trigger == Trigger::Asked && !whole {
            return first.unwrap_or_else(|| written.propose(Policy::None, view, config, target));
        }
        written.pass(&self.terms, trigger, view, config, target, first)
    }

    /// The part of a pass that evicts what is named. `None` if nothing is.
    fn named_first(
        &self,
        written: &OwnTexts<'_>,
        view: &View,
        config: &EvictionSettings,
        target: Target,
    ) -> Option<Proposal> {
        if !self.awaits_pass() {
            return None;
        }
        let transcript = view.transcript();
        let asks = self.asks.evictions.iter();
        let named = asks.filter_map(|ask| ids::find(transcript, &ask.name));
        let named: Vec<_> = named.collect();
        let ladder = &self.terms.ladder;
        // What a rule keeps may go if a person names it, and what a person pinned may not.
        let config = EvictionSettings {
            held: self.pinned(transcript),
            strict_active: config.strict_active || ladder.has(Policy::CwlPaper),
            ..config.clone()
        };
        let proposal = written.asking(view, &config, target, |ask| {
            evict_asked(ladder.main(), ask, &named)
        });
        (!proposal.plan.is_empty()).then_some(proposal)
    }

    /// The pinned items of a transcript.
    fn pinned(&self, transcript: &Transcript) -> ItemSet {
        if self.pins.is_empty() {
            return ItemSet::default();
        }
        let items = transcript.items.indexed();
        let is_pinned =
            |item: &Item| item.kind != ItemKind::Result && self.pins.items().contains(&item.no);
        let pinned = items.filter(|(_, item)| is_pinned(item));
        ItemSet::new(pinned.map(|(at, _)| at).collect())
    }
}

/// Whether a pass takes something that was named.
pub(super) fn takes(proposal: &Proposal) -> bool {
    let mut levels = proposal.gone.keys();
    levels.any(|(_, level)| *level == Level::Asked)
}
