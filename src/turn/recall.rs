//! Runs `recall`: finds what a call names, says where it stands if it is in view, and else brings
//! its original back, as much of it as the turn may hold. Pure; it takes content from the client's
//! own messages and from records of the path, and never reads a store.

mod document;
mod find;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::hop::{Prepared, State};
use super::known::Reader;
use super::original::{Originals, Written};
use crate::intercept::recall::{self as protocol, Ask, EVERYTHING, Miss};
use crate::model::{Effect, Hidden, HiddenCall, ItemNo, RecallCall, RecallOutcome};
use crate::policy::Target;
use crate::session::recall as ids;
use crate::session::transcript::{Source, Transcript};
use document::Document;

/// The share of the ceiling that the recalls of one turn may bring back.
const SHARE: u64 = 4;
/// Turns within which a third recall of one id keeps it in view.
const TURNS: u32 = 10;
/// Recalls of one id before the one that keeps it in view.
const BEFORE: usize = 2;
/// Tokens that what a result says of itself may take beside its head.
const SAID: u32 = 60;
/// Tokens below which a part is not worth bringing back.
const LEAST: u32 = 40;
/// Tokens by which notes may come out longer than they were when the room was measured.
const MARGIN: u64 = 64;

/// What a call did, what its result reads, and how it is counted.
pub(super) struct Outcome {
    pub(super) effect: Effect,
    pub(super) result: String,
    pub(super) counted: RecallCall,
}

/// The recalls of one hop.
pub(super) struct Recalls<'a> {
    state: &'a State,
    prepared: &'a Prepared,
    reader: &'a Reader<'a>,
    /// What was brought back on the path, oldest first, this hop's own calls behind it.
    earlier: Vec<Earlier<'a>>,
    /// Arguments of the turn's calls.
    done: HashSet<String>,
    /// Tokens that the hop adds to the view beside what is recalled.
    adds: u64,
    /// What the hop's own marks did.
    marked: Vec<Effect>,
    /// Tokens of what is recalled in this hop.
    fresh: u64,
    /// The least that the view can be brought down to, once it was asked for.
    least: Option<u64>,
}

/// One recall that brought something back.
struct Earlier<'a> {
    call: Cow<'a, HiddenCall>,
    /// What it is known by.
    id: String,
    /// Whether its result is in view.
    live: bool,
    /// The turn that it was made in.
    turn: u32,
}

impl Earlier<'_> {
    fn asked(&self) -> &str {
        match &self.call.effect {
            Effect::Recalled { id, .. } => id,
            Effect::Started { .. } | Effect::Ended { .. } | Effect::Refused => "",
        }
    }

    fn tokens(&self) -> u64 {
        match &self.call.effect {
            Effect::Recalled { tokens, .. } => u64::from(*tokens),
            Effect::Started { .. } | Effect::Ended { .. } | Effect::Refused => 0,
        }
    }

    /// The original of an item, where the result holds it whole.
    fn original(&self, no: ItemNo) -> Option<&str> {
        let Effect::Recalled { originals, .. } = &self.call.effect else {
            return None;
        };
        let found = originals.iter().find(|original| original.item == no)?;
        let (start, end) = (found.start as usize, found.end as usize);
        self.call.result.get(start..end)
    }
}

/// Why nothing was brought back: how it is counted and what the result reads.
struct Said(RecallOutcome, String);

impl<'a> Recalls<'a> {
    /// The recalls of a hop.
    pub(super) fn new(state: &'a State, prepared: &'a Prepared, reader: &'a Reader<'a>) -> Self {
        Self {
            state,
            prepared,
            reader,
            earlier: earlier(state, prepared),
            done: HashSet::new(),
            adds: 0,
            marked: Vec::new(),
            fresh: 0,
            least: None,
        }
    }

    /// Says what else the hop does: how many tokens it adds to the view, and what it marked.
    pub(super) fn beside(&mut self, adds: u64, marked: &[HiddenCall]) {
        self.adds = adds;
        self.marked = marked.iter().map(|call| call.effect.clone()).collect();
    }

