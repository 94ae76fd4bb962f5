//! Reads what a turn is asked to pin, by a header, by an operator or in the user's own words, and finds
//! the items that are meant (paper 001, tier 2; paper 004 §5.1). The rung `keep` makes room for them.
//! Never refuses a turn for a pin that it can't find.

use plimsoll_model::{ItemKind, MOST_PINS, PinMove, PinOutcome, Pins, Role};

use super::keep;
use super::originals::Originals;
use super::state::{HopContext, TurnState};
use crate::policy::Policy;
use crate::session::ids::{self, RecallTarget};
use crate::session::index::{ItemIndex, indices};
use crate::session::transcript::{Item, Transcript};
use crate::session::view::View;

/// How a line of a user's message begins that pins something. A line that the user only quotes, in a fence or in
/// a document, pins nothing.
const MARKER: &str = "plimsoll:pin";
/// The most that one turn may be asked.
const MOST_ASKS: usize = 32;
/// The largest user message that is searched for the marker, in bytes. Whoever asks writes less.
const SEARCHED: usize = 256 << 10;

/// One pin that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinAsk {
    /// The newest result of a tool of the client's.
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
        words(text, Self::of).ok_or_else(|| {
            format!(
                "must be \"newest\", \"none\", or at most {MOST_ASKS} ids like read:12 apart by spaces, \
                 with - in front to lift a pin"
            )
        })
    }

    /// Reads which pins are to be lifted: ids apart by spaces, or `none`.
    ///
    /// # Errors
    /// What may stand there.
    pub fn read_lifted(text: &str) -> Result<Vec<Self>, String> {
        let lift = |word: &str| match Self::of(word)? {
            Self::Set(id) => Some(Self::Lift(id)),
            Self::LiftAll => Some(Self::LiftAll),
            Self::Newest | Self::Lift(_) => None,
        };
        words(text, lift)
            .ok_or_else(|| format!("must be \"none\", or at most {MOST_ASKS} ids like read:12"))
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

/// Reads each word of a text; `None` if one can't be read, or if there are none or too many.
fn words(text: &str, read: impl Fn(&str) -> Option<PinAsk>) -> Option<Vec<PinAsk>> {
    let asks: Option<Vec<PinAsk>> = text.split_whitespace().map(read).collect();
    asks.filter(|asks| (1..=MOST_ASKS).contains(&asks.len()))
}

impl TurnState {
    /// Finds what the turn was asked to pin, once, before its first hop. Most turns are asked nothing
    /// and read nothing for it.
    pub(super) fn pin(&mut self, tools: &HopContext<'_>) {
        let asks = std::mem::take(&mut self.pin_asks);
        let says = self.pending.is_empty() && !self.pins_read && self.has_marker();
        self.pins_read = true;
        // What is not recorded could not keep its pins.
        if (asks.is_empty() && !says) || !self.is_managed() {
            return;
        }
        let transcript = self.transcript(tools);
        let mut search = PinSearch {
            transcript: &transcript,
            pins: self.pins.clone(),
            left: MOST_ASKS,
            asked: self.pin_report.asked,
        };
        for ask in &asks {
            search.take(ask, transcript.items.end());
        }
        if says {
            search.take_markers(self.originals(&transcript, None));
        }
        let PinSearch { pins, asked, .. } = search;
        self.pin_moves = pins.since(&self.path.pins);
        self.pins = pins;
        self.pin_report.asked = asked;
    }

    /// Lets the turn be asked for nothing, because no record of it is made.
    pub fn pin_nothing(&mut self) {
        self.pin_asks.clear();
        self.pins_read = true;
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
        let mut shapes = self.shapes.iter();
        let answer = shapes.rposition(|one| one.role == Role::Assistant);
        let new = self
            .shapes
            .iter()
            .enumerate()
            .skip(answer.map_or(0, |at| at + 1));
        let users = new.filter(|(_, one)| one.role == Role::User);
        let mut messages = users.map(|(at, _)| self.request.message(at));
        messages.any(|bytes| {
            let short = bytes.len() <= SEARCHED;
            short && memchr::memmem::find(bytes, MARKER.as_bytes()).is_some()
        })
    }
}

/// The search for what a turn is asked to pin.
struct PinSearch<'a> {
    transcript: &'a Transcript,
    /// The pins after the asks so far.
    pins: Pins,
    /// How many asks are still taken: a text may have any number.
    left: usize,
    asked: [u32; PinOutcome::ALL.len()],
}

