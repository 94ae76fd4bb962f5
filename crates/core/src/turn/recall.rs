//! Runs `recall`: finds what a call names. If that is in view it says where, else it brings the
//! original back, as much of it as the turn may hold. Pure. Content comes from the client's
//! messages and from records of the path; never reads a store.

mod document;
mod dropped;
mod find;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use plimsoll_model::{Effect, HiddenCall, HiddenTool, ItemNo, RecallCall, RecallOutcome};

use super::memo::Reader;
use super::originals::{Originals, OwnTexts};
use super::state::{Prepared, TurnState};
use crate::commit::Trigger;
use crate::intercept::recall::{self as protocol, EVERYTHING, NoExcerpt, RecallAsk};
use crate::policy::Target;
use crate::session::ids;
use crate::session::transcript::{Source, Transcript};
use document::Document;

/// One part in this many of the ceiling is the most that the recalls of one turn may bring back.
const SHARE: u64 = 4;
/// The third recall of one id within this many turns stays in view.
const TURNS: u32 = 10;
/// The number of recalls of one id before that one.
const BEFORE: usize = 2;
/// Tokens that a result's description of its part may take beside its head.
const SAID: u32 = 60;
/// A part with fewer tokens than this is not worth bringing back.
const LEAST: u32 = 40;
/// Bytes of pictures that one recall brings back at most: the record keeps them, and every later request sends them.
const PICTURES: usize = 4 << 20;
/// Tokens by which notes may be longer than they were when the room was measured.
const MARGIN: u64 = 64;

/// What a call did, its result's text, and how it is counted.
pub(super) struct RecallAnswer {
    pub(super) effect: Effect,
    pub(super) result: String,
    /// Parts beside the text, as JSON, and their size in tokens.
    pub(super) pictures: (Vec<String>, u32),
    pub(super) counted: RecallCall,
}

/// The recalls of one hop.
pub(super) struct Recalls<'a> {
    state: &'a TurnState,
    prepared: &'a Prepared,
    reader: &'a Reader<'a>,
    /// Recalls on the path that brought something back, oldest first, followed by those of this
    /// hop.
    earlier: Vec<Earlier<'a>>,
    /// Arguments of the calls of this turn.
    done: HashSet<String>,
    /// Tokens that the hop adds to the view beside what is recalled.
    adds: u64,
    /// Effects of the `delimiter` calls of this hop.
    marked: Vec<Effect>,
    /// Tokens of what is recalled in this hop.
    fresh: u64,
    /// The smallest size that a pass could reach, once it was needed.
    least: Option<u64>,
}

/// One recall that brought something back.
struct Earlier<'a> {
    call: Cow<'a, HiddenCall>,
    /// How texts refer to it.
    id: String,
    /// Whether its result is in view.
    live: bool,
    /// The turn of the call.
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

    /// The pictures of an item, if the result holds it alone.
    fn pictures(&self, no: ItemNo) -> Option<Vec<String>> {
        let Effect::Recalled { originals, .. } = &self.call.effect else {
            return None;
        };
        let alone = matches!(&originals[..], [original] if original.item == no);
        alone.then(|| self.call.pictures.clone())
    }

    /// The original of an item, if the result holds all of it.
    fn original(&self, no: ItemNo) -> Option<&str> {
        let Effect::Recalled { originals, .. } = &self.call.effect else {
            return None;
        };
        let found = originals.iter().find(|original| original.item == no)?;
        let (start, end) = (found.start as usize, found.end as usize);
        self.call.result.get(start..end)
    }
}

/// Why nothing was brought back: how that is counted, and the result's text.
struct NotRecalled(RecallOutcome, String);