    /// Notes a call of an earlier hop of the turn, so that the same call again is answered as done.
    pub(super) fn note(&mut self, arguments: &str) {
        self.done.insert(arguments.to_owned());
    }

    /// Notes a call of this hop that was just run.
    pub(super) fn ran(&mut self, call: &HiddenCall) {
        let Effect::Recalled { tokens, .. } = call.effect else {
            return;
        };
        self.fresh += u64::from(tokens);
        self.earlier.push(Earlier {
            call: Cow::Owned(call.clone()),
            id: "a recall of this message".to_owned(),
            live: true,
            turn: self.state.path.next_turn(),
        });
    }

    /// Runs one call. One that was made before is judged anew, because a pass between two hops may
    /// have taken what was in view.
    pub(super) fn run(&mut self, arguments: &str) -> Outcome {
        let again = !self.done.insert(arguments.to_owned());
        let given = Ask::read(arguments)
            .map_err(|why| Said(RecallOutcome::Refused, why))
            .and_then(|ask| self.bring(&ask));
        given.unwrap_or_else(|said| match said {
            Said(RecallOutcome::InView, _) if again => refused(
                RecallOutcome::Repeated,
                "already done; go on with the work".to_owned(),
            ),
            Said(outcome, why) => refused(outcome, why),
        })
    }

    fn bring(&mut self, ask: &Ask) -> Result<Outcome, Said> {
        let transcript = self.prepared.view.transcript();
        let found = ids::find(transcript, &ask.id);
        if !matches!(found, Some(ids::Target::Ledger(_))) {
            self.same(ask)?;
        }
        let document = match found {
            Some(ids::Target::Items(items)) => self.items(ask, &items)?,
            Some(ids::Target::Episode(at)) => self.episode(ask, at)?,
            Some(ids::Target::Ledger(page)) => self.ledger(ask, page)?,
            None if ask.id == EVERYTHING => self.everything(ask)?,
            None => match self.by_path(ask) {
                Some(document) => document?,
                None => self.lost(ask)?,
            },
        };
        self.give(ask, &document)
    }

