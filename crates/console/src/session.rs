//! A session as its views share it: episodes, passes and parts. Owns their fields. Texts come from
//! `content`, and only where they may be shown.

use std::collections::BTreeMap;

use plimsoll_core::session::path::{Path, PathEntry};
use plimsoll_model::{ExplicitKind, ItemNo, Mark, PassFacts, StoredHop};
use serde_json::{Value, json};

use super::story::{Story, StoryEpisode, StoryItem, StoryRole};
use super::turns::{ratio, scaled};

/// The episodes of a session. Findings are left out unless they may be shown.
#[must_use]
pub fn episodes(story: &Story, shows: bool) -> Vec<Value> {
    let all = story.episodes.iter().enumerate();
    all.map(|(at, one)| episode(story, at, one, shows))
        .collect()
}

fn episode(story: &Story, at: usize, one: &StoryEpisode, shows: bool) -> Value {
    let items = || story.items.iter().filter(|item| item.episode == Some(at));
    let whole = items().map(|item| item.tokens).sum::<Option<u32>>();
    let now = items()
        .map(|item| item.size_at(u32::MAX))
        .sum::<Option<u32>>();
    let moved = |item: &StoryItem| item.marks.first().map(|(turn, _)| *turn);
    let first = items().filter_map(moved).min();
    let gone = items()
        .filter(|item| item.role != StoryRole::Hidden)
        .map(moved)
        .collect::<Option<Vec<u32>>>()
        .and_then(|turns| turns.into_iter().max());
    json!({
        "name": one.name,
        "type": match one.kind {
            ExplicitKind::Expl => "expl",
            ExplicitKind::Act => "act",
        },
        "explicit": true,
        "deps": one.deps,
        "start": one.start,
        "end": one.end,
        "finding": one.finding.as_ref().filter(|_| shows),
        "items": items().count(),
        "tokens": whole,
        "now": now,
        "first_evicted": first,
        "gone": gone.filter(|_| one.end.is_some()),
    })
}

/// A pass, and where it ran.
#[derive(Clone, Copy)]
pub struct PassPlace<'a> {
    /// The entry of its turn.
    pub entry: &'a PathEntry,
    /// The number of the hop before which it ran.
    pub at: usize,
    /// That hop.
    pub hop: &'a StoredHop,
    /// What it did.
    pub facts: &'a PassFacts,
}

impl PassPlace<'_> {
    /// The items that it moved.
    #[must_use]
    pub fn moved(&self) -> Vec<ItemNo> {
        self.hop.marks.iter().map(|(no, _)| *no).collect()
    }
}

/// The passes of a path in order.
pub fn passes(path: &Path) -> impl Iterator<Item = PassPlace<'_>> {
    path.entries.iter().flat_map(passes_of)
}

/// The passes of a turn in order.
pub fn passes_of(entry: &PathEntry) -> impl Iterator<Item = PassPlace<'_>> {
    let hops = entry.record.hops.iter().enumerate();
    hops.filter_map(move |(at, hop)| {
        let facts = hop.pass.as_deref()?;
        Some(PassPlace {
            entry,
            at,
            hop,
            facts,
        })
    })
}

/// A pass as the list of passes shows it. `needed` is how many of its items were needed later.
#[must_use]
pub fn pass(place: &PassPlace<'_>, needed: Option<usize>) -> Value {
    let facts = place.facts;
    json!({
        "turn": place.entry.record.turn,
        "hop": place.at,
        "trigger": facts.trigger,
        "before": facts.before,
        "after": facts.after,
        "floor": facts.floor,
        "items": place.hop.marks.len(),
        "freed": facts.before.saturating_sub(facts.after),
        "cut": facts.cut,
        "reread": facts.after.saturating_sub(facts.cut),
        "needed": needed,
    })
}

/// What the system's text, tools and framing took of the view of each turn: all that no other item accounts for.
#[must_use]
pub fn prologues(story: &Story, path: &Path) -> Vec<u64> {
    let mut changes: BTreeMap<u32, i64> = BTreeMap::new();
    for item in story.items.iter().filter(|item| !is_prologue(item)) {
        let mut before = 0;
        for (turn, size) in &item.sizes {
            // What a turn said itself was not in its own view.
            let turn = turn + u32::from(is_said(item) && *turn == item.turn);
            *changes.entry(turn).or_default() += i64::from(*size) - before;
            before = i64::from(*size);
        }
    }
    let (mut changes, mut held) = (changes.into_iter().peekable(), 0);
    let entries = path.entries.iter().map(|entry| {
        while let Some((_, change)) = changes.next_if(|(turn, _)| *turn <= entry.record.turn) {
            held += change;
        }
        prologue(entry, u64::try_from(held).unwrap_or(0))
    });
    entries.collect()
}

/// What is left of a turn's view beside the items that it held, on the scale of the ceiling.
fn prologue(entry: &PathEntry, held: u64) -> u64 {
    let sent = entry.record.hops.last().map_or(0, |hop| hop.estimate);
    scaled(sent.saturating_sub(held), ratio(entry))
}

fn is_prologue(item: &StoryItem) -> bool {
    item.role == StoryRole::System
}

fn is_said(item: &StoryItem) -> bool {
    matches!(
        item.role,
        StoryRole::Assistant | StoryRole::Call | StoryRole::Hidden
    )
}

/// What the newest view was made of. None if sizes are not known.
#[must_use]
pub fn parts(story: &Story, path: &Path) -> Option<Value> {
    let entry = path.entries.last()?;
    let facts = &entry.record.facts;
    let turn = entry.record.turn;
    let open = story
        .episodes
        .iter()
        .rposition(|one| one.end.is_none_or(|end| end >= turn));
    let deps = open.and_then(|at| story.episodes.get(at));
    let deps: &[String] = deps.map_or(&[], |one| &one.deps);
    let (mut user, mut work, mut needed) = (0_u64, 0_u64, 0_u64);
    let (mut closed, mut left, mut marks, mut recalled) = (0_u64, 0_u64, 0_u64, 0_u64);
    for item in &story.items {
        // What the newest turn said itself was not in its own view.
        if is_prologue(item) || (is_said(item) && item.turn == turn) {
            continue;
        }
        let size = u64::from(item.size_at(turn).unwrap_or(0));
        let name = item.episode.and_then(|at| story.episodes.get(at));
        let is_needed = name.is_some_and(|one| deps.contains(&one.name));
        let part = match item.role {
            StoryRole::User => &mut user,
            StoryRole::Hidden if item.recalled => &mut recalled,
            StoryRole::Hidden => &mut marks,
            _ if item.mark_at(turn) != Mark::Live => &mut left,
            _ if item.episode.is_some() && item.episode == open => &mut work,
            _ if is_needed => &mut needed,
            _ => &mut closed,
        };
        *part += size;
    }
    let ratio = ratio(entry);
    let held = user + work + needed + closed + left + marks + recalled;
    let prologue = prologue(entry, held);
    let of = |tokens: u64| scaled(tokens, ratio);
    let tools = of(facts.fixed).min(prologue);
    // What no item accounts for, such as the tokens of messages themselves, counts as the system's.
    Some(json!({
        "system": prologue - tools,
        "tools": tools,
        "user": of(user),
        "open": of(work),
        "needed": of(needed),
        "closed": of(closed),
        "left": of(left),
        "marks": of(marks),
        "recalled": of(recalled),
    }))
}