impl<'a> Recalls<'a> {
    /// The recalls of a hop.
    pub(super) fn new(
        state: &'a TurnState,
        prepared: &'a Prepared,
        reader: &'a Reader<'a>,
    ) -> Self {
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

    /// Sets what else the hop does: how many tokens it adds to the view, and what its `delimiter`
    /// calls did.
    pub(super) fn beside(&mut self, adds: u64, marked: &[HiddenCall]) {
        self.adds = adds;
        self.marked = marked.iter().map(|call| call.effect.clone()).collect();
    }

    /// Remembers a call of an earlier hop of the turn, so that the same call is answered as done.
    pub(super) fn note(&mut self, arguments: &str) {
        self.done.insert(arguments.to_owned());
    }

    /// Remembers a call of this hop that was just run.
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

    /// Runs one call. A repeated call is judged again, because a pass between two hops may have
    /// evicted what was in view.
    pub(super) fn run(&mut self, arguments: &str) -> RecallAnswer {
        let again = !self.done.insert(arguments.to_owned());
        let given = RecallAsk::read(arguments)
            .map_err(|why| NotRecalled(RecallOutcome::Refused, why))
            .and_then(|ask| self.bring(&ask));
        given.unwrap_or_else(|said| match said {
            NotRecalled(RecallOutcome::InView, _) if again => refused(
                RecallOutcome::Repeated,
                "already done; go on with the work".to_owned(),
            ),
            NotRecalled(outcome, why) => refused(outcome, why),
        })
    }

    fn bring(&mut self, ask: &RecallAsk) -> Result<RecallAnswer, NotRecalled> {
        let transcript = self.prepared.view.transcript();
        let found = ids::find(transcript, &ask.id);
        // A page of the ledger changes with each pass, so asking again is no repetition.
        if !matches!(found, Some(ids::RecallTarget::Ledger(_))) {
            self.same(ask)?;
        }
        let document = match found {
            Some(ids::RecallTarget::Items(items)) => self.items(ask, &items)?,
            Some(ids::RecallTarget::Episode(at)) => self.episode(ask, at)?,
            Some(ids::RecallTarget::Ledger(page)) => self.ledger(ask, page)?,
            // A search without an id.
            None if ask.id == EVERYTHING => self.everything(ask)?,
            None => self.by_path_or_before(ask)?,
        };
        self.give(ask, &document)
    }

    /// What a path or an id stands for that nothing in view is called: first what the client still sends.
    fn by_path_or_before(&self, ask: &RecallAsk) -> Result<Document, NotRecalled> {
        match self.by_path(ask) {
            Some(Err(NotRecalled(RecallOutcome::InView, why))) => match self.dropped(ask) {
                // A search of what is in view is the model's own; the rest it can't see.
                Some(Ok(document)) if ask.search.is_some() => Ok(document),
                Some(_) | None => Err(in_view(why + &self.also_before(&ask.id))),
            },
            Some(found) => found,
            None => self.dropped(ask).unwrap_or_else(|| self.lost(ask)),
        }
    }

    /// Refuses a call that an earlier call in view has already answered.
    fn same(&self, ask: &RecallAsk) -> Result<(), NotRecalled> {
        let same = |earlier: &&Earlier<'_>| {
            earlier.live && RecallAsk::read(&earlier.call.arguments).is_ok_and(|own| own == *ask)
        };
        match self.earlier.iter().rev().find(same) {
            Some(earlier) => Err(in_view(format!(
                "{} was recalled in {}, which is still in view",
                ask.id, earlier.id
            ))),
            None => Ok(()),
        }
    }