impl PinSearch<'_> {
    fn count(&mut self, outcome: PinOutcome) {
        if let Some(count) = self.asked.get_mut(outcome as usize) {
            *count += 1;
        }
    }

    /// Takes one ask. The newest result is looked for before `until`.
    fn take(&mut self, ask: &PinAsk, until: ItemIndex) {
        if self.left == 0 {
            return self.count(PinOutcome::Unknown);
        }
        self.left -= 1;
        match ask {
            PinAsk::Newest => {
                let calls = self.transcript.answered_calls();
                let before = |call: &Item| call.pair.is_some_and(|result| result < until);
                let newest = calls.rev().map(|(_, call)| call).find(|call| before(call));
                self.set(newest.as_slice());
            }
            PinAsk::Set(id) => self.set(&named(self.transcript, id)),
            PinAsk::Lift(id) => {
                let items = named(self.transcript, id);
                let lifts: Vec<PinMove> = items.iter().map(|item| PinMove::Lift(item.no)).collect();
                self.pins.apply(&lifts);
                self.count(if items.is_empty() {
                    PinOutcome::Unknown
                } else {
                    PinOutcome::Lifted
                });
            }
            PinAsk::LiftAll => {
                self.pins = Pins::default();
                self.count(PinOutcome::Lifted);
            }
        }
    }

    /// Pins items that one ask names. What a user or a system says is never evicted and has no pin.
    fn set(&mut self, items: &[&Item]) {
        let evicted = |item: &&&Item| {
            matches!(
                item.kind,
                ItemKind::Call | ItemKind::Text | ItemKind::Reasoning
            )
        };
        let sets = items
            .iter()
            .filter(evicted)
            .map(|item| PinMove::Set(item.no));
        let sets: Vec<PinMove> = sets.collect();
        self.pins.apply(&sets);
        self.count(if sets.is_empty() {
            PinOutcome::Unknown
        } else {
            PinOutcome::Set
        });
    }

    /// Takes what the user's new messages say.
    fn take_markers(&mut self, originals: Originals<'_>) {
        let transcript = self.transcript;
        let from = transcript.newest_answer().map(|entry| entry.items.end);
        let new = indices(from.unwrap_or(ItemIndex(0))..transcript.items.end());
        for at in new {
            // A result that looks like a marker is no user's word.
            let user = transcript
                .items
                .get(at)
                .is_some_and(|item| item.kind == ItemKind::User);
            let texts = if user {
                originals.texts(at)
            } else {
                Vec::new()
            };
            let short = texts.iter().filter(|text| text.len() <= SEARCHED);
            for line in own_lines(short.map(String::as_str)) {
                if self.left == 0 {
                    return;
                }
                if let Some(words) = line.strip_prefix(MARKER) {
                    self.take_marker(words, at);
                }
            }
        }
    }

    /// Takes what stands behind a marker in a user's message.
    fn take_marker(&mut self, words: &str, at: ItemIndex) {
        if words.trim().is_empty() {
            // The user speaks of what came before.
            self.take(&PinAsk::Newest, at);
        } else if words.starts_with(char::is_whitespace) {
            match PinAsk::read(words) {
                Ok(asks) => asks.iter().for_each(|ask| self.take(ask, at)),
                // A user writes what they like: it is counted and no error.
                Err(_) => self.count(PinOutcome::Unknown),
            }
        }
    }
}

/// A line that begins a fence of code: its character, and how often that stands there.
#[derive(Clone, Copy)]
struct Fence(char, usize);

impl Fence {
    /// The fence that a line begins, and what stands behind it.
    fn read(line: &str) -> Option<(Self, &str)> {
        let mark = line
            .chars()
            .next()
            .filter(|mark| matches!(mark, '`' | '~'))?;
        let rest = line.trim_start_matches(mark);
        let fence = Self(mark, line.len() - rest.len());
        (fence.1 >= 3).then_some((fence, rest))
    }

    /// The fence that a line opens. Backticks that stand again in the line are code in a text.
    fn opened(line: &str) -> Option<Self> {
        let (fence, rest) = Self::read(line)?;
        (fence.0 == '~' || !rest.contains('`')).then_some(fence)
    }

    /// Whether a line ends it.
    fn is_closed(self, line: &str) -> bool {
        Self::read(line)
            .is_some_and(|(end, rest)| end.0 == self.0 && end.1 >= self.1 && rest.is_empty())
    }
}

/// The trimmed lines of a user's texts that the user says. What stands in a fence of code is quoted: the fence
/// may begin in one text and end in a later one, because agents cut what a user says into parts. One that
/// nothing ends quotes the rest of its own text, so an agent's text never silences the user's.
fn own_lines<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let texts = texts.enumerate();
    let lines: Vec<(usize, &str)> = texts
        .flat_map(|(of, text)| text.lines().map(move |line| (of, line.trim())))
        .collect();
    // The shortest fence of each character that nothing ends. A longer one behind it has no end either.
    let mut endless = [('`', usize::MAX), ('~', usize::MAX)];
    let (mut own, mut rest) = (Vec::new(), lines.as_slice());
    while let Some(((of, line), behind)) = rest.split_first() {
        rest = behind;
        let Some(fence) = Fence::opened(line) else {
            own.push(*line);
            continue;
        };
        let ends = endless.iter_mut().find(|(mark, _)| *mark == fence.0);
        let ends = ends
            .map(|(_, length)| length)
            .filter(|length| fence.1 < **length);
        let closing = ends.and_then(|length| {
            let closing = rest.iter().position(|(_, line)| fence.is_closed(line));
            if closing.is_none() {
                *length = fence.1;
            }
            closing
        });
        let quoted = match closing {
            Some(closing) => closing + 1,
            None => rest.partition_point(|(text, _)| text == of),
        };
        rest = rest.get(quoted..).unwrap_or_default();
    }
    own
}

/// The items of an id.
fn named<'a>(transcript: &'a Transcript, id: &str) -> Vec<&'a Item> {
    let items = match ids::find(transcript, id) {
        Some(RecallTarget::Items(items)) => items,
        Some(RecallTarget::Episode(_) | RecallTarget::Ledger(_)) | None => Vec::new(),
    };
    let items = items.iter().filter_map(|at| transcript.items.get(*at));
    items.take(MOST_PINS).collect()
}
