//! The laws that hold at every hop, whatever was said: what is sent is valid and as long as it was
//! counted, users are never touched, marks move right, what is gone stays gone, and between passes
//! only the tail grows. Never prepares anything itself.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use plimsoll_model::{ItemKind, ItemNo, Mark, Marks};
use plimsoll_scripted::size::Sizer;
use plimsoll_scripted::validate;
use plimsoll_tokens::Encoding;
use plimsoll_wire::Dialect;

use super::{COUNTER, Sent, Sim, is_label, pointed, wire};
use crate::commit::Trigger;
use crate::policy::{
    EvictionSettings, ItemSet, LastStep, Level, Order, Policy, Protection, Target,
};
use crate::session::graph::EpisodeKind;
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::marked::Marked;
use crate::session::transcript::{Item, Transcript};
use crate::turn::laws::say::gist;
use crate::turn::settings::Offer;
use crate::turn::state::{Prepared, TurnState};

static SIZER: LazyLock<Sizer> = LazyLock::new(|| {
    Sizer::new(Arc::new(|text: &str| {
        COUNTER.count(Encoding::O200k, text) as usize
    }))
});

impl Sim {
    /// Holds a prepared hop to the laws and keeps it.
    pub(super) fn judge(&mut self, state: &TurnState, prepared: &Prepared, before: &Marks) {
        let body = prepared.body.to_bytes();
        let messages = wire::shown(self.dialect, &body);
        let elements = wire::elements(self.dialect, &body);
        let gist = gist(&messages);
        let context = format!(
            "{gist:#?}\nbefore: {:#?}",
            self.sent.last().map(|s| &s.gist)
        );
        let same = match self.dialect {
            Dialect::Chat => body.clone(),
            Dialect::Responses | Dialect::Messages => {
                wire::body(Dialect::Chat, &messages, self.tools)
            }
        };
        if let Err(refusal) = validate::request(&same) {
            panic!("{}\n{context}", refusal.message);
        }
        if self.dialect == Dialect::Chat {
            let view = &prepared.view;
            let entries = view.transcript().entries.iter();
            let sent: u64 = entries.map(|one| u64::from(view.body_size(one))).sum();
            let unread = sent - view.size();
            assert_eq!(
                SIZER.request(&body) as u64,
                prepared.estimate + unread,
                "{context}"
            );
        }
        let own = wire::shown(self.dialect, &self.body());
        assert_eq!(users(&messages), users(&own), "user text changed");
        marks_move_right(state, before);
        if prepared.pass.is_none() {
            let entered = prepared.entered.as_ref();
            let after = entered.map_or_else(|| before.clone(), |one| one.plan.applied(before));
            assert_eq!(after, *state.marks);
        }
        // What the rungs for new results did is judged apart from the pass.
        let before = &prepared
            .entered
            .as_ref()
            .map_or_else(|| before.clone(), |entered| entered.plan.applied(before));
        if !self.tools {
            assert!(
                prepared
                    .body
                    .to_bytes()
                    .windows(8)
                    .all(|at| at != br#""tools":"#)
            );
            self.in_turns(state, prepared, &own, &messages);
        }
        self.guided(state, prepared);
        if prepared.pass.is_none() && prepared.guided.is_none() && !self.edited {
            let last = self.sent.last();
            extends(last.map(|sent| &sent.messages), &messages);
            extends(last.map(|sent| &sent.elements), &elements);
        }
        budget(state, prepared, &context);
        pointed::entered(state, prepared);
        self.room_was_there(prepared, &context);
        let episodes = matches!(state.terms.ladder.main(), Policy::Cwl | Policy::CwlPaper);
        if episodes {
            // A pass that an operator's words start takes what they name, and nothing else.
            let (named, alone) = named(prepared);
            if !named {
                open_goes_last(state, prepared, before);
            }
            self.descriptions(state, prepared, &messages);
            if !alone {
                to_the_floor(state, prepared, before);
            }
            published(state, prepared, before);
        }
        self.resurrections(&gist);
        if self.edited {
            self.transcript = Transcript::default();
        }
        appended(
            &self.transcript,
            prepared.view.transcript(),
            prepared.guided.is_some(),
        );
        self.transcript = prepared.view.transcript().clone();
        self.sent.push(Sent {
            messages,
            elements,
            gist,
            passed: prepared.pass.is_some(),
            exceeded: prepared.pinned.is_some(),
        });
        self.edited = false;
    }

    /// What stands in front of the conversation changes with the guidance alone, and nothing else is
    /// added before it where the tools come with it.
    fn guided(&mut self, state: &TurnState, prepared: &Prepared) {
        let front = (state.tools.clone(), state.guidance.clone());
        if let Some(before) = &self.front
            && prepared.guided.is_none()
            && self.tools
        {
            assert_eq!(*before, front, "the front changed without the guidance");
        }
        let line = state.terms.offer == Offer::Line;
        if line && state.guide.is_waiting() && state.marks.is_empty() && state.pending.is_empty() {
            assert_eq!(
                prepared.body.to_bytes(),
                self.body(),
                "not the client's bytes"
            );
        }
        if self.tools {
            self.front = Some(front);
        }
    }

    /// A conversation without calls has the same speakers in the same order, whatever went of it.
    fn in_turns(
        &self,
        state: &TurnState,
        prepared: &Prepared,
        own: &[String],
        messages: &[String],
    ) {
        let items = &prepared.view.transcript().items;
        let called = items.iter().any(|item| item.kind == ItemKind::Call);
        let ours = matches!(state.terms.ladder.main(), Policy::Cwl | Policy::CwlPaper);
        if called || !ours {
            return;
        }
        let roles = |messages: &[String]| -> Vec<serde_json::Value> {
            let role = |message: &String| {
                let message: serde_json::Value = serde_json::from_str(message).unwrap();
                message["role"].clone()
            };
            messages.iter().map(role).collect()
        };
        assert_eq!(roles(messages), roles(own));
    }

    /// What left the view never comes back.
    fn resurrections(&mut self, gist: &[String]) {
        let now: BTreeSet<&String> = gist.iter().filter(|label| is_label(label)).collect();
        for label in &now {
            assert!(!self.gone.contains(*label), "{label} came back: {gist:#?}");
        }
        let last = self.sent.last().map(|sent| sent.gist.as_slice());
        for label in last
            .unwrap_or_default()
            .iter()
            .filter(|label| is_label(label))
        {
            if !now.contains(label) {
                self.gone.insert(label.clone());
            }
        }
    }

    /// Every closed expl's description, or its line in the ledger, is in every later request.
    fn descriptions(&self, state: &TurnState, prepared: &Prepared, messages: &[String]) {
        let tombstone = prepared
            .view
            .transcript()
            .graph
            .episodes
            .iter()
            .any(|episode| {
                let seen = Marked::new(prepared.view.transcript(), &state.marks);
                seen.tombstone(episode).is_some()
            });
        if !tombstone {
            // The client dropped the message that held the ledger, or it went as the last of all before the budget was
            // unmet. No other pass takes it, which the check of its moves verifies.
            return;
        }
        let ledger = messages
            .iter()
            .any(|message| message.contains("ledger of evicted"));
        let counted = ledger && messages.iter().any(|message| message.contains(" earlier"));
        for episode in &prepared.view.transcript().graph.episodes {
            let Some(description) = &episode.description else {
                continue;
            };
            let line: String = description.chars().take(80).collect();
            let found = messages.iter().any(|message| {
                message.contains(description) || (ledger && message.contains(&line))
            });
            assert!(
                found || counted,
                "the description of {} is lost",
                episode.name
            );
        }
    }
}

/// Whether a pass took what an operator named, and whether that alone.
fn named(prepared: &Prepared) -> (bool, bool) {
    let Some((trigger, proposal)) = &prepared.pass else {
        return (false, false);
    };
    let asked = |(_, level): &(Policy, Level)| *level == Level::Asked;
    let alone = *trigger == Trigger::Asked;
    assert!(!alone || proposal.gone.keys().all(asked), "{proposal:?}");
    (proposal.gone.keys().any(asked), alone)
}

/// Between passes each request's messages extend the one before byte for byte.
fn extends(last: Option<&Vec<String>>, messages: &[String]) {
    for (at, message) in last.into_iter().flatten().enumerate() {
        assert_eq!(
            messages.get(at),
            Some(message),
            "message {at} changed without a pass"
        );
    }
}

/// User messages in order, byte for byte.
fn users(messages: &[String]) -> Vec<&String> {
    // A result that comes as text is no user's.
    let user = |message: &&String| {
        message.contains(r#""role":"user""#) && !message.contains("Observation:")
    };
    messages.iter().filter(user).collect()
}

fn marks_move_right(state: &TurnState, before: &Marks) {
    for (item, mark) in before.iter() {
        let now = state.marks.get(item);
        assert!(now >= mark, "the mark of {item} moved left");
    }
}

/// Under the ceiling, or reported with what is pinned.
fn budget(state: &TurnState, prepared: &Prepared, context: &str) {
    let ceiling = u64::from(state.terms.ceiling);
    assert!(
        prepared.estimate <= ceiling || prepared.pinned.is_some(),
        "{} of {ceiling} and not reported: {context}",
        prepared.estimate,
    );
    if let Some((_, proposal)) = &prepared.pass {
        let counted = (proposal.size, prepared.estimate);
        assert_eq!(counted.0, counted.1, "the pass counted otherwise");
        let asked = proposal
            .gone
            .keys()
            .any(|(_, level)| *level == Level::Asked);
        // A rung may have a floor of its own.
        let levels = state.terms.ladder.main() == Policy::Cwl
            && prepared.eviction.order == Order::Levels
            && state.terms.rungs.is_empty();
        assert!(
            asked || !levels || proposal.size + proposal.last.freed >= prepared.floor,
            "{} is below the floor of {} by more than the last step, {}: {context}",
            proposal.size,
            prepared.floor,
            proposal.last.freed,
        );
        assert!(
            asked || !levels || is_one_step(prepared, &proposal.last),
            "more than one step: {:?}: {context}",
            proposal.last,
        );
    }
}

/// Whether items that moved together are of one episode, of one message, or results that point to one another.
fn is_one_step(prepared: &Prepared, last: &LastStep) -> bool {
    let transcript = prepared.view.transcript();
    let items = || last.items.iter().filter_map(|at| transcript.items.get(*at));
    let mut episodes: Vec<_> = items().map(|item| item.episode).collect();
    episodes.dedup();
    let mut entries: Vec<_> = items().map(|item| item.entry).collect();
    entries.dedup();
    let pointers = prepared.view.marked().pointers();
    let group = |to: &ItemIndex, from: &Vec<ItemIndex>| {
        let mut all = last.items.iter();
        all.all(|at| at == to || from.contains(at))
    };
    episodes.len() <= 1 || entries.len() <= 1 || pointers.iter().any(|(to, from)| group(to, from))
}

/// Messages that were added changed no number and no segment of what stood there, whether the
/// client resends reasoning or not; guidance that came in made a system message longer.
fn appended(before: &Transcript, now: &Transcript, guided: bool) {
    let numbers = |transcript: &Transcript| -> Vec<_> {
        let items = transcript.items.iter();
        let lasting = items.filter(|item| item.kind != ItemKind::Reasoning);
        let longer = |kind| guided && kind == ItemKind::System;
        let size = |item: &Item| if longer(item.kind) { 0 } else { item.tokens };
        lasting
            .map(|item| (item.no, item.kind, size(item)))
            .collect()
    };
    let (old, new) = (numbers(before), numbers(now));
    assert_eq!(new.get(..old.len()), Some(old.as_slice()), "numbers moved");
    let segments = |transcript: &Transcript| -> Vec<_> {
        let closed = transcript
            .graph
            .episodes
            .iter()
            .filter(|episode| episode.closed);
        let items = |episode: &crate::session::graph::Episode| -> Vec<ItemNo> {
            let items = episode.items.iter().map(|item| &transcript.items[*item]);
            let lasting = items.filter(|item| item.kind != ItemKind::Reasoning);
            lasting.map(|item| item.no).collect()
        };
        closed
            .map(|episode| (episode.name.clone(), episode.kind, items(episode)))
            .collect()
    };
    for episode in &now.graph.episodes {
        let ascending = episode.items.is_sorted_by(|one, next| one < next);
        assert!(ascending, "items out of order: {:?}", episode.items);
    }
    let (old, new) = (segments(before), segments(now));
    assert_eq!(
        new.get(..old.len()),
        Some(old.as_slice()),
        "a segment changed"
    );
}

/// What the filter of the main rung leaves out.
fn spared(state: &TurnState, prepared: &Prepared) -> ItemSet {
    let originals = state.originals(prepared.view.transcript(), None);
    let set = state.terms.rungs.get(&state.terms.ladder.main());
    set.map_or_else(ItemSet::default, |set| {
        set.spared(&prepared.view, originals)
    })
}

/// The floor of the main rung.
fn floor(state: &TurnState, prepared: &Prepared) -> u64 {
    let asked = Target {
        fixed: state.fixed,
        ceiling: prepared.ceiling,
        floor: prepared.floor,
        window: None,
    };
    let set = state.terms.rungs.get(&state.terms.ladder.main());
    set.map_or(asked, |set| set.target(asked)).floor
}

/// A pass that stops above the floor leaves nothing that it could have evicted.
fn to_the_floor(state: &TurnState, prepared: &Prepared, before: &Marks) {
    let transcript = prepared.view.transcript();
    let floor = floor(state, prepared);
    if prepared.pass.is_none() || prepared.estimate <= floor {
        return;
    }
    let config = &prepared.eviction;
    let protection = Protection::new(Marked::new(transcript, before), config.protect_recent);
    let protection = protection
        .holding(&config.held)
        .sparing(&spared(state, prepared));
    // The finer order leaves whole items where the next pass can strip results instead.
    let result = |(at, item): &(ItemIndex, &crate::session::transcript::Item)| {
        item.kind == ItemKind::Result && protection.covers(transcript, *at)
    };
    let items = transcript.items.indexed().filter(result);
    let spared = items.map(|(_, item)| u64::from(item.tokens)).sum::<u64>() / 2;
    if config.order == Order::Levels && prepared.estimate <= floor + spared {
        return;
    }
    let removed = |episode: &crate::session::graph::Episode| {
        Marked::new(transcript, &state.marks).is_removed(episode)
    };
    let prologue = prologue(transcript, config);
    for episode in transcript
        .graph
        .episodes
        .iter()
        .skip(prologue)
        .filter(|episode| episode.closed)
    {
        let depended = episode
            .dependents
            .iter()
            .any(|act| !removed(&transcript.graph.episodes[*act]));
        let pointed = prepared.view.marked().pointers();
        let protected = episode
            .items
            .iter()
            .any(|item| protection.covers(transcript, *item) || pointed.contains_key(item));
        assert!(
            depended || protected || episode.carrier.is_none() || removed(episode),
            "{:?} {:?} stands although the floor was not met",
            episode.kind,
            episode.name,
        );
    }
}

/// How many of the first episodes never go.
fn prologue(transcript: &Transcript, config: &EvictionSettings) -> usize {
    if config.order != Order::Paper || !config.prologue_until_start {
        return 0;
    }
    let mut episodes = transcript.graph.episodes.iter();
    let first = episodes.position(|episode| episode.kind != EpisodeKind::Implicit);
    first.unwrap_or(usize::MAX)
}

/// The published order touches nothing of an open episode, of the prologue, of the newest message, nor
/// of exploration on which an act in view depends, whatever the budget.
fn published(state: &TurnState, prepared: &Prepared, before: &Marks) {
    let config = &prepared.eviction;
    if config.order != Order::Paper {
        return;
    }
    let transcript = prepared.view.transcript();
    let graph = &transcript.graph;
    let prologue = prologue(transcript, config);
    let newest = Protection::new(Marked::new(transcript, before), 0);
    for (at, item) in transcript.items.indexed() {
        if state.marks.get(item.no) == before.get(item.no) || item.kind == ItemKind::Result {
            continue;
        }
        let episode = &graph.episodes[item.episode.unwrap()];
        let mut acts = episode.dependents.iter().map(|act| &graph.episodes[*act]);
        let held = acts.any(|act| !Marked::new(transcript, &state.marks).is_removed(act));
        let early = item.episode.unwrap() < EpisodeIndex(prologue);
        assert!(
            episode.closed && !held && !early && !newest.is_newest(at),
            "{:?} of {:?} {:?} went",
            item.kind,
            episode.kind,
            episode.name
        );
    }
}

/// Nothing of the open episode goes while a closed one still shows a call that could go. The tail
/// of recent tokens goes behind it, and so does what an act in that tail holds.
fn open_goes_last(state: &TurnState, prepared: &Prepared, before: &Marks) {
    let transcript = prepared.view.transcript();
    let Some(current) = transcript.graph.current() else {
        return;
    };
    let newest = transcript
        .entries
        .iter()
        .rfind(|entry| entry.role == plimsoll_model::Role::Assistant)
        .map_or(ItemIndex(0), |entry| entry.items.start);
    // Thoughts go before all work.
    let moved = |item: &&ItemIndex| {
        let Item { no, kind, .. } = &transcript.items[**item];
        *kind != ItemKind::Reasoning && state.marks.get(*no) > before.get(*no)
    };
    let Some(hit) = transcript.graph.episodes[current].items.iter().find(moved) else {
        return;
    };
    let config = &prepared.eviction;
    let protection = Protection::new(Marked::new(transcript, before), config.protect_recent);
    let protection = protection
        .holding(&config.held)
        .sparing(&spared(state, prepared));
    // What open work points to stays as long as that does.
    let pointed = Marked::new(transcript, before).pointers();
    let pointing = prepared.view.marked().pointers();
    let recent = |item: &ItemIndex| {
        let held = pointed.contains_key(item) || pointing.contains_key(item);
        protection.covers(transcript, *item) || held
    };
    for episode in transcript
        .graph
        .episodes
        .iter()
        .filter(|episode| episode.closed)
    {
        let blocked = episode.dependents.iter().any(|act| {
            let start = transcript.graph.episodes[*act].carrier.unwrap();
            let shown = state.marks.get(transcript.items[start].no) < Mark::Removed;
            let stood = before.get(transcript.items[start].no) < Mark::Removed;
            shown || (stood && transcript.graph.episodes[*act].items.iter().any(recent))
        });
        // Nothing of a span goes while its first call, which would get the tombstone, has to stay.
        let blocked = blocked || episode.carrier.is_some_and(|carrier| recent(&carrier));
        let due = |item: &&ItemIndex| !blocked && !recent(item);
        for item in episode.items.iter().filter(due) {
            let shown = &transcript.items[*item];
            let loose = shown.delimiter.is_none()
                && shown.kind == ItemKind::Call
                && shown.pair.is_some_and(|pair| pair < newest);
            assert!(
                !loose || state.marks.get(shown.no) >= Mark::Tombstone,
                "item {} of the open episode went before {} of {:?} {:?}",
                transcript.items[*hit].no,
                shown.no,
                episode.kind == EpisodeKind::Implicit,
                episode.name,
            );
        }
    }
}