    /// Refuses what an earlier call that is in view has answered already.
    fn same(&self, ask: &Ask) -> Result<(), Said> {
        let same = |earlier: &&Earlier<'_>| {
            earlier.live && Ask::read(&earlier.call.arguments).is_ok_and(|own| own == *ask)
        };
        match self.earlier.iter().rev().find(same) {
            Some(earlier) => Err(in_view(format!(
                "{} was recalled in {}, which is still in view",
                ask.id, earlier.id
            ))),
            None => Ok(()),
        }
    }

    /// Gives out a document, or as much of it as fits.
    fn give(&mut self, ask: &Ask, document: &Document) -> Result<Outcome, Said> {
        let pinned = self.times(ask) >= BEFORE;
        let count = |text: &str| self.reader.count(text);
        let pin = if pinned {
            "; asked for three times within 10 turns, so it stays in view until the open episode ends"
        } else {
            ""
        };
        let size = count(&document.head) + count(&document.more) + count(pin) + SAID;
        let left = self.left();
        let mut limit = left.saturating_sub(size);
        loop {
            if limit < LEAST {
                return Err(self.full(left));
            }
            let part =
                protocol::take(&document.text, ask, limit, &count).map_err(|miss| match miss {
                    Miss::Nothing(why) => Said(RecallOutcome::NoMatch, why),
                    Miss::NoRoom => self.full(left),
                })?;
            let front = format!("{}: {}{pin}\n{}", document.head, part.said, document.more);
            let result = format!("{front}{}", part.text);
            let tokens = count(&result);
            if tokens > left {
                limit = limit.saturating_sub(tokens - left);
                continue;
            }
            let originals = if part.whole {
                document.shifted(front.len())
            } else {
                Vec::new()
            };
            return Ok(Outcome {
                effect: Effect::Recalled {
                    id: ask.id.clone(),
                    originals,
                    tokens,
                    pinned,
                },
                result,
                counted: RecallCall {
                    outcome: if part.cut {
                        RecallOutcome::Partial
                    } else {
                        RecallOutcome::Ok
                    },
                    tokens: u64::from(tokens),
                },
            });
        }
    }

    /// How often the same id was brought back within the last turns.
    fn times(&self, ask: &Ask) -> usize {
        let now = self.state.path.next_turn();
        let lately = |earlier: &&Earlier<'_>| earlier.turn + TURNS > now;
        let same = |earlier: &&Earlier<'_>| earlier.asked() == ask.id;
        self.earlier.iter().filter(lately).filter(same).count()
    }

    /// Tokens that may still be brought back: what is left of the turn's share, and no more than
    /// the view can make room for.
    fn left(&mut self) -> u32 {
        let ceiling = self.prepared.ceiling;
        let now = self.state.path.next_turn();
        let used: u64 = self
            .earlier
            .iter()
            .filter(|earlier| earlier.turn == now)
            .map(Earlier::tokens)
            .sum();
        let share = (ceiling / SHARE).saturating_sub(used);
        let grown = self.adds + self.fresh;
        let left = if self.prepared.estimate + grown + share <= ceiling {
            share
        } else {
            share.min(ceiling.saturating_sub(self.least() + grown + MARGIN))
        };
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The least that the view can be brought down to. Where a pass can't be made, as it is.
    fn least(&mut self) -> u64 {
        if let Some(least) = self.least {
            return least;
        }
        let target = Target {
            fixed: self.state.fixed,
            ceiling: 0,
            floor: 0,
        };
        let view = self.written().view(&self.marked(), &self.state.marks);
        let (policy, config) = (self.state.terms.policy, &self.prepared.eviction);
        let proposal = self.written().propose(policy, &view, config, target);
        let least = proposal.map_or(self.prepared.estimate, |proposal| proposal.size);
        *self.least.insert(least)
    }

    /// The transcript with what the hop marked: an act that it begins holds what it stands on.
    fn marked(&self) -> Arc<Transcript> {
        let mut transcript = self.prepared.view.shared();
        let begins = |effect: &Effect| matches!(effect, Effect::Started { .. });
        if self.marked.iter().any(begins) {
            let graph = &mut Arc::make_mut(&mut transcript).graph;
            graph.foresee(self.marked.iter());
        }
        transcript
    }

    fn originals(&self) -> Originals<'a> {
        self.state.originals(self.prepared.view.transcript(), None)
    }

    /// What texts of the proxy's own are made and sized by.
    fn written(&self) -> Written<'a> {
        Written {
            originals: self.originals(),
            reader: *self.reader,
            ceiling: self.state.terms.ceiling,
            recall: self.state.injected.name(Hidden::Recall),
        }
    }

    fn full(&self, left: u32) -> Said {
        Said(
            RecallOutcome::Full,
            format!(
                "no room for it now: {left} tokens are left of what one turn may recall; go on, and ask for lines or a search in a later turn"
            ),
        )
    }
}

fn in_view(text: String) -> Said {
    Said(RecallOutcome::InView, text)
}

/// A call that brings nothing back.
pub(super) fn refused(outcome: RecallOutcome, result: String) -> Outcome {
    Outcome {
        effect: Effect::Refused,
        result,
        counted: RecallCall { outcome, tokens: 0 },
    }
}

/// What the calls of a path brought back, oldest first.
fn earlier<'a>(state: &'a State, prepared: &'a Prepared) -> Vec<Earlier<'a>> {
    let transcript = prepared.view.transcript();
    let mut found = Vec::new();
    for entry in &transcript.entries {
        let Source::HiddenResult { step, hop, call } = entry.source else {
            continue;
        };
        let hop = state.path.hop(&state.pending, step, hop);
        let Some(call) = hop.and_then(|hop| hop.calls.get(call)) else {
            continue;
        };
        if !matches!(call.effect, Effect::Recalled { .. }) {
            continue;
        }
        let Some(item) = transcript.items.get(entry.items.start) else {
            continue;
        };
        let record = state.path.entries.get(step).map(|entry| &entry.record);
        found.push(Earlier {
            call: Cow::Borrowed(call),
            id: format!("recall:{}", item.no),
            live: prepared.view.is_whole(entry.items.start),
            turn: record.map_or(state.path.next_turn(), |record| record.turn),
        });
    }
    found
}
