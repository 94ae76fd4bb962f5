//! Reads what a turn is asked to pin, by a header, by an operator or in the user's own words, and finds
//! the items that are meant (paper 001, tier 2; paper 004 §5.1). The rung `keep` makes room for them.
//! Never refuses a turn for a pin that it can't find.

use super::keep;
use super::originals::Originals;
use super::state::{HopContext, TurnState};
use crate::model::{ItemKind, ItemNo, PinMove, PinOutcome, Pins, Role};
use crate::policy::Policy;
use crate::session::ids::{self, RecallTarget};
use crate::session::index::ItemIndex;
use crate::session::transcript::{Item, Transcript};
use crate::session::view::View;

/// How a line of a user's message begins that pins something.
const MARKER: &str = "plimsoll:pin";
/// The most that one text may name.
const MOST_ASKS: usize = 32;
/// The largest user message that is searched for the marker, in bytes.
const SEARCHED: usize = 256 << 10;

/// One pin that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinAsk {
    /// The newest result of the request.
    Newest,
    /// What an id names, as `recall` takes it: `read:3`, `read:3,5,7-9`.
    Set(String),
    /// What an id names is pinned no longer.
    Lift(String),
    /// Nothing is pinned any longer.
    LiftAll,
}

/// What became of the pins that a turn was asked for, and of those of its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinReport {
    /// How many this turn set, lifted, and did not find.
    pub asked: [u32; PinOutcome::ALL.len()],
    /// How many the conversation has.
    pub pinned: u32,
    /// How many of those are not held, because they are more than `keep.share` allows, because they
    /// were evicted before, or because `keep` is not on the ladder.
    pub loosened: u32,
}

impl PinReport {
    /// How many of the asked pins came to this.
    #[must_use]
    pub fn count(&self, outcome: PinOutcome) -> u32 {
        self.asked.get(outcome as usize).copied().unwrap_or(0)
    }
}

impl PinAsk {
    /// Reads what a header or a line says: `newest`, `none`, or ids with a `-` in front of those that
    /// are to be lifted, apart by spaces.
    ///
    /// # Errors
    /// What may stand there.
    pub fn read(text: &str) -> Result<Vec<Self>, String> {
        let asks: Option<Vec<Self>> = text.split_whitespace().map(Self::of).collect();
        let asks = asks.filter(|asks| (1..=MOST_ASKS).contains(&asks.len()));
        asks.ok_or_else(|| {
            format!(
                "must be \"newest\", \"none\", or at most {MOST_ASKS} ids like read:12 apart by spaces, \
                 with - in front to lift a pin"
            )
        })
    }

    fn of(word: &str) -> Option<Self> {
        let is_id = |id: &str| {
            let numbers = id.rsplit_once(':').map(|(_, numbers)| numbers);
            numbers.is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
        };
        match word {
            "newest" => Some(Self::Newest),
            "none" => Some(Self::LiftAll),
            _ => match word.strip_prefix('-') {
                Some(id) => is_id(id).then(|| Self::Lift(id.to_owned())),
                None => is_id(word).then(|| Self::Set(word.to_owned())),
            },
        }
    }
}

impl TurnState {
    /// Finds what the turn was asked to pin, once, before its first hop. Most turns are asked nothing
    /// and read nothing for it.
    pub(super) fn pin(&mut self, tools: &HopContext<'_>) {
        let asks = std::mem::take(&mut self.pin_asks);
        let says = self.pending.is_empty() && !self.pins_read && self.has_marker();
        self.pins_read = true;
        if asks.is_empty() && !says {
            return;
        }
        let transcript = self.transcript(tools);
        let mut found = Found::default();
        for ask in &asks {
            found.take(&self.pins, &transcript, ask, transcript.items.end());
        }
        if says {
            let originals = self.originals(&transcript, None);
            found.take_markers(&self.pins, &transcript, originals);
        }
        self.pins.apply(&found.moves);
        self.pin_moves.extend(found.moves);
        self.pin_report.asked = found.asked;
    }

    /// What became of the pins, as a view shows them.
    pub(super) fn pins_held(&self, view: &View) -> PinReport {
        let (keep, pins) = (&self.terms.keep, &self.pins);
        let pinned = u32::try_from(pins.items().len()).unwrap_or(u32::MAX);
        let loosened = if self.terms.ladder.has(Policy::Keep) {
            keep::pinned(keep, self.terms.ceiling, pins, view).1
        } else {
            pinned
        };
        PinReport {
            pinned,
            loosened,
            ..self.pin_report
        }
    }