    /// Brings a document back, or as much of it as fits.
    fn give(&mut self, ask: &RecallAsk, document: &Document) -> Result<RecallAnswer, NotRecalled> {
        // Asked for again and again, the item is needed: it stays.
        let pinned = self.times(ask) >= BEFORE;
        let count = |text: &str| self.reader.count(text);
        let pin = if pinned {
            "; asked for three times within 10 turns, so it stays in view until the open episode ends"
        } else {
            ""
        };
        let mut head = document.head.clone();
        let size = count(&head) + count(&document.more) + count(pin) + SAID;
        let left = self.left();
        // Only a whole answer has pictures: what lines or a search take of a text has none.
        let asked = ask.lines.is_none() && ask.search.is_none();
        let mut pictures = self.pictures(document, left.saturating_sub(size + LEAST), asked);
        // The size of the head is an estimate: if the result comes out too long, the part is made
        // smaller until it fits.
        let mut limit = left.saturating_sub(size + pictures.1);
        loop {
            if limit < LEAST {
                return Err(self.full(left));
            }
            let part =
                protocol::take(&document.text, ask, limit, &count).map_err(|miss| match miss {
                    NoExcerpt::Nothing(why) => NotRecalled(RecallOutcome::NoMatch, why),
                    NoExcerpt::NoRoom => self.full(left),
                })?;
            if asked && !document.pictures.is_empty() && pictures.0.is_empty() {
                head = format!("{}, without its pictures, which don't fit", document.head);
            }
            let front = format!("{head}: {}{pin}\n{}", part.said, document.more);
            let result = format!("{front}{}", part.text);
            let tokens = count(&result) + pictures.1;
            if !part.whole && pictures.1 > 0 {
                // The text comes first.
                limit = left.saturating_sub(size);
                pictures = Default::default();
                continue;
            }
            if tokens > left {
                limit = limit.saturating_sub(tokens - left);
                continue;
            }
            // A part can't stand for the original later.
            let originals = if part.whole && pictures.0.len() == document.pictures.len() {
                document.shifted(front.len())
            } else {
                Vec::new()
            };
            return Ok(RecallAnswer {
                effect: Effect::Recalled {
                    id: ask.id.clone(),
                    originals,
                    tokens,
                    pinned,
                },
                result,
                pictures,
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

    /// The pictures of a document with their size in tokens, if all of them fit; none unless they are `asked` for.
    fn pictures(&self, document: &Document, room: u32, asked: bool) -> (Vec<String>, u32) {
        let bytes: usize = document.pictures.iter().map(String::len).sum();
        if !asked || bytes == 0 || bytes > PICTURES {
            return Default::default();
        }
        let dialect = self.state.request.dialect;
        let shown = dialect.hidden_result("", "", &document.pictures);
        match self.reader.shape(&shown) {
            Ok(shape) if shape.text <= room => (document.pictures.clone(), shape.text),
            Ok(_) | Err(_) => Default::default(),
        }
    }

    /// How often an id was brought back within the last turns.
    fn times(&self, ask: &RecallAsk) -> usize {
        let now = self.state.path.next_turn();
        let lately = |earlier: &&Earlier<'_>| earlier.turn + TURNS > now;
        let same = |earlier: &&Earlier<'_>| earlier.asked() == ask.id;
        self.earlier.iter().filter(lately).filter(same).count()
    }

    /// Tokens that may still be brought back: the rest of the turn's share, but no more than a pass
    /// can make room for.
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
        // The recall stands beside everything else that the hop adds.
        let grown = self.adds + self.fresh;
        let left = if self.prepared.estimate + grown + share <= ceiling {
            share
        } else {
            // The view is nearly full: the next hop must be able to make room by a pass.
            share.min(ceiling.saturating_sub(self.least() + grown + MARGIN))
        };
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The smallest size that a pass could reach; the present size if no pass can be made.
    fn least(&mut self) -> u64 {
        if let Some(least) = self.least {
            return least;
        }
        let target = Target {
            fixed: self.state.fixed,
            ceiling: 0,
            floor: 0,
            window: None,
        };
        let view = self.written().view(&self.marked(), &self.state.marks);
        let (terms, config) = (&self.state.terms, &self.prepared.eviction);
        let written = self.written();
        let proposal = written.pass(terms, Trigger::Ceiling, &view, config, target, None);
        *self.least.insert(proposal.size)
    }

    /// The transcript with the episodes that this hop began: a new act protects what it depends on.
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

    /// Makes views and passes as the hop would.
    fn written(&self) -> OwnTexts<'a> {
        OwnTexts {
            originals: self.originals(),
            reader: *self.reader,
            ceiling: self.state.terms.ceiling,
            recall: self.state.injected.name(HiddenTool::Recall),
        }
    }

    fn full(&self, left: u32) -> NotRecalled {
        NotRecalled(
            RecallOutcome::Full,
            format!(
                "no room for it now: {left} tokens are left of what one turn may recall; go on, and ask for lines or a search in a later turn"
            ),
        )
    }
}

fn in_view(text: String) -> NotRecalled {
    NotRecalled(RecallOutcome::InView, text)
}

/// A call that brings nothing back.
pub(super) fn refused(outcome: RecallOutcome, result: String) -> RecallAnswer {
    RecallAnswer {
        effect: Effect::Refused,
        result,
        pictures: Default::default(),
        counted: RecallCall { outcome, tokens: 0 },
    }
}

/// The calls of the path that brought something back, oldest first.
fn earlier<'a>(state: &'a TurnState, prepared: &'a Prepared) -> Vec<Earlier<'a>> {
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