    /// Whether a new message of the user's may have a marker.
    fn has_marker(&self) -> bool {
        let answer = self
            .shapes
            .iter()
            .rposition(|one| one.role == Role::Assistant);
        let new = answer.map_or(0, |at| at + 1)..self.shapes.len();
        new.filter(|at| {
            self.shapes
                .get(*at)
                .is_some_and(|one| one.role == Role::User)
        })
        .map(|at| self.request.message(at))
        .any(|bytes| {
            let short = bytes.len() <= SEARCHED;
            short && memchr::memmem::find(bytes, MARKER.as_bytes()).is_some()
        })
    }
}

/// What the asks of a turn come to.
#[derive(Default)]
struct Found {
    moves: Vec<PinMove>,
    asked: [u32; PinOutcome::ALL.len()],
}

impl Found {
    fn count(&mut self, outcome: PinOutcome) {
        if let Some(count) = self.asked.get_mut(outcome as usize) {
            *count += 1;
        }
    }

    /// Takes one ask. `until` is where the newest result is looked for.
    fn take(&mut self, pins: &Pins, transcript: &Transcript, ask: &PinAsk, until: ItemIndex) {
        match ask {
            PinAsk::Newest => {
                let newest = newest(transcript, until);
                self.all(newest.as_slice(), PinMove::Set, PinOutcome::Set);
            }
            PinAsk::Set(id) => self.named(transcript, id, PinMove::Set, PinOutcome::Set),
            PinAsk::Lift(id) => self.named(transcript, id, PinMove::Lift, PinOutcome::Lifted),
            PinAsk::LiftAll => {
                self.moves
                    .extend(pins.items().iter().copied().map(PinMove::Lift));
                self.count(PinOutcome::Lifted);
            }
        }
    }

    fn named(
        &mut self,
        transcript: &Transcript,
        id: &str,
        make: fn(ItemNo) -> PinMove,
        outcome: PinOutcome,
    ) {
        let items = match ids::find(transcript, id) {
            Some(RecallTarget::Items(items)) => items,
            Some(RecallTarget::Episode(_) | RecallTarget::Ledger(_)) | None => Vec::new(),
        };
        let items = items.iter().filter_map(|at| transcript.items.get(*at));
        let items: Vec<&Item> = items.collect();
        self.all(&items, make, outcome);
    }

    /// Moves the pins of all items that one ask names.
    fn all(&mut self, items: &[&Item], make: fn(ItemNo) -> PinMove, outcome: PinOutcome) {
        self.count(if items.is_empty() {
            PinOutcome::Unknown
        } else {
            outcome
        });
        // What a user or a system says is never evicted, so it needs no pin.
        let own = |item: &&&Item| {
            matches!(
                item.kind,
                ItemKind::Call | ItemKind::Result | ItemKind::Text | ItemKind::Reasoning
            )
        };
        let moves = items.iter().filter(own).map(|item| make(item.no));
        self.moves.extend(moves);
    }

    /// Takes what the user's new messages say.
    fn take_markers(&mut self, pins: &Pins, transcript: &Transcript, originals: Originals<'_>) {
        let from = transcript.newest_answer().map(|entry| entry.items.end);
        let from = from.unwrap_or(ItemIndex(0));
        for (at, item) in transcript.items.indexed() {
            // A result that looks like a marker is no user's word.
            if at < from || item.kind != ItemKind::User {
                continue;
            }
            let Some(text) = originals.text(at) else {
                continue;
            };
            for line in text
                .lines()
                .filter_map(|line| line.trim().strip_prefix(MARKER))
            {
                if line.trim().is_empty() {
                    // The user speaks of what came before.
                    let before = transcript.items.indexed().rev();
                    let mut before = before.filter(|(of, _)| *of < at).map(|(_, item)| item);
                    let result = before.find(|item| item.kind == ItemKind::Result);
                    self.all(result.as_slice(), PinMove::Set, PinOutcome::Set);
                } else if line.starts_with(char::is_whitespace) {
                    match PinAsk::read(line) {
                        Ok(asks) => asks
                            .iter()
                            .for_each(|ask| self.take(pins, transcript, ask, at)),
                        // A user writes what they like: it is counted and no error.
                        Err(_) => self.count(PinOutcome::Unknown),
                    }
                }
            }
        }
    }
}

/// The newest result or user text before an item.
fn newest(transcript: &Transcript, until: ItemIndex) -> Option<&Item> {
    let mut before = transcript.items.indexed().rev();
    before
        .find(|(at, item)| {
            let fits = matches!(item.kind, ItemKind::Result | ItemKind::User);
            *at < until && fits
        })
        .map(|(_, item)| item)
}
